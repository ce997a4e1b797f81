package fold

import (
	"crypto/sha256"
	"encoding"
	"encoding/hex"
	"fmt"
	"hash"
	"time"

	"github.com/skeinhq/skein/pkg/agui"
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
}

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
	t.EndedAt = at
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

// RestoreHash resumes from a HashState.
func (t *Tally) RestoreHash(b []byte) error {
	if err := t.hash.(encoding.BinaryUnmarshaler).UnmarshalBinary(b); err != nil {
		return fmt.Errorf("restoring hash of run: %w", err)
	}
	return nil
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
