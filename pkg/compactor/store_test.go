package compactor

import (
	"fmt"
	"log/slog"
	"testing"
	"time"

	"github.com/cockroachdb/pebble/v2"
	"github.com/cockroachdb/pebble/v2/vfs"

	"github.com/skeinhq/skein/pkg/record"
)

// storeRecord is a run record as it lies on skein.runs.
func storeRecord(t *testing.T, thread, run string, status record.Status, offset int64) entry {
	t.Helper()
	r := &record.Run{
		Tenant: "acme", ThreadID: thread, RunID: run, BranchID: run, RootRunID: run, ParentBy: record.ParentNone,
		Status: status, Raw: record.Raw{First: offset, Next: offset + 1, NextSeq: -1},
	}
	if !status.Sealed() {
		r.Open = &record.Open{LastAt: time.Unix(5, 0).UTC()}
	}
	value, err := record.EncodeRun(r)
	if err != nil {
		t.Fatal(err)
	}
	return entry{key: []byte("acme/" + thread + "/" + run), value: value, offset: offset}
}

type storeTest struct {
	t     *testing.T
	fs    vfs.FS
	cache *pebble.Cache
	*localStore
}

func newStoreTest(t *testing.T) *storeTest {
	s := &storeTest{t: t, fs: vfs.NewMem(), cache: pebble.NewCache(1 << 20)}
	t.Cleanup(s.cache.Unref)
	s.reopen()
	return s
}

func (s *storeTest) reopen() (rebuilt string) {
	s.t.Helper()
	if s.localStore != nil {
		s.do(s.localStore.close())
	}
	st, rebuilt, err := openStore(s.fs, "dir", 3, s.cache, slog.New(slog.DiscardHandler))
	s.do(err)
	if s.localStore == nil {
		s.t.Cleanup(func() { s.do(s.localStore.close()) })
	}
	s.localStore = st
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
	heads, err := s.heads("acme/" + thread)
	s.do(err)
	out := []string{}
	for _, h := range heads {
		out = append(out, h.ID)
	}
	return out
}

func TestLocalStore_HoldsWhatCommittedRecordsSay(t *testing.T) {
	s, now := newStoreTest(t), time.Unix(1000, 0)
	_, err := s.prepare("topic", time.Hour, now)
	s.do(err)
	s.do(s.apply([]entry{
		storeRecord(t, "t", "a", record.StatusRunning, 0),
		{offset: 1}, // a fence
		storeRecord(t, "t", "b", record.StatusRunning, 2),
		storeRecord(t, "tt", "c", record.StatusFinished, 3), // "t" is a prefix of its thread
		storeRecord(t, "t", "a", record.StatusFinished, 4),
	}, now))
	equal(t, "runs of t", s.ids("t"), []string{"a", "b"})
	open, err := s.openRuns()
	s.do(err)
	equal(t, "open runs", keysOf(open), []string{"acme/t/b"})
	equal(t, "time of its last record", open["acme/t/b"].LastAt, time.Unix(5, 0).UTC())

	// A catch-up overlaps what is there: what is older changes nothing.
	s.do(s.apply([]entry{storeRecord(t, "t", "a", record.StatusRunning, 0), {key: []byte("acme/t/b"), offset: 5}}, now))
	equal(t, "runs after a tombstone", s.ids("t"), []string{"a"})
	r, _, err := s.run("acme/t/a")
	s.do(err)
	equal(t, "status", r.Status, record.StatusFinished)

	equal(t, "a reopened store is rebuilt", s.reopen(), "")
	equal(t, "next offset", s.meta.NextOffset, int64(6))
	equal(t, "runs", s.ids("t"), []string{"a"})
}

func TestLocalStore_IsRebuiltWhereACatchUpWouldNotLeadToTheTruth(t *testing.T) {
	now := time.Unix(100_000, 0)
	for _, c := range []struct {
		name, topic string
		after       time.Duration
		want        string
	}{
		{"the same topic, soon", "topic", time.Minute, ""},
		{"another topic of the name", "other", time.Minute, rebuildTopic},
		{"so late that tombstones may be gone", "topic", 2 * time.Hour, rebuildAge},
	} {
		t.Run(c.name, func(t *testing.T) {
			s := newStoreTest(t)
			rebuilt, err := s.prepare("topic", time.Hour, now)
			s.do(err)
			equal(t, "a new store is rebuilt", rebuilt, "")
			s.do(s.apply([]entry{storeRecord(t, "t", "a", record.StatusFinished, 7)}, now))
			s.reopen()
			rebuilt, err = s.prepare(c.topic, time.Hour, now.Add(c.after))
			s.do(err)
			equal(t, "reason", rebuilt, c.want)
			if empty := len(s.ids("t")) == 0 && s.meta.NextOffset == 0; empty != (c.want != "") {
				t.Errorf("the store is empty: %v", empty)
			}
		})
	}
}

func TestLocalStore_IsMadeAnewWhenDamaged(t *testing.T) {
	s := newStoreTest(t)
	_, err := s.prepare("topic", time.Hour, time.Unix(1, 0))
	s.do(err)
	for i := range 100 {
		s.do(s.apply([]entry{storeRecord(t, "t", fmt.Sprint(i), record.StatusFinished, int64(i))}, time.Unix(1, 0)))
	}
	s.do(s.db.Flush())
	s.do(s.localStore.close())
	names, err := s.fs.List("dir/3")
	s.do(err)
	for _, name := range names {
		if len(name) > 8 && name[:8] == "MANIFEST" {
			f, err := s.fs.Create("dir/3/"+name, vfs.WriteCategoryUnspecified)
			s.do(err)
			_, err = f.Write([]byte("not a manifest, and long enough to be read as one"))
			s.do(err)
			s.do(f.Close())
		}
	}
	st, rebuilt, err := openStore(s.fs, "dir", 3, s.cache, slog.New(slog.DiscardHandler))
	s.do(err)
	s.localStore = st
	equal(t, "reason", rebuilt, rebuildDamage)
	equal(t, "runs", s.ids("t"), []string{})
}
