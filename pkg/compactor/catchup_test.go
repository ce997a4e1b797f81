package compactor

import (
	"bytes"
	"log/slog"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/testutil"

	"github.com/skeinhq/skein/pkg/compactor/runstore"
)

func TestCatchUps_TellRecordsBytesAndTimeLeft(t *testing.T) {
	var log bytes.Buffer
	m := newMetrics(prometheus.NewRegistry(), 0)
	c := newCatchUps(slog.New(slog.NewTextHandler(&log, nil)), m)
	now := time.Date(2026, 9, 1, 12, 0, 0, 0, time.UTC)
	u := c.begin(3, 0, 1000, now)
	v := c.begin(4, 0, 50, now)
	u.read(80, 4000, 100, now.Add(catchUpLogEvery/2))
	equal(t, "lines before it is time", log.Len(), 0)
	u.read(80, 4000, 250, now.Add(catchUpLogEvery))
	if want := "partition=3 offset=250 until=1000 records=160 bytes=8000 left=30s"; !strings.Contains(log.String(), want) {
		t.Errorf("log is %q, want %q", log.String(), want)
	}
	equal(t, "records", testutil.ToFloat64(m.catchUp), 160)
	equal(t, "bytes", testutil.ToFloat64(m.catchUpBytes), 8000)
	equal(t, "offsets left", testutil.ToFloat64(m.catchUpLeft), 800)
	equal(t, "seconds left", testutil.ToFloat64(m.catchUpLeftSeconds), 30)
	u.done(now)
	v.done(now)
	equal(t, "offsets left in the end", testutil.ToFloat64(m.catchUpLeft), 0)
	equal(t, "seconds left in the end", testutil.ToFloat64(m.catchUpLeftSeconds), 0)
}

// On its folder a process reads only what was committed since, and after kill -9 what its store had in memory alone; on an empty one all
// there is.
func TestService_ReadsOnItsFolderOnlyWhatIsNew(t *testing.T) {
	inWorld(t, 1, func(w *world) {
		t := w.T
		const runs, few = 300, 10
		dir, sent := w.TempDir(), 0
		turns := func() {
			for range runs / 2 {
				sent++
				w.script.Turn("r"+strconv.Itoa(sent), "m"+strconv.Itoa(sent))
			}
			w.publish()
			w.decided()
		}
		next := func(dir string) (m *member, records float64) {
			m = w.join("a", dir, nil)
			m.waitWorks()
			for _, reason := range runstore.RebuildReasons() {
				equal(t, "stores made anew", testutil.ToFloat64(m.metrics.rebuilds.WithLabelValues(reason)), 0)
			}
			return m, testutil.ToFloat64(m.metrics.catchUp)
		}
		m, _ := next(dir)
		turns()
		if err := m.stop(); err != nil {
			t.Fatal(err)
		}
		m, n := next(dir)
		if n > few {
			t.Errorf("%v records were read after an end in good order", n)
		}
		turns()
		m.kill()
		if m, n = next(dir); n < runs/2 || n > runs/2+few {
			t.Errorf("%v records were read after kill -9, there are %d runs since the start", n, runs/2)
		}
		m.kill()
		if m, n = next(dir); n > few {
			t.Errorf("%v records were read twice", n)
		}
		turns()
		w.isTheFold()
		m.kill()
		m, n = next(w.TempDir())
		if n < 3*runs/2 {
			t.Errorf("%v records were read on an empty folder, there are %d runs", n, 3*runs/2)
		}
		equal(t, "bytes were counted", testutil.ToFloat64(m.metrics.catchUpBytes) > 0, true)
		equal(t, "offsets left", testutil.ToFloat64(m.metrics.catchUpLeft), 0)
	})
}
