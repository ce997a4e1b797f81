package compactor

import (
	"context"
	"fmt"
	"strings"
	"testing"

	"github.com/prometheus/client_golang/prometheus/testutil"
	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/skeinhq/skein/pkg/kafka"
	"github.com/skeinhq/skein/pkg/kafka/kafkatest"
	"github.com/skeinhq/skein/pkg/record"
)

// threadOn returns the name of a thread on a partition.
func threadOn(t *testing.T, partition, of int32) string {
	t.Helper()
	for i := range 1000 {
		id := fmt.Sprint("thread", i)
		key, err := record.ThreadKey("acme", id)
		if err != nil {
			t.Fatal(err)
		}
		if record.Partition([]byte(key), of) == partition {
			return id
		}
	}
	t.Fatalf("no thread is on partition %d", partition)
	return ""
}

// checkStopped checks what the member says of the one partition that has stopped.
func (m *member) checkStopped(t *testing.T, at string) {
	t.Helper()
	err := m.metrics.stops.Check()
	for _, part := range []string{at, "unknown record version 2", "this program knows up to 1"} {
		if err == nil || !strings.Contains(err.Error(), part) {
			t.Errorf("it says %v, want %q in it", err, part)
		}
	}
	equal(t, "partitions that stopped", testutil.ToFloat64(m.metrics.stops.Gauge("compactor")), float64(1))
	equal(t, "lines of the log", strings.Count(m.log.String(), "partition stopped: a newer version"), 1)
}

func TestService_StopsAPartitionBeforeARecordOfANewerVersion(t *testing.T) {
	inWorld(t, 2, func(w *world) {
		t, dir := w.T, w.TempDir()
		stopped, other := threadOn(t, 0, 2), threadOn(t, 1, 2)
		turn := func(thread, run string) {
			w.script.Send(thread, run, started(run))
			w.script.Send(thread, run, finished(run))
		}
		turn(stopped, "before")
		w.script.Send(stopped, "newer", started("newer"), kgo.RecordHeader{Key: record.HeaderVersion, Value: []byte("2")}, kgo.RecordHeader{Key: record.HeaderWriter, Value: []byte("skein")})
		turn(stopped, "behind")
		turn(other, "other")
		w.publish()
		want := func(m *member, runs ...string) {
			t.Helper()
			waitFor(t, "it stops", func() bool { return m.metrics.stops.Check() != nil })
			waitFor(t, "all before the record and on the other partition is sealed", func() bool { return len(w.sealed()) >= len(runs) })
			for _, run := range runs {
				if w.sealed()[run] == nil {
					t.Errorf("%s is not sealed; there are %v", run, w.sealed())
				}
			}
			m.checkStopped(t, w.kafka.Topics().Events+"/0 at offset 2")
			equal(t, "readiness", m.ready(), nil)
			equal(t, "dead letters", w.letters(), 0)
			w.quiet()
			committed, err := w.admin().FetchOffsets(context.Background(), w.kafka.CompactorGroup())
			if err != nil {
				t.Fatal(err)
			}
			at, _ := committed.Lookup(w.kafka.Topics().Events, 0)
			equal(t, "committed offset", at.At, int64(2))
		}
		m := w.join("a", dir, nil)
		want(m, stopped+"/before", other+"/other")
		turn(other, "more")
		w.publish()
		want(m, stopped+"/before", other+"/other", other+"/more")
		if err := m.stop(); err != nil {
			t.Error(err)
		}
		want(w.join("a", dir, nil), stopped+"/before", other+"/other", other+"/more") // whoever owns it next begins with the record
	})
}

// A newer version that Skein did not write is a producer's mistake, and costs only its record.
func TestService_StopsAtNoVersionOfAProducer(t *testing.T) {
	inWorld(t, 1, func(w *world) {
		w.script.Send("t", "r", started("r"), kgo.RecordHeader{Key: record.HeaderVersion, Value: []byte("1")})
		w.script.Send("t", "r", custom("x"), kgo.RecordHeader{Key: record.HeaderVersion, Value: []byte("2")})
		w.script.Send("t", "r", finished("r"))
		w.publish()
		m := w.join("a", w.TempDir(), nil)
		waitFor(w.T, "the run is sealed", func() bool { return w.sealed()["t/r"] != nil })
		equal(w.T, "dead letters", w.letters(), 1)
		equal(w.T, "stops", m.metrics.stops.Check(), nil)
	})
}

func TestService_OpensNoPartitionOverARecordOfANewerVersion(t *testing.T) {
	inWorld(t, 2, func(w *world) {
		t := w.T
		kafkatest.Produce(t, w.kafka, &kgo.Record{
			Topic: w.kafka.Topics().Runs, Partition: 0, Key: []byte(record.ProgressKey), Value: []byte("{}"),
			Headers: kafka.Headers(record.Headers{Version: 2, Kind: record.KindProgress, Seq: -1}),
		})
		m := w.join("a", w.TempDir(), nil)
		waitFor(t, "it stops", func() bool { return m.metrics.stops.Check() != nil })
		other := threadOn(t, 1, 2)
		w.script.Send(other, "r", started("r"))
		w.script.Send(other, "r", finished("r"))
		w.publish()
		waitFor(t, "the other partition goes on", func() bool {
			committed, err := w.admin().FetchOffsets(context.Background(), w.kafka.CompactorGroup())
			at, _ := committed.Lookup(w.kafka.Topics().Events, 1)
			return err == nil && at.At == 2
		})
		m.checkStopped(t, w.kafka.Topics().Runs+"/0 at offset 0")
		if err := m.ready(); err == nil || !strings.Contains(err.Error(), "1 of 2 partitions are not open yet: reading") {
			t.Errorf("readiness says %v", err)
		}
	})
}
