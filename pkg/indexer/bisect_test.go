package indexer

import (
	"bytes"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/prometheus/client_golang/prometheus/testutil"

	"github.com/skeinhq/skein/pkg/deadletter"
	"github.com/skeinhq/skein/pkg/kafka/kafkatest"
	"github.com/skeinhq/skein/pkg/record"
	"github.com/skeinhq/skein/pkg/store"
)

// refusing refuses writes with runs whose ids begin with "bad", as ClickHouse does: without saying which one it was.
func refusing(entries []store.Entry) error {
	for _, e := range entries {
		if strings.HasPrefix(e.RunID, "bad") {
			return fmt.Errorf("%w: some row says \"secret payload\"", store.ErrRefused)
		}
	}
	return nil
}

func TestService_PutsRefusedRunsIntoTheDeadLetters(t *testing.T) {
	k := kafkatest.Start(t, 2)
	cfg, st := testConfig(k), newFakeStore()
	var log bytes.Buffer
	cfg.Logger = slog.New(slog.NewTextHandler(&log, nil))
	st.onWrite = refusing
	kafkatest.Produce(t, k,
		runRecord(t, k, 0, "a", record.StatusFinished),
		runRecord(t, k, 0, "bad", record.StatusFinished),
		runRecord(t, k, 0, "b", record.StatusFinished),
		positionRecord(k, 0, 7),
	)
	s := start(t, cfg, st)
	until(t, "ready", func() bool { return s.Ready() == nil })
	until(t, "offsets are committed", func() bool { return committed(t, cfg)[0] == 4 })
	if err := s.stop(); err != nil {
		t.Errorf("Run: %v", err)
	}
	if got := st.text(); got != "acme/thread/a 0:0 finished\nacme/thread/b 0:2 finished\n" || st.next[0] != 7 {
		t.Errorf("rows %q, position %v", got, st.next)
	}
	page, err := deadletter.ReadPage(t.Context(), k, deadletter.Query{Tenant: "acme"}, nil, 10)
	if err != nil || len(page.Records) != 1 {
		t.Fatalf("dead letters %+v, %v", page.Records, err)
	}
	l := page.Records[0]
	if l.Reason != deadletter.Refused || l.ThreadID != "thread" || l.RunID != "bad" || l.Chance != deadletter.ChanceNever || l.Bytes == 0 ||
		!strings.HasPrefix(l.Detail, "record 0:1 of skein.runs: the store refuses the data: some row") {
		t.Errorf("dead letter %+v", l)
	}
	if got := testutil.ToFloat64(s.metrics.refused); got != 1 {
		t.Errorf("%v refused runs are counted", got)
	}
	if lines := log.String(); strings.Count(lines, "refused") != 1 || strings.Contains(lines, "secret payload") {
		t.Errorf("the log:\n%s", lines)
	}
}

// Where the store takes nothing at all, dead letters would take the index away run by run. A tenant whose runs are refused holds up no
// other.
func TestSieve_WaitsWhereTheStoreRefusesAll(t *testing.T) {
	bad := func(tenant string, n int) (es []store.Entry) {
		for i := range n {
			es = append(es, store.Entry{Tenant: tenant, RunID: fmt.Sprint("bad-", i), Run: &record.Run{}})
		}
		return es
	}
	good := func(tenant string, n int) (es []store.Entry) {
		for i := range n {
			es = append(es, store.Entry{Tenant: tenant, RunID: fmt.Sprint("good-", i), Run: &record.Run{}})
		}
		return es
	}
	for _, c := range []struct {
		name    string
		worked  bool
		entries []store.Entry
		err     error
		refused int // where err is nil
		calls   int // of the store at most; 0 is any number
	}{
		{"nothing bad", false, good("a", 1000), nil, 0, 1},
		{"one of many", false, append(good("a", 1023), bad("a", 1)...), nil, 1, 0},
		{"one alone", false, bad("a", 1), nil, 1, 0},
		{"some, and nothing else", false, bad("a", maxRefused), nil, maxRefused, 0},
		{"many, and one good one", false, append(good("a", 1), bad("a", 100)...), nil, 100, 0},
		{"many, and nothing else", false, bad("a", maxRefused+1), errRefusesAll, 0, 0},
		{"many of one tenant, of a store that worked", true, bad("a", maxRefused+1), nil, maxRefused + 1, 0},
		{"very many of one tenant, of a store that worked", true, bad("a", 10_000), nil, 10_000, 3 * maxTried},
		{"very many of one tenant, of a store that has taken nothing yet", false, bad("a", 10_000), errRefusesAll, 0, 3 * maxTried},
		{"good ones behind very many of the tenant", true, append(bad("a", 5000), good("a", 5000)...), nil, 5000, 0},
		{"one good one behind many of the tenant", true, append(bad("a", 600), good("a", 1)...), nil, 600, 0},
		{"one good one behind many of the tenant, of a store that has taken nothing yet", false, append(bad("a", 600), good("a", 1)...), nil, 600, 0},
		{"very many of one tenant before one good one of another", false, append(bad("a", 10_000), good("b", 1)...), nil, 10_000, 3 * maxTried},
		{"some of each of two tenants, of a store that worked", true, append(bad("a", 1000), bad("b", 10)...), nil, 1010, 0},
		{"some of each of two tenants, of a store that has taken nothing yet", false, append(bad("a", 10), bad("b", 10)...), errRefusesAll, 0, 0},
		{"very many of each of two tenants", true, append(bad("a", 10_000), bad("b", 10_000)...), errRefusesAll, 0, 6 * maxTried},
		{"some of each of many tenants", true, slices.Concat(bad("a", 200), bad("b", 200), bad("c", 200), good("d", 1)), errRefusesAll, 0, 0},
	} {
		t.Run(c.name, func(t *testing.T) {
			entries := append(slices.Clone(c.entries), store.Entry{Tenant: "a", ThreadID: "t", Erasure: &store.Erasure{}},
				store.Entry{Position: &store.Position{Next: 1}})
			st := newFakeStore()
			calls, told := 0, 0
			st.onWrite = func(entries []store.Entry) error { calls++; return refusing(entries) }
			s := bisector{store: st, busy: new(atomic.Int64), worked: c.worked, fault: func(error) { told++ }}
			if err := s.write(t.Context(), entries); !errors.Is(err, c.err) {
				t.Fatalf("error %v, want %v", err, c.err)
			}
			if c.calls > 0 && calls > c.calls {
				t.Errorf("%d calls of the store, want %d at most", calls, c.calls)
			}
			if told != min(1, len(s.refused)) {
				t.Errorf("readiness was told %d times", told)
			}
			if c.err != nil {
				return
			}
			if taken := len(c.entries) - c.refused; len(s.refused) != c.refused || s.taken != taken {
				t.Errorf("%d refused, %d taken; want %d and %d", len(s.refused), s.taken, c.refused, taken)
			}
			last := st.blocks[len(st.blocks)-1]
			if n := len(last); n < 2 || last[n-1].Position == nil || last[n-2].Erasure == nil {
				t.Error("erasure and position are not the last things that were written")
			}
		})
	}
}

// A tombstone among runs that were not tried is written.
func TestSieve_WritesTombstonesBehindRefusedRuns(t *testing.T) {
	st := newFakeStore()
	st.onWrite = refusing
	s := bisector{store: st, busy: new(atomic.Int64), worked: true}
	var all []store.Entry
	for i := range maxTried + 100 {
		all = append(all, store.Entry{Version: int64(i), RunID: fmt.Sprint("bad-", i), Run: &record.Run{}})
	}
	all = append(all, store.Entry{Version: 1000, RunID: "gone"})
	if err := s.write(t.Context(), all); err != nil || len(s.refused) != maxTried+100 {
		t.Fatalf("%d refused, error %v", len(s.refused), err)
	}
	if last := st.blocks[len(st.blocks)-1]; len(last) != 1 || last[0].RunID != "gone" {
		t.Errorf("the last block is %v", last)
	}
}

func TestSieve_LeavesWeatherToTheNextTry(t *testing.T) {
	away := errors.New("the store is away")
	st := newFakeStore()
	st.onWrite = func(entries []store.Entry) error {
		if len(entries) > 1 {
			return store.ErrRefused
		}
		return away
	}
	s := bisector{store: st, busy: new(atomic.Int64)}
	all := []store.Entry{{RunID: "a", Run: &record.Run{}}, {RunID: "b", Run: &record.Run{}}}
	if err := s.write(t.Context(), all); !errors.Is(err, away) || len(s.refused) != 0 {
		t.Errorf("error %v, %d refused", err, len(s.refused))
	}
}
