package compactor

import (
	"fmt"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus/testutil"
)

// A store that many catch-ups have made longer, but none has finished, is as old as before the first: the tombstones
// that went away meanwhile were behind what they read.
func TestService_RebuildsAStoreThatNoCatchUpHasFinishedForLong(t *testing.T) {
	inWorld(t, 1, func(w *world) {
		t := w.T
		dir, other := w.TempDir(), w.TempDir()
		a := w.join("a", dir, nil)
		a.waitWorks()
		a.kill()
		for i := range 3 {
			b := w.join("b", other, nil)
			w.script.turn(fmt.Sprint("r", i), fmt.Sprint("m", i))
			w.publish()
			w.decided()
			b.waitWorks()
			b.kill()
			release := w.holdRuns(0)
			a = w.join("a", dir, nil)
			waitFor(t, "it reads what is there", func() bool { return testutil.ToFloat64(a.metrics.CatchUp) > 0 })
			time.Sleep(10 * time.Second)
			equal(t, "it works", a.works(), false)
			a.kill()
			release()
			time.Sleep(30 * time.Hour) // delete.retention.ms is a week
		}
		equal(t, "rebuilds so far", testutil.ToFloat64(a.metrics.Rebuilds.WithLabelValues(rebuildAge)), 0)
		a = w.join("a", dir, nil)
		a.waitWorks()
		equal(t, "rebuilds", testutil.ToFloat64(a.metrics.Rebuilds.WithLabelValues(rebuildAge)), 1)
		equal(t, "runs", testutil.ToFloat64(a.metrics.CatchUp) >= 3, true)

		// One that is finished makes it young, though nothing comes.
		for range 3 {
			a.kill()
			time.Sleep(60 * time.Hour)
			a = w.join("a", dir, nil)
			a.waitWorks()
			equal(t, "rebuilds", testutil.ToFloat64(a.metrics.Rebuilds.WithLabelValues(rebuildAge)), 0)
		}
	})
}
