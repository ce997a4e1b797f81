package partition

import (
	"fmt"
	"math/rand/v2"
	"strings"
	"testing"

	"github.com/skeinhq/skein/pkg/agui"
	"github.com/skeinhq/skein/pkg/compactor/partition/partitiontest"
	"github.com/skeinhq/skein/pkg/record"
)

// fewRuns gives each tenant a quota of open runs.
func fewRuns(runs int64) func(*Config) {
	return func(c *Config) { c.Quota = func(string) Quota { return Quota{OpenRuns: runs} } }
}

// A tenant that begins more runs than it may have open loses the one that was silent longest, and no other tenant loses anything.
func TestPartition_EndsTheLongestSilentRunOfATenantOverItsQuota(t *testing.T) {
	for _, reopened := range []bool{false, true} {
		t.Run(fmt.Sprintf("reopened %v", reopened), func(t *testing.T) {
			s := newSim(t, fewRuns(3))
			s.open(false)
			of("other", s.Send("o", "o", started("o")))
			for i := range 3 {
				s.Send(fmt.Sprint("t", i), fmt.Sprint("r", i), started(fmt.Sprint("r", i)))
			}
			s.all()
			s.Now = s.Now.Add(s.cfg.CheckpointMax)
			s.Send("t0", "r0", text("m", "r0 speaks again"))
			s.all()
			if reopened {
				s.Now = s.Now.Add(s.cfg.CheckpointMax) // until all have a record
				s.commit(true)
				s.open(true)
			}
			s.Send("t3", "r3", started("r3"))
			s.all()

			r1 := s.run("r1")
			equal(t, "status", r1.Status, record.StatusAbandoned)
			equal(t, "closed", r1.Closed, true)
			equal(t, "code", string(agui.Lookup(r1.Terminal, "code")), `"skein-open-runs"`)
			equal(t, "message", agui.TextOf(agui.Lookup(r1.Terminal, "message")).String(),
				"The run was ended, as its tenant has more than 3 open runs on this partition, its part of 3: no other one there was silent for longer.")
			equal(t, "dead letters", s.letters(), []string{})

			s.Send("t1", "r1", text("m", "late"))
			for i := range 4 {
				s.Send(fmt.Sprint("t", i), fmt.Sprint("r", i), finished(fmt.Sprint("r", i)))
			}
			of("other", s.Send("o", "o", finished("o")))
			s.all()
			s.open(true)
			s.all()
			equal(t, "dead letters", s.letters(), []string{"0:6 after-terminal"})
			for _, id := range []string{"r0", "r2", "r3", "o"} {
				equal(t, "status of "+id, s.run(id).Status, record.StatusFinished)
			}
			s.isProved(rand.New(rand.NewPCG(1, 2)), &tally{})
		})
	}
}

func TestQuota_RemarksThatAPartIsSmall(t *testing.T) {
	for _, c := range []struct {
		runs       int64
		partitions int
		remarks    bool
	}{{20, 12, true}, {119, 12, true}, {120, 12, false}, {9, 1, true}, {10, 1, false}, {0, 12, false}, {DefaultOpenRuns, 1000, false}} {
		if got := (Quota{OpenRuns: c.runs}).Remark(c.partitions); (got != "") != c.remarks {
			t.Errorf("of %d open runs over %d partitions it says %q", c.runs, c.partitions, got)
		}
	}
	want := "open_runs is 20, of which each of the 12 partitions allows 1: runs end long before the tenant has as many; allow 120 or more"
	equal(t, "remark", Quota{OpenRuns: 20}.Remark(12), want)
}

// Expired runs count, as events may come for them, and they go first.
func TestPartition_EndsExpiredRunsOfATenantOverItsQuotaFirst(t *testing.T) {
	s := newSim(t, fewRuns(2))
	s.open(false)
	s.Send("t0", "r0", started("r0"))
	s.all()
	s.silence(s.cfg.IdleLimit)
	s.all()
	equal(t, "status", s.run("r0").Status, record.StatusAbandoned)
	equal(t, "closed", s.run("r0").Closed, false)
	s.Send("t1", "r1", started("r1"))
	s.Send("t0", "r0-late", custom("c")) // begins another one
	s.all()
	equal(t, "closed", s.run("r0").Closed, true)
	equal(t, "code", string(agui.Lookup(s.run("r0").Terminal, "code")), `"skein-abandoned"`)
	equal(t, "open runs", len(s.part.retirement.expiring.heap)+len(s.part.retirement.closing.heap), 2)
}

// A quota that was lowered is met as runs begin, and none lets a tenant have what it likes.
func TestPartition_MeetsALoweredQuotaAsRunsBegin(t *testing.T) {
	quota := int64(0)
	s := newSim(t, func(c *Config) { c.Quota = func(string) Quota { return Quota{OpenRuns: quota} } })
	s.open(false)
	begin := func(n int) {
		for range n {
			id := fmt.Sprint("r", len(s.Events))
			s.Send("t"+id, id, started(id))
		}
		s.all()
	}
	begin(20)
	equal(t, "open runs", s.part.Stats().OpenRuns, 20)
	quota = 4
	begin(20)
	equal(t, "open runs", s.part.Stats().OpenRuns, 4)
}

// However events are split into batches and wherever the process dies, no tenant has more open runs than its quota, nothing that was ended
// comes back, and the records are proved by the raw events.
func TestPartition_AnyBatchingAndAnyCrashEndRunsOverTheQuotaForGood(t *testing.T) {
	seed := newSeed(t)
	ended := 0
	shown := func() bool { return ended > 0 }
	for i := range untilShown(shown) {
		seed := seed + uint64(i)
		t.Run(fmt.Sprint(seed), func(t *testing.T) {
			rng := rand.New(rand.NewPCG(seed, 3))
			s := newSim(t, fewRuns(2))
			partitiontest.Random(s.Script, rng, 40+rng.IntN(200), true)
			s.open(false)
			for crashes := 0; s.committed.Processed < int64(len(s.Events)); {
				s.feed(1 + rng.IntN(1+rng.IntN(30)))
				// what is read again may be over it for a while
				if open := len(s.part.retirement.expiring.heap) + len(s.part.retirement.closing.heap); open > 2 && crashes == 0 {
					t.Fatalf("%d runs are open", open)
				}
				crash := crashes < 40 && rng.IntN(3) == 0
				if crash && rng.IntN(2) == 0 {
					if _, err := s.part.collect(s.Now); err != nil {
						t.Fatal(err)
					}
				} else {
					s.commit(!crash)
				}
				if crash {
					s.open(rng.IntN(3) == 0)
					crashes++
				}
				for id, r := range s.latest() {
					if r.Closed && string(agui.Lookup(r.Terminal, "code")) == `"skein-open-runs"` {
						ended++
						equal(t, "status of "+id, r.Status, record.StatusAbandoned)
					}
				}
			}
			s.finish()
			s.checkTold()
			s.checkHeads()
			s.isProved(rng, &tally{})
		})
		if t.Failed() {
			return
		}
	}
	if !shown() {
		t.Error("no history has a run over the quota")
	}
}

// A quota of bytes holds for a tenant also where the process has room. Each partition has an equal part of it, one byte at least.
func TestPartition_CutsRunsOfATenantOverItsQuotaOfBytes(t *testing.T) {
	for _, quota := range []int64{1, 300 << 10} {
		s := newSim(t, func(c *Config) {
			scarce(c)
			c.Quota = func(tenant string) Quota { return Quota{OpenRunBytes: map[string]int64{"acme": quota}[tenant]} }
		})
		s.cuts = true
		s.open(false)
		for i := range 3 {
			id := fmt.Sprint("r", i)
			for range 4 {
				s.Send("t"+id, id, text("m", strings.Repeat("g", 30<<10)))
				of("other", s.Send("o"+id, "o"+id, text("m", strings.Repeat("h", 30<<10))))
			}
		}
		s.all()
		for i := range 3 {
			s.Send(fmt.Sprint("tr", i), fmt.Sprint("r", i), finished("r"))
			of("other", s.Send(fmt.Sprint("or", i), fmt.Sprint("or", i), finished("r")))
		}
		s.all()
		cut := map[string]int{}
		for _, r := range s.latest() {
			if r.Cut != nil {
				cut[r.Tenant]++
			}
		}
		if cut["other"] != 0 || quota == 1 && cut["acme"] != 3 || quota > 1 && (cut["acme"] == 0 || cut["acme"] == 3) {
			t.Errorf("with a quota of %d bytes runs are cut: %v", quota, cut)
		}
	}
}
