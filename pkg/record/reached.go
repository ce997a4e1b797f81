package record

import (
	"encoding/json"
	"fmt"
)

// reached is the value of a position record.
type reached struct {
	Next   *int64 `json:"next"`
	Events string `json:"events"`
}

// EncodePosition returns the value of a position record: every event of the partition below next is
// decided, and is either an event of a run that has a record by now, or of none (a dead letter, a
// repeat). How far a run that is still open is told, only its own record says.
//
// events is the id of the topic skein.events that next is an offset of, and with it all positions on this
// partition of skein.runs; empty where it is not known. A topic that is deleted and made again has another.
//
// A position record lies behind all records of skein.runs that it speaks of.
func EncodePosition(next int64, events string) []byte {
	if events == "" {
		return fmt.Appendf(nil, `{"next":%d}`, next)
	}
	return fmt.Appendf(nil, `{"next":%d,"events":%q}`, next, events)
}

// DecodePosition reads the value of a position record. Members that it does not know are passed over; older
// ones name no topic.
func DecodePosition(b []byte) (next int64, events string, err error) {
	var r reached
	if err := json.Unmarshal(b, &r); err != nil {
		return 0, "", fmt.Errorf("decoding position record: %w", err)
	}
	if r.Next == nil || *r.Next < 0 {
		return 0, "", fmt.Errorf("decoding position record: next is missing or negative")
	}
	return *r.Next, r.Events, nil
}
