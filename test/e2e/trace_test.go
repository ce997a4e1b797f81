package e2e_test

import (
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/skeinhq/skein/internal/trace/tracetest"
	"github.com/skeinhq/skein/pkg/client"
	"github.com/skeinhq/skein/pkg/kafka"
	"github.com/skeinhq/skein/pkg/kafka/kafkatest"
	"github.com/skeinhq/skein/pkg/record"
	"github.com/skeinhq/skein/test/process"
)

// A call through the proxy, its agent, the four processes and a read are one trace, and so are a producer's records; later runs link to
// their parents' spans. What the agent said is on the topic byte for byte.
func TestTrace_IsOneOverFourProcesses(t *testing.T) {
	t.Parallel()
	const calls, reads, produces = "4bf92f3577b34da6a3ce929d0e0e4736", "11111111111111111111111111111111", "22222222222222222222222222222222"
	parent := func(trace string) string { return "00-" + trace + "-00f067aa0ba902b7-01" }
	events := []string{`{"type":"RUN_STARTED","threadId":"t","runId":"r1"}`, `{"type":"CUSTOM" , "name":"n","value":1.0}`,
		`{"type":"RUN_FINISHED","threadId":"t","runId":"r1"}`}
	agentsTrace := make(chan string, 1)
	agent := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		agentsTrace <- r.Header.Get("traceparent")
		w.Header().Set("Content-Type", "text/event-stream")
		_, _ = io.WriteString(w, "data: "+strings.Join(events, "\n\ndata: ")+"\n\n")
	}))
	t.Cleanup(agent.Close)
	collector := tracetest.Start(t)
	p := startPipeline(t, ends{
		kafka: kafkatest.Start(t, partitions, kafkatest.WithoutTopics()), replication: 1,
		store:   []string{"--sqlite", filepath.Join(t.TempDir(), "lineage.sqlite")},
		ingest:  []string{"--agents", agentsFile(t, agent.URL)},
		environ: []string{"OTEL_EXPORTER_OTLP_ENDPOINT=" + collector.URL, "OTEL_BSP_SCHEDULE_DELAY=50"},
	})
	ask := func(stage *process.Process, method, path, traceparent, body string) {
		t.Helper()
		req, err := http.NewRequestWithContext(t.Context(), method, "http://"+stage.Said("listening", "address")+path, strings.NewReader(body))
		if err != nil {
			t.Fatal(err)
		}
		req.Header.Set("Content-Type", "application/json")
		req.Header.Set("Authorization", "Bearer "+p.secrets[tenantA])
		req.Header.Set("traceparent", traceparent)
		resp, err := http.DefaultClient.Do(req)
		if err != nil {
			t.Fatal(err)
		}
		answer, err := io.ReadAll(resp.Body)
		if _ = resp.Body.Close(); err != nil || resp.StatusCode != http.StatusOK {
			t.Fatalf("%s %s: %s %s %v", method, path, resp.Status, answer, err)
		}
	}
	ask(p.ingest, http.MethodPost, "/v1/agents/helper", parent(calls), `{"threadId":"t","runId":"r1","messages":[],"tools":[],"context":[]}`)
	produce(t, p.ends.kafka, parent(produces), `{"type":"RUN_STARTED","threadId":"t","runId":"r2","parentRunId":"r1"}`,
		`{"type":"RUN_FINISHED","threadId":"t","runId":"r2"}`)
	for run, id := range map[string]string{"r1": calls, "r2": produces} {
		process.Eventually(t, run+" names its trace", func() (string, bool) {
			body, err := p.api[tenantA].Get(t.Context(), client.RunPath("t", run), nil)
			return fmt.Sprintf("%s %v", body, err), strings.Contains(string(body), `"status":"finished"`) && strings.Contains(string(body), `"traceId":"`+id+`"`)
		})
	}
	ask(p.query, http.MethodGet, client.RunPath("t", "r1"), parent(reads), "")

	spans := func(service, name string, is func(tracetest.Span) bool) []tracetest.Span {
		t.Helper()
		return process.Eventually(t, "a span of "+service+": "+name, func() ([]tracetest.Span, bool) {
			all := collector.Spans(service, name)
			return slices.DeleteFunc(slices.Clone(all), func(s tracetest.Span) bool { return !is(s) }), slices.ContainsFunc(all, is)
		})
	}
	within := func(trace, parent string) func(tracetest.Span) bool {
		return func(s tracetest.Span) bool { return s.Trace == trace && s.Parent == parent }
	}
	request := spans("skein-ingest", "POST /v1/agents/{agent}", within(calls, "00f067aa0ba902b7"))[0]
	if got, want := <-agentsTrace, "00-"+request.Place()+"-01"; got != want {
		t.Errorf("the agent got the trace context %q, want %q", got, want)
	}
	spans("skein-ingest", "send "+p.ends.kafka.Topics().Events, within(calls, request.ID))
	first := spans("skein-compactor", "invoke_agent helper", within(calls, request.ID))[0]
	second := spans("skein-compactor", "invoke_agent", within(produces, "00f067aa0ba902b7"))[0]
	for _, s := range []tracetest.Span{first, second} {
		if s.Attributes["gen_ai.conversation.id"] != "t" || s.Attributes["skein.tenant"] != tenantA {
			t.Errorf("a run's span is about %v", s.Attributes)
		}
		linked := func(o tracetest.Span) bool { return slices.Contains(o.Links, s.Place()) }
		spans("skein-compactor", "commit", linked)
		spans("skein-indexer", "index", linked)
	}
	if first.Links != nil || !slices.Equal(second.Links, []string{first.Place()}) {
		t.Errorf("the first run links to %v, the second to %v, want %s", first.Links, second.Links, first.Place())
	}
	spans("skein-query", "GET /v1/threads/{thread}/runs/{run}", within(reads, "00f067aa0ba902b7"))

	var said []string
	for _, r := range kafkatest.Consume(t, p.ends.kafka, p.ends.kafka.Topics().Events) {
		if h, err := record.ParseHeaders(r.Headers); err == nil && h.Kind == record.KindEvent && h.RunID == "r1" {
			said = append(said, string(r.Value))
		}
	}
	if !slices.Equal(said, events) {
		t.Errorf("on the topic is %q, want %q", said, events)
	}
}

// produce writes the events of a run as a producer that has a trace context.
func produce(t *testing.T, cfg kafka.Config, traceparent string, events ...string) {
	t.Helper()
	c, err := kafka.NewProducer(cfg)
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	const key = tenantA + "/t"
	for _, e := range events {
		r := &kgo.Record{Topic: cfg.Topics().Events, Partition: record.Partition([]byte(key), partitions), Key: []byte(key), Value: []byte(e),
			Headers: []kgo.RecordHeader{{Key: record.HeaderTraceparent, Value: []byte(traceparent)}}}
		if err := c.ProduceSync(t.Context(), r).FirstErr(); err != nil {
			t.Fatal(err)
		}
	}
}
