package compactor

import (
	"context"
	"time"

	"github.com/skeinhq/skein/pkg/compactor/partition"
)

// phase is a stage in the opening of a partition.
type phase int

const (
	// phaseFetchingOffsets: assigned, or after a transaction of unknown outcome; the committed offset is not known yet.
	phaseFetchingOffsets phase = iota
	// phaseFencing: the committed offset is known; a fence goes into the next transaction.
	phaseFencing
	// phaseCatchingUp: the fence is committed; the local store reads up to it.
	phaseCatchingUp
	// phaseOpen: events are read.
	phaseOpen
)

// assignment is one assignment of one partition to this session. A partition that is assigned again gets a new
// assignment, so nothing meant for the old one can reach it.
type assignment struct {
	id    int32
	since time.Time
	// ctx is cancelled when the assignment ends, which stops all work for the assignment.
	ctx    context.Context
	cancel context.CancelFunc

	// Guarded by membership.mu.
	phase phase
	// seen: the client has listed the partition as its own. It does so once it has fetched the committed offset. Before
	// that, SetOffsets has no effect on the partition. See membership.owned.
	seen     bool
	progress partition.Progress

	// Used by the main loop alone.
	fence int64
	part  *partition.Processor
}

func newAssignment(id int32, now time.Time) *assignment {
	a := &assignment{id: id, since: now, fence: -1}
	a.ctx, a.cancel = context.WithCancel(context.Background())
	return a
}

// view is the state of an assignment at one moment.
type view struct {
	*assignment
	phase    phase
	listed   bool // seen
	progress partition.Progress
}
