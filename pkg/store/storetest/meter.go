package storetest

import (
	"context"
	"errors"
	"strings"
	"sync"
	"testing"

	"github.com/skeinhq/skein/pkg/record"
	"github.com/skeinhq/skein/pkg/store"
)

func metered(t *testing.T, s Store) {
	long := strings.Repeat("x", 10_000)
	runs := []string{"run 1", "run 2", "run 3"}
	for i, id := range runs {
		k := key{"acme", "thread", id}
		write(t, s, k.entry(int64(i+1), k.record(int64(i)*10, record.StatusFinished, "short", long)))
	}
	rows, err := s.Thread(t.Context(), "acme", "thread")
	if err != nil {
		t.Fatal(err)
	}
	errFull := errors.New("full")
	for _, read := range []struct {
		name  string
		least int64 // of bytes
		call  func(ctx context.Context) error
	}{
		{"Thread", 3 * store.RowBytes, func(ctx context.Context) error { _, err := s.Thread(ctx, "acme", "thread"); return err }},
		{"Lineage", 3 * store.RowBytes, func(ctx context.Context) error { _, err := s.Lineage(ctx, "acme", "thread"); return err }},
		{"Run", store.RowBytes, func(ctx context.Context) error { _, err := s.Run(ctx, "acme", "thread", "run 1"); return err }},
		{"Contents", 3 * int64(len(long)), func(ctx context.Context) error {
			_, err := s.Contents(ctx, "acme", "thread", rows)
			return err
		}},
	} {
		var mu sync.Mutex
		counted := int64(0)
		count := func(limit int64) func(int64) error {
			counted = 0
			return func(n int64) error {
				mu.Lock()
				defer mu.Unlock()
				if counted += n; counted > limit {
					return errFull
				}
				return nil
			}
		}
		if err := read.call(store.WithMeter(t.Context(), count(1<<30))); err != nil || counted < read.least || counted > 10*read.least {
			t.Errorf("%s counts %d bytes, want %d or some more: %v", read.name, counted, read.least, err)
		}
		if err := read.call(store.WithMeter(t.Context(), count(counted-1))); !errors.Is(err, errFull) {
			t.Errorf("%s over the meter's limit: %v", read.name, err)
		}
	}
}
