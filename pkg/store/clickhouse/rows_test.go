package clickhouse

import (
	"context"
	"encoding/json"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/skeinhq/skein/pkg/agui"
	"github.com/skeinhq/skein/pkg/record"
	"github.com/skeinhq/skein/pkg/search"
	"github.com/skeinhq/skein/pkg/store"
)

// number asks for one number, without FINAL: what is in the parts.
func number(tb testing.TB, s *Store, query string) uint64 {
	tb.Helper()
	var n uint64
	if err := s.conn.QueryRow(context.Background(), query).Scan(&n); err != nil {
		tb.Fatalf("%s: %v", query, err)
	}
	return n
}

// until polls until the query gives a number.
func until(t *testing.T, s *Store, query string, want uint64) {
	t.Helper()
	deadline := time.NewTimer(30 * time.Second)
	defer deadline.Stop()
	tick := time.NewTicker(20 * time.Millisecond)
	defer tick.Stop()
	for {
		got := number(t, s, query)
		if got == want {
			return
		}
		select {
		case <-deadline.C:
			t.Fatalf("%s: %d, want %d", query, got, want)
		case <-tick.C:
		}
	}
}

func withMessages(e store.Entry, status record.Status, n int) store.Entry {
	e.Run.Status = status
	e.Run.State = json.RawMessage(`{}`)
	for i := range n {
		id := fmt.Sprintf("m%d at %d", i, e.Version)
		e.Run.Messages = append(e.Run.Messages, agui.Message{ID: id, Role: "user", Raw: json.RawMessage(`{"id":"` + id + `"}`)})
	}
	return e
}

func TestWrite_SendsABlockAgainWithoutEffect(t *testing.T) {
	s := open(t)
	entries := []store.Entry{withMessages(sealedEntry(1), record.StatusFinished, 3)}
	for range 3 {
		if err := s.Write(t.Context(), entries); err != nil {
			t.Fatal(err)
		}
	}
	for table, want := range map[string]uint64{"runs": 1, "states": 1, "messages": 3, "positions": 1} {
		if got := number(t, s, "SELECT count() FROM "+table); got != want {
			t.Errorf("%d rows in %s, want %d: the token did not tell the server that it has them", got, table, want)
		}
	}
	// Records of the same offsets and count, but others: a topic that was made anew.
	other := withMessages(sealedEntry(1), record.StatusFinished, 3)
	other.RunID = "other"
	if err := s.Write(t.Context(), []store.Entry{other}); err != nil {
		t.Fatal(err)
	}
	if _, err := s.Run(t.Context(), "t", "th", "other"); err != nil {
		t.Errorf("another block of the same offsets was dropped: %v", err)
	}
}

func TestWrite_SplitsLargeBlocks(t *testing.T) {
	s := open(t)
	s.blockRows, s.blockBytes = 10, 1000
	e := withMessages(sealedEntry(1), record.StatusFinished, 25)
	e.Run.Messages[7].Raw = json.RawMessage(`{"text":"` + strings.Repeat("x", 5000) + `"}`)
	if err := s.Write(t.Context(), []store.Entry{e}); err != nil {
		t.Fatal(err)
	}
	c, err := contentsOf(t, s, "r")
	if err != nil || len(c["r"].Messages) != 25 {
		t.Errorf("%d messages, %v; want 25", len(c["r"].Messages), err)
	}
}

// A newer version's rows replace some of an older one's before its row of runs is there.
func TestContents_AreWholeOrNotThere(t *testing.T) {
	s := open(t)
	if err := s.Write(t.Context(), []store.Entry{withMessages(sealedEntry(1), record.StatusAbandoned, 4)}); err != nil {
		t.Fatal(err)
	}
	if c, err := contentsOf(t, s, "r"); err != nil || len(c["r"].Messages) != 4 {
		t.Fatalf("contents %v, %v; want 4 messages", c, err)
	}
	b, err := newBatch([]store.Entry{withMessages(sealedEntry(2), record.StatusFinished, 2)})
	if err != nil {
		t.Fatal(err)
	}
	if err := insert(t.Context(), s, "messages", b.from, b.messages); err != nil {
		t.Fatal(err)
	}
	if c, err := contentsOf(t, s, "r"); err != nil || len(c) != 0 {
		t.Errorf("contents %v, %v; a part of the older version is given as the whole", c, err)
	}
	runs, err := b.runRows()
	if err != nil {
		t.Fatal(err)
	}
	if err := insert(t.Context(), s, "runs", b.from, runs); err != nil {
		t.Fatal(err)
	}
	if c, err := contentsOf(t, s, "r"); err != nil || len(c) != 0 {
		t.Errorf("contents %v, %v, without the state's row", c, err)
	}
	if err := insert(t.Context(), s, "states", b.from, b.states); err != nil {
		t.Fatal(err)
	}
	if c, err := contentsOf(t, s, "r"); err != nil || len(c["r"].Messages) != 2 {
		t.Errorf("contents %v, %v; want 2 messages", c, err)
	}
}

func TestWrite_ATombstoneLeavesNothingOfOlderRecords(t *testing.T) {
	s := open(t)
	tombstone, neighbour := sealedEntry(2), withMessages(sealedEntry(1), record.StatusFinished, 2)
	tombstone.Run = nil
	neighbour.RunID = "neighbour"
	old := []store.Entry{withMessages(sealedEntry(1), record.StatusFinished, 3), neighbour}
	again := withMessages(sealedEntry(3), record.StatusFinished, 1)
	write := func(entries ...store.Entry) {
		t.Helper()
		if err := s.Write(t.Context(), entries); err != nil {
			t.Fatal(err)
		}
	}
	const ours = " WHERE run_id = 'r' AND version < 2"
	gone := func() {
		t.Helper()
		for _, table := range []string{"runs", "messages", "states"} {
			until(t, s, "SELECT count() FROM "+table+ours, 0)
		}
	}
	write(old...)
	write(tombstone)
	gone()
	// Read again from the start, in other batches, with what came later.
	write(append(old, tombstone)...)
	gone()
	write(old[0])
	write(tombstone, again)
	gone()
	for run, want := range map[string]int{"r": 1, "neighbour": 2} {
		c, err := contentsOf(t, s, run)
		if err != nil || len(c[run].Messages) != want {
			t.Errorf("%s: %v, %v; want %d messages", run, c, err, want)
		}
	}
	to, err := s.IndexedTo(t.Context(), "t")
	if err != nil || to[3] != 13 {
		t.Errorf("IndexedTo %v, %v; want 3:13", to, err)
	}
}

func TestRuns_HaveColumnsToSearchBy(t *testing.T) {
	s := open(t)
	e := withMessages(sealedEntry(1), record.StatusInterrupted, 2)
	ttft, duration := int64(120), int64(1500)
	end := time.Date(50000, 1, 1, 0, 0, 0, 0, time.UTC)
	e.Run.StartedAt, e.Run.EndedAt = time.Date(2026, 9, 17, 12, 0, 0, 5e6, time.UTC), &end
	e.Run.Agent, e.Run.Labels = "shop", map[string]string{"user": "7", "env": ""}
	e.Run.Interrupts = []json.RawMessage{json.RawMessage(`{}`)}
	e.Run.PendingToolCalls = []string{"a", "b"}
	e.Run.Stats = record.Stats{
		Events: map[string]int64{"TEXT_MESSAGE_CHUNK": 12}, EventBytes: map[string]int64{"TEXT_MESSAGE_CHUNK": 900, "CUSTOM": 10},
		ToolCalls: map[string]int64{"search": 2, "fetch": 1}, Anomalies: map[string]int64{"open-at-end": 1},
		Usage: []record.TokenUsage{
			{Model: "a", InputTokens: new(int64(10)), CachedInputTokens: new(int64(5))},
			{Provider: "p", Model: "b", InputTokens: new(int64(3)), OutputTokens: new(int64(4)), ReasoningTokens: new(int64(0))},
		},
		TimeToFirstToken: &ttft, Duration: &duration,
	}
	if err := s.Write(t.Context(), []store.Entry{e}); err != nil {
		t.Fatal(err)
	}
	for expression, want := range map[string]string{
		"status":                            "interrupted",
		"agent":                             "shop",
		"labels['user']":                    "7",
		"length(labels)":                    "2",
		"started_at":                        "2026-09-17 12:00:00.005",
		"ended_at":                          "2261-12-31 23:59:59.999",
		"time_to_first_token_ms":            "120",
		"duration_ms":                       "1500",
		"open_interrupts":                   "1",
		"pending_tool_calls":                "2",
		"own_messages":                      "2",
		"events['TEXT_MESSAGE_CHUNK']":      "12",
		"event_bytes_sum":                   "910",
		"tool_calls['search']":              "2",
		"tool_calls_sum":                    "3",
		"anomalies['open-at-end']":          "1",
		"models":                            "['a','b']",
		"model_input_tokens":                "[10,3]",
		"model_output_tokens":               "[NULL,4]",
		"model_reasoning_tokens":            "[NULL,0]",
		"model_cached_tokens":               "[5,NULL]",
		"model_cache_write_tokens":          "[NULL,NULL]",
		"model_providers":                   "['','p']",
		"JSONExtractString(head, 'status')": "interrupted",
	} {
		var got string
		if err := s.conn.QueryRow(t.Context(), "SELECT toString("+expression+") FROM runs FINAL").Scan(&got); err != nil || got != want {
			t.Errorf("%s is %q, %v; want %q", expression, got, err, want)
		}
	}
}

// A thread is one range of the primary key: reading it must not read its neighbours' granules.
func TestStatements_ReadOneRange(t *testing.T) {
	s := open(t)
	var entries []store.Entry
	for i := range 20_000 {
		e := sealedEntry(int64(i))
		e.Run.Status = record.StatusRunning
		e.ThreadID, e.RunID = fmt.Sprintf("thread-%04d", i/10), fmt.Sprint("run-", i%10)
		entries = append(entries, e)
	}
	if err := s.Write(t.Context(), entries); err != nil {
		t.Fatal(err)
	}
	sel, args := selectionOf("t", search.Filter{Prefix: "thread-07", Words: []string{"RUN-3"}})
	var ids strings.Builder
	if err := lookup(statement("selected"), `{{template "ids" .}}`).Execute(&ids, sel); err != nil {
		t.Fatal(err)
	}
	for name, c := range map[string]struct {
		query string
		args  named
		most  int
	}{
		"ids with a word": {ids.String(), args, 9}, // 1,000 runs
		"thread":          {selectThread, named{"tenant": "t", "thread": "thread-0700"}, 2},
		"lineage":         {selectLineage, named{"tenant": "t", "thread": "thread-0700"}, 2},
		"run":             {selectRun, named{"tenant": "t", "thread": "thread-0700", "run": "run-3"}, 2},
		"another tenant's threads": {selectThreads, named{
			"tenant": "u", "prefix": "", "after": "", "status": "", "agent": "", "since": int64(0), "limit": 10,
			"archived": "no", "words": []string{},
		}, 0},
		"threads by prefix": {selectThreads, named{
			"tenant": "t", "prefix": "thread-07", "after": "", "status": "", "agent": "", "since": int64(0), "limit": 10,
			"archived": "no", "words": []string{},
		}, 9}, // 1,000 runs
	} {
		t.Run(name, func(t *testing.T) {
			var plan []string
			err := s.each(t.Context(), "EXPLAIN indexes = 1 "+c.query, c.args, func(r row) error {
				var line string
				err := r.Scan(&line)
				plan = append(plan, strings.TrimSpace(line))
				return err
			})
			if err != nil {
				t.Fatal(err)
			}
			read, of := -1, -1
			for _, line := range plan {
				if _, err := fmt.Sscanf(line, "Granules: %d/%d", &read, &of); err == nil {
					break
				}
			}
			if name == "another tenant's threads" && read == -1 {
				return // nothing is read at all
			}
			if read < 0 || read > c.most || of < 150 { // fewer would be larger ones
				t.Errorf("reads %d of %d granules, want at most %d:\n%s", read, of, c.most, strings.Join(plan, "\n"))
			}
		})
	}
}
