package runstore

import (
	"log/slog"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/cockroachdb/pebble/v2/vfs"

	"github.com/skeinhq/skein/pkg/kafka/kafkatest"
)

// slowDisk lets what is opened below a folder wait.
type slowDisk struct {
	vfs.FS
	below        string
	begun, until chan struct{}
}

func (d slowDisk) MkdirAll(dir string, perm os.FileMode) error {
	if strings.HasSuffix(dir, d.below) {
		select {
		case d.begun <- struct{}{}:
		default:
		}
		<-d.until
	}
	return d.FS.MkdirAll(dir, perm)
}

// A store that takes long to open keeps no other partition waiting.
func TestSet_OpensStoresSideBySide(t *testing.T) {
	begun, until, first := make(chan struct{}, 1), make(chan struct{}), make(chan error, 1)
	s := NewSet(slowDisk{vfs.NewMem(), "/0", begun, until}, "dir", slog.New(slog.DiscardHandler))
	lock := func(partition int32, done chan<- error) {
		_, _, unlock, err := s.Lock(partition)
		if err == nil {
			unlock()
		}
		done <- err
	}
	go lock(0, first)
	<-begun
	for range 2 { // the second one finds it open
		second := make(chan error, 1)
		go lock(1, second)
		select {
		case err := <-second:
			if err != nil {
				t.Error(err)
			}
		case <-time.After(kafkatest.Timeout):
			t.Error("a store waits until another one is open")
		}
	}
	close(until)
	if err := <-first; err != nil {
		t.Error(err)
	}
	if err := s.Close(); err != nil {
		t.Error(err)
	}
}
