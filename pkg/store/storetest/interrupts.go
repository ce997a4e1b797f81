package storetest

import (
	"slices"
	"testing"

	"github.com/skeinhq/skein/pkg/record"
	"github.com/skeinhq/skein/pkg/store"
)

// Runs that ended with an interrupt wait for an answer until one goes on from them; the longest waiting come first.
func interrupted(t *testing.T, s Store) {
	var entries []store.Entry
	add := func(tenant, thread, run, parent, agent string, first int64, status record.Status) {
		k := key{tenant, thread, run}
		r := k.record(first, status)
		r.ParentRunID, r.Agent = parent, agent
		entries = append(entries, k.entry(int64(len(entries)), r))
	}
	add("acme", "t1", "late", "", "shop", 900, record.StatusInterrupted)
	add("acme", "t2", "early", "", "desk", 10, record.StatusInterrupted)
	add("acme", "t3", "answered", "", "shop", 20, record.StatusInterrupted)
	add("acme", "t3", "answer", "answered", "shop", 40, record.StatusRunning)
	add("acme", "t3", "beside", "", "shop", 60, record.StatusInterrupted)
	add("acme", "t4", "answered", "", "shop", 70, record.StatusInterrupted) // an answer of another thread
	add("acme", "t5", "nul\x00a", "", "shop", 80, record.StatusInterrupted)
	add("acme", "t5", "nul\x00b", "nul\x00a", "shop", 100, record.StatusInterrupted)
	add("acme", "t6", "same time", "", "shop", 900, record.StatusInterrupted)
	add("acme", "t7", "erased", "", "shop", 95, record.StatusInterrupted)
	add("acme", "t8", "finished", "", "shop", 96, record.StatusFinished)
	add("umbrella", "t1", "late", "", "shop", 5, record.StatusInterrupted)
	add("umbrella", "t1", "answer", "early", "shop", 7, record.StatusFinished)
	entries = append(entries, key{"acme", "t7", "erased"}.entry(99, nil))
	write(t, s, entries...)

	want := []string{"t2/early", "t3/beside", "t4/answered", "t5/nul\x00b", "t1/late", "t6/same time"}
	for _, limit := range []int{1, 2, 5, 6, 7, 1000} {
		q, got := store.InterruptQuery{Limit: limit}, []string{}
		for range 10 {
			page, next, err := s.Interrupted(t.Context(), "acme", q)
			if err != nil {
				t.Fatal(err)
			}
			if len(page) > limit || next != nil && len(page) != limit {
				t.Errorf("a page of %d with a limit of %d", len(page), limit)
			}
			for _, r := range page {
				got = append(got, r.ThreadID+"/"+r.RunID)
			}
			if next == nil {
				break
			}
			q.After = *next
		}
		if !slices.Equal(got, want) {
			t.Errorf("in pages of %d: %q, want %q", limit, got, want)
		}
	}
	for agent, want := range map[string]int{"desk": 1, "shop": 5, "sho": 0} {
		if page, _, err := s.Interrupted(t.Context(), "acme", store.InterruptQuery{Agent: agent, Limit: 10}); err != nil || len(page) != want {
			t.Errorf("of agent %s: %d runs, %v, want %d", agent, len(page), err, want)
		}
	}
	if page, next, err := s.Interrupted(t.Context(), "nobody", store.InterruptQuery{Limit: 10}); err != nil || len(page) != 0 || next != nil {
		t.Errorf("of a tenant without runs: %d, %v, %v", len(page), next, err)
	}
}
