// Package runstoretest helps to test what stores on a disk.
package runstoretest

import (
	"io/fs"
	"strings"
	"sync/atomic"
	"syscall"

	"github.com/cockroachdb/pebble/v2/vfs"
)

// FaultyDisk refuses writes to files whose names end with Suffix, once Left bytes are written, with Err; and reads once Unread is set.
type FaultyDisk struct {
	vfs.FS
	Suffix string
	Left   atomic.Int64
	Err    error
	Unread atomic.Bool
	Hangs  atomic.Pointer[chan struct{}] // reads and writes wait until it is closed
}

// Create implements vfs.FS.
func (d *FaultyDisk) Create(name string, category vfs.DiskWriteCategory) (vfs.File, error) {
	if strings.HasSuffix(name, d.Suffix) && d.Left.Load() < 0 {
		return nil, &fs.PathError{Op: "create", Path: name, Err: d.Err}
	}
	f, err := d.FS.Create(name, category)
	return faultyFile{f, d, name}, err
}

// Open implements vfs.FS.
func (d *FaultyDisk) Open(name string, opts ...vfs.OpenOption) (vfs.File, error) {
	f, err := d.FS.Open(name, opts...)
	return faultyFile{f, d, name}, err
}

func (d *FaultyDisk) wait() {
	if until := d.Hangs.Load(); until != nil {
		<-*until
	}
}

type faultyFile struct {
	vfs.File
	disk *FaultyDisk
	name string
}

func (f faultyFile) Write(p []byte) (int, error) {
	f.disk.wait()
	if strings.HasSuffix(f.name, f.disk.Suffix) && f.disk.Left.Add(-int64(len(p))) < 0 {
		return 0, &fs.PathError{Op: "write", Path: f.name, Err: f.disk.Err}
	}
	return f.File.Write(p)
}

func (f faultyFile) ReadAt(p []byte, at int64) (int, error) {
	f.disk.wait()
	if f.disk.Unread.Load() {
		return 0, &fs.PathError{Op: "read", Path: f.name, Err: syscall.EIO}
	}
	return f.File.ReadAt(p, at)
}
