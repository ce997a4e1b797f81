package compactor

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"os/exec"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus/testutil"
	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kgo"
	"go.uber.org/goleak"

	"github.com/skeinhq/skein/pkg/compactor/partition"
	"github.com/skeinhq/skein/pkg/compactor/partition/partitiontest"
	"github.com/skeinhq/skein/pkg/deadletter"
	"github.com/skeinhq/skein/pkg/kafka"
	"github.com/skeinhq/skein/pkg/kafka/kafkatest"
	"github.com/skeinhq/skein/pkg/record"
)

// TestMain is also the compactor process that tests kill: see process.
func TestMain(m *testing.M) {
	if brokers := os.Getenv("COMPACTOR_BROKERS"); brokers != "" {
		cfg := testConfig(os.Getenv("COMPACTOR_DIR"), os.Getenv("COMPACTOR_INSTANCE"))
		logger := slog.New(slog.NewTextHandler(os.Stderr, nil))
		k := kafka.Config{Brokers: []string{brokers}, TopicPrefix: os.Getenv("COMPACTOR_PREFIX")}
		s, err := New(cfg, k, logger)
		if err == nil {
			s.fs = fsOfProcess()
			err = s.Run(context.Background())
			logger.Error("process ended", "error", err, "ready", s.Ready())
		}
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	// Docker's test containers keep one connection for as long as the process lives.
	goleak.VerifyTestMain(m, goleak.IgnoreCurrent(), goleak.IgnoreAnyFunction("github.com/testcontainers/testcontainers-go.(*Reaper).connect.func1"))
}

func testConfig(dir, instance string) Config {
	cfg := DefaultConfig()
	cfg.Dir, cfg.InstanceID, cfg.CommitInterval = dir, instance, 20*time.Millisecond
	return cfg
}

// process is a compactor in a process of its own.
type process struct {
	cmd   *exec.Cmd
	log   *strings.Builder // once it has ended
	ended chan struct{}
}

func startProcess(t *testing.T, k kafka.Config, dir, instance string, env ...string) *process {
	t.Helper()
	p := &process{cmd: exec.Command(os.Args[0]), log: new(strings.Builder), ended: make(chan struct{})}
	p.cmd.Env = append(os.Environ(), "COMPACTOR_BROKERS="+k.Brokers[0], "COMPACTOR_PREFIX="+k.TopicPrefix,
		"COMPACTOR_DIR="+dir, "COMPACTOR_INSTANCE="+instance)
	p.cmd.Env = append(p.cmd.Env, env...)
	p.cmd.Stderr = p.log
	if err := p.cmd.Start(); err != nil {
		t.Fatal(err)
	}
	go func() {
		defer close(p.ended)
		_ = p.cmd.Wait() // it was killed, or says in its log why it ended
	}()
	t.Cleanup(func() {
		p.kill()
		if t.Failed() {
			t.Logf("log of the process:\n%s", p.log)
		}
	})
	return p
}

// kill is kill -9.
func (p *process) kill() {
	_ = p.cmd.Process.Kill() // it may have ended by itself
	<-p.ended
}

// runService runs a compactor in this process until the test ends or stop is called.
func runService(t *testing.T, k kafka.Config, cfg Config) (s *Service, stop func() error) {
	t.Helper()
	s, err := New(cfg, k, slog.New(slog.NewTextHandler(t.Output(), &slog.HandlerOptions{Level: slog.LevelWarn})))
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan error, 1)
	go func() { done <- s.Run(ctx) }()
	var result error
	ended := false
	stop = func() error {
		if !ended {
			cancel()
			result, ended = <-done, true
		}
		return result
	}
	t.Cleanup(func() {
		if err := stop(); err != nil && !errors.Is(err, ErrFenced) && !errors.Is(err, kafka.ErrPartitionCounts) {
			t.Errorf("the service ended with %v", err)
		}
	})
	return s, stop
}

// produce sends what a sim's script wrote, each event to its partition.
func produce(t *testing.T, k kafka.Config, partitions int32, events ...*kgo.Record) {
	t.Helper()
	out := make([]*kgo.Record, len(events))
	for i, m := range events {
		out[i] = &kgo.Record{Topic: k.Topics().Events, Partition: record.Partition(m.Key, partitions), Key: m.Key, Value: m.Value,
			Headers: m.Headers}
	}
	kafkatest.Produce(t, k, out...)
}

// records are the run records in the order of the topic.
func records(t *testing.T, all []*kgo.Record) []*record.Run {
	t.Helper()
	var out []*record.Run
	for _, m := range all {
		if m.Value == nil || header(m, record.HeaderKind) != string(record.KindRun) {
			continue
		}
		r, err := record.DecodeRun(m.Value)
		if err != nil {
			t.Fatal(err)
		}
		out = append(out, r)
	}
	return out
}

func sealedOnce(t *testing.T, all []*kgo.Record) map[string]*record.Run {
	t.Helper()
	out := map[string]*record.Run{}
	for _, r := range records(t, all) {
		id := r.ThreadID + "/" + r.RunID
		if out[id] != nil {
			t.Errorf("%s has a record after the one that sealed it", id)
		}
		if r.Status.Sealed() {
			out[id] = r
		}
	}
	return out
}

// waitSealed waits until so many runs are sealed and returns them.
func waitSealed(t *testing.T, k kafka.Config, n int) map[string]*record.Run {
	t.Helper()
	all := kafkatest.ConsumeUntil(t, k, k.Topics().Runs, func(all []*kgo.Record) bool {
		sealed := 0
		for _, r := range records(t, all) {
			if r.Status.Sealed() {
				sealed++
			}
		}
		return sealed >= n
	})
	return sealedOnce(t, all)
}

// waitDecided waits until the group has decided everything that events holds, and returns the committed offset by partition.
func waitDecided(t *testing.T, k kafka.Config, partitions int32) map[int32]int64 {
	t.Helper()
	admin, err := kafka.NewAdmin(k)
	if err != nil {
		t.Fatal(err)
	}
	defer admin.Close()
	ctx, cancel := context.WithTimeout(context.Background(), kafkatest.Timeout)
	defer cancel()
	ends, err := admin.ListEndOffsets(ctx, k.Topics().Events)
	if err != nil {
		t.Fatal(err)
	}
	for {
		got := map[int32]int64{}
		offsets, err := admin.FetchOffsets(kadm.RequireStable(ctx), k.CompactorGroup())
		if ctx.Err() != nil {
			t.Fatalf("the group did not get to the end; it is at %+v", offsets)
		}
		if err == nil {
			ends.Each(func(end kadm.ListedOffset) {
				o, ok := offsets.Lookup(end.Topic, end.Partition)
				if !ok || o.Err != nil {
					return
				}
				pos, err := partition.ParseProgress(o.At, o.Metadata, partitions)
				if err != nil {
					t.Fatal(err)
				}
				if pos.Processed == end.Offset {
					got[end.Partition] = pos.Committed
				}
			})
			if len(got) == int(partitions) {
				return got
			}
		}
		select {
		case <-ctx.Done():
		case <-time.After(5 * time.Millisecond): // between two looks
		}
	}
}

func TestService_WritesRecordsSnapshotsAndDeadLetters(t *testing.T) {
	kafkatest.OnBoth(t, 2, writesRecordsSnapshotsAndDeadLetters)
}

func writesRecordsSnapshotsAndDeadLetters(t *testing.T, k kafka.Config) {
	s := newSim(t, nil)
	s.Turn("r1", "m1")
	s.Send("t", "", custom("nobody's"))
	s.Turn("r2", "m2")
	produce(t, k, 2, s.Events...)
	service, stop := runService(t, k, testConfig(t.TempDir(), "a"))
	runs := waitSealed(t, k, 2)
	waitDecided(t, k, 2)
	equal(t, "parent", runs["t/r2"].ParentRunID, "r1")
	waitFor(t, "readiness", func() bool { return service.Ready() == nil })

	letters := kafkatest.Consume(t, k, k.Topics().DeadLetters)
	equal(t, "dead letters", len(letters), 1)
	equal(t, "reason", header(letters[0], record.HeaderReason), deadletter.NoRun)
	equal(t, "value", string(letters[0].Value), custom("nobody's"))
	p := record.Partition([]byte("acme/t"), 2)
	equal(t, "position", header(letters[0], record.HeaderPosition), fmt.Sprintf("%d:3", p))
	equal(t, "partition", letters[0].Partition, p)
	for _, m := range kafkatest.Consume(t, k, k.Topics().Snapshots) {
		equal(t, "partition of snapshot", m.Partition, p)
		equal(t, "kind of snapshot", header(m, record.HeaderKind), string(record.KindSnapshot))
	}
	if err := stop(); err != nil {
		t.Fatal(err)
	}
	equal(t, "ready after the end", service.Ready() != nil, true)
	equal(t, "finished runs", testutil.ToFloat64(service.metrics.runs.WithLabelValues("finished")), 2)
	equal(t, "dead letters", testutil.ToFloat64(service.metrics.deadLetters.WithLabelValues(deadletter.NoRun)), 1)
	equal(t, "folded events", testutil.ToFloat64(service.metrics.events.WithLabelValues("folded")), 6)
}

// Processes are killed at any moment while a random history is written; what comes out is what a
// fold in this process makes of the same log.
func TestService_KilledAgainAndAgain(t *testing.T) {
	k := kafkatest.Start(t, 1)
	want := newSim(t, nil)
	rng := newRand(t)
	partitiontest.Random(want.Script, rng, 300, false)
	for _, m := range want.Events { // stream time is that of the broker here
		m.Timestamp = time.Time{}
	}
	dirs := []string{t.TempDir(), t.TempDir()}
	p := startProcess(t, k, dirs[0], "a")
	for chunk := range slices.Chunk(want.Events, 60) {
		produce(t, k, 1, chunk...)
		time.Sleep(time.Duration(rng.IntN(900)) * time.Millisecond) // the fault's own time: any will do
		p.kill()
		p = startProcess(t, k, dirs[rng.IntN(2)], "a")
	}
	waitDecided(t, k, 1)
	isTheFold(t, k)
}

func TestService_StopsWhenAnotherProcessHasItsIDs(t *testing.T) {
	kafkatest.OnBoth(t, 1, stopsWhenAnotherProcessHasItsIDs)
}

func stopsWhenAnotherProcessHasItsIDs(t *testing.T, k kafka.Config) {
	a, stopA := runService(t, k, testConfig(t.TempDir(), "same"))
	waitFor(t, "the first is ready", works(a))
	b, _ := runService(t, k, testConfig(t.TempDir(), "same"))
	waitFor(t, "the second is ready", works(b))
	s := newSim(t, nil)
	s.Turn("r1", "m1")
	produce(t, k, 1, s.Events...)
	waitSealed(t, k, 1)
	waitFor(t, "the first has ended", func() bool { return a.current.Load() == nil })
	if err := stopA(); !errors.Is(err, ErrFenced) {
		t.Errorf("the first ended with %v, want ErrFenced", err)
	}
}

func TestService_StopsOnOtherPartitionCounts(t *testing.T) {
	kafkatest.OnBoth(t, 2, stopsOnOtherPartitionCounts)
}

func stopsOnOtherPartitionCounts(t *testing.T, k kafka.Config) {
	s := newSim(t, nil)
	s.Turn("r1", "m1")
	produce(t, k, 2, s.Events...)
	cfg := testConfig(t.TempDir(), "a")
	service, err := New(cfg, k, slog.New(slog.DiscardHandler))
	if err != nil {
		t.Fatal(err)
	}
	var ahead atomic.Int64
	service.now = func() time.Time { return time.Now().Add(time.Duration(ahead.Load())) }
	ctx, cancel := context.WithTimeout(context.Background(), kafkatest.Timeout)
	defer cancel()
	ended := make(chan error, 1)
	go func() { ended <- service.Run(ctx) }()
	waitSealed(t, k, 1)

	admin := kafkatest.Admin(t, k)
	added, err := admin.CreatePartitions(ctx, 1, k.Topics().All()...)
	if err := errors.Join(err, added.Error()); err != nil {
		t.Fatal(err)
	}
	// It looks twice a minute, but the client may answer from a cache of 250 ms.
	waitFor(t, "it has ended", func() bool { ahead.Add(int64(time.Minute)); return len(ended) > 0 })
	if err := <-ended; !errors.Is(err, kafka.ErrPartitionCounts) {
		t.Errorf("while running it ended with %v, want ErrPartitionCounts", err)
	}
	again, err := New(cfg, k, slog.New(slog.DiscardHandler))
	if err != nil {
		t.Fatal(err)
	}
	if err := again.Run(ctx); !errors.Is(err, kafka.ErrPartitionCounts) {
		t.Errorf("at its start it ended with %v, want ErrPartitionCounts", err)
	}
}

// The last of the log is the marker of another producer's transaction, as where a dead letter was sent again (committed), a command
// broke off (aborted), or `skein topics migrate` made the topic: the committed offset at the open run, the processed one behind the
// marker.
func TestService_AbandonsByTheClockBehindAMarker(t *testing.T) {
	for name, end := range map[string]kgo.TransactionEndTry{"committed": kgo.TryCommit, "aborted": kgo.TryAbort, "migrated": kgo.TryCommit} {
		t.Run(name, func(t *testing.T) {
			kafkatest.OnBoth(t, 1, func(t *testing.T, k kafka.Config) {
				s := newSim(t, nil)
				s.Send("t", "r", started("r"))
				began := time.Now()
				produce(t, k, 1, s.Events...)
				cl, err := kafka.NewProducer(k, kgo.TransactionalID(k.TopicPrefix+"other"))
				if err != nil {
					t.Fatal(err)
				}
				defer cl.Close()
				// No later than the run, so that no stream time gives it up.
				m := *s.Send("t", "r", text("m", "a"))
				m.Topic, m.Timestamp = k.Topics().Events, began
				err = errors.Join(cl.BeginTransaction(), cl.ProduceSync(t.Context(), &m).FirstErr(), cl.EndTransaction(t.Context(), end))
				if err != nil {
					t.Fatal(err)
				}
				events := 2
				switch name {
				case "aborted":
					events = 1
				case "migrated":
					commitPosition(t, k, partition.Progress{Processed: 3, Partitions: 1})
				}

				cfg := testConfig(t.TempDir(), "a")
				cfg.IdleLimit = 300 * time.Millisecond
				service, stop := runService(t, k, cfg)
				all := kafkatest.ConsumeUntil(t, k, k.Topics().Runs, func(all []*kgo.Record) bool {
					got := records(t, all)
					return len(got) > 0 && got[len(got)-1].Status == record.StatusAbandoned
				})
				runs := records(t, all)
				equal(t, "events", runs[len(runs)-1].Raw.Events, int64(events))
				equal(t, "C, with the marker", waitDecided(t, k, 1)[0], int64(3))
				if err := stop(); err != nil {
					t.Fatal(err)
				}
				if name == "migrated" { // the events below the processed offset were counted before
					events = 0
				}
				total := 0.
				for _, outcome := range partition.Outcomes() {
					total += testutil.ToFloat64(service.metrics.events.WithLabelValues(outcome))
				}
				equal(t, "records that are counted", total, float64(events))
			})
		})
	}
}

// commitPosition commits for partition 0 in the name of a group that has no member.
func commitPosition(t *testing.T, k kafka.Config, pos partition.Progress) {
	t.Helper()
	admin := kafkatest.Admin(t, k)
	var offsets kadm.Offsets
	offsets.Add(kadm.Offset{Topic: k.Topics().Events, At: pos.Committed, LeaderEpoch: -1, Metadata: pos.Metadata()})
	if err := admin.CommitAllOffsets(t.Context(), k.CompactorGroup(), offsets); err != nil {
		t.Fatal(err)
	}
}

// works reports whether a member has partitions, all of them open.
func works(s *Service) func() bool {
	return func() bool {
		one := s.current.Load()
		if one == nil || s.Ready() != nil {
			return false
		}
		one.members.mu.Lock()
		defer one.members.mu.Unlock()
		return len(one.members.assigned) > 0
	}
}

var waitFor = kafkatest.Eventually

// leave takes a static member out of the group, as scaling in does.
func leave(t *testing.T, k kafka.Config, instance string) {
	t.Helper()
	admin := kafkatest.Admin(t, k)
	group := k.CompactorGroup()
	if _, err := admin.LeaveGroup(context.Background(), kadm.LeaveGroup(group).InstanceIDs(group+"-"+instance)); err != nil {
		t.Fatal(err)
	}
}

// Topics that are gone end the session; once there are others of their names, the next one goes on with them.
func TestService_GoesOnWithTopicsThatWereMadeAgain(t *testing.T) {
	inWorld(t, 1, func(w *world) {
		t := w.T
		m := w.join("a", w.TempDir(), nil)
		m.waitWorks()
		w.script.Turn("r1", "m1")
		w.publish()
		w.decided()
		topics := w.kafka.Topics().All()
		for _, topic := range topics {
			if err := w.cluster.Fake.DeleteTopic(topic); err != nil {
				t.Fatal(err)
			}
		}
		waitFor(t, "it says that topics are missing", func() bool {
			err := m.ready()
			return err != nil && strings.Contains(err.Error(), "there is no topic of that name: "+topics[0])
		})
		for _, topic := range topics {
			if err := w.cluster.Fake.CreateTopic(topic, 1, nil); err != nil {
				t.Fatal(err)
			}
		}
		m.waitWorks()
		w.script = newSim(t, nil)
		w.sent = 0
		w.script.Turn("r2", "m2")
		w.publish()
		w.decided()
		w.isTheFold()
		if n := strings.Count(m.log.String(), "there is no topic of that name"); n != 1 {
			t.Errorf("it has said %d times that topics are missing, want once", n)
		}
	})
}
