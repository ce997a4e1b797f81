package dev

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"sync/atomic"

	"github.com/gofrs/flock"
)

// The names in a data folder. The folders of the compactor and the index hold derived data, which can be rebuilt from the broker's topics.
const (
	lockName      = "lock"
	markerName    = "running"
	brokerName    = "kafka"
	compactorName = "compactor"
	indexName     = "index"
)

// ErrFolderInUse means that another process uses the data folder.
var ErrFolderInUse = errors.New("folder in use")

// folder is a locked data folder.
type folder struct {
	path string
	lock *flock.Flock
	// unclean means that the last process did not close the folder: it was killed, or the machine failed.
	unclean bool
	// closed is set once the broker has written all data.
	closed atomic.Bool
}

// openFolder makes the folder, if it does not exist, and locks it. The operating system releases the lock when the process ends.
func openFolder(path string) (*folder, error) {
	path, err := filepath.Abs(path)
	if err != nil {
		return nil, fmt.Errorf("finding data folder: %w", err)
	}
	if err := os.MkdirAll(path, 0o700); err != nil {
		return nil, fmt.Errorf("making data folder: %w", err)
	}
	f := &folder{path: path, lock: flock.New(filepath.Join(path, lockName))}
	locked, err := f.lock.TryLock()
	if err != nil {
		return nil, fmt.Errorf("locking data folder %s: %w", path, err)
	}
	if !locked {
		return nil, fmt.Errorf("locking data folder %s: another skein process has it (%w): stop that one, or choose another with --data",
			path, ErrFolderInUse)
	}
	_, err = os.Stat(f.in(markerName))
	switch {
	case err == nil:
		f.unclean = true
	case !errors.Is(err, fs.ErrNotExist):
		return nil, errors.Join(fmt.Errorf("looking for marker: %w", err), f.lock.Unlock())
	}
	return f, nil
}

func (f *folder) in(name string) string { return filepath.Join(f.path, name) }

// markRunning writes the marker that only a clean end removes. It is on disk before any data, so that the next process detects an
// unclean end.
func (f *folder) markRunning() error {
	m, err := os.Create(f.in(markerName))
	if err != nil {
		return fmt.Errorf("writing marker: %w", err)
	}
	_, err = fmt.Fprintf(m, "process %d uses this folder, or ended without closing it\n", os.Getpid())
	if err := errors.Join(err, m.Sync(), m.Close()); err != nil {
		return fmt.Errorf("writing marker: %w", err)
	}
	return nil
}

// close unlocks the folder. It removes the marker only after a clean end.
func (f *folder) close() error {
	var err error
	if f.closed.Load() {
		err = os.Remove(f.in(markerName))
	}
	return errors.Join(err, f.lock.Unlock())
}

// dropDerived deletes the derived data.
func (f *folder) dropDerived() error {
	for _, name := range []string{compactorName, indexName} {
		if err := os.RemoveAll(f.in(name)); err != nil {
			return fmt.Errorf("dropping derived data: %w", err)
		}
	}
	return nil
}
