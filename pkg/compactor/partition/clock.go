package partition

import "time"

// clockSkew is how far a producer's clock may be ahead of this one.
const clockSkew = time.Minute

// streamClock tells a partition's time.
type streamClock struct {
	// stream is the latest time of a record, or by the clock where everything was read; zero before.
	stream time.Time
	// logEnd is where the log ended at logEndAt.
	logEnd   int64
	logEndAt time.Time
}

// advance takes in the time of a record, and reports whether stream time moves. A record that says it comes from the
// future must not age what is open: producers that write to Kafka themselves set the time as they like.
func (c *streamClock) advance(at, now time.Time) bool {
	if !at.After(c.stream) || at.After(now.Add(clockSkew)) {
		return false
	}
	c.stream = at
	return true
}

// noteLogEnd takes in where the log ends by now. Once everything below is processed, up to next, no record comes that moves
// stream time, so the clock does.
func (c *streamClock) noteLogEnd(end, next int64, now time.Time) {
	c.logEnd, c.logEndAt = end, now
	if next >= end && c.stream.Before(now) {
		c.stream = now.Truncate(time.Millisecond)
	}
}

// recordTime is when a record counts as come: in stream time, so that old events which are read again are no silence.
func (c *streamClock) recordTime(now time.Time) time.Time {
	if c.stream.IsZero() { // all that came says it comes from the future
		return now.UTC()
	}
	return c.stream.UTC()
}

// isUpToDate reports whether all is processed, up to next, that the log held at most so long ago. While the partition lags, no run is
// closed: unread events may belong to it. Lag is not judged by times of records: one fast clock would mislead.
func (c *streamClock) isUpToDate(next int64, now time.Time, ago time.Duration) bool {
	return !c.logEndAt.IsZero() && next >= c.logEnd && now.Sub(c.logEndAt) < ago
}
