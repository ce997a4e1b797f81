package indexer

import (
	"context"
	"maps"
	"sync"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/skeinhq/skein/pkg/kafka"
)

// assignment knows which partitions are ours. Each time one is assigned it gets a new epoch, so that
// what was read before a partition went away and came back is not taken for current.
//
// The broker does not check who owns a partition when offsets are committed. Commits are therefore
// made while the lock is held, and a revocation waits for it: after OnRevoked has returned, and with
// it before the next owner begins, nothing of that partition is committed here.
//
// A revocation also waits for the write that is under way. The next owner may read a tombstone and delete what is older:
// rows that were written here after that would stay.
type assignment struct {
	writing chan struct{} // holds an element while a block is written and committed

	mu     sync.Mutex
	epochs map[int32]int64
	last   int64

	// joined: the group has said what is ours, which may be nothing, and has not thrown us out since.
	joined bool
	count  prometheus.Gauge // of partitions
	lag    *kafka.Lag
	stops  *kafka.VersionStops
}

func newAssignment(count prometheus.Gauge, lag *kafka.Lag, stops *kafka.VersionStops) *assignment {
	return &assignment{writing: make(chan struct{}, 1), epochs: map[int32]int64{}, count: count, lag: lag, stops: stops}
}

func (a *assignment) assigned(_ context.Context, _ *kgo.Client, topics map[string][]int32) {
	a.mu.Lock()
	defer a.mu.Unlock()
	for _, partitions := range topics {
		for _, p := range partitions {
			a.last++
			a.epochs[p] = a.last
		}
		a.lag.Opened(partitions...)
		a.stops.Remove(partitions...)
	}
	a.joined = true
	a.count.Set(float64(len(a.epochs)))
}

func (a *assignment) revoked(_ context.Context, _ *kgo.Client, topics map[string][]int32) {
	a.writing <- struct{}{}
	defer func() { <-a.writing }()
	a.gone(topics)
}

// lost is revoked for a member that the group has thrown out: the partitions are another's already.
func (a *assignment) lost(_ context.Context, _ *kgo.Client, topics map[string][]int32) {
	a.gone(topics)
	a.mu.Lock()
	defer a.mu.Unlock()
	a.joined = false
}

func (a *assignment) gone(topics map[string][]int32) {
	a.mu.Lock()
	defer a.mu.Unlock()
	for _, partitions := range topics {
		for _, p := range partitions {
			delete(a.epochs, p)
		}
		a.lag.Gone(partitions...)
		a.stops.Remove(partitions...)
	}
	a.count.Set(float64(len(a.epochs)))
}

// isJoined reports whether this member has its place in the group.
func (a *assignment) isJoined() bool {
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.joined
}

// epoch returns the epoch of a partition.
func (a *assignment) epoch(partition int32) int64 {
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.epochs[partition]
}

// len is the number of partitions that are ours.
func (a *assignment) len() int {
	a.mu.Lock()
	defer a.mu.Unlock()
	return len(a.epochs)
}

// copyEpochs returns the epochs of all partitions.
func (a *assignment) copyEpochs() map[int32]int64 {
	a.mu.Lock()
	defer a.mu.Unlock()
	return maps.Clone(a.epochs)
}

// current returns a block without what is no longer ours.
func (a *assignment) current(b *block) *block {
	a.mu.Lock()
	defer a.mu.Unlock()
	return b.kept(a.isCurrent)
}

// ifCurrent calls f where the partition is ours, under that epoch, and holds other assignments up until it returns.
func (a *assignment) ifCurrent(partition int32, epoch int64, f func()) bool {
	a.mu.Lock()
	defer a.mu.Unlock()
	if !a.isCurrent(partition, epoch) {
		return false
	}
	f()
	return true
}

// isCurrent must be called with the lock held. Epoch 0 is that of a partition that is not ours.
func (a *assignment) isCurrent(partition int32, epoch int64) bool {
	return epoch != 0 && a.epochs[partition] == epoch
}

// whileCurrent calls commit with those offsets that are still ours, and holds revocations up until
// it returns.
func (a *assignment) whileCurrent(offsets map[int32]progress, commit func(map[int32]progress) error) error {
	a.mu.Lock()
	defer a.mu.Unlock()
	ours := make(map[int32]progress, len(offsets))
	for p, at := range offsets {
		if a.isCurrent(p, at.epoch) {
			ours[p] = at
		}
	}
	if len(ours) == 0 {
		return nil
	}
	return commit(ours)
}
