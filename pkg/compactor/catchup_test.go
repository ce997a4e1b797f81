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

// On its folder a process reads only what was committed since; on an empty one all there is.
func TestService_ReadsOnItsFolderOnlyWhatIsNew(t *testing.T) {
	inWorld(t, 1, func(w *world) {
		t := w.T
		const runs = 300
		dir := w.TempDir()
		m := w.join("a", dir, nil)
		m.waitWorks()
		for i := range runs {
			w.script.Turn("r"+strconv.Itoa(i), "m"+strconv.Itoa(i))
		}
		w.publish()
		w.decided()
		m.kill()
		m = w.join("a", dir, nil)
		m.waitWorks()
		if n := testutil.ToFloat64(m.metrics.catchUp); n > 10 {
			t.Errorf("%v records were read on the same folder", n)
		}
		m.kill()
		m = w.join("a", w.TempDir(), nil)
		m.waitWorks()
		if n := testutil.ToFloat64(m.metrics.catchUp); n < runs {
			t.Errorf("%v records were read on an empty folder, there are %d runs", n, runs)
		}
		equal(t, "bytes were counted", testutil.ToFloat64(m.metrics.catchUpBytes) > 0, true)
		equal(t, "offsets left", testutil.ToFloat64(m.metrics.catchUpLeft), 0)
	})
}
