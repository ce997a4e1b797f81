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
}

// metadata is the text that goes with committedOffset into the group's offsets.
func (p position) metadata() string {
	return record.EncodeDecided(p.decidedOffset, p.partitions)
}

// parsePosition reads what the group holds. No metadata (an offset set by a tool, or none yet)
// means that everything below the offset is decided; metadata of an unknown form is an error, as
// guessing P would decide events twice.
func parsePosition(offset int64, metadata string, partitions int32) (position, error) {
	p := position{committedOffset: max(offset, 0), partitions: partitions}
	p.decidedOffset = p.committedOffset
	if metadata == "" {
		return p, nil
	}
	var err error
	if p.decidedOffset, p.partitions, err = record.DecodeDecided(metadata); err != nil {
		return position{}, err
	}
	if p.decidedOffset < p.committedOffset {
		return position{}, fmt.Errorf("reading offset metadata %q: the position is below the committed offset %d", metadata, offset)
	}
	if p.partitions != partitions {
		return position{}, fmt.Errorf("%w: the committed positions belong to %d partitions, the topics have %d", kafka.ErrPartitionCounts, p.partitions, partitions)
	}
	return p, nil
}
