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

	"github.com/skeinhq/skein/pkg/agui"
	"github.com/skeinhq/skein/pkg/fold"
	"github.com/skeinhq/skein/pkg/kafka"
	"github.com/skeinhq/skein/pkg/record"
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
	proved  int
	epoch   int64
}

type runRecord struct {
	*kgo.Record
	run *record.Run
}

func (r *runRecord) String() string {
	return fmt.Sprintf("run %q of thread %q, events %d to %d", r.run.RunID, r.run.ThreadID, r.run.Raw.First, nextOf(r.run)-1)
}

// thread returns the key of the run's thread.
func (r *runRecord) thread() string { return string(r.Key[:bytes.LastIndexByte(r.Key, '/')]) }

const (
	// keptRecords is how many of the latest run records of a partition are kept, and checkedRuns how many of them are proved at most.
	keptRecords, checkedRuns = 64, 32
	// checkedSpan limits how many events are read to prove them.
	checkedSpan = 100_000
	// lastSpan is the span at the end of a partition in which its last event is looked for.
	lastSpan = 1000
	// beforeSpan is the span before the first event of an announced run in which an earlier one of the run is looked for.
	beforeSpan = 1000
	// slack is more than clocks differ: records that name missing events were not written so long before the last mirrored event.
	slack = 15 * time.Minute
)

// read reads what was written to skein.runs since shortly before the last mirrored events, and proves run records by events. If that does
// not suffice for a partition, it reads all of the partition. It proves nothing if the epoch was declared: new events may have come since.
func (g *adoption) read(ctx context.Context) error {
	spans, err := g.recently(ctx)
	if err != nil {
		return err
	}
	g.parts = map[int32]*part{}
	for whole := false; len(spans) > 0; whole = true {
		for id := range spans {
			g.parts[id] = &part{id: id, events: g.events[id], recent: map[string]*runRecord{}, ahead: map[string]*runRecord{}}
		}
		if err := g.readRuns(ctx, spans); err != nil {
			return err
		}
		declared, err := g.declared()
		if err != nil {
			return err
		}
		again := map[int32]kafka.Span{}
		for id := range spans {
			p := g.parts[id]
			if p.progress == nil && !whole {
				again[id] = g.runs[id]
				continue
			}
			if declared {
				continue
			}
			unproved, err := g.prove(ctx, p)
			switch {
			case err != nil:
				return err
			case p.proved == 0 && !whole:
				again[id] = g.runs[id]
			case p.erasing != "":
				return fmt.Errorf("partition %d: thread %s: %w", id, p.erasing, ErrErasing)
			case p.claimed > p.events.End+g.Lost:
				return fmt.Errorf("partition %d: skein.runs names events up to %d, and the mirror has those up to %d: it lacks more than --lost %d",
					id, p.claimed, p.events.End, g.Lost)
			case unproved != nil:
				return fmt.Errorf("partition %d: no run record is proved, such as that of %s: %w", id, unproved, ErrOffsets)
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
	headers, err := record.ParseHeaders(m.Headers)
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
		p.recent[key] = r
		if len(p.recent) > 2*keptRecords {
			latest := slices.SortedFunc(maps.Values(p.recent), func(a, b *runRecord) int { return cmp.Compare(b.Offset, a.Offset) })
			for _, old := range latest[keptRecords:] {
				delete(p.recent, string(old.Key))
			}
		}
	}
	return nil
}

// nextOf returns the offset after the last event that a run's record names: one that only announces the run names its first event.
func nextOf(r *record.Run) int64 {
	next := max(r.Raw.Next, r.Raw.First+1)
	if r.LateError != nil {
		next = max(next, r.LateError.Offset+1)
	}
	return next
}

// proof compares a run record with the mirrored events.
type proof struct {
	*runRecord
	// ends is how many of the ends of its ranges were found, of wantEnds that the mirror must have. Each is a record of the run. A record
	// without ranges only announces the run: its one end is the run's first record.
	ends, wantEnds int
	// begun is set by a record with the run's id before that one, and reset by an end: an earlier run may have had the id. After it, only
	// what begins a run counts, as late events do not.
	begun, over bool
	// outcomes and tally are of its events; nil if the mirror lacks some, or if its ranges have room for other runs' records.
	outcomes *fold.Outcomes
	tally    *fold.Tally
}

func (p *part) newProof(r *runRecord) *proof {
	c, raw := &proof{runRecord: r}, r.run.Raw
	for _, in := range raw.Ranges {
		for _, at := range []int64{in[0], in[1] - 1} {
			if at < p.events.End {
				c.wantEnds++
			}
		}
	}
	if len(raw.Ranges) == 0 {
		c.wantEnds = 1
	}
	if len(raw.Ranges) < record.MaxRanges && raw.Next <= p.events.End {
		c.outcomes, c.tally = fold.NewOutcomes(r.run), fold.NewTally()
	}
	return c
}

// take compares a record under the key of the run's thread.
func (c *proof) take(d *fold.Decoded) error {
	raw, runID := c.run.Raw, cmp.Or(c.run.ClientRunID, c.run.RunID)
	if len(raw.Ranges) == 0 {
		switch ev := d.Payload(); {
		case d.Offset > raw.First || d.ClientRunID() != runID || ev == nil && d.Input() == nil: // what is malformed begins no run
		case d.Offset < raw.First:
			c.over = ev != nil && (ev.Type.Terminal() || c.over && ev.Type != agui.RunStarted)
			c.begun = !c.over
		case !c.begun:
			c.ends++
		}
		return nil
	}
	i := slices.IndexFunc(raw.Ranges, func(in [2]int64) bool { return in[0] <= d.Offset && d.Offset < in[1] })
	if i < 0 {
		return nil
	}
	if id := d.Headers.RunID; id == "" || id == runID {
		for _, at := range []int64{raw.Ranges[i][0], raw.Ranges[i][1] - 1} {
			if at == d.Offset {
				c.ends++
			}
		}
	}
	if c.outcomes == nil {
		return nil
	}
	outcome, err := c.outcomes.Of(d)
	if ev := d.Payload(); err == nil && outcome == fold.Folded && ev != nil {
		c.tally.Add(ev, d.Time)
	}
	return err
}

func (c *proof) right() bool {
	return c.ends == c.wantEnds && (c.tally == nil || c.tally.Events == c.run.Raw.Events && c.tally.SHA256() == c.run.Raw.SHA256)
}

// prove compares the partition's latest run records with the mirrored events. It returns ErrOffsets if one differs. If none could be
// compared, it returns one of them, or nil if there are no events of any: if those are all run records, no event is at a wrong offset.
func (g *adoption) prove(ctx context.Context, p *part) (unproved *runRecord, err error) {
	proofs, span := map[string][]*proof{}, kafka.Span{Start: p.events.End}
	latest := func(a, b *runRecord) int { return cmp.Compare(b.run.Raw.First, a.run.Raw.First) }
	for _, some := range []map[string]*runRecord{p.recent, p.ahead} {
		n, from := 0, p.events.Start
		for _, r := range slices.SortedFunc(maps.Values(some), latest) {
			raw := r.run.Raw
			switch {
			case r.run.RawLost || nextOf(r.run) <= p.events.Start || p.events.Empty(): // its events are gone
			case raw.First < from || raw.First >= p.events.End || n == checkedRuns:
				unproved = r
			default:
				n, from = n+1, max(from, raw.First-checkedSpan)
				key := r.thread()
				proofs[key] = append(proofs[key], p.newProof(r))
				span.Start, span.End = min(span.Start, raw.First), min(max(span.End, raw.Next, raw.First+1), p.events.End)
				if len(raw.Ranges) == 0 {
					span.Start = min(span.Start, max(p.events.Start, raw.First-beforeSpan))
				}
			}
		}
	}
	var d fold.Decoded
	for m, err := range kafka.Scan(ctx, g.Kafka, g.topics.Events, map[int32]kafka.Span{p.id: span}) {
		if err != nil {
			return nil, fmt.Errorf("reading events: %w", err)
		}
		of := proofs[string(m.Key)]
		if of == nil {
			continue
		}
		e, ok, err := kafka.RunEvent(m, &d.Headers, nil)
		if err != nil {
			return nil, err
		}
		if e.Headers.Kind == record.KindErase { // what was before is no run
			for _, c := range of {
				c.begun, c.over = false, false
			}
		}
		if !ok {
			continue
		}
		d.Reset(&e)
		for _, c := range of {
			if err := c.take(&d); err != nil {
				return nil, err
			}
		}
	}
	for _, of := range proofs {
		for _, c := range of {
			if !c.right() {
				return nil, fmt.Errorf("partition %d: %s: %w", p.id, c, ErrOffsets)
			}
			p.proved++
		}
	}
	if p.proved > 0 {
		unproved = nil
	}
	return unproved, nil
}
