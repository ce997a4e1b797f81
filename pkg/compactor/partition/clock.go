package partition

import "time"

// clockSkew is how far a producer's clock may be ahead of this one.
const clockSkew = time.Minute

// streamClock keeps a partition's stream time.
type streamClock struct {
	// stream is the latest time of a record, or wall-clock time once everything was read; zero before the first record.
	stream time.Time
	// logEnd is the log's end offset at the time logEndAt.
	logEnd   int64
	logEndAt time.Time
}

// advance notes the time of a record and reports whether stream time moves. A time in the future is ignored, as it would expire open
// runs: producers that write to Kafka directly set any time.
func (c *streamClock) advance(at, now time.Time) bool {
	if !at.After(c.stream) || at.After(now.Add(clockSkew)) {
		return false
	}
	c.stream = at
	return true
}

// noteLogEnd records the log's end offset. If everything below it is processed, no record moves stream time, so the wall clock does. The
// argument next is the next record to read.
func (c *streamClock) noteLogEnd(end, next int64, now time.Time) {
	c.logEnd, c.logEndAt = end, now
	if next >= end && c.stream.Before(now) {
		c.stream = now.Truncate(time.Millisecond)
	}
}

// recordTime returns the time at which a record counts as received. That is stream time, so that reading old events again expires no run.
func (c *streamClock) recordTime(now time.Time) time.Time {
	if c.stream.IsZero() { // all record times so far were in the future
		return now.UTC()
	}
	return c.stream.UTC()
}

// isUpToDate reports whether all below the log's end is processed, and that end was read less than ago before now. While the partition
// lags, no run is closed, as unread events may belong to it. Record times do not show the lag: one fast producer clock would mislead.
func (c *streamClock) isUpToDate(next int64, now time.Time, ago time.Duration) bool {
	return !c.logEndAt.IsZero() && next >= c.logEnd && now.Sub(c.logEndAt) < ago
}
