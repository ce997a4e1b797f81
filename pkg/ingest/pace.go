package ingest

import (
	"fmt"
	"net/http"
	"sync/atomic"
	"time"
)

// paceLimits limit how long a body may take. A stream may be silent between events while its agent thinks; an event
// that has begun must arrive in time.
type paceLimits struct {
	// first is the time within which the first event must begin.
	first time.Duration
	// event is the time limit of an event that has begun. Each leastRate bytes of the body that arrive meanwhile add a
	// second.
	event time.Duration
	// idle is the longest pause after an event. By default, the compactor abandons a run after the same time.
	idle time.Duration
}

// leastRate is the slowest accepted rate of an event, in bytes per second as sent (compressed or not).
const leastRate = 16 << 10

// bodyPace are the production limits.
var bodyPace = paceLimits{first: 2 * time.Minute, event: 30 * time.Second, idle: time.Hour}

// pace sets the deadlines of a body's reads.
type pace struct {
	limits paceLimits
	rc     *http.ResponseController
	opened time.Time
	until  time.Time // the current deadline

	// pending reports whether an event has begun and not ended; nil means never. events counts complete events.
	pending func() bool
	events  int64

	known        int64 // the value of events when idle was set
	idle         time.Time
	inside       bool // an event began at the time since, after wire bytes and eventsBefore events
	since        time.Time
	wire         int64
	eventsBefore int64

	ended atomic.Bool
}

// before sets the deadline before each read from the network. wire is the number of bytes read so far. It returns false
// if no more bytes may be read.
func (p *pace) before(wire int64) bool {
	now := time.Now()
	inside := p.pending != nil && p.pending()
	if inside && (!p.inside || p.eventsBefore != p.events) {
		p.since, p.wire, p.eventsBefore = now, wire, p.events
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
	_ = p.rc.SetReadDeadline(until) // fails only for the response writers of tests
	// Load ended after setting the deadline, because body.end sets ended before its own deadline.
	return !p.ended.Load()
}

// after removes the deadline after each read. Otherwise, the deadline of an HTTP/2 body could expire while the handler
// waits for Kafka or a quota.
func (p *pace) after() { _ = p.rc.SetReadDeadline(time.Time{}) } // fails only as above

// String describes the limit that was exceeded.
func (p *pace) String() string {
	switch {
	case p.inside:
		return fmt.Sprintf("an event that has begun has %v, and a second for each %d KiB", p.limits.event, leastRate>>10)
	case p.events == 0:
		return fmt.Sprintf("no event has begun within %v", p.limits.first)
	}
	return fmt.Sprintf("no event came for %v", p.limits.idle)
}
