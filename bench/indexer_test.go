package bench

import (
	"context"
	"encoding/json"
	"flag"
	"fmt"
	"iter"
	"maps"
	"os/exec"
	"reflect"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	ch "github.com/ClickHouse/clickhouse-go/v2"
	"github.com/ClickHouse/clickhouse-go/v2/lib/driver"
	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/skeinhq/skein/internal/clickhousetest"
	"github.com/skeinhq/skein/pkg/agui"
	"github.com/skeinhq/skein/pkg/kafka"
	"github.com/skeinhq/skein/pkg/kafka/kafkatest"
	"github.com/skeinhq/skein/pkg/record"
	"github.com/skeinhq/skein/test/process"
	"github.com/skeinhq/skein/test/site"
)

var (
	indexRuns  = flag.Int("index-runs", 200_000, "run records that BenchmarkIndexer has indexed")
	backlogMiB = flag.Int("index-backlog", 512, "MiB of large records before the small ones of BenchmarkIndexerDelay")
)

// indexed is a sealed run of skein.runs with some messages of its own and of its input, and some words in each.
func indexed(tb testing.TB, cfg kafka.Config, partition int32, thread, run string, n, own, input, words int) *kgo.Record {
	tb.Helper()
	message := func(i int, role string) agui.Message {
		id := fmt.Sprintf("%08x-7c1e-4b5a-9d3f-%012x", uint32(n)*2654435761, i)
		text := make([]byte, 0, 8*words)
		for w := range words {
			text = append(text, token(n*64+i, w)...)
		}
		return agui.Message{ID: id, Role: role, Raw: fmt.Appendf(nil, `{"id":%q,"role":%q,"content":%q}`, id, role, text)}
	}
	at := time.Date(2026, 9, 1, 0, 0, n%86400, 0, time.UTC)
	ended, took, first := at.Add(9*time.Second), int64(9000), int64(400)
	r := &record.Run{
		Tenant: "acme", ThreadID: thread, RunID: run, Status: record.StatusFinished,
		Lineage: record.Lineage{ParentBy: record.ParentNone, BranchID: run, RootRunID: run}, MessageCount: own + input,
		Raw: record.Raw{Partition: partition, First: int64(n) * 100, Next: int64(n)*100 + 60, Events: 60,
			Ranges: [][2]int64{{int64(n) * 100, int64(n)*100 + 60}}},
		StartedAt: at, EndedAt: &ended, State: json.RawMessage(`{"seen":[` + fmt.Sprint(n) + `],"plan":"look for towns, then ask for the weather in each of them"}`),
		Terminal: json.RawMessage(fmt.Sprintf(`{"type":"RUN_FINISHED","threadId":%q,"runId":%q}`, thread, run)),
		Stats: record.Stats{
			Events:     map[string]int64{"RUN_STARTED": 1, "TEXT_MESSAGE_CONTENT": 50, "RUN_FINISHED": 1},
			EventBytes: map[string]int64{"RUN_STARTED": 90, "TEXT_MESSAGE_CONTENT": 5000, "RUN_FINISHED": 60},
			Usage:      []record.TokenUsage{{Model: "large", InputTokens: new(int64(900)), OutputTokens: new(int64(90))}},
			Duration:   &took, TimeToFirstToken: &first,
		},
	}
	for i := range input {
		r.InputMessages = append(r.InputMessages, message(i, "user"))
	}
	for i := range own {
		r.Messages = append(r.Messages, message(input+i, "assistant"))
	}
	value, err := record.EncodeRun(r)
	if err != nil {
		tb.Fatal(err)
	}
	key, err := record.RunKey("acme", thread, run)
	if err != nil {
		tb.Fatal(err)
	}
	return &kgo.Record{
		Topic: cfg.Topics().Runs, Partition: partition, Key: []byte(key), Value: value,
		Headers: kafka.Headers(record.Headers{Kind: record.KindRun, Seq: -1}),
	}
}

// publishRuns writes records to skein.runs and returns their bytes.
func publishRuns(tb testing.TB, cfg kafka.Config, all iter.Seq[*kgo.Record]) (bytes int) {
	tb.Helper()
	producer, err := kafka.NewProducer(cfg)
	if err != nil {
		tb.Fatal(err)
	}
	defer producer.Close()
	failed := make(chan error, 1)
	for m := range all {
		bytes += len(m.Key) + len(m.Value)
		producer.Produce(tb.Context(), m, func(_ *kgo.Record, err error) {
			if err != nil {
				select {
				case failed <- err:
				default:
				}
			}
		})
	}
	if err := producer.Flush(tb.Context()); err != nil {
		tb.Fatal(err)
	}
	select {
	case err := <-failed:
		tb.Fatal(err)
	default:
	}
	return bytes
}

// startIndexer starts cmd/indexer on an empty database of its own.
func startIndexer(tb testing.TB, cfg kafka.Config, at clickhousetest.Server) *stage {
	tb.Helper()
	dir, flags := tb.TempDir(), at.Flags(tb)
	migrate(tb, command(tb, "skein", dir), flags)
	return start(tb, dir, command(tb, "indexer", dir), cfg, flags...)
}

// migrate runs "skein migrate" for a store.
func migrate(tb testing.TB, skein string, store []string) {
	tb.Helper()
	cmd := exec.CommandContext(tb.Context(), skein, append([]string{"migrate"}, store...)...)
	cmd.Env = process.Environment()
	if out, err := cmd.CombinedOutput(); err != nil {
		tb.Fatalf("skein migrate: %v\n%s", err, out)
	}
}

// BenchmarkIndexer has the indexer, as the process that is shipped, bring run records from a real Kafka into an empty
// ClickHouse, and then inserts the same rows into another database with clickhouse-go and nothing else: rows that lie in memory, by
// column types that the server has said, in blocks of 50,000. docs/bench/indexer.md tells more.
//
//	go test ./bench -run '^$' -bench 'Indexer$' -benchtime 1x -v
func BenchmarkIndexer(b *testing.B) {
	cfg := topicSet(b, kafkatest.Real(b, 1))
	at := clickhousetest.Start(b)
	bytes := publishRuns(b, cfg, func(yield func(*kgo.Record) bool) {
		for n := range *indexRuns {
			thread := fmt.Sprintf("thread-%08d", n/10)
			key, err := record.ThreadKey("acme", thread)
			if err != nil {
				b.Fatal(err)
			}
			if !yield(indexed(b, cfg, record.Partition([]byte(key), int32(*width)), thread, fmt.Sprintf("run-%08d", n), n, 2, 2, 60)) {
				return
			}
		}
	})
	asked := at.Open(b)
	for b.Loop() {
		before := serverCPU(b, asked)
		p := startIndexer(b, cfg, at)
		var began time.Time
		p.await(b, "the index", func(m map[string]float64) bool {
			if began.IsZero() && m["skein_indexer_records_total"] > 0 {
				began = time.Now()
			}
			return m["skein_indexer_record_age_seconds_count"] >= float64(*indexRuns)
		})
		took, most := time.Since(began), p.peak(b)
		m := p.Metrics(b)
		p.Stop()
		server := serverCPU(b, asked) - before
		rows, bare := insertBare(b, at)
		b.Logf("indexer: %d runs, %d MiB, %d rows in %.1f s by %.1f CPU s and %.1f of the server, %.0f blocks that took %.2f s each, %.0f MiB resident at most",
			*indexRuns, bytes>>20, rows, took.Seconds(), p.CPU().Seconds(), server, m["skein_indexer_block_bytes_count"],
			m["skein_indexer_write_duration_seconds_sum"]/m["skein_indexer_write_duration_seconds_count"], most)
		b.Logf("bare: %.1f s, %.1f CPU s of the server: the indexer reaches %.0f %%", bare.Seconds(), serverCPU(b, asked)-before-server, 100*bare.Seconds()/took.Seconds())
		b.ReportMetric(float64(*indexRuns)/took.Seconds(), "runs/s")
		b.ReportMetric(100*bare.Seconds()/took.Seconds(), "%bare")
		b.ReportMetric(most, "MiB")
	}
}

// serverCPU is how many seconds of processors the server has taken for statements and merges.
func serverCPU(b *testing.B, c driver.Conn) float64 {
	b.Helper()
	us, err := strconv.ParseFloat(value(b, c, "SELECT toString(sum(value)) FROM system.events WHERE event = 'OSCPUVirtualTimeMicroseconds'"), 64)
	if err != nil {
		b.Fatal(err)
	}
	return us / 1e6
}

// insertBare inserts the rows of a database into one with the same tables, indexes and views, as the indexer's inserts do it: with their
// settings, so that merges make the indexes, and runs_by_time is filled by its view. It returns how many rows there were and how long the
// inserts took.
func insertBare(b *testing.B, from clickhousetest.Server) (rows int, took time.Duration) {
	b.Helper()
	to := clickhousetest.Start(b)
	site.ClickHouse(b, to)
	source, in := from.Open(b), bareConn(b, to)
	for _, table := range []string{"messages", "states", "tool_calls", "interrupts", "answers", "runs", "positions"} {
		n, d := copyTable(b, source, in, table)
		rows, took = rows+n, took+d
	}
	asked := to.Open(b)
	const count = "SELECT toString(count()) FROM runs_by_time FINAL"
	if got, want := value(b, asked, count), value(b, source, count); got != want {
		b.Fatalf("the bare inserts made %s rows of runs_by_time, the indexer %s", got, want)
	}
	return rows, took
}

// bareConn is a connection that compresses as the indexer's does, with the settings of its inserts.
func bareConn(b *testing.B, s clickhousetest.Server) driver.Conn {
	b.Helper()
	scheme, host, _ := strings.Cut(s.Addr, "://")
	o := &ch.Options{
		Addr: []string{host}, Auth: ch.Auth{Database: s.Database, Username: s.Username, Password: s.Password},
		Compression: &ch.Compression{Method: ch.CompressionLZ4},
		Settings: ch.Settings{
			"async_insert": 0, "insert_deduplicate": 1,
			"materialize_skip_indexes_on_insert":                 0, //nolint:misspell // the server's spelling
			"deduplicate_blocks_in_dependent_materialized_views": 1, //nolint:misspell // the server's spelling
		},
	}
	if scheme == "http" {
		o.Protocol = ch.HTTP
	}
	c, err := ch.Open(o)
	if err != nil {
		b.Fatal(err)
	}
	b.Cleanup(func() { _ = c.Close() })
	return c
}

// copyTable reads a table by parts, and inserts each. Only the inserts are timed. Types of columns are asked for once, as by the indexer,
// and a block has a token, so that the server makes no hash of it.
func copyTable(b *testing.B, from, to driver.Conn, table string) (rows int, took time.Duration) {
	b.Helper()
	const block = 50_000
	all, err := from.Query(b.Context(), "SELECT * FROM "+table)
	if err != nil {
		b.Fatal(err)
	}
	defer func() { _ = all.Close() }()
	types, names := all.ColumnTypes(), all.Columns()
	known := make([]ch.ColumnNameAndType, len(names))
	for i, name := range names {
		known[i] = ch.ColumnNameAndType{Name: name, Type: types[i].DatabaseTypeName()}
	}
	var held [][]any
	send := func() {
		ctx := ch.Context(b.Context(), ch.WithColumnNamesAndTypes(known),
			ch.WithSettings(ch.Settings{"insert_deduplication_token": fmt.Sprintf("%s/%d", table, rows)}))
		start := time.Now()
		batch, err := to.PrepareBatch(ctx, "INSERT INTO "+table+" ("+strings.Join(names, ", ")+")")
		if err != nil {
			b.Fatal(err)
		}
		for _, row := range held {
			if err := batch.Append(row...); err != nil {
				b.Fatal(err)
			}
		}
		if err := batch.Send(); err != nil {
			b.Fatal(err)
		}
		took += time.Since(start)
		rows += len(held)
		held = held[:0]
	}
	for all.Next() {
		row := make([]any, len(types))
		for i, t := range types {
			row[i] = reflect.New(t.ScanType()).Interface()
		}
		if err := all.Scan(row...); err != nil {
			b.Fatal(err)
		}
		for i := range row {
			row[i] = reflect.ValueOf(row[i]).Elem().Interface()
		}
		if held = append(held, row); len(held) == block {
			send()
		}
	}
	if err := all.Err(); err != nil {
		b.Fatal(err)
	}
	if len(held) > 0 {
		send()
	}
	return rows, took
}

// BenchmarkIndexerDelay has the indexer work off large records, of 2,000 messages in a megabyte each, on all partitions but the first, and
// meanwhile publishes small runs on the first one: how long does it take until each can be read in ClickHouse?
//
//	go test ./bench -run '^$' -bench IndexerDelay -benchtime 1x -v
func BenchmarkIndexerDelay(b *testing.B) {
	cfg := topicSet(b, kafkatest.Real(b, 1))
	at := clickhousetest.Start(b)
	one := len(indexed(b, cfg, 1, "large", "large", 0, 2000, 0, 60).Value)
	large := *backlogMiB << 20 / one
	publishRuns(b, cfg, func(yield func(*kgo.Record) bool) {
		for n := range large {
			if !yield(indexed(b, cfg, int32(1+n%(*width-1)), fmt.Sprintf("large-%06d", n), fmt.Sprintf("large-%06d", n), n, 2000, 0, 60)) {
				return
			}
		}
	})
	for b.Loop() {
		p := startIndexer(b, cfg, at)
		conn := at.Open(b)
		p.await(b, "the first block", func(m map[string]float64) bool { return m["skein_indexer_records_total"] > 0 })
		from := time.Now()
		producer, err := kafka.NewProducer(cfg)
		if err != nil {
			b.Fatal(err)
		}
		waiting, took := map[string]time.Time{}, []time.Duration{}
		var last time.Time
		for n, done := 0, false; !done || len(waiting) > 0; {
			if !done && time.Since(last) >= 500*time.Millisecond {
				run := fmt.Sprintf("small-%06d", n)
				waiting[run], last = time.Now(), time.Now()
				if err := producer.ProduceSync(b.Context(), indexed(b, cfg, 0, run, run, n, 1, 1, 20)).FirstErr(); err != nil {
					b.Fatal(err)
				}
				n++
				m := p.Metrics(b)
				done = m["skein_indexer_record_age_seconds_count"] >= float64(large)
			}
			for _, run := range seen(b.Context(), b, conn, slices.Collect(maps.Keys(waiting))) {
				took = append(took, time.Since(waiting[run]))
				delete(waiting, run)
			}
			time.Sleep(20 * time.Millisecond)
		}
		producer.Close()
		whole := time.Since(from)
		slices.Sort(took)
		m := p.Metrics(b)
		b.Logf("%d records of %d KiB in %.1f s, %.0f blocks that took %.2f s each, %.0f MiB resident at most; %d small runs are visible after %v (p50), %v (p95), %v (most)",
			large, one>>10, whole.Seconds(), m["skein_indexer_block_bytes_count"],
			m["skein_indexer_write_duration_seconds_sum"]/m["skein_indexer_write_duration_seconds_count"],
			p.peak(b), len(took), took[len(took)/2].Round(time.Millisecond), took[len(took)*95/100].Round(time.Millisecond),
			took[len(took)-1].Round(time.Millisecond))
		b.ReportMetric(took[len(took)/2].Seconds(), "s/p50")
		b.ReportMetric(took[len(took)-1].Seconds(), "s/most")
	}
}

// seen returns those of some runs that have a row.
func seen(ctx context.Context, b *testing.B, conn driver.Conn, runs []string) (found []string) {
	b.Helper()
	if len(runs) == 0 {
		return nil
	}
	var rows []struct {
		RunID string `ch:"run_id"`
	}
	if err := conn.Select(ctx, &rows, "SELECT DISTINCT run_id FROM runs WHERE tenant = 'acme' AND thread_id IN ? AND run_id IN ?", runs, runs); err != nil {
		b.Fatal(err)
	}
	for _, row := range rows {
		found = append(found, row.RunID)
	}
	return found
}
