package record

import (
	"encoding/json"
	"fmt"
	"strings"
)

// Progress is the value of a progress record.
type Progress struct {
	// Next is the partition's processed offset: every event below it was decided, and belongs to a run that has a record
	// or to none (a dead letter, a repeat). How far an open run was folded is in its own record.
	Next int64 `json:"next"`
	// Events is the id of the topic skein.events that Next and all positions on this partition of skein.runs refer to;
	// empty if it is unknown. A topic that is deleted and created again has another id.
	Events string `json:"events,omitzero"`
	// Committed is the offset that the compactors' group committed in the transaction of this record. The others were in
	// its metadata (Metadata): Processed is the first offset whose event is not decided; Partitions the partition count
	// of both offsets (0 if there is no record); StreamTime the latest time of any record below Committed, in
	// milliseconds since 1970, by which idle runs expire; Gap the last gap.
	Committed  int64 `json:"committed,omitzero"`
	Processed  int64 `json:"processed,omitzero"`
	Partitions int32 `json:"partitions,omitzero"`
	StreamTime int64 `json:"streamTime,omitzero"`
	Gap        Gap   `json:"gap,omitzero"`
	// Signed is one more than the first offset at which the compactor required ingest's signature; 0 if it does not.
	Signed int64 `json:"signed,omitzero"`
}

// Gap is the last gap of a partition of skein.events: events that were deleted before they were folded.
type Gap struct {
	// End is the first offset after the gap; 0 if there is none.
	End int64 `json:"end"`
	// Until is the stream time, in milliseconds since 1970, up to which a run may have begun in the gap; 0 while no later
	// record has advanced it.
	Until int64 `json:"until,omitzero"`
}

// Metadata returns the metadata of the group's offset.
func (r Progress) Metadata() string {
	text := fmt.Sprintf("skein1 p=%d n=%d", r.Processed, r.Partitions)
	if r.StreamTime != 0 {
		text += fmt.Sprintf(" t=%d", r.StreamTime)
	}
	if r.Gap != (Gap{}) {
		text += fmt.Sprintf(" g=%d,%d", r.Gap.End, r.Gap.Until)
	}
	if r.Signed != 0 {
		text += fmt.Sprintf(" s=%d", r.Signed)
	}
	return text
}

// ParseMetadata reads what Metadata returns, which is all but Next, Events and Committed. Any other form is an error:
// guessing would decide events twice.
func ParseMetadata(metadata string) (r Progress, err error) {
	_, err = fmt.Sscanf(metadata, "skein1 p=%d n=%d", &r.Processed, &r.Partitions)
	if _, text, ok := strings.Cut(metadata, " t="); ok && err == nil {
		_, err = fmt.Sscanf(text, "%d", &r.StreamTime)
	}
	if _, text, ok := strings.Cut(metadata, " g="); ok && err == nil {
		_, err = fmt.Sscanf(text, "%d,%d", &r.Gap.End, &r.Gap.Until)
	}
	if _, text, ok := strings.Cut(metadata, " s="); ok && err == nil {
		_, err = fmt.Sscanf(text, "%d", &r.Signed)
	}
	if err != nil {
		return Progress{}, fmt.Errorf("reading offset metadata %q: %w", metadata, err)
	}
	return r, nil
}

// EncodeProgress returns the value of a progress record. It follows all records of skein.runs that it covers.
func EncodeProgress(r Progress) []byte {
	b, err := json.Marshal(r)
	if err != nil {
		panic(err) // numbers and a string always encode
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
