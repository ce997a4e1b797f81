package live

import (
	"bufio"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"net/url"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/skeinhq/skein/pkg/ingest/agents"
	"github.com/skeinhq/skein/pkg/kafka/kafkatest"
	"github.com/skeinhq/skein/pkg/tenant"
)

// revocable takes everybody for acme until it takes nobody any more.
type revocable struct{ revoked atomic.Bool }

func (a *revocable) Authenticate(*http.Request) (tenant.Identity, error) {
	if a.revoked.Load() {
		return tenant.Identity{}, tenant.ErrUnauthenticated
	}
	return tenant.Identity{Tenant: "acme", Scopes: tenant.Scopes()}, nil
}

// open is a request that is under way: its answer comes when it has ended.
type open struct {
	status int
	body   string
	err    error
	at     time.Time // of its end
}

// Requests that are open when their credentials are taken back end within 5 s, in every stage and form, and each says why.
func TestRevoked_EndsWhatIsOpenInEveryStage(t *testing.T) {
	agentLeft := make(chan struct{})
	agent := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Content-Type", "text/event-stream")
		_, _ = io.Copy(io.Discard, r.Body)
		fmt.Fprint(w, "data: "+`{"type":"RUN_STARTED","threadId":"proxied","runId":"p"}`+"\n\n")
		_ = http.NewResponseController(w).Flush()
		<-r.Context().Done()
		close(agentLeft)
	}))
	t.Cleanup(agent.Close)
	known, err := agents.ParsePairs([]string{"helper=" + agent.URL})
	if err != nil {
		t.Fatal(err)
	}
	auth := &revocable{}
	s := start(t, kafkatest.Start(t, 2), options{agents: known, auth: auth, checkpoint: 10 * time.Millisecond})
	events := said("chat", "done", 2)
	s.publish("chat", "done", events[:2]...)
	s.status("chat", "done", "running") // some time between the first events and the last
	s.publish("chat", "done", events[2:]...)
	s.status("chat", "done", "finished")
	s.publish("chat", "r", said("chat", "r", 3)[:4]...)
	s.status("chat", "r", "running")

	event, half := `{"type":"CUSTOM","name":"n","value":1}`+"\n", `{"threadId":`
	requests := map[string]struct {
		method, address, accept string
		body                    string
		open                    bool // the body does not end
		status                  int
		want                    string
	}{
		"a body that is silent":         {http.MethodPost, s.ingest + runPath("chat", "b1") + "/events", "", "", true, 401, `"reason":"unauthenticated"`},
		"a body that goes on":           {http.MethodPost, s.ingest + runPath("chat", "b2") + "/events", "", event, true, 401, `"accepted":1`},
		"a long stream":                 {http.MethodPost, s.ingest + runPath("chat", "b3") + "/events", "application/x-ndjson", event, true, 200, `{"failed":{"status":401`},
		"an input":                      {http.MethodPut, s.ingest + runPath("chat", "b4") + "/input", "", half, true, 401, `"reason":"unauthenticated"`},
		"the proxy":                     {http.MethodPost, s.ingest + "/v1/agents/helper", "", fmt.Sprintf(input, "proxied", "p"), false, 200, `"code":"skein-unauthenticated"`},
		"a run's live stream":           {http.MethodGet, s.queries[0] + runPath("chat", "r") + "/stream", "", "", false, 200, ": " + tenant.ErrRevoked.Error()},
		"a thread's live stream":        {http.MethodGet, s.queries[0] + "/v1/threads/chat/stream", "", "", false, 200, ": " + tenant.ErrRevoked.Error()},
		"a stream that waits for a run": {http.MethodGet, s.queries[0] + "/v1/threads/none/stream", "", "", false, 200, ": " + tenant.ErrRevoked.Error()},
		"connect":                       {http.MethodPost, s.queries[0] + "/v1/connect", "", fmt.Sprintf(input, "chat", "x"), false, 200, ": " + tenant.ErrRevoked.Error()},
		"connect before its input":      {http.MethodPost, s.queries[0] + "/v1/connect", "", half, true, 401, tenant.ErrRevoked.Error()},
		"a replay at a pace":            {http.MethodGet, s.queries[0] + runPath("chat", "done") + "/events?pace=0.001", "text/event-stream", "", false, 200, ": " + tenant.ErrRevoked.Error()},
	}
	ended, begun := make(map[string]chan open), time.Now()
	for name, r := range requests {
		answer := make(chan open, 1)
		ended[name] = answer
		conn := s.dial(r.method, r.address, r.accept, r.body, r.open)
		go func() {
			resp, err := http.ReadResponse(bufio.NewReader(conn), nil)
			if err != nil {
				answer <- open{err: err}
				return
			}
			text, err := io.ReadAll(resp.Body)
			_ = resp.Body.Close() // read to its end
			answer <- open{resp.StatusCode, string(text), err, time.Now()}
		}()
	}
	// All are open, and longer than a check takes: what ends now ends for another reason.
	for name, answer := range ended {
		select {
		case a := <-answer:
			t.Fatalf("%s has ended already: %+v", name, a)
		case <-time.After(time.Until(begun.Add(tenant.CheckInterval + 500*time.Millisecond))):
		}
	}
	late := lateness(t)
	auth.revoked.Store(true)
	begun = time.Now()
	for name, answer := range ended {
		var a open
		select {
		case a = <-answer:
		case <-time.After(time.Until(begun.Add(kafkatest.Timeout))):
			t.Errorf("%s is open %v after its credentials were taken back", name, kafkatest.Timeout)
			continue
		}
		// The bound that the documents give, on a machine that has time for the test.
		if took := a.at.Sub(begun); took > 5*time.Second+4*late() {
			t.Errorf("%s ended %v after its credentials were taken back, on a machine that is %v late", name, took, late())
		}
		if want := requests[name]; a.status != want.status || !strings.Contains(a.body, want.want) {
			t.Errorf("%s: %d %q (%v), want %d and %q", name, a.status, a.body, a.err, want.status, want.want)
		}
		// A replay is not whole: its end must not look like one.
		if name == "a replay at a pace" && a.err == nil {
			t.Errorf("%s ends as if it were whole", name)
		}
	}
	select {
	case <-agentLeft:
	case <-time.After(kafkatest.Timeout):
		t.Error("the agent goes on for a caller whose credentials were taken back")
	}
}

// lateness watches how late the machine is with what it is to do, at most.
func lateness(t *testing.T) func() time.Duration {
	var most atomic.Int64
	go func() {
		const every = 10 * time.Millisecond
		tick := time.NewTicker(every)
		defer tick.Stop()
		for last := time.Now(); ; last = time.Now() {
			select {
			case <-tick.C:
				most.Store(max(most.Load(), int64(time.Since(last)-every)))
			case <-t.Context().Done():
				return
			}
		}
	}()
	return func() time.Duration { return time.Duration(most.Load()) }
}

// dial sends a request over a connection of its own; open leaves its body unfinished, which clients of net/http wait for.
func (s *site) dial(method, address, accept, body string, open bool) net.Conn {
	s.t.Helper()
	u, err := url.Parse(address)
	if err != nil {
		s.t.Fatal(err)
	}
	conn, err := (&net.Dialer{}).DialContext(s.t.Context(), "tcp", u.Host)
	if err != nil {
		s.t.Fatal(err)
	}
	s.t.Cleanup(func() { _ = conn.Close() }) // the server may have closed it
	text := method + " " + u.RequestURI() + " HTTP/1.1\r\nHost: " + u.Host + "\r\n"
	if accept != "" {
		text += "Accept: " + accept + "\r\n"
	}
	switch {
	case open:
		text += "Transfer-Encoding: chunked\r\n\r\n"
		if body != "" {
			text += fmt.Sprintf("%x\r\n%s\r\n", len(body), body)
		}
	default:
		text += fmt.Sprintf("Content-Length: %d\r\n\r\n%s", len(body), body)
	}
	if _, err := io.WriteString(conn, text); err != nil {
		s.t.Fatal(err)
	}
	return conn
}
