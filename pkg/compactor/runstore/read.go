package runstore

import (
	"errors"
	"fmt"
	"time"

	"github.com/cockroachdb/pebble/v2"

	"github.com/skeinhq/skein/pkg/fold"
)

// Reads counts reads of a store (look-ups of one key, or of several in a row), and the bytes of keys and values that
// they returned.
type Reads struct{ Calls, Bytes int }

// The kinds of reads, for the metric.
const (
	ReadThread   = "thread"   // the first reads of a thread that was not in memory
	ReadMetadata = "metadata" // a run's metadata, or what leads to it: an id, a history, a parent, a branch
	ReadRecord   = "record"   // the record of one run
)

// ReadKinds returns all kinds of reads.
func ReadKinds() []string { return []string{ReadThread, ReadMetadata, ReadRecord} }

// TakeReads returns the reads since the last call, by kind.
func (s *Store) TakeReads() map[string]Reads {
	taken := s.reads
	s.reads = map[string]Reads{}
	return taken
}

// count adds reads and their bytes. With 0 calls it adds bytes to the current read.
func (s *Store) count(kind string, calls int, bytes ...[]byte) {
	r := s.reads[kind]
	r.Calls += calls
	for _, b := range bytes {
		r.Bytes += len(b)
	}
	s.reads[kind] = r
}

// EachUnsealed calls fn for each run that is not sealed, in the order of record keys, with its metadata and the time of its record.
func (s *Store) EachUnsealed(fn func(key string, recordedAt time.Time, m *fold.Metadata)) error {
	prefix := storeKey(openTable, nil)
	return s.scan(ReadThread, prefix, func(key, value []byte) error {
		m, at, err := decodeOpen(value)
		if err == nil {
			fn(string(key[len(prefix):]), at, m)
		}
		return err
	})
}

// get calls fn for the value of a key, if it is there; the value is valid during the call only.
func (s *Store) get(kind string, key []byte, fn func(value []byte) error) error {
	defer s.disk.watch()()
	s.count(kind, 1)
	value, closer, err := s.db.Get(key)
	if errors.Is(err, pebble.ErrNotFound) {
		return nil
	}
	if err != nil {
		return s.fail(fmt.Errorf("reading local store: %w", err))
	}
	s.count(kind, 0, key, value)
	err = fn(value)
	if err := closer.Close(); err != nil {
		return s.fail(fmt.Errorf("reading local store: %w", err))
	}
	return s.checkSound(key, err)
}

// checkSound fails the store if err shows that a value which Pebble returned was never written.
func (s *Store) checkSound(key []byte, err error) error {
	if err == nil || errors.Is(err, ErrFailed) { // from a read inside this one
		return err
	}
	return s.fail(fmt.Errorf("%w: reading %q: %w", errContradiction, key, err))
}

// seek calls fn with an iterator over the keys with the prefix.
func (s *Store) seek(kind string, prefix []byte, fn func(it *pebble.Iterator) error) error {
	defer s.disk.watch()()
	s.count(kind, 1)
	it, err := s.db.NewIter(&pebble.IterOptions{LowerBound: prefix, UpperBound: after(prefix)})
	if err != nil {
		return s.fail(fmt.Errorf("reading local store: %w", err))
	}
	err = fn(it)
	if err := it.Close(); err != nil {
		return s.fail(fmt.Errorf("reading local store: %w", err))
	}
	return s.checkSound(prefix, err)
}

// scan calls fn for every key with the prefix; key and value are valid during the call only.
func (s *Store) scan(kind string, prefix []byte, fn func(key, value []byte) error) error {
	return s.seek(kind, prefix, func(it *pebble.Iterator) error {
		for ok := it.First(); ok; ok = it.Next() {
			s.count(kind, 0, it.Key(), it.Value())
			if err := fn(it.Key(), it.Value()); err != nil {
				return err
			}
		}
		return nil
	})
}
