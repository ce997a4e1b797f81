package cli

import (
	"bufio"
	"encoding/json"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/skeinhq/skein/internal/app"
	"github.com/skeinhq/skein/internal/app/dev"
	"github.com/skeinhq/skein/pkg/client"
	"github.com/skeinhq/skein/pkg/ingest/agents"
	"github.com/skeinhq/skein/pkg/record"
)

// A run of the proxy is stopped, its record says so and is proved; what is over, or held by nobody, is not stopped.
func TestCancel_StopsARun(t *testing.T) {
	left := make(chan struct{})
	agent := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		_, _ = io.Copy(io.Discard, r.Body) // else it does not see the connection end
		w.Header().Set("Content-Type", "text/event-stream")
		_, _ = io.WriteString(w, `data: {"type":"RUN_STARTED","threadId":"t","runId":"r"}`+"\n\n"+
			`data: {"type":"TEXT_MESSAGE_START","messageId":"m","role":"assistant"}`+"\n\n"+
			`data: {"type":"TEXT_MESSAGE_CONTENT","messageId":"m","delta":"half a"}`+"\n\n")
		_ = http.NewResponseController(w).Flush()
		<-r.Context().Done()
		close(left)
	}))
	defer agent.Close()
	withServer(t, t.TempDir(), func(s *dev.Server, c *client.Client) {
		at := "--url=" + s.URL()
		const input = `{"threadId":"t","runId":"r","messages":[],"state":{},"tools":[],"context":[],"forwardedProps":{}}`
		resp, err := http.Post(s.URL()+"/v1/agents/helper", "application/json", strings.NewReader(input))
		if err != nil {
			t.Fatal(err)
		}
		defer resp.Body.Close()
		read := bufio.NewReader(resp.Body)
		if _, err := read.ReadString('\n'); err != nil {
			t.Fatal(err)
		}

		stdout, stderr, code := skein(t, "", "cancel", "t", "r", "--reason", "enough", "--json", at)
		var got client.Cancelled
		if err := json.Unmarshal([]byte(stdout), &got); err != nil || code != app.ExitDone {
			t.Fatalf("exit %d: %s%s", code, stdout, stderr)
		}
		if got.RunID != "r" || got.ThreadID != "t" || got.Status != "cancelled" || !got.Synthetic {
			t.Errorf("answer is %+v", got)
		}
		<-left
		if rest, err := io.ReadAll(read); err != nil || !strings.Contains(string(rest), `"outcome":{"type":"cancelled"}`) {
			t.Errorf("the agent's caller reads %q, %v", rest, err)
		}
		http.DefaultClient.CloseIdleConnections()

		if err := s.Settle(t.Context()); err != nil {
			t.Fatal(err)
		}
		var run struct {
			Status    record.Status
			Synthetic bool
			Agent     string
			Raw       record.Raw
		}
		body, err := c.Get(t.Context(), client.RunPath("t", "r"), nil)
		if err == nil {
			err = json.Unmarshal(body, &run)
		}
		// with the end of the message
		if err != nil || run.Status != record.StatusCancelled || !run.Synthetic || run.Agent != "helper" || run.Raw.Events != 4 {
			t.Errorf("the run is %s, %v", body, err)
		}
		if stdout, stderr, code := skein(t, "", "verify", "t", "r", at); code != app.ExitDone {
			t.Errorf("verify: exit %d: %s%s", code, stdout, stderr)
		}
		if stdout, _, code := skein(t, "", "replay", "t", "r", at); code != app.ExitDone || strings.Contains(stdout, "RUN_FINISHED") ||
			!strings.Contains(stdout, "half a") {
			t.Errorf("replay: exit %d: %s", code, stdout)
		}
		if stdout, _, code := skein(t, "", "history", "t", at); code != app.ExitDone || !strings.Contains(stdout, "half a") {
			t.Errorf("history: exit %d: %s", code, stdout)
		}
		if stdout, _, _ := skein(t, "", "threads", "--agent", "helper", at); !strings.Contains(stdout, "cancelled") {
			t.Errorf("threads of the agent: %s", stdout)
		}
		if stdout, _, _ := skein(t, "", "threads", "--agent", "other", at); strings.Contains(stdout, "cancelled") {
			t.Errorf("threads of another agent: %s", stdout)
		}

		began := time.Now()
		if _, stderr, code := skein(t, "", "cancel", "t", "r", at); code != app.ExitFailed ||
			!strings.Contains(stderr, "it had already ended: cancelled") || time.Since(began) > 2*time.Second {
			t.Errorf("again: exit %d after %v: %s", code, time.Since(began), stderr)
		}
		_, stderr, code = skein(t, "", "cancel", "t", at)
		if code != app.ExitFailed || !strings.Contains(stderr, "no run of the thread is open") {
			t.Errorf("of the thread: exit %d: %s", code, stderr)
		}
	}, func(cfg *dev.Config) {
		var err error
		if cfg.Agents, err = agents.ParsePairs([]string{"helper=" + agent.URL}); err != nil {
			t.Fatal(err)
		}
	})
	open := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.Method == http.MethodPost {
			w.WriteHeader(http.StatusConflict) // after some seconds
			return
		}
		_, _ = io.WriteString(w, `{"status":"running"}`) // a test's answer
	}))
	defer open.Close()
	withServer(t, t.TempDir(), func(s *dev.Server, _ *client.Client) {
		if _, stderr, code := skein(t, "", "cancel", "t", "nobody", "--url="+s.URL()); code != app.ExitNotFound || !strings.Contains(stderr, "there is no run nobody") {
			t.Errorf("a run that nobody knows: exit %d: %s", code, stderr)
		}
	})
	if _, stderr, code := skein(t, "", "cancel", "t", "open", "--url="+open.URL); code != app.ExitFailed ||
		!strings.Contains(stderr, "it goes on: no proxy") {
		t.Errorf("a run that no proxy holds: exit %d: %s", code, stderr)
	}
}
