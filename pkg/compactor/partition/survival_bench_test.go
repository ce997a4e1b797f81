package partition

import (
	"fmt"
	"testing"
	"time"
)

// How open runs survive a crash, in bytes: what is written to skein.runs, and what is read a second
// time, each as a share of what is read once. docs/adr/005-open-runs.md has the figures.
//
// Runs of one partition speak at 50 events a second, all at the same time; each second five transactions
// are committed.
func BenchmarkSurvival(b *testing.B) {
	changelog := func(c *Config) { c.CheckpointInterval, c.CheckpointFactor = time.Nanosecond, 0 }
	for _, w := range []struct{ runs, deltas int }{{1, 500}, {20, 500}, {20, 15000}} {
		for _, way := range []struct {
			name   string
			change func(*Config)
		}{
			{"held commit", nil},
			{"changelog in each transaction", changelog},
		} {
			b.Run(fmt.Sprintf("%d runs of %d deltas/%s", w.runs, w.deltas, way.name), func(b *testing.B) {
				for b.Loop() {
					s := newSim(b, way.change)
					read, again := speak(s, w.runs, w.deltas)
					written := 0
					for _, m := range s.runs {
						written += len(m.Key) + len(m.Value)
					}
					b.ReportMetric(float64(written)/float64(read), "written/read")
					b.ReportMetric(float64(again)/float64(read), "range/read")
				}
			})
		}
	}
}

// speak lets runs speak to their ends, in one partition. It returns the bytes of all events, and the
// bytes that lie between the first and the last event of each run: what a broker sends to one who reads
// runs again at their ends.
func speak(s *sim, runs, deltas int) (read, again int) {
	s.tb.Helper()
	const each, tick = 10, 200 * time.Millisecond // 50 a second
	s.open(false)
	say := func(event func(run string) string) {
		for i := range runs {
			run := fmt.Sprintf("r%d", i)
			m := s.Send("t"+run, run, event(run))
			read += len(m.Key) + len(m.Value)
		}
	}
	commit := func() {
		s.Now = s.Now.Add(tick)
		s.feed(len(s.Events))
		s.commit(true)
	}
	say(started)
	for n := range deltas {
		say(func(string) string { return text("m", fmt.Sprintf("word %d ", n)) })
		if n%each == each-1 {
			commit()
		}
	}
	say(finished)
	commit()
	return read, runs * read // all begin and end together
}
