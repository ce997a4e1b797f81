package cli

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"reflect"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/skeinhq/skein/internal/app"
	"github.com/skeinhq/skein/pkg/compactor"
	"github.com/skeinhq/skein/pkg/deadletter"
	"github.com/skeinhq/skein/pkg/kafka"
	"github.com/skeinhq/skein/pkg/kafka/kafkatest"
	"github.com/skeinhq/skein/pkg/migrate"
	"github.com/skeinhq/skein/pkg/record"
)

// topicSet is a topic set that a test writes to.
type topicSet struct {
	t          *testing.T
	cfg        kafka.Config
	partitions int32
}

// compact runs a compactor until its runs are as wanted and everything is decided, that of then included.
func (s *topicSet) compact(done func(map[string]*record.Run) bool, then ...func()) map[string]*record.Run {
	s.t.Helper()
	cfg := compactor.DefaultConfig()
	cfg.Dir, cfg.InstanceID, cfg.CommitInterval = s.t.TempDir(), "one", 20*time.Millisecond
	c, err := compactor.New(cfg, s.cfg, slog.New(slog.DiscardHandler))
	if err != nil {
		s.t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(s.t.Context())
	ended := make(chan error, 1)
	go func() { ended <- c.Run(ctx) }()
	kafkatest.ConsumeUntil(s.t, s.cfg, s.cfg.Topics().Runs, func(all []*kgo.Record) bool { return done(latestRuns(s.t, all)) })
	for _, f := range then {
		f()
	}
	s.awaitDecided()
	cancel()
	if err := <-ended; err != nil {
		s.t.Fatal(err)
	}
	s.removeMembers()
	return latestRuns(s.t, kafkatest.Consume(s.t, s.cfg, s.cfg.Topics().Runs))
}

// awaitDecided waits until the group has decided every event.
func (s *topicSet) awaitDecided() {
	s.t.Helper()
	adm := kafkatest.Admin(s.t, s.cfg)
	kafkatest.Eventually(s.t, "everything is decided", func() bool {
		offsets, err := adm.FetchOffsets(s.t.Context(), s.cfg.CompactorGroup())
		if err != nil {
			return false
		}
		last := map[int32]int64{}
		for _, m := range kafkatest.Consume(s.t, s.cfg, s.cfg.Topics().Events) {
			last[m.Partition] = m.Offset
		}
		for p, at := range last {
			o, ok := offsets.Lookup(s.cfg.Topics().Events, p)
			committed, err := record.ParseMetadata(o.Metadata)
			if !ok || err != nil || committed.Processed <= at {
				return false
			}
		}
		return true
	})
}

// removeMembers takes the static members out of the group, as their session timeout would.
func (s *topicSet) removeMembers() {
	s.t.Helper()
	adm := kafkatest.Admin(s.t, s.cfg)
	group := s.cfg.CompactorGroup()
	if _, err := adm.LeaveGroup(s.t.Context(), kadm.LeaveGroup(group).InstanceIDs(group+"-one")); err != nil {
		s.t.Fatal(err)
	}
}

func latestRuns(t *testing.T, all []*kgo.Record) map[string]*record.Run {
	t.Helper()
	runs := map[string]*record.Run{}
	for _, m := range all {
		h, err := record.ParseHeaders(m.Headers)
		if err != nil || h.Kind != record.KindRun {
			continue
		}
		if len(m.Value) == 0 {
			delete(runs, string(m.Key))
			continue
		}
		r, err := record.DecodeRun(m.Value)
		if err != nil {
			t.Fatal(err)
		}
		runs[string(m.Key)] = r
	}
	return runs
}

// detailsOf returns the latest titles and marks of threads, by key.
func detailsOf(all []*kgo.Record) map[string]string {
	details := map[string]string{}
	for _, m := range all {
		if strings.Contains(string(m.Key), "//") {
			details[string(m.Key)] = string(m.Value)
		}
	}
	maps.DeleteFunc(details, func(_, value string) bool { return value == "" })
	return details
}

// send writes raw records of a thread.
func (s *topicSet) send(kind record.Kind, thread, run string, values ...string) {
	s.t.Helper()
	key, err := record.ThreadKey("acme", thread)
	if err != nil {
		s.t.Fatal(err)
	}
	records := make([]*kgo.Record, len(values))
	for i, v := range values {
		records[i] = &kgo.Record{
			Topic: s.cfg.Topics().Events, Partition: record.Partition([]byte(key), s.partitions), Key: []byte(key), Value: []byte(v),
			Headers: kafka.Headers(record.Headers{Kind: kind, RunID: run, Seq: -1}),
		}
	}
	kafkatest.Produce(s.t, s.cfg, records...)
}

func runEvents(thread, run string, end bool) []string {
	out := []string{
		fmt.Sprintf(`{"type":"RUN_STARTED","threadId":%q,"runId":%q}`, thread, run),
		fmt.Sprintf(`{"type":"STATE_DELTA","delta":[{"op":"add","path":"/%s","value":1}]}`, run),
		fmt.Sprintf(`{"type":"TEXT_MESSAGE_CHUNK","messageId":"m-%s","role":"assistant","delta":"of %s"}`, run, run),
	}
	if end {
		out = append(out, fmt.Sprintf(`{"type":"RUN_FINISHED","threadId":%q,"runId":%q}`, thread, run))
	}
	return out
}

// fill writes threads with all that a migration has to do with: runs whose raw events are then gone, runs
// that hang from them, an erased thread, dead letters of three kinds, one of them tried again (and failed
// again), and runs that are open.
// While the last compactor is running, then is called.
func (s *topicSet) fill(then func()) map[string]*record.Run {
	s.t.Helper()
	const threads = 6
	for i := range threads {
		thread := fmt.Sprintf("t%d", i)
		s.send(record.KindEvent, thread, "a", runEvents(thread, "a", true)...)
		s.send(record.KindEvent, thread, "b", runEvents(thread, "b", true)...)
	}
	s.compact(func(runs map[string]*record.Run) bool { return len(runs) == 2*threads })
	adm := kafkatest.Admin(s.t, s.cfg)
	ends, err := adm.ListEndOffsets(s.t.Context(), s.cfg.Topics().Events)
	if err != nil {
		s.t.Fatal(err)
	}
	if _, err := adm.DeleteRecords(s.t.Context(), ends.Offsets()); err != nil {
		s.t.Fatal(err)
	}
	for i := range threads {
		thread := fmt.Sprintf("t%d", i)
		s.send(record.KindEvent, thread, "c", runEvents(thread, "c", true)...)
	}
	s.send(record.KindEvent, "gone", "x", runEvents("gone", "x", true)...)
	s.send(record.KindThread, "gone", "", `{"title":"gone","archived":true}`)
	s.send(record.KindThread, "t0", "", `{"title":"stays","archived":true}`, `{"archived":false}`)
	s.send(record.KindErase, "gone", "", `{}`)
	s.send(record.KindEvent, "gone", "y", runEvents("gone", "y", true)...)
	s.send(record.KindEvent, "t1", "", `{"type":"CUSTOM","name":"of no run","value":1}`)
	s.send(record.KindEvent, "t2", "c", "this is no event")
	s.compact(func(runs map[string]*record.Run) bool { return len(runs) == 3*threads+1 })
	if _, err := (deadletter.Retry{Query: deadletter.Query{Tenant: "acme", Reason: deadletter.NoRun}}).Run(s.t.Context(), s.cfg); err != nil {
		s.t.Fatal(err)
	}
	// Two that go on at the same time, so that both are written; what follows is in no record.
	s.send(record.KindEvent, "t0", "d", runEvents("t0", "d", false)...)
	s.send(record.KindEvent, "t0", "e", runEvents("t0", "e", false)...)
	return s.compact(func(runs map[string]*record.Run) bool { return len(runs) == 3*threads+3 }, func() {
		s.send(record.KindEvent, "t0", "d", `{"type":"CUSTOM","name":"in no record","value":1}`)
		// It is read again by the new compactors, which must refuse it again.
		key := []byte("acme/t0")
		kafkatest.Produce(s.t, s.cfg, &kgo.Record{
			Topic: s.cfg.Topics().Events, Partition: (record.Partition(key, s.partitions) + 1) % s.partitions, Key: key,
			Value: []byte(runEvents("t0", "wrong", true)[0]),
		})
	}, then)
}

func TestTopicsMigrate_GoesOnWhereTheOldSetEnded(t *testing.T) {
	t.Run("4 to 1", func(t *testing.T) { migrateAll(t, kafkatest.Start(t, 4), 4, 1) })
	t.Run("3 to 5 of real Kafka", func(t *testing.T) {
		c := kafkatest.Real(t, 1)
		c.MakeTopics(3)
		migrateAll(t, c.Config, 3, 5)
	})
}

func migrateAll(t *testing.T, k kafka.Config, from, to int32) {
	before := &topicSet{t: t, cfg: k, partitions: from}
	after := &topicSet{t: t, cfg: k, partitions: to}
	after.cfg.TopicPrefix = k.TopicPrefix + "v2."

	args := []string{"topics", "migrate", "--brokers", strings.Join(k.Brokers, ","), "--topic-prefix", k.TopicPrefix,
		"--to-prefix", after.cfg.TopicPrefix, "--partitions", fmt.Sprint(to), "--json"}
	run := func(want int, more ...string) migrate.Report {
		t.Helper()
		stdout, stderr, code := skein(t, "", append(args, more...)...)
		var r migrate.Report
		if err := json.Unmarshal([]byte(stdout), &r); err != nil || code != want {
			t.Fatalf("exit %d, want %d: %s%s", code, want, stdout, stderr)
		}
		return r
	}
	var killed migrate.Report
	kill := func(n int32) (err error) {
		o := migrate.Options{From: k, ToPrefix: after.cfg.TopicPrefix, Spec: kafka.TopicSpec{Partitions: to}}
		ctx, cancel := context.WithCancel(t.Context())
		defer cancel()
		var sent atomic.Int32
		o.From.Options = func() []kgo.Opt {
			return append(optionsOf(k), kgo.WithHooks(&onProduce{func() {
				if sent.Add(1) == n {
					cancel()
				}
			}}))
		}
		killed, err = migrate.Run(ctx, o)
		return err
	}
	old := before.fill(func() {
		if r := run(app.ExitDone, "--dry-run"); r.Done || r.Left == 0 || r.ToPartitions != to {
			t.Errorf("as a dry run it says %+v", r)
		}
		if err := kill(1); !errors.Is(err, context.Canceled) {
			t.Errorf("killed in its first transaction it says %v", err)
		}
		if r := run(app.ExitDiffers); r.Done || r.Copied["events"] == 0 || !strings.Contains(r.Waiting, "stop its compactors") {
			t.Errorf("while the compactor is running it says %+v", r)
		}
	})
	before.send(record.KindEvent, "t0", "d", `{"type":"CUSTOM","name":"not decided","value":1}`)
	if r := run(app.ExitDiffers); r.Done || !strings.Contains(r.Waiting, "have not decided event") {
		t.Errorf("while events are not decided it says %+v", r)
	}
	old = before.compact(func(runs map[string]*record.Run) bool { return len(runs) == len(old) })
	if r := run(app.ExitDone, "--dry-run"); r.Done || r.Left != 0 {
		t.Errorf("as a dry run of what is copied it says %+v", r)
	}
	// Killed in each of its transactions, one after another.
	kills := 0
	for n := int32(2); n < 20 && kill(1) != nil; n++ {
		kills++
		if kill(n) == nil {
			break
		}
		kills++
	}
	if kills < 3 || !killed.Done || len(killed.Proof.Differences) > 0 {
		t.Errorf("after %d kills it says %+v", kills, killed)
	}
	if r := run(app.ExitDone); !r.Done || r.Copied["events"] != 0 {
		t.Errorf("once it is done it says %+v", r)
	}
	if r := run(app.ExitDone, "--dry-run"); !r.Done || r.Left != 0 || r.Waiting != "" {
		t.Errorf("as a dry run of what is done it says %+v", r)
	}

	// The same runs, but for positions, in the same order.
	copied := latestRuns(t, kafkatest.Consume(t, after.cfg, after.cfg.Topics().Runs))
	if len(copied) != len(old) {
		t.Errorf("%d runs became %d", len(old), len(copied))
	}
	if a, b := byStart(old), byStart(copied); !slices.Equal(a, b) {
		t.Errorf("the order of runs was\n%v\nand is\n%v", a, b)
	}
	for key, r := range old {
		if c := copied[key]; c == nil || c.ParentRunID != r.ParentRunID || c.BranchID != r.BranchID ||
			!reflect.DeepEqual(c.Messages, r.Messages) || string(c.State) != string(r.State) {
			t.Errorf("%s was\n%+v\nand is\n%+v", key, r, c)
		}
	}
	erased := 0
	events := map[record.Position]*kgo.Record{}
	for _, m := range kafkatest.Consume(t, after.cfg, after.cfg.Topics().Events) {
		events[record.Position{Partition: m.Partition, Offset: m.Offset}] = m
	}
	for _, m := range kafkatest.Consume(t, after.cfg, after.cfg.Topics().Runs) {
		if h, err := record.ParseHeaders(m.Headers); err != nil || h.Kind != record.KindErase {
			continue
		}
		below, err := record.DecodeErased(m.Value)
		if err != nil {
			t.Fatal(err)
		}
		if e := events[record.Position{Partition: m.Partition, Offset: below - 1}]; e == nil || string(e.Key) != string(m.Key) || string(e.Value) != `{}` {
			t.Errorf("the erasure record of %s leads to %v", m.Key, e)
		}
		erased++
	}
	details := detailsOf(kafkatest.Consume(t, after.cfg, after.cfg.Topics().Runs))
	if !maps.Equal(details, map[string]string{"acme/t0//title": `"stays"`}) {
		t.Errorf("details of threads: %v", details)
	}
	if erased != 1 {
		t.Errorf("%d erasure records, want 1", erased)
	}
	gone := 0
	for key, r := range copied {
		if events[record.Position{Partition: r.Raw.Partition, Offset: r.Raw.First}] == nil {
			gone++
			if r.RunID != "a" && r.RunID != "b" {
				t.Errorf("the first event of %s is not there", key)
			}
		}
	}
	if gone != 12 {
		t.Errorf("the raw events of %d runs are gone, want 12", gone)
	}
	// Records and raw events of the new set prove one another.
	stdout, stderr, _ := skein(t, "", "refold", "--all", "--brokers", strings.Join(k.Brokers, ","), "--topic-prefix", after.cfg.TopicPrefix)
	if want := " by version 3 of the rules: 7 as they are, 0 would change; left: 12 whose raw events are gone, 2 open\n"; !strings.HasSuffix(stdout, want) {
		t.Errorf("refold says %s%s; want %s", stdout, stderr, want)
	}
	letters := lettersOf(t, after.cfg)
	if want := []string{deadletter.Malformed, deadletter.NoRun, deadletter.WrongPartition}; !slices.Equal(letters, want) ||
		killed.Proof.Retried != 1 {
		t.Errorf("dead letters are %v, want %v", letters, want)
	}

	// The new compactors go on: the open runs end, and a new one follows what was the last.
	after.send(record.KindEvent, "t0", "d", runEvents("t0", "d", true)[2:]...)
	after.send(record.KindEvent, "t0", "e", runEvents("t0", "e", true)[3:]...)
	after.send(record.KindEvent, "t5", "d", runEvents("t5", "d", true)...)
	now := after.compact(func(runs map[string]*record.Run) bool {
		d, e, f := runs["acme/t0/d"], runs["acme/t0/e"], runs["acme/t5/d"]
		return f != nil && f.Status.Sealed() && d.Status.Sealed() && e.Status.Sealed()
	})
	if d := now["acme/t0/d"]; d.Raw.Events != 7 || string(d.State) != `{"a":1,"b":1,"c":1,"d":1}` {
		t.Errorf("the run that was open has %d events, state %s", d.Raw.Events, d.State)
	}
	if d := now["acme/t5/d"]; d.ParentRunID != "c" || string(d.State) != `{"a":1,"b":1,"c":1,"d":1}` {
		t.Errorf("the next run follows %q, state %s", d.ParentRunID, d.State)
	}
	if len(now) != len(copied)+1 {
		t.Errorf("%d runs became %d, with one that is new", len(copied), len(now))
	}
	for key, r := range copied {
		if r.Open != nil {
			continue
		}
		a, errA := record.EncodeRun(r)
		b, errB := record.EncodeRun(now[key])
		if errA != nil || errB != nil || string(a) != string(b) {
			t.Errorf("the record of %s was\n%s\nand is\n%s", key, a, b)
		}
	}
	if again := lettersOf(t, after.cfg); !slices.Equal(again, letters) {
		t.Errorf("dead letters were %v and are %v", letters, again)
	}
	if stdout, _, code := skein(t, "", "refold", "--all", "--brokers", strings.Join(k.Brokers, ","), "--topic-prefix",
		after.cfg.TopicPrefix); code != 0 ||
		!strings.Contains(stdout, ": 10 as they are, 0 would change; left: 12 ") {
		t.Errorf("in the end refold says %s", stdout)
	}
	// What comes to the old set after that is in no set that anybody reads.
	before.send(record.KindEvent, "t0", "late", runEvents("t0", "late", true)...)
	if _, stderr, code := skein(t, "", args...); code != app.ExitFailed || !strings.Contains(stderr, "came to") {
		t.Errorf("exit %d, %s", code, stderr)
	}
}

func optionsOf(k kafka.Config) []kgo.Opt {
	if k.Options == nil {
		return nil
	}
	return k.Options()
}

// onProduce calls f when records were sent and not acknowledged yet.
type onProduce struct{ f func() }

func (o *onProduce) OnBrokerWrite(_ kgo.BrokerMetadata, key int16, _ int, _, _ time.Duration, _ error) {
	if key == int16(kmsg.Produce) {
		o.f()
	}
}

// byStart are the runs of each thread in the order of their starts.
func byStart(runs map[string]*record.Run) []string {
	keys := slices.Sorted(maps.Keys(runs))
	slices.SortStableFunc(keys, func(a, b string) int {
		x, y := runs[a], runs[b]
		if x.ThreadID != y.ThreadID {
			return strings.Compare(x.ThreadID, y.ThreadID)
		}
		return int(x.Raw.First - y.Raw.First)
	})
	return keys
}

// lettersOf are the reasons of the dead letters of a set.
func lettersOf(t *testing.T, k kafka.Config) []string {
	t.Helper()
	var out []string
	for _, m := range kafkatest.Consume(t, k, k.Topics().DeadLetters) {
		out = append(out, deadletter.Read(m).Reason)
	}
	slices.Sort(out)
	return out
}
