package compactor

import (
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"strconv"
	"sync"
	"time"

	"github.com/cockroachdb/pebble/v2"
	"github.com/cockroachdb/pebble/v2/vfs"

	"github.com/skeinhq/skein/pkg/record"
)

// localStore holds, for one partition, what committed records of skein.runs say: each run's latest
// record, its head, and a mark on those that have not ended; and up to where threads were erased. It is
// written after the commit, never before; so a crash leaves it behind skein.runs, never ahead of it, and
// a catch-up completes it.
//
// Keys: "h/" + record key: the head; "r/" + record key: the record, after its offset; "o/" + record
// key: the head once more, of runs that are not sealed; "e/" + thread key: the
// offset below which the thread is erased; and "meta". Record keys have their parts
// escaped, so a thread's keys are exactly those that begin with its key and "/".
type localStore struct {
	fs     vfs.FS
	dir    string
	db     *pebble.DB
	logger *slog.Logger
	meta   storeMeta
	// catching is held by a catch-up; all other use is the actor's, and never at the same time.
	catching sync.Mutex
}

// storeMeta says which topic the store follows and how far.
type storeMeta struct {
	Version int    `json:"version"`
	TopicID string `json:"topicId"`
	// NextOffset is the first record of skein.runs that the store does not know.
	NextOffset int64 `json:"nextOffset"`
	// WrittenAt is when the store last knew all that was committed. Tombstones that were
	// removed from the topic after that cannot be learned any more.
	WrittenAt time.Time `json:"writtenAt"`
}

const storeVersion = 1

// The reasons for which a local store is thrown away and rebuilt.
const (
	rebuildTopic   = "other-topic"
	rebuildAge     = "too-old"
	rebuildRange   = "out-of-range"
	rebuildVersion = "other-version"
	rebuildDamage  = "damaged"
)

func rebuildReasons() []string {
	return []string{rebuildTopic, rebuildAge, rebuildRange, rebuildVersion, rebuildDamage}
}

var metaKey = []byte("meta")

// openStore opens or makes the store of one partition. A store that Pebble cannot read is removed
// and made anew (rebuilt says why): it holds nothing that skein.runs does not.
func openStore(fs vfs.FS, dir string, partition int32, cache *pebble.Cache, logger *slog.Logger) (s *localStore, rebuilt string, err error) {
	path := fs.PathJoin(dir, strconv.Itoa(int(partition)))
	if err := fs.MkdirAll(path, 0o755); err != nil {
		return nil, "", fmt.Errorf("making folder of local store: %w", err)
	}
	s = &localStore{fs: fs, dir: path, logger: logger}
	err = s.open(cache)
	if err != nil && pebble.IsCorruptionError(err) {
		if err := fs.RemoveAll(path); err != nil {
			return nil, "", fmt.Errorf("removing damaged local store: %w", err)
		}
		rebuilt, err = rebuildDamage, s.open(cache)
	}
	if err != nil {
		return nil, "", err
	}
	if s.meta.Version != storeVersion {
		if s.meta.Version != 0 {
			rebuilt = rebuildVersion
		}
		if err := s.reset(""); err != nil {
			return nil, "", errors.Join(err, s.close())
		}
	}
	return s, rebuilt, nil
}

func (s *localStore) open(cache *pebble.Cache) error {
	db, err := pebble.Open(s.dir, &pebble.Options{
		FS: s.fs,
		// One cache for all partitions, so that memory does not grow with their number.
		Cache: cache,
		// Records of ended runs are written once and read rarely: a small memtable suffices.
		MemTableSize: 4 << 20,
		Logger:       pebbleLogger{s.logger},
	})
	if err != nil {
		return fmt.Errorf("opening local store: %w", err)
	}
	s.db = db
	s.meta = storeMeta{}
	b, closer, err := db.Get(metaKey)
	switch {
	case errors.Is(err, pebble.ErrNotFound):
		return nil
	case err != nil:
		return errors.Join(fmt.Errorf("reading local store: %w", err), db.Close())
	}
	err = json.Unmarshal(b, &s.meta)
	if err := closer.Close(); err != nil {
		return errors.Join(fmt.Errorf("reading local store: %w", err), db.Close())
	}
	if err != nil {
		s.meta = storeMeta{Version: -1}
	}
	return nil
}

// prepare makes sure that a catch-up from NextOffset leads to the truth, and empties the store
// where it would not: it followed another topic, or it is so old that tombstones may be gone.
func (s *localStore) prepare(topicID string, maxAge time.Duration, now time.Time) (rebuilt string, err error) {
	switch {
	case s.meta.TopicID == topicID && (s.meta.NextOffset == 0 || now.Sub(s.meta.WrittenAt) <= maxAge):
		return "", nil
	case s.meta.TopicID == "":
	case s.meta.TopicID != topicID:
		rebuilt = rebuildTopic
	default:
		rebuilt = rebuildAge
	}
	return rebuilt, s.reset(topicID)
}

// reset empties the store and lets it follow the topic from its start.
func (s *localStore) reset(topicID string) error {
	b := s.db.NewBatch()
	if err := b.DeleteRange([]byte{0}, []byte{0xff}, nil); err != nil {
		return fmt.Errorf("emptying local store: %w", err)
	}
	meta := storeMeta{Version: storeVersion, TopicID: topicID}
	if err := s.commit(b, meta); err != nil {
		return fmt.Errorf("emptying local store: %w", err)
	}
	return nil
}

// entry is one committed record of skein.runs. Value is nil for a tombstone; a fence or a
// position has no key.
type entry struct {
	key   []byte
	value []byte
	head  *head // taken from the value where nil
	// erased is set for an erasure record, whose key is a thread's: its events below are erased.
	erased int64
	offset int64
}

// apply writes committed records in the order of their offsets. What the store already knows is
// passed over, so that a catch-up may overlap what was written before.
func (s *localStore) apply(entries []entry, now time.Time) error {
	meta := s.meta
	b := s.db.NewBatch()
	for _, e := range entries {
		if e.offset < meta.NextOffset {
			continue
		}
		meta.NextOffset = e.offset + 1
		if len(e.key) == 0 {
			continue
		}
		if err := put(b, e); err != nil {
			return errors.Join(err, b.Close())
		}
	}
	meta.WrittenAt = now
	return s.commit(b, meta)
}

func put(b *pebble.Batch, e entry) error {
	if e.erased > 0 {
		return b.Set(storeKey('e', e.key), binary.BigEndian.AppendUint64(nil, uint64(e.erased)), nil)
	}
	headKey, recordKey, openKey := storeKey('h', e.key), storeKey('r', e.key), storeKey('o', e.key)
	if e.value == nil {
		return errors.Join(b.Delete(headKey, nil), b.Delete(recordKey, nil), b.Delete(openKey, nil))
	}
	h := e.head
	if h == nil {
		r, err := record.DecodeRun(e.value)
		if err != nil {
			return fmt.Errorf("reading own run record at offset %d: %w", e.offset, err)
		}
		if h, err = headOf(r); err != nil {
			return fmt.Errorf("reading own run record at offset %d: %w", e.offset, err)
		}
	}
	text, err := h.encode()
	if err != nil {
		return err
	}
	value := append(binary.BigEndian.AppendUint64(nil, uint64(e.offset)), e.value...)
	err = errors.Join(b.Set(headKey, text, nil), b.Set(recordKey, value, nil))
	if h.Sealed {
		return errors.Join(err, b.Delete(openKey, nil))
	}
	return errors.Join(err, b.Set(openKey, text, nil))
}

func (s *localStore) commit(b *pebble.Batch, meta storeMeta) error {
	text, err := json.Marshal(meta)
	if err != nil {
		return errors.Join(err, b.Close())
	}
	if err := b.Set(metaKey, text, nil); err != nil {
		return errors.Join(err, b.Close())
	}
	// No sync: what a machine's crash takes from the end of the log is read again from skein.runs.
	if err := b.Commit(pebble.NoSync); err != nil {
		return fmt.Errorf("writing local store: %w", err)
	}
	s.meta = meta
	return nil
}

// heads returns the heads of a thread's runs, in no order of meaning.
func (s *localStore) heads(threadKey string) ([]*head, error) {
	prefix := storeKey('h', []byte(threadKey+"/"))
	var out []*head
	err := s.scan(prefix, func(_, value []byte) error {
		h, err := decodeHead(value)
		out = append(out, h)
		return err
	})
	return out, err
}

// erasedBelow returns the offset below which the events of a thread are erased; 0 where none are.
func (s *localStore) erasedBelow(threadKey string) (int64, error) {
	b, closer, err := s.db.Get(storeKey('e', []byte(threadKey)))
	if errors.Is(err, pebble.ErrNotFound) {
		return 0, nil
	}
	if err != nil {
		return 0, fmt.Errorf("reading local store: %w", err)
	}
	below := int64(binary.BigEndian.Uint64(b))
	if err := closer.Close(); err != nil {
		return 0, fmt.Errorf("reading local store: %w", err)
	}
	return below, nil
}

// openRuns returns the heads of all runs that are not sealed, by record key.
func (s *localStore) openRuns() (map[string]*head, error) {
	prefix := storeKey('o', nil)
	out := map[string]*head{}
	err := s.scan(prefix, func(key, value []byte) error {
		h, err := decodeHead(value)
		out[string(key[len(prefix):])] = h
		return err
	})
	return out, err
}

// run returns the latest committed record under a key and its size, or nil.
func (s *localStore) run(key string) (*record.Run, int, error) {
	b, closer, err := s.db.Get(storeKey('r', []byte(key)))
	if errors.Is(err, pebble.ErrNotFound) {
		return nil, 0, nil
	}
	if err != nil {
		return nil, 0, fmt.Errorf("reading local store: %w", err)
	}
	size := len(b) - 8
	r, err := record.DecodeRun(b[8:])
	if err != nil {
		err = fmt.Errorf("reading local store: %w", err)
	}
	return r, size, errors.Join(err, closer.Close())
}

// scan calls fn for every key with the prefix; key and value are valid during the call only.
func (s *localStore) scan(prefix []byte, fn func(key, value []byte) error) error {
	end := append([]byte(nil), prefix...)
	end[len(end)-1]++
	it, err := s.db.NewIter(&pebble.IterOptions{LowerBound: prefix, UpperBound: end})
	if err != nil {
		return fmt.Errorf("reading local store: %w", err)
	}
	for ok := it.First(); ok && err == nil; ok = it.Next() {
		err = fn(it.Key(), it.Value())
	}
	if err := errors.Join(err, it.Close()); err != nil {
		return fmt.Errorf("reading local store: %w", err)
	}
	return nil
}

func (s *localStore) close() error {
	if err := s.db.Close(); err != nil {
		return fmt.Errorf("closing local store: %w", err)
	}
	return nil
}

func storeKey(table byte, key []byte) []byte {
	return append([]byte{table, '/'}, key...)
}

// pebbleLogger passes on what Pebble holds worth telling. Its messages name files and sizes, never data.
type pebbleLogger struct{ logger *slog.Logger }

func (l pebbleLogger) Infof(string, ...any) {}
func (l pebbleLogger) Errorf(format string, args ...any) {
	l.logger.Error("local store reported an error", "error", fmt.Sprintf(format, args...))
}

// Fatalf must not return: Pebble calls it where its files can no longer be trusted.
func (l pebbleLogger) Fatalf(format string, args ...any) {
	panic("local store: " + fmt.Sprintf(format, args...))
}
