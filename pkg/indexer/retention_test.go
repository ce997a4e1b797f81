package indexer

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/testutil"
	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/skeinhq/skein/pkg/kafka"
	"github.com/skeinhq/skein/pkg/record"
)

func TestParseRetention_TakesDaysByTenant(t *testing.T) {
	r, err := ParseRetention([]string{"acme=90", "a=b=1"})
	if err != nil || len(r) != 2 || r["acme"] != 90*24*time.Hour || r["a=b"] != 24*time.Hour {
		t.Errorf("%v, %v", r, err)
	}
	for _, wrong := range []string{"acme", "=1", "acme=", "acme=0", "acme=90d", "acme=-1", "acme=36501"} {
		if r, err := ParseRetention([]string{wrong}); err == nil || !strings.Contains(err.Error(), wrong) {
			t.Errorf("%s: %v, %v", wrong, r, err)
		}
	}
	if _, err := ParseRetention([]string{"acme=1", "acme=2"}); err == nil {
		t.Error("two rules of one tenant are taken")
	}
}

// expirer notes the calls; the first one of each tenant deletes threads, and the second one of b fails.
type expirer struct {
	began time.Time
	calls []string
	of    map[string]int
}

func (e *expirer) Tenants(context.Context) ([]string, error) {
	return []string{"a", "c"}, nil
}

func (e *expirer) Expire(_ context.Context, tenant string, before time.Time) (int, error) {
	now := time.Now()
	e.calls = append(e.calls, fmt.Sprintf("%v %s %v", now.Sub(e.began), tenant, now.Sub(before)))
	e.of[tenant]++
	switch {
	case e.of[tenant] == 1:
		return 3, nil
	case e.of[tenant] == 2 && tenant == "b":
		return 0, errors.New("away")
	}
	return 0, nil
}

// Retention goes by the time of the record, and not by the clock of an agent.
func TestDecode_TellsWhenARunWasRecorded(t *testing.T) {
	at := time.Date(2026, 9, 1, 8, 0, 0, 0, time.UTC)
	value, err := record.EncodeRun(&record.Run{Tenant: "acme", ThreadID: "thread", RunID: "run", Status: record.StatusFinished,
		StartedAt: time.Unix(1, 0), Lineage: record.Lineage{ParentBy: record.ParentNone}})
	if err != nil {
		t.Fatal(err)
	}
	e, _, err := decode(&kgo.Record{Key: []byte("acme/thread/run"), Value: value, Timestamp: at,
		Headers: kafka.Headers(record.Headers{Kind: record.KindRun, Seq: -1})})
	if err != nil || !e.At.Equal(at) {
		t.Errorf("recorded at %v, %v; want %v", e.At, err, at)
	}
}

// retaining returns a service that has partitions, or none.
func retaining(t *testing.T, partitions ...int32) *Service {
	t.Helper()
	m := newMetrics(prometheus.NewRegistry())
	owned := newAssignment(m.partitions, m.lag, m.stops)
	owned.assigned(t.Context(), nil, map[string][]int32{"runs": partitions})
	return &Service{cfg: Config{Logger: slog.New(slog.DiscardHandler)}, metrics: m, owned: owned}
}

func TestRetention_LooksAgainSoonWhereThreadsExpired(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ctx, cancel := context.WithCancel(t.Context())
		e := &expirer{began: time.Now(), of: map[string]int{}}
		s := retaining(t, 0, 1)
		ended := make(chan error, 1)
		go func() {
			ended <- s.Retain(ctx, e, Retention{"a": 24 * time.Hour, "b": 48 * time.Hour})
		}()
		time.Sleep(time.Hour + 2*time.Minute)
		cancel()
		if err := <-ended; !errors.Is(err, context.Canceled) {
			t.Error(err)
		}
		want := []string{"0s a 24h0m0s", "0s b 48h0m0s", "1m0s a 24h0m0s", "1m0s b 48h0m0s", "1h1m0s a 24h0m0s", "1h1m0s b 48h0m0s"}
		if !slices.Equal(e.calls, want) {
			t.Errorf("calls %q", e.calls)
		}
		if n := testutil.ToFloat64(s.metrics.expired); n != 6 {
			t.Errorf("%v threads are counted, want 6", n)
		}
	})
}

// A deletion has the server go over all parts: one process of the group does it, and another one within a minute once it has the partition.
func TestRetention_IsTheWorkOfOneProcess(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ctx, cancel := context.WithCancel(t.Context())
		e := &expirer{began: time.Now(), of: map[string]int{}}
		s := retaining(t, 1)
		ended := make(chan error, 1)
		go func() { ended <- s.Retain(ctx, e, Retention{"a": 24 * time.Hour}) }()
		time.Sleep(90 * time.Second)
		if len(e.calls) != 0 {
			t.Errorf("without partition 0 it calls %q", e.calls)
		}
		s.owned.assigned(ctx, nil, map[string][]int32{"runs": {0}})
		time.Sleep(time.Minute)
		cancel()
		if err := <-ended; !errors.Is(err, context.Canceled) {
			t.Error(err)
		}
		if want := []string{"2m0s a 24h0m0s"}; !slices.Equal(e.calls, want) {
			t.Errorf("calls %q", e.calls)
		}
	})
}

// A rule for every other tenant holds for those that the store knows and no rule names.
func TestRetention_HasARuleForAllOthers(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		e := &expirer{began: time.Now(), of: map[string]int{}}
		r, err := ParseRetention([]string{"a=1", "*=3"})
		if err != nil {
			t.Fatal(err)
		}
		if next := retaining(t, 0).expire(t.Context(), e, r); next != expireAgain {
			t.Errorf("it looks again after %v", next)
		}
		if want := []string{"0s a 24h0m0s", "0s c 72h0m0s"}; !slices.Equal(e.calls, want) {
			t.Errorf("calls %q", e.calls)
		}
	})
}
