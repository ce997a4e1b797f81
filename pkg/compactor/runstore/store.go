package runstore

import (
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"strconv"
	"strings"
	"sync/atomic"
	"syscall"
	"time"

	"github.com/cockroachdb/pebble/v2"
	"github.com/cockroachdb/pebble/v2/vfs"

	"github.com/skeinhq/skein/pkg/record"
)

// Store holds, for one partition, the contents of committed records of skein.runs: each run's latest record, its
// metadata, an entry for each run that is not sealed, and the offsets below which threads were erased. One goroutine
// uses it at a time.
type Store struct {
	disk     *disk
	dir      string
	db       *pebble.DB
	cache    *pebble.Cache // of a store in memory; nil otherwise
	followed Followed
	reads    map[string]Reads // since TakeReads, by kind
	opened   atomic.Bool
	purger   *purger
	// flushedAt is the argument known of the Apply that flushed last.
	flushedAt time.Time
}

// Followed describes which topics a store follows and how far it has read them.
type Followed struct {
	Version int    `json:"version"`
	TopicID string `json:"topicId"`
	// EventsID is the id of the skein.events that all offsets in the records refer to; empty until a record or a broker
	// names it.
	EventsID string `json:"eventsId,omitempty"`
	// NextOffset is the first offset of skein.runs that the store does not have.
	NextOffset int64 `json:"nextOffset"`
	// Progress is the value of the last progress record.
	Progress record.Progress `json:"progress,omitzero"`
	// WrittenAt is when the store last had everything that was committed, or was empty. Tombstones that the topic removed
	// since then cannot be read any more. An interrupted catch-up does not change it.
	WrittenAt time.Time `json:"writtenAt"`
}

const storeVersion = 12

// flushAfter is how far WrittenAt and NextOffset on disk may lie behind those of a store that is rarely written. Without it, a crash could
// leave a store that is too old and is rebuilt, since days may pass until a memtable is full.
const flushAfter = 10 * time.Minute

// Reasons for which a store is deleted and rebuilt.
const (
	RebuildTopic   = "other-topic"
	RebuildAge     = "too-old"
	RebuildRange   = "out-of-range"
	RebuildVersion = "other-version"
	RebuildDamage  = "damaged"
)

// RebuildReasons returns all of these reasons, for the metric.
func RebuildReasons() []string {
	return []string{RebuildTopic, RebuildAge, RebuildRange, RebuildVersion, RebuildDamage}
}

// damagedName is a file in a store's folder that marks the store as damaged.
const damagedName = "DAMAGED"

// OpenMemory opens a store in memory, which Close deletes.
func OpenMemory() (*Store, error) {
	cache := pebble.NewCache(1 << 20)
	s, _, err := openStore(newDisk(vfs.NewMem(), "memory", slog.New(slog.DiscardHandler)), 0, cache)
	if err != nil {
		cache.Unref()
		return nil, err
	}
	s.cache = cache
	return s, nil
}

// openStore opens or creates the store of one partition. A store that cannot be opened, or is marked as damaged, is
// deleted and created again (rebuilt is the reason): skein.runs has all of its contents. A call that the file system
// refuses is no damage.
func openStore(disk *disk, partition int32, cache *pebble.Cache) (s *Store, rebuilt string, err error) {
	defer disk.watch()()
	s = &Store{disk: disk, dir: disk.PathJoin(disk.dir, strconv.Itoa(int(partition))), reads: map[string]Reads{}}
	err = s.open(cache)
	if err != nil && !errors.Is(err, errLocked) && !isRefusal(err) {
		disk.logger.Warn("local store is damaged", "partition", partition, "error", err)
		rebuilt, err = RebuildDamage, disk.RemoveAll(s.dir)
		if err == nil {
			err = s.open(cache)
		}
	}
	if errors.Is(err, errLocked) {
		return nil, "", err
	}
	if err != nil {
		return nil, "", disk.fail(err)
	}
	s.opened.Store(true)
	s.purger = newPurger(s)
	if s.followed.Version != storeVersion {
		if s.followed.Version != 0 {
			rebuilt = RebuildVersion
		}
		if err := s.Reset("", time.Time{}); err != nil {
			return nil, "", errors.Join(err, s.Close())
		}
	}
	s.purger.schedule() // the marks that the last process left
	return s, rebuilt, nil
}

// isRefusal reports whether the file system refused a call. A file that does not exist is no refusal.
func isRefusal(err error) bool {
	var code syscall.Errno
	return errors.As(err, &code) && !errors.Is(err, fs.ErrNotExist)
}

func (s *Store) open(cache *pebble.Cache) error {
	if err := s.disk.MkdirAll(s.dir, 0o700); err != nil {
		return fmt.Errorf("making folder of local store: %w", err)
	}
	lock, err := pebble.LockDirectory(s.dir, s.disk)
	if err != nil && (!isRefusal(err) || errors.Is(err, syscall.EAGAIN)) {
		err = fmt.Errorf("%w: %w", errLocked, err)
	}
	if err != nil {
		return fmt.Errorf("opening local store: %w", err)
	}
	defer func() { _ = lock.Close() }() // an open database holds it too
	if _, err := s.disk.Stat(s.disk.PathJoin(s.dir, damagedName)); err == nil {
		return errDamaged
	}
	db, err := pebble.Open(s.dir, &pebble.Options{
		FS:   s.disk,
		Lock: lock,
		// The latest format with row blocks. Columnar blocks cost a burst of very many runs a fifth more processor time, and reads of threads as
		// much (ADR 023).
		FormatMajorVersion: pebble.FormatFlushableIngestExcises,
		// skein.runs is the log. Memtables are flushed in the order of their writes, and a batch is flushed whole, so what a crash leaves is the
		// store as it was after some batch, with the position of that batch.
		DisableWAL: true,
		// One cache for all partitions, so that memory does not grow with their number.
		Cache: cache,
		// Threads come in no order, so each table written from memory is merged with most of those below it. If few tables are merged at a time,
		// a burst of very many runs costs more in merges than in folding (BenchmarkStore_ApplyManyRuns). In return, reads search more tables;
		// filters of their keys cost writes more than they saved reads. There may be two memtables a partition.
		MemTableSize:          4 << 20,
		L0CompactionThreshold: 12,
		L0StopWritesThreshold: 36,
		Logger:                s.disk,
		EventListener: &pebble.EventListener{
			BackgroundError: func(err error) {
				if s.opened.Load() { // else opening returns it
					_ = s.fail(err)
				}
			},
			DataCorruption: func(pebble.DataCorruptionInfo) {}, // the call that met it returns an error
		},
	})
	if err != nil {
		return fmt.Errorf("opening local store: %w", err)
	}
	s.db = db
	if err := s.load(); err != nil {
		return errors.Join(fmt.Errorf("reading local store: %w", err), db.Close())
	}
	return nil
}

// load reads which topics the store follows and how far.
func (s *Store) load() error {
	s.followed = Followed{}
	b, closer, err := s.db.Get(followedKey)
	if errors.Is(err, pebble.ErrNotFound) {
		return nil
	}
	if err != nil {
		return err
	}
	err = json.Unmarshal(b, &s.followed)
	if err := closer.Close(); err != nil {
		return err
	}
	if err != nil {
		s.followed = Followed{Version: -1}
	}
	// A partition reads these keys as it opens. Damage there is found now, so that the store is rebuilt.
	prefix := storeKey(openTable, nil)
	it, err := s.db.NewIter(&pebble.IterOptions{LowerBound: prefix, UpperBound: after(prefix)})
	if err != nil {
		return err
	}
	for ok := it.First(); ok; {
		ok = it.Next()
	}
	return it.Close()
}

// fail ends the process. A damaged store is marked, so that the next start creates it again; if the mark cannot be
// written, the next start finds the damage itself.
func (s *Store) fail(err error) error {
	if pebble.IsCorruptionError(err) || errors.Is(err, errContradiction) {
		defer s.disk.watch()()
		f, cause := s.disk.FS.Create(s.disk.PathJoin(s.dir, damagedName), vfs.WriteCategoryUnspecified)
		if cause == nil {
			cause = f.Close()
		}
		first, _, _ := strings.Cut(err.Error(), "\n") // the rest is Pebble's
		if err = errors.New(first); cause == nil {
			err = fmt.Errorf("%w: %w", errDamaged, err)
		}
	}
	return s.disk.fail(err)
}

// Followed returns which topics the store follows and how far.
func (s *Store) Followed() Followed { return s.followed }

// Prepare empties the store if a catch-up from NextOffset would not lead to all that is committed: the store followed
// another topic, or is so old that tombstones may be gone.
func (s *Store) Prepare(topicID string, maxAge time.Duration, now time.Time) (rebuilt string, err error) {
	switch {
	case s.followed.TopicID == topicID && now.Sub(s.followed.WrittenAt) <= maxAge:
		return "", nil
	case s.followed.NextOffset == 0: // it is empty
	case s.followed.TopicID != topicID:
		rebuilt = RebuildTopic
	default:
		rebuilt = RebuildAge
	}
	return rebuilt, s.Reset(topicID, now)
}

// BindEvents binds the store to a skein.events by topic id. It keeps the first id and refuses any other. The caller
// passes "" if the broker has no topic ids.
func (s *Store) BindEvents(eventsID string) error {
	switch {
	case eventsID == "":
	case s.followed.EventsID == "":
		s.followed.EventsID = eventsID
	case s.followed.EventsID != eventsID:
		return ErrOtherEvents
	}
	return nil
}

// Reset empties the store and lets it follow the topic from its start.
func (s *Store) Reset(topicID string, now time.Time) error {
	b := s.db.NewBatch()
	if err := b.DeleteRange([]byte{0}, []byte{0xff}, nil); err != nil {
		return fmt.Errorf("emptying local store: %w", err)
	}
	held := s.followed.NextOffset > 0 || s.followed.Version != 0 && s.followed.Version != storeVersion
	if held { // some of it may have been erased
		if err := b.Set(purgeKey(nil, 0), nil, nil); err != nil {
			return fmt.Errorf("emptying local store: %w", err)
		}
	}
	if err := s.commit(b, Followed{Version: storeVersion, TopicID: topicID, WrittenAt: now}); err != nil {
		return fmt.Errorf("emptying local store: %w", err)
	}
	if held {
		s.purger.schedule()
	}
	return nil
}

// Apply writes committed records in the order of their offsets, and skips those that the store has, so that a catch-up
// may overlap earlier writes. The argument known is a time by which all that was committed is then in the store. It is
// zero within a catch-up while more is to come.
func (s *Store) Apply(entries []Entry, known time.Time) error {
	const each = 2 << 10 // keys, metadata and the index of its messages
	followed, erased, size := s.followed, false, each
	for _, e := range entries {
		size += each + len(e.Value)
	}
	b := s.db.NewBatchWithSize(size)
	for _, e := range entries {
		if e.Offset < followed.NextOffset {
			continue
		}
		followed.NextOffset = e.Offset + 1
		if e.Progress != nil {
			followed.Progress = *e.Progress
			followed.EventsID = cmp.Or(e.Progress.Events, followed.EventsID)
		}
		if len(e.Key) == 0 {
			continue
		}
		e, err := e.decoded()
		if err == nil {
			err = put(b, e)
		}
		if err != nil {
			return errors.Join(err, b.Close())
		}
		erased = erased || e.Erased > 0
	}
	if !known.IsZero() {
		followed.WrittenAt = known
	}
	if err := s.commit(b, followed); err != nil {
		return err
	}
	if erased {
		s.purger.schedule()
	}
	if !known.IsZero() && known.Sub(s.flushedAt) >= flushAfter { // at the end of a catch-up, too: it is not read a second time
		s.flushedAt = known
		defer s.disk.watch()()
		if _, err := s.db.AsyncFlush(); err != nil {
			return s.fail(fmt.Errorf("writing local store: %w", err))
		}
	}
	return nil
}

func (s *Store) commit(b *pebble.Batch, followed Followed) error {
	text, err := json.Marshal(followed)
	if err != nil {
		return errors.Join(err, b.Close())
	}
	if err := b.Set(followedKey, text, nil); err != nil {
		return errors.Join(err, b.Close())
	}
	defer s.disk.watch()()
	if err := b.Commit(pebble.NoSync); err != nil {
		return s.fail(fmt.Errorf("writing local store: %w", err))
	}
	s.followed = followed
	return nil
}

// Close writes everything to disk and closes the store. All other calls must have returned.
func (s *Store) Close() error {
	defer s.disk.watch()()
	s.purger.close()
	var err error
	if inMemory := s.cache != nil; !inMemory && !s.disk.hasFailed() {
		err = s.db.Flush()
	}
	err = errors.Join(err, s.db.Close())
	if s.cache != nil {
		s.cache.Unref()
	}
	if err != nil {
		return fmt.Errorf("closing local store: %w", err)
	}
	return nil
}
