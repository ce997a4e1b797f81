package abuse

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/skeinhq/skein/internal/clickhousetest"
	"github.com/skeinhq/skein/pkg/record"
)

// indexing starts a pipeline on a ClickHouse, as the chart has it. Its tables of facts are what a run's contents can make many rows of.
func indexing(t *testing.T) *pipeline {
	t.Helper()
	if !*Long {
		t.Skip("it needs a ClickHouse and takes a minute: only with -abuse.long; pkg/indexer and pkg/store/clickhouse test the bounds")
	}
	server := clickhousetest.Start(t)
	flags := []string{"--clickhouse", server.Addr, "--clickhouse-database", server.Database, "--clickhouse-user", server.Username}
	if server.Password != "" { // an empty file is refused
		file := filepath.Join(t.TempDir(), "password")
		if err := os.WriteFile(file, []byte(server.Password+"\n"), 0o600); err != nil {
			t.Fatal(err)
		}
		flags = append(flags, "--clickhouse-password-file", file)
	}
	return compactingInto(t, flags)
}

// runOf is a run of a few events.
func (p *pipeline) runOf(who, thread, run string, events ...string) (records []*kgo.Record) {
	events = append([]string{fmt.Sprintf(`{"type":"RUN_STARTED","threadId":%q,"runId":%q}`, thread, run)}, events...)
	for _, e := range append(events, fmt.Sprintf(`{"type":"RUN_FINISHED","threadId":%q,"runId":%q}`, thread, run)) {
		records = append(records, p.event(record.KindEvent, who, thread, run, []byte(e)))
	}
	return records
}

// Runs whose contents become very many rows of the index.
func TestIndexer_RunsOfManyToolCalls(t *testing.T) {
	p := indexing(t)
	const calls = 10_000 // as many as a snapshot may have
	list := make([]string, calls)
	for i := range list {
		list[i] = fmt.Sprintf(`{"id":"%d","type":"function","function":{"name":"n","arguments":""}}`, i)
	}
	snapshot := `{"type":"MESSAGES_SNAPSHOT","messages":[{"id":"m","role":"assistant","toolCalls":[` + strings.Join(list, ",") + `]}]}`
	var records []*kgo.Record
	for _, run := range threadsOn(Hostile, "calls-", 200, hostilePartitions...) {
		records = append(records, p.runOf(Hostile, run, run, snapshot)...)
	}
	row := p.attack(fmt.Sprintf("200 runs of %d tool calls", calls), records, false)
	row.Answer = "taken"
	if n := p.compactor.Metrics(t)[`skein_compactor_dead_letters_total{reason="malformed"}`]; n > 0 {
		t.Errorf("%.0f records are dead letters: the index has nothing to do", n)
	}
	Report(t, p.compactor, row)
	Report(t, p.indexer, row)
	p.hold(row)
}

// Very many runs, each of nothing.
func TestIndexer_ManyTinyRuns(t *testing.T) {
	p := indexing(t)
	const runs = 50_000
	var records []*kgo.Record
	threads := threadsOn(Hostile, "tiny-", 100, hostilePartitions...)
	for i := range runs {
		thread, run := threads[i%len(threads)], fmt.Sprint("tiny-run-", i)
		records = append(records, p.runOf(Hostile, thread, run)...)
	}
	row := p.attack(fmt.Sprintf("%d runs of two events", runs), records, false)
	row.Answer = "taken"
	Report(t, p.compactor, row)
	Report(t, p.indexer, row)
	p.hold(row)
}
