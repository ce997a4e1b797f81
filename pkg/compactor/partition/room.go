package partition

import (
	"math"
	"sync/atomic"
)

// Bounds on one transaction of a process, all of which is in memory. Many short runs give far more output than input, and after a restart
// or an outage very many runs are due, or expire, at the same moment.
const (
	// MaxOutputBytes bounds outputs. A run whose record is requested counts with its memory.
	MaxOutputBytes = 32 << 20
	// maxCheckpointBytes bounds the memory of runs that are written because they are due, or to free memory: some 3,200 small
	// ones, 1,000 of 10 KB.
	maxCheckpointBytes = 16 << 20
	// maxExpiryBytes bounds the memory of runs that expire or are marked for a gap: some 400 small ones, which are loaded in 0.2 s.
	// Runs of the thread being processed expire in any case.
	maxExpiryBytes = 2 << 20
)

// Room limits what may still be added to one transaction of a process. All its processors use it concurrently. Each of them may add one run
// of a kind even if the room is full. The next transaction has a new Room.
type Room struct {
	partitions                     int          // of the process
	outputs, checkpoints, expiries atomic.Int64 // bytes that are left
	snapshots                      atomic.Int64 // bytes of outputs that are taken by conversations which await their snapshot
	memory                         atomic.Int64 // bytes by which runs may yet grow
	endless                        bool
}

// NewRoom returns the room of a process that has this many partitions.
func NewRoom(partitions int) *Room {
	r := &Room{partitions: partitions}
	r.outputs.Store(MaxOutputBytes)
	r.checkpoints.Store(maxCheckpointBytes)
	r.expiries.Store(maxExpiryBytes)
	r.memory.Store(math.MaxInt64)
	return r
}

// Full reports whether the transaction must be committed before anything else is processed.
func (r *Room) Full() bool {
	return !r.endless && (r.memory.Load() <= 0 || r.outputs.Load() <= 0 || r.expiries.Load() <= 0)
}

// LimitMemory sets how many bytes open runs may still take before the transaction must be committed. After that, runs are evicted or cut.
func (r *Room) LimitMemory(bytes int) { r.memory.Store(int64(bytes)) }

// awaitSnapshot takes room for a conversation that a later transaction writes whole, so that no more of them come than can be written.
func (r *Room) awaitSnapshot(bytes int) {
	r.outputs.Add(int64(-bytes))
	r.snapshots.Add(int64(bytes))
}

// forSnapshots reports whether there is room for one more snapshot: all that other outputs leave.
func (r *Room) forSnapshots() bool { return r.outputs.Load()+r.snapshots.Load() > 0 }

// Fill makes the room full.
func (r *Room) Fill() { r.outputs.Store(0) }

// forExpiries returns a function that reports whether one more run of a partition may expire. The first one always may, so that no
// partition waits for others for ever.
func (r *Room) forExpiries() (hasRoom func() bool) {
	first := true
	return func() bool {
		was := first
		first = false
		return was || r.expiries.Load() > 0
	}
}
