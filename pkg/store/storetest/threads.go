package storetest

import (
	"context"
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/skeinhq/skein/pkg/record"
	"github.com/skeinhq/skein/pkg/store"
)

func threadOrder(t *testing.T, s Store) {
	firsts := map[string]int64{"c": 2, "a": 10, "b": 9, "d": 100}
	version := int64(0)
	for run, first := range firsts {
		version++
		k := key{"acme", "thread", run}
		write(t, s, k.entry(version, k.record(first, record.StatusFinished)))
	}
	runs, err := s.Thread(t.Context(), "acme", "thread")
	if err != nil {
		t.Fatal(err)
	}
	var got []string
	for _, r := range runs {
		got = append(got, r.RunID)
	}
	if want := []string{"c", "b", "a", "d"}; !slices.Equal(got, want) {
		t.Errorf("runs %v, want %v", got, want)
	}
}

// walk reads all pages and returns the thread ids.
func walk(t *testing.T, s Store, q store.ThreadQuery) []string {
	t.Helper()
	ids := []string{}
	for range 1000 {
		page, next, err := s.Threads(t.Context(), "acme", q)
		if err != nil {
			t.Fatalf("Threads(%+v): %v", q, err)
		}
		if len(page) > q.Limit {
			t.Fatalf("page of %d, limit %d", len(page), q.Limit)
		}
		for _, th := range page {
			ids = append(ids, th.ThreadID)
		}
		if next == "" {
			return ids
		}
		if len(page) == 0 {
			t.Fatalf("an empty page with a next one after %q", next)
		}
		q.After = next
	}
	t.Fatal("the pages do not end")
	return nil
}

func threadPages(t *testing.T, s Store) {
	var entries []store.Entry
	var want []string
	for i := range 23 {
		for j := range 1 + i%3 {
			k := key{"acme", fmt.Sprintf("thread-%02d", i), fmt.Sprint("run-", j)}
			entries = append(entries, k.entry(int64(len(entries)), k.record(int64(100*i+10*j), record.StatusFinished)))
		}
		want = append(want, fmt.Sprintf("thread-%02d", i))
	}
	other := key{"acme2", "thread-05b", "run"}
	write(t, s, append(entries, other.entry(999, other.record(0, record.StatusFinished)))...)
	for _, limit := range []int{1, 2, 5, 22, 23, 24, 1000} {
		if got := walk(t, s, store.ThreadQuery{Limit: limit}); !slices.Equal(got, want) {
			t.Errorf("pages of %d: %v", limit, got)
		}
	}
	page, next, err := s.Threads(t.Context(), "acme", store.ThreadQuery{Limit: 23})
	if err != nil || len(page) != 23 || next != "" {
		t.Errorf("a page that holds all says next %q (%d threads, error %v)", next, len(page), err)
	}
}

func threadFilters(t *testing.T, s Store) {
	var entries []store.Entry
	add := func(thread string, at int64, statuses ...record.Status) {
		for i, st := range statuses {
			k := key{"acme", thread, fmt.Sprint("run-", i)}
			entries = append(entries, k.entry(int64(len(entries)), k.record(at+int64(10*i), st)))
		}
	}
	add("ab", 0, record.StatusFinished)
	add("abc", 1000, record.StatusFinished, record.StatusRunning)
	add("abd", 2000, record.StatusError)
	add("b", 3000, record.StatusRunning, record.StatusFinished)
	add("z%", 4000, record.StatusAbandoned)
	for i, agent := range []string{"shop", "desk", "shop", "", "desk", "shop", "it's"} { // of each run
		entries[i].Run.Agent = agent
	}
	write(t, s, entries...)
	at := func(sec int) time.Time { return epoch.Add(time.Duration(sec) * time.Second) }
	for _, c := range []struct {
		name string
		q    store.ThreadQuery
		want []string
	}{
		{"none", store.ThreadQuery{}, []string{"ab", "abc", "abd", "b", "z%"}},
		{"prefix", store.ThreadQuery{Prefix: "ab"}, []string{"ab", "abc", "abd"}},
		{"prefix that is no pattern", store.ThreadQuery{Prefix: "%"}, []string{}},
		{"prefix of none", store.ThreadQuery{Prefix: "abcd"}, []string{}},
		{"status of the last run", store.ThreadQuery{Status: record.StatusFinished}, []string{"ab", "b"}},
		{"running", store.ThreadQuery{Status: record.StatusRunning}, []string{"abc"}},
		{"since the end of a run", store.ThreadQuery{Since: at(2002)}, []string{"abd", "b", "z%"}},
		{"since after it", store.ThreadQuery{Since: at(2003)}, []string{"b", "z%"}},
		{"since long after", store.ThreadQuery{Since: at(9999)}, []string{}},
		{"agent of any run", store.ThreadQuery{Agent: "shop"}, []string{"ab", "abc", "b"}},
		{"agent in quotes", store.ThreadQuery{Agent: "it's"}, []string{"z%"}},
		{"agent of none", store.ThreadQuery{Agent: "sho"}, []string{}},
		{"all of them", store.ThreadQuery{Prefix: "ab", Status: record.StatusFinished, Agent: "shop", Since: at(0)}, []string{"ab"}},
	} {
		for _, limit := range []int{1, 100} {
			c.q.Limit = limit
			if got := walk(t, s, c.q); !slices.Equal(got, c.want) {
				t.Errorf("%s, pages of %d: %v, want %v", c.name, limit, got, c.want)
			}
		}
	}
}

func threadSummary(t *testing.T, s Store) {
	a, b, c := key{"acme", "thread", "a"}, key{"acme", "thread", "b"}, key{"acme", "thread", "c"}
	ra := a.record(10, record.StatusFinished, "1", "2")
	rb := b.record(30, record.StatusRunning, "3")
	rb.BranchID, rb.MessageCount = "a", 3
	rc := c.record(20, record.StatusError, "4")
	// The last run started last, even if it did not end last.
	late := epoch.Add(time.Hour)
	rc.EndedAt = &late
	d := key{"acme", "thread", "d"} // what a run spawned does not stand for the thread
	rd := d.record(40, record.StatusFinished)
	rd.SpawnedBy, rd.Spawned = "a", true
	write(t, s, a.entry(1, ra), b.entry(2, rb), c.entry(3, rc), d.entry(4, rd))
	threads, _, err := s.Threads(t.Context(), "acme", store.ThreadQuery{Limit: 10})
	if err != nil || len(threads) != 1 {
		t.Fatalf("Threads = %v, %v", threads, err)
	}
	want := store.Thread{
		ThreadID: "thread", Runs: 4, OpenRuns: 1, Branches: 3, Messages: 3,
		StartedAt: epoch.Add(10 * time.Second), UpdatedAt: late, LastRunID: "b", Status: "running",
	}
	if got := threads[0]; got != want {
		t.Errorf("got  %+v\nwant %+v", got, want)
	}
}

func indexedTo(t *testing.T, s Store) {
	put := func(run string, version int64, partition int32, first int64, status record.Status) {
		k := key{"acme", fmt.Sprint("thread-", partition), run}
		r := k.record(first, status)
		r.Raw.Partition = partition
		e := k.entry(version, r)
		e.Partition = partition
		write(t, s, e)
	}
	put("a", 1, 0, 100, record.StatusFinished)
	put("b", 2, 0, 50, record.StatusFinished)
	put("c", 1, 7, 3, record.StatusRunning)
	put("d", 1, 11, 0, record.StatusFinished)
	to, err := s.IndexedTo(t.Context(), "acme")
	if err != nil || len(to) != 3 || to[0] != 105 || to[7] != 8 || to[11] != 5 {
		t.Errorf("IndexedTo = %v, %v; want 0:105 7:8 11:5", to, err)
	}
}

func cancelled(t *testing.T, s Store) {
	write(t, s, k1.entry(1, k1.record(0, record.StatusFinished, "a")))
	before := mustDump(t, s, "acme")
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if err := s.Write(ctx, []store.Entry{k1.entry(2, nil)}); err == nil {
		t.Error("Write with a cancelled context says that it wrote")
	}
	if _, err := s.Thread(ctx, "acme", "thread"); err == nil {
		t.Error("Thread with a cancelled context has an answer")
	}
	equal(t, "thread", mustDump(t, s, "acme"), before)
}
