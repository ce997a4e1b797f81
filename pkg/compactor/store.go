package compactor

import (
	"bytes"
	"cmp"
	"crypto/sha256"
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"time"

	"github.com/cockroachdb/pebble/v2"
	"github.com/cockroachdb/pebble/v2/vfs"

	"github.com/skeinhq/skein/pkg/agui"
	"github.com/skeinhq/skein/pkg/lineage"
	"github.com/skeinhq/skein/pkg/record"
)

// localStore holds, for one partition, what committed records of skein.runs say: each run's latest
// record, its head, and a mark on those that have not ended; and up to where threads were erased. It is
// written after the commit, never before; so a crash leaves it behind skein.runs, never ahead of it, and
// a catch-up completes it.
//
// Keys: "h/" + record key + "/": the head; "r/" + record key: the record, after its offset; "o/" + record
// key: the head once more, of runs that are not sealed, after the time of the record; "e/" + thread key: the
// offset below which the thread is erased; and "meta". Record keys have their parts
// escaped, so a thread's keys are exactly those that begin with its key and "/".
//
// Of sealed runs, which do not change any more, further keys lead to the run's id, so that a thread of any
// size is asked with a few short reads. All begin with the thread's key and "/", and end with a number of
// eight bytes by which they are in order:
//
//	"h/" … agent's id "/" start: of a run that is kept under another id than the agent's
//	"k/" … history key, start:   by its history
//	"l/" … end:                  by its end
//	"c/" … parent "/" start:     by its parent
//	"b/" … branch "/" depth:     by its branch (depth alone counts)
//
// The same way, of runs that are not sealed, too:
//
//	"m/" … message sum, start:   by its own messages; an earlier record of the run may have had the message
type localStore struct {
	disk   *disk
	dir    string
	db     *pebble.DB
	meta   storeMeta
	reads  map[string]reads // since takeReads, by what for
	opened atomic.Bool
	// catching is held by a catch-up; all other use is the actor's, and never at the same time.
	catching sync.Mutex
}

// storeMeta says which topic the store follows and how far.
type storeMeta struct {
	Version int    `json:"version"`
	TopicID string `json:"topicId"`
	// EventsID is the skein.events that all offsets in the records are of; empty where nobody has said so yet.
	EventsID string `json:"eventsId,omitempty"`
	// NextOffset is the first record of skein.runs that the store does not know.
	NextOffset int64 `json:"nextOffset"`
	// Reached is what the last position record says.
	Reached record.Reached `json:"reached,omitzero"`
	// WrittenAt is when the store last knew all that was committed, or was empty. Tombstones that were
	// removed from the topic after that cannot be learned any more. A catch-up that was cut short leaves it as it was.
	WrittenAt time.Time `json:"writtenAt"`
}

const storeVersion = 6

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

// damagedName is a file in a store's folder which says that the store is damaged.
const damagedName = "DAMAGED"

// openStore opens or makes the store of one partition. A store that cannot be opened, or is marked as damaged, is removed
// and made anew (rebuilt says why): it holds nothing that skein.runs does not. What the file system refuses is no damage.
func openStore(disk *disk, partition int32, cache *pebble.Cache) (s *localStore, rebuilt string, err error) {
	defer disk.watch()()
	s = &localStore{disk: disk, dir: disk.PathJoin(disk.dir, strconv.Itoa(int(partition))), reads: map[string]reads{}}
	err = s.open(cache)
	if err != nil && !errors.Is(err, errLocked) && !refused(err) {
		disk.logger.Warn("local store is damaged", "partition", partition, "error", err)
		rebuilt, err = rebuildDamage, disk.RemoveAll(s.dir)
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
	if s.meta.Version != storeVersion {
		if s.meta.Version != 0 {
			rebuilt = rebuildVersion
		}
		if err := s.reset("", time.Time{}); err != nil {
			return nil, "", errors.Join(err, s.close())
		}
	}
	return s, rebuilt, nil
}

// errLocked says that a store is open already, as a rule in another process.
var errLocked = errors.New("it is in use")

// refused says that the file system refused a call; that a file is not there is no refusal.
func refused(err error) bool {
	var code syscall.Errno
	return errors.As(err, &code) && !errors.Is(err, fs.ErrNotExist)
}

func (s *localStore) open(cache *pebble.Cache) error {
	if err := s.disk.MkdirAll(s.dir, 0o755); err != nil {
		return fmt.Errorf("making folder of local store: %w", err)
	}
	lock, err := pebble.LockDirectory(s.dir, s.disk)
	if err != nil && (!refused(err) || errors.Is(err, syscall.EAGAIN)) {
		err = fmt.Errorf("%w: %w", errLocked, err)
	}
	if err != nil {
		return fmt.Errorf("opening local store: %w", err)
	}
	defer func() { _ = lock.Close() }() // what is open holds it too
	if _, err := s.disk.Stat(s.disk.PathJoin(s.dir, damagedName)); err == nil {
		return errDamaged
	}
	db, err := pebble.Open(s.dir, &pebble.Options{
		FS:   s.disk,
		Lock: lock,
		// One cache for all partitions, so that memory does not grow with their number.
		Cache: cache,
		// Records of ended runs are written once and read rarely: a small memtable suffices.
		MemTableSize: 4 << 20,
		Logger:       s.disk,
		EventListener: &pebble.EventListener{
			BackgroundError: func(err error) {
				if s.opened.Load() { // else opening tells
					_ = s.fail(err)
				}
			},
			DataCorruption: func(pebble.DataCorruptionInfo) {}, // whoever met it gets an error
		},
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

// fail lets the process end. A store that is damaged is marked, so that the next start makes it anew; where the mark
// cannot be written it is met again.
func (s *localStore) fail(err error) error {
	if pebble.IsCorruptionError(err) || errors.Is(err, errContradiction) {
		defer s.disk.watch()()
		f, cause := s.disk.FS.Create(s.disk.PathJoin(s.dir, damagedName), vfs.WriteCategoryUnspecified)
		if cause == nil {
			cause = f.Close()
		}
		said, _, _ := strings.Cut(err.Error(), "\n") // what follows is Pebble's
		if err = errors.New(said); cause == nil {
			err = fmt.Errorf("%w: %w", errDamaged, err)
		}
	}
	return s.disk.fail(err)
}

// prepare makes sure that a catch-up from NextOffset leads to the truth, and empties the store
// where it would not: it followed another topic, or it is so old that tombstones may be gone.
func (s *localStore) prepare(topicID string, maxAge time.Duration, now time.Time) (rebuilt string, err error) {
	switch {
	case s.meta.TopicID == topicID && now.Sub(s.meta.WrittenAt) <= maxAge:
		return "", nil
	case s.meta.NextOffset == 0: // it is empty as it is
	case s.meta.TopicID != topicID:
		rebuilt = rebuildTopic
	default:
		rebuilt = rebuildAge
	}
	return rebuilt, s.reset(topicID, now)
}

// follow ties the store to a skein.events: the first that it meets is the one that its records are of, and
// another one of that name is refused. A broker that knows no ids says nothing ("").
func (s *localStore) follow(eventsID string) error {
	switch {
	case eventsID == "":
	case s.meta.EventsID == "":
		s.meta.EventsID = eventsID
	case s.meta.EventsID != eventsID:
		return errOtherEvents
	}
	return nil
}

// reset empties the store and lets it follow the topic from its start.
func (s *localStore) reset(topicID string, now time.Time) error {
	b := s.db.NewBatch()
	if err := b.DeleteRange([]byte{0}, []byte{0xff}, nil); err != nil {
		return fmt.Errorf("emptying local store: %w", err)
	}
	meta := storeMeta{Version: storeVersion, TopicID: topicID, WrittenAt: now}
	if err := s.commit(b, meta); err != nil {
		return fmt.Errorf("emptying local store: %w", err)
	}
	return nil
}

// entry is one committed record of skein.runs. Value is nil for a tombstone; a fence or a
// position has no key.
type entry struct {
	key      []byte
	value    []byte
	head     *head // taken from the value where nil, as are its messages
	messages []messageSum
	// erased is set for an erasure record, whose key is a thread's: its events below are erased.
	erased int64
	// reached is what a position record says.
	reached *record.Reached
	offset  int64
	at      time.Time // of the record
}

// apply writes committed records in the order of their offsets. What the store already knows is
// passed over, so that a catch-up may overlap what was written before. With them the store knows all that
// was committed by the time known; in the middle of a catch-up, where more is to come, that is zero.
func (s *localStore) apply(entries []entry, known time.Time) error {
	meta := s.meta
	b := s.db.NewBatch()
	for _, e := range entries {
		if e.offset < meta.NextOffset {
			continue
		}
		meta.NextOffset = e.offset + 1
		if e.reached != nil {
			meta.Reached = *e.reached
			meta.EventsID = cmp.Or(e.reached.Events, meta.EventsID)
		}
		if len(e.key) == 0 {
			continue
		}
		if err := put(b, e); err != nil {
			return errors.Join(err, b.Close())
		}
	}
	if !known.IsZero() {
		meta.WrittenAt = known
	}
	return s.commit(b, meta)
}

// The tables of the store that are asked by more than a key.
const (
	openTable    = 'o'
	headTable    = 'h'
	recordTable  = 'r'
	historyTable = 'k'
	endTable     = 'l'
	childTable   = 'c'
	tipTable     = 'b'
	messageTable = 'm'
)

func put(b *pebble.Batch, e entry) error {
	if e.erased > 0 {
		return erased(b, e)
	}
	headKey, recordKey, openKey := headKey(e.key), storeKey(recordTable, e.key), storeKey(openTable, e.key)
	if e.value == nil { // an erasure follows, which takes the rest
		return errors.Join(b.Delete(headKey, nil), b.Delete(recordKey, nil), b.Delete(openKey, nil))
	}
	h, messages := e.head, e.messages
	if h == nil {
		r, err := record.DecodeRun(e.value)
		if err != nil {
			return fmt.Errorf("reading own run record at offset %d: %w", e.offset, err)
		}
		if h, err = headOf(r); err != nil {
			return fmt.Errorf("reading own run record at offset %d: %w", e.offset, err)
		}
		messages = messageSums(r.Messages)
	}
	text, err := h.encode()
	if err != nil {
		return err
	}
	value := append(binary.BigEndian.AppendUint64(nil, uint64(e.offset)), e.value...)
	err = errors.Join(b.Set(headKey, text, nil), b.Set(recordKey, value, nil), indexMessages(b, e.key, h, messages))
	if !h.Sealed {
		return errors.Join(err, b.Set(openKey, append(binary.BigEndian.AppendUint64(nil, uint64(e.at.UnixMilli())), text...), nil))
	}
	return errors.Join(err, b.Delete(openKey, nil), index(b, e.key, h))
}

// index writes the keys that lead to a sealed run.
func index(b *pebble.Batch, key []byte, h *head) error {
	thread := string(key[:bytes.LastIndexByte(key, '/')])
	set := func(table byte, name string, order int64) error {
		return b.Set(orderKey(listKey(table, thread, name), order), []byte(h.ID), nil)
	}
	errs := []error{set(endTable, "", h.End), set(tipTable, partOf(h.Branch), int64(h.Depth))}
	if h.GivenID != "" {
		errs = append(errs, set(headTable, partOf(h.GivenID), h.Start))
	}
	if !h.HistoryKey.IsZero() {
		errs = append(errs, set(historyTable, string(h.HistoryKey[:]), h.Start))
	}
	if h.Parent != "" {
		errs = append(errs, set(childTable, partOf(h.Parent), h.Start))
	}
	return errors.Join(errs...)
}

// messageSum stands for a message's id in the keys that lead to runs by it.
type messageSum [8]byte

func messageSumOf(id string) messageSum {
	sum := sha256.Sum256([]byte(id)) // so that no choice of ids leads to many runs
	return messageSum(sum[:])
}

func messageSums(messages []agui.Message) []messageSum {
	sums := make([]messageSum, len(messages))
	for i, m := range messages {
		sums[i] = messageSumOf(m.ID)
	}
	return sums
}

// indexMessages writes the keys that lead to a run by its own messages.
func indexMessages(b *pebble.Batch, key []byte, h *head, messages []messageSum) error {
	thread := string(key[:bytes.LastIndexByte(key, '/')])
	for _, sum := range messages {
		if err := b.Set(orderKey(listKey(messageTable, thread, string(sum[:])), h.Start), []byte(h.ID), nil); err != nil {
			return err
		}
	}
	return nil
}

// erased notes how far a thread is erased. Its tombstones lie before that, and what it has from then on behind. Each
// table is emptied of the thread, also of what tombstones have taken: one may be gone from the topic by now.
func erased(b *pebble.Batch, e entry) error {
	errs := []error{b.Set(storeKey('e', e.key), binary.BigEndian.AppendUint64(nil, uint64(e.erased)), nil)}
	for _, table := range []byte{headTable, recordTable, openTable, historyTable, endTable, childTable, tipTable, messageTable} {
		from := listKey(table, string(e.key), "")
		errs = append(errs, b.DeleteRange(from, after(from), nil))
	}
	return errors.Join(errs...)
}

func (s *localStore) commit(b *pebble.Batch, meta storeMeta) error {
	text, err := json.Marshal(meta)
	if err != nil {
		return errors.Join(err, b.Close())
	}
	if err := b.Set(metaKey, text, nil); err != nil {
		return errors.Join(err, b.Close())
	}
	defer s.disk.watch()()
	// No sync: what a machine's crash takes from the end of the log is read again from skein.runs.
	if err := b.Commit(pebble.NoSync); err != nil {
		return s.fail(fmt.Errorf("writing local store: %w", err))
	}
	s.meta = meta
	return nil
}

// takeReads returns what was read since the last call.
func (s *localStore) takeReads() map[string]reads {
	taken := s.reads
	s.reads = map[string]reads{}
	return taken
}

// read notes a read, or with 0 calls more of one, and the bytes of keys and values that it gave.
func (s *localStore) read(what string, calls int, bytes ...[]byte) {
	r := s.reads[what]
	r.calls += calls
	for _, b := range bytes {
		r.bytes += len(b)
	}
	s.reads[what] = r
}

// reads are reads of the store: look-ups of a key, or of several that follow each other, and what they gave.
type reads struct{ calls, bytes int }

// heads returns the heads of a thread's runs, in no order of meaning.
func (s *localStore) heads(threadKey string) ([]*head, error) {
	prefix := listKey(headTable, threadKey, "")
	var out []*head
	err := s.scan(readThread, prefix, func(key, value []byte) error {
		if bytes.IndexByte(key[len(prefix):], '/') < len(key)-len(prefix)-1 { // it leads to one
			return nil
		}
		h, err := decodeHead(value)
		out = append(out, h)
		return err
	})
	return out, err
}

// unsealed returns the heads of those runs of a thread that are not sealed.
func (s *localStore) unsealed(threadKey string) ([]*head, error) {
	var out []*head
	err := s.scan(readThread, listKey(openTable, threadKey, ""), func(_, value []byte) error {
		h, err := decodeOpen(value)
		out = append(out, h)
		return err
	})
	return out, err
}

// ended returns the sealed runs of a thread that ended at the offset or behind, and the one that ended last
// before it; all says that there are no others.
func (s *localStore) ended(threadKey string, offset int64) (heads []*head, all bool, err error) {
	err = s.seek(readThread, listKey(endTable, threadKey, ""), func(it *pebble.Iterator) error {
		before := false
		ok := it.Last()
		for ; ok && !before; ok = it.Prev() {
			before = orderOf(it.Key()) < offset
			h, err := s.head(readThread, threadKey, it)
			if err != nil {
				return err
			}
			heads = append(heads, h)
		}
		all = !ok
		return nil
	})
	return heads, all, err
}

// named returns the runs that an id stands for: of the sealed ones that have it from their agent the last that
// started before the offset and all that started later, and the one whose own id it is.
func (s *localStore) named(threadKey, id string, offset int64) (heads []*head, err error) {
	prefix := listKey(headTable, threadKey, partOf(id))
	err = s.seek(readHead, prefix, func(it *pebble.Iterator) error {
		ok := it.Last()
		for before := false; ok && !before && len(it.Key()) > len(prefix); ok = it.Prev() {
			before = orderOf(it.Key()) < offset
			h, err := s.head(readHead, threadKey, it)
			if err != nil {
				return err
			}
			heads = append(heads, h)
		}
		if !it.First() || len(it.Key()) > len(prefix) {
			return nil
		}
		s.read(readHead, 0, it.Key(), it.Value())
		h, err := decodeHead(it.Value())
		heads = append(heads, h)
		return err
	})
	return heads, err
}

// longest goes through histories up to one that a sealed run has which ended before the offset, and returns of
// those runs the one that started last; nil where there is none.
func (s *localStore) longest(threadKey string, histories []lineage.Key, offset int64) (found *head, err error) {
	err = s.seek(readHead, listKey(historyTable, threadKey, ""), func(it *pebble.Iterator) error {
		for _, k := range histories {
			prefix := listKey(historyTable, threadKey, string(k[:]))
			for ok := it.SeekLT(orderKey(prefix, offset)); ok && bytes.HasPrefix(it.Key(), prefix); ok = it.Prev() {
				h, err := s.head(readHead, threadKey, it)
				if err != nil {
					return err
				}
				// A run that was folded again may have had this history before.
				if h.End < offset && h.HistoryKey == k {
					found = h
					return nil
				}
			}
		}
		return nil
	})
	return found, err
}

// said returns the heads of the runs that started before the offset and may have a message of the id as their own.
func (s *localStore) said(threadKey, id string, offset int64) (heads []*head, err error) {
	sum := messageSumOf(id)
	prefix := listKey(messageTable, threadKey, string(sum[:]))
	err = s.seek(readHead, prefix, func(it *pebble.Iterator) error {
		for ok := it.First(); ok && orderOf(it.Key()) < offset; ok = it.Next() {
			h, err := s.head(readHead, threadKey, it)
			if err != nil {
				return err
			}
			heads = append(heads, h)
		}
		return nil
	})
	return heads, err
}

// firstChild returns the start of the earliest sealed child of a run.
func (s *localStore) firstChild(threadKey, run string) (start int64, ok bool, err error) {
	err = s.seek(readHead, listKey(childTable, threadKey, partOf(run)), func(it *pebble.Iterator) error {
		if ok = it.First(); ok {
			start = orderOf(it.Key())
		}
		return nil
	})
	return start, ok, err
}

// deepest returns the depth of the deepest sealed run of a branch; 0 where there is none.
func (s *localStore) deepest(threadKey, branch string) (depth int, err error) {
	err = s.seek(readHead, listKey(tipTable, threadKey, partOf(branch)), func(it *pebble.Iterator) error {
		if it.Last() {
			depth = int(orderOf(it.Key()))
		}
		return nil
	})
	return depth, err
}

// head returns the head to which a key leads.
func (s *localStore) head(what, threadKey string, at *pebble.Iterator) (h *head, err error) {
	s.read(what, 0, at.Key(), at.Value())
	id := string(at.Value())
	err = s.get(what, listKey(headTable, threadKey, partOf(id)), func(value []byte) error {
		h, err = decodeHead(value)
		return err
	})
	if err == nil && h == nil {
		err = fmt.Errorf("%w: %s/%s", errMissing, threadKey, partOf(id))
	}
	return h, err
}

// erasedBelow returns the offset below which the events of a thread are erased; 0 where none are.
func (s *localStore) erasedBelow(threadKey string) (below int64, err error) {
	err = s.get(readThread, storeKey('e', []byte(threadKey)), func(value []byte) error {
		if len(value) != 8 {
			return errCut
		}
		below = int64(binary.BigEndian.Uint64(value))
		return nil
	})
	return below, err
}

// openRuns calls fn for the heads of all runs that are not sealed, in the order of their record keys.
func (s *localStore) openRuns(fn func(key string, h *head)) error {
	prefix := storeKey(openTable, nil)
	return s.scan(readThread, prefix, func(key, value []byte) error {
		h, err := decodeOpen(value)
		if err == nil {
			fn(string(key[len(prefix):]), h)
		}
		return err
	})
}

func decodeOpen(value []byte) (*head, error) {
	if len(value) < 8 {
		return nil, errCut
	}
	h, err := decodeHead(value[8:])
	if err == nil {
		h.recordedAt = time.UnixMilli(int64(binary.BigEndian.Uint64(value)))
	}
	return h, err
}

// run returns the latest committed record of a run that is known, and its size.
func (s *localStore) run(key string) (r *record.Run, size int, err error) {
	err = s.get(readRecord, storeKey(recordTable, []byte(key)), func(value []byte) error {
		if size = len(value) - 8; size < 0 {
			return errCut
		}
		r, err = record.DecodeRun(value[8:])
		return err
	})
	if err == nil && r == nil {
		err = s.sound([]byte(key), errMissing)
	}
	return r, size, err
}

// get calls fn for the value of a key, if it is there; the value is valid during the call only.
func (s *localStore) get(what string, key []byte, fn func(value []byte) error) error {
	defer s.disk.watch()()
	s.read(what, 1)
	value, closer, err := s.db.Get(key)
	if errors.Is(err, pebble.ErrNotFound) {
		return nil
	}
	if err != nil {
		return s.fail(fmt.Errorf("reading local store: %w", err))
	}
	s.read(what, 0, key, value)
	err = fn(value)
	if err := closer.Close(); err != nil {
		return s.fail(fmt.Errorf("reading local store: %w", err))
	}
	return s.sound(key, err)
}

// sound fails where what was read cannot be what was written, though Pebble gives it back for that.
func (s *localStore) sound(key []byte, err error) error {
	if err == nil || errors.Is(err, ErrStore) { // met before, by a read inside this one
		return err
	}
	return s.fail(fmt.Errorf("%w: reading %q: %w", errContradiction, key, err))
}

// seek calls fn with an iterator over the keys with the prefix.
func (s *localStore) seek(what string, prefix []byte, fn func(it *pebble.Iterator) error) error {
	defer s.disk.watch()()
	s.read(what, 1)
	it, err := s.db.NewIter(&pebble.IterOptions{LowerBound: prefix, UpperBound: after(prefix)})
	if err != nil {
		return s.fail(fmt.Errorf("reading local store: %w", err))
	}
	err = fn(it)
	if err := it.Close(); err != nil {
		return s.fail(fmt.Errorf("reading local store: %w", err))
	}
	return s.sound(prefix, err)
}

// scan calls fn for every key with the prefix; key and value are valid during the call only.
func (s *localStore) scan(what string, prefix []byte, fn func(key, value []byte) error) error {
	return s.seek(what, prefix, func(it *pebble.Iterator) error {
		for ok := it.First(); ok; ok = it.Next() {
			s.read(what, 0, it.Key(), it.Value())
			if err := fn(it.Key(), it.Value()); err != nil {
				return err
			}
		}
		return nil
	})
}

func (s *localStore) close() error {
	defer s.disk.watch()()
	if err := s.db.Close(); err != nil {
		return fmt.Errorf("closing local store: %w", err)
	}
	return nil
}

func storeKey(table byte, key []byte) []byte {
	return append([]byte{table, '/'}, key...)
}

// headKey is the key of a head; there is a slash behind, so that what leads to it by the same id is beside it.
func headKey(key []byte) []byte { return append(storeKey(headTable, key), '/') }

// listKey begins the keys of a table that belong to a thread and, unless it is empty, a name.
func listKey(table byte, threadKey, name string) []byte {
	key := append(append(make([]byte, 0, len(threadKey)+len(name)+12), table, '/'), threadKey...)
	key = append(key, '/')
	if name != "" {
		key = append(append(key, name...), '/')
	}
	return key
}

// orderKey completes such a key with the number by which it is in order; orderOf is the reverse.
func orderKey(prefix []byte, n int64) []byte {
	return binary.BigEndian.AppendUint64(slices.Clip(prefix), uint64(n))
}

func orderOf(key []byte) int64 { return int64(binary.BigEndian.Uint64(key[len(key)-8:])) }

// after is the first key behind those with the prefix.
func after(prefix []byte) []byte {
	end := bytes.Clone(prefix)
	end[len(end)-1]++
	return end
}

func partOf(id string) string { return record.EscapeKeyPart(id) }
