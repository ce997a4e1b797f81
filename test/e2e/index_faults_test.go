package e2e_test

import (
	"bytes"
	"encoding/json"
	"fmt"
	"maps"
	"os"
	"slices"
	"strconv"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/ClickHouse/clickhouse-go/v2/lib/driver"
	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/skeinhq/skein/internal/clickhousetest"
	"github.com/skeinhq/skein/internal/recordings"
	"github.com/skeinhq/skein/pkg/client"
	"github.com/skeinhq/skein/pkg/kafka"
	"github.com/skeinhq/skein/pkg/kafka/kafkatest"
	"github.com/skeinhq/skein/pkg/record"
	"github.com/skeinhq/skein/test/process"
)

// Indexers are killed before and behind the statements that write messages, states, runs, erasures and positions, their connections are cut
// there, members of the group come and go, and records come twice, while runs are published and threads erased. Then the rows are those of
// a fold of skein.runs: by version and status of each run, as Go reads them from the topic, in SQL and over the API, and column by column
// in all tables as a rebuild makes them, which no fault meets.
func TestIndex_IsThatOfAFoldAfterFaults(t *testing.T) {
	t.Parallel() // much of it is waiting
	cluster, server := kafkatest.Real(t, 1), clickhousetest.Start(t)
	conn, direct := server.Open(t), server.Addr
	var armed atomic.Pointer[trap]
	server.Addr = clickhousetest.Door(t, direct, func(s clickhousetest.Statement) error {
		if a := armed.Load(); a != nil && s.Is("INSERT INTO %s ", a.table) && armed.CompareAndSwap(a, nil) {
			return a.spring()
		}
		return nil
	})
	p := startPipeline(t, ends{kafka: cluster.Config, replication: 1, store: server.Flags(t)})
	p.indexer.Stop()
	members := map[string]*process.Process{}
	start := func(ids ...string) {
		for _, id := range ids {
			members[id] = p.launch("indexer", append(p.ends.store, "--max-delay", "1s", "--instance-id", id)...)
		}
	}
	start("a", "b")
	p.indexer = members["a"]

	done := make(chan struct{})
	published := make(chan error, 1)
	var sent publications
	go func() { published <- p.publishUntil(done, &sent) }()
	made := 0
	for _, table := range []string{"messages", "states", "runs", "erasures", "positions"} {
		kill := func() {
			members["a"].End(os.Kill)
			members["b"].End(os.Kill)
		}
		for _, fault := range []struct {
			spring func() error
			kills  bool
		}{
			{func() error { kill(); return clickhousetest.ErrCut }, true},
			{func() error { return clickhousetest.Then(kill) }, true},
			{func() error { return clickhousetest.ErrCut }, false},
			{func() error { return clickhousetest.ErrLost }, false},
		} {
			sprung := make(chan struct{})
			armed.Store(&trap{table, func() error {
				defer close(sprung)
				return fault.spring()
			}})
			select {
			case <-sprung:
				made++
			case err := <-published:
				t.Fatalf("publishing has ended: %v", err)
			case <-time.After(process.Patience):
				t.Fatalf("no rows come for %s", table)
			}
			if fault.kills {
				<-members["a"].Ended
				<-members["b"].Ended
				start("a", "b")
			}
		}
		members["b"].Stop()
		start("b")
		again(t, cluster.Config)
	}
	close(done)
	if err := <-published; err != nil {
		t.Fatal(err)
	}
	t.Logf("%d faults, %d threads, %d of them erased, %d runs in the others", made, sent.threads, sent.erased, sent.runs)
	p.indexer = members["a"]

	rows := func() []string {
		return lines(t, conn, "SELECT arrayStringConcat(groupArray(line), '\n') FROM (SELECT concat(thread_id, ' ', run_id, ' ', toString(status), ' ', toString(version), ' ', toString(message_count)) AS line FROM v_runs ORDER BY line)")
	}
	var want []string
	process.Eventually(t, "the index has what was published", func() (string, bool) {
		want = p.foldOfRuns()
		got := rows()
		return fmt.Sprintf("%d runs of %d; %q in the index alone, %q in the fold alone", len(want), sent.runs, without(got, want),
			without(want, got)), len(want) == sent.runs && slices.Equal(got, want)
	})
	p.sameOverTheAPI(want)

	tables := []string{"runs", "runs_by_time", "messages", "states", "tool_calls", "interrupts", "answers", "erasures", "positions"}
	var before map[string]string
	process.Eventually(t, "nothing more is written", func() (string, bool) { // erasures and positions come behind the runs
		last := before
		before = hashes(t, conn, tables)
		time.Sleep(3 * time.Second)
		return fmt.Sprint(before), maps.Equal(before, last)
	})
	flags := slices.Clone(p.ends.store)
	flags[slices.Index(flags, "--clickhouse")+1] = direct
	p.skein(append(append([]string{"migrate", "--rebuild"}, p.kafkaFlags()...), flags...)...)
	for table, got := range hashes(t, conn, tables) {
		if got != before[table] {
			t.Errorf("%s: count and hash of the rows are %s after the faults, and %s as a rebuild makes them", table, before[table], got)
		}
	}
	if got := rows(); !slices.Equal(got, want) {
		t.Errorf("a rebuild gives %d rows, the fold has %d", len(got), len(want))
	}
}

// publications are what was published: threads, those of them that were erased, and the runs of the others.
type publications struct{ threads, erased, runs int }

// publishUntil publishes recordings under thread ids of their own, and erases some threads, until done is closed.
func (p *pipeline) publishUntil(done <-chan struct{}, sent *publications) error {
	api, ctx := p.ingestAPI[tenantB], p.t.Context()
	for {
		for _, thread := range recordings.All() {
			id := fmt.Sprintf("%s-%d", thread.ThreadID, sent.threads)
			for _, run := range thread.Runs {
				own, _ := namesake(p.t, run)
				renamed := func(text []byte) []byte {
					return bytes.ReplaceAll(text, fmt.Appendf(nil, `"threadId":%q`, thread.ThreadID), fmt.Appendf(nil, `"threadId":%q`, id))
				}
				if _, err := api.PutInput(ctx, id, run.RunID, renamed(own.Input)); err != nil {
					return err
				}
				if _, err := api.PostEvents(ctx, id, run.RunID, client.TypeNDJSON, bytes.NewReader(renamed(own.Events))); err != nil {
					return err
				}
			}
			if sent.threads++; isErased(sent.threads - 1) {
				if _, err := api.EraseThread(ctx, id); err != nil {
					return err
				}
				sent.erased++
			} else {
				sent.runs += len(thread.Runs)
			}
			select {
			case <-done:
				return nil
			case <-time.After(100 * time.Millisecond):
			}
		}
	}
}

// isErased reports whether the thread of that number is erased once it is published.
func isErased(thread int) bool { return thread%7 == 6 }

// trap springs as the next rows for a table come.
type trap struct {
	table  string
	spring func() error
}

// without are the lines that others have not.
func without(lines, others []string) []string {
	return slices.DeleteFunc(slices.Clone(lines), func(line string) bool { return slices.Contains(others, line) })
}

// again writes some records of skein.runs once more, as they are, of threads that are not erased.
func again(t *testing.T, cfg kafka.Config) {
	var copies []*kgo.Record
	last := map[string]*kgo.Record{}
	for _, m := range kafkatest.Consume(t, cfg, cfg.Topics().Runs) {
		last[string(m.Key)] = m
	}
	for key, m := range last {
		parts, err := record.SplitKey(key)
		if err != nil || len(parts) != 3 {
			continue // no run's
		}
		n, err := strconv.Atoi(parts[1][strings.LastIndex(parts[1], "-")+1:])
		if err != nil {
			t.Fatal(err)
		}
		if h, err := record.ParseHeaders(m.Headers); err == nil && h.Kind == record.KindRun && len(m.Value) > 0 && len(copies) < 20 &&
			!isErased(n) {
			copies = append(copies, &kgo.Record{Topic: m.Topic, Partition: m.Partition, Key: m.Key, Value: m.Value, Headers: m.Headers})
		}
	}
	kafkatest.Produce(t, cfg, copies...)
}

// foldOfRuns is what skein.runs says at its end: thread, run, status, offset and number of messages of each run's last record, sorted.
func (p *pipeline) foldOfRuns() (out []string) {
	p.t.Helper()
	last := map[string]string{}
	for _, m := range kafkatest.Consume(p.t, p.ends.kafka, p.ends.kafka.Topics().Runs) {
		h, err := record.ParseHeaders(m.Headers)
		if err != nil {
			p.t.Fatal(err)
		}
		switch {
		case h.Kind != record.KindRun:
		case len(m.Value) == 0:
			delete(last, string(m.Key))
		default:
			r, err := record.DecodeRun(m.Value)
			if err != nil {
				p.t.Fatal(err)
			}
			last[string(m.Key)] = fmt.Sprintf("%s %s %s %d %d", r.ThreadID, r.RunID, r.Status, m.Offset, r.MessageCount)
		}
	}
	for _, line := range last {
		out = append(out, line)
	}
	slices.Sort(out)
	return out
}

// sameOverTheAPI demands that the lineage of each thread has the runs of the fold, with their status.
func (p *pipeline) sameOverTheAPI(want []string) {
	p.t.Helper()
	threads := map[string][]string{}
	for _, line := range want {
		parts := strings.Fields(line)
		threads[parts[0]] = append(threads[parts[0]], parts[1]+" "+parts[2])
	}
	for thread, runs := range threads {
		var got struct {
			Runs []struct{ RunID, Status string }
		}
		if err := json.Unmarshal(p.read(tenantB, "/v1/threads/"+thread+"/lineage", ""), &got); err != nil {
			p.t.Fatal(err)
		}
		var have []string
		for _, r := range got.Runs {
			have = append(have, r.RunID+" "+r.Status)
		}
		slices.Sort(have)
		if !slices.Equal(have, runs) {
			p.t.Errorf("thread %s: the API has runs %v, the fold %v", thread, have, runs)
		}
	}
}

// hashes are count and hash of each table's rows, once the server has carried out all deletions.
func hashes(t *testing.T, conn driver.Conn, tables []string) map[string]string {
	t.Helper()
	process.Eventually(t, "deletions are carried out", func() (string, bool) {
		left := lines(t, conn, "SELECT toString(count()) FROM system.mutations WHERE database = currentDatabase() AND NOT is_done")
		return fmt.Sprint(left), left[0] == "0"
	})
	out := map[string]string{}
	for _, table := range tables {
		out[table] = lines(t, conn, "SELECT toString(count()) || ' ' || toString(groupBitXor(sipHash64(formatRow('TSV', *)))) FROM "+table+" FINAL")[0]
	}
	return out
}

// lines are those of the one text that a query gives.
func lines(t *testing.T, conn driver.Conn, query string) []string {
	t.Helper()
	var text string
	if err := conn.QueryRow(t.Context(), query).Scan(&text); err != nil {
		t.Fatalf("%s: %v", query, err)
	}
	if text == "" {
		return nil
	}
	return strings.Split(text, "\n")
}
