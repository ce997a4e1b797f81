package ingest

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"slices"
	"strconv"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/prometheus/client_golang/prometheus/testutil"
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kfake"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/skeinhq/skein/internal/front"
	"github.com/skeinhq/skein/pkg/eventstream"
	"github.com/skeinhq/skein/pkg/fold"
	"github.com/skeinhq/skein/pkg/ingest/agents"
	"github.com/skeinhq/skein/pkg/kafka/kafkatest"
	"github.com/skeinhq/skein/pkg/quota"
	"github.com/skeinhq/skein/pkg/record"
)

// behind is a stage with one agent, "helper", that answers as f does.
type behind struct {
	*stage
	agent *httptest.Server
}

func startBehind(t *testing.T, cfg Config, set func(*agents.Agent), f http.HandlerFunc) *behind {
	t.Helper()
	srv := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		// Only a server that has read the request sees its connection end.
		body, _ := io.ReadAll(r.Body)
		r.Body = io.NopCloser(bytes.NewReader(body))
		if f != nil {
			f(w, r)
		}
	}))
	t.Cleanup(srv.Close)
	cfg.Agents = agents.Config{"helper": agentAt(t, srv.URL, set)}
	b := &behind{stage: open(t, cfg), agent: srv}
	b.thread = "t1"
	return b
}

func agentAt(t *testing.T, url string, set func(*agents.Agent)) agents.Agent {
	t.Helper()
	c, err := agents.ParsePairs([]string{"helper=" + url})
	if err != nil {
		t.Fatal(err)
	}
	a := c["helper"]
	if set != nil {
		set(&a)
	}
	return a
}

func proxyConfig(t *testing.T) Config {
	t.Helper()
	return testConfig(kafkatest.Start(t, 3))
}

func inputOf(run string) string {
	return `{"threadId":"t1","runId":"` + run + `","state":{},"messages":[],"tools":[],"context":[],"forwardedProps":{"userId":"u/7","n":3,"list":["x",true]}}`
}

// call sends an input to the agent; the answer's stream is the caller's to read and close. It is the agent's: without the numbers that
// the proxy gives to events.
func (b *behind) call(ctx context.Context, body string, header ...string) *http.Response {
	b.t.Helper()
	resp := b.callRaw(ctx, body, header...)
	resp.Body = &withoutIDs{Closer: resp.Body, from: bufio.NewReader(resp.Body)}
	return resp
}

func (b *behind) callRaw(ctx context.Context, body string, header ...string) *http.Response {
	b.t.Helper()
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, b.srv.URL+"/v1/agents/helper", strings.NewReader(body))
	if err != nil {
		b.t.Fatal(err)
	}
	req.Header.Set("Content-Type", "application/json")
	for i := 0; i < len(header); i += 2 {
		req.Header.Set(header[i], header[i+1])
	}
	resp, err := b.client.Do(req)
	if err != nil {
		b.t.Fatal(err)
	}
	return resp
}

// stream sends an input and reads the whole answer.
func (b *behind) stream(body string, header ...string) string {
	b.t.Helper()
	resp := b.call(b.t.Context(), body, header...)
	defer resp.Body.Close()
	if resp.StatusCode != http.StatusOK {
		b.t.Fatalf("answer is %s", resp.Status)
	}
	text, err := io.ReadAll(resp.Body)
	if err != nil {
		b.t.Fatalf("reading %q: %v", text, err)
	}
	return string(text)
}

// published waits for as many records of the thread.
func (b *behind) published(n int) []*kgo.Record {
	b.t.Helper()
	kafkatest.ConsumeUntil(b.t, b.cfg, b.cfg.Topics().Events, func(rs []*kgo.Record) bool { return len(rs) >= n })
	b.eventually("no run is held", func() bool { return len(b.svc.Runs().all()) == 0 })
	return b.records()
}

// answers has an agent answer with SSE.
func answers(parts ...string) http.HandlerFunc {
	return func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", "text/event-stream; charset=utf-8")
		for _, p := range parts {
			_, _ = io.WriteString(w, p)
			_ = http.NewResponseController(w).Flush()
		}
	}
}

func headersOf(t testing.TB, r *kgo.Record) record.Headers {
	t.Helper()
	h, err := record.ParseHeaders(r.Headers)
	if err != nil {
		t.Fatal(err)
	}
	return h
}

const (
	begin    = `{"type":"RUN_STARTED","threadId":"t1","runId":"r1"}`
	said     = `{"type":"CUSTOM","name":"x","value":"ä 🧶"}`
	finished = `{"type":"RUN_FINISHED","threadId":"t1","runId":"r1"}`
)

func TestProxy_PassesTheStreamOnAndPublishesIt(t *testing.T) {
	stream := ": hello\n\nevent: x\nid: 7\ndata: " + begin + "\n\n:\n\n" + "data:" + said +
		"\n\ndata: {\"type\":\"CUSTOM\",\ndata: \"name\":\"y\"}\r\n\r\n" + "retry: 9\n\ndata: " + finished + "\n\n: bye\n"
	var got *http.Request
	var body []byte
	b := startBehind(t, proxyConfig(t), func(a *agents.Agent) {
		a.Headers = []string{"X-Request-Id", "Authorization"}
		a.Labels = map[string]string{"user": "/forwardedProps/userId", "n": "/forwardedProps/n", "second": "/forwardedProps/list/1",
			"none": "/forwardedProps/list"}
	}, func(w http.ResponseWriter, r *http.Request) {
		got = r
		body, _ = io.ReadAll(r.Body)
		answers(stream)(w, r)
	})
	in := " " + inputOf("r1") + "\n"
	resp := b.call(t.Context(), in, "X-Request-Id", "q1", "X-Other", "o", "Accept-Encoding", "gzip", "Skein-Label-Env", "test",
		"Skein-Label-User", "not this", "Skein-Agent", "nor this", agents.DefaultTenantHeader, "nor this")
	defer resp.Body.Close()
	text, err := io.ReadAll(resp.Body)
	if err != nil || string(text) != stream {
		t.Errorf("the stream became %q, %v", text, err)
	}
	for name, want := range map[string]string{
		"Content-Type": "text/event-stream", "Cache-Control": "no-store", "X-Accel-Buffering": "no", "Content-Encoding": "",
	} {
		if v := resp.Header.Get(name); v != want {
			t.Errorf("%s is %q, want %q", name, v, want)
		}
	}
	if string(body) != strings.TrimSpace(in) || got.Method != http.MethodPost {
		t.Errorf("the agent was sent %s %q", got.Method, body)
	}
	for name, want := range map[string]string{
		"Content-Type": "application/json", "Accept": "text/event-stream", "X-Request-Id": "q1", "X-Other": "", "Skein-Label-Env": "",
		agents.DefaultTenantHeader: "dev",
	} {
		if v := got.Header.Get(name); v != want {
			t.Errorf("the agent sees %s %q, want %q", name, v, want)
		}
	}

	rs := b.published(5)
	want := []string{strings.TrimSpace(in), begin, said, "{\"type\":\"CUSTOM\",\n\"name\":\"y\"}", finished}
	labels := []record.Label{{Key: "n", Value: "3"}, {Key: "second", Value: "true"}, {Key: "user", Value: "u/7"}, {Key: "env", Value: "test"}}
	for i, r := range rs {
		h := headersOf(t, r)
		is := record.Headers{Version: 1, Kind: record.KindEvent, RunID: "r1", Seq: int64(i - 1), Agent: "helper", Labels: labels}
		if i == 0 {
			is.Kind = record.KindInput
		}
		if string(r.Value) != want[i] || !h.Equal(is) {
			t.Errorf("record %d is %q with %+v, want %q with %+v", i, r.Value, h, want[i], is)
		}
	}
	if len(rs) != len(want) {
		t.Errorf("%d records, want %d", len(rs), len(want))
	}
}

// What the caller reads does not wait for the agent, for Kafka or for more to come.
func TestProxy_SendsEachPartWhenItIsThere(t *testing.T) {
	next := make(chan string)
	b := startBehind(t, proxyConfig(t), nil, func(w http.ResponseWriter, _ *http.Request) {
		first := <-next // not even the headers of the agent are there
		w.Header().Set("Content-Type", "text/event-stream")
		for part := first; part != ""; part = <-next {
			_, _ = io.WriteString(w, part)
			_ = http.NewResponseController(w).Flush()
		}
	})
	resp := b.call(t.Context(), inputOf("r1"))
	defer resp.Body.Close()
	read := bufio.NewReader(resp.Body)
	for _, part := range []string{"data: " + begin + "\n\n", ": ping\n\n", "data: " + said + "\n\n", "data: " + finished + "\n\n"} {
		next <- part
		got := make([]byte, len(part))
		if _, err := io.ReadFull(read, got); err != nil || string(got) != part {
			t.Fatalf("read %q, %v; want %q", got, err, part)
		}
	}
	next <- ""
	if rest, err := io.ReadAll(read); err != nil || len(rest) > 0 {
		t.Errorf("the rest is %q, %v", rest, err)
	}
}

func TestProxy_RefusesWhatIsNoRun(t *testing.T) {
	called := false
	b := startBehind(t, proxyConfig(t), nil, func(http.ResponseWriter, *http.Request) { called = true })
	for name, c := range map[string]struct {
		method, path, body, kind string
		status                   int
		reason, detail           string
	}{
		"an unknown agent":    {"POST", "/v1/agents/other", inputOf("r1"), "application/json", 404, reasonAgent, "no agent"},
		"no thread":           {"POST", "/v1/agents/helper", `{"runId":"r1","messages":[],"tools":[],"context":[]}`, "application/json", 400, front.ReasonID, "the input's thread"},
		"no run":              {"POST", "/v1/agents/helper", `{"threadId":"t1","messages":[],"tools":[],"context":[]}`, "application/json", 400, front.ReasonID, "the input's run"},
		"a dot":               {"POST", "/v1/agents/helper", `{"threadId":"..","runId":"r1","messages":[],"tools":[],"context":[]}`, "application/json", 400, front.ReasonID, "the input's thread"},
		"a control character": {"POST", "/v1/agents/helper", `{"threadId":"t","runId":"r\u0007","messages":[],"tools":[],"context":[]}`, "application/json", 400, front.ReasonID, "the input's run"},
		"no input":            {"POST", "/v1/agents/helper", `{"threadId":"t1","runId":"r1"}`, "application/json", 400, "schema", "messages"},
		"no JSON":             {"POST", "/v1/agents/helper", `{"threadId":`, "application/json", 400, "not-json", ""},
		"nothing":             {"POST", "/v1/agents/helper", ``, "", 400, "not-json", ""},
		"other than JSON":     {"POST", "/v1/agents/helper", `x`, "text/plain", 415, reasonMediaType, "application/json"},
		"too large":           {"POST", "/v1/agents/helper", `{"threadId":"t1","runId":"r1","messages":[],"x":"` + strings.Repeat("x", 5000) + `"}`, "", 413, reasonTooLarge, ""},
		"far too large":       {"POST", "/v1/agents/helper", strings.Repeat(" ", 1<<20), "", 413, reasonTooLarge, ""},
		"another method":      {"GET", "/v1/agents/helper", "", "", 405, "", "POST"},
	} {
		t.Run(name, func(t *testing.T) {
			a := b.in(t, "t1").do(c.method, c.path, strings.NewReader(c.body), "Content-Type", c.kind)
			if a.status != c.status || a.Reason != c.reason || !strings.Contains(a.Detail, c.detail) {
				t.Errorf("answer is %d %s", a.status, a.body)
			}
			wantTypes(t, a, typeJSON)
		})
	}
	if called || len(b.written()) > 0 {
		t.Errorf("the agent was called, or %q was written", b.written())
	}
	if used := b.svc.memory.Held(); used != 0 {
		t.Errorf("%d bytes of memory are held", used)
	}
}

// To a tenant that is not in an agent's list, the answer is that to the name of no agent.
func TestProxy_AnAgentOfOtherTenantsIsNotThere(t *testing.T) {
	called := false
	b := startBehind(t, proxyConfig(t), func(a *agents.Agent) { a.Tenants = []string{"acme", "devs"} },
		func(http.ResponseWriter, *http.Request) { called = true })
	ask := func(name string) answer {
		return b.do(http.MethodPost, "/v1/agents/"+name, strings.NewReader(inputOf("r1")), "Content-Type", typeJSON,
			agents.DefaultTenantHeader, "acme")
	}
	listed, unknown := ask("helper"), ask("nobody")
	if listed.status != http.StatusNotFound || listed.body != strings.Replace(unknown.body, "nobody", "helper", 1) || called ||
		len(b.written()) > 0 {
		t.Errorf("answers are %d %s and %d %s", listed.status, listed.body, unknown.status, unknown.body)
	}
}

// Whatever an agent does in the place of a stream that ends its run, the run ends, and says by which status.
func TestProxy_EndsTheRunOfAnAgentThatDoesNot(t *testing.T) {
	whole := "data: " + begin + "\n\ndata: " + said + "\n\n"
	hijacked := func(text string) http.HandlerFunc {
		return func(w http.ResponseWriter, _ *http.Request) {
			c, _, err := http.NewResponseController(w).Hijack()
			if err != nil {
				panic(err)
			}
			_, _ = io.WriteString(c, text)
			_ = c.Close()
		}
	}
	chunk := func(s string) string { return fmt.Sprintf("%x\r\n%s\r\n", len(s), s) }
	const head = "HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nTransfer-Encoding: chunked\r\n\r\n"
	for name, c := range map[string]struct {
		set    func(*agents.Agent)
		agent  http.HandlerFunc
		wire   string // before the end
		events int    // before the end
		code   string
		text   string
	}{
		"no end":             {nil, answers(whole), whole, 2, agents.CodeNoEnd, "without RUN_FINISHED"},
		"no end, no last LF": {nil, answers(strings.TrimSpace(whole)), strings.TrimSpace(whole) + "\n\n", 2, agents.CodeNoEnd, "without RUN_FINISHED"},
		"nothing":            {nil, answers(), "", 0, agents.CodeNoEnd, "without RUN_FINISHED"},
		"half an event":      {nil, answers(whole, `data: {"type":"TEXT`), whole, 2, agents.CodeNoEnd, "without RUN_FINISHED"},
		"dies between":       {nil, hijacked(head + chunk(whole)), whole, 2, agents.CodeCut, "broke off"},
		"dies inside":        {nil, hijacked(head + chunk(whole+`data: {"type":"TEXT`)), whole, 2, agents.CodeCut, "broke off"},
		"dies behind a line": {nil, hijacked(head + chunk(whole+"data: "+said+"\n")), whole, 2, agents.CodeCut, "broke off"},
		"dies at once":       {nil, hijacked(""), "", 0, agents.CodeUnreachable, "cannot be reached"},
		"speaks no HTTP":     {nil, hijacked("hello\r\n"), "", 0, agents.CodeUnreachable, "cannot be reached"},
		"refuses":            {func(a *agents.Agent) { a.URL = "http://127.0.0.1:1/" }, nil, "", 0, agents.CodeUnreachable, "cannot be reached"},
		"status 500": {nil, func(w http.ResponseWriter, _ *http.Request) {
			http.Error(w, "{\n \"detail\": 7 }", http.StatusInternalServerError)
		}, "", 0, agents.CodeStatus, `HTTP 500: {"detail":7}`},
		"status 204": {nil, func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(http.StatusNoContent) }, "", 0, agents.CodeStatus, "204 No Content"},
		"redirects": {nil, func(w http.ResponseWriter, r *http.Request) {
			http.Redirect(w, r, "/elsewhere", http.StatusTemporaryRedirect)
		}, "", 0, agents.CodeRedirect, "307 Temporary Redirect"},
		"redirects to nobody": {nil, func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(http.StatusFound) }, "", 0, agents.CodeRedirect, "302 Found"},
		"HTML":                {nil, func(w http.ResponseWriter, _ *http.Request) { _, _ = io.WriteString(w, "<!doctype html>wrong") }, "", 0, agents.CodeNotSSE, "200 OK with \"text/html\", not with text/event-stream: <!doctype html>wrong"},
		"gzip": {nil, func(w http.ResponseWriter, r *http.Request) {
			w.Header().Set("Content-Encoding", "gzip")
			answers(whole)(w, r)
		}, "", 0, agents.CodeNotSSE, "gzip"},
		"no credential": {func(a *agents.Agent) { a.CredentialFile = "/nowhere/secret" }, answers(whole), "", 0, agents.CodeCredential,
			"the log of ingest"},
		"never answers": {func(a *agents.Agent) { a.AnswerTimeout = 50 * time.Millisecond }, func(_ http.ResponseWriter, r *http.Request) { <-r.Context().Done() }, "", 0, agents.CodeTimeout, "in time"},
		"falls silent": {func(a *agents.Agent) { a.SilenceTimeout = 3 * time.Second }, func(w http.ResponseWriter, r *http.Request) {
			answers(whole)(w, r)
			<-r.Context().Done()
		}, whole, 2, agents.CodeTimeout, "silent"},
		"never ends": {func(a *agents.Agent) { a.RunTimeout = 3 * time.Second }, func(w http.ResponseWriter, r *http.Request) {
			answers(whole)(w, r)
			for r.Context().Err() == nil {
				_, _ = io.WriteString(w, ":\n")
				_ = http.NewResponseController(w).Flush()
				time.Sleep(10 * time.Millisecond)
			}
		}, whole, 2, agents.CodeTimeout, "too long"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			b := startBehind(t, proxyConfig(t), c.set, c.agent)
			wire := strings.ReplaceAll(b.stream(inputOf("r1")), ":\n", "") // but for comments
			rest, ok := strings.CutPrefix(wire, c.wire)
			event, isEvent := strings.CutPrefix(strings.TrimSuffix(rest, "\n\n"), "data: ")
			if !ok || !isEvent || !strings.HasSuffix(rest, "\n\n") {
				t.Fatalf("the stream is %q", wire)
			}
			if !strings.Contains(event, `"type":"RUN_ERROR"`) || !strings.Contains(event, `"code":"`+c.code+`"`) || !strings.Contains(event, strings.ReplaceAll(c.text, `"`, `\"`)) {
				t.Errorf("the end is %s", event)
			}
			if strings.Contains(wire, "secret") || strings.Contains(wire, "127.0.0.1") {
				t.Errorf("the end says too much: %s", event)
			}
			rs := b.published(c.events + 2)
			if len(rs) != c.events+2 {
				t.Fatalf("%d records", len(rs))
			}
			last := rs[len(rs)-1]
			if h := headersOf(t, last); string(last.Value) != event || !h.Synthetic || h.Seq != int64(c.events) {
				t.Errorf("the last record is %q with %+v", last.Value, h)
			}
			for _, r := range rs[:len(rs)-1] {
				if headersOf(t, r).Synthetic {
					t.Errorf("%q is marked", r.Value)
				}
			}
			if n := testutil.ToFloat64(b.svc.metrics.runs.WithLabelValues(c.code)); n != 1 {
				t.Errorf("%v runs are counted", n)
			}
		})
	}
}

// What is no event, or too large for one, costs itself and reaches the caller as it is. What is no event is published all the
// same, so that its run's record says why it was not folded, but not after the run's end.
func TestProxy_ABadEventCostsItself(t *testing.T) {
	over := `{"type":"CUSTOM","name":"x","value":"` + strings.Repeat("x", 5<<10) + `"}`
	far := `{"type":"CUSTOM","name":"x","value":"` + strings.Repeat("x", 100<<10) + `"}`
	nan := `{"type":"CUSTOM","name":"x","value":NaN}`
	stream := "data: " + begin + "\n\ndata: " + nan + "\n\ndata: " + over + "\n\ndata: {\"type\":\"CUSTOM\nx\"}\n\ndata: " + far +
		"\n\ndata: " + finished + "\n\ndata: [DONE]\n\n"
	b := startBehind(t, proxyConfig(t), nil, answers(stream))
	if got := b.stream(inputOf("r1")); got != stream {
		t.Errorf("the stream became %.300q", got)
	}
	rs := b.published(5)
	if len(rs) != 5 || string(rs[1].Value) != begin || string(rs[2].Value) != nan || string(rs[3].Value) != `{"type":"CUSTOM` ||
		string(rs[4].Value) != finished {
		t.Fatalf("written is %q", b.written())
	}
	if h := headersOf(t, rs[4]); h.Seq != 5 || incompleteOf(rs[3]) != "1" || incompleteOf(rs[4]) != "1" {
		t.Errorf("the end has %+v, incomplete %q", h, incompleteOf(rs[4]))
	}
	for reason, want := range map[string]float64{leftOutMalformed: 1, leftOutTooLarge: 2} {
		if n := testutil.ToFloat64(b.svc.metrics.leftOut.WithLabelValues(reason)); n != want {
			t.Errorf("%v are counted as %s, want %v", n, reason, want)
		}
	}
}

// An end that no client can read passes on, and an error that names its fault comes after it.
func TestProxy_NamesAMalformedEnd(t *testing.T) {
	ends := []struct{ data, why string }{
		{`{"type":"RUN_FINISHED","runId":"r1"}`, "RUN_FINISHED: threadId is missing"},
		{`{"type":"RUN_FINISHED","thread_id":"t1","run_id":"r1"}`, "RUN_FINISHED: threadId is missing"},
		{`{"type":"RUN_FINISHED","threadId":"t1","runId":"r1","outcome":"success"}`, "RUN_FINISHED: outcome"},
		{`{"type":"RUN_FINISHED","threadId":"t1","runId":"r1","timestamp":"1"}`, "RUN_FINISHED: timestamp"},
		{`{"type":"RUN_ERROR","error":"no"}`, "RUN_ERROR: message is missing"},
		{`{"type":"RUN_ERROR","message":null}`, "RUN_ERROR: message must be a string"},
		{`{"type":"CUSTOM","message":{},"type":"RUN_ERROR"}`, "RUN_ERROR: message must be a string"},
		{`{"result":NaN,"type":"RUN_FINISHED","threadId":"t1","runId":"r1"}`, "not JSON"},
		{"{\"message\":\"a\ndata: b\",\"type\":\"RUN_ERROR\"}", "not JSON"},
		{`{"x":NaN,"type":"\u0052UN_FINISHED"}`, "not JSON"},
		{`{"type":"RUN_FINISHED","threadId":"t1","runId":"r1",}`, "not JSON"},
		{`{"type":"RUN_FINISHED","threadId":"t1","runI`, "not JSON"},
		{"\ufeff" + `{"type":"RUN_FINISHED","threadId":"t1","runId":"r1"}`, "not JSON"},
		{said + finished, "not JSON"},
		{"[" + said + "," + finished + "]", "not a JSON object"},
		{`{"type":"run_finished","threadId":"t1","runId":"r1"}`, "ended without RUN_FINISHED"},
	}
	const start = "data: " + begin + "\n\ndata: "
	b := startBehind(t, proxyConfig(t), nil, func(w http.ResponseWriter, r *http.Request) {
		var input struct {
			RunID int `json:"runId,string"`
		}
		if err := json.NewDecoder(r.Body).Decode(&input); err != nil {
			t.Error(err)
		}
		answers(start, ends[input.RunID].data, "\n\n")(w, r)
	})
	for i, end := range ends {
		rest, ok := strings.CutPrefix(b.stream(inputOf(strconv.Itoa(i))), start+end.data+"\n\ndata: ")
		if !ok || !strings.Contains(rest, end.why) || !strings.HasSuffix(rest, `"code":"agent-no-end"}`+"\n\n") {
			t.Errorf("after %s came %q", end.data, rest)
		}
	}
}

// A malformed end ends its run for the next one in the stream, and the stream itself, if the agent leaves it open.
func TestProxy_AMalformedEndIsAnEnd(t *testing.T) {
	const bad = `data: {"type":"RUN_FINISHED","runId":"r"}` + "\n\n"
	second := "data: " + strings.ReplaceAll(begin, "r1", "r2") + "\n\n"
	b := startBehind(t, proxyConfig(t), nil, func(w http.ResponseWriter, r *http.Request) {
		answers("data: "+begin+"\n\n", bad, second, bad)(w, r)
		<-r.Context().Done()
	})
	b.svc.afterEnd = 50 * time.Millisecond
	got := b.stream(inputOf("r1"))
	var types []string
	for line := range strings.SplitSeq(got, "\n\n") {
		_, rest, _ := strings.Cut(line, `"type":"`)
		name, _, _ := strings.Cut(rest, `"`)
		types = append(types, name)
	}
	want := []string{"RUN_STARTED", "RUN_FINISHED", "RUN_ERROR", "RUN_STARTED", "RUN_FINISHED", "RUN_ERROR", ""}
	if !slices.Equal(types, want) || strings.Count(got, fold.CodeNoEnd) != 2 {
		t.Errorf("the stream is %q", got)
	}
	if rs := b.published(7); headersOf(t, rs[3]).RunID != "r1" || headersOf(t, rs[6]).RunID != "r2" {
		t.Errorf("written is %q", b.written())
	}
}

// While the agent is silent, before its answer or between two events, the caller gets comments; inside an event it gets none. After a
// comment, a byte order mark would make the first line one that no client knows, so it is left out.
func TestProxy_SendsCommentsWhileTheAgentIsSilent(t *testing.T) {
	const beat = 20 * time.Millisecond
	cfg := proxyConfig(t)
	cfg.Heartbeat = beat
	over := "data: {\"type\":\"CUSTOM\",\"name\":\"x\",\"value\":\"" + strings.Repeat("x", 100<<10)
	b := startBehind(t, cfg, nil, func(w http.ResponseWriter, r *http.Request) {
		parts := []string{"\ufeffdata: " + begin + "\r\n\r\n", "data: " + said + "\n\n", over, "y\"}\n\n", "data: " + finished + "\n\n"}
		for _, part := range parts {
			time.Sleep(10 * beat)
			answers(part)(w, r)
		}
	})
	got := b.stream(inputOf("r1"))
	const comment = ":\n\n"
	pieces := []string{"data: " + begin + "\r\n\r\n", "data: " + said + "\n\n", over + "y\"}\n\n", "data: " + finished + "\n\n"}
	for i, piece := range pieces {
		before, rest, ok := strings.Cut(got, piece)
		if got = rest; !ok || strings.Trim(before, ":\n") != "" || i != 3 && !strings.Contains(before, comment) {
			t.Fatalf("before piece %d came %.100q, then %.100q", i, before, rest)
		}
	}
	if strings.Trim(got, ":\n") != "" {
		t.Errorf("at the end came %q", got)
	}
}

// A comment may come between any two parts of the agent's bytes, even between CR and LF: readers get each event once.
func TestProxy_CommentsSplitNoLineEnd(t *testing.T) {
	cfg := proxyConfig(t)
	cfg.Heartbeat = 10 * time.Millisecond
	b := startBehind(t, cfg, nil, func(w http.ResponseWriter, r *http.Request) {
		for _, part := range []string{
			": hi\r", "\ndata: " + begin + "\r\n\r", "\ndata:", " " + said + "\r", "\r", "data: " + said + "\r\r:\r",
			"data: " + finished + "\r\n", "\r\n",
		} {
			answers(part)(w, r)
			time.Sleep(5 * cfg.Heartbeat)
		}
	})
	resp := b.callRaw(b.t.Context(), inputOf("r1"))
	defer resp.Body.Close()
	raw, err := io.ReadAll(resp.Body)
	if err != nil {
		t.Fatal(err)
	}
	var got []string
	for events := eventstream.New(bytes.NewReader(raw), eventstream.ServerSent, 1<<20, 512, eventstream.Memory{}); ; {
		ev, err := events.Next()
		if err != nil {
			break
		}
		got = append(got, string(ev.Value))
	}
	if want := []string{begin, said, said, finished}; !slices.Equal(got, want) || len(b.published(5)) != 5 ||
		bytes.Count(raw, []byte(":\n\n")) < 4 {
		t.Errorf("the events are %q of %q", got, raw)
	}
}

func incompleteOf(r *kgo.Record) string {
	return kafkatest.Header(r, record.HeaderIncomplete)
}

func TestProxy_GoesOnWhereTheCallerHasLeft(t *testing.T) {
	goOn, stopped := make(chan struct{}), make(chan struct{})
	b := startBehind(t, proxyConfig(t), nil, func(w http.ResponseWriter, r *http.Request) {
		answers("data: "+begin+"\n\n")(w, r)
		<-goOn
		for range 1000 {
			answers("data: "+said+"\n\n")(w, r)
		}
		answers("data: "+finished+"\n\n")(w, r)
		close(stopped)
	})
	ctx, leave := context.WithCancel(t.Context())
	resp := b.call(ctx, inputOf("r1"))
	if _, err := bufio.NewReader(resp.Body).ReadString('\n'); err != nil {
		t.Fatal(err)
	}
	leave()
	_ = resp.Body.Close()
	close(goOn)
	<-stopped
	rs := b.published(1003)
	if len(rs) != 1003 || string(rs[1002].Value) != finished || headersOf(t, rs[1002]).Seq != 1001 {
		t.Errorf("%d records", len(rs))
	}
}

func TestProxy_CancelsTheAgentOfACallerThatHasLeft(t *testing.T) {
	ended := make(chan struct{})
	b := startBehind(t, proxyConfig(t), func(a *agents.Agent) { a.OnDisconnect = agents.Cancel },
		func(w http.ResponseWriter, r *http.Request) {
			answers("data: "+begin+"\n\n")(w, r)
			<-r.Context().Done()
			close(ended)
		})
	ctx, leave := context.WithCancel(t.Context())
	resp := b.call(ctx, inputOf("r1"))
	if _, err := bufio.NewReader(resp.Body).ReadString('\n'); err != nil {
		t.Fatal(err)
	}
	leave()
	_ = resp.Body.Close()
	<-ended
	b.wantCancelled(b.published(3), 3, "}")
}

func (b *behind) wantCancelled(rs []*kgo.Record, n int, rest string) {
	b.t.Helper()
	want := `{"type":"RUN_FINISHED","threadId":"t1","runId":"r1","outcome":{"type":"cancelled"}` + rest
	if len(rs) != n {
		b.t.Fatalf("%d records, want %d: %q", len(rs), n, b.written())
	}
	if last := rs[n-1]; string(last.Value) != want || !headersOf(b.t, last).Synthetic {
		b.t.Errorf("the end is %q with %+v", last.Value, headersOf(b.t, last))
	}
}

func TestRuns_CancelEndsARunWhoseCallerReadsNothing(t *testing.T) {
	ended := make(chan struct{})
	b := startBehind(t, proxyConfig(t), nil, func(w http.ResponseWriter, r *http.Request) {
		answers("data: "+begin+"\n\n")(w, r)
		for r.Context().Err() == nil {
			_, _ = io.WriteString(w, ": "+strings.Repeat(".", 1<<20)+"\n\n")
		}
		close(ended)
	})
	resp := b.call(t.Context(), inputOf("r1"))
	defer resp.Body.Close()
	if _, err := bufio.NewReader(resp.Body).ReadString('\n'); err != nil {
		t.Fatal(err)
	}
	key, err := record.ThreadKey("dev", "t1")
	if err != nil {
		t.Fatal(err)
	}
	runs := b.svc.Runs()
	if runs.Cancel(key, "r2", "") || runs.Cancel("dev/t2", "r1", "") || !runs.Held(key, "r1") {
		t.Error("a run that nobody holds was cancelled, or the one that is held is not")
	}
	began := time.Now()
	if !runs.Cancel(key, "r1", "enough") || runs.Cancel(key, "r1", "") {
		t.Error("the run was not cancelled once")
	}
	<-ended
	b.wantCancelled(b.published(3), 3, `,"metadata":{"skein.stopped":{"reason":"enough"}}}`)
	if took := time.Since(began); took > endGrace+kafkatest.Timeout {
		t.Errorf("it took %v", took)
	}
	if runs.Cancel(key, "r1", "") || runs.Held(key, "r1") {
		t.Error("the run is still held")
	}
}

func TestProxy_ARunThatIsUnderWayIsA409(t *testing.T) {
	goOn := make(chan struct{})
	b := startBehind(t, proxyConfig(t), nil, func(w http.ResponseWriter, r *http.Request) {
		answers("data: "+begin+"\n\n")(w, r)
		<-goOn
		answers("data: "+finished+"\n\n")(w, r)
	})
	resp := b.call(t.Context(), inputOf("r1"))
	defer resp.Body.Close()
	a := b.do(http.MethodPost, "/v1/agents/helper", strings.NewReader(inputOf("r1")))
	if a.status != http.StatusConflict || a.Reason != reasonHeld {
		t.Errorf("answer is %d %s", a.status, a.body)
	}
	close(goOn)
	if rest, err := io.ReadAll(resp.Body); err != nil || !strings.HasSuffix(string(rest), finished+"\n\n") {
		t.Errorf("the first one reads %q, %v", rest, err)
	}
	if rs := b.published(3); len(rs) != 3 {
		t.Errorf("%d records", len(rs))
	}
}

// A run that is tried again with its id would not be recorded, where its RUN_STARTED is the same: the id is refused.
func TestProxy_ARunThatHasEndedIsA409(t *testing.T) {
	const another = `{"type":"RUN_FINISHED","threadId":"t1","runId":"r3"}`
	calls := 0
	b := startBehind(t, proxyConfig(t), nil, func(w http.ResponseWriter, r *http.Request) {
		calls++
		if calls == 1 {
			answers("data: "+begin+"\n\n")(w, r) // and no end
			return
		}
		answers("data: "+another+"\n\n")(w, r)
	})
	if got := b.stream(inputOf("r1")); !strings.Contains(got, agents.CodeNoEnd) {
		t.Errorf("the stream is %q", got)
	}
	b.published(3)
	a := b.do(http.MethodPost, "/v1/agents/helper", strings.NewReader(inputOf("r1")))
	if a.status != http.StatusConflict || a.Reason != reasonUsed || calls != 1 {
		t.Errorf("answer is %d %s, after %d calls", a.status, a.body, calls)
	}
	b.stream(inputOf("r3"))
	if rs := b.published(5); len(rs) != 5 || calls != 2 {
		t.Errorf("%d records of %d calls", len(rs), calls)
	}
}

// A tenant has a share of the runs that may be under way, and of those that have ended and are remembered; a run that never came to its
// agent is not.
func TestRuns_HasAShareForEachTenant(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		memory := newMemory(8 * runKeyBytes) // a tenant that is alone has room for six
		m, err := newMetrics(nil, 0, memory)
		if err != nil {
			t.Fatal(err)
		}
		runs := newRuns(memory)
		of := func(tenant, id string, called bool) *proxied {
			return &proxied{svc: &Service{metrics: m}, target: target{tenant: tenant, key: tenant + "/t1", run: id}, called: called}
		}
		try := func(tenant, id string, called bool, want string) {
			t.Helper()
			p, refused := of(tenant, id, called), new(front.Problem)
			err := runs.hold(p, id)
			if errors.As(err, &refused); refused.Reason != want {
				t.Errorf("%s of %s: %v, want %q", id, tenant, err, want)
			}
			if err == nil {
				runs.release(p)
			}
		}
		try("loud", "r0", false, "")
		try("loud", "r0", true, "")
		try("loud", "r0", true, reasonUsed)
		try("quiet", "r0", true, "")
		for i := range maxUsed {
			try("loud", fmt.Sprint("flood", i), true, "")
		}
		try("loud", "flood99", true, reasonUsed)
		try("loud", "r0", true, "") // its own flood has had it forgotten
		try("quiet", "r0", true, reasonUsed)
		if loud, quiet := len(runs.used.of["loud"]), len(runs.used.of["quiet"]); loud != maxUsed || quiet != 1 {
			t.Errorf("%d and %d are remembered", loud, quiet)
		}
		time.Sleep(usedFor)
		try("quiet", "r0", true, "")
		if len(runs.used.of) != 1 || len(runs.used.of["quiet"]) != 1 {
			t.Errorf("%v are remembered for too long", runs.used.of)
		}

		var held []*proxied
		for i := range 8 {
			p := of("loud", fmt.Sprint("held", i), false)
			full := new(front.Problem)
			if err := runs.hold(p, p.target.run); err == nil {
				held = append(held, p)
			} else if i < 6 || !errors.As(err, &full) || full.Limit != "memory" {
				t.Errorf("run %d of a tenant: %v", i, err)
			}
		}
		if len(held) != 6 || runs.hold(held[0], "next") == nil {
			t.Errorf("a tenant has %d of 8 runs under way, and begins more", len(held))
		}
		try("quiet", "r1", true, "")
		for _, p := range held {
			runs.release(p)
		}
		if n := memory.Held(); n != 0 {
			t.Errorf("%d count at the end", n)
		}
	})
}

// begin2 begins another run of a stream.
const begin2 = `{"type":"RUN_STARTED","threadId":"t1","runId":"r2"}`

// Behind its end an agent may begin another run in the same stream: that has its own id and numbers, and its own end.
func TestProxy_AStreamMayHoldSeveralRuns(t *testing.T) {
	const finished2 = `{"type":"RUN_FINISHED","threadId":"t1","runId":"r2"}`
	first := []string{begin, said, finished}
	for name, c := range map[string]struct {
		then []string // the stream's rest
		run  string   // of its records
		from int64    // their first number
		ours string   // code of a synthetic end; "" where the agent ends the run
	}{
		"another one":                {[]string{begin2, said, finished2}, "r2", 0, ""},
		"another one without an end": {[]string{begin2, said}, "r2", 0, agents.CodeNoEnd},
		"the same id":                {[]string{begin, said}, "r1", 3, agents.CodeNoEnd},
		"no id that can be":          {[]string{`{"type":"RUN_STARTED","threadId":"t1","runId":".."}`, said}, "r1", 3, agents.CodeNoEnd},
		"no id for a new run":        {[]string{`{"type":"RUN_STARTED","threadId":"t1","runId":"r\u0007"}`, said}, "r1", 3, agents.CodeNoEnd},
		"no run":                     {[]string{said}, "r1", 3, ""},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			all := append(slices.Clone(first), c.then...)
			wire := "data: " + strings.Join(all, "\n\ndata: ") + "\n\n"
			b := startBehind(t, proxyConfig(t), nil, answers(wire))
			got, ok := strings.CutPrefix(b.stream(inputOf("r1")), wire)
			if !ok || (c.ours == "") != (got == "") || !strings.Contains(got, c.ours) {
				t.Errorf("the stream ends with %q", got)
			}
			if c.ours != "" {
				all = append(all, strings.TrimSuffix(strings.TrimPrefix(got, "data: "), "\n\n"))
			}
			rs := b.published(1 + len(all))
			if len(rs) != 1+len(all) {
				t.Fatalf("written is %q", b.written())
			}
			for i, r := range rs[1:] {
				run, seq := "r1", int64(i)
				if i >= len(first) {
					run, seq = c.run, c.from+int64(i-len(first))
				}
				h := headersOf(t, r)
				if string(r.Value) != all[i] || h.RunID != run || h.Seq != seq || h.Agent != "helper" ||
					h.Synthetic != (c.ours != "" && i == len(all)-1) {
					t.Errorf("record %q has %+v, want number %d of %s", r.Value, h, seq, run)
				}
			}
			if held := testutil.ToFloat64(b.svc.metrics.held); held != 0 {
				t.Errorf("%v runs are held", held)
			}
		})
	}
}

// What is to be stopped is the stream's last run: one that has ended before is none to stop.
func TestRuns_CancelEndsTheLastRunOfAStream(t *testing.T) {
	b := startBehind(t, proxyConfig(t), nil, func(w http.ResponseWriter, r *http.Request) {
		answers("data: "+begin+"\n\n", "data: "+finished+"\n\n", "data: "+begin2+"\n\n")(w, r)
		<-r.Context().Done()
	})
	resp := b.call(t.Context(), inputOf("r1"))
	defer resp.Body.Close()
	kafkatest.ConsumeUntil(t, b.cfg, b.cfg.Topics().Events, func(rs []*kgo.Record) bool { return len(rs) == 4 })
	key, err := record.ThreadKey("dev", "t1")
	if err != nil {
		t.Fatal(err)
	}
	runs := b.svc.Runs()
	if !runs.Held(key, "r1") || !runs.Held(key, "r2") || runs.Cancel(key, "r1", "") || !runs.Cancel(key, "r2", "") {
		t.Error("the ended run was cancelled, or the other one was not")
	}
	rest, err := io.ReadAll(resp.Body)
	const want = `{"type":"RUN_FINISHED","threadId":"t1","runId":"r2","outcome":{"type":"cancelled"},"metadata":{"skein.stopped":{}}}`
	if err != nil || !strings.HasSuffix(string(rest), "data: "+want+"\n\n") {
		t.Errorf("the caller reads %q, %v", rest, err)
	}
	rs := b.published(5)
	last := rs[len(rs)-1]
	if h := headersOf(t, last); len(rs) != 5 || string(last.Value) != want || h.RunID != "r2" || h.Seq != 1 || !h.Synthetic {
		t.Errorf("the end is %q with %+v", last.Value, headersOf(t, last))
	}
}

// Kafka is away for a while: the caller notices nothing, and all is there afterwards, in order and once.
func TestProxy_TheCallersStreamOutlivesKafka(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	c := kafkatest.StartCluster(t, 1, kafkatest.WithDataDir(dir))
	cfg := testConfig(c.Config)
	cfg.AckTimeout = 500 * time.Millisecond
	next := make(chan string)
	b := startBehind(t, cfg, nil, func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", "text/event-stream")
		for part := range next {
			_, _ = io.WriteString(w, "data: "+part+"\n\n")
			_ = http.NewResponseController(w).Flush()
		}
	})
	resp := b.call(t.Context(), inputOf("r1"))
	defer resp.Body.Close()
	read := bufio.NewReader(resp.Body)
	say := func(event string) {
		t.Helper()
		next <- event
		line, err := read.ReadString('\n')
		if _, err2 := read.ReadString('\n'); err != nil || err2 != nil || line != "data: "+event+"\n" {
			t.Fatalf("the caller reads %q, %v, %v", line, err, err2)
		}
	}
	say(begin)
	kafkatest.ConsumeUntil(t, b.cfg, b.cfg.Topics().Events, func(rs []*kgo.Record) bool { return len(rs) == 2 })
	c.Stop()
	for i := range 20 {
		say(`{"type":"CUSTOM","name":"` + strconv.Itoa(i) + `"}`)
		time.Sleep(50 * time.Millisecond) // over more than one attempt of the client
	}
	restart(t, c, dir)
	say(finished)
	close(next)
	rs := b.published(23)
	seq := int64(0)
	for _, r := range rs[1:] {
		h := headersOf(t, r)
		if h.Seq < seq {
			continue // a repeat, which all who read drop
		}
		if h.Seq != seq || incompleteOf(r) != "" {
			t.Errorf("record with number %d behind %d, incomplete %q", h.Seq, seq-1, incompleteOf(r))
		}
		seq = h.Seq + 1
	}
	if seq != 22 || string(rs[len(rs)-1].Value) != finished {
		t.Errorf("%d events are there", seq)
	}
	if used := b.svc.memory.Held(); used != 0 {
		t.Errorf("%d bytes of memory are held", used)
	}
}

// Who has seen a run's end finds the run, unless Kafka takes longer than ackGrace.
func TestProxy_TheEndWaitsForKafkaALittle(t *testing.T) {
	t.Parallel()
	c := kafkatest.StartCluster(t, 1)
	b := startBehind(t, testConfig(c.Config), nil, answers("data: "+begin+"\n\n", "data: "+finished+"\n\n"))
	c.Fake.ControlKey(int16(kmsg.Produce), func(kmsg.Request) (kmsg.Response, error, bool) {
		c.Fake.KeepControl()
		c.Fake.SleepControl(func() { time.Sleep(50 * time.Millisecond) })
		return nil, nil, false
	})
	for i := range 5 {
		b.thread = "t" + strconv.Itoa(i)
		resp := b.call(t.Context(), strings.ReplaceAll(inputOf("r1"), `"t1"`, strconv.Quote(b.thread)))
		read := bufio.NewReader(resp.Body)
		for line := ""; !strings.Contains(line, "RUN_FINISHED"); {
			var err error
			if line, err = read.ReadString('\n'); err != nil {
				t.Fatal(err)
			}
		}
		if n := len(b.records()); n != 3 {
			t.Errorf("the caller has seen the end, and the topic has %d records of the run", n)
		}
		_ = resp.Body.Close()
	}
	silence(c)
	began := time.Now()
	b.thread = "silent"
	b.stream(strings.ReplaceAll(inputOf("r1"), `"t1"`, `"silent"`))
	if took := time.Since(began); took > time.Second {
		t.Errorf("the caller waits %v for a Kafka that does not answer", took)
	}
}

// Where Kafka is away for too long, what there is no room for is left out, and the run says so.
func TestProxy_ARunThatHadToLeaveEventsOutSaysSo(t *testing.T) {
	c := kafkatest.StartCluster(t, 1)
	cfg := testConfig(c.Config)
	cfg.Memory = 1 << 20 // a run may have 128 KiB
	const events = 400
	next := make(chan string)
	b := startBehind(t, cfg, nil, func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", "text/event-stream")
		for part := range next {
			_, _ = io.WriteString(w, "data: "+part+"\n\n")
			_ = http.NewResponseController(w).Flush()
		}
	})
	freeze := make(chan struct{})
	hold(c, freeze)
	resp := b.call(t.Context(), inputOf("r1"))
	defer resp.Body.Close()
	read := bufio.NewReader(resp.Body)
	for _, event := range append(append([]string{begin}, slices.Repeat([]string{said}, events)...), finished) {
		next <- event
		if line, err := read.ReadString('\n'); err != nil || line != "data: "+event+"\n" {
			t.Fatalf("the caller reads %q, %v", line, err)
		}
		if _, err := read.ReadString('\n'); err != nil {
			t.Fatal(err)
		}
	}
	close(next)
	close(freeze)
	b.eventually("the run is published", func() bool { return len(b.svc.Runs().all()) == 0 })
	rs := b.records()
	last := rs[len(rs)-1]
	left := events + 2 - (len(rs) - 1)
	if string(last.Value) != finished || left < 40 || incompleteOf(last) != strconv.Itoa(left) || headersOf(t, last).Seq != events+1 {
		t.Errorf("%d records, the last %q with %+v, incomplete %q", len(rs), last.Value, headersOf(t, last), incompleteOf(last))
	}
	if n := testutil.ToFloat64(b.svc.metrics.leftOut.WithLabelValues(leftOutRoom)); n != float64(left) {
		t.Errorf("%v are counted, want %d", n, left)
	}
}

func TestProxy_CutsTheStreamWhereItIsToldTo(t *testing.T) {
	t.Parallel()
	c := kafkatest.StartCluster(t, 1)
	cfg := testConfig(c.Config)
	cfg.AckTimeout = 300 * time.Millisecond
	b := startBehind(t, cfg, func(a *agents.Agent) { a.OnKafkaFailure = agents.Cut }, func(w http.ResponseWriter, r *http.Request) {
		answers("data: "+begin+"\n\n")(w, r)
		<-r.Context().Done()
	})
	freeze := make(chan struct{})
	hold(c, freeze)
	got := b.stream(inputOf("r1"))
	close(freeze)
	if !strings.HasPrefix(got, "data: "+begin+"\n\ndata: {\"type\":\"RUN_ERROR\"") || !strings.Contains(got, codeNotRecorded) {
		t.Errorf("the stream is %q", got)
	}
	rs := b.published(3)
	if last := rs[len(rs)-1]; !strings.Contains(string(last.Value), codeNotRecorded) || !headersOf(t, last).Synthetic {
		t.Errorf("the last record is %q", last.Value)
	}
}

// A record that Kafka refuses for good costs itself.
func TestProxy_WhatKafkaRefusesCostsItself(t *testing.T) {
	c := kafkatest.StartCluster(t, 1)
	b := startBehind(t, testConfig(c.Config), nil, answers("data: "+begin+"\n\n", "data: "+said+"\n\n", "data: "+finished+"\n\n"))
	refused := b.svc.metrics.leftOut.WithLabelValues(leftOutRefused)
	c.Fake.Fault(kfake.Fault{Keys: []kmsg.Key{kmsg.Produce}, Err: kerr.PolicyViolation, Count: -1, When: func(kmsg.Request) bool {
		return testutil.ToFloat64(refused) == 0 // until one was given up, which is the first: the input
	}})
	if got := b.stream(inputOf("r1")); !strings.HasSuffix(got, finished+"\n\n") {
		t.Errorf("the stream is %q", got)
	}
	if rs := b.published(3); len(rs) != 3 || string(rs[0].Value) != begin || incompleteOf(rs[0]) != "1" || incompleteOf(rs[1]) != "" {
		t.Errorf("written is %q", b.written())
	}
}

// hold has the brokers refuse what is produced, for now, until the channel is closed.
func hold(c *kafkatest.Cluster, until <-chan struct{}) {
	c.Fake.Fault(kfake.Fault{Keys: []kmsg.Key{kmsg.Produce}, Err: kerr.NotEnoughReplicas, Count: -1, When: func(kmsg.Request) bool {
		select {
		case <-until:
			return false
		default:
			return true
		}
	}})
}

// A caller that does not read does not keep the run from its end.
func TestProxy_ACallerThatReadsNothingCountsAsOneThatHasLeft(t *testing.T) {
	t.Parallel()
	b := startBehind(t, proxyConfig(t), nil, func(w http.ResponseWriter, r *http.Request) {
		answers("data: "+begin+"\n\n")(w, r)
		for range 32 {
			answers(": "+strings.Repeat(".", 1<<20)+"\n\n")(w, r)
		}
		answers("data: "+finished+"\n\n")(w, r)
	})
	b.svc.front.Stall = time.Second
	resp := b.call(t.Context(), inputOf("r1"))
	defer resp.Body.Close()
	if rs := b.published(3); len(rs) != 3 || string(rs[2].Value) != finished {
		t.Errorf("%d records", len(rs))
	}
}

// A process that is about to stop takes nothing new; what is under way goes on, and ends when it is told to, with all that was
// said published.
func TestService_DrainsAndStops(t *testing.T) {
	goOn := make(chan struct{})
	b := startBehind(t, proxyConfig(t), nil, func(w http.ResponseWriter, r *http.Request) {
		answers("data: "+begin+"\n\n")(w, r)
		<-goOn
		answers("data: "+said+"\n\n")(w, r)
		<-r.Context().Done()
	})
	resp := b.call(t.Context(), inputOf("r1"))
	defer resp.Body.Close()
	read := bufio.NewReader(resp.Body)
	if _, err := read.ReadString('\n'); err != nil {
		t.Fatal(err)
	}
	in, out := io.Pipe()
	sent := make(chan answer, 1)
	go func() { sent <- b.in(t, "t2").do(http.MethodPost, b.in(t, "t2").path("events"), in) }()
	if _, err := io.WriteString(out, ev1+"\n"); err != nil {
		t.Fatal(err)
	}
	kafkatest.ConsumeUntil(t, b.cfg, b.cfg.Topics().Events, func(rs []*kgo.Record) bool { return len(rs) == 3 })

	b.svc.Drain()
	for _, path := range []string{"/v1/agents/helper", "/v1/threads/t1/runs/r2/events"} {
		a := b.do(http.MethodPost, path, strings.NewReader(inputOf("r2")))
		wantUnavailable(t, a, 0)
		if a.header.Get("Retry-After") != "1" || !strings.Contains(a.Detail, "another one") {
			t.Errorf("answer is %v %s", a.header, a.body)
		}
	}
	close(goOn)
	want := "\ndata: " + said + "\n\n"
	got := make([]byte, len(want))
	if _, err := io.ReadFull(read, got); err != nil || string(got) != want {
		t.Fatalf("the run does not go on: %q, %v", got, err)
	}

	b.svc.Stop()
	rest, err := io.ReadAll(read)
	if err != nil || !strings.Contains(string(rest), codeStopping) {
		t.Errorf("the end is %q, %v", rest, err)
	}
	wantUnavailable(t, <-sent, 1)
	if err := out.Close(); err != nil {
		t.Error(err)
	}
	rs := b.published(5)
	if len(rs) != 4 || !strings.Contains(string(rs[3].Value), codeStopping) || !headersOf(t, rs[3]).Synthetic {
		t.Errorf("written is %q", b.written())
	}
}

// Callers that send slowly take memory from each other, and none from the runs that are under way.
func TestProxy_SlowInputsCostNoRunItsEvents(t *testing.T) {
	cfg := proxyConfig(t)
	cfg.Memory = 2 << 20
	goOn := make(chan struct{})
	b := startBehind(t, cfg, nil, func(w http.ResponseWriter, r *http.Request) {
		answers("data: "+begin+"\n\n")(w, r)
		<-goOn
		for range 10 {
			answers("data: "+said+"\n\n")(w, r)
		}
		answers("data: "+finished+"\n\n")(w, r)
	})
	resp := b.call(t.Context(), inputOf("r1"))
	defer resp.Body.Close()
	kafkatest.ConsumeUntil(t, b.cfg, b.cfg.Topics().Events, func(rs []*kgo.Record) bool { return len(rs) == 2 })
	slow := func(body string) net.Conn {
		c, err := net.Dial("tcp", b.srv.Listener.Addr().String())
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = c.Close() })
		if _, err := fmt.Fprintf(c, "POST /v1/agents/helper HTTP/1.1\r\nHost: x\r\nContent-Length: 4000\r\n\r\n%s", body); err != nil {
			t.Fatal(err)
		}
		return c
	}
	refused := make(chan *http.Response, 40)
	for range 40 {
		c := slow(strings.Repeat(" ", 100))
		go func() {
			if answer, err := http.ReadResponse(bufio.NewReader(c), nil); err == nil {
				_ = answer.Body.Close()
				refused <- answer
			}
		}()
	}
	if answer := <-refused; answer.StatusCode != http.StatusTooManyRequests || answer.Header.Get("Retry-After") == "" {
		t.Errorf("one more is answered %s with %v", answer.Status, answer.Header)
	}

	close(goOn)
	if rs := b.published(13); len(rs) != 13 || string(rs[12].Value) != finished || incompleteOf(rs[12]) != "" {
		t.Errorf("%d records", len(rs))
	}
	if n := testutil.ToFloat64(b.svc.metrics.leftOut.WithLabelValues(leftOutRoom)); n != 0 {
		t.Errorf("%v events were left out", n)
	}
}

// An end that is over the limit ends the run all the same: nothing stands behind it for the caller, and the topic says that it is missing.
func TestProxy_AnEndThatIsTooLargeEndsTheRun(t *testing.T) {
	for name, large := range map[string]string{
		"a little":     `{"messages":[{"type":"x"}],"type":"RUN_FINISHED","result":"` + strings.Repeat("x", 5<<10) + `"}`,
		"far too much": `{"type":"RUN_ERROR","message":"` + strings.Repeat("x", 100<<10) + `"}`,
	} {
		t.Run(name, func(t *testing.T) {
			stream := "data: " + begin + "\n\ndata: " + large + "\n\n"
			open := make(chan struct{})
			b := startBehind(t, proxyConfig(t), nil, func(w http.ResponseWriter, r *http.Request) {
				answers(stream)(w, r)
				<-open
			})
			b.svc.afterEnd = time.Minute
			resp := b.call(t.Context(), inputOf("r1"))
			defer resp.Body.Close()
			kafkatest.ConsumeUntil(t, b.cfg, b.cfg.Topics().Events, func(rs []*kgo.Record) bool { return len(rs) == 3 })
			close(open) // the agent kept its stream open
			if got, err := io.ReadAll(resp.Body); string(got) != stream || err != nil {
				t.Errorf("behind the end stands %q, %v", strings.TrimPrefix(string(got), stream), err)
			}
			rs := b.published(3)
			last := rs[len(rs)-1]
			if h := headersOf(t, last); len(rs) != 3 || !strings.Contains(string(last.Value), codeNotRecorded) || !h.Synthetic ||
				incompleteOf(last) != "1" {
				t.Errorf("%d records, the last %q with %+v", len(rs), last.Value, h)
			}
			if n := testutil.ToFloat64(b.svc.metrics.runs.WithLabelValues(runEnded)); n != 1 {
				t.Errorf("%v runs are counted as ended", n)
			}
		})
	}
}

// An event that there is no memory for is missing because of Kafka, and not because of its size: who wants the stream to be cut gets that.
func TestProxy_CutsTheStreamWhereThereIsNoRoom(t *testing.T) {
	cfg := proxyConfig(t)
	cfg.MaxEventBytes = 64 << 10
	cfg.Memory = 2 << 20
	filled := make(chan struct{})
	b := startBehind(t, cfg, func(a *agents.Agent) { a.OnKafkaFailure = agents.Cut }, func(w http.ResponseWriter, r *http.Request) {
		answers("data: "+begin+"\n\n")(w, r)
		<-filled
		answers(`data: {"type":"CUSTOM","name":"x","value":"`+strings.Repeat("x", 40<<10)+"\"}\n\n")(w, r)
		<-r.Context().Done()
	})
	resp := b.call(t.Context(), inputOf("r1"))
	defer resp.Body.Close()
	kafkatest.ConsumeUntil(t, b.cfg, b.cfg.Topics().Events, func(rs []*kgo.Record) bool { return len(rs) == 2 })
	most := b.svc.memory.Limit() - 24<<10 // small events have room
	for i := range 40 {                   // a tenant gets its share only
		held := b.svc.memory.Held()
		if left := most - held; left > 0 {
			tenant := fmt.Sprint("other ", i)
			n := min(left, tenantShare*(b.svc.memory.Limit()-held)/(tenantShare+1))
			if !b.svc.memory.Take(tenant, n) {
				t.Fatalf("there is no memory for %d of %d", n, left)
			}
			defer b.svc.memory.Give(tenant, n)
		}
	}
	close(filled)
	got, err := io.ReadAll(resp.Body)
	if err != nil || !strings.Contains(string(got), `"code":"`+codeNotRecorded+`"`) || !strings.Contains(string(got), "memory") {
		t.Errorf("the stream ends with %q, %v", got[max(0, len(got)-200):], err)
	}
	for reason, want := range map[string]float64{leftOutRoom: 1, leftOutTooLarge: 0} {
		if n := testutil.ToFloat64(b.svc.metrics.leftOut.WithLabelValues(reason)); n != want {
			t.Errorf("%v are counted as %s, want %v", n, reason, want)
		}
	}
}

// While the caller makes the agent wait, the agent is not silent.
func TestProxy_AnAgentThatIsMadeToWaitIsNotSilent(t *testing.T) {
	t.Parallel()
	const silence = 3 * time.Second // a processor that is busy elsewhere is no silence
	b := startBehind(t, proxyConfig(t), func(a *agents.Agent) { a.SilenceTimeout = silence }, func(w http.ResponseWriter, r *http.Request) {
		answers("data: "+begin+"\n\n")(w, r)
		for range 32 { // more than the buffers of two connections hold
			_, _ = io.WriteString(w, ": "+strings.Repeat(".", 1<<20)+"\n\n")
		}
		answers("data: "+finished+"\n\n")(w, r)
	})
	resp := b.call(t.Context(), inputOf("r1"))
	defer resp.Body.Close()
	time.Sleep(silence + time.Second)
	got, err := io.ReadAll(resp.Body)
	if err != nil || !bytes.HasSuffix(got, []byte(finished+"\n\n")) {
		t.Errorf("the stream ends with %q, %v", got[max(0, len(got)-200):], err)
	}
}

// A run is over with its end, also where its agent keeps the connection.
func TestProxy_LetsGoOfARunThatHasEnded(t *testing.T) {
	t.Parallel()
	b := startBehind(t, proxyConfig(t), nil, func(w http.ResponseWriter, r *http.Request) {
		answers("data: "+begin+"\n\n", "data: "+finished+"\n\n", ": more\n\n")(w, r)
		<-r.Context().Done()
	})
	b.svc.afterEnd = 3 * time.Second // what is on its way is read before
	if got := b.stream(inputOf("r1")); !strings.HasSuffix(got, finished+"\n\n: more\n\n") {
		t.Errorf("the stream is %q", got)
	}
	if rs := b.published(3); len(rs) != 3 || string(rs[2].Value) != finished {
		t.Errorf("%d records", len(rs))
	}
	if n := testutil.ToFloat64(b.svc.metrics.runs.WithLabelValues(runEnded)); n != 1 {
		t.Errorf("%v runs are counted as ended", n)
	}
}

// An error after the end reaches the caller and Kafka, as an event of the run.
func TestProxy_RecordsAnErrorAfterTheEnd(t *testing.T) {
	t.Parallel()
	const late = `{"type":"RUN_ERROR","message":"flush failed","code":"FLUSH"}`
	b := startBehind(t, proxyConfig(t), nil, answers("data: "+begin+"\n\n", "data: "+finished+"\n\n", "data: "+late+"\n\n"))
	if got := b.stream(inputOf("r1")); !strings.HasSuffix(got, finished+"\n\ndata: "+late+"\n\n") {
		t.Errorf("the stream is %q", got)
	}
	rs := b.published(4)
	if h, err := record.ParseHeaders(rs[3].Headers); err != nil || string(rs[3].Value) != late || h.RunID != "r1" || h.Synthetic {
		t.Errorf("the last record is %s with %+v, %v", rs[3].Value, h, err)
	}
}

// The time that an agent has to close its stream is for one that says no more: another run in it goes on.
func TestProxy_ARunBehindAnEndGoesOn(t *testing.T) {
	for name, started := range map[string]string{
		"recorded":  begin2,
		"too large": `{"type":"RUN_STARTED","threadId":"t1","runId":"r2","input":"` + strings.Repeat("x", 10<<10) + `"}`,
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			const finished2 = `{"type":"RUN_FINISHED","threadId":"t1","runId":"r2"}`
			const wait = 2 * time.Second // what is on its way is read before
			b := startBehind(t, proxyConfig(t), nil, func(w http.ResponseWriter, r *http.Request) {
				answers("data: "+begin+"\n\n", "data: "+finished+"\n\n", "data: "+started+"\n\n")(w, r)
				time.Sleep(wait + wait/2)
				answers("data: "+finished2+"\n\n")(w, r)
			})
			b.svc.afterEnd = wait
			if got := b.stream(inputOf("r1")); !strings.HasSuffix(got, "data: "+finished2+"\n\n") {
				t.Errorf("the stream ends with %q", got[max(0, len(got)-200):])
			}
			b.eventually("the run is published", func() bool { return len(b.svc.Runs().all()) == 0 })
			if got := b.written(); got[len(got)-1] != finished2 {
				t.Errorf("written is %.300q", got)
			}
		})
	}
}

func TestProxy_IsSlowedDownToTheTenantsQuota(t *testing.T) {
	cfg := proxyConfig(t)
	var err error
	if cfg.Quotas, err = quota.Open(quota.Config{Replicas: 1, Stage: quota.Limits{EventsPerSecond: 20, BytesPerSecond: 1 << 20}}); err != nil {
		t.Fatal(err)
	}
	const more = 5 // events beyond the 10 s that the bucket holds
	events := []string{begin}
	for n := range 200 + more - 3 { // with the input, the begin and the end
		events = append(events, fmt.Sprintf(`{"type":"CUSTOM","name":"n","value":%d}`, n))
	}
	b := startBehind(t, cfg, nil, answers("data: "+strings.Join(append(events, `{"type":"RUN_FINISHED","threadId":"t1","runId":"r1"}`), "\n\ndata: ")+"\n\n"))
	begun := time.Now()
	if text := b.stream(inputOf("r1")); !strings.Contains(text, "RUN_FINISHED") {
		t.Errorf("the run lacks its end: %.300q", text)
	}
	if took := time.Since(begun); took < (more-1)*time.Second/20 {
		t.Errorf("%d events more than the quota took %v", more, took)
	}
	// the bucket is far below empty
	if err := b.svc.front.Quotas.Tenant("dev").Wait(t.Context(), quota.Bytes, 100<<20, time.Minute); err != nil {
		t.Fatal(err)
	}
	resp := b.call(t.Context(), inputOf("r2"))
	text, _ := io.ReadAll(resp.Body)
	if err := resp.Body.Close(); err != nil || resp.StatusCode != http.StatusTooManyRequests || !strings.Contains(string(text), `"limit":"bytes_per_second"`) {
		t.Errorf("an input over the quota: %s %s", resp.Status, text)
	}
}
