package bench

import (
	"fmt"
	"testing"
	"time"

	"github.com/skeinhq/skein/internal/clickhousetest"
	"github.com/skeinhq/skein/internal/recordings"
	"github.com/skeinhq/skein/pkg/compactor/partition"
	"github.com/skeinhq/skein/pkg/record"
	"github.com/skeinhq/skein/pkg/store"
)

// BenchmarkRecordedBytes says how many bytes ClickHouse holds of the recorded runs of each agent framework, merged, by table.
// LangGraph's inputs repeat the conversation in their state.
//
//	go test ./bench -run '^$' -bench RecordedBytes -benchtime 1x -v
func BenchmarkRecordedBytes(b *testing.B) {
	s, c := openStore(b, clickhousetest.Start(b))
	var names []string
	byFramework := map[string][]recordings.Thread{}
	for _, t := range recordings.All() {
		if byFramework[t.Framework] == nil {
			names = append(names, t.Framework)
		}
		byFramework[t.Framework] = append(byFramework[t.Framework], t)
	}
	tables := []string{"runs", "runs_by_time", "messages", "states", "tool_calls"}
	for b.Loop() {
		for _, name := range names {
			for _, table := range tables {
				execute(b, c, "TRUNCATE TABLE "+table)
			}
			entries, events := folded(b, byFramework[name])
			if err := s.Write(b.Context(), entries); err != nil {
				b.Fatal(err)
			}
			b.Logf("%s: %d runs, events and inputs of %d bytes", name, len(entries), events)
			for _, table := range tables {
				execute(b, c, "OPTIMIZE TABLE "+table+" FINAL") //nolint:misspell // the server's spelling
				b.Logf("  %s: %s", table, value(b, c, fmt.Sprintf("SELECT concat(toString(sum(rows)), ' rows, ', toString(round(sum(data_compressed_bytes) / %[1]d)), ' bytes a run, ', "+
					"toString(round(sum(data_uncompressed_bytes) / %[1]d)), ' before compression') FROM system.parts WHERE database = currentDatabase() AND table = '%[2]s' AND active", len(entries), table)))
			}
		}
	}
}

// folded are the records that the compactor makes of threads, and the bytes of their events and inputs.
func folded(b *testing.B, threads []recordings.Thread) (entries []store.Entry, bytes int) {
	b.Helper()
	at := time.Date(2026, 9, 1, 8, 0, 0, 0, time.UTC)
	for _, thread := range threads {
		var sources []partition.Source
		add := func(kind record.Kind, run string, value []byte) {
			sources = append(sources, partition.Source{Headers: record.Headers{Kind: kind, RunID: run, Seq: -1, Agent: thread.Framework},
				Value: value, At: at})
			at = at.Add(137 * time.Millisecond)
			bytes += len(value)
		}
		for _, r := range thread.Runs {
			add(record.KindInput, r.RunID, r.Input)
			for _, e := range r.Lines() {
				add(record.KindEvent, r.RunID, e)
			}
		}
		records, _, err := partition.Offline(partition.DefaultConfig(), "recorded", thread.ThreadID, sources)
		if err != nil {
			b.Fatalf("%s: %v", thread, err)
		}
		for _, r := range records {
			entries = append(entries, store.Entry{Version: int64(len(entries)), Tenant: "recorded", ThreadID: r.ThreadID, RunID: r.RunID, Run: r,
				At: at})
		}
	}
	return entries, bytes
}
