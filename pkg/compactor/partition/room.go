package partition

import (
	"math"
	"sync/atomic"
)

// About what one transaction of a process may hold: it is in memory as a whole. Many short runs give far more output than
// input, and after a restart or an outage very many runs are due, or expire, at the same moment.
const (
	// MaxOutputBytes bounds outputs. Runs whose record is requested count with the memory that they hold.
	MaxOutputBytes = 32 << 20
	// maxCheckpointBytes bounds the memory of runs that are written because they are due, or to free memory: some 1,600
	// small ones, 800 of 10 KB.
	maxCheckpointBytes = 16 << 20
	// maxExpiryBytes bounds the memory of runs that expire or are marked for a gap, without those of the thread being
	// processed: some 400 small ones, which are loaded for it in 0.2 s.
	maxExpiryBytes = 4 << 20
)

// Room is what one transaction of a process may still hold. All processors share it concurrently; each may add one run of a
// kind even if it is full. The next transaction has a new one.
type Room struct {
	partitions                     int          // of the process
	outputs, checkpoints, expiries atomic.Int64 // bytes that are left
	memory                         atomic.Int64 // bytes by which runs may yet grow
	endless                        bool
}

// NewRoom returns the room of a process that has so many partitions.
func NewRoom(partitions int) *Room {
	r := &Room{partitions: partitions}
	r.outputs.Store(MaxOutputBytes)
	r.checkpoints.Store(maxCheckpointBytes)
	r.expiries.Store(maxExpiryBytes)
	r.memory.Store(math.MaxInt64)
	return r
}

// Full reports whether the transaction is to be committed before anything else is processed.
func (r *Room) Full() bool {
	return !r.endless && (r.memory.Load() <= 0 || r.outputs.Load() <= 0 || r.expiries.Load() <= 0)
}

// LimitMemory says by how many bytes open runs may grow until the transaction is to be committed. Then some can leave, or are cut.
func (r *Room) LimitMemory(bytes int) { r.memory.Store(int64(bytes)) }

// Fill makes the room full: the transaction is committed before anything else is processed.
func (r *Room) Fill() { r.outputs.Store(0) }

// forExpiries returns a function that reports whether one more run of a partition may expire. The first may in any case, so that
// no partition waits for ever behind others.
func (r *Room) forExpiries() (hasRoom func() bool) {
	first := true
	return func() bool {
		was := first
		first = false
		return was || r.expiries.Load() > 0
	}
}
