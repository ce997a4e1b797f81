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
	// Events is the number of folded events.
	Events int64
	// StartedAt is the time of the first event, or the time that the caller has set before it. EndedAt is the time of the
	// last event.
	StartedAt, EndedAt time.Time
	// TimeToFirstToken is in milliseconds; nil before the first token.
	TimeToFirstToken *int64

	calls callTimes
}

// callTimes records when the run's tool calls began and returned results.
type callTimes struct {
	// of is the value of record.Stats.ToolCallTimes; nil before the first call.
	of agui.StringMap[[]int64]
	// bytes is the total length of the ids.
	bytes int
	// stopped means that no times are recorded, and the run record has none.
	stopped bool
}

// Limits of callTimes. Calls beyond them have no times.
const (
	maxCalls     = 1000
	maxCallBytes = 64 << 10 // total length of ids
)

var lineFeed = []byte{'\n'}

// NewTally returns an empty Tally.
func NewTally() *Tally { return &Tally{hash: sha256.New()} }

// Add adds a folded event. The argument at is the time of its Kafka record.
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

// add records the time of an event of a tool call, ms milliseconds after the run's start. If several events of a kind
// have the same call id, the first one counts.
func (c *callTimes) add(ev *agui.Event, ms int64) {
	switch ev.Type {
	case agui.ToolCallStart, agui.ToolCallChunk, agui.ToolCallResult:
	default:
		return
	}
	id, ok := ev.String(agui.FieldToolCallID)
	if !ok || c.stopped { // a chunk without an id continues a call
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

// StopCallTimes drops the times of tool calls and records no more. It is called for a run whose contents are cut.
func (t *Tally) StopCallTimes() { t.calls = callTimes{stopped: true} }

// restore sets the tally to the state in the record of an open run.
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

// restoreCallTimes restores the call times of a record. A record that counts calls but has no times was cut or is at
// its size limit. The run then records no times either, so that a record has the times of all its calls from the first
// one on, or none.
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

// End adds a terminal event that is not the agent's; it is neither counted nor hashed. The argument at is the time of
// its Kafka record.
func (t *Tally) End(ev *agui.Event, at time.Time) {
	t.EndedAt = timeOf(ev, at)
	if t.Events == 0 && t.StartedAt.IsZero() {
		t.StartedAt = t.EndedAt
	}
}

// timeOf returns an event's timestamp or, if it has none, the time of its Kafka record.
func timeOf(ev *agui.Event, at time.Time) time.Time {
	if own := ev.Time(); !own.IsZero() {
		return own
	}
	return at.UTC()
}

// SHA256 returns the hash over each event's bytes and a line feed, in hexadecimal.
func (t *Tally) SHA256() string { return hex.EncodeToString(t.hash.Sum(nil)) }

// HashState returns the state of the running hash, for a checkpoint.
func (t *Tally) HashState() ([]byte, error) {
	b, err := t.hash.(encoding.BinaryMarshaler).MarshalBinary()
	if err != nil {
		return nil, fmt.Errorf("saving hash of run: %w", err)
	}
	return b, nil
}

// carriesToken reports whether events of this type contain model output.
func carriesToken(t agui.Type) bool {
	switch t {
	case agui.TextMessageContent, agui.TextMessageChunk, agui.ReasoningMessageContent, agui.ReasoningMessageChunk,
		agui.ToolCallArgs, agui.ToolCallChunk:
		return true
	}
	return false
}
