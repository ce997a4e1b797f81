package ingest

import (
	"fmt"
	"net/http"
	"sync/atomic"
	"time"
)

// paceLimits bound how long a body may take. A stream may be silent while its agent thinks, between events; an event that has
// begun must come.
type paceLimits struct {
	// first is how long the first event may not begin.
	first time.Duration
	// event is how long an event that has begun may take, beside a second for each leastRate bytes of the body that come meanwhile.
	event time.Duration
	// idle is how long nothing may come after an event. Behind it the compactor takes a run for abandoned, by default.
	idle time.Duration
}

// leastRate is how many bytes of an event, as sent, must come a second.
const leastRate = 16 << 10

// bodyPace are the limits of production.
var bodyPace = paceLimits{first: 2 * time.Minute, event: 30 * time.Second, idle: time.Hour}

// pace sets the deadlines of a body's reads.
type pace struct {
	limits paceLimits
	rc     *http.ResponseController
	opened time.Time
	until  time.Time // the deadline that is set

	// pending reports whether an event has begun and not ended; nil for never. events are those that came whole.
	pending func() bool
	events  int64

	known  int64 // events when idle began
	idle   time.Time
	inside bool // an event has begun, at since, behind the first wire bytes and so many events
	since  time.Time
	wire   int64
	behind int64

	ended atomic.Bool
}

// before is called before each read from the network, with the bytes that came so far. It returns false where no more is read.
func (p *pace) before(wire int64) bool {
	now := time.Now()
	inside := p.pending != nil && p.pending()
	if inside && (!p.inside || p.behind != p.events) {
		p.since, p.wire, p.behind = now, wire, p.events
	}
	p.inside = inside
	var until time.Time
	switch {
	case inside:
		until = p.since.Add(p.limits.event + time.Duration(wire-p.wire)*(time.Second/leastRate))
	case p.events == 0:
		until = p.opened.Add(p.limits.first)
	default:
		if p.known != p.events {
			p.known, p.idle = p.events, now
		}
		until = p.idle.Add(p.limits.idle)
	}
	p.until = until
	_ = p.rc.SetReadDeadline(until) // refused only by writers that are no connection (tests)
	// Behind the deadline, not before it: end sets one, too.
	return !p.ended.Load()
}

// after is called after each read: what waits for Kafka or a quota meanwhile costs a body of HTTP/2 nothing of its time.
func (p *pace) after() { _ = p.rc.SetReadDeadline(time.Time{}) } // refused as above

// String says what was not kept.
func (p *pace) String() string {
	switch {
	case p == nil:
		return "it took too long"
	case p.inside:
		return fmt.Sprintf("an event that has begun has %v, and a second for each %d KiB", p.limits.event, leastRate>>10)
	case p.events == 0:
		return fmt.Sprintf("no event has begun within %v", p.limits.first)
	}
	return fmt.Sprintf("no event came for %v", p.limits.idle)
}
