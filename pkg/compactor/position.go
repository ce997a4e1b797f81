package compactor

import (
	"fmt"

	"github.com/skeinhq/skein/pkg/kafka"
	"github.com/skeinhq/skein/pkg/record"
)

// position is what one partition has committed: the group's offset C, and in its metadata P and
// the partition count that both belong to.
type position struct {
	// committedOffset (C) is the next record that open runs need from the log.
	committedOffset int64
	// decidedOffset (P) is the first record about which nothing is decided yet. P >= C.
	decidedOffset int64
	partitions    int32
	// streamTime is the partition's as of C, in milliseconds since 1970; 0 where nobody has said it.
	streamTime int64
	// gap is where raw events were gone last: see partition.mayBeginInGap.
	gap record.Gap
	// unsaid: the group holds no metadata, so that P is a guess until skein.runs was asked (resume).
	unsaid bool
}

// metadata is the text that goes with committedOffset into the group's offsets.
func (p position) metadata() string {
	if p.unsaid { // whoever opens the partition next has to ask as well
		return ""
	}
	return record.AppendGap(record.AppendStreamTime(record.EncodeDecided(p.decidedOffset, p.partitions), p.streamTime), p.gap)
}

// parsePosition reads what the group holds. No metadata (an offset set by a tool, none yet, or none any more)
// means that everything below the offset is decided, if skein.runs does not know better; metadata of an unknown form is an error, as
// guessing P would decide events twice.
func parsePosition(offset int64, metadata string, partitions int32) (position, error) {
	p := position{committedOffset: max(offset, 0), partitions: partitions}
	p.decidedOffset = p.committedOffset
	if metadata == "" {
		p.unsaid = true
		return p, nil
	}
	var err error
	if p.decidedOffset, p.partitions, err = record.DecodeDecided(metadata); err != nil {
		return position{}, err
	}
	p.streamTime, p.gap = record.StreamTime(metadata), record.GapOf(metadata)
	if p.decidedOffset < p.committedOffset {
		return position{}, fmt.Errorf("reading offset metadata %q: the position is below the committed offset %d", metadata, offset)
	}
	if p.partitions != partitions {
		return position{}, fmt.Errorf("%w: the committed positions belong to %d partitions, the topics have %d", kafka.ErrPartitionCounts, p.partitions, partitions)
	}
	return p, nil
}

// resume returns where to go on from what the group holds. Where that says nothing, as the group was deleted or its
// offsets have expired, or less than was committed, as somebody has set them back, skein.runs says what was committed last:
// each transaction that moved it has told so there. To begin at the group's offset would decide events twice.
func (p position) resume(told record.Reached) (position, error) {
	said := !p.unsaid
	p.unsaid = false
	switch {
	case told.Partitions == 0: // it was never told
		return p, nil
	case said && told.Decided == p.decidedOffset: // they agree
		return p, nil
	case told.Decided < p.decidedOffset: // somebody has skipped what lies between, or the last process could not tell
		return p, nil
	case told.Partitions != p.partitions:
		return position{}, fmt.Errorf("%w: the positions on skein.runs belong to %d partitions, the topics have %d", kafka.ErrPartitionCounts, told.Partitions, p.partitions)
	}
	return position{committedOffset: told.Committed, decidedOffset: told.Decided, partitions: p.partitions, streamTime: told.StreamTime, gap: told.Gap}, nil
}

// skips reports whether somebody has set the group's offset higher than what was committed last: a tool does, which names no P. Of
// what lies between nothing is folded, and nobody can say which open runs had events there, or which between C and P. Metadata that
// say more than skein.runs are the compactor's own: it does not tell of every transaction (tell).
func (p position) skips(told record.Reached) bool {
	return p.unsaid && told.Partitions != 0 && told.Decided < p.decidedOffset
}
