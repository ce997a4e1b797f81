package live

import (
	"bufio"
	"cmp"
	"encoding/json"
	"flag"
	"fmt"
	"net/http"
	"net/http/httputil"
	"net/url"
	"runtime"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/skeinhq/skein/pkg/kafka/kafkatest"
	"github.com/skeinhq/skein/pkg/query"
	"github.com/skeinhq/skein/pkg/tenant"
	"github.com/skeinhq/skein/test/conformance"
	"github.com/skeinhq/skein/test/site"
)

// connect calls POST /v1/connect and returns the events of its answer.
func (s *live) connect(thread, props string) []string {
	s.t.Helper()
	status, body := s.send(http.MethodPost, s.queries[0]+"/v1/connect", "application/json",
		fmt.Sprintf(`{"threadId":%q,"runId":"mine","state":{},"messages":[],"tools":[],"context":[],"forwardedProps":%s}`, thread, props))
	if status != http.StatusOK {
		s.t.Fatalf("connecting: %d %s", status, body)
	}
	var events []string
	for line := range strings.Lines(body) {
		if data, ok := strings.CutPrefix(line, "data: "); ok {
			events = append(events, strings.TrimSpace(data))
		}
	}
	return events
}

func TestConnect_RestoresAThread(t *testing.T) {
	s := start(t, kafkatest.Start(t, 2), options{})
	if got := typesOf(s.connect("never seen", "{}")); got != "RUN_STARTED MESSAGES_SNAPSHOT STATE_SNAPSHOT RUN_FINISHED" {
		t.Errorf("a thread that nobody has seen: %s", got)
	}
	for _, run := range []string{"one", "two"} {
		s.input("chat", run, fmt.Sprintf(input, "chat", run))
		s.publish("chat", run, said("chat", run, 2)...)
		s.status("chat", run, "finished")
	}
	got := s.connect("chat", "{}")
	if typesOf(got) != "RUN_STARTED MESSAGES_SNAPSHOT STATE_SNAPSHOT RUN_FINISHED" || !strings.Contains(got[1], "two-a") {
		t.Errorf("the latest run: %s", got)
	}
	if got := s.connect("chat", `{"skein":{"runId":"one"}}`); !strings.Contains(got[1], "one-a") || strings.Contains(got[1], "two-a") {
		t.Errorf("run one: %s", got)
	}
	for body, want := range map[string]int{
		`{`: 400, `{"runId":"r","messages":[]}`: 400,
		`{"threadId":"chat","runId":"r","messages":[],"forwardedProps":{"skein":{"runId":"none"}}}`: 404,
		`{"threadId":"chat","runId":"r","messages":[],"forwardedProps":{"skein":{"runId":7}}}`:      400,
	} {
		if status, answer := s.send(http.MethodPost, s.queries[0]+"/v1/connect", "application/json", body); status != want {
			t.Errorf("%s: %d %s, want %d", body, status, answer, want)
		}
	}
	if status, _ := s.send(http.MethodGet, s.queries[0]+"/v1/connect", "", ""); status != http.StatusMethodNotAllowed {
		t.Errorf("GET: %d", status)
	}
}

// AG-UI's binding in Protocol Buffers is optional: a client that prefers it gets events as SSE.
func TestConnect_AnswersSSEToAClientThatPrefersProtobuf(t *testing.T) {
	s := start(t, kafkatest.Start(t, 1), options{})
	req, err := http.NewRequestWithContext(t.Context(), http.MethodPost, s.queries[0]+"/v1/connect", strings.NewReader(`{"threadId":"none","runId":"mine","messages":[]}`))
	if err != nil {
		t.Fatal(err)
	}
	req.Header.Set("Accept", "application/vnd.ag-ui.event+proto, text/event-stream;q=0.9")
	resp, err := s.client.Do(req)
	if err != nil {
		t.Fatal(err)
	}
	_ = resp.Body.Close() // only the head counts
	if got := resp.Header.Get("Content-Type"); resp.StatusCode != http.StatusOK || got != "text/event-stream" {
		t.Errorf("%s, %q", resp.Status, got)
	}
}

var connects = flag.Int("connects", 250, "how many clients connect at once to a run that goes on")

// connectMemory bounds the heap of a client that is connected: of query for its stream, and of the test for its client.
const connectMemory = 160 << 10

// Many clients connect at the same time to a run that goes on: each has what was said, and follows the run to its end. How long another
// tenant waits meanwhile is logged.
func TestConnect_JoinsARunThatGoesOn(t *testing.T) {
	clients := *connects
	s := start(t, kafkatest.Start(t, 2), options{auth: byHeader{}, query: func(c *query.Config) {
		c.Memory = max(c.Memory, clients<<20)
		c.Wait = kafkatest.Timeout // for a slot: all come at once, to a machine that may be busy
	}})
	events := said("chat", "r", 6)
	s.input("chat", "r", fmt.Sprintf(input, "chat", "r"))
	s.publish("chat", "r", events[:5]...)
	before, begun := heapInUse(), time.Now()
	var joined, over sync.WaitGroup
	joined.Add(clients)
	for range clients {
		over.Go(func() {
			connected := sync.OnceFunc(joined.Done)
			defer connected() // however it ends
			req, err := http.NewRequestWithContext(t.Context(), http.MethodPost, s.queries[0]+"/v1/connect", strings.NewReader(`{"threadId":"chat","runId":"mine","messages":[]}`))
			if err != nil {
				panic(err) // a constant request
			}
			resp, err := s.client.Do(req)
			if err != nil {
				t.Error(err)
				return
			}
			defer func() { _ = resp.Body.Close() }() // read to its end
			r := &reader{t: t, lines: bufio.NewReader(resp.Body), lossy: true}
			var got []string
			for {
				f, ok := r.event()
				if !ok {
					break
				}
				if got = append(got, f.data); len(got) == 4 {
					connected()
				}
			}
			if text := strings.Join(got[min(4, len(got)):], "\n"); text != strings.Join(events[5:], "\n") ||
				!strings.Contains(strings.Join(got, ""), "0 1 2 ") {
				t.Errorf("%s: a client got %s", resp.Status, got)
			}
		})
	}
	var status int
	site.Eventually(t, "meanwhile another tenant is answered", func() (string, bool) {
		status = s.statusOf("umbrella", "/v1/threads/none/history")
		return http.StatusText(status), status != http.StatusServiceUnavailable // the broker took a second to say where its log ends
	})
	if status != http.StatusNotFound {
		t.Errorf("meanwhile another tenant gets %d for a thread that is not there", status)
	}
	answered := time.Since(begun)
	joined.Wait()
	each := (heapInUse() - before) / int64(clients)
	t.Logf("%d clients were connected after %s, another tenant was answered after %s; %d bytes a client", clients, time.Since(begun), answered, each)
	if each > connectMemory {
		t.Errorf("each of them holds %d bytes, want at most %d", each, connectMemory)
	}
	s.publish("chat", "r", events[5:]...)
	over.Wait()
}

// byHeader takes a request for one of the tenant in its header, acme's without one.
type byHeader struct{}

func (byHeader) Authenticate(r *http.Request) (tenant.Identity, error) {
	return tenant.Identity{Tenant: cmp.Or(r.Header.Get("Tenant"), "acme"), Scopes: tenant.Scopes()}, nil
}

// statusOf returns the status of a tenant's GET.
func (s *live) statusOf(tenant, path string) int {
	req, err := http.NewRequestWithContext(s.t.Context(), http.MethodGet, s.queries[0]+path, nil)
	if err != nil {
		s.t.Fatal(err)
	}
	req.Header.Set("Tenant", tenant)
	resp, err := s.client.Do(req)
	if err != nil {
		s.t.Fatal(err)
	}
	_ = resp.Body.Close() // only the status counts
	return resp.StatusCode
}

func heapInUse() int64 {
	runtime.GC()
	runtime.GC() // pools
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return int64(m.HeapAlloc + m.StackInuse)
}

// publishOnceConnected forwards calls to query, and publishes once one of a thread is answered.
func (s *live) publishOnceConnected(thread, run string, events ...string) (address string) {
	to, err := url.Parse(s.queries[0])
	if err != nil {
		s.t.Fatal(err)
	}
	forward := httputil.NewSingleHostReverseProxy(to)
	forward.FlushInterval = -1
	forward.Transport = s.client.Transport
	forward.ModifyResponse = func(*http.Response) error {
		s.publish(thread, run, events...)
		return nil
	}
	return s.serve(forward)
}

// A stock HttpAgent that knows nothing but the thread's id holds after connect what one holds that made its runs, and one that comes
// while a run goes on has its end, too.
func TestConnect_IsAnAgentToAStockClient(t *testing.T) {
	client := conformance.Need(t)
	s := start(t, kafkatest.Start(t, 2), options{})
	events := said("chat", "r", 6)
	s.input("chat", "r", fmt.Sprintf(input, "chat", "r"))
	s.publish("chat", "r", events[:5]...)
	job := conformance.Job{Answer: &conformance.Answer{URL: s.publishOnceConnected("chat", "r", events[5:]...) + "/v1/connect",
		ThreadID: "chat"}}
	failed := said("failed", "r", 2)
	failed[len(failed)-1] = `{"type":"RUN_ERROR","message":"the model is away"}`
	s.publish("failed", "r", failed...)
	s.status("failed", "r", "error")
	broken := conformance.Job{Answer: &conformance.Answer{URL: s.queries[0] + "/v1/connect", ThreadID: "failed"}}
	empty := conformance.Job{Answer: &conformance.Answer{URL: s.queries[0] + "/v1/connect", ThreadID: "never seen"}}
	results := client.Play(t, job, empty, broken)
	want := `[{"id":"u1","role":"user","content":"Hello"},{"id":"r-a","role":"assistant","content":"0 1 2 3 4 5 "}]`
	if d := conformance.DiffJSON("messages", json.RawMessage(want), results[0].Messages); d != "" || results[0].Rejected != "" {
		t.Errorf("%s, rejected %q", d, results[0].Rejected)
	}
	if d := conformance.DiffJSON("messages", json.RawMessage(`[]`), results[1].Messages); d != "" || results[1].Rejected != "" {
		t.Errorf("%s, rejected %q", d, results[1].Rejected)
	}
	if d := conformance.DiffJSON("messages", json.RawMessage(`[{"id":"r-a","role":"assistant","content":"0 1 "}]`), results[2].Messages); d != "" {
		t.Errorf("a run that failed: %s, rejected %q", d, results[2].Rejected)
	}
	t.Logf("of a thread whose last run failed the client says %q", results[2].Rejected)
}
