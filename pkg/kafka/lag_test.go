package kafka_test

import (
	"testing"
	"time"

	"github.com/skeinhq/skein/pkg/kafka"
)

func TestLag_IsTheAgeOfTheOldestThatIsNotDone(t *testing.T) {
	start := time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)
	now := start
	l := kafka.NewLag(func() time.Time { return now })
	at := func(seconds float64) time.Time { return start.Add(time.Duration(seconds * float64(time.Second))) }
	step := func(what string, seconds, want float64) {
		t.Helper()
		now = at(seconds)
		if got := l.Seconds(); got != want {
			t.Errorf("%s: at %v the lag is %v, want %v", what, seconds, got, want)
		}
	}
	step("no partition", 0, 0)
	l.Opening(0)
	step("a partition that does not open", 5, 5)
	l.Opened(0, 1)
	step("nothing was read", 6, 0)

	l.Read(0, at(4))
	l.Read(0, at(6))
	l.Read(1, at(3))
	step("stuck", 7, 4)
	step("still stuck", 60, 57)
	l.Done(1)
	step("the other one, while what lies behind may not be read yet", 60, 57)
	l.Opening(2)
	l.Done(0)
	step("right behind what is done", 60.5, 57.5) // partition 1: its record is of second 3
	step("at the end", 61.5, 1.5)                 // partition 2 is opening
	l.Gone(2)
	step("nothing waits", 61.5, 0)

	l.Read(0, at(100))
	step("a record from the future", 62, 0)
	l.Read(2, at(0))
	step("a record of a partition that was taken away", 62, 0)
	l.Read(1, at(50))
	l.Only()
	step("all were taken away", 70, 0)
}

// Records that are read while others are worked on are not done when those are.
func TestLag_KeepsApartWhatIsWorkedOnAndWhatIsReadMeanwhile(t *testing.T) {
	start := time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)
	now := start.Add(10 * time.Second)
	l := kafka.NewLag(func() time.Time { return now })
	lag := func(what string, want float64) {
		t.Helper()
		if got := l.Seconds(); got != want {
			t.Errorf("%s: the lag is %v, want %v", what, got, want)
		}
	}
	read := func(seconds int) { l.Read(0, start.Add(time.Duration(seconds)*time.Second)) }
	l.Opened(0)
	read(1)
	l.Taken(0)
	read(4)
	lag("the first one is worked on", 9)
	l.Done(0)
	lag("the second one waits", 6)
	l.Done(0) // before it was said that it is worked on
	l.Taken(0)
	read(7)
	lag("the third one waits", 3)
	l.Taken(0)
	l.Opening(0)
	now = now.Add(time.Second)
	lag("what was worked on is read again", 4)
}
