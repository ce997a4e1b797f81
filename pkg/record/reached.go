package record

import (
	"encoding/json"
	"fmt"
)

// Reached is what a position record says.
type Reached struct {
	// Next: every event of the partition below it is decided, and is either an event of a run that has a record by now, or of
	// none (a dead letter, a repeat). How far a run that is still open is told, only its own record says.
	Next int64 `json:"next"`
	// Events is the id of the topic skein.events that Next is an offset of, and with it all positions on this
	// partition of skein.runs; empty where it is not known. A topic that is deleted and made again has another.
	Events string `json:"events,omitzero"`
	// Committed, Decided, Partitions, StreamTime and Gap are what the compactors' group has committed in the transaction of the record: its
	// offset, and the metadata (EncodeDecided, AppendStreamTime, AppendGap). Older records do not say them; Partitions is 0 then.
	Committed  int64 `json:"committed,omitzero"`
	Decided    int64 `json:"decided,omitzero"`
	Partitions int32 `json:"partitions,omitzero"`
	StreamTime int64 `json:"streamTime,omitzero"`
	Gap        Gap   `json:"gap,omitzero"`
}

// EncodePosition returns the value of a position record. It lies behind all records of skein.runs that it speaks of.
func EncodePosition(r Reached) []byte {
	b, err := json.Marshal(r)
	if err != nil {
		panic(err) // of numbers and a string
	}
	return b
}

// DecodePosition reads the value of a position record. Members that it does not know are passed over.
func DecodePosition(b []byte) (Reached, error) {
	var r struct {
		Reached
		Next *int64 `json:"next"`
	}
	if err := json.Unmarshal(b, &r); err != nil {
		return Reached{}, fmt.Errorf("decoding position record: %w", err)
	}
	if r.Next == nil || *r.Next < 0 {
		return Reached{}, fmt.Errorf("decoding position record: next is missing or negative")
	}
	if r.Committed < 0 || r.Decided < r.Committed || r.Partitions < 0 {
		return Reached{}, fmt.Errorf("decoding position record: what is committed cannot be: %d, %d, %d", r.Committed, r.Decided, r.Partitions)
	}
	r.Reached.Next = *r.Next
	return r.Reached, nil
}
