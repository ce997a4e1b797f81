package bench

import (
	"context"
	"flag"
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/skeinhq/skein/pkg/kafka"
	"github.com/skeinhq/skein/pkg/kafka/kafkatest"
	"github.com/skeinhq/skein/pkg/record"
	"github.com/skeinhq/skein/test/process"
)

var (
	endedRuns    = flag.Int("ended-runs", 20_000, "runs that have ended in BenchmarkMemory")
	endedThreads = flag.Int("ended-threads", 0, "threads of the runs that have ended in BenchmarkMemory; 0: ten runs to a thread")
	openRuns     = flag.Int("open-runs", 1_000, "runs that stay open in BenchmarkMemory")
)

// BenchmarkMemory folds many runs, then opens many others at 5,000 events a second, then kills the process
// and starts it again, first on its folder and then on an empty one. It tells what the process takes of memory at
// each of these steps, its longest time without a commit meanwhile, how long after the kill events are committed
// again, and how long it takes to make the local stores anew.
func BenchmarkMemory(b *testing.B) {
	cluster := kafkatest.Real(b, 1)
	for b.Loop() {
		cfg := topicSet(b, cluster)
		dir := b.TempDir()
		p := startCompactorIn(b, cfg, dir)

		began := time.Now()
		sent := publishAll(b, cfg, 0, shortRuns(*endedRuns, *endedThreads))
		p.await(b, "the end of all runs", func(m map[string]float64) bool { return m["skein_compactor_events_total"] >= float64(sent) })
		b.Logf("%d runs ended, %d events, in %s: %s", *endedRuns, sent, time.Since(began).Round(time.Second), p.memory(b))
		b.ReportMetric(p.peak(b), "MiB-peak-ended")

		watch := p.watch(b)
		spoken := publishAll(b, cfg, 5_000, speaking(*openRuns))
		sent += spoken
		p.await(b, "what open runs have said", func(m map[string]float64) bool { return m["skein_compactor_events_total"] >= float64(sent) })
		longest := watch()
		m := p.Metrics(b)
		b.Logf("%.0f runs open, %d events: %s; longest time between two commits %s", m["skein_compactor_open_runs"], spoken, p.memory(b), longest)
		if got := m["skein_compactor_open_runs"]; got != float64(*openRuns) {
			b.Errorf("%.0f runs are open, want %d", got, *openRuns)
		}
		b.ReportMetric(p.peak(b), "MiB-peak")
		b.ReportMetric(longest.Seconds(), "s-between-commits")

		p.End(os.Kill)
		killed := time.Now()
		p = startCompactorIn(b, cfg, dir)
		publishAll(b, cfg, 0, shortRuns(1, 0))
		p.await(b, "a commit after the kill", func(m map[string]float64) bool { return m["skein_compactor_transactions_total"] > 0 })
		first := time.Since(killed)
		p.await(b, "events after the kill", func(m map[string]float64) bool { return m["skein_compactor_events_total"] > 0 })
		again := time.Since(killed)
		b.Logf("after kill -9: first transaction after %s, first new events committed after %s: %s", first, again, p.memory(b))
		if n := p.Metrics(b)["skein_compactor_store_rebuilds_total"]; n != 0 {
			b.Errorf("%.0f local stores were made anew", n)
		}
		b.ReportMetric(again.Seconds(), "s-to-commit-again")

		p.End(os.Kill)
		if err := os.RemoveAll(p.dir); err != nil {
			b.Fatal(err)
		}
		killed = time.Now()
		p = startCompactorIn(b, cfg, dir)
		p.awaitReady(b)
		ready := time.Since(killed)
		most := p.peak(b)
		m = p.Metrics(b)
		b.Logf("on an empty folder: ready after %s, %.0f records of %.0f MiB read: %s", ready.Round(100*time.Millisecond),
			m["skein_compactor_catch_up_records_total"], m["skein_compactor_catch_up_bytes_total"]/(1<<20), p.memory(b))
		if got := m["skein_compactor_catch_up_records_total"]; got < float64(*endedRuns) {
			b.Errorf("%.0f records were read, want one of each ended run at least", got)
		}
		if most > 1<<10 {
			b.Errorf("%.0f MiB resident at most on an empty folder, want 1 GiB", most)
		}
		b.ReportMetric(most, "MiB-peak-empty")
		b.ReportMetric(ready.Seconds(), "s-to-ready-empty")
	}
}

// awaitReady waits until the process says that all its partitions are open.
func (p *stage) awaitReady(tb testing.TB) {
	tb.Helper()
	process.EventuallyWithin(tb, time.Hour, p.Name+" is ready", func() (string, bool) {
		status, body := process.Get(tb, "http://"+p.Said("started", "admin")+"/readyz")
		return body, status == http.StatusOK
	})
}

// stream gives out events in the order in which they are sent.
type stream func(yield func(thread, run, value string) bool)

// shortRuns are runs of three events: ten to a thread, one after the other, or so many threads, of which some speak in
// turn until they are at their end. (All of them in turn would measure how conversations are restored.)
func shortRuns(n, threads int) stream {
	const atATime = 50
	block := 1 // runs of the threads that speak in turn
	if threads > 0 {
		block = n / threads * atATime
	}
	return func(yield func(thread, run, value string) bool) {
		for i := range n {
			thread, run := fmt.Sprintf("ended-%08d", i/10), fmt.Sprintf("run-%08d", i)
			if threads > 0 {
				thread = fmt.Sprintf("ended-%08d", i/block*atATime+i%atATime)
			}
			for _, value := range []string{
				fmt.Sprintf(`{"type":"RUN_STARTED","timestamp":1767225600000,"threadId":%q,"runId":%q}`, thread, run),
				fmt.Sprintf(`{"type":"TEXT_MESSAGE_CHUNK","timestamp":1767225600000,"messageId":"m-%s","role":"assistant","delta":"It rains in the town that you asked for, and it will rain tomorrow."}`, run),
				fmt.Sprintf(`{"type":"RUN_FINISHED","timestamp":1767225600000,"threadId":%q,"runId":%q}`, thread, run),
			} {
				if !yield(thread, run, value) {
					return
				}
			}
		}
	}
}

// speaking are runs that start, say some words, and then wait for something; some of them at a time.
func speaking(n int) stream {
	const atATime, words = 2_000, 10
	return func(yield func(thread, run, value string) bool) {
		for first := 0; first < n; first += atATime {
			for turn := range 2 + words {
				for i := first; i < min(first+atATime, n); i++ {
					thread, run := fmt.Sprintf("open-%08d", i), fmt.Sprintf("run-%08d", i)
					value := fmt.Sprintf(`{"type":"TEXT_MESSAGE_CONTENT","timestamp":1767225600000,"messageId":"m-%s","delta":%q}`, run, token(i, turn))
					switch turn {
					case 0:
						value = fmt.Sprintf(`{"type":"RUN_STARTED","timestamp":1767225600000,"threadId":%q,"runId":%q}`, thread, run)
					case 1:
						value = fmt.Sprintf(`{"type":"TEXT_MESSAGE_START","timestamp":1767225600000,"messageId":"m-%s","role":"assistant"}`, run)
					}
					if !yield(thread, run, value) {
						return
					}
				}
			}
		}
	}
}

// publishAll sends events at a rate a second, or at 0 as fast as it goes, and returns their number.
func publishAll(tb testing.TB, cfg kafka.Config, rate int, all stream) int {
	tb.Helper()
	n := 0
	produceAll(tb, cfg, rate, func(yield func(*kgo.Record) bool) {
		all(func(thread, run, value string) bool {
			key, err := record.ThreadKey("acme", thread)
			if err != nil {
				panic(err) // the ids above are right
			}
			n++
			return yield(&kgo.Record{
				Partition: record.Partition([]byte(key), int32(*width)), Key: []byte(key), Value: []byte(value),
				Headers: kafka.Headers(record.Headers{Kind: record.KindEvent, RunID: run, Seq: -1}),
			})
		})
	})
	return n
}

// await waits until the process's metrics say so.
func (p *stage) await(tb testing.TB, what string, is func(map[string]float64) bool) {
	tb.Helper()
	process.EventuallyWithin(tb, time.Hour, what, func() (string, bool) {
		select {
		case <-p.Ended:
			tb.Fatalf("waiting for %s: %s has ended", what, p.Name)
		default:
		}
		m, err := p.ReadMetrics()
		return fmt.Sprint(err), err == nil && is(m)
	})
}

// watch begins to look at transactions; what it returns ends that and gives the longest time between two.
func (p *stage) watch(tb testing.TB) func() time.Duration {
	tb.Helper()
	ctx, cancel := context.WithCancel(tb.Context())
	var longest atomic.Int64
	var done sync.WaitGroup
	done.Go(func() {
		at, last := time.Now(), -1.0
		for ctx.Err() == nil {
			if m, err := p.ReadMetrics(); err == nil {
				if n := m["skein_compactor_transactions_total"]; n != last {
					at, last = time.Now(), n
				}
				longest.Store(max(longest.Load(), int64(time.Since(at))))
			}
			time.Sleep(20 * time.Millisecond)
		}
	})
	return func() time.Duration { cancel(); done.Wait(); return time.Duration(longest.Load()) }
}

// peak is the most that the process has had resident, in MiB.
func (p *stage) peak(tb testing.TB) float64 {
	tb.Helper()
	n, err := p.PeakMemory()
	if err != nil {
		tb.Fatal(err)
	}
	return mib(n)
}

func (p *stage) memory(tb testing.TB) string {
	tb.Helper()
	m := p.Metrics(tb)
	var disk int64
	files, err := filepath.Glob(filepath.Join(p.dir, "*", "*"))
	if err != nil {
		tb.Fatal(err)
	}
	for _, name := range files {
		if info, err := os.Stat(name); err == nil { // Pebble takes files away meanwhile
			disk += info.Size()
		}
	}
	resident, err := p.Memory()
	if err != nil {
		tb.Fatal(err)
	}
	return fmt.Sprintf("%.0f MiB resident, %.0f at most, heap %.0f MiB, longest collector pause %.1f ms, local stores %.0f MiB",
		mib(resident), p.peak(tb), m["go_memstats_heap_alloc_bytes"]/(1<<20), m[`go_gc_duration_seconds{quantile="1"}`]*1000, mib(disk))
}
