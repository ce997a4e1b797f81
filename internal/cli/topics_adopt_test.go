package cli

import (
	"context"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"io"
	"log/slog"
	"math/rand/v2"
	"net/http"
	"net/http/httptest"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/skeinhq/skein/internal/app"
	"github.com/skeinhq/skein/pkg/adopt"
	"github.com/skeinhq/skein/pkg/compactor"
	"github.com/skeinhq/skein/pkg/kafka"
	"github.com/skeinhq/skein/pkg/kafka/kafkatest"
	"github.com/skeinhq/skein/pkg/query"
	"github.com/skeinhq/skein/pkg/record"
	"github.com/skeinhq/skein/pkg/store/sqlite"
	"github.com/skeinhq/skein/pkg/tenant"
	"github.com/skeinhq/skein/pkg/verify"
	"github.com/skeinhq/skein/pkg/verify/scan"
	"github.com/skeinhq/skein/test/site"
)

var failoverLoad = flag.Duration("failover.load", 3*time.Second, "how long the primary of the failover test is under load")

// crowd writes runs of some threads, an event of one of them at a time. Every other thread numbers its events.
type crowd struct {
	rng        *rand.Rand
	partitions int32
	threads    [12]struct{ run, event int }
}

func newCrowd(seed uint64, partitions int32) *crowd {
	return &crowd{rng: rand.New(rand.NewPCG(seed, 0)), partitions: partitions}
}

// next returns the next event of any thread.
func (c *crowd) next(topic string) *kgo.Record { return c.of(c.rng.IntN(len(c.threads)), topic) }

// of returns the next event of a thread.
func (c *crowd) of(i int, topic string) *kgo.Record {
	thread, at := fmt.Sprintf("t%d", i), &c.threads[i]
	headers := record.Headers{Kind: record.KindEvent, RunID: fmt.Sprintf("r%d", at.run), Seq: -1}
	values := runEvents(thread, headers.RunID, true)
	value := values[at.event]
	if i%2 == 0 {
		headers.Seq = int64(at.event)
	}
	if at.event++; at.event == len(values) {
		at.run, at.event = at.run+1, 0
	}
	key := []byte("acme/" + thread)
	return &kgo.Record{
		Topic: topic, Partition: record.Partition(key, c.partitions), Key: key, Value: []byte(value), Headers: kafka.Headers(headers),
	}
}

// finish returns the events that end the open runs.
func (c *crowd) finish(topic string) (all []*kgo.Record) {
	for i := range c.threads {
		for c.threads[i].event > 0 {
			all = append(all, c.of(i, topic))
		}
	}
	return all
}

// adoptTopics runs the command.
func adoptTopics(t *testing.T, k kafka.Config, want int, more ...string) (r adopt.Report, stderr string) {
	t.Helper()
	args := []string{"topics", "adopt", "--brokers", strings.Join(k.Brokers, ","), "--topic-prefix", k.TopicPrefix, "--lost", "2000", "--json"}
	stdout, stderr, code := skein(t, "", append(args, more...)...)
	if code != want || code == app.ExitDone && json.Unmarshal([]byte(stdout), &r) != nil {
		t.Fatalf("exit %d, want %d: %s%s", code, want, stdout, stderr)
	}
	return r, stderr
}

// mirrored copies records of one topic set to another, in another cluster. part returns how many of each partition.
func mirrored(t *testing.T, from, to kafka.Config, part func(topic int, n int) (skip, take int)) {
	t.Helper()
	for i, topic := range from.Topics().All() {
		of := map[int32][]*kgo.Record{}
		for _, m := range kafkatest.Consume(t, from, topic) {
			of[m.Partition] = append(of[m.Partition], copied(m, to.Topics().All()[i]))
		}
		for _, records := range of {
			skip, take := part(i, len(records))
			kafkatest.Produce(t, to, records[skip:take]...)
		}
	}
}

func copied(m *kgo.Record, topic string) *kgo.Record {
	return &kgo.Record{Topic: topic, Partition: m.Partition, Key: m.Key, Value: m.Value, Headers: m.Headers, Timestamp: m.Timestamp}
}

// primary returns a topic set on kfake in which runs were folded, some of which are open.
func primary(t *testing.T, c *crowd, events int) kafka.Config {
	t.Helper()
	k := kafkatest.Start(t, c.partitions)
	s := &topicSet{t: t, cfg: k, partitions: c.partitions}
	for range 3 {
		var records []*kgo.Record
		for range events / 3 {
			records = append(records, c.next(k.Topics().Events))
		}
		kafkatest.Produce(t, k, records...)
		s.compact(func(runs map[string]*record.Run) bool { return len(runs) > 0 })
	}
	return k
}

// goOn has the agents and a compactor go on in the mirror, and checks that no mirrored event was lost or counted twice.
func goOn(t *testing.T, k kafka.Config, c *crowd) {
	t.Helper()
	s := &topicSet{t: t, cfg: k, partitions: c.partitions}
	was := latestRuns(t, kafkatest.Consume(t, k, k.Topics().Runs))
	var records []*kgo.Record
	for range 200 {
		records = append(records, c.next(k.Topics().Events))
	}
	kafkatest.Produce(t, k, append(records, c.finish(k.Topics().Events)...)...)
	now := s.compact(func(map[string]*record.Run) bool { return true })
	for _, r := range now {
		if r.Status == record.StatusRunning { // its end was not mirrored
			s.send(record.KindEvent, r.ThreadID, r.RunID, fmt.Sprintf(`{"type":"RUN_FINISHED","threadId":%q,"runId":%q}`, r.ThreadID, r.RunID))
		}
	}
	now = s.compact(func(map[string]*record.Run) bool { return true })
	for key, r := range was {
		if n := now[key]; r.Status.Sealed() {
			before, errA := record.EncodeRun(r)
			after, errB := record.EncodeRun(n)
			if errA != nil || errB != nil || string(before) != string(after) {
				t.Errorf("the record of %s was\n%s\nand is\n%s", key, before, after)
			}
		}
	}
	events := map[string]int64{}
	for _, m := range kafkatest.Consume(t, k, k.Topics().Events) {
		h, err := record.ParseHeaders(m.Headers)
		if err != nil {
			t.Fatal(err)
		}
		key := string(m.Key) + "/" + h.RunID
		events[key]++
		holds := func(of [2]int64) bool { return of[0] <= m.Offset && m.Offset < of[1] }
		if r := now[key]; r == nil || !slices.ContainsFunc(r.Raw.Ranges, holds) {
			t.Errorf("event %d:%d is not in the record of %s", m.Partition, m.Offset, key)
		}
	}
	for key, r := range now {
		if !r.RawLost && r.Raw.Events != events[key] {
			t.Errorf("the record of %s has %d events, the log %d", key, r.Raw.Events, events[key])
		}
	}
	proved, lost := 0, 0
	if err := scan.Verify(t.Context(), k, scan.Query{Tenant: "acme"}, func(runs []scan.Verified) error {
		for _, r := range runs {
			switch {
			case r.Report.Verdict == verify.Proved:
				proved++
			case r.Report.Verdict == verify.Unproved && r.Record.RawLost:
				lost++
			default:
				t.Errorf("run %s of %s: %+v", r.Record.RunID, r.Record.ThreadID, r.Report)
			}
		}
		return nil
	}); err != nil {
		t.Fatal(err)
	}
	t.Logf("%d runs proved, %d of lost events", proved, lost)
}

// Each topic is mirrored at its own pace, so any may be ahead; and a mirror that brings the groups' offsets brings them at any time.
func TestTopicsAdopt_GoesOnWhereverAMirrorEnds(t *testing.T) {
	ahead := 0
	for i := range 4 {
		seed := rand.Uint64()
		t.Logf("seed %d", seed)
		events, partitions := 300, int32(3)
		if i == 3 { // more runs than it keeps of those before one
			events, partitions = 2700, 1
		}
		crowd := newCrowd(seed, partitions)
		from, to := primary(t, crowd, events), kafkatest.Start(t, partitions)
		mirrored(t, from, to, func(topic, n int) (int, int) {
			switch {
			case i == 1 && topic == 0: // half of the events, and all records
				return 0, n / 2
			case i < 2:
				return 0, n
			}
			return 0, n/2 + crowd.rng.IntN(n-n/2+1)
		})
		offsets := kadm.Offsets{}
		for p := range partitions {
			offsets.Add(kadm.Offset{Topic: to.Topics().Events, Partition: p, At: 200})
		}
		if err := kafkatest.Admin(t, to).CommitAllOffsets(t.Context(), to.CompactorGroup(), offsets); err != nil {
			t.Fatal(err)
		}
		if r, _ := adoptTopics(t, to, app.ExitDone, "--dry-run"); r.Adopted || len(r.Partitions) != int(partitions) {
			t.Errorf("as a dry run it says %+v", r)
		}
		r, _ := adoptTopics(t, to, app.ExitDone)
		for _, p := range r.Partitions {
			if ahead += p.Ahead; !r.Adopted || p.Proved == 0 || p.Epoch < p.End+2000 {
				t.Errorf("it says %+v", r)
			}
		}
		if r, _ := adoptTopics(t, to, app.ExitDone); !r.Already {
			t.Errorf("called again it says %+v", r)
		}
		goOn(t, to, crowd)
		if t.Failed() {
			return
		}
	}
	if ahead == 0 {
		t.Error("no record was ahead of the mirrored events")
	}
}

func TestTopicsAdopt_RefusesWhatItCannotProve(t *testing.T) {
	crowd := newCrowd(1, 2)
	from := primary(t, crowd, 200)
	half := &kgo.Record{Key: []byte("acme/t0/r0"), Headers: kafka.Headers(record.Headers{Kind: record.KindRun, Seq: -1})}
	for what, c := range map[string]struct {
		part func(topic, n int) (int, int)
		want string
		more []*kgo.Record
	}{
		"half an erasure":         {func(_, n int) (int, int) { return 0, n }, "in the middle of an erasure", []*kgo.Record{half}},
		"events at other offsets": {func(topic, n int) (int, int) { return map[int]int{0: 20}[topic], n }, "at their offsets", nil},
		"too few events":          {func(topic, n int) (int, int) { return 0, []int{n / 2, n, n, n}[topic] }, "more than --lost 10", nil},
	} {
		t.Run(what, func(t *testing.T) {
			crowd := *crowd
			to := kafkatest.Start(t, 2)
			mirrored(t, from, to, c.part)
			for _, m := range c.more {
				m.Topic, m.Partition = to.Topics().Runs, record.Partition([]byte("acme/t0"), 2)
				kafkatest.Produce(t, to, m)
			}
			if _, stderr := adoptTopics(t, to, app.ExitFailed, "--lost", "10"); !strings.Contains(stderr, c.want) {
				t.Errorf("it says %s", stderr)
			}
			if n := len(kafkatest.Consume(t, to, to.Topics().Runs)); n != len(kafkatest.Consume(t, from, from.Topics().Runs))+len(c.more) {
				t.Errorf("there are %d records", n)
			}
			// The way on: its events are folded anew.
			if _, err := kafkatest.Admin(t, to).DeleteTopics(t.Context(), to.Topics().All()[1:]...); err != nil {
				t.Fatal(err)
			}
			if _, stderr, code := skein(t, "", "topics", "create", "--brokers", strings.Join(to.Brokers, ",")); code != app.ExitDone {
				t.Fatalf("exit %d: %s", code, stderr)
			}
			goOn(t, to, &crowd)
		})
	}
	t.Run("events at other offsets, and then no run for an hour", func(t *testing.T) {
		to := kafkatest.Start(t, 2)
		for i, topic := range []string{to.Topics().Events, to.Topics().Runs} {
			last := map[int32]*kgo.Record{}
			for _, m := range kafkatest.Consume(t, from, topic) {
				last[m.Partition] = copied(m, topic)
				if i == 0 && m.Offset < 20 {
					continue
				}
				m = copied(m, topic)
				m.Timestamp = m.Timestamp.Add(-time.Hour)
				kafkatest.Produce(t, to, m)
			}
			for p := range last {
				if i == 0 { // a title
					last[p] = &kgo.Record{Topic: topic, Partition: p, Key: []byte("acme/t0"), Value: []byte(`{"title":"t"}`),
						Headers: kafka.Headers(record.Headers{Kind: record.KindThread, Seq: -1})}
				}
				kafkatest.Produce(t, to, last[p])
			}
		}
		if _, stderr := adoptTopics(t, to, app.ExitFailed); !strings.Contains(stderr, "at their offsets") {
			t.Errorf("it says %s", stderr)
		}
	})
	t.Run("compactors are running", func(t *testing.T) {
		to := kafkatest.Start(t, 2)
		mirrored(t, from, to, func(_, n int) (int, int) { return 0, n })
		joined := make(chan struct{})
		cl, err := kgo.NewClient(kgo.SeedBrokers(to.Brokers...), //nolint:forbidigo // a member is all that is wanted
			kgo.ConsumerGroup(to.CompactorGroup()), kgo.ConsumeTopics(to.Topics().Events),
			kgo.OnPartitionsAssigned(func(context.Context, *kgo.Client, map[string][]int32) { close(joined) }))
		if err != nil {
			t.Fatal(err)
		}
		defer cl.Close()
		<-joined
		if _, stderr := adoptTopics(t, to, app.ExitFailed); !strings.Contains(stderr, "stop the compactors") {
			t.Errorf("it says %s", stderr)
		}
	})
	t.Run("compactors have written to a partition", func(t *testing.T) {
		to := kafkatest.Start(t, 2)
		mirrored(t, from, to, func(_, n int) (int, int) { return 0, n })
		kafkatest.Produce(t, to, &kgo.Record{
			Topic: to.Topics().Runs, Partition: 1, Key: []byte(record.ProgressKey),
			Value:   record.EncodeProgress(record.Progress{Next: 1, Events: topicID(t, to)}),
			Headers: kafka.Headers(record.Headers{Kind: record.KindProgress, Seq: -1}),
		})
		if _, stderr := adoptTopics(t, to, app.ExitFailed); !strings.Contains(stderr, "compactors have written here") {
			t.Errorf("it says %s", stderr)
		}
	})
	t.Run("half a transaction", func(t *testing.T) {
		to := kafkatest.Start(t, 2)
		mirrored(t, from, to, func(_, n int) (int, int) { return 0, n })
		cl, err := kafka.NewTransactor(t.Context(), to, "compactor")
		if err != nil {
			t.Fatal(err)
		}
		defer cl.Close()
		if err := cl.BeginTransaction(); err != nil {
			t.Fatal(err)
		}
		if err := cl.ProduceSync(t.Context(), &kgo.Record{Topic: to.Topics().Runs}).FirstErr(); err != nil {
			t.Fatal(err)
		}
		adoptTopics(t, to, app.ExitDone, "--dry-run") // as a mirror at work has them
		if _, stderr := adoptTopics(t, to, app.ExitFailed); !strings.Contains(stderr, "abort it with kafka-transactions.sh") {
			t.Errorf("it says %s", stderr)
		}
	})
	t.Run("the primary itself, with an idle partition", func(t *testing.T) {
		k := kafkatest.Start(t, 2)
		s := &topicSet{t: t, cfg: k, partitions: 2}
		s.send(record.KindEvent, "t0", "r", runEvents("t0", "r", true)...)
		s.compact(func(runs map[string]*record.Run) bool { return len(runs) > 0 }, func() {
			if r, _ := adoptTopics(t, k, app.ExitDone); !r.Already {
				t.Errorf("it says %+v", r)
			}
		})
	})
}

// Of a perfect mirror, every run that is looked at is proved: each continues a thread whose earlier runs are not looked at. The ranges of
// two contain each other's records.
func TestTopicsAdopt_AdoptsAPerfectMirror(t *testing.T) {
	k := kafkatest.Start(t, 1)
	s := &topicSet{t: t, cfg: k, partitions: 1}
	const threads = 520
	var records []*kgo.Record
	add := func(thread, run, event string) {
		records = append(records, &kgo.Record{
			Topic: k.Topics().Events, Key: []byte("acme/" + thread), Value: []byte(event),
			Headers: kafka.Headers(record.Headers{Kind: record.KindEvent, RunID: run, Seq: -1}),
		})
	}
	for _, run := range []string{"a", "b"} {
		for i := range threads {
			thread := fmt.Sprintf("t%d", i)
			add(thread, run, runEvents(thread, run, true)[0])
			add(thread, run, runEvents(thread, run, true)[3])
		}
	}
	for range record.MaxRanges + 10 {
		for _, run := range []string{"x", "y"} {
			add("t0", run, `{"type":"CUSTOM","name":"n","value":1}`)
		}
	}
	kafkatest.Produce(t, k, records...)
	s.compact(func(runs map[string]*record.Run) bool { return len(runs) == 2*threads+2 })
	to := kafkatest.Start(t, 1)
	mirrored(t, k, to, func(_, n int) (int, int) { return 0, n })
	if r, _ := adoptTopics(t, to, app.ExitDone, "--dry-run"); r.Partitions[0].Proved != 32 {
		t.Errorf("it says %+v", r)
	}
	// Its first run records may have come without a progress record.
	to = kafkatest.Start(t, 1)
	var unprogressed []*kgo.Record
	for _, topic := range []string{k.Topics().Events, k.Topics().Runs} {
		for _, m := range kafkatest.Consume(t, k, topic) {
			if string(m.Key) != record.ProgressKey {
				unprogressed = append(unprogressed, copied(m, topic))
			}
		}
	}
	kafkatest.Produce(t, to, unprogressed...)
	if r, _ := adoptTopics(t, to, app.ExitDone, "--dry-run"); r.Already || r.Partitions[0].Proved != 32 {
		t.Errorf("without progress records it says %+v", r)
	}
	// With other events of the same runs at the same places it is none.
	to = kafkatest.Start(t, 1)
	mirrored(t, k, to, func(topic, n int) (int, int) { return map[int]int{0: n}[topic], n })
	for i, m := range records {
		if records[i] = copied(m, to.Topics().Events); i < 4*threads {
			records[i].Value = []byte("{")
		}
	}
	kafkatest.Produce(t, to, records...)
	if _, stderr := adoptTopics(t, to, app.ExitFailed, "--dry-run"); !strings.Contains(stderr, `run "b" of thread`) {
		t.Errorf("it says %s", stderr)
	}
}

// Of an open run, skein.runs may have no more than where it began.
func TestTopicsAdopt_ProvesWhatIsAnnounced(t *testing.T) {
	k := kafkatest.Start(t, 1)
	s := &topicSet{t: t, cfg: k, partitions: 1}
	adopts := func(want int) (adopt.Report, string) {
		s.compact(func(map[string]*record.Run) bool { return true })
		to := kafkatest.Start(t, 1)
		mirrored(t, k, to, func(_, n int) (int, int) { return 0, n })
		return adoptTopics(t, to, want, "--dry-run")
	}
	s.send(record.KindEvent, "t0", "a", runEvents("t0", "a", false)...)
	if r, _ := adopts(app.ExitDone); r.Partitions[0].Proved != 1 {
		t.Errorf("of a perfect mirror it says %+v", r)
	}
	s.send(record.KindEvent, "t1", "b", append(runEvents("t1", "b", true), runEvents("t1", "b", false)...)...)
	if r, _ := adopts(app.ExitDone); r.Partitions[0].Proved != 3 {
		t.Errorf("of a perfect mirror with two runs of one id it says %+v", r)
	}
	s.send(record.KindEvent, "t3", "d", runEvents("t3", "d", false)...)
	s.send(record.KindErase, "t3", "", "{}")
	s.send(record.KindEvent, "t3", "d", runEvents("t3", "d", false)...)
	late := append(runEvents("t4", "e", true), `{"type":"CUSTOM","name":"late","value":1}`)
	s.send(record.KindEvent, "t4", "e", append(late, runEvents("t4", "e", false)...)...)
	if r, _ := adopts(app.ExitDone); r.Partitions[0].Proved != 6 {
		t.Errorf("of a perfect mirror with an erasure and a late event it says %+v", r)
	}
	cl, err := kafka.NewTransactor(t.Context(), k, "retry")
	if err != nil {
		t.Fatal(err)
	}
	defer cl.Close()
	if err := cl.BeginTransaction(); err != nil {
		t.Fatal(err)
	}
	if err := cl.ProduceSync(t.Context(), &kgo.Record{Topic: k.Topics().Events}).FirstErr(); err != nil {
		t.Fatal(err)
	}
	if err := cl.EndTransaction(t.Context(), kgo.TryAbort); err != nil { // a mirror copies nothing of it
		t.Fatal(err)
	}
	s.send(record.KindEvent, "t2", "c", runEvents("t2", "c", false)...)
	if _, stderr := adopts(app.ExitFailed); !strings.Contains(stderr, `run "c" of thread "t2", events 27 to 27: skein.events does not`) {
		t.Errorf("of events at other offsets it says %s", stderr)
	}
}

// A call that was killed has skipped as many offsets as are looked back for events that prove something.
func TestTopicsAdopt_AgainWithTheDefault(t *testing.T) {
	from, to := primary(t, newCrowd(2, 2), 100), kafkatest.Start(t, 2)
	mirrored(t, from, to, func(_, n int) (int, int) { return 0, n })
	ctx, kill := context.WithCancel(t.Context())
	o := adopt.Options{Kafka: to, Lost: 100_000, Progress: func(what string, done, total int) {
		if what == "skipping offsets" && done == total {
			kill()
		}
	}}
	if _, err := adopt.Run(ctx, o); !errors.Is(err, context.Canceled) {
		t.Fatalf("killed it says %v", err)
	}
	if r, _ := adoptTopics(t, to, app.ExitDone, "--lost", "100000"); r.Already || r.Partitions[0].Proved == 0 {
		t.Errorf("again it says %+v", r)
	}
}

// Killed at each of its writes, or overtaken there by another one or by a producer: one epoch, once.
func TestTopicsAdopt_IsDoneOnce(t *testing.T) {
	for by, want := range map[string]error{"kills": nil, "another one": adopt.ErrOvertaken, "a producer": adopt.ErrWritten} {
		t.Run("by "+by, func(t *testing.T) {
			crowd := newCrowd(2, 2)
			from, to := primary(t, crowd, 100), kafkatest.Start(t, 2)
			mirrored(t, from, to, func(topic, n int) (int, int) { return 0, n - map[int]int{0: 3}[topic] })
			for n := int32(1); ; n++ {
				ctx, cancel := context.WithCancel(t.Context())
				defer cancel()
				var sent atomic.Int32
				o := adopt.Options{Kafka: to, Lost: 50}
				o.Kafka.Options = func() []kgo.Opt {
					return append(optionsOf(to), kgo.WithHooks(&onProduce{func() {
						if sent.Add(1) != n {
							return
						}
						switch by {
						case "kills":
							cancel()
						case "another one":
							adoptTopics(t, to, app.ExitDone, "--lost", "50")
						default: // after the last look at the ends
							kafkatest.Produce(t, to, crowd.next(to.Topics().Events))
						}
					}}))
				}
				r, err := adopt.Run(ctx, o)
				if want != nil {
					if !errors.Is(err, want) {
						t.Errorf("overtaken it says %v", err)
					}
					if by == "a producer" {
						adoptTopics(t, to, app.ExitDone, "--lost", "50")
						return // its event was dropped, as the compactor had processed the lost one at its offset
					}
					break
				}
				if err == nil {
					if r.Already || !r.Adopted || n < 3 {
						t.Errorf("after %d kills it says %+v", n-1, r)
					}
					break
				}
			}
			if r, _ := adoptTopics(t, to, app.ExitDone); !r.Already {
				t.Errorf("in the end it says %+v", r)
			}
			epochs := 0
			for _, m := range kafkatest.Consume(t, to, to.Topics().Runs) {
				if p, err := record.DecodeProgress(m.Value); string(m.Key) == record.ProgressKey && err == nil && p.Events == topicID(t, to) {
					epochs++
				}
			}
			if epochs != 2 {
				t.Errorf("an epoch was declared %d times on 2 partitions", epochs)
			}
			goOn(t, to, crowd)
		})
	}
}

func topicID(t *testing.T, k kafka.Config) string {
	t.Helper()
	set, err := kafka.ReadTopicSet(t.Context(), kafkatest.Admin(t, k), k.Topics())
	if err != nil {
		t.Fatal(err)
	}
	return set.IDs[0].String()
}

// Two real clusters, and a mirror that copies each topic at its own pace; the first one is killed under load.
func TestTopicsAdopt_AfterThePrimaryWasKilled(t *testing.T) {
	from, to := kafkatest.Real(t, 1, kafkatest.Own()), kafkatest.Real(t, 1)
	from.MakeTopics(3)
	to.MakeTopics(3)
	crowd := newCrowd(rand.Uint64(), 3)
	ctx, stop := context.WithCancel(t.Context())
	defer stop()
	var work sync.WaitGroup
	defer work.Wait()

	cfg := compactor.DefaultConfig()
	cfg.Dir, cfg.InstanceID, cfg.CommitInterval = t.TempDir(), "one", 50*time.Millisecond
	c, err := compactor.New(cfg, from.Config, slog.New(slog.DiscardHandler))
	if err != nil {
		t.Fatal(err)
	}
	work.Go(func() { _ = c.Run(ctx) }) // its cluster is killed
	kafkatest.Eventually(t, "the primary's compactor is ready", func() bool { return c.Ready() == nil })
	slow := time.Now().Add(*failoverLoad - 2*time.Second) // from when on the events are mirrored more slowly than they come
	for i, topic := range from.Config.Topics().All() {
		writer, err := kafka.NewProducer(to.Config, kgo.RecordDeliveryTimeout(time.Hour)) // a record that it gives up moves all offsets
		if err != nil {
			t.Fatal(err)
		}
		work.Go(func() {
			defer writer.Close()
			for m, err := range kafka.Follow(ctx, from.Config, topic, map[int32]int64{0: 0, 1: 0, 2: 0}) {
				if err != nil {
					if ctx.Err() == nil {
						t.Error(err)
					}
					break
				}
				writer.Produce(context.WithoutCancel(ctx), copied(m, to.Config.Topics().All()[i]), func(_ *kgo.Record, err error) {
					if err != nil {
						t.Error(err)
					}
				})
				if i == 0 && time.Now().After(slow) {
					time.Sleep(20 * time.Millisecond)
				}
			}
			if err := writer.Flush(context.WithoutCancel(ctx)); err != nil {
				t.Error(err)
			}
		})
	}
	load, err := kafka.NewProducer(from.Config)
	if err != nil {
		t.Fatal(err)
	}
	sent := 0
	for end := time.Now().Add(*failoverLoad); time.Now().Before(end); sent++ {
		load.Produce(ctx, crowd.next(from.Config.Topics().Events), nil)
		time.Sleep(2 * time.Millisecond)
	}
	from.Kill(1)
	killed := time.Now()
	stop()
	work.Wait()
	load.Close()

	began := time.Now()
	r, _ := adoptTopics(t, to.Config, app.ExitDone)
	took, left, ahead := time.Since(began), int64(sent), 0
	for _, p := range r.Partitions {
		left -= p.End
		ahead += p.Ahead
	}
	if left <= 0 {
		t.Errorf("nothing was lost, which is no failover: %+v", r)
	}
	goOn(t, to.Config, crowd)
	t.Logf("%d events sent, %d of them not mirrored, %d run records were ahead; adopted in %v, all runs proved %v after the kill", sent, left,
		ahead, took.Round(time.Millisecond), time.Since(killed).Round(time.Millisecond))
	serves(t, to.Config, r)
}

// serves has all stages start on an adopted set with an empty store, and checks that readers have their runs, and are told that a position
// which was not mirrored is of the old epoch.
func serves(t *testing.T, k kafka.Config, r adopt.Report) {
	t.Helper()
	began := time.Now()
	st, err := sqlite.Open(t.Context(), filepath.Join(t.TempDir(), "lineage.sqlite"))
	if err != nil {
		t.Fatal(err)
	}
	site.Start(t, k, st, site.Options{Auth: tenant.Fixed("acme")})
	q := httptest.NewServer(site.Query(t, k, st, tenant.Fixed("acme"), func(*query.Config) {}).Handler())
	defer q.Close()
	ask := func(query string) (int, string) {
		resp, err := http.Get(q.URL + "/v1/threads/t0/history" + query)
		if err != nil {
			t.Fatal(err)
		}
		defer func() { _ = resp.Body.Close() }()
		body, err := io.ReadAll(resp.Body)
		if err != nil {
			t.Fatal(err)
		}
		return resp.StatusCode, resp.Header.Get("Skein-Remarks") + string(body)
	}
	site.Eventually(t, "a thread is read as far as the log goes", func() (string, bool) {
		status, body := ask("")
		return body, status == http.StatusOK && !strings.HasPrefix(body, "behind")
	})
	t.Logf("a thread was read as far as the log goes %v after the start of all stages", time.Since(began).Round(time.Millisecond))
	lost := record.Partition([]byte("acme/t0"), int32(len(r.Partitions))) //nolint:gosec // 3
	// The first lost positions may be of events that a mirrored record has.
	status, body := ask(fmt.Sprintf("?atLeast=%d:%d", lost, r.Partitions[lost].Epoch-100))
	if status != http.StatusGone || !strings.Contains(body, `"reason":"other-epoch"`) {
		t.Errorf("at a position that was not mirrored, a reader is told %d %s", status, body)
	}
}
