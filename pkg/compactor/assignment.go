package compactor

import (
	"context"
	"time"

	"github.com/skeinhq/skein/pkg/compactor/partition"
)

// phase is how far the opening of a partition is.
type phase int

const (
	// phaseFetchingOffsets: assigned, or of unknown outcome; what the group has committed is not known yet.
	phaseFetchingOffsets phase = iota
	// phaseFencing: what is committed is known; a fence goes into the next transaction.
	phaseFencing
	// phaseCatchingUp: the fence is committed; the local store reads up to it.
	phaseCatchingUp
	// phaseOpen: events are read.
	phaseOpen
)

// assignment is one assignment of one partition to this session. A partition that comes back gets a
// new one, so that nothing meant for the old can reach it.
type assignment struct {
	id    int32
	since time.Time
	// ctx ends with the assignment; work on its behalf ends with it.
	ctx    context.Context
	cancel context.CancelFunc

	// Guarded by membership.mu.
	phase phase
	// refetched: this session fetches the committed offset itself, as the client's answer to the assignment is past.
	refetched bool
	// seen: the client has held the partition as its own; see membership.owned.
	seen     bool
	progress partition.Progress

	// For the main loop alone.
	fence int64
	part  *partition.Processor
}

func newAssignment(id int32, now time.Time) *assignment {
	a := &assignment{id: id, since: now, fence: -1}
	a.ctx, a.cancel = context.WithCancel(context.Background())
	return a
}

// view is an assignment as it stands at a moment.
type view struct {
	*assignment
	phase    phase
	progress partition.Progress
}
