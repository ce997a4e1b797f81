package runstore

import (
	"crypto/sha256"
	"errors"
	"flag"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"os"
	"os/exec"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/cockroachdb/pebble/v2"
	"github.com/cockroachdb/pebble/v2/vfs"
	"github.com/cockroachdb/pebble/v2/vfs/errorfs"

	"github.com/skeinhq/skein/pkg/record"
	"github.com/skeinhq/skein/test/parts/partstest"
)

var everyWrite = flag.Bool("crash.all", false, "crash at every write of the file system, not at every eighth, and kill ten times as often")

// history is a log of records, and what a store that never crashed holds at each offset of it.
type history struct {
	testing.TB
	entries []Entry

	mu    sync.Mutex
	wants map[int64]string
}

// newHistory returns a log with everything that records can say. One record is too large for a memtable, which
// gives it a flush of its own.
func newHistory(t testing.TB, seed uint64, n int) *history {
	rng := rand.New(rand.NewPCG(seed, 0))
	h := &history{TB: t, wants: map[int64]string{}}
	for offset := range int64(n) {
		thread, run := fmt.Sprint("t", rng.IntN(9)), fmt.Sprint("r", rng.IntN(n))
		status := []record.Status{record.StatusRunning, record.StatusFinished}[rng.IntN(2)]
		e := storeRecord(t, thread, run, status, offset)
		switch p := rng.IntN(100); {
		case offset == int64(n)/2:
			e = largeRecord(t, thread, run, status, 3<<20, offset)
		case p < 10:
			e = Entry{Offset: offset} // a fence
		case p < 20:
			e = Entry{Offset: offset, Progress: &record.Progress{Next: offset, Processed: offset, Partitions: 1, Events: "events"}}
		case p < 23 && offset > 0: // nothing is below the first
			e = Entry{Offset: offset, Key: []byte("acme/" + thread), Value: record.EncodeErased(offset), Erased: offset}
		case p < 30:
			e.Value = nil
		case p < 35:
			e = largeRecord(t, thread, run, status, rng.IntN(4*chunkBytes), offset)
		}
		h.entries = append(h.entries, e)
	}
	return h
}

// known is the time by which a store has all below the offset.
func (h *history) known(next int64) time.Time {
	return time.Unix(0, 0).UTC().Add(time.Duration(next) * flushAfter / 10)
}

// apply applies some records of the log, from the store's position on.
func (h *history) apply(s *Store, n int) error {
	from := s.followed.NextOffset
	until := min(from+int64(n), int64(len(h.entries)))
	return s.Apply(h.entries[from:until], h.known(until))
}

// want is what a store that never crashed holds at an offset.
func (h *history) want(next int64) string {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.wants[next] == "" {
		s := h.must(OpenMemory())
		h.do(s.Reset("topic", h.known(0)))
		if next > 0 {
			h.do(h.apply(s, int(next)))
		}
		h.wants[next] = h.held(s)
		h.do(s.Close())
	}
	return h.wants[next]
}

// held is a hash of all keys and values, but for marks of purges, which come and go by themselves.
func (h *history) held(s *Store) string {
	sum, it := sha256.New(), h.iterator(s)
	for ok := it.First(); ok; ok = it.Next() {
		if it.Key()[0] != purgeTable {
			_, _ = fmt.Fprintf(sum, "%q %d ", it.Key(), len(it.Value()))
			_, _ = sum.Write(it.Value())
		}
	}
	h.do(it.Close())
	return fmt.Sprintf("%x", sum.Sum(nil))
}

func (h *history) iterator(s *Store) *pebble.Iterator {
	it, err := s.db.NewIter(nil)
	h.do(err)
	return it
}

func (h *history) do(err error) {
	if err != nil {
		panic(err) // from a goroutine of Pebble, perhaps
	}
}

func (h *history) must(s *Store, err error) *Store { h.do(err); return s }

// isRight opens what a crash left: it holds what its position says, and after a catch-up everything, as after another start.
func (h *history) isRight(fs vfs.FS, dir string, begun int64) (next int64) {
	open := func() *Store {
		cache := pebble.NewCache(1 << 20)
		defer cache.Unref()
		s, rebuilt, err := openStore(newDisk(fs, dir, slog.New(slog.DiscardHandler)), 3, cache)
		h.do(err)
		equal(h, "reason to make it anew", rebuilt, "")
		if s.followed.TopicID == "" { // it crashed as it was made
			equal(h, "next offset without a topic", s.followed.NextOffset, 0)
			h.do(s.Reset("topic", h.known(0)))
		}
		return s
	}
	s := open()
	if next = s.followed.NextOffset; next > begun {
		h.Errorf("the store is at %d, and nothing from %d on was written", next, begun)
	}
	equal(h, fmt.Sprint("what it holds at ", next), h.held(s), h.want(next))
	h.do(h.apply(s, len(h.entries)))
	equal(h, "what it holds after a catch-up", h.held(s), h.want(int64(len(h.entries))))
	h.do(s.Close())
	s = open()
	equal(h, "next offset after a start in good order", s.followed.NextOffset, int64(len(h.entries)))
	equal(h, "what it then holds", h.held(s), h.want(int64(len(h.entries))))
	h.do(s.Close())
	return next
}

// A machine loses its power before a write of a store, with its flushes, merges and purges: of what was not synced nothing is left, all
// of it (which is kill -9), or some.
func TestStore_HoldsWhatItsPositionSaysWhereverItCrashes(t *testing.T) {
	seed := rand.Uint64()
	t.Logf("seed %d", seed)
	h := newHistory(t, seed, 300)
	mem := vfs.NewCrashableMem()
	h.do(mem.MkdirAll("dir/3", 0o700))
	for _, name := range []string{"", "dir", "dir/3"} {
		d, err := mem.OpenDir(name)
		h.do(errors.Join(err, d.Sync(), d.Close()))
	}
	var begun atomic.Int64
	var mu sync.Mutex
	rng, writes, at := rand.New(rand.NewPCG(seed, 1)), 0, map[int64]int{}
	step := 8
	if *everyWrite {
		step = 1
	}
	fs := errorfs.Wrap(mem, errorfs.InjectorFunc(func(op errorfs.Op) error {
		if op.Kind.ReadOrWrite() != errorfs.OpIsWrite {
			return nil
		}
		mu.Lock()
		defer mu.Unlock()
		if writes++; writes%step == 0 {
			percent := []int{0, 100, rng.IntN(100)}[rng.IntN(3)]
			left := mem.CrashClone(vfs.CrashCloneCfg{UnsyncedDataPercent: percent, RNG: rng})
			at[h.isRight(left, "dir", begun.Load())]++
		}
		return nil
	}))
	d := newDisk(fs, "dir", slog.New(slog.DiscardHandler))
	d.purgeAfter = time.Millisecond
	cache := pebble.NewCache(1 << 20)
	defer cache.Unref()
	s, _, err := openStore(d, 3, cache)
	h.do(err)
	h.do(s.Reset("topic", h.known(0)))
	for batches := rand.New(rand.NewPCG(seed, 2)); s.followed.NextOffset < int64(len(h.entries)); {
		n := 1 + batches.IntN(9)
		begun.Store(s.followed.NextOffset + int64(n))
		h.do(h.apply(s, n))
		if batches.IntN(4) == 0 { // or few flushes would have all
			h.do(s.db.Flush())
		}
	}
	h.do(s.Close())
	t.Logf("%d writes, stores found at %d offsets", writes, len(at))
	if len(at) < 5 {
		t.Errorf("stores were found at offsets %v alone", at)
	}
}

// historyInProcess names the folder of the store that a process is to write: see the test below.
const historyInProcess = "RUNSTORE_HISTORY_IN"

// A process that writes a store is killed again and again, and the next one goes on.
func TestStore_HoldsWhatItsPositionSaysWhereItsProcessIsKilled(t *testing.T) {
	kills := 8
	if *everyWrite {
		kills = 80
	}
	h := newHistory(t, 7, 2000)
	if dir := os.Getenv(historyInProcess); dir != "" {
		h.write(dir)
	}
	partstest.SkipShort(t, "processes to kill")
	dir, at := t.TempDir(), map[int64]int{}
	for range kills {
		cmd := exec.CommandContext(t.Context(), os.Args[0], "-test.run=^"+t.Name()+"$")
		cmd.Env = append(os.Environ(), historyInProcess+"="+dir)
		said, err := cmd.StdoutPipe()
		h.do(errors.Join(err, cmd.Start()))
		_, err = said.Read(make([]byte, 1))       // it has opened the store
		time.Sleep(rand.N(40 * time.Millisecond)) // the fault's own time: any will do
		h.do(errors.Join(err, cmd.Process.Kill()))
		if err := cmd.Wait(); err == nil || cmd.ProcessState.ExitCode() != -1 {
			t.Fatalf("it ended by itself: %v", err)
		}
		left := t.TempDir()
		h.do(os.CopyFS(left, os.DirFS(dir)))
		at[h.isRight(vfs.Default, left, int64(len(h.entries)))]++
	}
	t.Logf("stores found at offsets %v", at)
	if len(at) < kills/4 {
		t.Errorf("stores were found at offsets %v alone", at)
	}
}

// write writes the store in the folder from its position on, and begins again when it has all, until the process is killed.
func (h *history) write(dir string) {
	d := newDisk(vfs.Default, dir, slog.New(slog.DiscardHandler))
	d.purgeAfter = time.Millisecond
	s, _, err := openStore(d, 3, pebble.NewCache(1<<20))
	h.do(err)
	fmt.Println("open")
	if s.followed.TopicID == "" {
		h.do(s.Reset("topic", h.known(0)))
	}
	for {
		h.do(h.apply(s, 5))
		if s.followed.NextOffset == int64(len(h.entries)) {
			h.do(s.Reset("topic", h.known(0)))
		}
	}
}
