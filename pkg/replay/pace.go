package replay

import (
	"context"
	"fmt"
	"math"
	"strconv"
	"time"
)

// Pace is the speed of a replay as a factor: 1 keeps the recorded pauses between events, 2 halves them, 0 leaves them out.
type Pace float64

// ParsePace reads max, recorded or a factor above zero.
func ParsePace(text string) (Pace, error) {
	switch text {
	case "max":
		return 0, nil
	case "recorded":
		return 1, nil
	}
	f, err := strconv.ParseFloat(text, 64)
	if err != nil || !(f > 0) || math.IsInf(f, 0) {
		return 0, fmt.Errorf("reading pace %q: want max, recorded or a factor above zero such as 2 or 0.5", text)
	}
	return Pace(f), nil
}

// Pause returns the pause between two events. The argument later is how much later the second one was recorded.
func (p Pace) Pause(later time.Duration) time.Duration {
	if p == 0 || later <= 0 {
		return 0
	}
	return time.Duration(min(float64(later)/float64(p), math.MaxInt64/2))
}

// clock keeps the recorded pauses between events, divided by a factor. It measures from the first event, so it makes up
// for delays.
type clock struct {
	pace         Pace
	begun, first time.Time
}

// wait waits until an event is due. The argument at is the event's recorded time.
func (c *clock) wait(ctx context.Context, at time.Time) error {
	if c.pace == 0 {
		return ctx.Err()
	}
	if c.begun.IsZero() {
		c.begun, c.first = time.Now(), at
	}
	due := time.NewTimer(c.pace.Pause(at.Sub(c.first)) - time.Since(c.begun))
	defer due.Stop()
	select {
	case <-due.C:
		return ctx.Err()
	case <-ctx.Done():
		return ctx.Err()
	}
}
