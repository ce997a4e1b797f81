package runstore

import (
	"errors"
	"fmt"
	"log/slog"
	"math"
	"os"
	"sync"
	"sync/atomic"
	"time"

	"github.com/cockroachdb/pebble/v2/vfs"

	"github.com/skeinhq/skein/pkg/record"
)

// disk is the file system of all stores of a process. It reports the first failure of any store, and a write that
// failed never returns, because Pebble would panic with its locks held, or retry for ever while writers wait. So after
// a failure the process must end, and nothing may wait for a store.
type disk struct {
	vfs.FS
	dir    string
	logger *slog.Logger
	failed chan struct{} // closed after a failure, which is in err
	once   sync.Once
	err    error
	// timeout is how long one call of a store may take: a disk that does not answer at all has failed, too.
	timeout time.Duration
	// purgeAfter is the delay after an erasure before a store is purged. A store takes the place in purging while it purges.
	purgeAfter time.Duration
	purging    chan struct{}

	reported atomic.Int64 // the second in which an error of Pebble was logged
}

func newDisk(fs vfs.FS, dir string, logger *slog.Logger) *disk {
	return &disk{FS: fs, dir: dir, logger: logger, failed: make(chan struct{}), timeout: time.Minute, purgeAfter: record.ErasedLocallyAfter,
		purging: make(chan struct{}, 1)}
}

// DiskUsage returns how many bytes are free on the disk of a folder, and its size; NaN if the system does not say.
func DiskUsage(dir string) (free, size float64) {
	usage, err := vfs.Default.GetDiskUsage(dir)
	if err != nil {
		return math.NaN(), math.NaN()
	}
	return float64(usage.AvailBytes), float64(usage.TotalBytes)
}

// watch fails the disk unless done is called within the timeout.
func (d *disk) watch() (done func() bool) {
	return time.AfterFunc(d.timeout, func() { _ = d.fail(fmt.Errorf("%w for %v", errStuck, d.timeout)) }).Stop
}

// fail records the failure unless there was one before, and returns the first one with advice on what to do.
func (d *disk) fail(err error) error {
	d.once.Do(func() {
		free := ""
		if !errors.Is(err, errStuck) { // else this call may not return either
			if usage, err := d.GetDiskUsage(d.dir); err == nil {
				free = fmt.Sprintf(" (%d MiB are free there)", usage.AvailBytes>>20)
			}
		}
		d.err = fmt.Errorf("%w, in %s%s: %w. Make room, or name another folder: the next start goes on from what was committed, "+
			"and makes again what it does not find, so the folder can be deleted", ErrFailed, d.dir, free, err)
		if errors.Is(err, errDamaged) {
			d.err = fmt.Errorf("%w, in %s: %w", ErrFailed, d.dir, err)
		}
		close(d.failed)
	})
	return d.err
}

func (d *disk) hasFailed() bool {
	select {
	case <-d.failed:
		return true
	default:
		return false
	}
}

// block returns if err is nil. Otherwise it fails the disk and never returns.
func (d *disk) block(err error) {
	if err != nil {
		_ = d.fail(err)
		select {}
	}
}

// Create implements vfs.FS, as do the other methods that write.
func (d *disk) Create(name string, category vfs.DiskWriteCategory) (vfs.File, error) {
	f, err := d.FS.Create(name, category)
	d.block(err)
	return diskFile{f, d}, nil
}

func (d *disk) OpenDir(name string) (vfs.File, error) {
	f, err := d.FS.OpenDir(name)
	d.block(err)
	return diskFile{f, d}, nil
}

func (d *disk) Rename(oldname, newname string) error {
	d.block(d.FS.Rename(oldname, newname))
	return nil
}

func (d *disk) MkdirAll(dir string, perm os.FileMode) error {
	d.block(d.FS.MkdirAll(dir, perm))
	return nil
}

// Unwrap implements vfs.FS.
func (d *disk) Unwrap() vfs.FS { return d.FS }

// diskFile is a file that is open for writing.
type diskFile struct {
	vfs.File
	disk *disk
}

func (f diskFile) Write(p []byte) (int, error) {
	n, err := f.File.Write(p)
	f.disk.block(err)
	return n, nil
}

func (f diskFile) WriteAt(p []byte, at int64) (int, error) {
	n, err := f.File.WriteAt(p, at)
	f.disk.block(err)
	return n, nil
}

func (f diskFile) Sync() error {
	f.disk.block(f.File.Sync())
	return nil
}

func (f diskFile) SyncData() error {
	f.disk.block(f.File.SyncData())
	return nil
}

func (f diskFile) SyncTo(length int64) (bool, error) {
	all, err := f.File.SyncTo(length)
	f.disk.block(err)
	return all, nil
}

func (f diskFile) Close() error {
	f.disk.block(f.File.Close())
	return nil
}

// Infof implements pebble.Logger. Pebble's messages name files and sizes, never data.
func (d *disk) Infof(string, ...any) {}

// Errorf implements pebble.Logger. It logs at most one error in 10 s, as Pebble reports the same one at each try.
func (d *disk) Errorf(format string, args ...any) {
	now, last := time.Now().Unix(), d.reported.Load()
	if now-last >= 10 && d.reported.CompareAndSwap(last, now) {
		d.logger.Error("local store reported an error", "error", fmt.Sprintf(format, args...))
	}
}

// Fatalf implements pebble.Logger. It must not return: Pebble calls it when its files can no longer be trusted.
func (d *disk) Fatalf(format string, args ...any) { d.block(fmt.Errorf(format, args...)) }
