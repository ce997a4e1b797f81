package runstore

import (
	"bytes"
	"errors"
	"log/slog"
	"strings"
	"testing"

	"github.com/cockroachdb/pebble/v2/vfs"
)

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
