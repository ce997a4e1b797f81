package compactor

import (
	"fmt"
	"log/slog"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/testutil"
	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/skeinhq/skein/pkg/compactor/partition"
	"github.com/skeinhq/skein/pkg/kafka"
	"github.com/skeinhq/skein/pkg/kafka/kafkatest"
	"github.com/skeinhq/skein/pkg/record"
)

// A cut run is reported once, in the log and in the metrics.
func TestService_ReportsACutRun(t *testing.T) {
	inWorld(t, 1, func(w *world) {
		m := w.join("a", t.TempDir(), func(c *Config) { c.RecordLimit = 64 << 10 })
		w.script.Send("t", "large", started("large"))
		for i := range 10 {
			w.script.Send("t", "large", text(fmt.Sprint("m", i), strings.Repeat("x", 50<<10)))
		}
		w.publish()
		w.decided()
		equal(t, "lines", strings.Count(m.log.String(), "tenant=acme thread_id=t run_id=large partition=0 bytes="), 1)
		equal(t, "cut runs", testutil.ToFloat64(m.metrics.cutRuns), 1.0)
	})
}

// What tenants have open, have ended and have lost to dead letters is counted for the largest of them.
func TestService_CountsByTenant(t *testing.T) {
	inWorld(t, 2, func(w *world) {
		m := w.join("a", t.TempDir(), func(c *Config) {
			c.Quota = func(string) partition.Quota { return partition.Quota{OpenRuns: 6} } // three a partition
		})
		for i := range 40 {
			id := fmt.Sprint("r", i)
			w.script.Send("t"+id, id, started(id))
		}
		small := w.script.Send("t", "small", started("small"))
		small.Key = []byte("small/t")
		w.script.Send("t", "done", started("done"))
		w.script.Send("t", "done", finished("done"))
		w.script.Send("t", "done", text("m", "late"))
		w.publish()
		w.decided()
		time.Sleep(2 * tenantsEvery) // in virtual time
		w.script.Send("t", "last", started("last"))
		w.script.Send("t", "last", finished("last"))
		w.publish()
		w.decided()
		// 34, and one for the run that ends by itself
		equal(t, "records", testutil.ToFloat64(m.metrics.records.WithLabelValues("over-quota")), 35.0)
		for c, want := range map[prometheus.Collector]string{
			m.metrics.tenants: `# HELP skein_compactor_tenant_dead_letters_total Records sent to dead letters whose key names a tenant, of the largest tenants and of all others.
# TYPE skein_compactor_tenant_dead_letters_total counter
skein_compactor_tenant_dead_letters_total{tenant="acme"} 1
skein_compactor_tenant_dead_letters_total{tenant="other"} 0
# HELP skein_compactor_tenant_runs_total Runs whose final record was committed, of the largest tenants and of all others.
# TYPE skein_compactor_tenant_runs_total counter
skein_compactor_tenant_runs_total{tenant="acme"} 37
skein_compactor_tenant_runs_total{tenant="other"} 0
`,
			m.metrics.tenantOpenRuns: `# HELP skein_compactor_tenant_open_runs Open and expired runs, as the quota open_runs counts them, of the largest tenants and of all others.
# TYPE skein_compactor_tenant_open_runs gauge
skein_compactor_tenant_open_runs{tenant="acme"} 5
skein_compactor_tenant_open_runs{tenant="other"} 1
`,
		} {
			if err := testutil.CollectAndCompare(c, strings.NewReader(want)); err != nil {
				t.Error(err)
			}
		}
	})
}

// By the clock, where nothing comes any more, and by the times that records have on skein.runs: also for a process that comes later.
func TestService_ClosesByTheClockOnceEverythingIsRead(t *testing.T) {
	kafkatest.OnBoth(t, 1, closesByTheClockOnceEverythingIsRead)
}

func closesByTheClockOnceEverythingIsRead(t *testing.T, k kafka.Config) {
	s := newSim(t, nil)
	s.Send("t", "r", started("r"))
	produce(t, k, 1, s.Events...)
	const idle = 20 * time.Millisecond
	at := map[bool]time.Time{} // of the record, by whether it is closed
	for _, closed := range []bool{false, true} {
		cfg := testConfig(t.TempDir(), "a")
		cfg.IdleLimit = idle
		_, stop := runService(t, k, cfg)
		kafkatest.ConsumeUntil(t, k, k.Topics().Runs, func(all []*kgo.Record) bool {
			for _, m := range all {
				if header(m, record.HeaderKind) != string(record.KindRun) {
					continue
				}
				if r := records(t, []*kgo.Record{m})[0]; r.Status == record.StatusAbandoned {
					at[r.Closed] = m.Timestamp
				}
			}
			return !at[closed].IsZero()
		})
		if err := stop(); err != nil {
			t.Fatal(err)
		}
	}
	// The second process, with a new folder, counts from the record's time; the first one would, from when it decided, just before.
	if age, want := at[true].Sub(at[false]), 168*idle; age < want-300*time.Millisecond {
		t.Errorf("it was closed %v after it was abandoned, want %v at least", age, want)
	}
}

// All partitions of a process share the room of a transaction. Another one takes first each time, and each has one run at least.
func TestSession_SharesTheRoomBetweenPartitions(t *testing.T) {
	const partitions = 3
	own := owned{parts: map[int32]view{}}
	var now time.Time
	for i := range int32(partitions) {
		s := newSim(t, nil)
		for n := range 1000 {
			s.Send(fmt.Sprint("t", n), "r", started("r"))
		}
		s.Now = s.Now.Add(DefaultConfig().IdleLimit)
		s.TurnOf("elsewhere", "later")
		s.feed()
		now = s.Now
		a := newAssignment(i, s.Now)
		a.part = s.part
		own.parts[i] = view{assignment: a, phase: phaseOpen}
	}
	service := newService(DefaultConfig(), kafka.Config{}, slog.New(slog.DiscardHandler), newMetrics(prometheus.NewRegistry(), 0))
	service.now = func() time.Time { return now }
	s := service.newSession(nil, nil)
	s.expiryCheckedAt = now
	const room = 400 // runs at least
	most := map[int32]int{}
	for range partitions {
		shares, err := s.collect(t.Context(), own)
		if err != nil {
			t.Fatal(err)
		}
		all := 0
		for _, sh := range shares {
			runs := 0
			for _, o := range sh.effects.Outputs {
				if o.Kind == "abandoned" {
					runs++
				}
			}
			if runs == 0 {
				t.Errorf("partition %d has no run in a transaction", sh.id)
			}
			all += runs
			most[sh.id] = max(most[sh.id], runs)
			if err := sh.part.Committed(sh.effects, now); err != nil {
				t.Fatal(err)
			}
		}
		if all < room || all > 2*room {
			t.Errorf("%d runs in a transaction, which has room for some %d", all, room)
		}
	}
	for i := range int32(partitions) {
		if most[i] < room {
			t.Errorf("partition %d never came first: it had %d runs at most", i, most[i])
		}
	}
}
