package runstore

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/cockroachdb/pebble/v2"
)

// Deleted keys stay in Pebble's files until these are rewritten, which may never happen. So the store rewrites the files that have keys of
// an erased thread, record.ErasedLocallyAfter after the erasure. A mark in purgeTable keeps the purge due over a restart.

// maxPurged is the largest number of threads that are purged one by one; for more, the whole store is rewritten.
const maxPurged = 1000

// purger purges a store in the background.
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

// schedule starts a purge of the marked threads after disk.purgeAfter, unless one is scheduled already.
func (p *purger) schedule() {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.timer != nil || p.ctx.Err() != nil {
		return
	}
	p.running.Add(1)
	p.timer = time.AfterFunc(p.store.disk.purgeAfter, p.run)
}

// close cancels a purge and waits until it ends. What it has not purged stays marked.
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
	p.timer = nil // later marks are for another purge
	p.mu.Unlock()
	if err := p.store.purge(p.ctx); err != nil && p.ctx.Err() == nil {
		_ = p.store.fail(fmt.Errorf("removing erased threads from local store: %w", err)) // it makes the process end
	}
}

// purgeKey returns the mark that deleted data of a thread must leave the files, for an erasure at an offset of
// skein.runs; with an empty thread key, all deleted data.
func purgeKey(threadKey []byte, offset int64) []byte {
	return orderKey(append(storeKey(purgeTable, threadKey), '/'), offset)
}

// purge rewrites the files with marked keys.
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
	b := s.db.NewBatch()
	for _, mark := range marks {
		err = errors.Join(err, b.Delete(mark, nil))
	}
	if err != nil {
		return errors.Join(err, b.Close())
	}
	return b.Commit(pebble.NoSync)
}

// marks returns the marks, at most maxPurged + 1.
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

// flush makes Pebble write its memtable to a file.
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
