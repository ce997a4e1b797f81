package runstore

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"maps"
	"math/rand/v2"
	"reflect"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/cockroachdb/pebble/v2"
	"github.com/cockroachdb/pebble/v2/vfs"

	"github.com/skeinhq/skein/pkg/agui"
	"github.com/skeinhq/skein/pkg/compactor/runstore/runstoretest"
	"github.com/skeinhq/skein/pkg/fold"
	"github.com/skeinhq/skein/pkg/kafka/kafkatest"
	"github.com/skeinhq/skein/pkg/lineage"
	"github.com/skeinhq/skein/pkg/record"
)

func equal[T any](t testing.TB, what string, got, want T) {
	t.Helper()
	if !reflect.DeepEqual(got, want) {
		t.Errorf("%s:\n got %v\nwant %v", what, got, want)
	}
}

// storeRecord is a run record as it lies on skein.runs.
func storeRecord(t testing.TB, thread, run string, status record.Status, offset int64) Entry {
	t.Helper()
	r := &record.Run{
		Tenant: "acme", ThreadID: thread, RunID: run, Lineage: record.Lineage{BranchID: run, RootRunID: run, ParentBy: record.ParentNone},
		Status: status, Raw: record.Raw{First: offset, Next: offset + 1, NextSeq: -1},
	}
	if !status.Sealed() {
		r.Open = &record.Open{LastAt: time.Unix(5, 0).UTC()}
	}
	value, err := record.EncodeRun(r)
	if err != nil {
		t.Fatal(err)
	}
	return Entry{Key: []byte("acme/" + thread + "/" + run), Value: value, Offset: offset}
}

// largeRecord is one with a message of that many bytes.
func largeRecord(t testing.TB, thread, run string, status record.Status, size int, offset int64) Entry {
	t.Helper()
	e := storeRecord(t, thread, run, status, offset)
	r, err := record.DecodeRun(e.Value)
	if err != nil {
		t.Fatal(err)
	}
	r.Messages = []agui.Message{{ID: "large", Raw: []byte(`{"id":"large","role":"user","content":"` + strings.Repeat("x", size) + `"}`)}}
	if e.Value, err = record.EncodeRun(r); err != nil {
		t.Fatal(err)
	}
	return e
}

type storeTest struct {
	t     *testing.T
	fs    vfs.FS
	cache *pebble.Cache
	*Store
}

func newStoreTest(t *testing.T) *storeTest {
	s := &storeTest{t: t, fs: vfs.NewMem(), cache: pebble.NewCache(1 << 20)}
	t.Cleanup(s.cache.Unref)
	s.reopen()
	return s
}

func (s *storeTest) reopen() (rebuilt string) {
	s.t.Helper()
	if s.Store != nil {
		s.do(s.Store.Close())
	}
	st, rebuilt, err := openStore(newDisk(s.fs, "dir", slog.New(slog.DiscardHandler)), 3, s.cache)
	s.do(err)
	if s.Store == nil {
		s.t.Cleanup(func() { s.do(s.Store.Close()) })
	}
	s.Store = st
	return rebuilt
}

func (s *storeTest) do(err error) {
	s.t.Helper()
	if err != nil {
		s.t.Fatal(err)
	}
}

func (s *storeTest) ids(thread string) []string {
	s.t.Helper()
	heads, err := s.Thread("acme/" + thread).All()
	s.do(err)
	out := []string{}
	for _, h := range heads {
		out = append(out, h.ID)
	}
	return out
}

func TestStore_HoldsWhatCommittedRecordsSay(t *testing.T) {
	s, now := newStoreTest(t), time.Unix(1000, 0)
	_, err := s.Prepare("topic", time.Hour, now)
	s.do(err)
	s.do(s.Apply([]Entry{
		storeRecord(t, "t", "a", record.StatusRunning, 0),
		{Offset: 1}, // a fence
		storeRecord(t, "t", "b", record.StatusRunning, 2),
		storeRecord(t, "tt", "c", record.StatusFinished, 3), // "t" is a prefix of its thread
		storeRecord(t, "t", "a", record.StatusFinished, 4),
	}, now))
	equal(t, "runs of t", s.ids("t"), []string{"a", "b"})
	open := map[string]*fold.Metadata{}
	s.do(s.EachUnsealed(func(key string, _ time.Time, h *fold.Metadata) { open[key] = h }))
	equal(t, "open runs", slices.Sorted(maps.Keys(open)), []string{"acme/t/b"})
	equal(t, "time of its last record", open["acme/t/b"].LastAt, time.Unix(5, 0).UTC())

	// A catch-up overlaps what is there: what is older changes nothing.
	s.do(s.Apply([]Entry{storeRecord(t, "t", "a", record.StatusRunning, 0), {Key: []byte("acme/t/b"), Offset: 5}}, now))
	equal(t, "runs after a tombstone", s.ids("t"), []string{"a"})
	r, _, err := s.Record("acme/t/a")
	s.do(err)
	equal(t, "status", r.Status, record.StatusFinished)

	equal(t, "a reopened store is rebuilt", s.reopen(), "")
	equal(t, "next offset", s.followed.NextOffset, int64(6))
	equal(t, "runs", s.ids("t"), []string{"a"})
}

// What leads to a sealed run leads to nothing of another thread, nor of a life of the thread that was erased.
func TestStore_LeadsToSealedRuns(t *testing.T) {
	s, now := newStoreTest(t), time.Unix(1000, 0)
	_, err := s.Prepare("topic", time.Hour, now)
	s.do(err)
	// Ids whose escaped forms lie beside each other, and one that looks like a head.
	const a, b, brace = "r", "r/2", "{"
	history := lineage.KeyOf([]agui.Message{{ID: "m"}})
	offset := int64(0)
	put := func(thread, id, given, parent, branch string, depth int, start, next int64) {
		t.Helper()
		rec := &record.Run{
			Tenant: "acme", ThreadID: thread, RunID: id, ClientRunID: given,
			Lineage: record.Lineage{ParentRunID: parent, BranchID: branch, RootRunID: branch, Depth: depth, ParentBy: record.ParentNone},
			Status:  record.StatusFinished, HistoryKey: history.String(),
			Raw: record.Raw{First: start, Next: next, NextSeq: -1},
		}
		value, err := record.EncodeRun(rec)
		s.do(err)
		key, err := record.RunKey("acme", thread, id)
		s.do(err)
		s.do(s.Apply([]Entry{{Key: []byte(key), Value: value, Offset: offset}}, now))
		offset++
	}
	fill := func(thread string, from int64) {
		put(thread, a, "", "", a, 0, from, from+2)
		put(thread, a+"~2", a, a, a, 1, from+10, from+12)
		put(thread, brace, a, a, brace, 1, from+20, from+29)
		put(thread, b, "", brace, brace, 2, from+22, from+24)
	}
	fill("t", 100)
	fill("t-", 100)
	idsOf := func(heads []*fold.Metadata, err error) string {
		t.Helper()
		s.do(err)
		out := ""
		for _, h := range heads {
			out += h.ID + " "
		}
		return out
	}
	look := func(thread string) (got []string) {
		key := "acme/" + thread
		for _, offset := range []int64{100, 111, 121} {
			got = append(got, idsOf(s.Thread(key).ByID(a, offset)))
		}
		got = append(got, idsOf(s.Thread(key).ByID(a+"~2", 200)), idsOf(s.Thread(key).ByID(b, 200)), idsOf(s.Thread(key).ByID("none", 200)))
		for _, offset := range []int64{101, 103, 125, 200} {
			heads, all, err := s.Thread(key).EndedAt(offset)
			got = append(got, idsOf(heads, err)+fmt.Sprint(all))
		}
		for _, offset := range []int64{100, 112, 129, 200} {
			h, err := s.Thread(key).ByKey([]lineage.Key{lineage.KeyOf([]agui.Message{{ID: "n"}}).IDs, history.IDs}, offset)
			s.do(err)
			if h == nil {
				got = append(got, "")
				continue
			}
			got = append(got, h.ID)
		}
		for _, run := range []string{a, brace, b} {
			start, ok, err := s.Thread(key).FirstChild(run)
			s.do(err)
			depth, err := s.Thread(key).Deepest(run)
			s.do(err)
			got = append(got, fmt.Sprint(start, ok, depth))
		}
		return append(got, idsOf(s.Thread(key).All()))
	}
	want := []string{
		"{ r~2 r ", "{ r~2 r ", "{ r ", "r~2 ", "r/2 ", "",
		"{ r/2 r~2 r true", "{ r/2 r~2 r true", "{ r/2 false", "{ false",
		"", "r~2", "r/2", "r/2",
		"110 true 1", "122 true 2", "0 false 0",
		"{ r/2 r r~2 ",
	}
	equal(t, "what is found", look("t"), want)

	s.do(s.Apply([]Entry{
		{Key: []byte("acme/t/r"), Offset: offset}, {Key: []byte("acme/t/r~2"), Offset: offset + 1},
		{Key: []byte("acme/t/%7B"), Offset: offset + 2}, {Key: []byte("acme/t/r%2F2"), Offset: offset + 3},
		{Key: []byte("acme/t"), Value: record.EncodeErased(150), Erased: 150, Offset: offset + 4},
	}, now))
	offset += 5
	equal(t, "what is found of an erased thread", look("t"), []string{
		"", "", "", "", "", "", "true", "true", "true", "true", "", "", "", "", "0 false 0", "0 false 0", "0 false 0", "",
	})
	equal(t, "what is found of another thread", look("t-"), want)
	fill("t", 100)
	equal(t, "what is found of the thread's next life", look("t"), want)
}

// The tombstones of an erased thread may be gone from the topic before the store has read them: the erasure says it all.
func TestStore_KnowsNothingOfAThreadThatIsErasedWithoutItsTombstones(t *testing.T) {
	s, now := newStoreTest(t), time.Unix(1000, 0)
	_, err := s.Prepare("topic", time.Hour, now)
	s.do(err)
	s.do(s.Apply([]Entry{
		storeRecord(t, "t", "open", record.StatusRunning, 0),
		storeRecord(t, "t", "ended", record.StatusFinished, 1),
		storeRecord(t, "t-", "other", record.StatusRunning, 2),
		storeRecord(t, "tt", "another", record.StatusRunning, 3),
		{Key: []byte("acme/t"), Value: record.EncodeErased(150), Erased: 150, Offset: 9},
	}, now))
	open := map[string]*fold.Metadata{}
	s.do(s.EachUnsealed(func(key string, _ time.Time, h *fold.Metadata) { open[key] = h }))
	equal(t, "open runs", slices.Sorted(maps.Keys(open)), []string{"acme/t-/other", "acme/tt/another"})
	heads, err := s.Thread("acme/t").Unsealed()
	s.do(err)
	equal(t, "open runs of the thread", len(heads), 0)
	for _, id := range []string{"open", "ended"} {
		_, closer, err := s.db.Get(storeKey(recordTable, []byte("acme/t/"+id)))
		if err == nil {
			s.do(closer.Close())
		}
		equal(t, "record of "+id+" is gone", errors.Is(err, pebble.ErrNotFound), true)
	}
	equal(t, "runs", append(s.ids("t"), s.ids("t-")...), []string{"other"})
	s.do(s.Apply([]Entry{storeRecord(t, "t", "open", record.StatusRunning, 200)}, now))
	equal(t, "runs of the thread's next life", s.ids("t"), []string{"open"})
}

// A large record lies in chunks, so that no block of the store is large. A shorter one is read without what it leaves of it, and
// an erasure leaves nothing.
func TestStore_KeepsLargeRecordsInChunks(t *testing.T) {
	s, now := newStoreTest(t), time.Unix(1000, 0)
	chunks := func(prefix string) (n int) {
		it, err := s.db.NewIter(&pebble.IterOptions{LowerBound: []byte(prefix), UpperBound: after([]byte(prefix))})
		s.do(err)
		for ok := it.First(); ok; ok = it.Next() {
			if n++; len(it.Value()) > 8+chunkBytes {
				t.Errorf("%.60q has %d bytes", it.Key(), len(it.Value()))
			}
		}
		s.do(it.Close())
		return n
	}
	holds := func(want Entry) {
		t.Helper()
		got, size, err := s.Record(string(want.Key))
		s.do(err)
		equal(t, "size", size, len(want.Value))
		value, err := record.EncodeRun(got)
		s.do(err)
		equal(t, "the record is what was written", bytes.Equal(value, want.Value), true)
		chunks("r/" + string(want.Key))
	}
	empty := len(largeRecord(t, "t", "a", record.StatusRunning, 0, 20).Value) // of two digits of offset
	neighbours := []Entry{
		largeRecord(t, "t-", "a", record.StatusFinished, 2*chunkBytes, 10), largeRecord(t, "t", "a-", record.StatusRunning, 2*chunkBytes, 11),
		largeRecord(t, "t", "a0", record.StatusRunning, 3*chunkBytes, 12),
	}
	s.do(s.Apply(neighbours, now))
	offset := int64(20)
	for _, size := range []int{0, chunkBytes - empty, chunkBytes - empty + 1, 10 * chunkBytes, 2*chunkBytes - empty, 3*chunkBytes + 1,
		40 * chunkBytes, 2 * chunkBytes, 0} {
		e := largeRecord(t, "t", "a", record.StatusRunning, size, offset)
		s.do(s.Apply([]Entry{e}, now))
		holds(e)
		offset++
	}
	large := largeRecord(t, "t", "a", record.StatusFinished, 5*chunkBytes, offset)
	s.do(s.Apply([]Entry{large}, now))
	holds(large)
	for _, e := range neighbours {
		holds(e)
	}
	s.do(s.Apply([]Entry{{Key: []byte("acme/t"), Value: record.EncodeErased(150), Erased: 150, Offset: offset + 2}}, now))
	equal(t, "what is left of the erased thread", chunks("r/acme/t/"), 0)
	holds(neighbours[0])
}

// Until a catch-up is done, a store is as old as it was: half of it says nothing of what was taken away behind.
func TestStore_IsAsOldAsWhatItLastKnewWhole(t *testing.T) {
	s, now := newStoreTest(t), time.Unix(100_000, 0)
	prepare := func(after time.Duration) string {
		t.Helper()
		rebuilt, err := s.Prepare("topic", time.Hour, now.Add(after))
		s.do(err)
		return rebuilt
	}
	prepare(0)
	s.do(s.Apply([]Entry{storeRecord(t, "t", "a", record.StatusFinished, 7)}, time.Time{}))
	equal(t, "cut short, soon", prepare(time.Hour), "")
	equal(t, "cut short, long ago", prepare(2*time.Hour), RebuildAge)
	s.do(s.Apply([]Entry{storeRecord(t, "t", "a", record.StatusFinished, 7)}, time.Time{}))
	equal(t, "cut short after that", prepare(3*time.Hour), "")
	s.do(s.Apply(nil, now.Add(3*time.Hour)))
	s.do(s.Apply([]Entry{storeRecord(t, "t", "b", record.StatusFinished, 8)}, time.Time{}))
	equal(t, "cut short, after it was whole", prepare(4*time.Hour), "")
	equal(t, "the same, long ago", prepare(5*time.Hour), RebuildAge)
	equal(t, "empty for long", prepare(100*time.Hour), "")
}

func TestStore_IsRebuiltWhereACatchUpWouldNotLeadToTheTruth(t *testing.T) {
	now := time.Unix(100_000, 0)
	for _, c := range []struct {
		name, topic string
		after       time.Duration
		want        string
	}{
		{"the same topic, soon", "topic", time.Minute, ""},
		{"another topic of the name", "other", time.Minute, RebuildTopic},
		{"so late that tombstones may be gone", "topic", 2 * time.Hour, RebuildAge},
	} {
		t.Run(c.name, func(t *testing.T) {
			s := newStoreTest(t)
			rebuilt, err := s.Prepare("topic", time.Hour, now)
			s.do(err)
			equal(t, "a new store is rebuilt", rebuilt, "")
			s.do(s.Apply([]Entry{storeRecord(t, "t", "a", record.StatusFinished, 7)}, now))
			s.reopen()
			rebuilt, err = s.Prepare(c.topic, time.Hour, now.Add(c.after))
			s.do(err)
			equal(t, "reason", rebuilt, c.want)
			if empty := len(s.ids("t")) == 0 && s.followed.NextOffset == 0; empty != (c.want != "") {
				t.Errorf("the store is empty: %v", empty)
			}
		})
	}
}

// damagedStore has a table of 800 records, and one of its files is not what was written.
type damagedStore struct {
	*storeTest
	disk *disk // of this life
}

const damagedThread = "a thread with a long name, so that it takes several blocks"

func newDamagedStore(t *testing.T, fs vfs.FS, suffix string, damage func(b []byte) []byte) *damagedStore {
	s := &damagedStore{storeTest: &storeTest{t: t, fs: fs, cache: pebble.NewCache(0)}}
	t.Cleanup(s.cache.Unref)
	s.start()
	_, err := s.Prepare("topic", time.Hour, time.Unix(1, 0))
	s.do(err)
	var entries []Entry
	for i := range 800 {
		entries = append(entries, storeRecord(t, damagedThread, fmt.Sprint(i), record.StatusFinished, int64(i)))
	}
	s.do(s.Apply(entries, time.Unix(1, 0)))
	s.do(s.Close())
	names, err := fs.List("dir/3")
	s.do(err)
	damaged := false
	for _, name := range names {
		if !strings.Contains(name, suffix) {
			continue
		}
		name = "dir/3/" + name
		f, err := fs.Open(name)
		s.do(err)
		b, err := io.ReadAll(f)
		s.do(errors.Join(err, f.Close()))
		if len(b) == 0 {
			continue
		}
		damaged = true
		if b = damage(b); b == nil {
			s.do(fs.Remove(name))
			continue
		}
		g, err := fs.Create(name, vfs.WriteCategoryUnspecified)
		s.do(err)
		_, err = g.Write(b)
		s.do(errors.Join(err, g.Close()))
	}
	equal(t, "something is damaged", damaged, true)
	return s
}

// start begins the next life.
func (s *damagedStore) start() (rebuilt string) {
	s.t.Helper()
	s.disk = newDisk(s.fs, "dir", slog.New(slog.DiscardHandler))
	st, rebuilt, err := openStore(s.disk, 3, s.cache)
	s.do(err)
	s.Store = st
	return rebuilt
}

// readAll reads what the store says it knows; it fails the test where something is not there.
func (s *damagedStore) readAll() error {
	s.t.Helper()
	for i := range s.followed.NextOffset {
		_, _, err := s.Record("acme/" + damagedThread + "/" + fmt.Sprint(i))
		if err != nil && strings.Contains(err.Error(), ErrMissing.Error()) {
			s.t.Fatalf("the store knows all below %d, and has no record %d", s.followed.NextOffset, i)
		}
		if err != nil {
			return err
		}
	}
	heads, err := s.Thread("acme/" + damagedThread).All()
	if err == nil {
		equal(s.t, "heads", int64(len(heads)), s.followed.NextOffset)
	}
	return err
}

func cut(b []byte) []byte   { return b[:len(b)/2] }
func gone([]byte) []byte    { return nil }
func other(b []byte) []byte { return []byte(strings.Repeat("not what it was ", len(b)/16+1))[:len(b)] }
func block(b []byte) []byte { clear(b[len(b)*70/100 : len(b)*75/100]); return b }

// What is found damaged as it is opened is made anew at once.
func TestStore_IsMadeAnewWhenDamaged(t *testing.T) {
	for _, c := range []struct {
		name, suffix string
		damage       func([]byte) []byte
	}{
		{"the list of tables is another file", "MANIFEST-", other}, {"the list of tables is gone", "MANIFEST-0", gone},
		{"a table is another file", ".sst", other}, {"a table is cut", ".sst", cut}, {"a table is gone", ".sst", gone},
		{"the options are another file", "OPTIONS-", other},
	} {
		t.Run(c.name, func(t *testing.T) {
			s := newDamagedStore(t, vfs.NewMem(), c.suffix, c.damage)
			equal(t, "reason", s.start(), RebuildDamage)
			equal(t, "the process ends", s.disk.hasFailed(), false)
			equal(t, "runs", s.ids(damagedThread), []string{})
			equal(t, "next offset", s.followed.NextOffset, int64(0))
			s.do(s.Close())
			equal(t, "reason in the next life", s.start(), "")
			s.do(s.Close())
		})
	}
}

// What is met later ends the process, and the next one makes the store anew.
func TestStore_IsMadeAnewAtTheNextStartWhereDamageIsMetLater(t *testing.T) {
	read := (*damagedStore).readAll
	compact := func(s *damagedStore) error {
		ctx, cancel := context.WithCancel(t.Context())
		defer cancel()
		compacted := make(chan struct{})
		go func() {
			defer close(compacted)
			_ = s.db.Compact(ctx, []byte{0}, []byte{0xff}, false) // it tries again and again
		}()
		select {
		case <-s.disk.failed:
		case <-time.After(kafkatest.Timeout):
			t.Error("nobody is told")
		}
		cancel()
		<-compacted
		return s.disk.err
	}
	for _, c := range []struct {
		name   string
		damage func([]byte) []byte
		meet   func(s *damagedStore) error
	}{
		{"a block, by a read", block, read}, {"a block, by a compaction", block, compact},
	} {
		t.Run(c.name, func(t *testing.T) {
			s := newDamagedStore(t, vfs.NewMem(), ".sst", c.damage)
			equal(t, "reason", s.start(), "")
			err := c.meet(s)
			if !errors.Is(err, ErrFailed) || !errors.Is(err, errDamaged) || !s.disk.hasFailed() {
				t.Errorf("error %v", err)
			}
			if strings.Contains(s.disk.err.Error(), "\n") {
				t.Errorf("more than one line: %q", s.disk.err)
			}
			_ = s.Close()
			equal(t, "reason in the next life", s.start(), RebuildDamage)
			equal(t, "next offset", s.followed.NextOffset, int64(0))
			s.do(s.readAll())
			s.do(s.Close())
			equal(t, "reason in the life after that", s.start(), "")
			s.do(s.Close())
		})
	}
	t.Run("where nothing can be written", func(t *testing.T) {
		faulty := &runstoretest.FaultyDisk{FS: vfs.NewMem(), Suffix: damagedName, Err: syscall.EROFS}
		faulty.Left.Store(-1)
		s := newDamagedStore(t, faulty, ".sst", block)
		for range 2 {
			equal(t, "reason", s.start(), "")
			if err := s.readAll(); !errors.Is(err, ErrFailed) || errors.Is(err, errDamaged) || !s.disk.hasFailed() {
				t.Errorf("error %v", err)
			}
			_ = s.Close()
		}
	})
}

// So does what Pebble gives back as it was written, and cannot be what a compactor wrote, or is not there.
func TestStore_IsMadeAnewAtTheNextStartWhereItContradictsItself(t *testing.T) {
	const thread, run, largeRun = "acme/t", "acme/t/a", "acme/large/a"
	threads := func(s *storeTest) error { _, err := s.Thread(thread).All(); return err }
	ended := func(s *storeTest) error { _, _, err := s.Thread(thread).EndedAt(9); return err }
	open := func(s *storeTest) error { return s.EachUnsealed(func(string, time.Time, *fold.Metadata) {}) }
	records := func(s *storeTest) error { _, _, err := s.Record(run); return err }
	largeRecords := func(s *storeTest) error { _, _, err := s.Record(largeRun); return err }
	erased := func(s *storeTest) error { _, err := s.Thread(thread).ErasedBelow(); return err }
	entries := []Entry{storeRecord(t, "t", "a", record.StatusFinished, 1),
		largeRecord(t, "large", "a", record.StatusFinished, 4*chunkBytes, 2)}
	for _, c := range []struct {
		name  string
		key   []byte
		value []byte // nil: it is not there
		meet  func(s *storeTest) error
	}{
		{"a head is missing", metadataKey([]byte(run)), nil, ended},
		{"a head is no head, as all are asked for", metadataKey([]byte(run)), []byte("{"), threads},
		{"a head of a run that is open is none, as a partition opens", storeKey(openTable, []byte(run)), []byte("{"), open},
		{"a record is missing", storeKey('r', []byte(run)), nil, records},
		{"a record is no record", storeKey('r', []byte(run)), []byte("\x00\x00\x00\x00\x00\x00\x00\x02{}"), records},
		{"a record is cut", storeKey('r', []byte(run)), []byte("1234"), records},
		{"a record's further chunks are missing", storeKey('r', []byte(run)), []byte("\x00\x00\x00\x00\x00\x00\x00\x03{}"), records},
		{"a chunk of a large record is missing", chunkKey(storeKey('r', []byte(largeRun)), 2), nil, largeRecords},
		{"a chunk of a large record is cut", chunkKey(storeKey('r', []byte(largeRun)), 3), []byte("{"), largeRecords},
		{"what says how far a thread is erased is cut", storeKey('e', []byte(thread)), []byte("1234"), erased},
	} {
		t.Run(c.name, func(t *testing.T) {
			s := newStoreTest(t)
			s.do(s.Apply(entries, time.Unix(1, 0)))
			if s.do(c.meet(s)); c.value == nil {
				s.do(s.db.Delete(c.key, pebble.NoSync))
			} else {
				s.do(s.db.Set(c.key, c.value, pebble.NoSync))
			}
			for range 2 {
				err := c.meet(s)
				if !errors.Is(err, ErrFailed) || !errors.Is(err, errDamaged) || !s.disk.hasFailed() {
					t.Errorf("error %v", err)
				}
				if !strings.Contains(fmt.Sprint(err), "please report it") {
					t.Errorf("it does not say what it may be: %v", err)
				}
			}
			equal(t, "reason in the next life", s.reopen(), RebuildDamage)
			equal(t, "next offset", s.followed.NextOffset, int64(0))
			s.do(s.Apply(entries, time.Unix(1, 0)))
			s.do(c.meet(s))
		})
	}
}

// Wherever a bit of a table or the options falls over, or they are cut: the store is whole as far as it says, or made anew, by
// the next start at the latest. (Of the list of tables Pebble takes a damaged end for one that was not written.)
func TestStore_IsWholeOrMadeAnew(t *testing.T) {
	const seeds = 15
	anew := 0
	for seed := range uint64(seeds) {
		r := rand.New(rand.NewPCG(seed, 7))
		suffix := []string{".sst", "OPTIONS-"}[seed%2]
		s := newDamagedStore(t, vfs.NewMem(), suffix, func(b []byte) []byte {
			if r.IntN(4) == 0 {
				return b[:r.IntN(len(b))]
			}
			b[r.IntN(len(b))] ^= 1 << r.IntN(8)
			return b
		})
		rebuilt := s.start()
		if err := s.readAll(); err != nil || s.disk.hasFailed() {
			_ = s.Close()
			equal(t, fmt.Sprint("reason to make it anew, seed ", seed, suffix, err), s.start(), RebuildDamage)
			rebuilt = RebuildDamage
			s.do(s.readAll())
		}
		if rebuilt != "" {
			anew++
		}
		s.do(s.Close())
	}
	t.Logf("%d of %d were made anew", anew, seeds)
}

// Two of them on one folder: the second waits for the first, whose store is whole. Of another process the file system says so,
// of this one Pebble does.
func TestStore_IsNotTakenFromWhoHasItOpen(t *testing.T) {
	for name, d := range map[string]*disk{
		"another process": newDisk(vfs.NewMem(), "dir", slog.New(slog.DiscardHandler)),
		"this process":    newDisk(vfs.Default, t.TempDir(), slog.New(slog.DiscardHandler)),
	} {
		t.Run(name, func(t *testing.T) {
			cache := pebble.NewCache(0)
			defer cache.Unref()
			first, _, err := openStore(d, 3, cache)
			if err != nil {
				t.Fatal(err)
			}
			if err := first.Apply([]Entry{storeRecord(t, "t", "a", record.StatusFinished, 7)}, time.Now()); err != nil {
				t.Fatal(err)
			}
			if _, _, err := openStore(d, 3, cache); !errors.Is(err, errLocked) || d.hasFailed() {
				t.Errorf("error %v", err)
			}
			if err := first.Close(); err != nil {
				t.Fatal(err)
			}
			second, rebuilt, err := openStore(d, 3, cache)
			if err != nil {
				t.Fatal(err)
			}
			equal(t, "reason", rebuilt, "")
			if _, _, err := second.Record("acme/t/a"); err != nil {
				t.Error(err)
			}
			if err := second.Close(); err != nil {
				t.Error(err)
			}
		})
	}
}

func TestStore_TakesPositionsThatNameNoTopic(t *testing.T) {
	store := newStoreTest(t)
	if err := store.Apply([]Entry{{Offset: 0}, {Offset: 1}}, time.Now()); err != nil {
		t.Fatal(err)
	}
	if err := store.BindEvents("one"); err != nil {
		t.Errorf("nobody has named a topic: %v", err)
	}
	if err := store.BindEvents(""); err != nil {
		t.Errorf("the brokers know no ids: %v", err)
	}
	if err := store.BindEvents("two"); !errors.Is(err, ErrOtherEvents) {
		t.Errorf("another topic: %v", err)
	}
	if err := store.Apply([]Entry{{Offset: 2, Progress: &record.Progress{Events: "two"}}}, time.Now()); err != nil {
		t.Fatal(err)
	}
	if err := store.BindEvents("two"); err != nil {
		t.Errorf("the topic that the last progress record names: %v", err)
	}
}

// Reads that fail are no reason to begin another session on the same store, nor to throw it away.
func TestStore_SaysWhatToDoWhereItCannotBeRead(t *testing.T) {
	faulty := &runstoretest.FaultyDisk{FS: vfs.NewMem(), Suffix: "never"}
	cache := pebble.NewCache(0)
	defer cache.Unref()
	d := newDisk(faulty, "dir", slog.New(slog.DiscardHandler))
	isSaid := func(err error) {
		t.Helper()
		if !errors.Is(err, ErrFailed) || !errors.Is(err, syscall.EIO) || !strings.Contains(err.Error(), "in dir") {
			t.Errorf("error %v", err)
		}
		if !d.hasFailed() {
			t.Error("the process goes on")
		}
	}
	s, _, err := openStore(d, 3, cache)
	if err != nil {
		t.Fatal(err)
	}
	if err := errors.Join(s.Apply([]Entry{storeRecord(t, "t", "a", record.StatusFinished, 1)}, time.Now()), s.db.Flush()); err != nil {
		t.Fatal(err)
	}
	faulty.Unread.Store(true)
	_, _, err = s.Record("acme/t/a")
	isSaid(err)
	faulty.Unread.Store(false)
	if err := s.Close(); err != nil {
		t.Error(err)
	}

	d = newDisk(faulty, "dir", slog.New(slog.DiscardHandler))
	faulty.Unread.Store(true)
	_, _, err = openStore(d, 3, cache)
	isSaid(err)
	faulty.Unread.Store(false)
	s, rebuilt, err := openStore(newDisk(faulty, "dir", slog.New(slog.DiscardHandler)), 3, cache)
	if err != nil {
		t.Fatal(err)
	}
	equal(t, "reason to make it anew", rebuilt, "")
	if err := s.Close(); err != nil {
		t.Error(err)
	}
}

// A disk that says nothing is one that fails: the client's heartbeats must not go on over an actor that waits for it.
func TestStore_GivesUpOnADiskThatDoesNotAnswer(t *testing.T) {
	var entries []Entry
	for i := range 12_000 { // more than memtables take
		entries = append(entries, storeRecord(t, "t", fmt.Sprint(i), record.StatusFinished, int64(i)))
	}
	for name, do := range map[string]func(s *Store) error{
		"opening": func(s *Store) error {
			other, _, err := openStore(s.disk, 4, nil)
			if err != nil {
				return err
			}
			return errors.Join(other.Close(), s.Close())
		},
		"writing": func(s *Store) error { return errors.Join(s.Apply(entries, time.Now()), s.Close()) },
		"a key":   func(s *Store) error { _, _, err := s.Record("acme/t/a"); return errors.Join(err, s.Close()) },
		"keys":    func(s *Store) error { _, err := s.Thread("acme/t").All(); return errors.Join(err, s.Close()) },
		"closing": func(s *Store) error { return s.Close() },
	} {
		t.Run(name, func(t *testing.T) {
			faulty := &runstoretest.FaultyDisk{FS: vfs.NewMem(), Suffix: "never"}
			cache := pebble.NewCache(0)
			defer cache.Unref()
			d := newDisk(faulty, "dir", slog.New(slog.DiscardHandler))
			s, _, err := openStore(d, 3, cache)
			if err != nil {
				t.Fatal(err)
			}
			if err := errors.Join(s.Apply([]Entry{storeRecord(t, "t", "a", record.StatusFinished, 0)}, time.Now()), s.db.Flush()); err != nil {
				t.Fatal(err)
			}
			d.timeout = time.Millisecond
			until, done := make(chan struct{}), make(chan error, 1)
			faulty.Hangs.Store(&until)
			go func() { done <- do(s) }()
			select {
			case <-d.failed:
				if !errors.Is(d.err, errStuck) {
					t.Error(d.err)
				}
			case <-time.After(kafkatest.Timeout):
				t.Error("nobody watches it")
			}
			close(until)
			if err := <-done; err != nil {
				t.Error(err)
			}
		})
	}
}
