package migrate_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/skeinhq/skein/pkg/kafka"
	"github.com/skeinhq/skein/pkg/kafka/kafkatest"
	"github.com/skeinhq/skein/pkg/migrate"
	"github.com/skeinhq/skein/pkg/record"
	"github.com/skeinhq/skein/test/parts/partstest"
)

// topicSet is a topic set whose records a test writes itself, in the compactors' place. The whole way with real
// ones is tested at the command.
type topicSet struct {
	*testing.T
	cfg        kafka.Config
	partitions int32
	adm        *kadm.Client
}

func newTopicSet(t *testing.T, partitions int32) *topicSet {
	return newTopicSetOn(t, kafkatest.Start(t, partitions), partitions)
}

func newTopicSetOn(t *testing.T, cfg kafka.Config, partitions int32) *topicSet {
	adm := kafkatest.Admin(t, cfg)
	return &topicSet{t, cfg, partitions, adm}
}

// copied is the new set's configuration.
func (s *topicSet) copied() kafka.Config {
	cfg := s.cfg
	cfg.TopicPrefix += "v2."
	return cfg
}

func (s *topicSet) options(partitions int32) migrate.Options {
	return migrate.Options{From: s.cfg, ToPrefix: s.copied().TopicPrefix, Spec: kafka.TopicSpec{Partitions: partitions}}
}

func (s *topicSet) migrate(o migrate.Options) migrate.Report {
	s.Helper()
	r, err := migrate.Run(s.Context(), o)
	if err != nil {
		s.Fatal(err)
	}
	return r
}

func key(thread string) []byte { return []byte("acme/" + thread) }

// event is a raw event of a thread.
func (s *topicSet) event(thread string) *kgo.Record {
	return &kgo.Record{Topic: s.cfg.Topics().Events, Partition: record.Partition(key(thread), s.partitions), Key: key(thread), Value: []byte(`{}`)}
}

// run is the record of a run whose raw events are those from first to next.
func (s *topicSet) run(thread string, number int, first, next int64) *kgo.Record {
	s.Helper()
	id := fmt.Sprintf("r%d", number)
	p := record.Partition(key(thread), s.partitions)
	value, err := record.EncodeRun(&record.Run{
		Tenant: "acme", ThreadID: thread, RunID: id, Lineage: record.Lineage{RootRunID: id, ParentBy: record.ParentNone},
		Status:    record.StatusFinished,
		StartedAt: time.Unix(1, 0), Raw: record.Raw{Partition: p, First: first, Next: next, Ranges: [][2]int64{{first, next}}},
	})
	if err != nil {
		s.Fatal(err)
	}
	return &kgo.Record{
		Topic: s.cfg.Topics().Runs, Partition: p, Key: []byte("acme/" + thread + "/" + id), Value: value,
		Headers: kafka.Headers(record.Headers{Version: record.Version, Kind: record.KindRun, RunID: id, Seq: -1}),
	}
}

// expire deletes the first raw events of a thread's partition.
func (s *topicSet) expire(thread string, before int64) {
	s.Helper()
	to := kadm.Offsets{}
	to.Add(kadm.Offset{Topic: s.cfg.Topics().Events, Partition: record.Partition(key(thread), s.partitions), At: before})
	done, err := s.adm.DeleteRecords(s.Context(), to)
	if err == nil {
		err = done.Error()
	}
	if err != nil {
		s.Fatal(err)
	}
}

// decided are the offsets of compactors that have decided all that there is.
func (s *topicSet) decided() kadm.Offsets {
	s.Helper()
	offsets := kadm.Offsets{}
	for p, end := range s.ends(s.cfg) {
		offsets.Add(kadm.Offset{Topic: s.cfg.Topics().Events, Partition: p, At: end, LeaderEpoch: -1,
			Metadata: record.Progress{Processed: end, Partitions: s.partitions}.Metadata()})
	}
	return offsets
}

func (s *topicSet) decide() {
	s.Helper()
	if err := s.adm.CommitAllOffsets(s.Context(), s.cfg.CompactorGroup(), s.decided()); err != nil {
		s.Fatal(err)
	}
}

// ends are where the raw events of a set end.
func (s *topicSet) ends(cfg kafka.Config) map[int32]int64 {
	s.Helper()
	ends, err := kafka.Ends(s.Context(), s.adm, cfg.Topics().Events)
	if err != nil {
		s.Fatal(err)
	}
	return ends
}

// start is where the raw events of a new partition begin.
func (s *topicSet) start(partition int32) int64 {
	s.Helper()
	spans, err := kafka.Spans(s.Context(), s.adm, s.copied().Topics().Events)
	if err != nil {
		s.Fatal(err)
	}
	return spans[partition].Start
}

// runs are the copied run records in the order of their positions. All of them name places of their own, and
// every raw event that can be read is a copied one.
func (s *topicSet) runs(partitions int32) []*record.Run {
	s.Helper()
	var out []*record.Run
	for _, m := range kafkatest.Consume(s.T, s.copied(), s.copied().Topics().Runs) {
		if h, err := record.ParseHeaders(m.Headers); err != nil || h.Kind != record.KindRun {
			continue
		}
		r, err := record.DecodeRun(m.Value)
		if err != nil {
			s.Fatal(err)
		}
		if want := record.Partition(key(r.ThreadID), partitions); m.Partition != want || r.Raw.Partition != want {
			s.Errorf("run %s lies on partition %d and says %d, want %d", r.RunID, m.Partition, r.Raw.Partition, want)
		}
		out = append(out, r)
	}
	slices.SortFunc(out, func(a, b *record.Run) int { return int(a.Raw.First - b.Raw.First) })
	for i, r := range out {
		if r.Raw.Next <= r.Raw.First || i > 0 && r.Raw.First < out[i-1].Raw.Next {
			s.Errorf("run %s is from %d to %d", r.RunID, r.Raw.First, r.Raw.Next)
		}
	}
	for _, m := range kafkatest.Consume(s.T, s.copied(), s.copied().Topics().Events) {
		if !slices.ContainsFunc(m.Headers, func(h kgo.RecordHeader) bool { return h.Key == record.HeaderCopiedFrom }) {
			s.Errorf("at %d:%d lies %s", m.Partition, m.Offset, m.Value)
		}
	}
	return out
}

// transactions watches what a copy writes.
type transactions struct {
	records, most, ended atomic.Int64
	onEnd                func(n int64)
}

func (t *transactions) OnProduceRecordBuffered(*kgo.Record) {
	if n := t.records.Add(1); n > t.most.Load() {
		t.most.Store(n)
	}
}

func (t *transactions) OnBrokerWrite(_ kgo.BrokerMetadata, key int16, _ int, _, _ time.Duration, _ error) {
	if key == int16(kmsg.EndTxn) {
		t.records.Store(0)
		if n := t.ended.Add(1); t.onEnd != nil {
			t.onEnd(n)
		}
	}
}

func (t *transactions) watch(o *migrate.Options) {
	o.From.Options = func() []kgo.Opt { return []kgo.Opt{kgo.WithHooks(t)} }
}

func TestRun_MakesRoomInParts(t *testing.T) {
	partstest.SkipShort(t, "time for tests of scale")
	const runs = 6_000
	s := newTopicSet(t, 2)
	var records []*kgo.Record
	for range 2*runs + 1 {
		records = append(records, s.event("long"))
	}
	for i := range runs {
		records = append(records, s.run("long", i, int64(2*i), int64(2*i+2)))
	}
	kafkatest.Produce(t, s.cfg, records...)
	s.decide()
	s.expire("long", 2*runs)

	// Killed at the end of a transaction with room, and before anything is copied.
	o, txns := s.options(3), &transactions{}
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	txns.onEnd = func(n int64) {
		if n == 3 {
			cancel()
		}
	}
	txns.watch(&o)
	if r, err := migrate.Run(ctx, o); !errors.Is(err, context.Canceled) || r.Copied["events"] > 0 {
		t.Fatalf("killed it says %v, %+v", err, r)
	}
	txns.onEnd = nil
	if r := s.migrate(o); !r.Done || len(r.Proof.Differences) > 0 {
		t.Errorf("it says %+v", r)
	}
	if most := txns.most.Load(); most > 5_001 {
		t.Errorf("%d records in one transaction", most)
	}
	q := record.Partition(key("long"), 3)
	copied := s.runs(3)
	if len(copied) != runs || copied[0].RunID != "r0" || copied[runs-1].RunID != fmt.Sprintf("r%d", runs-1) {
		t.Fatalf("%d runs became %d, in another order", runs, len(copied))
	}
	if last := copied[runs-1].Raw.Next; last > s.start(q) {
		t.Errorf("runs that are gone go up to %d, and what can be read begins at %d", last, s.start(q))
	}
	for p, end := range s.ends(s.copied()) {
		if p != q && end > 0 {
			t.Errorf("partition %d ends at %d", p, end)
		}
	}
}

// transaction opens a transaction of somebody else's.
func (s *topicSet) transaction() *kgo.Client {
	s.Helper()
	cl, err := kafka.NewProducer(s.cfg, kgo.TransactionalID("other"), kgo.TransactionTimeout(10*time.Minute))
	if err == nil {
		s.Cleanup(cl.Close)
		err = cl.BeginTransaction()
	}
	if err != nil {
		s.Fatal(err)
	}
	return cl
}

// The markers of the compactors' last transaction are on their offsets and not on skein.runs yet; so it is with
// the copy's own. A transaction that is open holds back what follows it in the same way.
func TestRun_WaitsUntilTheLastRecordsCanBeRead(t *testing.T) {
	for _, topic := range []string{"skein.runs", "v2.skein.events", "v2.skein.runs"} {
		t.Run(topic, func(t *testing.T) {
			s := newTopicSet(t, 1)
			if _, err := kafka.EnsureTopics(t.Context(), s.copied(), kafka.TopicSpec{Partitions: 2}); err != nil {
				t.Fatal(err)
			}
			kafkatest.Produce(t, s.cfg, s.event("t"), s.event("t"), s.run("t", 0, 0, 1))
			s.decide()
			held := s.transaction()
			for p := range int32(2) {
				if topic != "skein.runs" || p == 0 {
					if err := held.ProduceSync(t.Context(), &kgo.Record{Topic: topic, Partition: p, Value: []byte("x")}).FirstErr(); err != nil {
						t.Fatal(err)
					}
				}
			}
			kafkatest.Produce(t, s.cfg, s.run("t", 1, 1, 2))
			o := s.options(2)
			want := " of " + topic + " has to end"
			if topic == "skein.runs" {
				o.DryRun = true
				if r := s.migrate(o); !strings.Contains(r.Waiting, want) {
					t.Errorf("as a dry run it says %+v", r)
				}
				o.DryRun = false
			}
			ended := false
			o.Progress = func(what string, _, _ int) {
				if !ended && strings.Contains(what, want) {
					ended = true
					if err := held.EndTransaction(t.Context(), kgo.TryAbort); err != nil {
						t.Error(err)
					}
				}
			}
			if r := s.migrate(o); !r.Done || r.Proof.Runs != 2 || len(s.runs(2)) != 2 || !ended {
				t.Errorf("it says %+v; it has waited: %v", r, ended)
			}
		})
	}
}

// What the compactors have decided last is in a transaction that is not ended, and of no other record.
func TestRun_WaitsForOffsetsThatAreNotStable(t *testing.T) {
	s := newTopicSet(t, 1)
	kafkatest.Produce(t, s.cfg, s.event("t"))
	s.decide()
	kafkatest.Produce(t, s.cfg, s.event("t"), s.run("t", 0, 0, 2))
	cl := s.transaction()
	producer, epoch, err := cl.ProducerID(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	topics, err := s.adm.ListTopics(t.Context(), s.cfg.Topics().Events)
	if err != nil {
		t.Fatal(err)
	}
	add := kmsg.NewPtrAddOffsetsToTxnRequest()
	add.TransactionalID, add.ProducerID, add.ProducerEpoch, add.Group = "other", producer, epoch, s.cfg.CompactorGroup()
	if r, err := add.RequestWith(t.Context(), cl); err != nil || r.ErrorCode != 0 {
		t.Fatal(r, err)
	}
	commit := kmsg.NewPtrTxnOffsetCommitRequest()
	commit.TransactionalID, commit.ProducerID, commit.ProducerEpoch, commit.Group, commit.Generation = "other", producer, epoch,
		s.cfg.CompactorGroup(), -1
	s.decided().Each(func(o kadm.Offset) {
		topic, p := kmsg.NewTxnOffsetCommitRequestTopic(), kmsg.NewTxnOffsetCommitRequestTopicPartition()
		p.Partition, p.Offset, p.Metadata = o.Partition, o.At, &o.Metadata
		topic.Topic, topic.TopicID = o.Topic, topics[o.Topic].ID
		topic.Partitions = append(topic.Partitions, p)
		commit.Topics = append(commit.Topics, topic)
	})
	if r, err := commit.RequestWith(t.Context(), cl); err != nil || r.Topics[0].Partitions[0].ErrorCode != 0 {
		t.Fatal(r, err)
	}
	o, ended := s.options(2), false
	o.Progress = func(what string, _, _ int) {
		if ended || !strings.Contains(what, "a transaction with offsets of skein-compactor has to end") {
			return
		}
		ended = true
		end := kmsg.NewPtrEndTxnRequest()
		end.TransactionalID, end.ProducerID, end.ProducerEpoch, end.Commit = "other", producer, epoch, true
		if r, err := end.RequestWith(t.Context(), cl); err != nil || r.ErrorCode != 0 {
			t.Error(r, err)
		}
	}
	if r := s.migrate(o); !r.Done || !ended {
		t.Errorf("it says %+v; it has waited: %v", r, ended)
	}
}
