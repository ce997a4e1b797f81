package bench

import (
	"bytes"
	"context"
	"encoding/json"
	"flag"
	"fmt"
	"io"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/skeinhq/skein/internal/clickhousetest"
	"github.com/skeinhq/skein/pkg/kafka"
	"github.com/skeinhq/skein/pkg/kafka/kafkatest"
	"github.com/skeinhq/skein/pkg/record"
	"github.com/skeinhq/skein/test/process"
)

var (
	verifyRecords = flag.Int("verify-records", 200_000, "records that BenchmarkVerify proves; 1600000 make 11,851 runs")
	longThreads   = flag.Int("long-threads", 4_000, "threads of BenchmarkVerifyLong, each of which speaks from the first record to the last")
	onClickHouse  = flag.Bool("verify-clickhouse", false, "have the index on ClickHouse, not SQLite")
)

// BenchmarkVerify proves all runs of a topic set, and one run of a busy thread: 17 runs that speak in turn over 107,000
// offsets. Runs are of 135 records, 200 at a time, and a thread is of 10 runs. In turn with it, all records are folded again
// (skein refold), and plainly read.
func BenchmarkVerify(b *testing.B) {
	cluster := kafkatest.Real(b, 1)
	l := load{open: 200, deltas: 130, turns: 10}
	l.runs = *verifyRecords / (l.deltas + around)
	for b.Loop() {
		s := startStages(b, topicSet(b, cluster))
		l.send(b, s.cfg, int32(*width), 0)
		busy := newBusy()
		busy.send(b, s.cfg)
		s.index(b, l.records()+busy.records())
		b.Logf("%d records in %d runs, on %s", l.records()+busy.records(), l.runs+busy.runs(), cluster.Version)
		s.compareAll(b, l.records()+busy.records(), l.runs+busy.runs())
		s.compareOne(b, busy)
	}
}

// BenchmarkVerifyLong proves threads of one run each, all of which speak in turn from the topic's first record to its last, in one
// partition: the most that has to be in memory, and as there are more of them than are folded at once, all is read several times.
func BenchmarkVerifyLong(b *testing.B) {
	cluster := kafkatest.Real(b, 1)
	*width = 1
	l := load{open: *longThreads, runs: *longThreads, turns: 1}
	l.deltas = max(1, *verifyRecords/l.runs-around)
	for b.Loop() {
		s := startStages(b, topicSet(b, cluster))
		l.send(b, s.cfg, int32(*width), 0)
		s.index(b, l.records())
		b.Logf("%d records in %d runs, on %s", l.records(), l.runs, cluster.Version)
		s.compareAll(b, l.records(), l.runs)
	}
}

// busy is a thread in which a first run has ended, and then many go on from it at the same time.
type busy struct {
	load // of those that speak at the same time
}

const busyThread = "busy"

func newBusy() busy {
	return busy{load{runs: 17, open: 17, deltas: 107_000/17 - around + 1}}
}

func (l busy) runs() int    { return l.load.runs + 1 }
func (l busy) records() int { return l.load.records() + 4 }
func (l busy) run(i int) string {
	return fmt.Sprintf("busy-%02d", i)
}

func (l busy) send(tb testing.TB, cfg kafka.Config) {
	tb.Helper()
	key, err := record.ThreadKey("acme", busyThread)
	if err != nil {
		tb.Fatal(err)
	}
	one := func(run int, kind record.Kind, format string, args ...any) *kgo.Record {
		return &kgo.Record{
			Partition: record.Partition([]byte(key), int32(*width)), Key: []byte(key), Value: fmt.Appendf(nil, format, args...),
			Headers: kafka.Headers(record.Headers{Kind: kind, RunID: l.run(run), Seq: -1}),
		}
	}
	const first = `{"id":"user","role":"user","content":"What is the weather like in these towns?"}`
	input := `{"threadId":"` + busyThread + `","runId":%q,"state":{},"messages":[%s],"tools":[],"context":[],"forwardedProps":{}}`
	produceAll(tb, cfg, 0, func(yield func(*kgo.Record) bool) {
		for _, m := range []*kgo.Record{
			one(0, record.KindInput, input, l.run(0), first),
			one(0, record.KindEvent, `{"type":"RUN_STARTED","threadId":%q,"runId":%q}`, busyThread, l.run(0)),
			one(0, record.KindEvent, `{"type":"TEXT_MESSAGE_CHUNK","messageId":"plan","role":"assistant","delta":"I ask for each of them."}`),
			one(0, record.KindEvent, `{"type":"RUN_FINISHED","threadId":%q,"runId":%q}`, busyThread, l.run(0)),
		} {
			if !yield(m) {
				return
			}
		}
		plan := first + `,{"id":"plan","role":"assistant","content":"I ask for each of them."},{"id":"town-%d","role":"user","content":"And there?"}`
		for step := range l.deltas + around {
			for i := 1; i < l.runs(); i++ {
				var m *kgo.Record
				switch step {
				case 0:
					m = one(i, record.KindInput, input, l.run(i), fmt.Sprintf(plan, i))
				case 1:
					m = one(i, record.KindEvent, `{"type":"RUN_STARTED","threadId":%q,"runId":%q}`, busyThread, l.run(i))
				case 2:
					m = one(i, record.KindEvent, `{"type":"TEXT_MESSAGE_START","messageId":"m-%d","role":"assistant"}`, i)
				case l.deltas + 3:
					m = one(i, record.KindEvent, `{"type":"TEXT_MESSAGE_END","messageId":"m-%d"}`, i)
				case l.deltas + 4:
					m = one(i, record.KindEvent, `{"type":"RUN_FINISHED","threadId":%q,"runId":%q}`, busyThread, l.run(i))
				default:
					m = one(i, record.KindEvent, `{"type":"TEXT_MESSAGE_CONTENT","timestamp":%d,"messageId":"m-%d","delta":%q}`, 1767225600000+step*10, i, token(i, step))
				}
				if !yield(m) {
					return
				}
			}
		}
	})
}

// stages are those of a topic set, whose records are indexed.
type stages struct {
	cfg           kafka.Config
	dir           string
	skein, url    string
	store         []string // flags of the lineage store
	indexer, read *stage
}

// startStages makes the lineage store.
func startStages(tb testing.TB, cfg kafka.Config) *stages {
	tb.Helper()
	dir := tb.TempDir()
	s := &stages{cfg: cfg, dir: dir, skein: command(tb, "skein", dir), store: []string{"--sqlite", filepath.Join(dir, "store.db")}}
	if *onClickHouse {
		s.store = clickhousetest.Start(tb).Flags(tb)
	}
	migrate(tb, s.skein, s.store)
	return s
}

// index has a compactor fold so many records and an indexer write the rows, and starts query.
func (s *stages) index(tb testing.TB, n int) {
	tb.Helper()
	compactor := startCompactorIn(tb, s.cfg, s.dir)
	adm := kafkatest.Admin(tb, s.cfg)
	process.EventuallyWithin(tb, time.Hour, "all is folded", func() (int64, bool) {
		at := committed(tb.Context(), adm, s.cfg.CompactorGroup())
		return at, at >= int64(n)
	})
	compactor.Stop()
	spans, err := kafka.Spans(tb.Context(), adm, s.cfg.Topics().Runs)
	if err != nil {
		tb.Fatal(err)
	}
	records := 0.0
	for _, err := range kafka.Scan(tb.Context(), s.cfg, s.cfg.Topics().Runs, spans) {
		if err != nil {
			tb.Fatal(err)
		}
		records++
	}
	s.indexer = start(tb, s.dir, command(tb, "indexer", s.dir), s.cfg, s.store...)
	s.indexer.await(tb, "the index", func(m map[string]float64) bool {
		return m["skein_indexer_records_total"] >= records && m["skein_indexer_lag_seconds"] == 0
	})
	web := []string{"--listen", "127.0.0.1:0", "--tenant", "acme"}
	s.read = start(tb, s.dir, command(tb, "query", s.dir), s.cfg, append(web, s.store...)...)
	s.read.awaitReady(tb)
	s.url = "http://" + s.read.Said("listening", "address")
}

// run runs skein, and returns what it printed.
func (s *stages) run(tb testing.TB, args ...string) (string, taken) {
	tb.Helper()
	cmd := exec.CommandContext(tb.Context(), s.skein, args...)
	var said bytes.Buffer
	cmd.Env, cmd.Stderr = process.Environment(), &said
	out, t, err := output(cmd)
	if err != nil {
		tb.Fatalf("skein %s: %v\n%s%s", strings.Join(args, " "), err, out, &said)
	}
	return string(out), t
}

// ask is run for a command that has query work for it.
func (s *stages) ask(tb testing.TB, args ...string) (string, taken) {
	tb.Helper()
	if err := os.WriteFile(fmt.Sprintf("/proc/%d/clear_refs", s.read.PID()), []byte("5"), 0); err != nil { // VmHWM is VmRSS again
		tb.Fatal(err)
	}
	before := s.read.Metrics(tb)["process_cpu_seconds_total"]
	out, t := s.run(tb, append(args, "--url", s.url)...)
	t.cpu += s.read.Metrics(tb)["process_cpu_seconds_total"] - before
	t.mib = s.read.peak(tb)
	return out, t
}

// plainRead is what a bare client takes that reads all events: that of bench/peers.
func (s *stages) plainRead(tb testing.TB, records int) taken {
	tb.Helper()
	if err := process.Build(s.dir, nil, "./peers"); err != nil {
		tb.Fatal(err)
	}
	_, t, err := output(exec.CommandContext(tb.Context(), filepath.Join(s.dir, "peers"), "yardstick", "consumer",
		strings.Join(s.cfg.Brokers, ","), s.cfg.Topics().Events, strconv.Itoa(records)))
	if err != nil {
		tb.Fatal(err)
	}
	return t
}

// compareAll reads all, folds all again, and proves all, in turn.
func (s *stages) compareAll(b *testing.B, records, runs int) {
	b.Helper()
	var reads, refolds, verifies []taken
	for round := range *rounds {
		reads = append(reads, s.plainRead(b, records))
		out, t := s.run(b, "refold", "--all", "--brokers", strings.Join(s.cfg.Brokers, ","), "--topic-prefix", s.cfg.TopicPrefix)
		if !strings.Contains(out, fmt.Sprint(runs, " runs")) {
			b.Fatalf("refold says %s", out)
		}
		refolds = append(refolds, t)
		out, t = s.ask(b, "verify", "--all")
		if want := fmt.Sprintf("%d runs: %d proved, 0 differ, 0 not proved", runs, runs); !strings.Contains(out, want) {
			b.Fatalf("verify says %s, want %s", out, want)
		}
		verifies = append(verifies, t)
		b.Logf("plain read    %s", reads[round])
		b.Logf("refold --all  %s", refolds[round])
		b.Logf("verify --all  %s; %.2f times refold by the clock, %.2f in processor time", t, t.wall/refolds[round].wall, t.cpu/refolds[round].cpu)
	}
	b.ReportMetric(middle(verifies, verifies, func(v, _ taken) float64 { return v.wall }), "s-verify")
	b.ReportMetric(middle(verifies, verifies, func(v, _ taken) float64 { return v.mib }), "MiB-peak")
	b.ReportMetric(middle(verifies, refolds, func(v, r taken) float64 { return v.wall / r.wall }), "verify/refold")
	b.ReportMetric(middle(verifies, reads, func(v, r taken) float64 { return v.wall / r.wall }), "verify/read")
}

// compareOne proves one run and reads its ranges plainly, in turn; both by the clock, from a request to its answer, as it is with a client
// that was just made.
func (s *stages) compareOne(b *testing.B, l busy) {
	b.Helper()
	const times = 9
	path := s.url + "/v1/threads/" + busyThread + "/runs/" + l.run(l.runs()-1)
	var of struct{ Raw record.Raw }
	if err := json.Unmarshal(get(b, path), &of); err != nil {
		b.Fatal(err)
	}
	var reads, requests, verifies []taken
	for range times {
		began := time.Now()
		n := readRanges(b, s.cfg, of.Raw)
		reads = append(reads, taken{wall: time.Since(began).Seconds()})
		if n < l.deltas {
			b.Fatalf("%d records are in its ranges", n)
		}
		began = time.Now()
		if text := get(b, path+"/verify"); !bytes.Contains(text, []byte(`"proved"`)) {
			b.Fatalf("it says %s", text)
		}
		requests = append(requests, taken{wall: time.Since(began).Seconds()})
		_, t := s.ask(b, "verify", busyThread, l.run(l.runs()-1))
		verifies = append(verifies, t)
	}
	wall := func(t, _ taken) float64 { return t.wall * 1000 }
	b.Logf("one run of %d records in %d ranges over %d offsets: plain read %.0f ms, request %.0f ms, skein verify %.0f ms (medians of %d)",
		of.Raw.Events, len(of.Raw.Ranges), of.Raw.Next-of.Raw.First, middle(reads, reads, wall), middle(requests, requests, wall),
		middle(verifies, verifies, wall), times)
	b.ReportMetric(middle(requests, reads, func(v, r taken) float64 { return v.wall / r.wall }), "one/read")
}

// middle is the median of what f makes of the pairs.
func middle(a, b []taken, f func(a, b taken) float64) float64 {
	values := make([]float64, len(a))
	for i := range a {
		values[i] = f(a[i], b[i])
	}
	slices.Sort(values)
	return values[len(values)/2]
}

func get(tb testing.TB, url string) []byte {
	tb.Helper()
	resp, err := http.Get(url)
	if err != nil {
		tb.Fatal(err)
	}
	defer resp.Body.Close()
	body, err := io.ReadAll(resp.Body)
	if err != nil || resp.StatusCode != http.StatusOK {
		tb.Fatalf("%s says %d %s: %v", url, resp.StatusCode, body, err)
	}
	return body
}

// readRanges reads the stretch of a run with the library's defaults, and returns how many records are in its ranges.
func readRanges(tb testing.TB, cfg kafka.Config, raw record.Raw) (n int) {
	tb.Helper()
	ctx, cancel := context.WithTimeout(tb.Context(), time.Minute)
	defer cancel()
	cl, err := kgo.NewClient(kgo.SeedBrokers(cfg.Brokers...), kgo.FetchIsolationLevel(kgo.ReadCommitted()),
		kgo.ConsumePartitions(map[string]map[int32]kgo.Offset{cfg.Topics().Events: {raw.Partition: kgo.NewOffset().At(raw.First)}}))
	if err != nil {
		tb.Fatal(err)
	}
	defer cl.Close()
	for at := raw.First; at < raw.Next; {
		fetches := cl.PollFetches(ctx)
		if err := fetches.Err(); err != nil {
			tb.Fatal(err)
		}
		for it := fetches.RecordIter(); !it.Done(); {
			at = it.Next().Offset + 1
			n++
		}
	}
	return n
}
