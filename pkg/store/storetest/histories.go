package storetest

import (
	"context"
	"encoding/json"
	"fmt"
	"sync"
	"testing"

	"pgregory.net/rapid"

	"github.com/skeinhq/skein/pkg/record"
	"github.com/skeinhq/skein/pkg/store"
)

// drawLog makes up a piece of skein.runs: records of a few runs of a thread in the order of their
// versions, each run's statuses as the compactor may write them, tombstones among them.
func drawLog(t *rapid.T, tenant string) []store.Entry {
	n := rapid.IntRange(1, 14).Draw(t, "records")
	log := make([]store.Entry, 0, n)
	for v := range int64(n) {
		k := key{tenant, "thread", rapid.SampledFrom([]string{"a", "b", "c"}).Draw(t, "run")}
		status := rapid.SampledFrom([]record.Status{
			"", record.StatusRunning, record.StatusRunning, record.StatusAbandoned, record.StatusFinished,
		}).Draw(t, "status")
		if status == "" {
			log = append(log, k.entry(v, nil))
			continue
		}
		var messages []string
		for i := range rapid.IntRange(0, 3).Draw(t, "messages") {
			messages = append(messages, fmt.Sprintf("m%d at %d", i, v))
		}
		r := k.record(int64(k.run[0])+v, status, messages...)
		if rapid.Bool().Draw(t, "state unchanged") {
			r.State = nil
		} else {
			r.State = json.RawMessage(fmt.Sprintf(`{"v":%d}`, v))
		}
		log = append(log, k.entry(v, r))
	}
	return log
}

// converges is the law that correctness rests on: whatever is written in whatever batches and
// order, more than once, the rows are those of each run's newest record, as without the positions among
// them, and a partition's position is the greatest.
func converges(t *testing.T, s Store) {
	count := 0
	rapid.Check(t, func(rt *rapid.T) {
		count++
		tenant, reference := fmt.Sprintf("any order %d", count), fmt.Sprintf("in order %d", count)
		log := drawLog(rt, tenant)
		newest := map[string]store.Entry{}
		for _, e := range log {
			newest[e.RunID] = e
		}
		want := make([]store.Entry, 0, len(newest))
		for _, e := range newest {
			e.Tenant = reference
			want = append(want, e)
		}
		if err := s.Write(t.Context(), want); err != nil {
			rt.Fatal(err)
		}
		partition, greatest := int32(100+count), int64(0)
		for v := range int64(rapid.IntRange(1, 6).Draw(rt, "positions")) {
			greatest += rapid.Int64Range(0, 1<<40).Draw(rt, "step")
			log = append(log, position(partition, 100+v, greatest))
		}
		rest := rapid.Permutation(append(log, log[:rapid.IntRange(0, len(log)).Draw(rt, "again")]...)).Draw(rt, "order")
		for len(rest) > 0 {
			size := rapid.IntRange(1, len(rest)).Draw(rt, "batch")
			if err := s.Write(t.Context(), rest[:size]); err != nil {
				rt.Fatal(err)
			}
			rest = rest[size:]
		}
		got, err := dumpAs(t.Context(), s, tenant)
		if err != nil {
			rt.Fatal(err)
		}
		if ref, err := dumpAs(t.Context(), s, reference); err != nil || got != ref {
			rt.Fatalf("error %v\n got %s\nwant %s", err, got, ref)
		}
		for _, who := range []string{tenant, "nobody"} {
			if to, err := s.IndexedTo(t.Context(), who); err != nil || to[partition] != greatest {
				rt.Fatalf("%s: position %d, %v; want %d", who, to[partition], err, greatest)
			}
		}
	})
}

// dumpAs dumps a tenant's thread with the tenant's name taken out, and its summary.
func dumpAs(ctx context.Context, s Store, tenant string) (string, error) {
	runs, err := dump(ctx, neutral{s}, tenant, "thread")
	if err != nil {
		return "", err
	}
	threads, _, err := s.Threads(ctx, tenant, store.ThreadQuery{Limit: 10})
	return fmt.Sprintf("%s%+v", runs, threads), err
}

// neutral takes the tenant out of rows.
type neutral struct{ Store }

func (n neutral) Thread(ctx context.Context, tenant, thread string) ([]store.Run, error) {
	runs, err := n.Store.Thread(ctx, tenant, thread)
	for i := range runs {
		runs[i].Tenant = "tenant"
	}
	return runs, err
}

// concurrentReaders: a run's contents are those of one record, never a mixture, and a batch is seen
// whole or not at all in one run.
func concurrentReaders(t *testing.T, s Store) {
	const versions = 20
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	recordAt := func(v int64) store.Entry {
		var messages []string
		for i := range 1 + v%7 {
			messages = append(messages, fmt.Sprintf("m%d at %d", i, v))
		}
		r := k1.record(0, record.StatusAbandoned, messages...)
		r.State = json.RawMessage(fmt.Sprintf(`{"v":%d}`, v))
		return k1.entry(v, r)
	}
	write(t, s, recordAt(0))
	var wg sync.WaitGroup
	for range 3 {
		wg.Go(func() {
			last := int64(0)
			for ctx.Err() == nil {
				rows, err := s.Thread(t.Context(), k1.tenant, k1.thread)
				if err != nil {
					t.Errorf("Thread while writing: %v", err)
					return
				}
				c, err := s.Contents(t.Context(), k1.tenant, k1.thread, rows)
				if err != nil {
					t.Errorf("Contents while writing: %v", err)
					return
				}
				got, ok := c[k1.run]
				if !ok {
					continue // between two versions: the contract allows it
				}
				var state struct{ V int64 }
				if err := json.Unmarshal(got.State, &state); err != nil {
					t.Errorf("state %q: %v", got.State, err)
					return
				}
				want := recordAt(state.V).Run
				if a, b := contentText(got), contentText(store.Content{Messages: want.Messages, State: want.State}); a != b {
					t.Errorf("contents of no one record:\n got %s\nwant %s", a, b)
					return
				}
				if rows[0].Version != state.V {
					t.Errorf("contents of version %d are given for the row of version %d", state.V, rows[0].Version)
					return
				}
				if state.V < last {
					t.Errorf("went back from version %d to %d", last, state.V)
					return
				}
				last = state.V
			}
		})
	}
	for v := int64(1); v <= versions; v++ {
		if err := s.Write(ctx, []store.Entry{recordAt(v)}); err != nil {
			t.Errorf("Write while reading: %v", err)
			break
		}
	}
	cancel()
	wg.Wait()
	if got := mustRun(t, s, k1); got.Version != versions {
		t.Errorf("version %d, want %d", got.Version, versions)
	}
}
