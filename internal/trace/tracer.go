package trace

import (
	"context"
	"fmt"
	"log/slog"
	"net/url"
	"os"
	"time"

	"go.opentelemetry.io/otel"
	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/exporters/otlp/otlptrace/otlptracehttp"
	"go.opentelemetry.io/otel/sdk/resource"
	sdktrace "go.opentelemetry.io/otel/sdk/trace"
	oteltrace "go.opentelemetry.io/otel/trace"
)

// Tracer makes spans; a nil Tracer makes none. Its methods never wait for the collector: a queue holds up to 2,048 spans
// (OTEL_BSP_MAX_QUEUE_SIZE), and further ones are dropped.
type Tracer struct {
	provider *sdktrace.TracerProvider
	tracer   oteltrace.Tracer
}

// New returns the tracer of a process by OpenTelemetry's environment variables: nil unless they name an endpoint. An error is about a
// variable.
func New(ctx context.Context, service, version string, logger *slog.Logger) (*Tracer, error) {
	name, endpoint := ofTraces("ENDPOINT")
	if endpoint == "" || os.Getenv("OTEL_SDK_DISABLED") == "true" || os.Getenv("OTEL_TRACES_EXPORTER") == "none" {
		return nil, nil
	}
	if u, err := url.Parse(endpoint); err != nil || u.Host == "" || u.Scheme != "http" && u.Scheme != "https" {
		return nil, fmt.Errorf("checking %s: %.200q is no URL: write it such as http://collector:4318", name, endpoint)
	}
	if name, protocol := ofTraces("PROTOCOL"); protocol != "" && protocol != "http/protobuf" {
		return nil, fmt.Errorf("checking %s: %.40q is not supported: set http/protobuf, and the endpoint with the collector's port for it, "+
			"which is 4318 as a rule", name, protocol)
	}
	otel.SetErrorHandler(otel.ErrorHandlerFunc(func(err error) { logger.Warn("a setting of tracing was ignored", "error", err) }))
	about, err := resource.New(ctx, resource.WithTelemetrySDK(),
		resource.WithAttributes(attribute.String("service.name", service), attribute.String("service.version", version)),
		resource.WithFromEnv())
	if err != nil {
		return nil, fmt.Errorf("checking OTEL_RESOURCE_ATTRIBUTES: %w", err)
	}
	client, err := otlptracehttp.New(ctx)
	if err != nil {
		return nil, fmt.Errorf("checking OTEL_EXPORTER_OTLP_…: %w", err)
	}
	provider := sdktrace.NewTracerProvider(sdktrace.WithResource(about), sdktrace.WithIDGenerator(ids{}),
		sdktrace.WithBatcher(&exporter{SpanExporter: client, logger: logger}))
	return &Tracer{provider, provider.Tracer("github.com/skeinhq/skein")}, nil
}

// ofTraces returns one of OpenTelemetry's variables for the exporter and its value: that for traces, else that for all signals.
func ofTraces(what string) (name, value string) {
	for _, prefix := range []string{"OTEL_EXPORTER_OTLP_TRACES_", "OTEL_EXPORTER_OTLP_"} {
		if name = prefix + what; os.Getenv(name) != "" {
			break
		}
	}
	return name, os.Getenv(name)
}

// closeTimeout is how long Close waits for the collector.
const closeTimeout = time.Second

// Close exports what is queued, for a second at most, and drops the rest. It always returns nil.
func (t *Tracer) Close() error {
	if t == nil {
		return nil
	}
	ctx, cancel := context.WithTimeout(context.Background(), closeTimeout)
	defer cancel()
	_ = t.provider.Shutdown(ctx) // the exporter has logged it
	return nil
}

// exporter logs when spans are dropped for the first time, and when the collector takes them again.
type exporter struct {
	sdktrace.SpanExporter
	logger  *slog.Logger
	failing bool // ExportSpans is not called twice at once
}

func (e *exporter) ExportSpans(ctx context.Context, spans []sdktrace.ReadOnlySpan) error {
	err := e.SpanExporter.ExportSpans(ctx, spans)
	switch {
	case err != nil && !e.failing:
		e.logger.Warn("the collector takes no spans: they are dropped until it does", "error", err)
	case err == nil && e.failing:
		e.logger.Info("the collector takes spans again")
	}
	e.failing = err != nil
	return nil
}
