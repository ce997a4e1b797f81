package indexer

import (
	"bytes"
	"errors"
	"fmt"
	"log/slog"
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

// Where the store takes nothing at all, dead letters would take the index away run by run.
func TestSieve_WaitsWhereTheStoreRefusesAll(t *testing.T) {
	for _, c := range []struct {
		name      string
		bad, good int
		err       error
	}{
		{"nothing bad", 0, 1000, nil},
		{"one of many", 1, 1023, nil},
		{"one alone", 1, 0, nil},
		{"some, and nothing else", mostRefused, 0, nil},
		{"many, and one good one", 100, 1, nil},
		{"many, and nothing else", mostRefused + 1, 0, errRefusesAll},
	} {
		t.Run(c.name, func(t *testing.T) {
			var entries []store.Entry
			for i := range c.bad + c.good {
				e := store.Entry{Version: int64(i), RunID: fmt.Sprint("good-", i), Run: &record.Run{}}
				if i >= c.good {
					e.RunID = fmt.Sprint("bad-", i)
				}
				entries = append(entries, e)
			}
			entries = append(entries, store.Entry{Position: &store.Position{Next: 1}})
			st := newFakeStore()
			st.onWrite = refusing
			s := sieve{store: st, busy: new(atomic.Int64)}
			if err := s.write(t.Context(), entries); !errors.Is(err, c.err) {
				t.Errorf("error %v, want %v", err, c.err)
			}
			if len(s.refused) != c.bad || s.taken != c.good {
				t.Errorf("%d refused, %d taken; want %d and %d", len(s.refused), s.taken, c.bad, c.good)
			}
			last := st.blocks[len(st.blocks)-1]
			if last[len(last)-1].Position == nil {
				t.Error("the position is not the last thing that was written")
			}
		})
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
	s := sieve{store: st, busy: new(atomic.Int64)}
	all := []store.Entry{{RunID: "a", Run: &record.Run{}}, {RunID: "b", Run: &record.Run{}}}
	if err := s.write(t.Context(), all); !errors.Is(err, away) || len(s.refused) != 0 {
		t.Errorf("error %v, %d refused", err, len(s.refused))
	}
}

// What is refused is looked for up to a bound while nothing is taken: a fault of the store's costs no call for each run of a large block.
func TestSieve_GivesUpOnAStoreThatTakesNothing(t *testing.T) {
	st := newFakeStore()
	st.onWrite = refusing
	told := 0
	s := sieve{store: st, busy: new(atomic.Int64), stands: func(error) { told++ }}
	all := make([]store.Entry, 10_000)
	for i := range all {
		all[i] = store.Entry{Version: int64(i), RunID: fmt.Sprint("bad-", i), Run: &record.Run{}}
	}
	if err := s.write(t.Context(), all); !errors.Is(err, errRefusesAll) || len(s.refused) != mostTried || told != 1 {
		t.Errorf("%d refused, readiness told %d times, error %v", len(s.refused), told, err)
	}
}
