package partition

import (
	"bytes"
	"fmt"
	"math"
	"slices"
	"testing"

	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/skeinhq/skein/pkg/compactor/partition/partitiontest"
	"github.com/skeinhq/skein/pkg/deadletter"
	"github.com/skeinhq/skein/pkg/record"
)

// checkTold holds each progress record to what it says, for every event below it: its run, where it
// has one, has a record at a lower offset; and a record that tells less than up to it shows a run that
// is open. What has no run is found in no record, ever. An input that was sent before may yet be a
// repeat, so no position waits for it, and malformed events after it are dead letters anyway.
func (s *sim) checkTold() {
	s.tb.Helper()
	type shown struct {
		at     int64
		next   int64
		status record.Status
	}
	of := map[string][]shown{} // by key, in the order of the topic
	inRun := map[int64]string{}
	for _, m := range s.runs {
		if string(m.Key) == record.ProgressKey {
			continue
		}
		if header(m, record.HeaderKind) == string(record.KindErase) || partitiontest.IsDetail(m) {
			continue
		}
		if m.Value == nil { // all that there was of it is decided
			of[string(m.Key)] = append(of[string(m.Key)], shown{m.Offset, math.MaxInt64, ""})
			continue
		}
		r, err := record.DecodeRun(m.Value)
		s.check(err)
		of[string(m.Key)] = append(of[string(m.Key)], shown{m.Offset, r.Raw.Next, r.Status})
		if len(r.Raw.Ranges) < record.MaxRanges { // else ranges may hold what is not the run's
			for _, part := range r.Raw.Ranges {
				for o := part[0]; o < part[1]; o++ {
					inRun[o] = string(m.Key)
				}
			}
		}
	}
	repeats, letters := map[string]bool{}, s.letters() // runs of which an input was sent before
	for o, key := range inRun {
		repeats[key] = repeats[key] || s.sentBefore(o)
	}
	last := int64(-1)
	for _, m := range s.runs {
		if string(m.Key) != record.ProgressKey {
			continue
		}
		reached, err := record.DecodeProgress(m.Value)
		s.check(err)
		next := reached.Next
		if next < last {
			s.tb.Errorf("position %d after %d", next, last)
		}
		last = next
		for o := range next {
			key, ok := inRun[o]
			if !ok {
				continue
			}
			var at shown
			for _, sh := range of[key] {
				if sh.at < m.Offset {
					at = sh
				}
			}
			if at.next <= o && at.status != record.StatusRunning && !s.sentBefore(o) &&
				!(repeats[key] && slices.Contains(letters, fmt.Sprintf("0:%d %s", o, deadletter.Malformed))) {
				s.tb.Errorf("position %d is told, but event %d of %s is in no record before it: %+v", next, o, key, at)
			}
		}
	}
}

// sentBefore reports whether an event is an input whose run id had the same one before.
func (s *sim) sentBefore(offset int64) bool {
	e := s.Events[offset]
	return header(e, record.HeaderKind) == string(record.KindInput) && slices.ContainsFunc(s.Events[:offset], func(m *kgo.Record) bool {
		return header(m, record.HeaderKind) == string(record.KindInput) && bytes.Equal(m.Key, e.Key) && bytes.Equal(m.Value, e.Value) &&
			header(m, record.HeaderRunID) == header(e, record.HeaderRunID)
	})
}

// What moves no run's record moves the position: readers know how far all is decided.
func TestPartition_TellsHowFarItHasDecided(t *testing.T) {
	s := newSim(t, nil)
	s.open(false)
	step := func(what string, want ...int64) {
		t.Helper()
		s.all()
		equal(t, what, partitiontest.Told(t, s.runs), want)
		if n := len(s.runs); len(want) > 0 && n > 0 && string(s.runs[n-1].Key) != record.ProgressKey {
			t.Errorf("%s: the position is not the last of its transaction", what)
		}
	}
	s.commit(true)
	equal(t, "nothing", partitiontest.Told(t, s.runs), []int64{})
	s.Turn("r", "m") // 0 to 2
	step("a run", 3)
	s.Send("t", "r", text("m", "late")) // 3
	step("a late event", 3, 4)
	s.Send("t", "r", `{"type":"RUN_ERROR","message":"again"}`) // 4
	step("a second terminal event", 3, 4, 5)
	s.Send("u", "", custom("nobody's")) // 5
	s.Send("u", "", custom("nobody's")) // 6
	step("dead letters", 3, 4, 5, 7)
	s.Send("t", "q", started("q"), seq(0)) // 7
	s.Send("t", "q", finished("q"), seq(1))
	step("another run", 3, 4, 5, 7, 9)
	s.Send("t", "q", finished("q"), seq(1)) // 9
	step("a repeat", 3, 4, 5, 7, 9, 10)
	s.commit(true)
	s.commit(true)
	equal(t, "nothing new", partitiontest.Told(t, s.runs), []int64{3, 4, 5, 7, 9, 10})
	equal(t, "the position", s.values()[record.ProgressKey], fmt.Sprintf(`{"next":10,"committed":10,"processed":10,"partitions":1,"streamTime":%d}`, s.Now.UnixMilli()))
	s.checkTold()
}

// The transaction after an open run's first record announces it, so that it holds back no position; its events hold the commit as before.
func TestPartition_AnnouncesAnOpenRunAtOnce(t *testing.T) {
	s := newSim(t, nil)
	s.Turn("r", "m")                    // 0 to 2
	s.Send("t", "r", text("m", "late")) // 3
	s.Send("t", "open", started("open"))
	s.Send("u", "", custom("nobody's")) // 5
	s.all()
	equal(t, "with the announcement", partitiontest.Told(t, s.runs), []int64{6})
	announced := s.run("open")
	equal(t, "the announcement", []any{announced.Status, announced.Raw.First, announced.Raw.Next, announced.Raw.Events, announced.Open.Placed},
		[]any{record.StatusRunning, int64(4), int64(4), int64(0), true})
	equal(t, "C", s.committed.Committed, int64(4))
	s.Send("u", "", custom("nobody's")) // 6
	s.all()
	equal(t, "it is announced once", s.run("open"), announced)
	s.Now = s.Now.Add(s.cfg.CheckpointInterval)
	s.commit(true)
	equal(t, "events of its record", s.run("open").Raw.Events, int64(1))
	s.Send("t", "open", text("n", "x")) // 7
	s.Send("u", "", custom("nobody's")) // 8
	s.all()
	equal(t, "an open run that is shown holds nothing", partitiontest.Told(t, s.runs), []int64{6, 7, 9})
	equal(t, "C", s.committed.Committed, int64(7))

	s.Now = s.Now.Add(s.cfg.IdleLimit)
	s.Send("u", "", custom("nobody's")) // 9
	s.all()
	equal(t, "status", s.run("open").Status, record.StatusAbandoned)
	equal(t, "with the record that says so", partitiontest.Told(t, s.runs), []int64{6, 7, 9, 10})
	s.Send("u", "", custom("nobody's")) // 10
	s.Send("t", "open", text("n", "y")) // 11
	s.Send("u", "", custom("nobody's")) // 12
	s.all()
	equal(t, "status of an abandoned run that goes on", s.run("open").Status, record.StatusRunning)
	equal(t, "its record shows that at once", partitiontest.Told(t, s.runs), []int64{6, 7, 9, 10, 13})
	s.checkTold()
}
