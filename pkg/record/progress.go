package record

import (
	"encoding/json"
	"fmt"
)

// Progress is the value of a progress record.
type Progress struct {
	// Next is the partition's processed offset: every event below it was decided, and belongs to a run that has a record
	// or to none (a dead letter, a repeat). How far an open run was folded is in its own record.
	Next int64 `json:"next"`
	// Events is the id of the topic skein.events that Next and all positions on this partition of skein.runs refer to;
	// empty if it is unknown. A topic that is deleted and created again has another id.
	Events string `json:"events,omitzero"`
	// Committed, Processed, Partitions, StreamTime and Gap are what the compactors' group committed in the transaction of
	// this record: its offset, and the metadata (EncodeProcessed, AppendStreamTime, AppendGap). Partitions is 0 if there
	// is no record.
	Committed  int64 `json:"committed,omitzero"`
	Processed  int64 `json:"processed,omitzero"`
	Partitions int32 `json:"partitions,omitzero"`
	StreamTime int64 `json:"streamTime,omitzero"`
	Gap        Gap   `json:"gap,omitzero"`
}

// EncodeProgress returns the value of a progress record. It follows all records of skein.runs that it covers.
func EncodeProgress(r Progress) []byte {
	b, err := json.Marshal(r)
	if err != nil {
		panic(err) // of numbers and a string
	}
	return b
}

// DecodeProgress reads the value of a progress record. It ignores members that it does not know.
func DecodeProgress(b []byte) (Progress, error) {
	var r struct {
		Progress
		Next *int64 `json:"next"`
	}
	if err := json.Unmarshal(b, &r); err != nil {
		return Progress{}, fmt.Errorf("decoding progress record: %w", err)
	}
	if r.Next == nil || *r.Next < 0 {
		return Progress{}, fmt.Errorf("decoding progress record: next is missing or negative")
	}
	if r.Committed < 0 || r.Processed < r.Committed || r.Partitions < 0 {
		return Progress{}, fmt.Errorf("decoding progress record: what is committed cannot be: %d, %d, %d", r.Committed, r.Processed, r.Partitions)
	}
	r.Progress.Next = *r.Next
	return r.Progress, nil
}
