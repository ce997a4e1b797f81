package e2e_test

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/skeinhq/skein/internal/recordings"
	"github.com/skeinhq/skein/pkg/client"
	"github.com/skeinhq/skein/pkg/kafka"
	"github.com/skeinhq/skein/pkg/kafka/kafkatest"
	"github.com/skeinhq/skein/test/conformance"
	"github.com/skeinhq/skein/test/process"
)

// A real broker is stopped under the stages while a run is open, and started again: they say so, live, and
// go on. Then partitions are added, which no stage may pass over.
func TestWeather_StagesOutliveTheirBrokerAndRefuseOtherPartitionCounts(t *testing.T) {
	t.Parallel() // most of it is waiting
	cluster := kafkatest.Real(t, 1, kafkatest.Own())
	p := startPipeline(t, ends{
		kafka: cluster.Config, replication: 1,
		store: []string{"--sqlite", filepath.Join(t.TempDir(), "lineage.sqlite")},
	})
	sealed, wantSealed := namesake(t, recordings.All()[1].Runs[0])
	if _, err := p.ingestAPI[tenantB].PutInput(t.Context(), sealed.ThreadID, sealed.RunID, sealed.Input); err != nil {
		t.Fatal(err)
	}
	at, err := p.ingestAPI[tenantB].PostEvents(t.Context(), sealed.ThreadID, sealed.RunID, client.TypeNDJSON, bytes.NewReader(sealed.Events))
	if err != nil {
		t.Fatal(err)
	}
	history := func(run recordings.Run, want conformance.Conversation, atLeast string) {
		t.Helper()
		var got conformance.Conversation
		if err := json.Unmarshal(p.read(tenantB, client.RunPath(run.ThreadID, run.RunID)+"/history", atLeast), &got); err != nil {
			t.Fatal(err)
		}
		if d := conformance.Diff(want, got); d != "" {
			t.Error(d)
		}
	}
	history(sealed, wantSealed, fmt.Sprintf("%d:%d", at.Partition, at.LastOffset))

	run, want := namesake(t, recordings.All()[0].Runs[0])
	lines := run.Lines()
	// Numbered: what was sent and not acknowledged may be there, and is sent again.
	post := func(from, to int) (client.Ack, error) {
		var body strings.Builder
		for i := from; i < to; i++ {
			fmt.Fprintf(&body, "{\"seq\":%d,\"event\":%s}\n", i, lines[i])
		}
		return p.ingestAPI[tenantB].PostEvents(t.Context(), run.ThreadID, run.RunID, client.TypeSequenced, strings.NewReader(body.String()))
	}
	if _, err := p.ingestAPI[tenantB].PutInput(t.Context(), run.ThreadID, run.RunID, run.Input); err != nil {
		t.Fatal(err)
	}
	if _, err := post(0, 2); err != nil {
		t.Fatal(err)
	}
	process.Eventually(t, "the run is open in the compactor", func() (float64, bool) {
		n := p.compactor.Metrics(t)["skein_compactor_open_runs"]
		return n, n == 1
	})
	process.Eventually(t, "the run is open in the index", func() (string, bool) {
		body, err := p.api[tenantB].Get(t.Context(), client.RunPath(run.ThreadID, run.RunID), nil)
		return fmt.Sprintf("%s %v", body, err), err == nil
	})

	began := time.Now()
	elapsed := func() time.Duration { return time.Since(began).Round(100 * time.Millisecond) }
	cluster.Stop(1)
	readers := []*process.Process{p.ingest, p.compactor, p.indexer}
	for _, stage := range readers {
		says := notReady(t, stage, `"kafka":"asking brokers`)
		t.Logf("%v: without a broker %s says %s", elapsed(), stage.Name, says)
	}
	says := readiness(t, p.query, http.StatusOK, `"status":"degraded"`, `"store":"ok"`, `"kafka":"asking brokers`)
	t.Logf("%v: without a broker query says %s", elapsed(), says)
	history(sealed, wantSealed, "")
	asked := make(chan error, 1)
	go func() { // while ingest waits for Kafka
		var errs []error
		for _, path := range []string{
			client.RunPath(run.ThreadID, run.RunID) + "/history", client.RunPath(sealed.ThreadID, sealed.RunID) + "/events",
			client.RunPath(sealed.ThreadID, sealed.RunID) + "/verify", "/v1/dead-letters",
		} {
			body, err := p.api[tenantB].Get(t.Context(), path, nil)
			var said *client.Error
			if !errors.As(err, &said) || said.Status != http.StatusServiceUnavailable {
				errs = append(errs, fmt.Errorf("%s is answered with %w %s, want a 503", path, err, body))
			}
		}
		asked <- errors.Join(errs...)
	}()
	_, err = post(2, 3)
	refused(t, err)
	t.Logf("%v: ingest has said no", elapsed())
	if err := <-asked; err != nil {
		t.Error(err)
	}
	t.Logf("%v: query has refused what is in Kafka only", elapsed())
	cluster.Up(1)
	t.Logf("%v: the broker is up again", elapsed())
	for _, stage := range readers {
		stage.AwaitReady()
	}
	t.Logf("%v: the stages are ready again", elapsed())
	ack := process.Eventually(t, "ingest takes events again", func() (client.Ack, bool) {
		ack, err := post(2, len(lines))
		if err != nil {
			refused(t, err)
		}
		return ack, err == nil
	})
	history(run, want, fmt.Sprintf("%d:%d", ack.Partition, ack.LastOffset))
	readiness(t, p.query, http.StatusOK, `"status":"ok"`)

	addPartitions(t, cluster.Config)
	t.Logf("%v: partitions are added", elapsed())
	<-p.compactor.Ended
	t.Logf("%v: the compactor has ended", elapsed())
	if code, log := p.compactor.ExitCode(), p.compactor.Tail(); code != 1 || !strings.Contains(log, "partition counts differ") {
		t.Errorf("where partitions were added the compactor ended with %d and said\n%s", code, log)
	}
	for stage, check := range map[*process.Process]string{p.ingest: `"ingest":"unavailable: `, p.indexer: `"topics":"`} {
		says := notReady(t, stage, check+"partition counts differ: there were 4", "now there are 5")
		t.Logf("%v: %s says %s", elapsed(), stage.Name, says)
	}
	says = readiness(t, p.query, http.StatusOK, `"status":"degraded"`, "there were 4", "now there are 5")
	t.Logf("%v: query says %s", elapsed(), says)
	_, err = post(len(lines)-1, len(lines))
	refused(t, err)
	for _, stage := range []*process.Process{p.ingest, p.indexer, p.query} {
		stage.Stop()
	}
}

// notReady waits until a stage says that it cannot take work, with all of the texts, and returns what it says.
func notReady(t *testing.T, stage *process.Process, texts ...string) string {
	t.Helper()
	return readiness(t, stage, http.StatusServiceUnavailable, texts...)
}

// readiness waits until a stage's readiness is a status with all of the texts, and returns what it says. The
// stage has to be alive all the same.
func readiness(t *testing.T, stage *process.Process, want int, texts ...string) string {
	t.Helper()
	admin := "http://" + stage.Said("started", "admin")
	body := process.Eventually(t, fmt.Sprintf("readiness of %s is %d with %s", stage.Name, want, strings.Join(texts, ", ")),
		func() (string, bool) {
			status, body := process.Get(t, admin+"/readyz")
			has := status == want
			for _, text := range texts {
				has = has && strings.Contains(body, text)
			}
			return body, has
		})
	if status, body := process.Get(t, admin+"/healthz"); status != http.StatusOK {
		t.Errorf("%s is not alive: %d %s", stage.Name, status, body)
	}
	return strings.TrimSpace(body)
}

// refused wants ingest to have said 503.
func refused(t *testing.T, err error) {
	t.Helper()
	var said *client.Error
	if !errors.As(err, &said) || said.Status != http.StatusServiceUnavailable {
		t.Fatalf("ingest says %v, want a 503", err)
	}
}

// addPartitions gives every topic one more partition.
func addPartitions(t *testing.T, cfg kafka.Config) {
	t.Helper()
	adm := kafkatest.Admin(t, cfg)
	added, err := adm.CreatePartitions(t.Context(), 1, cfg.Topics().All()...)
	if err := errors.Join(err, added.Error()); err != nil {
		t.Fatal(err)
	}
}
