package runstore

import (
	"context"
	"errors"
	"log/slog"
	"sync"

	"github.com/cockroachdb/pebble/v2"
	"github.com/cockroachdb/pebble/v2/vfs"
)

// Set holds the local stores of one process. A store is opened with its partition's first assignment and stays open, so
// that it lacks only a few records when the partition is assigned again.
type Set struct {
	disk  *disk
	cache *pebble.Cache
	slots chan struct{} // taken by catch-ups, in the order in which they ask

	mu     sync.Mutex // of the map alone
	stores map[int32]*lockedStore
}

// lockedStore is a store and its lock. A catch-up holds the lock; the first one opens the store.
type lockedStore struct {
	sync.Mutex
	store *Store
}

// MaxCatchUps is how many catch-ups of a process may read and write at the same time. Each of these holds records in memory, unpacked
// and as a batch for its store. The others, which wait for a slot, hold at most one answer of a broker each: one that came after
// slotWait.
const MaxCatchUps = 4

// cacheBytes is the size of the cache that all stores of a process share. Pebble takes memtables from it, up to two of 4 MiB for each
// partition that writes much: with less, a burst of writes leaves nothing for blocks, and each read unpacks its blocks again.
const cacheBytes = 96 << 20

// NewSet returns the stores of a process, in sub-folders of a folder. Nothing is opened yet.
func NewSet(fs vfs.FS, dir string, logger *slog.Logger) *Set {
	return &Set{
		disk: newDisk(fs, dir, logger), cache: pebble.NewCache(cacheBytes), slots: make(chan struct{}, MaxCatchUps),
		stores: map[int32]*lockedStore{},
	}
}

// Lock returns a partition's store, and opens it if it is not open; rebuilt is the reason if it was created again. A
// catch-up holds the lock until it calls unlock, as a catch-up for an earlier assignment may still be running. After
// that, only the partition's processor uses the store.
func (s *Set) Lock(partition int32) (store *Store, rebuilt string, unlock func(), err error) {
	s.mu.Lock()
	one := s.stores[partition]
	if one == nil {
		one = &lockedStore{}
		s.stores[partition] = one
	}
	s.mu.Unlock()
	one.Lock()
	if one.store == nil {
		if one.store, rebuilt, err = openStore(s.disk, partition, s.cache); err != nil {
			one.Unlock()
			return nil, "", nil, err
		}
	}
	return one.store, rebuilt, one.Unlock, nil
}

// Acquire takes a catch-up slot for one fetch; the caller calls release after it. A short catch-up thus waits for one
// fetch of each of the others, not for their ends.
func (s *Set) Acquire(ctx context.Context) (release func(), err error) {
	select {
	case s.slots <- struct{}{}:
		return func() { <-s.slots }, nil
	case <-ctx.Done():
		return nil, ctx.Err()
	}
}

// Failed is closed once a store cannot be read or written; Err has the reason. Calls of a store may never return after
// that.
func (s *Set) Failed() <-chan struct{} { return s.disk.failed }

// Err returns why the stores cannot be used any more; nil if they can.
func (s *Set) Err() error {
	if s.disk.hasFailed() {
		return s.disk.err
	}
	return nil
}

// Close closes the stores. Nothing may use them by then.
func (s *Set) Close() error {
	var errs []error
	for _, one := range s.stores {
		if one.store != nil {
			errs = append(errs, one.store.Close())
		}
	}
	s.cache.Unref()
	return errors.Join(errs...)
}
