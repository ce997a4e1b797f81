package runstore

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/cockroachdb/pebble/v2"
)

// What is deleted stays in Pebble's files until they are rewritten, which may be never. So record.ErasedLocallyAfter behind an erasure,
// the store has those rewritten that had something of the thread. A mark in purgeTable says that this is due, so that a restart does
// not forget it.

const (
	// maxPurged is how many threads are purged each by itself; of more, all of the store is rewritten.
	maxPurged = 1000
	// oldLogs is how many logs Pebble keeps beside the one that it writes, to write over them one day (its MemTableStopWritesThreshold
	// and one), and some to spare.
	oldLogs = 6
)

// purger purges a store beside the goroutine that uses it.
type purger struct {
	store   *Store
	ctx     context.Context
	stop    context.CancelFunc
	running sync.WaitGroup

	mu    sync.Mutex
	timer *time.Timer // nil while nothing is due
}

func newPurger(s *Store) *purger {
	p := &purger{store: s}
	p.ctx, p.stop = context.WithCancel(context.Background())
	return p
}

// schedule has what is marked purged soon.
func (p *purger) schedule() {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.timer != nil || p.ctx.Err() != nil {
		return
	}
	p.running.Add(1)
	p.timer = time.AfterFunc(p.store.disk.purgeAfter, p.run)
}

// close ends the purge that is under way; what is left of it is marked still.
func (p *purger) close() {
	p.mu.Lock()
	p.stop()
	if p.timer != nil && p.timer.Stop() {
		p.running.Done()
	}
	p.mu.Unlock()
	p.running.Wait()
}

func (p *purger) run() {
	defer p.running.Done()
	select {
	case p.store.disk.purging <- struct{}{}: // one store of the process at a time
		defer func() { <-p.store.disk.purging }()
	case <-p.ctx.Done():
		return
	}
	p.mu.Lock()
	p.timer = nil // what is marked from now on is another purge's
	p.mu.Unlock()
	if err := p.store.purge(p.ctx); err != nil && p.ctx.Err() == nil {
		_ = p.store.fail(fmt.Errorf("removing erased threads from local store: %w", err)) // it makes the process end
	}
}

// purgeKey marks that what was deleted of a thread is to leave the files, of an erasure at an offset of skein.runs; with an empty key,
// that all is which was deleted.
func purgeKey(threadKey []byte, offset int64) []byte {
	return orderKey(append(storeKey(purgeTable, threadKey), '/'), offset)
}

// purge rewrites the files that have something of what is marked.
func (s *Store) purge(ctx context.Context) error {
	marks, err := s.marks()
	if err != nil || len(marks) == 0 {
		return err
	}
	whole := len(marks) > maxPurged
	for _, mark := range marks {
		whole = whole || len(threadOfMark(mark)) == 0
	}
	if err := s.flush(ctx); err != nil {
		return err
	}
	if whole {
		if err := s.db.Compact(ctx, []byte{0}, []byte{0xff}, false); err != nil {
			return err
		}
	} else {
		for _, mark := range marks {
			for _, table := range threadTables {
				from := listKey(table, string(threadOfMark(mark)), "")
				if err := s.db.Compact(ctx, from, after(from), false); err != nil {
					return err
				}
			}
		}
	}
	// What was written lies in logs, too. Each new one takes the place of an old one.
	for range oldLogs {
		if err := s.db.Set(purgedKey, nil, pebble.NoSync); err != nil {
			return err
		}
		if err := s.flush(ctx); err != nil {
			return err
		}
	}
	b := s.db.NewBatch()
	for _, mark := range marks {
		err = errors.Join(err, b.Delete(mark, nil))
	}
	if err != nil {
		return errors.Join(err, b.Close())
	}
	return b.Commit(pebble.NoSync)
}

// marks returns the keys that mark what is to be purged, one more than maxPurged at most.
func (s *Store) marks() (keys [][]byte, err error) {
	from := []byte{purgeTable, '/'}
	it, err := s.db.NewIter(&pebble.IterOptions{LowerBound: from, UpperBound: after(from)})
	if err != nil {
		return nil, err
	}
	for ok := it.First(); ok && len(keys) <= maxPurged; ok = it.Next() {
		keys = append(keys, append([]byte(nil), it.Key()...))
	}
	return keys, it.Close()
}

func threadOfMark(mark []byte) []byte { return mark[len("p/") : len(mark)-len("/")-8] }

// flush writes what is in memory to a file, and begins a new log.
func (s *Store) flush(ctx context.Context) error {
	done, err := s.db.AsyncFlush()
	if err != nil {
		return err
	}
	select {
	case <-done:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}
