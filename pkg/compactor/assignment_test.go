package compactor

import (
	"fmt"
	"sync/atomic"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus/testutil"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/skeinhq/skein/pkg/compactor/runstore"
	"github.com/skeinhq/skein/pkg/kafka/kafkatest"
)

// On an empty folder only so many partitions are read at a time, as what is read is held in memory.
func TestService_ReadsFewPartitionsAtATimeOnAnEmptyFolder(t *testing.T) {
	const partitions = 12
	inWorld(t, partitions, func(w *world) {
		t := w.T
		m := w.join("a", w.TempDir(), nil)
		for i := range 5 * partitions {
			thread := fmt.Sprint("t", i)
			w.script.Send(thread, "r", started("r"))
			w.script.Send(thread, "r", finished("r"))
		}
		w.publish()
		w.decided()
		m.waitWorks()
		m.kill()

		wire := w.cluster.Wire()
		var now, most atomic.Int64
		var metrics atomic.Pointer[metrics]
		wire.Decide(func(r kafkatest.Request) kafkatest.Fate {
			// Until one has read something: one that is done says so with a fetch of nothing.
			if m := metrics.Load(); r.Key == kmsg.Fetch && m != nil && testutil.ToFloat64(m.catchUp) == 0 {
				n := now.Add(1)
				for was := most.Load(); n > was && !most.CompareAndSwap(was, n); was = most.Load() {
				}
				time.Sleep(slotWait / 4)
				now.Add(-1)
			}
			return kafkatest.Deliver
		})
		m = w.joinBy(wire, "a", w.TempDir(), nil)
		metrics.Store(m.metrics)
		m.waitWorks()
		if n := most.Load(); n < 2 || n > runstore.MaxCatchUps {
			t.Errorf("%d partitions were read at a time, want 2 to %d", n, runstore.MaxCatchUps)
		}
		if n := testutil.ToFloat64(m.metrics.catchUp); n < 5*partitions {
			t.Errorf("%v records were read, there are %d runs", n, 5*partitions)
		}
	})
}

// Partitions whose fences cannot be read yet keep no turn from one that can be read.
func TestService_OpensAPartitionBesideOthersThatWait(t *testing.T) {
	const partitions = 3 * runstore.MaxCatchUps
	inWorld(t, partitions, func(w *world) {
		t := w.T
		var release []func()
		for p := range int32(partitions) {
			release = append(release, w.holdRuns(p))
		}
		m := w.join("a", w.TempDir(), nil)
		time.Sleep(5 * time.Second)
		for i, f := range release {
			open := func() bool { return testutil.ToFloat64(m.metrics.partitions.WithLabelValues("open")) == float64(i) }
			waitFor(t, "as many partitions are open as nothing holds back", open)
			f()
		}
		m.waitWorks()
	})
}
