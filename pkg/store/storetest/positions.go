package storetest

import (
	"maps"
	"testing"
	"time"

	"github.com/skeinhq/skein/pkg/record"
	"github.com/skeinhq/skein/pkg/store"
)

// position returns a progress record of a partition.
func position(partition int32, version, next int64) store.Entry {
	return store.Entry{Partition: partition, Version: version, Position: &store.Position{Next: next}}
}

func wantIndexedTo(t testing.TB, s Store, what, tenant string, want map[int32]int64) {
	t.Helper()
	if got, err := s.IndexedTo(t.Context(), tenant); err != nil || !maps.Equal(got, want) {
		t.Errorf("%s: IndexedTo for %s = %v, %v; want %v", what, tenant, got, err, want)
	}
}

func positionAlone(t *testing.T, s Store) {
	write(t, s, position(3, 10, 42), position(5, 7, 0))
	for _, tenant := range []string{"acme", "nobody", "3"} {
		wantIndexedTo(t, s, "positions alone", tenant, map[int32]int64{3: 42, 5: 0})
		threads, next, err := s.Threads(t.Context(), tenant, store.ThreadQuery{Limit: 10})
		if err != nil || len(threads) != 0 || next != "" {
			t.Errorf("Threads = %v, %q, %v: a position made a thread", threads, next, err)
		}
	}
	_, err := s.Thread(t.Context(), "", "")
	wantNotFound(t, err)
	_, err = s.Run(t.Context(), "", "", "")
	wantNotFound(t, err)
}

func positionBesideRows(t *testing.T, s Store) {
	theirs := key{"acme2", "thread", "run-1"}
	write(t, s,
		k1.entry(10, k1.record(100, record.StatusFinished, "a")), // up to 105
		position(3, 11, 107),
		theirs.entry(12, theirs.record(200, record.StatusFinished, "b"))) // up to 205
	wantIndexedTo(t, s, "a position beyond the row", "acme", map[int32]int64{3: 107})
	wantIndexedTo(t, s, "a row beyond the position", "acme2", map[int32]int64{3: 205})
	wantIndexedTo(t, s, "no row", "nobody", map[int32]int64{3: 107})

	write(t, s, position(3, 13, 205), position(4, 1, 9))
	for _, tenant := range []string{"acme", "acme2", "nobody"} {
		wantIndexedTo(t, s, "a newer position and another partition", tenant, map[int32]int64{3: 205, 4: 9})
	}
	equal(t, "contents", contentText(mustContents(t, s, "acme", "thread", "run-1")["run-1"]),
		contentText(store.Content{Messages: k1.record(100, record.StatusFinished, "a").Messages, State: []byte(`{"end":100}`)}))
}

func olderPosition(t *testing.T, s Store) {
	write(t, s, position(3, 10, 42))
	write(t, s, position(3, 10, 42))
	write(t, s, position(3, 8, 40), position(3, 9, 41))
	wantIndexedTo(t, s, "older ones, read again", "acme", map[int32]int64{3: 42})
	write(t, s, position(3, 11, 41))
	wantIndexedTo(t, s, "a newer one that says less", "acme", map[int32]int64{3: 42})
}

func positionAfterErasure(t *testing.T, s Store) {
	write(t, s, k1.entry(10, k1.record(100, record.StatusFinished, "a")), position(3, 11, 105))
	write(t, s, k1.entry(12, nil), position(3, 13, 106))
	wantIndexedTo(t, s, "the run and its deletion", "acme", map[int32]int64{3: 106})
	write(t, s, k1.entry(10, k1.record(100, record.StatusFinished, "a")), position(3, 11, 105))
	wantIndexedTo(t, s, "all of it read again", "acme", map[int32]int64{3: 106})
	_, err := s.Run(t.Context(), "acme", "thread", "run-1")
	wantNotFound(t, err)
}

func erasures(t *testing.T, s Store) {
	at := time.Date(2026, 11, 21, 1, 2, 3, 4_000_000, time.UTC)
	erasure := func(k key, version, below int64, at time.Time) store.Entry {
		return store.Entry{
			Partition: 3, Version: version, Tenant: k.tenant, ThreadID: k.thread,
			Erasure: &store.Erasure{Below: below, At: at},
		}
	}
	want := func(what, tenant, thread string, want store.Erasure) {
		t.Helper()
		if got, err := s.Erasure(t.Context(), tenant, thread); err != nil || got != want {
			t.Errorf("%s: %+v, %v; want %+v", what, got, err, want)
		}
	}
	_, err := s.Erasure(t.Context(), "acme", "thread")
	wantNotFound(t, err)
	write(t, s, k1.entry(10, k1.record(100, record.StatusFinished, "a")))
	write(t, s, k1.entry(11, nil), erasure(k1, 12, 106, at))
	want("an erasure", "acme", "thread", store.Erasure{Below: 106, At: at})
	_, err = s.Thread(t.Context(), "acme", "thread")
	wantNotFound(t, err)
	threads, _, err := s.Threads(t.Context(), "acme", store.ThreadQuery{Limit: 10})
	if err != nil || len(threads) != 0 {
		t.Errorf("Threads = %v, %v: an erasure made a thread", threads, err)
	}
	wantIndexedTo(t, s, "an erasure is no position", "nobody", map[int32]int64{})
	for _, other := range []key{{"acme2", "thread", ""}, {"acme", "thread2", ""}, {"", "", ""}} {
		_, err = s.Erasure(t.Context(), other.tenant, other.thread)
		wantNotFound(t, err)
	}

	later := at.Add(time.Hour)
	write(t, s, erasure(k1, 20, 200, later), erasure(k1, 12, 106, at), k1.entry(21, k1.record(300, record.StatusFinished, "b")))
	write(t, s, erasure(k1, 12, 106, at))
	want("a newer one, the older read again", "acme", "thread", store.Erasure{Below: 200, At: later})
	if _, err := s.Run(t.Context(), "acme", "thread", "run-1"); err != nil {
		t.Errorf("a run of the thread's next life: %v", err)
	}
}
