package trace

import (
	"context"
	"crypto/sha256"
	"encoding/binary"
	"math/rand/v2"
	"net/http"
	"time"

	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/codes"
	"go.opentelemetry.io/otel/propagation"
	oteltrace "go.opentelemetry.io/otel/trace"

	"github.com/skeinhq/skein/pkg/record"
)

// About is what a request is about, as far as it is known.
type About struct{ Tenant, Thread, Run string }

func (a About) attributes() (list []attribute.KeyValue) {
	for _, of := range [][2]string{{"skein.tenant", a.Tenant}, {"gen_ai.conversation.id", a.Thread}, {"skein.run.id", a.Run}} {
		if of[1] != "" {
			list = append(list, attribute.String(of[0], of[1]))
		}
	}
	return list
}

// Request begins the span of a request to a route and makes it the request's trace context (record.HeaderTraceparent). Call end with the
// response's status.
func (t *Tracer) Request(r *http.Request, route string) (end func(status int, about About)) {
	if t == nil {
		return func(int, About) {}
	}
	carrier := propagation.HeaderCarrier(r.Header)
	carrier.Set(record.HeaderTraceparent, record.Traceparent(carrier.Get(record.HeaderTraceparent)))
	ctx, span := t.tracer.Start(propagation.TraceContext{}.Extract(context.Background(), carrier), r.Method+" "+route,
		oteltrace.WithSpanKind(oteltrace.SpanKindServer),
		oteltrace.WithAttributes(attribute.String("http.request.method", r.Method), attribute.String("http.route", route)))
	propagation.TraceContext{}.Inject(ctx, carrier)
	return func(status int, about About) {
		span.SetAttributes(append(about.attributes(), attribute.Int("http.response.status_code", status))...)
		if status >= http.StatusInternalServerError {
			span.SetStatus(codes.Error, "")
		}
		span.End()
	}
}

// Produce begins the span of the records that a request with this trace context writes to a topic. Call end with the number of
// acknowledged ones.
func (t *Tracer) Produce(traceparent, topic string) (end func(records int, err error)) {
	if t == nil {
		return func(int, error) {}
	}
	_, span := t.tracer.Start(under(traceparent), "send "+topic, oteltrace.WithSpanKind(oteltrace.SpanKindProducer),
		oteltrace.WithAttributes(attribute.String("messaging.system", "kafka"), attribute.String("messaging.operation.type", "send"),
			attribute.String("messaging.destination.name", topic)))
	return func(records int, err error) {
		span.SetAttributes(attribute.Int("messaging.batch.message_count", records))
		if err != nil {
			span.SetStatus(codes.Error, err.Error())
		}
		span.End()
	}
}

// Ended is a run that has ended.
type Ended struct {
	*record.Run
	// ParentTraceparent is the trace context of the parent run.
	ParentTraceparent string
}

// Transaction makes the spans of the runs whose ends a transaction has written, and that of the transaction, if there are any.
func (t *Tracer) Transaction(began time.Time, runs []Ended) {
	if t == nil || len(runs) == 0 {
		return
	}
	links := make([]oteltrace.Link, len(runs))
	for i, r := range runs {
		links[i] = oteltrace.Link{SpanContext: spanOf(r.Run, r.RunID, r.Traceparent)}
		t.run(r)
	}
	t.linked("commit", oteltrace.SpanKindInternal, began, links)
}

// run makes the span of a run. Agents' clocks set its times.
func (t *Tracer) run(r Ended) {
	at := spanOf(r.Run, r.RunID, r.Traceparent)
	name := "invoke_agent"
	attributes := append(About{r.Tenant, r.ThreadID, r.RunID}.attributes(),
		attribute.String("gen_ai.operation.name", name), attribute.String("skein.run.status", string(r.Status)))
	if r.Agent != "" {
		name += " " + r.Agent
		attributes = append(attributes, attribute.String("gen_ai.agent.name", r.Agent))
	}
	start := within(r.StartedAt)
	end := start
	if r.EndedAt != nil && within(*r.EndedAt).After(start) {
		end = within(*r.EndedAt)
	}
	options := []oteltrace.SpanStartOption{oteltrace.WithTimestamp(start), oteltrace.WithAttributes(attributes...)}
	if r.ParentRunID != "" {
		parent := spanOf(r.Run, r.ParentRunID, r.ParentTraceparent)
		options = append(options, oteltrace.WithLinks(oteltrace.Link{SpanContext: parent, Attributes: []attribute.KeyValue{
			attribute.String("skein.run.id", r.ParentRunID)}}))
	}
	_, span := t.tracer.Start(context.WithValue(under(r.Traceparent), identity{}, at), name, options...)
	if r.Status == record.StatusError {
		span.SetStatus(codes.Error, "")
	}
	span.End(oteltrace.WithTimestamp(end))
}

// mostLinks is how many links OpenTelemetry lets a span have by default.
const mostLinks = 128

// Block makes the span of a block of run records that the indexer has written since a time, if there are any.
func (t *Tracer) Block(began time.Time, runs []*record.Run) {
	if t == nil || len(runs) == 0 {
		return
	}
	links := make([]oteltrace.Link, 0, mostLinks)
	for _, r := range runs[:min(len(runs), mostLinks)] {
		links = append(links, oteltrace.Link{SpanContext: spanOf(r, r.RunID, r.Traceparent)})
	}
	t.linked("index", oteltrace.SpanKindConsumer, began, links, attribute.Int("messaging.batch.message_count", len(runs)))
}

// linked makes a span of a trace of its own that has ended now.
func (t *Tracer) linked(name string, kind oteltrace.SpanKind, began time.Time, links []oteltrace.Link, about ...attribute.KeyValue) {
	_, span := t.tracer.Start(context.Background(), name, oteltrace.WithSpanKind(kind), oteltrace.WithTimestamp(began),
		oteltrace.WithLinks(links...), oteltrace.WithAttributes(about...))
	span.End()
}

// under returns a context in which a span begins as a child of a trace context, or as a root if that is "".
func under(traceparent string) context.Context {
	return propagation.TraceContext{}.Extract(context.Background(), propagation.MapCarrier{record.HeaderTraceparent: traceparent})
}

// spanOf returns the context of a run's span: of the trace that the run belongs to, else of one of its own. The run is one of the thread of
// the argument of.
func spanOf(of *record.Run, run, traceparent string) oteltrace.SpanContext {
	sum := sha256.Sum256([]byte(of.Tenant + "\x00" + of.ThreadID + "\x00" + run))
	at := oteltrace.SpanContextFromContext(under(traceparent))
	if !at.IsValid() {
		at = at.WithTraceID(oteltrace.TraceID(sum[8:24])).WithTraceFlags(oteltrace.FlagsSampled)
	}
	return at.WithSpanID(oteltrace.SpanID(sum[:8])).WithRemote(true)
}

// within returns the time that is nearest to t of those that OTLP can express.
func within(t time.Time) time.Time {
	return record.ClampTime(t, time.Unix(0, 0), time.Unix(0, 1<<63-1))
}

// ids makes the ids of spans: that of a run's span comes with the context.
type ids struct{}

// identity is the key of an oteltrace.SpanContext in a context.
type identity struct{}

func (ids) NewIDs(ctx context.Context) (trace oteltrace.TraceID, span oteltrace.SpanID) {
	if at, ok := ctx.Value(identity{}).(oteltrace.SpanContext); ok {
		return at.TraceID(), at.SpanID()
	}
	binary.NativeEndian.PutUint64(trace[:8], rand.Uint64())
	binary.NativeEndian.PutUint64(trace[8:], rand.Uint64()|1) // not all zero
	return trace, ids{}.NewSpanID(ctx, trace)
}

func (ids) NewSpanID(ctx context.Context, _ oteltrace.TraceID) (span oteltrace.SpanID) {
	if at, ok := ctx.Value(identity{}).(oteltrace.SpanContext); ok {
		return at.SpanID()
	}
	binary.NativeEndian.PutUint64(span[:], rand.Uint64()|1)
	return span
}
