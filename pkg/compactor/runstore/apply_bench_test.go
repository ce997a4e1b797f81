package runstore

import (
	"fmt"
	"log/slog"
	"math/rand/v2"
	"slices"
	"syscall"
	"testing"
	"time"

	"github.com/cockroachdb/pebble/v2"
	"github.com/cockroachdb/pebble/v2/vfs"

	"github.com/skeinhq/skein/pkg/record"
)

// BenchmarkStore_ApplyManyRuns writes two records each of runs in threads of their own: what a burst of very many runs costs the store,
// its compactions in the background among it, and then reads of threads in it.
func BenchmarkStore_ApplyManyRuns(b *testing.B) {
	const runs, open, reads = 200_000, 5_000, 20_000
	var entries []Entry
	threads := rand.New(rand.NewPCG(1, 2)).Perm(runs)
	for i := range runs + open {
		write := func(i int, status record.Status) {
			thread, run := fmt.Sprintf("thread-%032d", threads[i]), fmt.Sprintf("run-%032d", threads[i])
			entries = append(entries, storeRecord(b, thread, run, status, int64(len(entries))))
		}
		if i < runs {
			write(i, record.StatusRunning)
		}
		if i >= open {
			write(i-open, record.StatusFinished)
		}
	}
	for b.Loop() {
		cache := pebble.NewCache(cacheBytes)
		s, _, err := openStore(newDisk(vfs.Default, b.TempDir(), slog.New(slog.DiscardHandler)), 0, cache)
		if err != nil {
			b.Fatal(err)
		}
		from, cpu := time.Now(), processorTime(b)
		for chunk := range slices.Chunk(entries, 500) {
			if err := s.Apply(chunk, time.Unix(1000, 0)); err != nil {
				b.Fatal(err)
			}
		}
		m := s.db.Metrics()
		total := m.Total()
		b.ReportMetric((processorTime(b)-cpu).Seconds()/runs*1e6, "cpu-µs/run")
		b.ReportMetric(time.Since(from).Seconds()/runs*1e6, "wall-µs/run")
		b.ReportMetric(float64(total.TableBytesFlushed+total.TableBytesCompacted)/runs, "written-B/run")
		b.ReportMetric(float64(m.DiskSpaceUsage())/runs, "disk-B/run")
		b.ReportMetric(float64(m.Flush.Count), "flushes")
		b.ReportMetric(float64(m.Compact.Count), "compactions")
		cpu = processorTime(b)
		for _, n := range threads[:reads] { // of threads that were written long ago
			thread := s.Thread(fmt.Sprintf("acme/thread-%032d", n))
			_, err := thread.ErasedBelow()
			if err == nil {
				_, err = thread.Unsealed()
			}
			if err == nil {
				_, _, err = s.Record(fmt.Sprintf("acme/thread-%032d/run-%032d", n, n))
			}
			if err != nil {
				b.Fatal(err)
			}
		}
		b.ReportMetric((processorTime(b)-cpu).Seconds()/reads*1e6, "cpu-µs/thread-read")
		if err := s.Close(); err != nil {
			b.Fatal(err)
		}
		cache.Unref()
	}
}

// BenchmarkThread_NotThere reads what a thread that is new begins with, where some tables of the store, not yet merged, have a record
// of the size each.
func BenchmarkThread_NotThere(b *testing.B) {
	for _, size := range []int{1 << 10, 1 << 20, 14 << 20} {
		b.Run(fmt.Sprintf("records=%dKiB", size>>10), func(b *testing.B) {
			cache := pebble.NewCache(1 << 20) // memtables of many busy partitions leave no more of it
			defer cache.Unref()
			s, _, err := openStore(newDisk(vfs.Default, b.TempDir(), slog.New(slog.DiscardHandler)), 0, cache)
			if err != nil {
				b.Fatal(err)
			}
			for i := range 200 {
				thread, run := fmt.Sprintf("thread-%03d", i), fmt.Sprintf("run-%03d", i)
				e := storeRecord(b, thread, run, record.StatusRunning, int64(i))
				if i%20 == 0 {
					e = largeRecord(b, thread, run, record.StatusRunning, size, int64(i))
				}
				if err := s.Apply([]Entry{e}, time.Unix(1000, 0)); err != nil {
					b.Fatal(err)
				}
				if i%20 == 19 {
					if err := s.db.Flush(); err != nil {
						b.Fatal(err)
					}
				}
			}
			n := 0
			for b.Loop() {
				thread := s.Thread(fmt.Sprintf("acme/thread-%03d-%d", n%200, n))
				n++
				_, err := thread.ErasedBelow()
				if err == nil {
					_, err = thread.Unsealed()
				}
				if err == nil {
					_, _, err = thread.EndedAt(0)
				}
				if err != nil {
					b.Fatal(err)
				}
			}
			if err := s.Close(); err != nil {
				b.Fatal(err)
			}
		})
	}
}

func processorTime(b *testing.B) time.Duration {
	var u syscall.Rusage
	if err := syscall.Getrusage(syscall.RUSAGE_SELF, &u); err != nil {
		b.Fatal(err)
	}
	return time.Duration(u.Utime.Nano() + u.Stime.Nano())
}
