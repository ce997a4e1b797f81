package abuse

import (
	"bufio"
	"bytes"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/skeinhq/skein/pkg/tenant"
)

// A key that is removed from the file ends what is open with it within 5 s, in each stage.
func TestRevoked_EndsOpenRequestsOfProcesses(t *testing.T) {
	p := startPipeline(t)
	honest := p.reads()
	threads := threadsOn(Hostile, "thread-", 2, hostilePartitions)
	done, going := threads[0], threads[1]
	recorded := p.run(Hostile, done, "done", texts(20)...)
	for i, m := range recorded {
		m.Timestamp = time.Now().Add(time.Duration(i) * 100 * time.Millisecond) // a replay at a pace takes them apart
	}
	p.publish(recorded)
	p.publish(p.run(Hostile, going, "r", texts(20)...)[:20])
	p.settle()
	type end struct {
		name, status, want string
		at                 time.Time
		text               string
	}
	ended := make(chan end, 10)
	agent := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, req *http.Request) {
		_, _ = io.Copy(io.Discard, req.Body) // the caller's
		w.Header().Set("Content-Type", "text/event-stream")
		_, _ = io.WriteString(w, "data: {\"type\":\"RUN_STARTED\",\"threadId\":\"proxied\",\"runId\":\"p\"}\n\n") // the caller may be gone
		_ = http.NewResponseController(w).Flush()
		<-req.Context().Done()
		ended <- end{name: "the agent's request", at: time.Now()}
	}))
	t.Cleanup(agent.Close)
	agents := filepath.Join(p.Dir, "agents.yaml")
	if err := os.WriteFile(agents, []byte("agents:\n  - name: helper\n    url: "+agent.URL+"\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	ingest := p.Start("ingest", "--agents", agents)

	const event = `{"type":"CUSTOM","name":"n","value":1}` + "\n"
	input := func(thread string) string {
		return fmt.Sprintf(`{"threadId":%q,"runId":"p","messages":[],"tools":[],"context":[]}`, thread)
	}
	said := ": " + tenant.ErrRevoked.Error()
	requests := []struct {
		name                       string
		stage                      *Stage
		method, path, accept, body string
		open                       bool // the body does not end
		status, want               string
	}{
		{"a silent body", ingest, "POST", "/v1/threads/b1/runs/r/events", "", event, true, "401", `"accepted":1`},
		{"a long stream", ingest, "POST", "/v1/threads/b2/runs/r/events", "application/x-ndjson", event, true, "200", `"status":401`},
		{"an input", ingest, "PUT", "/v1/threads/b3/runs/r/input", "", `{"threadId":`, true, "401", `"reason":"unauthenticated"`},
		{"the proxy", ingest, "POST", "/v1/agents/helper", "", input("proxied"), false, "200", `"code":"skein-unauthenticated"`},
		{"a live stream", p.query, "GET", "/v1/threads/" + going + "/runs/r/stream", "", "", false, "200", said},
		{"connect", p.query, "POST", "/v1/connect", "", input(going), false, "200", said},
		{"a replay at a pace", p.query, "GET", "/v1/threads/" + done + "/runs/done/events?pace=0.001", "text/event-stream", "", false,
			"200", said},
	}
	for _, r := range requests {
		conn := p.dial(r.stage.URL, r.method, r.path, r.accept, r.body, r.open)
		go func() {
			var text bytes.Buffer
			_, _ = io.Copy(&text, conn) // what counts is that it ends
			ended <- end{r.name, "HTTP/1.1 " + r.status + " ", r.want, time.Now(), text.String()}
		}()
	}
	select {
	case e := <-ended:
		t.Fatalf("%s has ended already: %s", e.name, e.text)
	case <-time.After(tenant.CheckInterval + 500*time.Millisecond): // all are open, for longer than between two checks
	}
	if err := os.Remove(p.KeyFile); err != nil {
		t.Fatal(err)
	}
	if err := tenant.AppendKey(p.KeyFile, tenant.Entry(Honest, Honest, tenant.Scopes(), p.Keys[Honest])); err != nil {
		t.Fatal(err)
	}
	revoked, most := time.Now(), time.Duration(size(5, 15))*time.Second // in the short form the machine has other work
	for range len(requests) + 1 {
		select {
		case e := <-ended:
			took := e.at.Sub(revoked).Round(10 * time.Millisecond)
			t.Logf("%s ended after %v", e.name, took)
			if took > most {
				t.Errorf("%s was open for %v after its key was removed", e.name, took)
			}
			if !strings.HasPrefix(e.text, e.status) || !strings.Contains(e.text, e.want) {
				t.Errorf("%s ended with %.600s, want %q and %s", e.name, e.text, e.status, e.want)
			}
		case <-time.After(20 * time.Second):
			t.Fatal("requests are open 20 s after their key was removed")
		}
	}
	if err := honest(t.Context(), 0); err != nil {
		t.Errorf("the honest tenant: %v", err)
	}
}

// dial sends a request of the hostile tenant on a connection of its own, which ends with the answer; open leaves the body unfinished.
func (s *Site) dial(url, method, path, accept, body string, open bool) io.Reader {
	s.TB.Helper()
	host := strings.TrimPrefix(url, "http://")
	conn, err := (&net.Dialer{}).DialContext(s.TB.Context(), "tcp", host)
	if err != nil {
		s.TB.Fatal(err)
	}
	s.TB.Cleanup(func() { _ = conn.Close() }) // the server may have closed it
	text := method + " " + path + " HTTP/1.1\r\nHost: " + host + "\r\nAuthorization: Bearer " + s.Keys[Hostile] + "\r\nConnection: close\r\n"
	if accept != "" {
		text += "Accept: " + accept + "\r\n"
	}
	if open {
		text += fmt.Sprintf("Transfer-Encoding: chunked\r\n\r\n%x\r\n%s\r\n", len(body), body)
	} else {
		text += fmt.Sprintf("Content-Length: %d\r\n\r\n%s", len(body), body)
	}
	if _, err := io.WriteString(conn, text); err != nil {
		s.TB.Fatal(err)
	}
	return bufio.NewReader(conn)
}
