package compactor

import (
	"context"
	"errors"
	"log/slog"
	"maps"
	"math/rand/v2"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"
	_ "unsafe" // for go:linkname

	"github.com/cockroachdb/pebble/v2/vfs"
	"github.com/prometheus/client_golang/prometheus"
	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kfake"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/skeinhq/skein/internal/logtest"
	"github.com/skeinhq/skein/pkg/kafka"
	"github.com/skeinhq/skein/pkg/kafka/kafkatest"
	"github.com/skeinhq/skein/pkg/record"
)

// world is a cluster with compactors in virtual time: ten seconds of a session timeout pass at once,
// and the settings are those of production.
type world struct {
	*testing.T
	cluster    *kafkatest.Cluster
	kafka      kafka.Config // the test's own way to the cluster
	partitions int32
	script     *sim // what the test has its agents send
	sent       int
	refusal    atomic.Pointer[kfake.FaultHandle]
	adm        *kadm.Client
	disks      sync.Map // *vfs.MemFS by folder
}

// writeTasks is where the local store's tables keep used tasks for the whole process, each with a channel. A channel that was made in
// one bubble ends the process when it is met in another, so all are made outside of any.
//
//go:linkname writeTasks github.com/cockroachdb/pebble/v2/sstable.writeTaskPool
var writeTasks sync.Pool

func init() {
	made, task := make(chan any), writeTasks.New
	go func() {
		for {
			made <- task()
		}
	}()
	writeTasks.New = func() any { return <-made }
}

// Tests have little to write: all that can be sent early is.
func init() { sendBytes = 1 }

// inWorld runs a test in a bubble of its own, with topics of so many partitions.
func inWorld(t *testing.T, partitions int32, f func(w *world), broker ...kfake.Opt) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		c := kafkatest.StartCluster(t, partitions, kafkatest.Virtual(), kafkatest.WithFake(broker...))
		own := c.Wire()
		w := &world{T: t, cluster: c, kafka: own.Config, partitions: partitions, script: newSim(t, nil)}
		own.Decide(w.ownFate)
		f(w)
	})
}

// refuse has the brokers answer the request of a kind that a compactor is about to make with an error.
func (w *world) refuse(key kmsg.Key, err *kerr.Error) {
	w.refusal.Store(w.cluster.Fake.Fault(kfake.Fault{Keys: []kmsg.Key{key}, Err: err}))
}

// ownFate holds back the test's own requests until a refusal has met the one that it is for. One that
// holds nothing that could be refused is let go after a second.
func (w *world) ownFate(kafkatest.Request) kafkatest.Fate {
	const wait, tick = time.Second, 10 * time.Millisecond
	refusal := w.refusal.Load()
	for range wait / tick {
		if refusal == nil || refusal.Hits() > 0 {
			return kafkatest.Deliver
		}
		time.Sleep(tick) // in virtual time
	}
	refusal.Remove()
	return kafkatest.Deliver
}

// publish writes what the script has come to since the last time.
func (w *world) publish() {
	w.Helper()
	produce(w.T, w.kafka, w.partitions, w.script.Events[w.sent:]...)
	w.sent = len(w.script.Events)
}

// decided waits until the group has decided all there is, and returns the committed offset by partition.
func (w *world) decided() map[int32]int64 {
	w.Helper()
	return waitDecided(w.T, w.kafka, w.partitions)
}

// runs are the committed records of skein.runs.
func (w *world) runs() []*kgo.Record {
	w.Helper()
	return kafkatest.Consume(w.T, w.kafka, w.kafka.Topics().Runs)
}

// sealed are the sealed runs by thread and id, each of them sealed once.
func (w *world) sealed() map[string]*record.Run {
	w.Helper()
	return sealedOnce(w.T, w.runs())
}

// admin is an admin client of the test's own.
func (w *world) admin() *kadm.Client {
	w.Helper()
	if w.adm == nil {
		w.adm = kafkatest.Admin(w.T, w.kafka)
	}
	return w.adm
}

// isTheFold is the function of this name.
func (w *world) isTheFold() {
	w.Helper()
	w.quiet()
	isTheFold(w.T, w.kafka)
}

// quiet waits until the snapshots are written of all threads that have ended.
func (w *world) quiet() { time.Sleep(6 * time.Second) } // in virtual time

// member is a compactor with a way to the cluster of its own.
type member struct {
	w       *world
	wire    *kafkatest.Wire
	disk    *vfs.MemFS
	cfg     Config
	log     *logtest.Log
	metrics *metrics

	mu      sync.Mutex
	service *Service
	cancel  context.CancelFunc
	done    chan error
}

// join starts a compactor. As an orchestrator does, it is started again where it ends by itself.
func (w *world) join(name, dir string, change func(*Config)) *member {
	w.Helper()
	return w.joinBy(w.cluster.Wire(), name, dir, change)
}

// joinBy is join over a wire that may decide from the first request on.
func (w *world) joinBy(wire *kafkatest.Wire, name, dir string, change func(*Config)) *member {
	w.Helper()
	cfg := DefaultConfig()
	cfg.InstanceID, cfg.Dir = name, dir
	if change != nil {
		change(&cfg)
	}
	disk, _ := w.disks.LoadOrStore(dir, vfs.NewCrashableMem())
	m := &member{w: w, wire: wire, disk: disk.(*vfs.MemFS), cfg: cfg, log: &logtest.Log{},
		metrics: newMetrics(prometheus.NewRegistry(), 1), done: make(chan error, 1)}
	k := m.wire.Config
	logger := slog.New(slog.NewTextHandler(m.log, nil))
	var ctx context.Context
	ctx, m.cancel = context.WithCancel(context.Background())
	go func() {
		var ends []error
		defer func() { m.done <- errors.Join(ends...) }()
		for ctx.Err() == nil {
			s := newService(cfg, k, logger, m.metrics)
			s.fs = m.disk
			m.mu.Lock()
			m.service = s
			m.mu.Unlock()
			if err := s.Run(ctx); err != nil {
				logger.Error("process ended", "error", err)
				ends = append(ends, err)
			}
			select {
			case <-ctx.Done():
			case <-time.After(time.Second): // an orchestrator's pause
			}
		}
	}()
	w.Cleanup(func() {
		if err := m.stop(); err != nil && !errors.Is(err, ErrFenced) && !errors.Is(err, kafka.ErrPartitionCounts) {
			w.Errorf("%s ended with %v", name, err)
		}
		if w.Failed() {
			w.Logf("log of %s:\n%s", name, m.log)
		}
	})
	return m
}

// works reports whether the member has partitions, all of them open.
func (m *member) works() bool {
	m.mu.Lock()
	s := m.service
	m.mu.Unlock()
	return s != nil && works(s)()
}

// ready is what its readiness says.
func (m *member) ready() error {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.service.Ready()
}

// waitWorks waits until it works.
func (m *member) waitWorks() {
	m.w.Helper()
	waitFor(m.w.T, m.cfg.InstanceID+" works", m.works)
}

// refuse has the brokers answer its next request of a kind with an error.
func (m *member) refuse(key kmsg.Key, err *kerr.Error) {
	var once sync.Once
	m.wire.Decide(func(r kafkatest.Request) kafkatest.Fate {
		if r.Key == key {
			once.Do(func() { m.w.refuse(key, err) })
		}
		return kafkatest.Deliver
	})
}

// stop ends it in good order; the error joins what its processes ended with before.
func (m *member) stop() error {
	m.cancel()
	err := <-m.done
	m.done <- err
	return err
}

// kill takes the cluster away from it in the middle of whatever it does. Its folder has what was written to files by then.
func (m *member) kill() {
	m.w.disks.Store(m.cfg.Dir, m.disk.CrashClone(vfs.CrashCloneCfg{UnsyncedDataPercent: 100, RNG: rand.New(rand.NewPCG(0, 0))}))
	m.wire.Down()
	_ = m.stop() // nobody is there to hear it
}

// isTheFold compares what came out of a topic set of one partition with what a fold in this process
// makes of its log: each sealed run's record to the byte and once, the dead letters, and the last
// snapshot of each key, once its time has come.
func isTheFold(t *testing.T, k kafka.Config) {
	t.Helper()
	want := newSim(t, nil)
	for _, m := range kafkatest.Consume(t, k, k.Topics().Events) {
		want.Append(m)
	}
	want.all()
	sealed := sealedOnce(t, kafkatest.Consume(t, k, k.Topics().Runs))
	n := 0
	for _, r := range want.latest() {
		if !r.Status.Sealed() {
			continue
		}
		n++
		got := sealed[r.ThreadID+"/"+r.RunID]
		if got == nil {
			t.Errorf("%s is missing", r.RunID)
			continue
		}
		a, errA := record.EncodeRun(r)
		b, errB := record.EncodeRun(got)
		if err := errors.Join(errA, errB); err != nil {
			t.Fatal(err)
		}
		equal(t, "record of "+r.RunID, string(b), string(a))
	}
	equal(t, "sealed runs", len(sealed), n)
	letters := []string{}
	for _, m := range kafkatest.Consume(t, k, k.Topics().DeadLetters) {
		letters = append(letters, header(m, record.HeaderPosition)+" "+header(m, record.HeaderReason))
	}
	equal(t, "dead letters", letters, want.letters())
	last := map[string]string{}
	for _, m := range want.other {
		if m.Topic == want.Topics.Snapshots {
			last[string(m.Key)] = header(m, record.HeaderRunID) + string(m.Value)
		}
	}
	snapshots := k.Topics().Snapshots
	kafkatest.ConsumeUntil(t, k, snapshots, func(all []*kgo.Record) bool { return maps.Equal(lastSnapshots(t, want, all), last) })
}

// lastSnapshots are the last ones by key: their runs and values. None may replace that of a later run.
func lastSnapshots(t *testing.T, want *sim, all []*kgo.Record) map[string]string {
	t.Helper()
	last, next := map[string]string{}, map[string]int64{}
	runs := want.latest()
	for _, m := range all {
		key, run := string(m.Key), header(m, record.HeaderRunID)
		if runs[run].Raw.Next < next[key] {
			t.Errorf("%s of %s replaces that of a later run", key, run)
		}
		last[key], next[key] = run+string(m.Value), runs[run].Raw.Next
	}
	return last
}
