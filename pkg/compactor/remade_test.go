package compactor

import (
	"context"
	"errors"
	"log/slog"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus/testutil"
	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/skeinhq/skein/internal/logtest"
	"github.com/skeinhq/skein/pkg/kafka"
	"github.com/skeinhq/skein/pkg/kafka/kafkatest"
	"github.com/skeinhq/skein/pkg/record"
)

// remake deletes topics and makes them again.
func remake(t *testing.T, k kafka.Config, topics ...string) {
	t.Helper()
	adm := kafkatest.Admin(t, k)
	if _, err := adm.DeleteTopics(t.Context(), topics...); err != nil {
		t.Fatal(err)
	}
	waitFor(t, "the topics are gone", func() bool {
		there, err := adm.ListTopics(t.Context(), topics...)
		if err != nil {
			t.Fatal(err)
		}
		for _, d := range there {
			if d.Err == nil {
				return false
			}
		}
		return true
	})
	if _, err := kafka.EnsureTopics(t.Context(), k, kafka.TopicSpec{Partitions: 1}); err != nil {
		t.Fatal(err)
	}
}

// Where skein.events is deleted and made again by itself, its new events have the offsets of old ones, of
// which the records on skein.runs speak: each would be dropped in silence. With a new folder the topic
// knows, with an old one the local store, also of progress records that name no topic.
func TestService_RefusesEventsThatWereMadeAgainAlone(t *testing.T) {
	t.Parallel()
	kafkatest.OnBoth(t, 1, func(t *testing.T, k kafka.Config) {
		topics := k.Topics()
		old := t.TempDir()
		_, stop := runService(t, k, testConfig(old, "a"))
		script := newSim(t, nil)
		script.Turn("r1", "m1")
		produce(t, k, 1, script.Events...)
		waitSealed(t, k, 1)
		named := ""
		kafkatest.ConsumeUntil(t, k, topics.Runs, func(all []*kgo.Record) bool {
			for _, m := range all {
				if string(m.Key) == record.ProgressKey {
					reached, _ := record.DecodeProgress(m.Value)
					named = reached.Events
				}
			}
			return named != ""
		})
		if err := stop(); err != nil {
			t.Fatal(err)
		}
		remake(t, k, topics.Events)
		script = newSim(t, nil)
		script.Turn("r2", "m2")
		produce(t, k, 1, script.Events...)

		for _, dir := range []string{t.TempDir(), old} {
			log := new(logtest.Log)
			t.Cleanup(func() {
				if t.Failed() {
					t.Logf("log of the service:\n%s", log.String())
				}
			})
			s, err := New(testConfig(dir, "a"), k, slog.New(slog.NewTextHandler(log, nil)))
			if err != nil {
				t.Fatal(err)
			}
			ctx, cancel := context.WithCancel(context.Background())
			done := make(chan error, 1)
			go func() { done <- s.Run(ctx) }()
			const says = "skein.events was deleted and made again, and the topics that are made of it were not"
			waitFor(t, "it refuses, again and again", func() bool {
				err := s.Ready()
				return err != nil && strings.Contains(err.Error(), says) && testutil.ToFloat64(s.metrics.sessions) > 2
			})
			if n := strings.Count(log.String(), says); n != 1 {
				t.Errorf("it has said so %d times, want once", n)
			}
			for _, m := range kafkatest.Consume(t, k, topics.Runs) {
				if r := records(t, []*kgo.Record{m}); len(r) > 0 && r[0].RunID != "r1" {
					t.Errorf("it has made a record of %s", r[0].RunID)
				}
			}
			if dir == old {
				remake(t, k, topics.Runs, topics.Snapshots, topics.DeadLetters)
				// A session that is up may take 30 s to see that its topics are gone.
				for deadline := time.Now().Add(4 * kafkatest.Timeout); s.Ready() != nil && time.Now().Before(deadline); {
					time.Sleep(10 * time.Millisecond)
				}
				if sealed := waitSealed(t, k, 1); len(sealed) != 1 {
					t.Errorf("with a whole new topic set it has sealed %v", sealed)
				}
				waitFor(t, "it is ready", func() bool { return s.Ready() == nil })
			}
			cancel()
			if err := <-done; err != nil && !errors.Is(err, context.Canceled) {
				t.Error(err)
			}
		}
	})
}

// The client stays with the topic that is gone: the session has to end, with a transaction or without one.
func TestService_GoesOnWhereRunsAloneWereMadeAgain(t *testing.T) {
	for name, c := range map[string]struct {
		meanwhile []string // runs
		within    time.Duration
	}{
		"a transaction is refused": {[]string{"r2"}, 20 * time.Second},
		"nothing is to be written": {nil, 31 * time.Second},
	} {
		t.Run(name, func(t *testing.T) {
			inWorld(t, 1, func(w *world) {
				m := w.join("a", w.TempDir(), nil)
				m.waitWorks()
				w.script.Turn("r1", "m1")
				w.publish()
				w.decided()
				w.quiet()
				sessions := testutil.ToFloat64(m.metrics.sessions)
				runs := w.kafka.Topics().Runs
				if err := errors.Join(w.cluster.Fake.DeleteTopic(runs), w.cluster.Fake.CreateTopic(runs, 1, nil)); err != nil {
					w.Fatal(err)
				}
				began := time.Now()
				for _, run := range c.meanwhile {
					w.script.Turn(run, "m "+run)
				}
				w.publish()
				for testutil.ToFloat64(m.metrics.sessions) == sessions && time.Since(began) <= c.within {
					time.Sleep(10 * time.Millisecond) // in virtual time
				}
				if took := time.Since(began); took > c.within {
					w.Errorf("the session ended after %v", took)
				}
				m.waitWorks()
				w.script.Turn("r3", "m3")
				w.publish()
				w.decided()
				var got []string
				for _, r := range w.sealed() {
					got = append(got, r.RunID)
				}
				slices.Sort(got)
				equal(w.T, "sealed runs on the new topic", got, append(c.meanwhile, "r3"))
				if strings.Contains(m.log.String(), "process ended") {
					w.Error("the process has ended")
				}
			})
		})
	}
}
