package e2e_test

import (
	"bytes"
	"encoding/json"
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

	"github.com/skeinhq/skein/pkg/client"
	"github.com/skeinhq/skein/pkg/kafka/kafkatest"
	"github.com/skeinhq/skein/pkg/record"
	"github.com/skeinhq/skein/test/process"
)

// The proxy is killed while it holds runs. What is on the topic of each is what the agent said up to there, without a gap, and once it has
// been silent for the idle limit it is abandoned.
func TestProxy_RunsOfOneThatIsKilledAreAbandonedWithoutGaps(t *testing.T) {
	const runs = 10
	said := func(thread string, n int) string {
		if n == 0 {
			return fmt.Sprintf(`{"type":"RUN_STARTED","threadId":%q,"runId":"r"}`, thread)
		}
		return fmt.Sprintf(`{"type":"CUSTOM","name":"n","value":%d}`, n)
	}
	agent := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		var input struct{ ThreadID string }
		if err := json.NewDecoder(r.Body).Decode(&input); err != nil {
			t.Error(err)
		}
		w.Header().Set("Content-Type", "text/event-stream")
		for n := 0; r.Context().Err() == nil; n++ {
			fmt.Fprintf(w, "data: %s\n\n", said(input.ThreadID, n)) // the proxy may have gone
			_ = http.NewResponseController(w).Flush()
			time.Sleep(10 * time.Millisecond)
		}
	}))
	t.Cleanup(agent.Close)
	p := startPipeline(t, ends{
		kafka: kafkatest.Start(t, partitions, kafkatest.WithoutTopics()), replication: 1,
		store:  []string{"--sqlite", filepath.Join(t.TempDir(), "lineage.sqlite")},
		ingest: []string{"--agents", agentsFile(t, agent.URL)}, compactor: []string{"--idle-limit", "3s"},
	})
	url := "http://" + p.ingest.Said("listening", "address") + "/v1/agents/helper"
	var callers sync.WaitGroup
	for i := range runs {
		callers.Go(func() {
			input := fmt.Sprintf(`{"threadId":"held-%d","runId":"r","messages":[],"tools":[],"context":[]}`, i)
			req, err := http.NewRequestWithContext(t.Context(), http.MethodPost, url, strings.NewReader(input))
			if err != nil {
				t.Error(err)
				return
			}
			req.Header.Set("Content-Type", "application/json")
			req.Header.Set("Authorization", "Bearer "+p.secrets[tenantA])
			resp, err := http.DefaultClient.Do(req)
			if err != nil {
				t.Error(err)
				return
			}
			_, _ = io.Copy(io.Discard, resp.Body) // it is cut off
			_ = resp.Body.Close()                 // by the proxy's end
		})
	}
	process.Eventually(t, "all runs are open", func() (float64, bool) {
		n := p.compactor.Metrics(t)["skein_compactor_open_runs"]
		return n, n == runs
	})
	p.ingest.End(os.Kill)
	callers.Wait()

	next := map[string]int64{}
	for _, r := range kafkatest.Consume(t, p.ends.kafka, p.ends.kafka.Topics().Events) {
		h, err := record.ParseHeaders(r.Headers)
		if err != nil {
			t.Fatal(err)
		}
		_, thread, _ := strings.Cut(string(r.Key), "/")
		if h.Kind != record.KindEvent || h.Seq < next[thread] { // an input, or a number that came before, which readers leave out
			continue
		}
		if want := said(thread, int(next[thread])); h.Seq != next[thread] || string(r.Value) != want {
			t.Fatalf("%s: number %d is %s, want %s", thread, h.Seq, r.Value, want)
		}
		next[thread]++
	}
	if len(next) != runs {
		t.Errorf("%d runs are on the topic, want %d", len(next), runs)
	}
	for thread := range next {
		process.Eventually(t, thread+" is given up", func() (string, bool) {
			body, err := p.api[tenantA].Get(t.Context(), client.RunPath(thread, "r"), nil)
			return fmt.Sprintf("%s %v", body, err), err == nil && bytes.Contains(body, []byte(`"status":"abandoned"`))
		})
	}
}
