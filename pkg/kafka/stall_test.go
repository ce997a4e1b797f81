package kafka_test

import (
	"context"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/testutil"
	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kfake"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/skeinhq/skein/pkg/kafka"
	"github.com/skeinhq/skein/pkg/kafka/kafkatest"
	"github.com/skeinhq/skein/pkg/record"
)

// stalls is a watch of two partitions of skein.events, both read by a member of group "g".
type stalls struct {
	t     *testing.T
	cfg   kafka.Config
	lag   *kafka.Lag
	reg   *prometheus.Registry
	watch *kafka.StallWatch
}

func newStalls(t *testing.T, cfg kafka.Config) *stalls {
	t.Helper()
	s := &stalls{t: t, cfg: cfg, lag: kafka.NewLag(time.Now), reg: prometheus.NewRegistry()}
	cfg.Registerer = s.reg
	var err error
	if s.watch, err = kafka.NewStallWatch(cfg, "compactor", cfg.Topics().Events, "g", s.lag); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		ctx, cancel := context.WithCancel(context.Background())
		cancel()
		s.watch.Run(ctx, nil)
	})
	s.lag.Opened(0, 1)
	return s
}

// commit has the group stand at an offset of partition 0.
func (s *stalls) commit(offset int64, metadata string) {
	s.t.Helper()
	adm := kafkatest.Admin(s.t, s.cfg)
	var offsets kadm.Offsets
	offsets.Add(kadm.Offset{Topic: s.cfg.Topics().Events, At: offset, LeaderEpoch: -1, Metadata: metadata})
	if err := adm.CommitAllOffsets(s.t.Context(), "g", offsets); err != nil {
		s.t.Fatal(err)
	}
}

// old is the age of the records.
const old = time.Hour

func (s *stalls) event() *kgo.Record {
	return &kgo.Record{Topic: s.cfg.Topics().Events, Value: []byte("{}"), Timestamp: time.Now().Add(-old)}
}

func (s *stalls) produce(records ...*kgo.Record) {
	s.t.Helper()
	// By the records' own time they would be late already.
	cl, err := kafka.NewProducer(s.cfg, kgo.RecordDeliveryTimeout(2*old))
	if err != nil {
		s.t.Fatal(err)
	}
	defer cl.Close()
	if err := cl.ProduceSync(s.t.Context(), records...).FirstErr(); err != nil {
		s.t.Fatal(err)
	}
}

// look looks once. A broker that has just started may know no coordinator yet.
func (s *stalls) look() {
	s.t.Helper()
	deadline := time.Now().Add(kafkatest.Timeout)
	for err := s.watch.Look(s.t.Context()); err != nil; err = s.watch.Look(s.t.Context()) {
		if time.Now().After(deadline) {
			s.t.Fatal(err)
		}
	}
}

// finds looks until the watch has found what it should, which takes two looks, and wants the lag and the
// metric to say the same. An empty text is nothing.
func (s *stalls) finds(what, text string, open, unread int) {
	s.t.Helper()
	s.look()
	deadline := time.Now().Add(kafkatest.Timeout)
	for { // the markers of a transaction come after its end
		s.look()
		found := s.watch.Check(s.t.Context())
		if (found != nil) == (text != "") && (found == nil || strings.Contains(found.Error(), text)) {
			break
		}
		if time.Now().After(deadline) {
			s.t.Fatalf("%s: it has found %v, want %q", what, found, text)
		}
	}
	if lag := s.lag.Seconds(); unread > 0 && lag < old.Seconds() || open > 0 && lag <= 0 || text == "" && lag >= old.Seconds() {
		s.t.Errorf("%s: the lag is %v s", what, lag)
	}
	want := "# HELP skein_compactor_stalled_partitions Partitions that make no progress although they have unread records, by cause: an open transaction of any producer, or unread.\n" +
		"# TYPE skein_compactor_stalled_partitions gauge\n" +
		"skein_compactor_stalled_partitions{cause=\"open-transaction\"} " + string(rune('0'+open)) + "\n" +
		"skein_compactor_stalled_partitions{cause=\"unread\"} " + string(rune('0'+unread)) + "\n"
	if err := testutil.GatherAndCompare(s.reg, strings.NewReader(want), "skein_compactor_stalled_partitions"); err != nil {
		s.t.Errorf("%s: %v", what, err)
	}
}

func TestStallWatch_FindsWhatIsNotReadAndOpenTransactions(t *testing.T) {
	kafkatest.OnBoth(t, 2, func(t *testing.T, cfg kafka.Config) {
		s := newStalls(t, cfg)
		s.finds("empty topics and a group that is not there", "", 0, 0)
		s.produce(s.event(), s.event())
		s.finds("nothing was ever read", "/0 stands at offset -1", 0, 1)
		s.commit(2, "")
		s.finds("all was read", "", 0, 0)

		cl, err := kafka.NewTransactor(t.Context(), cfg, cfg.TopicPrefix+"somebody")
		if err != nil {
			t.Fatal(err)
		}
		defer cl.Close()
		transact := func() {
			t.Helper()
			if err := cl.BeginTransaction(); err != nil {
				t.Fatal(err)
			}
			if err := cl.ProduceSync(t.Context(), s.event()).FirstErr(); err != nil {
				t.Fatal(err)
			}
		}
		end := func(how kgo.TransactionEndTry) {
			t.Helper()
			if err := cl.EndTransaction(t.Context(), how); err != nil {
				t.Fatal(err)
			}
		}
		transact()
		s.look()
		if err := s.watch.Check(t.Context()); err != nil {
			t.Errorf("of a transaction that may end at once it says %v", err)
		}
		s.finds("a transaction is open", "/0 can be read up to offset 2 only: a transaction is open there", 1, 0)
		s.produce(s.event()) // without a transaction, and hidden all the same
		s.finds("more lies behind it", "--partition 0 --start-offset 2", 1, 0)
		end(kgo.TryAbort)
		s.finds("it was aborted, and what lay behind it is not read", "/0 stands at offset 2", 0, 1)
		s.commit(5, "")
		s.finds("that was read", "", 0, 0)

		transact() // at offset 5
		end(kgo.TryAbort)
		s.finds("only what was aborted lies there", "", 0, 0)
		transact() // at offset 7
		end(kgo.TryCommit)
		s.finds("a committed record is not read", "/0 stands at offset 5", 0, 1)
		s.lag.Read(0, time.Now())
		s.finds("the member has read it and is at it", "", 0, 0)
		s.lag.Done(0)
		s.commit(8, "")
		s.finds("only a marker lies there", "", 0, 0)
		s.commit(0, record.Progress{Processed: 7, Partitions: 2}.Metadata())
		s.finds("the compactor has not decided the last", "/0 stands at offset 7", 0, 1)
		s.commit(0, record.Progress{Processed: 8, Partitions: 2}.Metadata())
		s.finds("the compactor has decided all, and holds its offset back", "", 0, 0)
		s.commit(7, "")
		s.lag.Gone(0)
		s.finds("the partition is another member's", "", 0, 0)
	})
}

func TestStallWatch_FindsWhatCannotBeRead(t *testing.T) {
	for name, fault := range map[string]kfake.Fault{
		"fetches fail":       {Keys: []kmsg.Key{kmsg.Fetch}, Err: kerr.KafkaStorageError, Count: -1},
		"the end is unknown": {Keys: []kmsg.Key{kmsg.ListOffsets}, Err: kerr.KafkaStorageError, Count: -1},
	} {
		t.Run(name, func(t *testing.T) {
			c := kafkatest.StartCluster(t, 2)
			s := newStalls(t, c.Config)
			s.produce(s.event(), s.event())
			s.commit(1, "")
			failing := c.Fake.Fault(fault)
			s.look()
			s.look()
			const want = "cannot be read since"
			if err := s.watch.Check(t.Context()); err == nil || !strings.Contains(err.Error(), want) ||
				!strings.Contains(err.Error(), "KAFKA_STORAGE_ERROR") {
				t.Errorf("it has found %v, want %q", err, want)
			}
			if s.lag.Seconds() <= 0 {
				t.Error("the lag does not rise")
			}
			failing.Remove()
			s.finds("it can be read again and is not", "/0 stands at offset 1", 0, 1)
			s.commit(2, "")
			s.finds("it was read", "", 0, 0)
		})
	}
}
