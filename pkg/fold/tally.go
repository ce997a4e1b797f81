package fold

import (
	"crypto/sha256"
	"encoding"
	"encoding/hex"
	"fmt"
	"hash"
	"maps"
	"time"

	"github.com/skeinhq/skein/pkg/agui"
	"github.com/skeinhq/skein/pkg/record"
)

// Tally counts and hashes the folded events of a run, in order.
type Tally struct {
	hash hash.Hash
	// Events is their number.
	Events int64
	// StartedAt is the time of the first event, or what the caller has set before it came; EndedAt is that
	// of the last one.
	StartedAt, EndedAt time.Time
	// TimeToFirstToken is in milliseconds; nil before the first token.
	TimeToFirstToken *int64

	calls callTimes
}

// callTimes are when the run's tool calls began and had their results.
type callTimes struct {
	// of is what the record says (record.Stats.ToolCallTimes); nil before the first call.
	of agui.StringMap[[]int64]
	// bytes are those of the ids.
	bytes int
	// stopped: no more is noted, and the record has none.
	stopped bool
}

// The limits of what callTimes holds. A call beyond them has no times.
const (
	maxCalls     = 1000
	maxCallBytes = 64 << 10 // of ids
)

var lineFeed = []byte{'\n'}

// NewTally returns an empty Tally.
func NewTally() *Tally { return &Tally{hash: sha256.New()} }

// Add adds an event that was folded; at is the time of its Kafka record.
func (t *Tally) Add(ev *agui.Event, at time.Time) {
	t.hash.Write(ev.Raw)
	t.hash.Write(lineFeed)
	t.Events++
	at = timeOf(ev, at)
	if t.Events == 1 {
		t.StartedAt = at
	}
	if t.TimeToFirstToken == nil && carriesToken(ev.Type) {
		ms := max(0, at.Sub(t.StartedAt).Milliseconds())
		t.TimeToFirstToken = &ms
	}
	t.calls.add(ev, max(0, at.Sub(t.StartedAt).Milliseconds()))
	t.EndedAt = at
}

// add notes the times of a tool call, of which an event came ms milliseconds after the run's start. Of events and calls with one id the
// first counts.
func (c *callTimes) add(ev *agui.Event, ms int64) {
	switch ev.Type {
	case agui.ToolCallStart, agui.ToolCallChunk, agui.ToolCallResult:
	default:
		return
	}
	id, ok := ev.String(agui.FieldToolCallID)
	if !ok || c.stopped { // a chunk without an id goes on with a call
		return
	}
	switch times, isResult := c.of[id], ev.Type == agui.ToolCallResult; {
	case isResult && len(times) == 1:
		c.of[id] = []int64{times[0], max(times[0], ms)}
	case !isResult && times == nil:
		if c.of == nil {
			c.of = agui.StringMap[[]int64]{}
		}
		if len(c.of) < maxCalls && c.bytes+len(id) <= maxCallBytes {
			c.of[id], c.bytes = []int64{ms}, c.bytes+len(id)
		}
	}
}

// StopCallTimes drops the times of tool calls and notes no more, as of a run whose contents are cut.
func (t *Tally) StopCallTimes() { t.calls = callTimes{stopped: true} }

// restore goes on with what the record of an open run has.
func (t *Tally) restore(rec *record.Run) error {
	s := rec.Stats
	t.Events, t.TimeToFirstToken = rec.Raw.Events, s.TimeToFirstToken
	t.StartedAt, t.EndedAt = rec.StartedAt, rec.Open.LastAt
	t.restoreCallTimes(rec)
	if err := t.hash.(encoding.BinaryUnmarshaler).UnmarshalBinary(rec.Open.Hash); err != nil {
		return fmt.Errorf("restoring hash of run: %w", err)
	}
	return nil
}

// restoreCallTimes goes on with those of a record. A record that counts calls and has no times was cut, or is at the
// limit of its size: then the run keeps to that, so that a record has the times of its calls from the first one on or not at all.
func (t *Tally) restoreCallTimes(rec *record.Run) {
	s := rec.Stats
	if rec.Cut != nil || s.ToolCallTimes == nil && s.Events[string(agui.ToolCallStart)]+s.Events[string(agui.ToolCallChunk)] > 0 {
		t.StopCallTimes()
		return
	}
	t.calls = callTimes{of: maps.Clone(s.ToolCallTimes)}
	for id := range t.calls.of {
		t.calls.bytes += len(id)
	}
}

// End adds a terminal event that is not the agent's: it is in no count and no hash. At is the time of its Kafka record.
func (t *Tally) End(ev *agui.Event, at time.Time) {
	t.EndedAt = timeOf(ev, at)
	if t.Events == 0 && t.StartedAt.IsZero() {
		t.StartedAt = t.EndedAt
	}
}

// timeOf is an event's timestamp or, without one, the time of its Kafka record.
func timeOf(ev *agui.Event, at time.Time) time.Time {
	if own := ev.Time(); !own.IsZero() {
		return own
	}
	return at.UTC()
}

// SHA256 is the hash over each event's bytes and a line feed, in hexadecimal digits.
func (t *Tally) SHA256() string { return hex.EncodeToString(t.hash.Sum(nil)) }

// HashState is the state of the running hash, for a checkpoint.
func (t *Tally) HashState() ([]byte, error) {
	b, err := t.hash.(encoding.BinaryMarshaler).MarshalBinary()
	if err != nil {
		return nil, fmt.Errorf("saving hash of run: %w", err)
	}
	return b, nil
}

// carriesToken reports whether events of the type carry output of a model.
func carriesToken(t agui.Type) bool {
	switch t {
	case agui.TextMessageContent, agui.TextMessageChunk, agui.ReasoningMessageContent, agui.ReasoningMessageChunk,
		agui.ToolCallArgs, agui.ToolCallChunk:
		return true
	}
	return false
}
