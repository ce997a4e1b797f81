package adopt

import (
	"bytes"
	"cmp"
	"context"
	"fmt"
	"maps"
	"slices"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/skeinhq/skein/pkg/kafka"
	"github.com/skeinhq/skein/pkg/record"
	"github.com/skeinhq/skein/pkg/verify"
)

// part is what was read of one partition.
type part struct {
	id       int32
	events   kafka.Span
	progress *record.Progress // the last one; nil if there is none
	// claimed is the offset of skein.events below which records name events.
	claimed int64
	// ahead are the run records with events that the mirror lacks, by key; recent are the latest of the others.
	recent, ahead map[string]*runRecord
	// erasing is the key of a thread that has lost runs since the last progress record, and whose erasure did not end; else empty.
	erasing string
	// chosen are the keys of threads whose records are all kept, in whole: a run starts from those before it. It is nil in a first read.
	chosen map[string]bool
	whole  map[string]*runRecord
	proved int
	epoch  int64
}

type runRecord struct {
	*kgo.Record
	run *record.Run
}

const (
	// keptRecords is how many of the latest run records of a partition are kept, and checkedRuns how many of them are proved at most. If
	// none can be, all records of chosenThreads are read.
	keptRecords, checkedRuns, chosenThreads = 256, 32, 4
	// checkedSpan limits how many events are read to prove them.
	checkedSpan = 100_000
	// lastSpan is the span at the end of a partition in which its last event is looked for.
	lastSpan = 1000
	// slack is more than clocks differ: records that name missing events were not written so long before the last mirrored event.
	slack = 15 * time.Minute
)

// read reads what was written to skein.runs since shortly before the last mirrored events, and proves run records by events. If that does
// not suffice for a partition, it reads all of the partition.
func (g *adoption) read(ctx context.Context) error {
	spans, err := g.recently(ctx)
	if err != nil {
		return err
	}
	g.parts = map[int32]*part{}
	chosen := map[int32]map[string]bool{}
	for len(spans) > 0 {
		for id := range spans {
			g.parts[id] = &part{
				id: id, events: g.events[id], chosen: chosen[id],
				recent: map[string]*runRecord{}, ahead: map[string]*runRecord{}, whole: map[string]*runRecord{},
			}
		}
		if err := g.readRuns(ctx, spans); err != nil {
			return err
		}
		again := map[int32]kafka.Span{}
		for id := range spans {
			p := g.parts[id]
			proves, err := g.prove(ctx, p)
			switch {
			case err != nil:
				return err
			case (p.progress == nil || !proves) && p.chosen == nil:
				again[id], chosen[id] = g.runs[id], map[string]bool{}
				for _, r := range slices.SortedFunc(maps.Values(p.recent), later) {
					if len(chosen[id]) < chosenThreads {
						chosen[id][r.thread()] = true
					}
				}
			case p.erasing != "":
				return fmt.Errorf("partition %d: thread %s: %w", id, p.erasing, ErrErasing)
			case !proves:
				return fmt.Errorf("partition %d: no run record is proved: %w", id, ErrOffsets)
			case p.claimed > p.events.End+g.Lost:
				return fmt.Errorf("partition %d: skein.runs names events up to %d, and the mirror has those up to %d: it lacks more than --lost %d",
					id, p.claimed, p.events.End, g.Lost)
			}
		}
		spans = again
	}
	return nil
}

// recently returns the offsets of skein.runs since shortly before the last event of each partition.
func (g *adoption) recently(ctx context.Context) (map[int32]kafka.Span, error) {
	ends := map[int32]kafka.Span{}
	for id, span := range g.events {
		ends[id] = kafka.Span{Start: max(span.Start, span.End-lastSpan), End: span.End}
	}
	last := map[int32]time.Time{}
	for m, err := range kafka.Scan(ctx, g.Kafka, g.topics.Events, ends) {
		if err != nil {
			return nil, fmt.Errorf("reading the last events: %w", err)
		}
		last[m.Partition] = m.Timestamp
	}
	spans := maps.Clone(g.runs)
	for id, at := range last {
		offsets, err := kafka.OffsetsAt(ctx, g.adm, g.topics.Runs, at.Add(-slack))
		if err != nil {
			return nil, err
		}
		spans[id] = kafka.Span{Start: min(max(offsets[id], spans[id].Start), spans[id].End), End: spans[id].End}
	}
	return spans, nil
}

func (g *adoption) readRuns(ctx context.Context, spans map[int32]kafka.Span) error {
	total, done := 0, 0
	for _, span := range spans {
		total += int(span.End - span.Start)
	}
	for m, err := range kafka.Scan(ctx, g.Kafka, g.topics.Runs, spans) {
		if err == nil {
			err = g.parts[m.Partition].take(m)
		}
		if err != nil {
			return fmt.Errorf("reading %s: %w", g.topics.Runs, err)
		}
		if done++; done%1000 == 0 && g.Progress != nil {
			g.Progress("reading run records", done, total)
		}
	}
	return nil
}

// take notes a record of skein.runs.
func (p *part) take(m *kgo.Record) error {
	headers, err := kafka.ParseHeaders(m.Headers)
	if err != nil {
		return fmt.Errorf("record %d:%d: %w", m.Partition, m.Offset, err)
	}
	switch headers.Kind {
	case record.KindProgress:
		progress, err := record.DecodeProgress(m.Value)
		if err != nil {
			return fmt.Errorf("record %d:%d: %w", m.Partition, m.Offset, err)
		}
		p.progress, p.claimed, p.erasing = &progress, max(p.claimed, progress.Next, progress.Processed), ""
	case record.KindErase:
		below, err := record.DecodeErased(m.Value)
		if err != nil {
			return fmt.Errorf("record %d:%d: %w", m.Partition, m.Offset, err)
		}
		p.claimed, p.erasing = max(p.claimed, below), ""
	case record.KindRun:
		key := string(m.Key)
		delete(p.ahead, key)
		delete(p.recent, key)
		delete(p.whole, key)
		if len(m.Value) == 0 {
			p.erasing = string(m.Key[:bytes.LastIndexByte(m.Key, '/')])
			return nil
		}
		run, err := record.DecodeRun(m.Value)
		if err != nil {
			return fmt.Errorf("run record %d:%d: %w", m.Partition, m.Offset, err)
		}
		r := &runRecord{m, run}
		p.claimed = max(p.claimed, nextOf(run))
		if nextOf(run) > p.events.End {
			p.ahead[key] = r
			return nil
		}
		if p.chosen[r.thread()] {
			p.whole[key] = r
			return nil
		}
		p.recent[key] = r
		if len(p.recent) > 2*keptRecords {
			for _, old := range slices.SortedFunc(maps.Values(p.recent), later)[keptRecords:] {
				delete(p.recent, string(old.Key))
			}
		}
	}
	return nil
}

// thread returns the key of the run's thread.
func (r *runRecord) thread() string { return string(r.Key[:bytes.LastIndexByte(r.Key, '/')]) }

func later(a, b *runRecord) int { return cmp.Compare(b.Offset, a.Offset) }

// nextOf returns the offset after the last event that a run's record names: one that only announces the run names its first event.
func nextOf(r *record.Run) int64 {
	next := max(r.Raw.Next, r.Raw.First+1)
	if r.LateError != nil {
		next = max(next, r.LateError.Offset+1)
	}
	return next
}

// prove proves the partition's latest run records by the mirrored events. It reports whether any was proved, or nothing had to be: without
// events, no event is at a wrong offset. It returns ErrOffsets if one differs.
func (g *adoption) prove(ctx context.Context, p *part) (bool, error) {
	threads, wanted := map[string][]*record.Run{}, map[string][]string{}
	span, held, chosen := kafka.Span{Start: p.events.End, End: p.events.End}, len(p.ahead) > 0, 0
	all := append(slices.SortedFunc(maps.Values(p.whole), later), slices.SortedFunc(maps.Values(p.recent), later)...)
	for _, r := range slices.AppendSeq(all, maps.Values(p.ahead)) {
		key := r.thread()
		threads[key] = append(threads[key], r.run)
		raw := r.run.Raw
		if p.ahead[string(r.Key)] != nil || r.run.RawLost || nextOf(r.run) <= p.events.Start { // or its events have expired
			continue
		}
		held = true
		if chosen < checkedRuns && raw.Events > 0 && raw.First >= max(p.events.Start, p.events.End-checkedSpan) {
			wanted[key] = append(wanted[key], r.run.RunID)
			chosen++
		}
	}
	folded := map[string]*verify.Thread{}
	for key, runs := range wanted {
		slices.SortFunc(threads[key], func(a, b *record.Run) int { return cmp.Compare(a.Raw.First, b.Raw.First) })
		t, err := verify.NewThread(threads[key], runs, [2]int64{p.events.Start, p.events.End}, verify.NewRecords(threads[key]))
		if err != nil {
			return false, err
		}
		folded[key] = t
		if ranges := t.Ranges(); len(ranges) > 0 { // those of parents that were open when they began, too
			span.Start = min(span.Start, ranges[0][0])
		}
	}
	for m, err := range kafka.Scan(ctx, g.Kafka, g.topics.Events, map[int32]kafka.Span{p.id: span}) {
		if err != nil {
			return false, fmt.Errorf("reading events: %w", err)
		}
		t := folded[string(m.Key)]
		if t == nil {
			continue
		}
		e, ok, err := kafka.RunEvent(m, t.Headers(), g.Kafka.IngestKeys)
		if ok {
			err = t.Take(e)
		}
		if err != nil {
			return false, err
		}
	}
	for key, t := range folded {
		reports, err := t.Reports()
		if err != nil {
			return false, err
		}
		for _, r := range reports {
			run := threads[key][slices.IndexFunc(threads[key], func(one *record.Run) bool { return one.RunID == r.RunID })]
			switch {
			case r.Raw == nil: // it started from a run that was not read
			case r.Raw.Events == run.Raw.Events && r.Raw.SHA256 == run.Raw.SHA256 && !slices.Contains(r.Differences, "raw.ranges"):
				p.proved++
			default:
				return false, fmt.Errorf("partition %d: run %q of thread %q, events %d to %d: %w", p.id, r.RunID, run.ThreadID, run.Raw.First,
					run.Raw.Next-1, ErrOffsets)
			}
		}
	}
	for i, r := range slices.SortedFunc(maps.Values(p.ahead), later) {
		if p.proved > 0 || i == checkedRuns {
			break
		}
		begins, err := g.begins(ctx, p, r)
		if err != nil {
			return false, err
		}
		if begins {
			p.proved++
		}
	}
	return p.proved > 0 || !held || p.events.Empty(), nil
}

// begins reports whether a run that the mirror lacks a part of begins where its record says: at an event of its thread that names the run.
func (g *adoption) begins(ctx context.Context, p *part, r *runRecord) (bool, error) {
	at := kafka.Span{Start: r.run.Raw.First, End: r.run.Raw.First + 1}
	if at.Start < p.events.Start || at.End > p.events.End {
		return false, nil
	}
	for m, err := range kafka.Scan(ctx, g.Kafka, g.topics.Events, map[int32]kafka.Span{p.id: at}) {
		if err != nil {
			return false, fmt.Errorf("reading events: %w", err)
		}
		id := cmp.Or(r.run.ClientRunID, r.run.RunID)
		headers, err := kafka.ParseHeaders(m.Headers)
		return err == nil && string(m.Key) == r.thread() && (headers.RunID == id || bytes.Contains(m.Value, []byte(id))), nil
	}
	return false, nil
}
