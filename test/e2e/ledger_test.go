package e2e_test

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/skeinhq/skein/internal/client"
	"github.com/skeinhq/skein/pkg/kafka"
	"github.com/skeinhq/skein/pkg/kafka/kafkatest"
	"github.com/skeinhq/skein/pkg/record"
	"github.com/skeinhq/skein/test/process"
)

const (
	ledgerRuns   = 20 // of each kind
	ledgerEvents = 60 // of each run
)

// ledgerEvent is event n of a run, RUN_STARTED to RUN_FINISHED, no two alike.
func ledgerEvent(thread string, n int) string {
	switch n {
	case 0:
		return fmt.Sprintf(`{"type":"RUN_STARTED","threadId":%q,"runId":"r"}`, thread)
	case ledgerEvents - 1:
		return fmt.Sprintf(`{"type":"RUN_FINISHED","threadId":%q,"runId":"r"}`, thread)
	}
	return fmt.Sprintf(`{"type":"CUSTOM","name":"n","value":%d}`, n)
}

// ledgerAgent is an agent that sends ledgerEvents with pauses.
func ledgerAgent(t *testing.T, pause time.Duration) *httptest.Server {
	agent := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		var input struct{ ThreadID string }
		if err := json.NewDecoder(r.Body).Decode(&input); err != nil {
			t.Error(err)
		}
		w.Header().Set("Content-Type", "text/event-stream")
		rc := http.NewResponseController(w)
		for n := range ledgerEvents {
			if _, err := fmt.Fprintf(w, "data: %s\n\n", ledgerEvent(input.ThreadID, n)); err != nil {
				return // the proxy has gone
			}
			_ = rc.Flush()
			select {
			case <-time.After(pause):
			case <-r.Context().Done():
				return
			}
		}
	}))
	t.Cleanup(agent.Close)
	return agent
}

// agentsFile configures one agent.
func agentsFile(t *testing.T, url string) string {
	t.Helper()
	file := filepath.Join(t.TempDir(), "agents.yaml")
	if err := os.WriteFile(file, []byte("agents:\n  - name: helper\n    url: "+url+"\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	return file
}

// callProxy runs a thread's run through the proxy and returns the events that came.
func callProxy(ctx context.Context, ingestURL, key, thread string) (events []string, err error) {
	input := fmt.Sprintf(`{"threadId":%q,"runId":"r","state":{},"messages":[],"tools":[],"context":[],"forwardedProps":{}}`, thread)
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, ingestURL+"/v1/agents/helper", strings.NewReader(input))
	if err != nil {
		return nil, err
	}
	req.Header.Set("Content-Type", "application/json")
	req.Header.Set("Authorization", "Bearer "+key)
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, resp.Body.Close()) }()
	if resp.StatusCode != http.StatusOK {
		body, _ := io.ReadAll(resp.Body)
		return nil, fmt.Errorf("the proxy answers %s: %s", resp.Status, body)
	}
	for lines := bufio.NewScanner(resp.Body); ; {
		if !lines.Scan() {
			return events, lines.Err()
		}
		if data, ok := strings.CutPrefix(lines.Text(), "data: "); ok {
			events = append(events, data)
		}
	}
}

// A real broker is killed under load, and comes back. Each caller keeps a ledger: every event that was acknowledged is
// on the topic, every other was answered with an error; callers of the proxy get their streams whole, and so does the topic.
func TestLedger_NothingAcknowledgedIsLostWhenKafkaIsKilled(t *testing.T) {
	t.Parallel() // most of it is waiting
	cluster := kafkatest.Real(t, 1, kafkatest.Own())
	agent := ledgerAgent(t, 150*time.Millisecond)
	p := startPipeline(t, ends{
		kafka: cluster.Config, replication: 1, ingest: []string{"--agents", agentsFile(t, agent.URL), "--ack-timeout", "1s"},
		store: []string{"--sqlite", filepath.Join(t.TempDir(), "lineage.sqlite")},
	})
	ingestURL := "http://" + p.ingest.Said("listening", "address")

	var all sync.WaitGroup
	var mu sync.Mutex
	acknowledged, refusals := map[string]int64{}, 0
	for i := range ledgerRuns {
		all.Go(func() { // one event a request, numbered; what is refused is sent again
			thread := fmt.Sprint("plain-", i)
			for n := 0; n < ledgerEvents; {
				line := fmt.Sprintf(`{"seq":%d,"event":%s}`, n, ledgerEvent(thread, n))
				_, err := p.ingestAPI[tenantA].PostEvents(t.Context(), thread, "r", client.TypeSequenced, strings.NewReader(line))
				mu.Lock()
				if err == nil {
					n++
					acknowledged[thread]++
				} else {
					refusals++
				}
				mu.Unlock()
				time.Sleep(100 * time.Millisecond)
			}
		})
		all.Go(func() {
			thread := fmt.Sprint("proxied-", i)
			events, err := callProxy(t.Context(), ingestURL, p.secrets[tenantA], thread)
			if err != nil || len(events) != ledgerEvents {
				t.Errorf("%s: %d events of %d came, %v", thread, len(events), ledgerEvents, err)
			}
		})
	}
	time.Sleep(2 * time.Second)
	cluster.Kill(1)
	time.Sleep(3 * time.Second)
	cluster.Up(1)
	all.Wait()
	p.ingest.Stop() // with all that it still holds
	mu.Lock()
	t.Logf("%d requests were refused while Kafka was away", refusals)
	if refusals == 0 {
		t.Error("no request was refused: Kafka was not away")
	}
	mu.Unlock()

	for thread, got := range onTopic(t, cluster.Config) {
		for n := range got {
			if want := ledgerEvent(thread, n); got[n] != want {
				t.Fatalf("%s: event %d is %s, want %s", thread, n, got[n], want)
			}
		}
		if len(got) != ledgerEvents {
			t.Errorf("%s: %d events are on the topic, of %d (%d acknowledged)", thread, len(got), ledgerEvents, acknowledged[thread])
		}
		delete(acknowledged, thread)
	}
	for thread := range acknowledged {
		t.Errorf("%s is not on the topic", thread)
	}
	// Each run is folded, once.
	for i := range ledgerRuns {
		for _, kind := range []string{"plain-", "proxied-"} {
			thread := fmt.Sprint(kind, i)
			process.Eventually(t, thread+" has ended", func() (string, bool) {
				body, err := p.api[tenantA].Get(t.Context(), client.RunPath(thread, "r"), nil)
				return fmt.Sprintf("%s %v", body, err), err == nil && bytes.Contains(body, []byte(`"status":"finished"`)) && !bytes.Contains(body, []byte("incomplete"))
			})
		}
	}
}

// onTopic are the events of each thread's run, those with a number that came before left out, as all readers do.
func onTopic(t *testing.T, cfg kafka.Config) map[string][]string {
	t.Helper()
	events, next := map[string][]string{}, map[string]int64{}
	for _, r := range kafkatest.Consume(t, cfg, cfg.Topics().Events) {
		h, err := record.ParseHeaders(r.Headers)
		if err != nil {
			t.Fatal(err)
		}
		if h.Kind != record.KindEvent {
			continue
		}
		_, thread, _ := strings.Cut(string(r.Key), "/")
		if h.Seq < next[thread] {
			continue
		}
		if h.Seq != next[thread] {
			t.Errorf("%s: event %d follows %d", thread, h.Seq, next[thread]-1)
		}
		next[thread] = h.Seq + 1
		events[thread] = append(events[thread], string(r.Value))
	}
	return events
}

// The proxy is killed while it holds 100 runs. Each of them ends: what is on the topic is what the agent said up to
// there, and once it has been silent for the idle limit it is abandoned. A new process takes the next turn of each thread.
func TestLedger_RunsOfAProxyThatIsKilledEnd(t *testing.T) {
	t.Parallel()
	const runs = 100
	cluster := kafkatest.Real(t, 1)
	agent := ledgerAgent(t, 200*time.Millisecond)
	p := startPipeline(t, ends{
		kafka: cluster.Config, replication: 1, ingest: []string{"--agents", agentsFile(t, agent.URL)}, compactor: []string{"--idle-limit", "5s"},
		store: []string{"--sqlite", filepath.Join(t.TempDir(), "lineage.sqlite")},
	})
	ingestURL := "http://" + p.ingest.Said("listening", "address")
	var all sync.WaitGroup
	came := make([]int, runs)
	for i := range runs {
		all.Go(func() {
			events, _ := callProxy(t.Context(), ingestURL, p.secrets[tenantA], fmt.Sprint("held-", i)) // it is cut off
			came[i] = len(events)
		})
	}
	process.Eventually(t, "all runs are open", func() (float64, bool) {
		n := p.compactor.Metrics(t)["skein_compactor_open_runs"]
		return n, n == runs
	})
	p.ingest.End(os.Kill)
	all.Wait()
	topic := onTopic(t, cluster.Config)
	for i := range runs {
		thread := fmt.Sprint("held-", i)
		if n := came[i]; n == 0 || n == ledgerEvents {
			t.Errorf("%s: %d events came before the proxy was killed", thread, n)
		}
		for n, got := range topic[thread] {
			if want := ledgerEvent(thread, n); got != want {
				t.Fatalf("%s: event %d is %s, want %s", thread, n, got, want)
			}
		}
		process.Eventually(t, thread+" is given up", func() (string, bool) {
			body, err := p.api[tenantA].Get(t.Context(), client.RunPath(thread, "r"), nil)
			return fmt.Sprintf("%s %v", body, err), err == nil && bytes.Contains(body, []byte(`"status":"abandoned"`))
		})
		body, err := p.api[tenantA].Get(t.Context(), client.ThreadPath(thread)+"/lineage", nil)
		if err != nil {
			t.Fatal(err)
		}
		var lineage struct{ Runs []json.RawMessage }
		if err := json.Unmarshal(body, &lineage); err != nil || len(lineage.Runs) != 1 {
			t.Errorf("%s has runs %s", thread, body)
		}
	}
}
