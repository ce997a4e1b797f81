package partition

import "sync/atomic"

// What one transaction of a process holds, about: a transaction is held in memory whole. Many short runs make far more
// outputs than was read for them, and a restart or an outage has very many runs fall due, or expire, at the same moment.
const (
	// MaxOutputBytes bounds outputs. Runs that have to be written, as resolutions rest on it, count with the memory that
	// they hold.
	MaxOutputBytes = 32 << 20
	// maxCheckpointBytes bounds the memory of runs that are written because it is time, or to free memory: some 2,300
	// small ones, 900 of 10 KB.
	maxCheckpointBytes = 16 << 20
	// maxExpiryBytes bounds the memory of runs that expire or are marked for a gap, but for those of one thread: some 500
	// small ones, which come into memory for it and take 0.2 s.
	maxExpiryBytes = 4 << 20
)

// Room is what one transaction of a process may hold. All its processors share it, side by side; each may have one run
// of a kind in it however full it is. The next transaction has a new one.
type Room struct {
	partitions                     int          // of the process
	outputs, checkpoints, expiries atomic.Int64 // bytes that are left
	endless                        bool
}

// NewRoom returns the room of a process that has so many partitions.
func NewRoom(partitions int) *Room {
	r := &Room{partitions: partitions}
	r.outputs.Store(MaxOutputBytes)
	r.checkpoints.Store(maxCheckpointBytes)
	r.expiries.Store(maxExpiryBytes)
	return r
}

// Full reports whether the transaction is to be committed before anything else is processed.
func (r *Room) Full() bool { return !r.endless && (r.outputs.Load() <= 0 || r.expiries.Load() <= 0) }

// Fill has the transaction be committed before anything else is processed.
func (r *Room) Fill() { r.outputs.Store(0) }

// forExpiries returns whether there is room for one more run of a partition that expires. The first time there is, however
// full other partitions have made it: so no partition waits for ever.
func (r *Room) forExpiries() (hasRoom func() bool) {
	first := true
	return func() bool {
		was := first
		first = false
		return was || r.expiries.Load() > 0
	}
}
