package clickhouse

import (
	"encoding/json"
	"fmt"
	"strings"
	"testing"

	"github.com/skeinhq/skein/pkg/agui"
	"github.com/skeinhq/skein/pkg/record"
	"github.com/skeinhq/skein/pkg/search"
	"github.com/skeinhq/skein/pkg/store"
)

// BenchmarkStore_Write writes records of runs as they are typical: four messages of 600 bytes, a state
// of 300 bytes, statistics, one partition a block of a thousand records.
func BenchmarkStore_Write(b *testing.B) {
	s := open(b)
	const records, messages = 1000, 4
	var entries []store.Entry
	for i := range records {
		e := sealedEntry(int64(i))
		e.ThreadID, e.RunID = fmt.Sprintf("thread-%04d", i/10), fmt.Sprintf("run-%04d", i)
		e.Run.Stats = record.Stats{
			Events:     map[string]int64{"RUN_STARTED": 1, "TEXT_MESSAGE_CHUNK": 200, "RUN_FINISHED": 1},
			EventBytes: map[string]int64{"RUN_STARTED": 60, "TEXT_MESSAGE_CHUNK": 20_000, "RUN_FINISHED": 60},
			ToolCalls:  map[string]int64{"search": 1},
		}
		e.Run.State = json.RawMessage(`{"text":"` + strings.Repeat("s", 290) + `"}`)
		for m := range messages {
			id := fmt.Sprintf("message-%d-%d", i, m)
			e.Run.Messages = append(e.Run.Messages, agui.Message{ID: id, Role: "assistant",
				Raw: json.RawMessage(fmt.Sprintf(`{"id":%q,"role":"assistant","content":%q}`, id, strings.Repeat("word ", 110)))})
		}
		entries = append(entries, e)
	}
	version := int64(0)
	for b.Loop() {
		for i := range entries {
			entries[i].Version = version // a new record of each run: nothing is told by its token
			version++
		}
		if err := s.Write(b.Context(), entries); err != nil {
			b.Fatal(err)
		}
	}
	seconds := b.Elapsed().Seconds()
	b.ReportMetric(float64(b.N*records)/seconds, "records/s")
	b.ReportMetric(float64(b.N*records*(2+messages))/seconds, "rows/s")
}

// BenchmarkStore_Thread reads a thread of ten runs among a hundred thousand, and its contents.
func BenchmarkStore_Thread(b *testing.B) {
	s := open(b)
	for part := range 10 {
		var entries []store.Entry
		for i := range 10_000 {
			e := withMessages(sealedEntry(int64(part*10_000+i)), record.StatusFinished, 2)
			e.ThreadID, e.RunID = fmt.Sprintf("thread-%05d", (part*10_000+i)%10_000), fmt.Sprint("run-", part)
			entries = append(entries, e)
		}
		if err := s.Write(b.Context(), entries); err != nil {
			b.Fatal(err)
		}
	}
	i := 0
	b.Run("runs", func(b *testing.B) {
		for b.Loop() {
			i++
			if runs, err := s.Thread(b.Context(), "t", fmt.Sprintf("thread-%05d", i*7919%10_000)); err != nil || len(runs) != 10 {
				b.Fatal(len(runs), err)
			}
		}
	})
	b.Run("runs and contents", func(b *testing.B) {
		for b.Loop() {
			i++
			thread := fmt.Sprintf("thread-%05d", i*7919%10_000)
			runs, err := s.Thread(b.Context(), "t", thread)
			if err != nil {
				b.Fatal(err)
			}
			if c, err := s.Contents(b.Context(), "t", thread, runs); err != nil || len(c) != 10 {
				b.Fatal(len(c), err)
			}
		}
	})
	b.Run("page of threads", func(b *testing.B) {
		for b.Loop() {
			if page, _, err := s.Threads(b.Context(), "t", store.ThreadQuery{Limit: 50}); err != nil || len(page) != 50 {
				b.Fatal(len(page), err)
			}
		}
	})
	details := "INSERT INTO thread_details SELECT 't', concat('thread-', leftPad(toString(number), 7, '0')), %s, 1, 0, 'a title', 'a title' FROM numbers(%d)"
	for name, threads := range map[string]int{"'title'": 1_000_000, "'archived'": 2000} {
		if err := s.exec(b.Context(), fmt.Sprintf(details, name, threads)); err != nil {
			b.Fatal(err)
		}
	}
	b.Run("page of threads of a tenant with a million titles", func(b *testing.B) {
		for b.Loop() {
			page, _, err := s.Threads(b.Context(), "t", store.ThreadQuery{Limit: 50, Archived: search.ArchivedNo})
			if err != nil || len(page) != 50 {
				b.Fatal(len(page), err)
			}
		}
	})
	b.Run("indexed to", func(b *testing.B) {
		for b.Loop() {
			if _, err := s.IndexedTo(b.Context(), "t"); err != nil {
				b.Fatal(err)
			}
		}
	})
}
