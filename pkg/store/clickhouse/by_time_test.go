package clickhouse

import (
	"encoding/json"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/skeinhq/skein/pkg/record"
	"github.com/skeinhq/skein/pkg/search"
	"github.com/skeinhq/skein/pkg/store"
)

// byTime are the runs that v_runs_by_time has, and those that a search finds, newest first.
func byTime(t *testing.T, s *Store, tenant string) (view, found string) {
	t.Helper()
	view = text(t, s, "SELECT arrayStringConcat(groupArray(run_id || '@' || toString(version)), ' ') FROM "+
		"(SELECT * FROM v_runs_by_time WHERE tenant = '"+tenant+"' ORDER BY started_at DESC, run_id DESC)")
	page, err := s.Search(t.Context(), tenant,
		search.Query{Sort: search.SortStarted, Limit: 100, Bounds: search.Bounds{Rows: 1e6, Time: time.Minute}})
	if err != nil {
		t.Fatal(err)
	}
	var ids []string
	for _, r := range page.Runs {
		ids = append(ids, r.RunID)
	}
	return view, strings.Join(ids, " ")
}

// A run has one row in the order of time: also where its start changes, as that of a run does whose input came first, and where an older
// record comes behind its tombstone. An id that comes again is a run again.
func TestRunsByTime_HasEachRunOnce(t *testing.T) {
	s := open(t)
	for _, table := range []string{"runs", "runs_by_time"} {
		if err := s.exec(t.Context(), "SYSTEM STOP MERGES "+table); err != nil {
			t.Fatal(err)
		}
	}
	at := func(version int64, run string, first int64, start time.Time) store.Entry {
		e := sealedEntry(version)
		e.RunID = run
		e.Run.Raw.First, e.Run.StartedAt = first, start
		return e
	}
	gone := func(version int64, run string) store.Entry {
		return store.Entry{Partition: 3, Version: version, Tenant: "t", ThreadID: "th", RunID: run}
	}
	early := at(1, "moved", 10, time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC))
	early.Run.Status = record.StatusRunning
	other := at(2, "erased", 20, epochDay(3))
	other.Tenant = "another" // has the ids of what is erased below
	for _, batch := range [][]store.Entry{
		{early, at(2, "erased", 20, epochDay(3)), other, at(3, "reborn", 30, epochDay(4))},
		{at(4, "moved", 10, epochDay(5)), gone(5, "erased"), gone(6, "reborn"), gone(7, "late")},
		{at(2, "erased", 20, epochDay(3)), at(6, "late", 40, epochDay(6))}, // by an indexer that does not know of the tombstones
		{at(8, "reborn", 50, epochDay(7))},
	} {
		if err := s.Write(t.Context(), batch); err != nil {
			t.Fatal(err)
		}
	}
	view, found := byTime(t, s, "t")
	if view != "reborn@8 moved@4" || found != "reborn moved" {
		t.Errorf("the view has %q, a search finds %q", view, found)
	}
	if view, found = byTime(t, s, "another"); view != "erased@2" || found != "erased" {
		t.Errorf("of another tenant the view has %q, a search finds %q", view, found)
	}
}

func epochDay(n int) time.Time { return time.Date(2026, 9, n, 0, 0, 0, 0, time.UTC) }

// A search for a rare word reads the granules that may have it, and a search for one that is nowhere reads no message.
func TestSearch_SkipsMessagesWithoutTheWord(t *testing.T) {
	s := open(t)
	var entries []store.Entry
	for i := range 3000 {
		e := told(int64(i), fmt.Sprintf("thread-%04d", i), "r")
		if i == 1000 {
			e.Run.Messages[0].Raw = json.RawMessage(`{"id":"a","role":"assistant","content":[{"type":"text","text":"A ZEBRAfish"}]}`)
		}
		if i == 2000 {
			e.Run.Messages[0].Raw = json.RawMessage(`{"id":"a","role":"assistant","content":"\u039f\u0394\u03a5\u03a3\u03a3\u0395\u03a5\u03a3"}`)
		}
		entries = append(entries, e)
	}
	if err := s.Write(t.Context(), entries); err != nil {
		t.Fatal(err)
	}
	if err := s.exec(t.Context(), "OPTIMIZE TABLE messages FINAL"); err != nil { //nolint:misspell // the server's spelling; inserts leave the index to merges
		t.Fatal(err)
	}
	for word, want := range map[string]struct{ granules, runs int }{"zebraf": {1, 1}, "οδυσσευς": {1, 1}, "nowhere": {0, 0}} {
		q := search.Query{Filter: search.Filter{Words: []string{word}}, Sort: search.SortStarted, Limit: 10,
			Bounds: search.Bounds{Rows: 1e6, Time: time.Minute}}
		page, err := s.Search(t.Context(), "t", q)
		if err != nil || len(page.Runs) != want.runs {
			t.Errorf("%s: %d runs, %v; want %d", word, len(page.Runs), err, want.runs)
		}
		sel, args := selectionOf("t", q.Filter)
		var query strings.Builder
		if err := lookup(statement("selected"), `EXPLAIN indexes = 1 SELECT thread_id FROM messages FINAL WHERE tenant = {tenant:String}{{template "words" .}}`).Execute(&query, sel); err != nil {
			t.Fatal(err)
		}
		var plan []string
		index, granules := false, -1
		if err := s.each(t.Context(), query.String(), args, func(r row) error {
			var line string
			err := r.Scan(&line)
			plan = append(plan, line)
			line = strings.TrimLeft(line, " │├└─")
			index = index || line == "Name: words"
			if n, of := 0, 0; index && granules < 0 {
				if found, _ := fmt.Sscanf(line, "Granules: %d/%d", &n, &of); found == 2 && of > 10 {
					granules = n
				}
			}
			return err
		}); err != nil {
			t.Fatal(err)
		}
		if granules != want.granules {
			t.Errorf("%s: %d granules, want %d:\n%s", word, granules, want.granules, strings.Join(plan, "\n"))
		}
	}
}
