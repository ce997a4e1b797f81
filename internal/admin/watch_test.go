package admin

import (
	"bytes"
	"context"
	"errors"
	"log/slog"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/prometheus/client_golang/prometheus"
)

// watched runs Watch, in virtual time, until the test ends, and returns its log.
func watched(t *testing.T, a *Admin) *bytes.Buffer {
	t.Helper()
	log := new(bytes.Buffer)
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
		turned := time.Now()
		var fault error
		a.AddBeat("compactor", func() time.Time { return turned })
		a.AddDependency("kafka", func(context.Context) error { return fault })
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
		turned = time.Now()
		expect("it has come round", 200, "ok")
		fault = errors.New("connection refused")
		time.Sleep(10 * stuckAfter)
		expect("while Kafka is away", 200, "ok")
		fault = nil
		time.Sleep(stuckAfter - watchEvery)
		expect("soon after Kafka is back", 200, "ok")
		time.Sleep(2 * watchEvery)
		expect("long after Kafka is back", 503, "compactor")
	})
}

func TestAdmin_LogsOneLineWhenACheckFailsAndOneWhenItPasses(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		a := New(prometheus.NewRegistry())
		var fault error
		a.AddDependency("kafka", func(context.Context) error { return fault })
		log := watched(t, a)
		lines := func(when string, want ...string) {
			t.Helper()
			synctest.Wait()
			got := strings.Split(strings.TrimSuffix(log.String(), "\n"), "\n")
			log.Reset()
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
		fault = errors.New("refused by a")
		time.Sleep(30 * time.Second)
		lines("away", `msg="check fails" check=kafka error="refused by a"`)
		fault = errors.New("refused by b")
		time.Sleep(watchEvery)
		lines("another reason within a minute", "")
		time.Sleep(time.Hour)
		lines("another reason", `error="refused by b"`)
		fault = nil
		time.Sleep(watchEvery)
		lines("back", `msg="check passes again" check=kafka after=1h0m`)
	})
}
