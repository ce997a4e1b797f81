package compactor

import (
	"bytes"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"os"
	"strconv"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/cockroachdb/pebble/v2"
	"github.com/cockroachdb/pebble/v2/vfs"
	"github.com/prometheus/client_golang/prometheus/testutil"

	"github.com/skeinhq/skein/pkg/kafka/kafkatest"
	"github.com/skeinhq/skein/pkg/record"
)

// faultyDisk refuses writes to files whose names end like that, once so many bytes are written, and reads once it is told to.
type faultyDisk struct {
	vfs.FS
	suffix string
	left   atomic.Int64
	err    error
	unread atomic.Bool
	hangs  atomic.Pointer[chan struct{}] // reads and writes wait for it
}

// fsOfProcess is what the compactor process of a test stores on.
func fsOfProcess() vfs.FS {
	bytes, suffix, ok := strings.Cut(os.Getenv("COMPACTOR_DISK"), " ")
	if !ok {
		return vfs.Default
	}
	n, err := strconv.Atoi(bytes)
	if err != nil {
		panic(err)
	}
	d := &faultyDisk{FS: vfs.Default, suffix: suffix, err: syscall.ENOSPC}
	d.left.Store(int64(n))
	return d
}

func (d *faultyDisk) Create(name string, category vfs.DiskWriteCategory) (vfs.File, error) {
	if strings.HasSuffix(name, d.suffix) && d.left.Load() < 0 {
		return nil, &fs.PathError{Op: "create", Path: name, Err: d.err}
	}
	f, err := d.FS.Create(name, category)
	return faultyFile{f, d, name}, err
}

func (d *faultyDisk) ReuseForWrite(oldname, newname string, category vfs.DiskWriteCategory) (vfs.File, error) {
	f, err := d.FS.ReuseForWrite(oldname, newname, category)
	return faultyFile{f, d, newname}, err
}

func (d *faultyDisk) Open(name string, opts ...vfs.OpenOption) (vfs.File, error) {
	f, err := d.FS.Open(name, opts...)
	return faultyFile{f, d, name}, err
}

func (d *faultyDisk) wait() {
	if until := d.hangs.Load(); until != nil {
		<-*until
	}
}

type faultyFile struct {
	vfs.File
	disk *faultyDisk
	name string
}

func (f faultyFile) Write(p []byte) (int, error) {
	f.disk.wait()
	if strings.HasSuffix(f.name, f.disk.suffix) && f.disk.left.Add(-int64(len(p))) < 0 {
		return 0, &fs.PathError{Op: "write", Path: f.name, Err: f.disk.err}
	}
	return f.File.Write(p)
}

func (f faultyFile) ReadAt(p []byte, at int64) (int, error) {
	f.disk.wait()
	if f.disk.unread.Load() {
		return 0, &fs.PathError{Op: "read", Path: f.name, Err: syscall.EIO}
	}
	return f.File.ReadAt(p, at)
}

// whatFillsIt are runs that a local store of some MiB has no room for.
func whatFillsIt(t *testing.T) *sim {
	s := newSim(t, nil)
	for i := range 40 {
		run := fmt.Sprint("r", i)
		s.send("t", run, started(run))
		s.send("t", run, text("m"+run, strings.Repeat(run, 100<<10)))
		s.send("t", run, finished(run))
	}
	return s
}

// The disk is full: in the log, where Pebble would panic with its locks held, or in the tables, where it would try again for
// ever and the next write would wait for it. The process ends, says once what to do, and the next one on an emptied
// folder goes on.
func TestService_EndsWhereItsDiskIsFull(t *testing.T) {
	for name, disk := range map[string]string{
		"from the start": "0 ", "for the log": "2000000 .log", "for tables": "10000 .sst", "for what lists them": "0 MANIFEST-000001",
	} {
		t.Run(name, func(t *testing.T) {
			k := kafkatest.Start(t, 1)
			s := whatFillsIt(t)
			produce(t, k, 1, s.events...)
			dir := t.TempDir()
			p := startProcess(t, k, dir, "a", "COMPACTOR_DISK="+disk)
			waitEnded(t, p)
			log := p.log.String()
			for _, want := range []string{ErrStore.Error() + ", in " + dir + " (", "no space left on device", "the folder can be deleted"} {
				if !strings.Contains(log, want) {
					t.Errorf("its log does not say %q", want)
				}
			}
			if n := strings.Count(log, "local store reported an error"); n > 1 {
				t.Errorf("it has passed on %d lines of Pebble's", n)
			}
			if strings.Contains(log, "goroutine ") || !strings.Contains(log, "ready=\""+ErrStore.Error()) {
				t.Error("it has panicked, or calls itself ready")
			}
			if err := os.RemoveAll(dir); err != nil {
				t.Fatal(err)
			}
			runService(t, k, testConfig(dir, "a"))
			s.turn("last", "m")
			produce(t, k, 1, s.events[len(s.events)-3:]...)
			waitSealed(t, k, 41)
			waitDecided(t, k, 1)
			isTheFold(t, k)
		})
	}
}

// waitEnded waits until a process has ended by itself.
func waitEnded(t *testing.T, p *process) {
	t.Helper()
	select {
	case <-p.ended:
	case <-time.After(4 * kafkatest.Timeout):
		p.kill()
		t.Fatal("the process has not ended")
	}
}

// A store that contradicts itself is no reason to begin another session on it, again and again.
func TestService_MakesAStoreAnewThatContradictsItself(t *testing.T) {
	k := kafkatest.Start(t, 1)
	cfg := testConfig(t.TempDir(), "a")
	s := newSim(t, nil)
	s.turn("r1", "m1")
	produce(t, k, 1, s.events...)
	_, _, stop := runService(t, k, cfg)
	waitDecided(t, k, 1)
	if err := stop(); err != nil {
		t.Fatal(err)
	}
	cache := pebble.NewCache(0)
	defer cache.Unref()
	store, _, err := openStore(newDisk(vfs.Default, cfg.Dir, slog.New(slog.DiscardHandler)), 0, cache)
	if err != nil {
		t.Fatal(err)
	}
	if err := errors.Join(store.db.Delete(storeKey('r', []byte("acme/t/r1")), pebble.Sync), store.close()); err != nil {
		t.Fatal(err)
	}
	before := len(s.events)
	s.turn("r2", "m2") // which goes on from it
	produce(t, k, 1, s.events[before:]...)
	p := startProcess(t, k, cfg.Dir, cfg.InstanceID)
	waitEnded(t, p)
	if log := p.log.String(); !strings.Contains(log, errDamaged.Error()) || !strings.Contains(log, "reading \\\"acme/t/r1\\\": "+errMissing.Error()) {
		t.Errorf("its log is %s", log)
	}
	_, metrics, _ := runService(t, k, cfg)
	waitDecided(t, k, 1)
	isTheFold(t, k)
	equal(t, "stores made anew", testutil.ToFloat64(metrics.Rebuilds.WithLabelValues(rebuildDamage)), 1)
}

// Reads that fail are no reason to begin another session on the same store, nor to throw it away.
func TestLocalStore_SaysWhatToDoWhereItCannotBeRead(t *testing.T) {
	faulty := &faultyDisk{FS: vfs.NewMem(), suffix: "never"}
	cache := pebble.NewCache(0)
	defer cache.Unref()
	d := newDisk(faulty, "dir", slog.New(slog.DiscardHandler))
	isSaid := func(err error) {
		t.Helper()
		if !errors.Is(err, ErrStore) || !errors.Is(err, syscall.EIO) || !strings.Contains(err.Error(), "in dir") {
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
	if err := errors.Join(s.apply([]entry{storeRecord(t, "t", "a", record.StatusFinished, 1)}, time.Now()), s.db.Flush()); err != nil {
		t.Fatal(err)
	}
	faulty.unread.Store(true)
	_, _, err = s.run("acme/t/a")
	isSaid(err)
	faulty.unread.Store(false)
	if err := s.close(); err != nil {
		t.Error(err)
	}

	d = newDisk(faulty, "dir", slog.New(slog.DiscardHandler))
	faulty.unread.Store(true)
	_, _, err = openStore(d, 3, cache)
	isSaid(err)
	faulty.unread.Store(false)
	s, rebuilt, err := openStore(newDisk(faulty, "dir", slog.New(slog.DiscardHandler)), 3, cache)
	if err != nil {
		t.Fatal(err)
	}
	equal(t, "reason to make it anew", rebuilt, "")
	if err := s.close(); err != nil {
		t.Error(err)
	}
}

// A disk that says nothing is one that fails: the client's heartbeats must not go on over an actor that waits for it.
func TestLocalStore_GivesUpOnADiskThatDoesNotAnswer(t *testing.T) {
	var entries []entry
	for i := range 12_000 { // more than a log takes
		entries = append(entries, storeRecord(t, "t", fmt.Sprint(i), record.StatusFinished, int64(i)))
	}
	for name, do := range map[string]func(s *localStore) error{
		"opening": func(s *localStore) error {
			other, _, err := openStore(s.disk, 4, nil)
			if err != nil {
				return err
			}
			return errors.Join(other.close(), s.close())
		},
		"writing": func(s *localStore) error { return errors.Join(s.apply(entries, time.Now()), s.close()) },
		"a key":   func(s *localStore) error { _, _, err := s.run("acme/t/a"); return errors.Join(err, s.close()) },
		"keys":    func(s *localStore) error { _, err := s.heads("acme/t"); return errors.Join(err, s.close()) },
		"closing": func(s *localStore) error { return s.close() },
	} {
		t.Run(name, func(t *testing.T) {
			faulty := &faultyDisk{FS: vfs.NewMem(), suffix: "never"}
			cache := pebble.NewCache(0)
			defer cache.Unref()
			d := newDisk(faulty, "dir", slog.New(slog.DiscardHandler))
			s, _, err := openStore(d, 3, cache)
			if err != nil {
				t.Fatal(err)
			}
			if err := errors.Join(s.apply([]entry{storeRecord(t, "t", "a", record.StatusFinished, 0)}, time.Now()), s.db.Flush()); err != nil {
				t.Fatal(err)
			}
			d.patience = time.Millisecond
			until, done := make(chan struct{}), make(chan error, 1)
			faulty.hangs.Store(&until)
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

func TestDisk_SaysTheSameOnceInAWhile(t *testing.T) {
	log := new(bytes.Buffer)
	d := newDisk(vfs.NewMem(), "dir", slog.New(slog.NewTextHandler(log, nil)))
	for range 1000 {
		d.Errorf("again")
	}
	if n := strings.Count(log.String(), "\n"); n != 1 && n != 2 { // two on a machine that stands still in between
		t.Errorf("%d lines", n)
	}
	one := errors.New("one")
	_ = d.fail(one)
	if err := d.fail(errors.New("two")); !errors.Is(err, one) {
		t.Errorf("the first failure is followed by %v", err)
	}
}
