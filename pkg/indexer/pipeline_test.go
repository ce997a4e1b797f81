package indexer

import (
	"errors"
	"fmt"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/testutil"
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/skeinhq/skein/pkg/kafka"
	"github.com/skeinhq/skein/pkg/kafka/kafkatest"
	"github.com/skeinhq/skein/pkg/record"
	"github.com/skeinhq/skein/pkg/store"
)

// Beside the block that is written there is one more, and the record that does not fit into it.
func TestService_DecodesOneBlockWhileAnotherIsWritten(t *testing.T) {
	k := kafkatest.Start(t, 1)
	cfg, st := testConfig(k), newFakeStore()
	cfg.maxRecords = 2
	entered, release := make(chan struct{}), make(chan struct{})
	st.onWrite = func([]store.Entry) error {
		select {
		case entered <- struct{}{}:
			<-release
		case <-release:
		}
		return nil
	}
	for i := range 9 {
		kafkatest.Produce(t, k, runRecord(t, k, 0, fmt.Sprint(i), record.StatusFinished))
	}
	s := start(t, cfg, st)
	<-entered
	decoded := func() float64 { return testutil.ToFloat64(s.metrics.records.WithLabelValues(string(outcomeRun))) }
	until(t, "the next block is decoded", func() bool { return decoded() == 5 })
	if got := committed(t, cfg); len(got) != 0 {
		t.Errorf("committed %v before anything was written", got)
	}
	if got := decoded(); got != 5 {
		t.Errorf("%v records are decoded, want 2 that are written, 2 that wait and 1 behind them", got)
	}
	close(release)
	until(t, "offsets are committed", func() bool { return committed(t, cfg)[0] == 9 })
	st.mu.Lock()
	defer st.mu.Unlock()
	for _, b := range st.blocks {
		if len(b) > 2 {
			t.Errorf("a block of %d records, want at most 2", len(b))
		}
	}
}

// It is killed behind the insert and before the commit: what it has read is read and written again.
func TestService_WritesTheSameAgainWhereItWasNotCommitted(t *testing.T) {
	c := kafkatest.StartCluster(t, 1)
	cfg, st := testConfig(c.Config), newFakeStore()
	var refuse atomic.Bool
	c.Fake.ControlKey(int16(kmsg.OffsetCommit), func(req kmsg.Request) (kmsg.Response, error, bool) {
		c.Fake.KeepControl()
		if !refuse.Load() {
			return nil, nil, false
		}
		return nil, errors.New("the connection is cut"), true
	})
	kafkatest.Produce(t, c.Config, runRecord(t, c.Config, 0, "a", record.StatusRunning), runRecord(t, c.Config, 0, "b", record.StatusFinished))
	refuse.Store(true)
	s := start(t, cfg, st)
	want := "acme/thread/a 0:0 running\nacme/thread/b 0:1 finished\n"
	until(t, "a commit fails behind the write", func() bool { return st.text() == want && testutil.ToFloat64(s.metrics.commitErrors) > 0 })
	if err := s.stop(); err != nil {
		t.Errorf("Run: %v", err)
	}
	if got := committed(t, cfg); len(got) != 0 {
		t.Fatalf("committed %v", got)
	}
	refuse.Store(false)
	cfg.Registerer = prometheus.NewRegistry()
	s = start(t, cfg, st)
	until(t, "ready", func() bool { return s.Ready() == nil })
	until(t, "offsets are committed", func() bool { return committed(t, cfg)[0] == 2 })
	st.mu.Lock()
	blocks := len(st.blocks)
	st.mu.Unlock()
	if got := st.text(); got != want || blocks != 2 {
		t.Errorf("rows after %d blocks, want 2:\n%s", blocks, got)
	}
}

// A killed member's partitions stand still for the session's 10 s unless it comes back under its own name.
func TestService_GoesOnAtOnceAfterItWasKilled(t *testing.T) {
	k := kafkatest.Start(t, 2)
	cfg, st := testConfig(k), newFakeStore()
	cfg.InstanceID = "indexer-0"
	killed, err := kafka.NewGroupReader(k,
		kafka.GroupOptions{Group: k.IndexerGroup(), InstanceID: cfg.InstanceID, Topics: []string{k.Topics().Runs}})
	if err != nil {
		t.Fatal(err)
	}
	kafkatest.Produce(t, k, runRecord(t, k, 0, "a", record.StatusFinished))
	killed.PollRecords(t.Context(), 1)
	killed.CloseAllowingRebalance() // as a static member it does not leave, like one that was killed
	const limit = 8 * time.Second   // it takes 0.3 s on a quiet machine, and 9 s and more where the session has to time out
	from := time.Now()
	s := start(t, cfg, st)
	until(t, "the row is there", func() bool { return st.text() == "acme/thread/a 0:0 finished\n" })
	if took := time.Since(from); took > limit {
		t.Errorf("it went on after %v", took)
	}
	if err := s.stop(); err != nil {
		t.Errorf("Run: %v", err)
	}
	// One that was stopped leaves: its partitions are another's at once.
	cfg.InstanceID, cfg.Registerer = "indexer-1", prometheus.NewRegistry()
	from = time.Now()
	kafkatest.Produce(t, k, runRecord(t, k, 0, "b", record.StatusFinished))
	start(t, cfg, st)
	until(t, "the other one goes on", func() bool { return strings.Contains(st.text(), "/b 0:1") })
	if took := time.Since(from); took > limit {
		t.Errorf("another member went on after %v", took)
	}
}

func TestService_EndsWhereAnotherHasItsName(t *testing.T) {
	k := kafkatest.Start(t, 1)
	cfg := testConfig(k)
	cfg.InstanceID = "indexer-0"
	first, err := New(cfg, newFakeStore())
	if err != nil {
		t.Fatal(err)
	}
	ended := make(chan error, 1)
	go func() { ended <- first.Run(t.Context()) }()
	until(t, "the first one is ready", func() bool { return first.Ready() == nil })
	cfg.Registerer = prometheus.NewRegistry()
	st := newFakeStore()
	second := start(t, cfg, st)
	if err := <-ended; !errors.Is(err, kerr.FencedInstanceID) || !strings.Contains(err.Error(), "instance id indexer-0; give each its own") {
		t.Errorf("the first one ends with %v", err)
	}
	kafkatest.Produce(t, k, runRecord(t, k, 0, "a", record.StatusFinished))
	until(t, "the second one goes on", func() bool { return second.Ready() == nil && st.text() != "" })
}
