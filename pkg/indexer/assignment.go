package indexer

import (
	"context"
	"maps"
	"sync"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/skeinhq/skein/pkg/kafka"
)

// assignment has the partitions that are assigned to this member. Each assignment of a partition has a new epoch, so that records read
// before a revocation do not count as current after the partition has come back.
//
// On a commit, the broker does not check who owns the partition. So commits hold the lock, and revocations wait for the lock: after
// OnRevoked has returned, and so before the next owner begins, this member commits no offset of the partition.
//
// A revocation also waits for a running write. Otherwise the next owner could read a tombstone and delete older rows before this
// member writes such rows.
type assignment struct {
	writing chan struct{} // has an element while a block is written and committed

	mu     sync.Mutex
	epochs map[int32]int64
	last   int64

	// joined means that this member has an assignment, which may be empty, and was not removed from the group since.
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

// lost replaces revoked for a member that was removed from the group. It waits for no write: the partitions may have another owner already.
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

// isJoined reports whether this member has an assignment.
func (a *assignment) isJoined() bool {
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.joined
}

// epoch returns the epoch of a partition's current assignment (not Kafka's leader epoch); 0 if it is not assigned.
func (a *assignment) epoch(partition int32) int64 {
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.epochs[partition]
}

// len returns the number of assigned partitions.
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

// current returns the block without the entries of partitions that were revoked after they were read.
func (a *assignment) current(b *block) *block {
	a.mu.Lock()
	defer a.mu.Unlock()
	return b.kept(a.isCurrent)
}

// ifCurrent calls f if the partition is assigned under that epoch, and reports whether it is. Rebalances wait until f returns.
func (a *assignment) ifCurrent(partition int32, epoch int64, f func()) bool {
	a.mu.Lock()
	defer a.mu.Unlock()
	if !a.isCurrent(partition, epoch) {
		return false
	}
	f()
	return true
}

// isCurrent reports whether a partition is assigned under an epoch; 0 means none. The caller must hold the lock.
func (a *assignment) isCurrent(partition int32, epoch int64) bool {
	return epoch != 0 && a.epochs[partition] == epoch
}

// whileCurrent calls commit with the offsets of partitions that are still assigned. Revocations wait until it returns.
func (a *assignment) whileCurrent(offsets map[int32]progress, commit func(map[int32]progress) error) error {
	a.mu.Lock()
	defer a.mu.Unlock()
	ours := maps.Clone(offsets)
	maps.DeleteFunc(ours, func(p int32, at progress) bool { return !a.isCurrent(p, at.epoch) })
	if len(ours) == 0 {
		return nil
	}
	return commit(ours)
}
