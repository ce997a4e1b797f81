package storetest

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	"github.com/skeinhq/skein/pkg/record"
	"github.com/skeinhq/skein/pkg/search"
	"github.com/skeinhq/skein/pkg/store"
)

func detail(version int64, tenant, thread, name, value string) store.Entry {
	return store.Entry{Partition: 3, Version: version, Tenant: tenant, ThreadID: thread, Detail: &record.Detail{Name: name, Value: value}}
}

func threadErasure(version int64, tenant, thread string) store.Entry {
	return store.Entry{Partition: 3, Version: version, Tenant: tenant, ThreadID: thread, Erasure: &store.Erasure{Below: version, At: epoch}}
}

func wantDetails(t *testing.T, s Store, what, tenant, thread string, want store.Details) {
	t.Helper()
	if got, err := s.Details(t.Context(), tenant, thread); err != nil || got != want {
		t.Errorf("%s: %+v, %v; want %+v", what, got, err, want)
	}
}

func details(t *testing.T, s Store) {
	for _, k := range []key{{"acme", "a", "r"}, {"acme", "b", "r"}, {"acme", "c", "r"}, {"other", "a", "r"}} {
		write(t, s, k.entry(1, k.record(10, record.StatusFinished)))
	}
	write(t, s, detail(2, "acme", "a", record.DetailTitle, "Straße nach Oslo"), detail(3, "acme", "b", record.DetailTitle, "Oslo, zurück"),
		detail(4, "acme", "b", record.DetailArchived, "true"), detail(5, "acme", "never", record.DetailTitle, "of no run"),
		detail(6, "other", "a", record.DetailTitle, "of another tenant"))
	wantDetails(t, s, "a title", "acme", "a", store.Details{Title: "Straße nach Oslo"})
	wantDetails(t, s, "both", "acme", "b", store.Details{Title: "Oslo, zurück", Archived: true})
	wantDetails(t, s, "none", "acme", "c", store.Details{})
	wantDetails(t, s, "of a thread without runs", "acme", "never", store.Details{Title: "of no run"})
	wantDetails(t, s, "of another tenant", "other", "a", store.Details{Title: "of another tenant"})
	for _, c := range []struct {
		name string
		q    store.ThreadQuery
		want []string
	}{
		{"not archived", store.ThreadQuery{}, []string{"a", "c"}},
		{"the same", store.ThreadQuery{Archived: search.ArchivedNo}, []string{"a", "c"}},
		{"archived", store.ThreadQuery{Archived: search.ArchivedYes}, []string{"b"}},
		{"all", store.ThreadQuery{Archived: search.ArchivedAll}, []string{"a", "b", "c"}},
		{"a word", store.ThreadQuery{Archived: search.ArchivedAll, Words: []string{"OSLO"}}, []string{"a", "b"}},
		{"a word of one that is not archived", store.ThreadQuery{Words: []string{"oslo"}}, []string{"a"}},
		{"all words", store.ThreadQuery{Words: []string{"nach", "STRASSE"}}, []string{"a"}},
		{"not all words", store.ThreadQuery{Words: []string{"nach", "Bergen"}}, []string{}},
		{"no pattern", store.ThreadQuery{Words: []string{"O%o"}}, []string{}},
	} {
		for _, limit := range []int{1, 100} {
			c.q.Limit = limit
			if got := walk(t, s, c.q); !slices.Equal(got, c.want) {
				t.Errorf("%s, pages of %d: %v, want %v", c.name, limit, got, c.want)
			}
		}
	}
	for _, c := range []struct {
		f    search.Filter
		want []string
	}{
		{search.Filter{}, []string{"a", "b", "c"}}, {search.Filter{Archived: search.ArchivedNo}, []string{"a", "c"}},
		{search.Filter{Archived: search.ArchivedYes}, []string{"b"}}, {search.Filter{Words: []string{"STRASSE", "nach"}}, []string{"a"}},
		{search.Filter{Words: []string{"oslo"}, Prefix: "b"}, []string{"b"}},
		{search.Filter{Words: []string{"oslo"}, Archived: search.ArchivedNo}, []string{"a"}}, {search.Filter{Words: []string{"never"}}, nil},
	} {
		page, err := s.Search(t.Context(), "acme",
			search.Query{Filter: c.f, Sort: search.SortStarted, Limit: 100, Bounds: search.Bounds{Rows: 1e6, Time: time.Minute}})
		var got []string
		for _, r := range page.Runs {
			got = append(got, r.ThreadID)
		}
		if slices.Sort(got); err != nil || !slices.Equal(got, c.want) {
			t.Errorf("a search of %+v finds runs of %v, %v; want %v", c.f, got, err, c.want)
		}
	}
	threads, _, err := s.Threads(t.Context(), "acme", store.ThreadQuery{Limit: 10, Archived: search.ArchivedAll})
	if err != nil {
		t.Fatal(err)
	}
	for i, want := range []store.Details{{Title: "Straße nach Oslo"}, {Title: "Oslo, zurück", Archived: true}, {}} {
		if threads[i].Details != want {
			t.Errorf("details of %s in the list: %+v, want %+v", threads[i].ThreadID, threads[i].Details, want)
		}
	}
	write(t, s, detail(8, "acme", "b", record.DetailArchived, ""), detail(9, "acme", "b", record.DetailTitle, "Bergen"))
	// Read again, they change nothing.
	write(t, s, detail(4, "acme", "b", record.DetailArchived, "true"), detail(3, "acme", "b", record.DetailTitle, "Oslo, zurück"))
	wantDetails(t, s, "a newer title, and not archived any more", "acme", "b", store.Details{Title: "Bergen"})
}

// The compactor writes the tombstones of a thread's details before its erasure.
func detailsErased(t *testing.T, s Store) {
	entries := []store.Entry{
		k1.entry(1, k1.record(0, record.StatusFinished)), detail(2, k1.tenant, k1.thread, record.DetailTitle, "secret"),
		detail(3, k1.tenant, k1.thread, record.DetailArchived, "true"),
		k1.entry(4, nil), detail(5, k1.tenant, k1.thread, record.DetailTitle, ""),
		detail(6, k1.tenant, k1.thread, record.DetailArchived, ""), threadErasure(7, k1.tenant, k1.thread),
	}
	for _, e := range entries {
		write(t, s, e)
	}
	wantDetails(t, s, "of an erased thread", k1.tenant, k1.thread, store.Details{})
	write(t, s, entries[:3]...) // read again
	wantDetails(t, s, "of an erased thread, its records read again", k1.tenant, k1.thread, store.Details{})
	entries = append(entries, detail(8, k1.tenant, k1.thread, record.DetailTitle, "new"))
	write(t, s, entries[7])
	wantDetails(t, s, "of the thread that came after it", k1.tenant, k1.thread, store.Details{Title: "new"})
	rng := rand.New(rand.NewPCG(1, 2))
	for i := range 10 { // any batches in any order
		k := key{k1.tenant, fmt.Sprint("thread-", i), "r"}
		shuffled := slices.Clone(entries)
		rng.Shuffle(len(shuffled), func(i, j int) { shuffled[i], shuffled[j] = shuffled[j], shuffled[i] })
		for j := range shuffled {
			shuffled[j].ThreadID = k.thread
			if shuffled[j].Run != nil {
				shuffled[j].Run = k.record(0, record.StatusFinished)
			}
		}
		at := rng.IntN(len(shuffled))
		write(t, s, shuffled[:at]...)
		write(t, s, shuffled[at:]...)
		wantDetails(t, s, "in another order", k.tenant, k.thread, store.Details{Title: "new"})
	}
}

func detailsExpire(t *testing.T, s Store) {
	for i, thread := range []string{"old", "new"} {
		k := key{"acme", thread, "r"}
		write(t, s, k.entry(1, k.record(int64(1000*i), record.StatusFinished)), detail(900, "acme", thread, record.DetailTitle, thread),
			detail(901, "acme", thread, record.DetailArchived, "true"))
	}
	if n, err := s.Expire(t.Context(), "acme", epoch.Add(500*time.Second)); n != 1 || err != nil {
		t.Fatalf("%d threads, %v; want 1", n, err)
	}
	wantDetails(t, s, "of an expired thread", "acme", "old", store.Details{})
	wantDetails(t, s, "of another", "acme", "new", store.Details{Title: "new", Archived: true})
}
