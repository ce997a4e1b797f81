package refold

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"

	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/skeinhq/skein/pkg/kafka"
	"github.com/skeinhq/skein/pkg/record"
	"github.com/skeinhq/skein/pkg/verify"
)

// Verified is the result of verifying one run.
type Verified struct {
	Record *record.Run
	// Version is the offset of the record in skein.runs.
	Version int64
	Report  verify.Report

	misnamed []string
}

// Verify verifies the selected runs and calls report with those of each thread, by start: by partition, by thread. Runs that start
// while it reads are not among them. A partition is read once for its run records, then its raw records in batches of threads that
// lie close together; what is in memory has the bounds of a batch. It ends with its context.
func Verify(ctx context.Context, cfg kafka.Config, q Query, report func([]Verified) error) error {
	if q.Tenant == "" { // a Query without one selects all tenants
		return errors.New("verifying: it is not said whose runs")
	}
	s := &scan{cfg: cfg, query: q, maxRuns: maxPlanned, maxBytes: maxRecordBytes}
	return s.verifyAll(ctx, report)
}

func (s *scan) verifyAll(ctx context.Context, report func([]Verified) error) error {
	if err := s.fetchSpans(ctx); err != nil {
		return err
	}
	p := &progress{tell: s.query.Progress}
	for _, partition := range s.partitions {
		p.total += s.events[partition].End - s.events[partition].Start
	}
	p.say(0)
	for _, partition := range s.partitions {
		if err := s.verifyPart(ctx, partition, part{}, p, s.events[partition].End-s.events[partition].Start, report); err != nil {
			return err
		}
	}
	return nil
}

// verifyPart verifies the threads in one part of a partition; if they are too many to be planned at once, its halves one after the
// other. For the progress it counts as so many records.
func (s *scan) verifyPart(ctx context.Context, partition int32, of part, p *progress, share int64, report func([]Verified) error) error {
	s.part = of
	batches, excluded, err := s.plan(ctx, partition)
	if errors.Is(err, errTooMany) {
		for i, half := range of.halves() {
			if err := s.verifyPart(ctx, partition, half, p, (share+int64(i))/2, report); err != nil {
				return err
			}
		}
		return nil
	}
	if err != nil {
		return err
	}
	p.begin(share, batches)
	defer p.end()
	for _, b := range batches {
		later, err := s.verify(ctx, b, p, report)
		if err != nil {
			return err
		}
		excluded = append(excluded, later...)
	}
	for _, key := range excluded {
		ids, err := record.SplitKey(key)
		if err == nil {
			err = s.query.Excluded(ids[0], ids[1])
		}
		if err != nil {
			return err
		}
	}
	return nil
}

// verify verifies the threads of a batch, but for those with newer records by now.
func (s *scan) verify(ctx context.Context, b *batch, p *progress, report func([]Verified) error) (excluded []string, err error) {
	runs := map[string][]Verified{}
	if err := s.read(ctx, b, func(thread string, m *kgo.Record, rec *record.Run) error {
		ids, err := record.SplitKey(string(m.Key))
		if err != nil {
			return fmt.Errorf("reading run record %d:%d: %w", m.Partition, m.Offset, err)
		}
		runs[thread] = append(runs[thread], Verified{Record: rec, Version: m.Offset, misnamed: nameAs(rec, ids)})
		return nil
	}); err != nil {
		return nil, err
	}
	for _, thread := range b.records { // those of records that are gone
		delete(runs, thread)
		if !slices.Contains(excluded, thread) {
			excluded = append(excluded, thread)
		}
	}
	threads := make(map[string]*verify.Thread, len(runs))
	for key, list := range runs {
		slices.SortStableFunc(list, func(a, b Verified) int { return cmp.Compare(a.Record.Raw.First, b.Record.Raw.First) })
		records := make([]*record.Run, len(list))
		for i, r := range list {
			records[i] = r.Record
		}
		held := [2]int64{s.events[b.partition].Start, b.raw.End}
		if threads[key], err = verify.NewThread(records, nil, held, verify.NewRecords(records)); err != nil {
			return nil, err
		}
		if s.changes != nil {
			threads[key].FollowChanges()
		}
	}
	for m, err := range kafka.Scan(ctx, s.cfg, s.cfg.Topics().Events, map[int32]kafka.Span{b.partition: b.raw}) {
		if err != nil {
			return nil, fmt.Errorf("reading raw events: %w", err)
		}
		p.step()
		if t := threads[string(m.Key)]; t != nil {
			if err := take(m, t.Headers(), t.Take); err != nil {
				return nil, err
			}
		}
	}
	for _, key := range slices.Sorted(maps.Keys(threads)) {
		if s.changes != nil {
			if err := s.reportChanges(threads[key], runs[key]); err != nil {
				return nil, err
			}
			delete(threads, key)
			continue
		}
		reports, err := threads[key].Reports()
		if err != nil {
			return nil, err
		}
		for i, p := range reports { // in the same order
			r := &runs[key][i]
			if r.Report = p; len(r.misnamed) > 0 {
				r.Report.Verdict, r.Report.Differences = verify.Differs, append(r.misnamed, p.Differences...)
			}
		}
		if err := report(runs[key]); err != nil {
			return nil, err
		}
		delete(threads, key)
		delete(runs, key)
	}
	return excluded, nil
}

// reportChanges reports what would change in the selected runs of a thread.
func (s *scan) reportChanges(t *verify.Thread, runs []Verified) error {
	results, err := t.Changes()
	if err != nil {
		return err
	}
	for i, r := range results { // in the same order
		raw := runs[i].Record.Raw
		if s.query.Span != nil && !overlap(*s.query.Span, kafka.Span{Start: raw.First, End: raw.Next}) {
			continue
		}
		if err := s.changes(r); err != nil {
			return err
		}
	}
	return nil
}

// nameAs has a record named as its key says, and returns the members that said otherwise.
func nameAs(rec *record.Run, ids []string) (differ []string) {
	for i, m := range []struct {
		name string
		is   *string
	}{{"tenant", &rec.Tenant}, {"threadId", &rec.ThreadID}, {"runId", &rec.RunID}} {
		if *m.is != ids[i] {
			differ = append(differ, m.name)
			*m.is = ids[i]
		}
	}
	return differ
}

// progress tells how far it is, in records of skein.events. How many of these a part takes is known once that is planned.
type progress struct {
	tell        func(done, total int)
	done, total int64
	// share is what the part counts for, read of records are read.
	share, read, records int64
}

func (p *progress) begin(share int64, batches []*batch) {
	p.share, p.read, p.records = share, 0, 0
	for _, b := range batches {
		p.records += max(0, b.raw.End-b.raw.Start)
	}
}

// step notes a record that was read.
func (p *progress) step() {
	if p.read++; p.read%1000 == 0 {
		p.say(p.done + int64(float64(p.share)*float64(min(p.read, p.records))/float64(p.records)))
	}
}

func (p *progress) end() {
	p.done += p.share
	p.say(p.done)
}

func (p *progress) say(done int64) {
	if p.tell != nil {
		p.tell(int(done), int(p.total))
	}
}
