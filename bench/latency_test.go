package bench

import (
	"context"
	"flag"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/skeinhq/skein/pkg/kafka"
	"github.com/skeinhq/skein/pkg/kafka/kafkatest"
	"github.com/skeinhq/skein/pkg/record"
)

var rate = flag.Int("rate", 20_000, "events a second of BenchmarkLatency: half of what BenchmarkDrain has reached")

// BenchmarkLatency tells how long it takes from a run's last event to its last record: from the moment at which
// the producer is given the event to that at which a reader of committed records has it. Commits come each
// 200 ms.
func BenchmarkLatency(b *testing.B) {
	cluster := kafkatest.Real(b, 1)
	l := load{open: max(1, *rate/100), deltas: 500 - around, turns: 1}
	l.runs = max(1, *seconds/5) * l.open
	for b.Loop() {
		cfg := topicSet(b, cluster)
		p := startCompactor(b, cfg)
		p.await(b, "its partitions", func(m map[string]float64) bool { return m["skein_compactor_records_total"] >= float64(*width) })

		ended := endings{at: map[string]time.Time{}}
		ctx, cancel := context.WithTimeout(b.Context(), time.Duration(*seconds)*time.Second+10*time.Minute)
		seen := make(chan []time.Duration, 1)
		go func() { seen <- ended.see(ctx, b, cfg, l.runs) }()
		began := time.Now()
		produceAll(b, cfg, *rate, func(yield func(*kgo.Record) bool) {
			n := 0
			l.each(int32(*width), func(m *kgo.Record) bool {
				if n/l.open%(l.deltas+around) == l.deltas+around-1 { // the last event of each run that is open
					ended.say(m)
				}
				n++
				return yield(m)
			})
		})
		sent := time.Since(began)
		took := <-seen
		cancel()
		m := p.Metrics(b)
		transaction := m["skein_compactor_commit_duration_seconds_sum"] / m["skein_compactor_commit_duration_seconds_count"]
		p.finish(b, l.records())
		if len(took) != l.runs {
			b.Fatalf("%d of %d runs were seen to end", len(took), l.runs)
		}
		slices.Sort(took)
		at := func(share float64) time.Duration { return quantile(took, share) }
		b.Logf("%d events at %.0f a second, %s; a transaction takes %.0f ms", l.records(), float64(l.records())/sent.Seconds(), cluster.Version,
			transaction*1000)
		b.Logf("from a run's last event to its record: median %s, p99 %s, longest %s", at(.5), at(.99), took[len(took)-1])
		b.ReportMetric(float64(l.records())/sent.Seconds(), "events/s")
		b.ReportMetric(at(.5).Seconds()*1000, "ms-median")
		b.ReportMetric(at(.99).Seconds()*1000, "ms-p99")
	}
}

// endings are the times at which runs were told to end.
type endings struct {
	mu sync.Mutex
	at map[string]time.Time
}

func (e *endings) say(m *kgo.Record) {
	h, err := kafka.ParseHeaders(m.Headers)
	if err != nil {
		panic(err) // the load's own
	}
	e.mu.Lock()
	defer e.mu.Unlock()
	e.at[h.RunID] = time.Now()
}

// see reads skein.runs until so many runs have ended, or ctx has, and returns how long each of them took.
func (e *endings) see(ctx context.Context, tb testing.TB, cfg kafka.Config, runs int) (took []time.Duration) {
	from := map[int32]int64{}
	for p := range int32(*width) {
		from[p] = kafka.StartOffset
	}
	reader, err := kafka.NewDirectReader(cfg, cfg.Topics().Runs, from)
	if err != nil {
		tb.Error(err)
		return nil
	}
	defer reader.Close()
	for len(took) < runs && ctx.Err() == nil {
		fetches := reader.PollFetches(ctx)
		now := time.Now()
		fetches.EachRecord(func(m *kgo.Record) {
			h, err := kafka.ParseHeaders(m.Headers)
			if err != nil || h.Kind != record.KindRun {
				return
			}
			r, err := record.DecodeRun(m.Value)
			if err != nil || !r.Status.Sealed() {
				return
			}
			e.mu.Lock()
			defer e.mu.Unlock()
			if at, ok := e.at[r.RunID]; ok {
				took = append(took, now.Sub(at))
				delete(e.at, r.RunID)
			}
		})
	}
	return took
}
