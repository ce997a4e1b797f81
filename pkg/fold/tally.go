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
	// StartedAt is the time of the first one, or before it came what the caller has set; EndedAt that
	// of the latest.
	StartedAt, EndedAt time.Time
	// TimeToFirstToken is in milliseconds; nil before the first token.
	TimeToFirstToken *int64
}

var lineFeed = []byte{'\n'}

// NewTally starts one.
func NewTally() *Tally { return &Tally{hash: sha256.New()} }

// Add takes in an event that was folded; at is the time of its Kafka record.
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

// End takes in an end that is not the agent's: it is in no count and no hash. At is the time of its Kafka record.
func (t *Tally) End(ev *agui.Event, at time.Time) {
	t.EndedAt = timeOf(ev, at)
	if t.Events == 0 && t.StartedAt.IsZero() {
		t.StartedAt = t.EndedAt
	}
}

// timeOf is an event's own time, or where it has none that of its Kafka record.
func timeOf(ev *agui.Event, at time.Time) time.Time {
	if own := ev.Time(); !own.IsZero() {
		return own
	}
	return at.UTC()
}

// SHA256 is the hash over each event's bytes and a line feed, in hexadecimal digits.
func (t *Tally) SHA256() string { return hex.EncodeToString(t.hash.Sum(nil)) }

// HashState is the running hash as it goes into an open record.
func (t *Tally) HashState() ([]byte, error) {
	b, err := t.hash.(encoding.BinaryMarshaler).MarshalBinary()
	if err != nil {
		return nil, fmt.Errorf("saving hash of run: %w", err)
	}
	return b, nil
}

// RestoreHash goes on from a HashState.
func (t *Tally) RestoreHash(b []byte) error {
	if err := t.hash.(encoding.BinaryUnmarshaler).UnmarshalBinary(b); err != nil {
		return fmt.Errorf("restoring hash of run: %w", err)
	}
	return nil
}

// carriesToken reports whether an event of the type brings what a model made.
func carriesToken(t agui.Type) bool {
	switch t {
	case agui.TextMessageContent, agui.TextMessageChunk, agui.ReasoningMessageContent, agui.ReasoningMessageChunk,
		agui.ToolCallArgs, agui.ToolCallChunk:
		return true
	}
	return false
}
