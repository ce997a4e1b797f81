package storetest

import (
	"errors"
	"slices"
	"testing"
	"time"

	"github.com/skeinhq/skein/pkg/record"
	"github.com/skeinhq/skein/pkg/search"
	"github.com/skeinhq/skein/pkg/store"
)

// Runs of the suite end two seconds after their start, which is as many seconds behind epoch as their first offset.
func expiry(t *testing.T, s Store) {
	at := func(tenant, thread, run string, first int64, status record.Status) store.Entry {
		k := key{tenant, thread, run}
		return k.entry(first, k.record(first, status, "m"+run))
	}
	recorded := func(e store.Entry, second int) store.Entry {
		e.At = epoch.Add(time.Duration(second) * time.Second)
		return e
	}
	write(t, s,
		at("acme", "old", "a", 10, record.StatusFinished), at("acme", "old", "b", 40, record.StatusAbandoned),
		at("acme", "goes on", "a", 11, record.StatusFinished), at("acme", "goes on", "b", 60, record.StatusFinished),
		at("acme", "open", "a", 12, record.StatusFinished), at("acme", "open", "b", 13, record.StatusRunning),
		at("acme", "ends then", "a", 48, record.StatusFinished), // at 50
		at("other", "old", "a", 10, record.StatusFinished),
		recorded(at("acme", "clock behind", "a", 10, record.StatusFinished), 50),
		at("acme", "it's\x00 a \\ and a ? {x:String} $1", "a", 10, record.StatusFinished),
		recorded(at("acme", "clock ahead", "a", 1_000_000, record.StatusFinished), 49),
		key{"acme", "old", "erased"}.entry(41, nil),
	)
	positions, err := s.IndexedTo(t.Context(), "other")
	if err != nil {
		t.Fatal(err)
	}
	old, err := s.Thread(t.Context(), "acme", "old")
	if err != nil {
		t.Fatal(err)
	}
	before := epoch.Add(50 * time.Second)
	for i, want := range []int{3, 0} {
		if n, err := s.Expire(t.Context(), "acme", before); n != want || err != nil {
			t.Fatalf("call %d: %d threads, %v; want %d", i, n, err, want)
		}
	}
	if got, err := s.Tenants(t.Context()); !slices.Contains(got, "acme") || !slices.Contains(got, "other") || slices.Contains(got, "") ||
		err != nil {
		t.Errorf("tenants %q, %v", got, err)
	}
	if got := walk(t, s, store.ThreadQuery{Limit: 100}); !slices.Equal(got, []string{"clock behind", "ends then", "goes on", "open"}) {
		t.Errorf("threads %q", got)
	}
	if runs, err := s.Thread(t.Context(), "acme", "old"); !errors.Is(err, store.ErrNotFound) {
		t.Errorf("the expired thread has %d runs, %v", len(runs), err)
	}
	if c, err := s.Contents(t.Context(), "acme", "old", old); len(c) != 0 || err != nil {
		t.Errorf("the expired thread has contents: %v, %v", c, err)
	}
	if c := mustContents(t, s, "acme", "goes on", "a", "b"); len(c) != 2 {
		t.Errorf("a thread that goes on has %d contents, want 2", len(c))
	}
	page, err := s.Search(t.Context(), "acme",
		search.Query{Sort: search.SortStarted, Limit: 100, Bounds: search.Bounds{Rows: 1e6, Time: time.Minute}})
	if err != nil || len(page.Runs) != 6 {
		t.Errorf("a search finds %d runs, %v; want 6", len(page.Runs), err)
	}
	if runs, err := s.Thread(t.Context(), "other", "old"); len(runs) != 1 || err != nil {
		t.Errorf("another tenant's thread: %d runs, %v", len(runs), err)
	}
	if again, err := s.IndexedTo(t.Context(), "other"); err != nil || again[3] != positions[3] {
		t.Errorf("position %d, before %d, %v", again[3], positions[3], err)
	}
	// The tombstone stayed, and a thread may come back.
	write(t, s, at("acme", "old", "erased", 39, record.StatusFinished), at("acme", "old", "c", 70, record.StatusFinished))
	runs, err := s.Thread(t.Context(), "acme", "old")
	if err != nil || len(runs) != 1 || runs[0].RunID != "c" {
		t.Errorf("a thread that came back: %d runs, %v; want c alone", len(runs), err)
	}
}
