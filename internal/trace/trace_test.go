package trace_test

import (
	"bytes"
	"errors"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/skeinhq/skein/internal/trace"
	"github.com/skeinhq/skein/internal/trace/tracetest"
	"github.com/skeinhq/skein/pkg/record"
)

const (
	traceID     = "4bf92f3577b34da6a3ce929d0e0e4736"
	traceparent = "00-" + traceID + "-00f067aa0ba902b7-01"
)

func start(t *testing.T, endpoint string) (*trace.Tracer, *bytes.Buffer) {
	t.Helper()
	t.Setenv("OTEL_EXPORTER_OTLP_ENDPOINT", endpoint)
	var log bytes.Buffer
	tracer, err := trace.New(t.Context(), "skein-test", "1", slog.New(slog.NewTextHandler(&log, nil)))
	if err != nil {
		t.Fatal(err)
	}
	return tracer, &log
}

func one(t *testing.T, c *tracetest.Collector, name string) tracetest.Span {
	t.Helper()
	spans := c.Spans("skein-test", name)
	if len(spans) != 1 {
		t.Fatalf("there are %d spans %q", len(spans), name)
	}
	return spans[0]
}

func TestTracer_SpansOfARequestAreChildrenOfItsTrace(t *testing.T) {
	c := tracetest.Start(t)
	tracer, _ := start(t, c.URL)
	r := httptest.NewRequest(http.MethodPost, "/v1/agents/shop", nil)
	r.Header.Set("traceparent", traceparent[:53]+"fd") // some flags are of a later version
	end := tracer.Request(r, "/v1/agents/{agent}")
	tracer.Produce(r.Header.Get("traceparent"), "skein.events")(3, errors.New("Kafka is away"))
	end(http.StatusServiceUnavailable, trace.About{Tenant: "acme", Thread: "t", Run: "r"})
	for _, value := range []string{"", "none"} {
		r := httptest.NewRequest(http.MethodGet, "/", nil)
		r.Header.Set("traceparent", value)
		tracer.Request(r, "/root")(http.StatusOK, trace.About{})
		if got := record.Traceparent(r.Header.Get("traceparent")); got == "" {
			t.Errorf("a request with the trace context %q got %q", value, r.Header.Get("traceparent"))
		}
	}
	if err := tracer.Close(); err != nil {
		t.Fatal(err)
	}
	request, send := one(t, c, "POST /v1/agents/{agent}"), one(t, c, "send skein.events")
	if request.Trace != traceID || request.Parent != "00f067aa0ba902b7" || !request.Failed ||
		r.Header.Get("traceparent") != "00-"+request.Place()+"-01" {
		t.Errorf("request: %+v", request)
	}
	if a := request.Attributes; a["skein.tenant"] != "acme" || a["gen_ai.conversation.id"] != "t" || a["skein.run.id"] != "r" {
		t.Errorf("request is about %v", a)
	}
	if send.Trace != traceID || send.Parent != request.ID || !send.Failed {
		t.Errorf("records: %+v", send)
	}
	if roots := c.Spans("skein-test", "GET /root"); len(roots) != 2 || roots[0].Parent != "" || roots[0].Trace == roots[1].Trace {
		t.Errorf("requests without a trace: %+v", roots)
	}
}

// All processes know the span of a run by the run alone, and agents may send any times.
func TestTracer_SpansOfRunsAreLinked(t *testing.T) {
	c := tracetest.Start(t)
	tracer, _ := start(t, c.URL)
	far := time.Date(50000, 1, 1, 0, 0, 0, 0, time.UTC)
	parent := &record.Run{Tenant: "acme", ThreadID: "t", RunID: "parent", Agent: "shop", Status: record.StatusFinished,
		Traceparent: traceparent, StartedAt: far, EndedAt: new(time.Time{})}
	child := &record.Run{Tenant: "acme", ThreadID: "t", RunID: "child", Lineage: record.Lineage{ParentRunID: "parent"},
		Status: record.StatusError, StartedAt: time.Now()}
	tracer.Transaction(time.Now(), []trace.Ended{{Run: parent}, {Run: child, ParentTraceparent: traceparent}})
	tracer.Transaction(time.Now(), nil)
	tracer.Block(time.Now(), append(slices.Repeat([]*record.Run{child}, 200), parent)[100:])
	tracer.Block(time.Now(), nil)
	if err := tracer.Close(); err != nil {
		t.Fatal(err)
	}
	p, k := one(t, c, "invoke_agent shop"), one(t, c, "invoke_agent")
	if p.Trace != traceID || p.Parent != "00f067aa0ba902b7" || p.Failed || p.Links != nil || p.Attributes["gen_ai.conversation.id"] != "t" {
		t.Errorf("parent: %+v", p)
	}
	if k.Trace == traceID || k.Parent != "" || !k.Failed || !slices.Equal(k.Links, []string{p.Place()}) {
		t.Errorf("child: %+v", k)
	}
	if commit := one(t, c, "commit"); !slices.Equal(commit.Links, []string{p.Place(), k.Place()}) {
		t.Errorf("transaction: %+v", commit)
	}
	if block := one(t, c, "index"); len(block.Links) != 101 || block.Links[0] != k.Place() || block.Links[100] != p.Place() {
		t.Errorf("block: %+v", block)
	}
}

// Nothing waits for a collector that hangs, the spans that find no room are dropped, and the log says it once.
func TestTracer_WaitsForNoCollector(t *testing.T) {
	t.Setenv("OTEL_BSP_SCHEDULE_DELAY", "10")
	t.Setenv("OTEL_BSP_EXPORT_TIMEOUT", "100")
	hold := make(chan struct{})
	collector := httptest.NewServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) { <-hold }))
	t.Cleanup(collector.Close)
	t.Cleanup(func() { close(hold) })
	tracer, log := start(t, collector.URL)
	began := time.Now()
	for range 10_000 {
		tracer.Produce("", "skein.events")(1, nil)
	}
	if took := time.Since(began); took > 5*time.Second {
		t.Errorf("10,000 spans took %v", took)
	}
	began = time.Now()
	if err := tracer.Close(); err != nil {
		t.Error(err)
	}
	if took := time.Since(began); took > 2*time.Second {
		t.Errorf("stopping took %v", took)
	}
	if n := strings.Count(log.String(), "takes no spans"); n != 1 {
		t.Errorf("logged %d times: %s", n, log)
	}
}

func TestNew_ReadsTheEnvironment(t *testing.T) {
	const endpoint, traces, protocol = "OTEL_EXPORTER_OTLP_ENDPOINT", "OTEL_EXPORTER_OTLP_TRACES_ENDPOINT", "OTEL_EXPORTER_OTLP_PROTOCOL"
	for name, c := range map[string]struct {
		environ map[string]string
		on      bool
		err     string
	}{
		"nothing":                    {},
		"an endpoint":                {map[string]string{endpoint: "http://localhost:4318"}, true, ""},
		"one for traces":             {map[string]string{traces: "https://localhost/otlp", protocol: "http/protobuf"}, true, ""},
		"turned off":                 {map[string]string{endpoint: "http://localhost:4318", "OTEL_SDK_DISABLED": "true"}, false, ""},
		"traces turned off":          {map[string]string{endpoint: "http://localhost:4318", "OTEL_TRACES_EXPORTER": "none"}, false, ""},
		"an endpoint without scheme": {map[string]string{endpoint: "localhost:4318"}, false, "is no URL: write it such as http://collector:4318"},
		"gRPC":                       {map[string]string{endpoint: "http://localhost:4317", protocol: "grpc"}, false, "set http/protobuf"},
		"attributes that are none": {map[string]string{endpoint: "http://localhost:4318", "OTEL_RESOURCE_ATTRIBUTES": "a"}, false,
			"OTEL_RESOURCE_ATTRIBUTES"},
	} {
		t.Run(name, func(t *testing.T) {
			for _, v := range []string{endpoint, traces, protocol} {
				t.Setenv(v, "")
			}
			for k, v := range c.environ {
				t.Setenv(k, v)
			}
			tracer, err := trace.New(t.Context(), "skein-test", "1", slog.New(slog.DiscardHandler))
			if (tracer != nil) != c.on || (err == nil) != (c.err == "") || err != nil && !strings.Contains(err.Error(), c.err) {
				t.Errorf("got %v, %v", tracer, err)
			}
			if err := tracer.Close(); err != nil {
				t.Error(err)
			}
		})
	}
}

func TestTracer_CostsNothingWhereThereIsNone(t *testing.T) {
	var tracer *trace.Tracer
	r := httptest.NewRequest(http.MethodGet, "/", nil)
	r.Header.Set("traceparent", traceparent)
	runs := []trace.Ended{{}}
	if n := testing.AllocsPerRun(100, func() {
		tracer.Request(r, "/")(http.StatusOK, trace.About{})
		tracer.Produce(traceparent, "skein.events")(1, nil)
		tracer.Transaction(time.Time{}, runs)
		tracer.Block(time.Time{}, nil)
	}); n != 0 || r.Header.Get("traceparent") != traceparent {
		t.Errorf("%v allocations, and the request's trace context is %q", n, r.Header.Get("traceparent"))
	}
}
