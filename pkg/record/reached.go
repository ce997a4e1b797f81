package record

import (
	"encoding/json"
	"fmt"
)

// reached is the value of a position record.
type reached struct {
	Next *int64 `json:"next"`
}

// EncodePosition returns the value of a position record: every event of the partition below next is
// decided, and is either an event of a run that has a record by now, or of none (a dead letter, a
// repeat). How far a run that is still open is told, only its own record says.
//
// A position record lies behind all records of skein.runs that it speaks of.
func EncodePosition(next int64) []byte { return fmt.Appendf(nil, `{"next":%d}`, next) }

// DecodePosition reads the value of a position record. Members that it does not know are passed over.
func DecodePosition(b []byte) (next int64, err error) {
	var r reached
	if err := json.Unmarshal(b, &r); err != nil {
		return 0, fmt.Errorf("decoding position record: %w", err)
	}
	if r.Next == nil || *r.Next < 0 {
		return 0, fmt.Errorf("decoding position record: next is missing or negative")
	}
	return *r.Next, nil
}
