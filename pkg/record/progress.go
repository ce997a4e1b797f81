package record

import (
	"encoding/json"
	"fmt"
)

// Progress is what a progress record says.
type Progress struct {
	// Next: every event of the partition below it is decided, and is either an event of a run that has a record by now, or of
	// none (a dead letter, a repeat). How far a run that is still open is told, only its own record says.
	Next int64 `json:"next"`
	// Events is the id of the topic skein.events that Next is an offset of, and with it all positions on this
	// partition of skein.runs; empty where it is not known. A topic that is deleted and made again has another.
	Events string `json:"events,omitzero"`
	// Committed, Processed, Partitions, StreamTime and Gap are what the compactors' group has committed in the transaction of the record: its
	// offset, and the metadata (EncodeProcessed, AppendStreamTime, AppendGap). Partitions is 0 where there is no record.
	Committed  int64 `json:"committed,omitzero"`
	Processed  int64 `json:"processed,omitzero"`
	Partitions int32 `json:"partitions,omitzero"`
	StreamTime int64 `json:"streamTime,omitzero"`
	Gap        Gap   `json:"gap,omitzero"`
}

// EncodeProgress returns the value of a progress record. It lies behind all records of skein.runs that it speaks of.
func EncodeProgress(r Progress) []byte {
	b, err := json.Marshal(r)
	if err != nil {
		panic(err) // of numbers and a string
	}
	return b
}

// DecodeProgress reads the value of a progress record. Members that it does not know are passed over.
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
