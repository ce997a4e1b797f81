package admin

import (
	"context"
	"errors"
	"log/slog"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/skeinhq/skein/internal/logtest"
)

// shared is a value that the test sets while Watch reads it.
type shared[T any] struct {
	mu sync.Mutex
	v  T
}

func (s *shared[T]) set(v T) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.v = v
}

func (s *shared[T]) get() T {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.v
}

// watched runs Watch, in virtual time, until the test ends, and returns its log.
func watched(t *testing.T, a *Admin) *logtest.Log {
	t.Helper()
	log := new(logtest.Log)
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan struct{})
	go func() {
		defer close(done)
		a.Watch(ctx, slog.New(slog.NewTextHandler(log, nil)))
	}()
	t.Cleanup(func() {
		cancel()
		<-done
	})
	return log
}

func TestAdmin_IsDeadWhereAPartStandsStillByItself(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		a := New(prometheus.NewRegistry())
		var turned shared[time.Time]
		var fault shared[error]
		turned.set(time.Now())
		a.AddBeat("compactor", turned.get)
		a.AddDependency("kafka", func(context.Context) error { return fault.get() })
		a.AddRemark("reading", func(context.Context) error { return errors.New("something lies there") })
		a.AddCheck("session", func(context.Context) error { return errors.New("it has no partitions") })
		watched(t, a)
		expect := func(when string, want int, text string) {
			t.Helper()
			synctest.Wait()
			if code, body := get(t, a.Handler(), "/healthz"); code != want || !strings.Contains(body, text) {
				t.Errorf("%s: %d %s, want %d with %q", when, code, body, want, text)
			}
		}
		time.Sleep(stuckAfter)
		expect("five minutes into a turn", 200, "ok")
		time.Sleep(time.Second)
		expect("a second later", 503, `"compactor":"it stands still for 5m1s`)
		turned.set(time.Now())
		expect("it has come round", 200, "ok")
		fault.set(errors.New("connection refused"))
		time.Sleep(10 * stuckAfter)
		expect("while Kafka is away", 200, "ok")
		fault.set(nil)
		time.Sleep(stuckAfter - watchEvery)
		expect("soon after Kafka is back", 200, "ok")
		time.Sleep(2 * watchEvery)
		expect("long after Kafka is back", 503, "compactor")
	})
}

func TestAdmin_LogsOneLineWhenACheckFailsAndOneWhenItPasses(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		a := New(prometheus.NewRegistry())
		var fault shared[error]
		a.AddDependency("kafka", func(context.Context) error { return fault.get() })
		log := watched(t, a)
		lines := func(when string, want ...string) {
			t.Helper()
			synctest.Wait()
			got := strings.Split(strings.TrimSuffix(log.Take(), "\n"), "\n")
			ok := len(got) == len(want)
			for i := range want {
				ok = ok && strings.Contains(got[i], want[i])
			}
			if !ok {
				t.Errorf("%s: it logs %q, want lines with %q", when, got, want)
			}
		}
		time.Sleep(time.Hour)
		lines("all is well", "")
		fault.set(errors.New("refused by a"))
		time.Sleep(30 * time.Second)
		lines("away", `msg="check fails" check=kafka error="refused by a"`)
		if _, metrics := get(t, a.Handler(), "/metrics"); !strings.Contains(metrics, `skein_admin_check_failing{check="kafka"} 1`) {
			t.Errorf("the metrics are\n%s", metrics)
		}
		fault.set(errors.New("refused by b"))
		time.Sleep(watchEvery)
		lines("another reason within a minute", "")
		time.Sleep(time.Hour)
		lines("another reason", `error="refused by b"`)
		fault.set(nil)
		time.Sleep(watchEvery)
		lines("back", `msg="check passes again" check=kafka after=1h0m`)
		if _, metrics := get(t, a.Handler(), "/metrics"); !strings.Contains(metrics, `skein_admin_check_failing{check="kafka"} 0`) {
			t.Errorf("the metrics are\n%s", metrics)
		}
	})
}
