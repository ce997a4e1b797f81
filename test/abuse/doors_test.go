package abuse

import (
	"bufio"
	"bytes"
	"context"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/skeinhq/skein/pkg/tenant"
)

// Inputs by which threads are restored: as large as they may be, never finished, and of a run that goes on.
func TestQuery_Connect(t *testing.T) {
	r := newReads(t)
	r.chain(Hostile, "long", size(40_000, 3_000))
	open := r.open(Hostile, size(36_000, 5_000))
	r.Stage = r.Site.Start("query", "--sqlite", r.file, "--stream-life", "1s")
	input := func(thread string, more int) string {
		return fmt.Sprintf(`{"threadId":%q,"runId":"x","messages":[],"tools":[],"context":[],"forwardedProps":{"x":%q}}`, thread, strings.Repeat("x", more))
	}
	large := input("long", 15<<20)
	got := &answers{by: map[string]int{}, hints: map[int]string{}}
	web := r.Web()
	r.measured("POST /v1/connect × 60: inputs of 15 MiB, half of them unfinished, and of a run that goes on", got, func(ctx context.Context) {
		var all sync.WaitGroup
		for i := range 60 {
			all.Go(func() {
				for ctx.Err() == nil {
					var body io.Reader
					switch i % 3 {
					case 0:
						body = strings.NewReader(large)
					case 1:
						body = unfinished(ctx, large[:8<<20])
					default:
						body = strings.NewReader(input(open, 0))
					}
					attempt, cancel := context.WithTimeout(ctx, 5*time.Second)
					r.post(attempt, web, "/v1/connect", body, got)
					cancel()
				}
			})
		}
		all.Wait()
	})
	if (got.by["200"]+got.by["503"] == 0 || got.by["429"] == 0) && *Long { // 503: the stream's life was over before its first event
		t.Errorf("the attacker got %s", got)
	}
}

// unfinished is a body that stays open behind what it has, until ctx ends.
func unfinished(ctx context.Context, begin string) io.Reader { return open(ctx, []byte(begin)) }

// post sends a body of the hostile tenant, reads the answer and notes it.
func (r *reads) post(ctx context.Context, web *http.Client, path string, body io.Reader, got *answers) {
	resp, err := web.Do(r.Request(ctx, Hostile, http.MethodPost, r.URL+path, body))
	if err != nil {
		return
	}
	defer func() { _ = resp.Body.Close() }() // only read
	if resp.StatusCode < 400 {
		_, _ = io.Copy(io.Discard, resp.Body) // it may be broken off
	} else if text, err := io.ReadAll(resp.Body); err == nil && ctx.Err() == nil {
		got.problem(r.TB, resp, text)
	}
	got.note(fmt.Sprint(resp.StatusCode), 0)
}

// A key that is taken out of the file ends what it has open at every door within 5 s, on processes of their own.
func TestRevoked_EndsOpenRequestsOfProcesses(t *testing.T) {
	if !*Long {
		t.Skip("TestRevoked_EndsWhatIsOpenInEveryStage has it without processes: this is for -abuse.long")
	}
	r := newReads(t)
	r.run(Hostile, "chat", "done", 20)
	going := r.open(Hostile, 20)
	r.start()
	agentLeft := make(chan struct{})
	agent := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, req *http.Request) {
		_, _ = io.Copy(io.Discard, req.Body) // the caller's
		w.Header().Set("Content-Type", "text/event-stream")
		_, _ = io.WriteString(w, "data: {\"type\":\"RUN_STARTED\",\"threadId\":\"proxied\",\"runId\":\"p\"}\n\n") // the caller may be gone
		_ = http.NewResponseController(w).Flush()
		<-req.Context().Done()
		close(agentLeft)
	}))
	t.Cleanup(agent.Close)
	agents := filepath.Join(r.Dir, "agents.yaml")
	r.fatal(os.WriteFile(agents, []byte("agents:\n  - name: helper\n    url: "+agent.URL+"\n"), 0o600))
	ingest := r.Site.Start("ingest", "--agents", agents)

	const event = `{"type":"CUSTOM","name":"n","value":1}` + "\n"
	input := func(thread string) string {
		return fmt.Sprintf(`{"threadId":%q,"runId":"p","messages":[],"tools":[],"context":[]}`, thread)
	}
	doors := []struct {
		name                       string
		stage                      *Stage
		method, path, accept, body string
		open                       bool // the body does not end
	}{
		{"a body that is silent", ingest, "POST", "/v1/threads/b1/runs/r/events", "", event, true},
		{"a long stream", ingest, "POST", "/v1/threads/b2/runs/r/events", "application/x-ndjson", event, true},
		{"an input", ingest, "PUT", "/v1/threads/b3/runs/r/input", "", `{"threadId":`, true},
		{"the proxy", ingest, "POST", "/v1/agents/helper", "", input("proxied"), false},
		{"a run's live stream", r.Stage, "GET", "/v1/threads/" + going + "/runs/r/stream", "", "", false},
		{"a thread's live stream", r.Stage, "GET", "/v1/threads/" + going + "/stream", "", "", false},
		{"a stream that waits for a run", r.Stage, "GET", "/v1/threads/none/stream", "", "", false},
		{"connect", r.Stage, "POST", "/v1/connect", "", input(going), false},
		{"connect before its input", r.Stage, "POST", "/v1/connect", "", `{"threadId":`, true},
		{"a replay at a pace", r.Stage, "GET", "/v1/threads/chat/runs/done/events?pace=0.001", "text/event-stream", "", false},
	}
	type end struct {
		name string
		at   time.Time
		text string
	}
	ended := make(chan end, len(doors))
	for _, d := range doors {
		conn := r.dial(d.stage.URL, d.method, d.path, d.accept, d.body, d.open)
		go func() {
			var text bytes.Buffer
			_, _ = io.Copy(&text, conn) // that it ends is what counts
			ended <- end{d.name, time.Now(), text.String()}
		}()
	}
	select {
	case e := <-ended:
		t.Fatalf("%s has ended already: %s", e.name, e.text)
	case <-time.After(tenant.CheckInterval + 500*time.Millisecond): // all are open, and longer than a check takes
	}
	r.fatal(os.Remove(r.KeyFile))
	r.fatal(tenant.AppendKey(r.KeyFile, tenant.Entry(Honest, Honest, tenant.Scopes(), r.Keys[Honest])))
	revoked := time.Now()
	var last end
	for range doors {
		select {
		case last = <-ended:
			t.Logf("%s ended after %v", last.name, last.at.Sub(revoked).Round(10*time.Millisecond))
			if last.at.Sub(revoked) > 5*time.Second { // the file is read every 2 s, credentials are checked every 2.5 s
				t.Errorf("%s was open for %v after its key was taken out", last.name, last.at.Sub(revoked))
			}
			if !strings.Contains(last.text, "credential") && !strings.Contains(last.text, "unauthenticated") {
				t.Errorf("%s does not say why it ended: %.300s", last.name, last.text)
			}
		case <-time.After(15 * time.Second):
			t.Fatal("requests are open 15 s after their key was taken out of the file")
		}
	}
	select {
	case <-agentLeft:
	case <-time.After(15 * time.Second):
		t.Error("the agent goes on for a caller whose key was taken out")
	}
	resp, err := r.Web().Do(r.Request(t.Context(), Honest, http.MethodGet, r.URL+"/v1/threads/long/history", nil))
	r.fatal(err)
	_ = resp.Body.Close() // its status is enough
	if resp.StatusCode != http.StatusOK {
		t.Errorf("the honest tenant gets %s", resp.Status)
	}
}

// dial sends a request of the hostile tenant over a connection of its own; open leaves its body unfinished. The connection ends with the answer.
func (r *reads) dial(url, method, path, accept, body string, open bool) io.Reader {
	r.TB.Helper()
	host := strings.TrimPrefix(url, "http://")
	conn, err := (&net.Dialer{}).DialContext(r.TB.Context(), "tcp", host)
	r.fatal(err)
	r.TB.Cleanup(func() { _ = conn.Close() }) // the server may have closed it
	text := method + " " + path + " HTTP/1.1\r\nHost: " + host + "\r\nAuthorization: Bearer " + r.Keys[Hostile] + "\r\nConnection: close\r\n"
	if accept != "" {
		text += "Accept: " + accept + "\r\n"
	}
	if open {
		text += fmt.Sprintf("Transfer-Encoding: chunked\r\n\r\n%x\r\n%s\r\n", len(body), body)
	} else {
		text += fmt.Sprintf("Content-Length: %d\r\n\r\n%s", len(body), body)
	}
	_, err = io.WriteString(conn, text)
	r.fatal(err)
	return bufio.NewReader(conn)
}
