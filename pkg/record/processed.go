package record

import (
	"fmt"
	"strings"
)

// EncodeProcessed returns the metadata that compactors commit with a group's offset: the processed offset (the first
// offset of the partition of skein.events whose event is not decided), and the partition count that it belongs to.
func EncodeProcessed(offset int64, partitions int32) string {
	return fmt.Sprintf("skein1 p=%d n=%d", offset, partitions)
}

// DecodeProcessed reads the result of EncodeProcessed. Any other form is an error: guessing would decide events twice.
func DecodeProcessed(metadata string) (offset int64, partitions int32, err error) {
	if _, err := fmt.Sscanf(metadata, "skein1 p=%d n=%d", &offset, &partitions); err != nil {
		return 0, 0, fmt.Errorf("reading offset metadata %q: %w", metadata, err)
	}
	return offset, partitions, nil
}

// AppendStreamTime adds to the metadata the latest time of any record of the partition below the group's offset, in
// milliseconds since 1970; 0 adds nothing. Idle runs expire by it. Older readers ignore it.
func AppendStreamTime(metadata string, ms int64) string {
	if ms == 0 {
		return metadata
	}
	return fmt.Sprintf("%s t=%d", metadata, ms)
}

// StreamTime reads the result of AppendStreamTime, or returns 0 if there is none.
func StreamTime(metadata string) (ms int64) {
	if _, text, ok := strings.Cut(metadata, " t="); ok {
		if _, err := fmt.Sscanf(text, "%d", &ms); err != nil {
			return 0
		}
	}
	return ms
}

// Gap is the last gap of a partition of skein.events: events that were deleted before they were folded.
type Gap struct {
	// End is the first offset after the gap; 0 if there is none.
	End int64 `json:"end"`
	// Until is the stream time, in milliseconds since 1970, up to which a run may have begun in the gap; 0 while no later
	// record has advanced it.
	Until int64 `json:"until,omitzero"`
}

// AppendGap adds a gap to the metadata; a zero Gap adds nothing. Older readers ignore it.
func AppendGap(metadata string, g Gap) string {
	if g == (Gap{}) {
		return metadata
	}
	return fmt.Sprintf("%s g=%d,%d", metadata, g.End, g.Until)
}

// GapOf reads the result of AppendGap, or returns the zero Gap.
func GapOf(metadata string) (g Gap) {
	if _, text, ok := strings.Cut(metadata, " g="); ok {
		if _, err := fmt.Sscanf(text, "%d,%d", &g.End, &g.Until); err != nil {
			return Gap{}
		}
	}
	return g
}
