package abuse

import (
	"bytes"
	"compress/gzip"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// publishes returns the honest tenant's call: it publishes one event.
func (s *Site) publishes(ingest *Stage) func(ctx context.Context, n int) error {
	web := s.Web()
	return func(ctx context.Context, n int) error {
		event := fmt.Sprintf(`{"type":"CUSTOM","name":"n","value":%d}`, n)
		return ask(web, s.Request(ctx, Honest, http.MethodPost, ingest.URL+fmt.Sprintf("/v1/threads/honest%d/runs/r/events", n%32),
			strings.NewReader(event)))
	}
}

// ask makes a request that has to succeed.
func ask(web *http.Client, req *http.Request) error {
	resp, err := web.Do(req)
	if err != nil {
		return fmt.Errorf("%s: %w", req.URL.Path, err)
	}
	defer func() { _ = resp.Body.Close() }() // only read
	text, err := io.ReadAll(resp.Body)
	if err == nil && resp.StatusCode != http.StatusOK {
		err = fmt.Errorf("%s: %s %.200s", req.URL.Path, resp.Status, text)
	}
	return err
}

// unfinished is a body that stays open after what it has, until ctx ends.
func unfinished(ctx context.Context, begin []byte) io.Reader {
	r, w := io.Pipe()
	context.AfterFunc(ctx, func() { _ = w.CloseWithError(ctx.Err()) })
	return io.MultiReader(bytes.NewReader(begin), r)
}

// 15 MiB of a line that does not end, as gzip of a hundredth of that, and inputs that are as large as they may be.
func TestIngest_LargeBodiesWithoutAnEnd(t *testing.T) {
	s := NewSite(t)
	var line bytes.Buffer
	w := gzip.NewWriter(&line)
	for i := range 15 << 10 {
		fmt.Fprintf(w, "%s%08x", strings.Repeat("x", 1<<10-8), uint32(i)*2654435761)
	}
	_ = w.Flush() // into memory
	input := `{"threadId":"t","runId":"r","messages":[],"tools":[],"context":[],"state":"` + strings.Repeat("x", 15<<20) + `"}`
	ingest := s.Start("ingest")
	a := s.Attacker(Hostile)
	a.Against(ingest, "100 unfinished lines of 15 MiB as gzip, 24 inputs of 15 MiB", s.publishes(ingest), func(ctx context.Context) {
		atOnce(ctx, 124, func(i int) {
			run := fmt.Sprintf("%s/v1/threads/t%d/runs/r/", ingest.URL, i)
			if i < 100 {
				a.Send(ctx, http.MethodPost, run+"events", unfinished(ctx, line.Bytes()), "Content-Encoding", "gzip", "Accept", "application/x-ndjson")
			} else {
				a.Send(ctx, http.MethodPut, run+"input", strings.NewReader(input))
			}
		})
	}, "429")
}

// Proxied runs whose agent sends an event of 15 MB without an end.
func TestIngest_ProxiedRunsWithoutAnEnd(t *testing.T) {
	s := NewSite(t)
	part := strings.Repeat("x", 1<<20)
	agent := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		var in struct{ ThreadID string }
		if err := json.NewDecoder(r.Body).Decode(&in); err != nil {
			t.Errorf("an input that the agent cannot read: %v", err)
		}
		w.Header().Set("Content-Type", "text/event-stream")
		_, err := fmt.Fprintf(w, "data: {\"type\":\"RUN_STARTED\",\"threadId\":%q,\"runId\":\"r\"}\n\ndata: {\"type\":\"CUSTOM\",\"name\":\"n\",\"value\":\"", in.ThreadID)
		for n := 0; err == nil && n < 15; n++ {
			_, err = io.WriteString(w, part)
		}
		_ = http.NewResponseController(w).Flush() // the proxy may be gone
		<-r.Context().Done()
	}))
	t.Cleanup(agent.Close)
	agents := filepath.Join(s.Dir, "agents.yaml")
	if err := os.WriteFile(agents, []byte("agents:\n  - name: endless\n    url: "+agent.URL+"\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	ingest := s.Start("ingest", "--agents", agents)
	a := s.Attacker(Hostile)
	a.Against(ingest, "100 proxied runs with an event of 15 MB without an end", s.publishes(ingest), func(ctx context.Context) {
		atOnce(ctx, 100, func(i int) {
			a.Send(ctx, http.MethodPost, ingest.URL+"/v1/agents/endless",
				strings.NewReader(fmt.Sprintf(`{"threadId":"t%d","runId":"r","messages":[],"tools":[],"context":[]}`, i)), "Content-Type", "application/json")
		})
	}, "200")
}

func TestIngest_ATenantOverItsQuota(t *testing.T) {
	s := NewSite(t)
	ingest := s.Start("ingest")
	a := s.Attacker(Limited)
	a.Against(ingest, "requests as fast as they go, with a quota of 20 a second", s.publishes(ingest), func(ctx context.Context) {
		atOnce(ctx, 8, func(i int) {
			a.Send(ctx, http.MethodPost, fmt.Sprintf("%s/v1/threads/t%d/runs/r/events", ingest.URL, i), strings.NewReader(`{"type":"CUSTOM","name":"n","value":1}`))
		})
	}, "200", "429 Too Many Requests requests_per_second")
}
