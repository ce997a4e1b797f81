// Package tracetest is an OpenTelemetry collector for tests: it takes spans by OTLP over HTTP and keeps them.
package tracetest

import (
	"compress/gzip"
	"encoding/hex"
	"io"
	"net/http"
	"net/http/httptest"
	"slices"
	"sync"
	"testing"

	collector "go.opentelemetry.io/proto/otlp/collector/trace/v1"
	"google.golang.org/protobuf/proto"
)

// Span is a span with what tests look at. Ids are in hexadecimal digits.
type Span struct {
	// Service is the service.name of its process.
	Service, Name     string
	Trace, ID, Parent string
	// Links are the spans that it links to, as trace id and span id with a dash between.
	Links []string
	// Attributes are those that are texts.
	Attributes map[string]string
	Failed     bool
}

// Place returns the span as others link to it.
func (s Span) Place() string { return s.Trace + "-" + s.ID }

// Collector is a running collector.
type Collector struct {
	URL   string
	mu    sync.Mutex
	spans []Span
}

// Start starts a collector.
func Start(tb testing.TB) *Collector {
	c := new(Collector)
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.Method != http.MethodPost || r.URL.Path != "/v1/traces" || r.Header.Get("Content-Type") != "application/x-protobuf" {
			tb.Errorf("%s %s with %s is no export of spans", r.Method, r.URL, r.Header.Get("Content-Type"))
		}
		if err := c.take(r); err != nil {
			tb.Errorf("reading spans: %v", err)
			w.WriteHeader(http.StatusBadRequest)
		}
	}))
	tb.Cleanup(server.Close)
	c.URL = server.URL
	return c
}

func (c *Collector) take(r *http.Request) (err error) {
	body := io.Reader(r.Body)
	if r.Header.Get("Content-Encoding") == "gzip" {
		if body, err = gzip.NewReader(body); err != nil {
			return err
		}
	}
	b, err := io.ReadAll(body)
	if err != nil {
		return err
	}
	var request collector.ExportTraceServiceRequest
	if err := proto.Unmarshal(b, &request); err != nil {
		return err
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, of := range request.ResourceSpans {
		service := ""
		for _, a := range of.Resource.Attributes {
			if a.Key == "service.name" {
				service = a.Value.GetStringValue()
			}
		}
		for _, scope := range of.ScopeSpans {
			for _, s := range scope.Spans {
				span := Span{Service: service, Name: s.Name, Trace: hex.EncodeToString(s.TraceId), ID: hex.EncodeToString(s.SpanId),
					Parent: hex.EncodeToString(s.ParentSpanId), Attributes: map[string]string{}, Failed: s.Status.GetCode() == 2}
				for _, l := range s.Links {
					span.Links = append(span.Links, hex.EncodeToString(l.TraceId)+"-"+hex.EncodeToString(l.SpanId))
				}
				for _, a := range s.Attributes {
					span.Attributes[a.Key] = a.Value.GetStringValue()
				}
				c.spans = append(c.spans, span)
			}
		}
	}
	return nil
}

// Spans returns the spans of a service and a name that have come.
func (c *Collector) Spans(service, name string) (spans []Span) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, s := range c.spans {
		if s.Service == service && s.Name == name {
			spans = append(spans, s)
		}
	}
	return slices.Clone(spans)
}
