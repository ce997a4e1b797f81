package bench

import (
	"context"
	"fmt"
	"net/http"
	"net/url"
	"os"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	ch "github.com/ClickHouse/clickhouse-go/v2"
	"github.com/ClickHouse/clickhouse-go/v2/lib/driver"

	"github.com/skeinhq/skein/internal/clickhousetest"
	"github.com/skeinhq/skein/pkg/search"
	"github.com/skeinhq/skein/pkg/store/clickhouse"
	"github.com/skeinhq/skein/test/site"
)

// analyticsRuns says how many runs BenchmarkAnalytics makes: 5,000,000 in docs/bench/analytics.md.
const analyticsRuns = "SKEIN_BENCH_RUNS"

// insertRuns is what the rows of selectRuns go into.
const insertRuns = `
INSERT INTO runs (tenant, thread_id, run_id, version, parent_run_id, parent_by, branch_id, root_run_id, depth, status, agent,
    started_at, ended_at, updated_at, duration_ms, time_to_first_token_ms, raw_partition, raw_first, raw_next, raw_events, message_count, own_messages, input_messages,
    events, event_bytes, models, model_providers, model_input_tokens, model_output_tokens,
    model_reasoning_tokens, model_cached_tokens, model_cache_write_tokens, asked, head, record)
`

// selectRuns makes runs, so many a thread, over 200 tenants of uneven size, in the server itself: a range of numbers is one part. In so
// many of a hundred threads each run has a sibling (of a version from 1,000,000,000 on), a branch of its own that asks the same again or,
// one in three, something else. Ids and hashes are random, as those of agents are, so that they do not compress. Parts are ranges of time,
// as those of a server are.
const selectRuns = `
WITH
    -- Runs come in the order of time. The turns of a thread, ten as a rule, are a twelfth of all time apart, so that they lie in ten parts.
    number %% %[4]d AS turn, intDiv(number, %[4]d) AS slot, (slot + %[3]d - turn * intDiv(%[3]d, %[4]d + 2)) %% %[3]d AS thread,
    'tenant-' || toString(toUInt32(pow(200, (sipHash64(thread, 't') %% 1000) / 1000))) AS t,
    lower(hex(sipHash128(thread, 'thread'))) AS th,
    lower(hex(sipHash128(thread * %[4]d + turn, if(again, 'again', 'run')))) AS r,
    if(turn = 0, '', lower(hex(sipHash128(thread * %[4]d + turn - 1, 'run')))) AS p,
    if(again AND turn = 0, r, lower(hex(sipHash128(thread * %[4]d, 'run')))) AS root,
    if(again, r, root) AS branch,
    toDateTime64('2026-09-01 00:00:00', 3, 'UTC') + toIntervalMillisecond(intDiv(slot * 7776000000, %[3]d) + sipHash64(number, 'start') %% 60000) AS start,
    lower(hex(sipHash128(number, 'sha')) || hex(sipHash128(number, 'sha2'))) AS sha,
    substring(sha, if(again AND sipHash64(number, 'edit') %% 3 = 0, 17, 1), 16) AS asks,
    toUnixTimestamp64Milli(start) - 1788220800000 + if(again, 100, 0) AS first, -- offsets grow with time
    toInt32(sipHash64(thread, 'p') %% 12) AS part,
    toInt64(sipHash64(number, 'd') %% 60000) AS duration
SELECT
    t, th, r, number + again * 1000000000, p, if(turn = 0, 'none', 'content'), branch, root, turn, 'finished', 'agent-' || toString(sipHash64(thread, 'a') %% 20),
    start, start + toIntervalMillisecond(duration), start + toIntervalMillisecond(duration), duration, toInt64(duration / 10),
    part, first, first + 60, 60, turn * 2 + 2, 1, 1,
    map('RUN_STARTED', 1, 'TEXT_MESSAGE_CHUNK', 50, 'RUN_FINISHED', 1), map('RUN_STARTED', 90, 'TEXT_MESSAGE_CHUNK', 5000, 'RUN_FINISHED', 60),
    ['large'], [''], [toInt64(sipHash64(number, 'i') %% 9000)], [toInt64(sipHash64(number, 'o') %% 900)], [NULL], [NULL], [NULL], asks,
    concat('{"facts":{"asked":"', asks, '","question":"What is the weather like in ', substring(sha, 1, 12), '?","reply":"It is ', substring(sha, 12, 20),
        '"},"counts":{"messages":1,"inputMessages":1},"durationMs":', toString(duration), ',"hasInput":true,"parentRunId":"', p, '","parentBy":"content","branchId":"', branch,
        '","rootRunId":"', root, '","depth":', toString(turn), ',"status":"finished","agent":"agent-1","base":"', p, '","messageCount":', toString(turn * 2 + 2),
        ',"startedAt":"2026-09-17T12:00:00Z","endedAt":"2026-09-17T12:00:09Z","raw":{"partition":0,"first":', toString(first), ',"next":', toString(first + 60),
        ',"ranges":[[', toString(first), ',', toString(first + 60), ']],"events":60,"sha256":"', sha, '","nextSeq":-1}}'),
    concat('{"started":{"type":"RUN_STARTED","threadId":"', th, '","runId":"', r, '"},"input":{"threadId":"', th,
        '","runId":"', r, '","tools":[{"name":"search","description":"Searches the web","parameters":{"type":"object"}}],"context":[],"forwardedProps":{},"state":{"seen":"',
        substring(sha, 1, 24), '"}},"historyKey":"', substring(sha, 1, 32), '","terminal":{"type":"RUN_FINISHED","threadId":"', th, '","runId":"', r,
        '"},"stats":{"events":{"RUN_STARTED":1,"TEXT_MESSAGE_CHUNK":50,"RUN_FINISHED":1},"eventBytes":{"TEXT_MESSAGE_CHUNK":5000},"messages":1,"usage":[{"model":"large","inputTokens":5,"outputTokens":7}],"durationMs":',
        toString(duration), '},"inputSha256":"', sha, '","foldVersion":1}')
FROM numbers(%[1]d, %[2]d) ARRAY JOIN if(thread %% 100 < %[5]d, [0, 1], [0]) AS again`

// BenchmarkAnalytics measures reads over many runs, at 12 and at 40 parts that are not merged:
//
//	SKEIN_BENCH_RUNS=5000000 go test ./bench -run '^$' -bench Analytics -benchtime 200x -v -timeout 60m
func BenchmarkAnalytics(b *testing.B) {
	total := analyticsTotal(b)
	for _, parts := range []int{12, 40} {
		b.Run(fmt.Sprintf("parts=%d", parts), func(b *testing.B) { analyticsOf(b, total, parts) })
	}
}

func analyticsTotal(b *testing.B) int {
	b.Helper()
	text := os.Getenv(analyticsRuns)
	if text == "" {
		return 500_000
	}
	n, err := strconv.Atoi(text)
	if err != nil {
		b.Fatal(err)
	}
	return n
}

// generated is a new database with runs in so many parts, and so many of each thread.
// Of a hundred threads so many have siblings, which are more runs.
func generated(b *testing.B, total, parts, turns, siblings int) (server clickhousetest.Server, s *clickhouse.Store, c driver.Conn) {
	b.Helper()
	server = clickhousetest.Start(b)
	s, c = openStore(b, server)
	began := time.Now()
	// A statement is made in one block of the server's, so that merges do not take it away: they are stopped.
	execute(b, c, "SYSTEM STOP MERGES runs")
	execute(b, c, "SYSTEM STOP MERGES runs_by_time")
	for p := range parts {
		from, to := total*p/parts, total*(p+1)/parts
		// The turns of a thread come in different parts, as they do where a thread goes on for hours.
		execute(b, c, insertRuns+fmt.Sprintf(selectRuns, from, to-from, total/turns, turns, siblings)+oneBlock(2*(to-from)))
	}
	b.Logf("runs_by_time: %s bytes a run", value(b, c, "SELECT toString(round(sum(data_compressed_bytes) / sum(rows))) FROM system.parts WHERE database = currentDatabase() AND table = 'runs_by_time' AND active"))
	b.Logf("%s runs in %.0f s, in %s parts, %s bytes a run", value(b, c, "SELECT toString(count()) FROM runs"), time.Since(began).Seconds(),
		value(b, c, "SELECT toString(count()) FROM system.parts WHERE database = currentDatabase() AND table = 'runs' AND active"),
		value(b, c, "SELECT toString(round(sum(data_compressed_bytes) / sum(rows))) FROM system.parts WHERE database = currentDatabase() AND table = 'runs' AND active"))
	return server, s, c
}

// openStore migrates a server's database, and opens it as the store and as a plain connection.
func openStore(b *testing.B, server clickhousetest.Server) (s *clickhouse.Store, c driver.Conn) {
	b.Helper()
	s = site.ClickHouse(b, server)
	host, _ := strings.CutPrefix(server.Addr, "http://")
	c, err := ch.Open(&ch.Options{Addr: []string{host}, Protocol: ch.HTTP, ReadTimeout: 10 * time.Minute,
		Auth: ch.Auth{Database: server.Database, Username: server.Username, Password: server.Password}})
	if err != nil {
		b.Fatal(err)
	}
	b.Cleanup(func() {
		if err := c.Close(); err != nil {
			b.Error(err)
		}
	})
	return s, c
}

// oneBlock has a statement make one block, and with it one part, of so many rows.
func oneBlock(rows int) string {
	return fmt.Sprintf(" SETTINGS max_block_size = %d, min_insert_block_size_rows = %d, min_insert_block_size_bytes = 0, max_insert_threads = 1, max_threads = 1", rows, rows)
}

func analyticsOf(b *testing.B, total, parts int) {
	server, s, c := generated(b, total, parts, 10, 10)
	threads := someThreads(b, c, "version >= 1000000000") // these have siblings
	at := 0
	next := func() (tenant, thread string) {
		at++
		t := threads[at%len(threads)]
		return t.Tenant, t.Thread
	}
	b.Run("whole records", func(b *testing.B) {
		measure(b, c, func(ctx context.Context) error {
			tenant, thread := next()
			runs, err := s.Thread(ctx, tenant, thread)
			return tenRuns(len(runs), err)
		})
	})
	b.Run("lineage", func(b *testing.B) {
		measure(b, c, func(ctx context.Context) error {
			tenant, thread := next()
			runs, err := s.Lineage(ctx, tenant, thread)
			return tenRuns(len(runs), err)
		})
	})
	b.Run("last 24 hours of all tenants", func(b *testing.B) {
		const question = "SELECT tenant, status, count() AS runs, quantile(0.95)(duration_ms) AS p95 FROM v_runs_by_time " +
			"WHERE started_at >= '2026-10-30 00:00:00' AND started_at < '2026-10-31 00:00:00' GROUP BY tenant, status ORDER BY runs DESC"
		measure(b, c, func(ctx context.Context) error {
			return askOver(ctx, server.Addr+"/?"+url.Values{"database": {server.Database}}.Encode(), question)
		})
	})
	searches(b, c, s)
	for _, name := range []string{"ends", "first_token", "violations", "deep_threads", "regenerations", "unused_branches", "returns"} {
		text, err := os.ReadFile("../docs/questions/" + name + ".sql")
		if err != nil {
			b.Fatal(err)
		}
		b.Run("question "+name, func(b *testing.B) {
			measure(b, c, func(ctx context.Context) error {
				q := url.Values{"database": {server.Database}, "param_tenant": {"tenant-1"}, "param_from": {"2026-10-01 00:00:00"},
					"param_to": {"2026-10-31 00:00:00"}}
				return askOver(ctx, server.Addr+"/?"+q.Encode(), string(text))
			})
		})
	}
	longLineages(b, c, s, total, parts) // last: it makes parts and rows of its own
}

// someThread is a thread and the run at its end.
type someThread struct {
	Tenant string `ch:"tenant"`
	Thread string `ch:"thread_id"`
	Tip    string `ch:"tip"`
}

// someThreads are threads in random order, without those of which something holds.
func someThreads(b *testing.B, c driver.Conn, without string) (threads []someThread) {
	b.Helper()
	err := c.Select(b.Context(), &threads, "SELECT tenant, thread_id, argMax(run_id, depth) AS tip FROM runs WHERE thread_id IN (SELECT thread_id FROM runs WHERE sipHash64(run_id) % 97 = 0) "+
		"AND thread_id NOT IN (SELECT thread_id FROM runs WHERE "+without+") GROUP BY tenant, thread_id ORDER BY sipHash64(thread_id) LIMIT 5000")
	if err != nil {
		b.Fatal(err)
	}
	return threads
}

// generateMessages makes a question and an answer of each run: 15 to 40 of 30 words, a seventh of them with a number behind it. One run in
// 20,011 has a word of its own.
const generateMessages = `
INSERT INTO messages (tenant, thread_id, run_id, input, idx, version, message_id, role, raw)
SELECT
    tenant, thread_id, run_id, input, 0, version, lower(hex(sipHash128(run_id, input))) AS id, if(input = 1, 'user', 'assistant'),
    concat('{"id":"', id, '","role":"', if(input = 1, 'user', 'assistant'), '","content":"',
        arrayStringConcat(arrayMap(i -> concat(
            ['the','weather','in','train','late','ticket','please','order','number','is','was','not','found','we','can','to','of','a','result','search','hotel','paris','tomorrow','morning','price','about','would','like','change','booking'][1 + sipHash64(run_id, input, i) % 30],
            if(sipHash64(i, run_id, 2) % 7 = 0, lower(hex(toUInt16(pow(65000, (sipHash64(run_id, i) % 1000) / 1000)))), '')), range(toUInt64(15 + sipHash64(run_id, input) % 25))), ' '),
        if(sipHash64(run_id) % 20011 = 7, ' Zebrastripe', ''), '"}')
FROM runs ARRAY JOIN [0, 1] AS input`

// generateStates makes a state of each run.
const generateStates = `INSERT INTO states (tenant, thread_id, run_id, version, state) SELECT tenant, thread_id, run_id, version, concat('{"seen":"', asked, '"}') FROM runs`

// BenchmarkAnalyticsMerged says how many bytes a run and a message take once parts are merged, and measures searches for words:
//
//	SKEIN_BENCH_RUNS=200000 go test ./bench -run '^$' -bench AnalyticsMerged -benchtime 20x -v -timeout 60m
func BenchmarkAnalyticsMerged(b *testing.B) {
	_, s, c := generated(b, analyticsTotal(b), 4, 10, 0)
	execute(b, c, generateMessages)
	for _, table := range []string{"runs", "runs_by_time", "messages"} {
		execute(b, c, "SYSTEM START MERGES "+table)
		execute(b, c, "OPTIMIZE TABLE "+table+" FINAL") //nolint:misspell // the server's spelling
		b.Logf("%s: %s", table, value(b, c, "SELECT concat(toString(sum(rows)), ' rows, bytes a row: ', toString(round(sum(data_compressed_bytes) / sum(rows))), ' of data, ', toString(round(sum(secondary_indices_compressed_bytes) / sum(rows))), ' of indexes') "+
			"FROM system.parts WHERE database = currentDatabase() AND table = '"+table+"' AND active"))
		b.Logf("  %s", value(b, c, "SELECT arrayStringConcat(groupArray(concat(column, ' ', toString(bytes))), ', ') FROM (SELECT column, round(sum(column_data_compressed_bytes) / sum(rows), 1) AS bytes "+
			"FROM system.parts_columns WHERE database = currentDatabase() AND table = '"+table+"' AND active GROUP BY column ORDER BY bytes DESC LIMIT 10)"))
	}
	for _, m := range []struct{ name, query string }{
		{"a word of one run in 20,011", "words=zebrastripe"},
		{"a word that is nowhere", "words=unheard"},
		{"a word of most messages", "words=ticket"},
		{"a word of three letters", "words=xyz"},
	} {
		b.Run("search "+m.name, func(b *testing.B) {
			values, err := url.ParseQuery(m.query)
			if err != nil {
				b.Fatal(err)
			}
			q, err := search.ParseQuery(values, "tenant-1", time.Now())
			if err != nil {
				b.Fatal(err)
			}
			q.Bounds = search.Bounds{Rows: 50_000_000, Time: time.Minute}
			measure(b, c, func(ctx context.Context) error {
				_, err := s.Search(ctx, "tenant-1", q)
				return err
			})
		})
	}
}

// searches measures GET /v1/runs and GET /v1/statistics in the store, over the tenant with the most threads and 30 days.
func searches(b *testing.B, c driver.Conn, s *clickhouse.Store) {
	within := "since=2026-10-01T00:00:00Z&until=2026-10-31T00:00:00Z"
	bounds := search.Bounds{Rows: 50_000_000, Time: time.Minute}
	for _, m := range []struct{ name, query string }{
		{"newest 100", ""},
		{"newest 100 of 30 days", within},
		{"longest 100 of an agent", within + "&agent=agent-7&sort=duration"},
		{"newest 100 of a thread prefix", "prefix=7"},
		{"newest 100 regenerations", within + "&rewrote=regeneration"},
	} {
		b.Run("search "+m.name, func(b *testing.B) {
			values, err := url.ParseQuery(m.query)
			if err != nil {
				b.Fatal(err)
			}
			q, err := search.ParseQuery(values, "tenant-1", time.Now())
			if err != nil {
				b.Fatal(err)
			}
			q.Bounds = bounds
			measure(b, c, func(ctx context.Context) error {
				_, err := s.Search(ctx, "tenant-1", q)
				return err
			})
		})
	}
	for _, m := range []struct{ name, query string }{
		{"runs by agent", "by=agent&measure=runs"},
		{"six measures by agent and week", "by=agent,week&measure=runs,errors,interrupts,tokens,durationP50,durationP95"},
		{"tokens by model and day", "by=model,day&measure=inputTokens,outputTokens"},
		{"regenerations and edits by agent", "by=agent&measure=runs,regenerations,edits"},
		{"tool failures by tool", "by=tool&measure=toolCalls,toolFailures"},
	} {
		b.Run("statistics "+m.name, func(b *testing.B) {
			values, err := url.ParseQuery(within + "&" + m.query)
			if err != nil {
				b.Fatal(err)
			}
			q, err := search.ParseStatistics(values, time.Now())
			if err != nil {
				b.Fatal(err)
			}
			q.Bounds = bounds
			measure(b, c, func(ctx context.Context) error {
				_, err := s.Statistics(ctx, "tenant-1", q)
				return err
			})
		})
	}
}

// longLineages measures the lineage of threads of 10,000 and of 100,000 runs, which lie in as many parts as the others.
func longLineages(b *testing.B, c driver.Conn, s *clickhouse.Store, total, parts int) {
	for _, n := range []int{10_000, 100_000} {
		if n > total {
			continue
		}
		thread := fmt.Sprintf("long-%d", n)
		for p := range parts {
			from, to := n*p/parts, n*(p+1)/parts
			execute(b, c, fmt.Sprintf("INSERT INTO runs SELECT * REPLACE ('long' AS tenant, '%s' AS thread_id) FROM (SELECT * FROM runs WHERE tenant != 'long' AND version >= %d AND version < %d)", thread, from, to))
		}
		b.Run(fmt.Sprintf("lineage of %d runs", n), func(b *testing.B) {
			var before, after runtime.MemStats
			runtime.GC()
			runtime.ReadMemStats(&before)
			measure(b, c, func(ctx context.Context) error {
				runs, err := s.Lineage(ctx, "long", thread)
				if err == nil && len(runs) != n {
					err = fmt.Errorf("%d runs, want %d", len(runs), n)
				}
				runtime.ReadMemStats(&after)
				runtime.KeepAlive(runs)
				return err
			})
			b.ReportMetric(float64(after.HeapAlloc-min(before.HeapAlloc, after.HeapAlloc))/1e6, "MB-heap")
		})
	}
}

func tenRuns(n int, err error) error {
	if err == nil && n != 10 {
		return fmt.Errorf("%d runs, want 10", n)
	}
	return err
}

// measure runs f and reports what the server read for it.
func measure(b *testing.B, c driver.Conn, f func(context.Context) error) {
	read := func() float64 {
		n, err := strconv.ParseFloat(value(b, c, "SELECT toString(sum(value)) FROM system.events WHERE event = 'SelectedBytes'"), 64)
		if err != nil {
			b.Fatal(err)
		}
		return n
	}
	before, server, own := read(), serverCPU(b, c), cpu(b)
	var took []time.Duration
	for b.Loop() {
		start := time.Now()
		if err := f(b.Context()); err != nil {
			b.Fatal(err)
		}
		took = append(took, time.Since(start))
	}
	own = cpu(b) - own // before the server is asked again
	b.ReportMetric((serverCPU(b, c)-server+own.Seconds())*1000/float64(b.N), "CPU-ms/op")
	b.ReportMetric((read()-before)/float64(b.N)/1e6, "MB-read/op")
	b.ReportMetric(b.Elapsed().Seconds()*1000/float64(b.N), "ms/op")
	slices.Sort(took)
	b.ReportMetric(took[len(took)/2].Seconds()*1000, "ms-p50")
	b.ReportMetric(0, "ns/op")
}

func execute(b *testing.B, c driver.Conn, statement string) {
	b.Helper()
	if err := c.Exec(b.Context(), statement); err != nil {
		b.Fatal(err)
	}
}

func value(b *testing.B, c driver.Conn, query string) string {
	b.Helper()
	var v string
	if err := c.QueryRow(b.Context(), query).Scan(&v); err != nil {
		b.Fatal(err)
	}
	return v
}

func askOver(ctx context.Context, at, body string) error {
	r, err := http.NewRequestWithContext(ctx, http.MethodPost, at, strings.NewReader(body))
	if err != nil {
		return err
	}
	resp, err := http.DefaultClient.Do(r)
	if err != nil {
		return err
	}
	if resp.StatusCode != http.StatusOK {
		err = fmt.Errorf("asking ClickHouse: %s", resp.Status)
	}
	if e := resp.Body.Close(); err == nil {
		err = e
	}
	return err
}
