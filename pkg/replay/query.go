package replay

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/skeinhq/skein/pkg/agui"
	"github.com/skeinhq/skein/pkg/fold"
	"github.com/skeinhq/skein/pkg/kafka"
	"github.com/skeinhq/skein/pkg/record"
)

// Query selects records of skein.events, both events and inputs, including repeats.
type Query struct {
	// Tenant is the owner of the records; empty selects those of all tenants, and those whose key names no tenant.
	Tenant string
	// Thread is a thread of the tenant, and Run one of its runs; empty selects all.
	Thread, Run string
	// Range limits the offsets. If it has a position, only the position's partition is selected.
	Range record.Range
	// Types are the types of event; an empty list selects all, and inputs.
	Types []agui.Type
}

// selection decides which records a query selects.
type selection struct {
	Query
	thread string // its key; empty is any
	tenant string // the prefix of the keys of the tenant's threads
	erased map[string]int64
	// runs are the thread's runs if the query names a run.
	runs *fold.Table[*fold.Metadata]
	// decided is, by partition, the offset in skein.events up to which erased has all erasures.
	decided map[int32]int64
	decoded fold.Decoded
	raw     record.Raw // of the run, if the query names one
}

func newSelection(q Query) (*selection, error) {
	s := &selection{Query: q, erased: map[string]int64{}, decided: map[int32]int64{}}
	if q.Tenant == "" {
		if q.Thread != "" {
			return nil, fmt.Errorf("%w: a thread is somebody's", ErrQuery)
		}
		return s, nil
	}
	key, err := record.ThreadKey(q.Tenant, "any")
	if err != nil {
		return nil, fmt.Errorf("%w: %w", ErrQuery, err)
	}
	s.tenant = strings.TrimSuffix(key, "any")
	if q.Thread != "" {
		if s.thread, err = record.ThreadKey(q.Tenant, q.Thread); err != nil {
			return nil, fmt.Errorf("%w: %w", ErrQuery, err)
		}
	}
	return s, nil
}

// spans returns the offsets of the selected records among those that the topic has.
func (s *selection) spans(ctx context.Context, adm *kadm.Client, topic string) (map[int32]kafka.Span, error) {
	spans, err := kafka.Spans(ctx, adm, topic)
	if err != nil {
		return nil, err
	}
	if s.thread != "" {
		own := record.Partition([]byte(s.thread), int32(len(spans)))
		maps.DeleteFunc(spans, func(p int32, _ kafka.Span) bool { return p != own })
	}
	from, err := s.offsets(ctx, adm, topic, s.Range.From, spans, func(span kafka.Span) int64 { return span.Start })
	if err != nil {
		return nil, err
	}
	to, err := s.offsets(ctx, adm, topic, s.Range.To, spans, func(span kafka.Span) int64 { return span.End })
	if err != nil {
		return nil, err
	}
	for p, span := range spans {
		first, one := from[p]
		last, other := to[p]
		switch {
		case !one || !other:
			delete(spans, p)
		case s.Range.From.Position != nil && first < span.Start:
			return nil, fmt.Errorf("%w: %s is older than what %s keeps, which begins at %s", ErrGone, s.Range.From, topic,
				record.Position{Partition: p, Offset: span.Start})
		default:
			spans[p] = kafka.Span{Start: min(max(first, span.Start), span.End), End: min(last, span.End)}
		}
	}
	return spans, nil
}

// offsets resolves a point to an offset in each partition that has it. For the zero point it calls the argument none.
func (s *selection) offsets(ctx context.Context, adm *kadm.Client, topic string, at record.Point, spans map[int32]kafka.Span,
	none func(kafka.Span) int64) (map[int32]int64, error) {
	out := make(map[int32]int64, len(spans))
	switch {
	case !at.At.IsZero():
		return kafka.OffsetsAt(ctx, adm, topic, at.At)
	case at.Position != nil:
		if _, ok := spans[at.Position.Partition]; !ok {
			return nil, fmt.Errorf("%w: %s lies on partition %d, and what is asked for on %s", ErrQuery, at, at.Position.Partition,
				partitions(spans))
		}
		out[at.Position.Partition] = at.Position.Offset
		return out, nil
	}
	for p, span := range spans {
		switch {
		case at.Start:
			out[p] = span.Start
		case at.End:
			out[p] = span.End
		default:
			out[p] = none(span)
		}
	}
	return out, nil
}

func partitions(spans map[int32]kafka.Span) string {
	all := slices.Sorted(maps.Keys(spans))
	if len(all) == 1 {
		return fmt.Sprint(all[0])
	}
	return fmt.Sprintf("%d to %d", all[0], all[len(all)-1])
}

// records reads from skein.runs which threads were erased and, if the query names a run, the offsets of its thread's
// runs.
func (s *selection) records(ctx context.Context, cfg kafka.Config, spans map[int32]kafka.Span, progress func(done, total int)) error {
	total, done := 0, 0
	for _, span := range spans {
		total += int(span.End - span.Start)
	}
	runs := map[string]*record.Run{}
	for m, err := range kafka.Scan(ctx, cfg, cfg.Topics().Runs, spans) {
		if err != nil {
			return err
		}
		if done++; done%scanTold == 0 || done == total {
			progress(done, total)
		}
		if err := s.learn(m, runs); err != nil {
			return fmt.Errorf("reading %d:%d of %s: %w", m.Partition, m.Offset, m.Topic, err)
		}
	}
	if s.Run == "" {
		return nil
	}
	known := false
	for _, r := range runs {
		if r.RunID == s.Run {
			known, s.raw = true, r.Raw
		}
	}
	if !known {
		return fmt.Errorf("run %q of thread %q: %w, or no record tells of it yet", s.Run, s.Thread, ErrNoRun)
	}
	s.runs = fold.TableOf(slices.Collect(maps.Values(runs)))
	return nil
}

func (s *selection) learn(m *kgo.Record, runs map[string]*record.Run) error {
	headers, err := record.ParseHeaders(m.Headers)
	if err != nil {
		return err
	}
	key := string(m.Key)
	switch headers.Kind {
	case record.KindProgress:
		p, err := record.DecodeProgress(m.Value)
		if err != nil {
			return err
		}
		s.decided[m.Partition] = max(s.decided[m.Partition], p.Next)
	case record.KindErase:
		if len(m.Value) == 0 {
			return nil
		}
		below, err := record.DecodeErased(m.Value)
		if err != nil {
			return err
		}
		s.erased[key] = max(s.erased[key], below)
	case record.KindRun:
		if s.Run == "" || !strings.HasPrefix(key, s.thread+"/") {
			return nil
		}
		if len(m.Value) == 0 {
			delete(runs, key)
			return nil
		}
		if runs[key], err = record.DecodeRun(m.Value); err != nil {
			return err
		}
	}
	return nil
}

// erasures reads the erasures in skein.events that skein.runs does not have yet. It may be called again for later ones.
func (s *selection) erasures(ctx context.Context, cfg kafka.Config, spans map[int32]kafka.Span) error {
	rest := map[int32]kafka.Span{}
	for p, span := range spans {
		rest[p] = kafka.Span{Start: max(s.decided[p], span.Start), End: span.End}
	}
	for m, err := range kafka.Scan(ctx, cfg, cfg.Topics().Events, rest) {
		if err != nil {
			return err
		}
		if headers, err := record.ParseHeaders(m.Headers); err == nil && headers.Kind == record.KindErase {
			s.erased[string(m.Key)] = max(s.erased[string(m.Key)], m.Offset)
		}
	}
	for p, span := range rest {
		s.decided[p] = max(s.decided[p], span.End)
	}
	return nil
}

// takes reports whether a record is selected (taken), or would be selected if it were not erased (erased).
func (s *selection) takes(m *kgo.Record) (taken, erased bool, err error) {
	key := string(m.Key)
	if s.thread != "" && key != s.thread || !strings.HasPrefix(key, s.tenant) {
		return false, false, nil
	}
	e, ok, err := kafka.RunEvent(m, &s.decoded.Headers, nil)
	if !ok {
		return false, false, err
	}
	s.decoded.Reset(&e)
	if !s.ofRun() || !s.ofType() {
		return false, false, nil
	}
	erased = m.Offset < s.erased[key]
	return !erased, erased, nil
}

func (s *selection) ofRun() bool {
	if s.runs == nil {
		return true
	}
	run := s.runs.Of(&s.decoded)
	if run == nil || run.ID != s.Run {
		return false
	}
	return s.raw.Has(s.decoded.Offset) || s.decoded.Offset >= run.Next && !run.Sealed
}

func (s *selection) ofType() bool {
	if len(s.Types) == 0 {
		return true
	}
	ev := s.decoded.Payload()
	return ev != nil && slices.Contains(s.Types, ev.Type)
}
