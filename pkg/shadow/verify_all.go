package shadow

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"

	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/skeinhq/skein/pkg/kafka"
	"github.com/skeinhq/skein/pkg/lineage"
	"github.com/skeinhq/skein/pkg/record"
)

// Verified is what came of one run.
type Verified struct {
	Record *record.Run
	// Version is the offset of the record in skein.runs.
	Version int64
	Proof   Proof

	misnamed []string
}

// Verify verifies the runs that are meant and calls tell with those of each thread, by start: by partition, by thread. Runs that start
// while it reads are not among them. A partition is read once for its run records, then its raw records in batches of threads that
// lie close together; what is in memory has the bounds of a batch. It ends with its context.
func Verify(ctx context.Context, cfg kafka.Config, q Query, tell func([]Verified) error) error {
	if q.Tenant == "" { // which means everybody to others
		return errors.New("verifying: it is not said whose runs")
	}
	s := &shadow{cfg: cfg, query: q, mostPlanned: maxPlanned, mostBytes: maxRecordBytes}
	return s.verifyAll(ctx, tell)
}

func (s *shadow) verifyAll(ctx context.Context, tell func([]Verified) error) error {
	if err := s.ask(ctx); err != nil {
		return err
	}
	p := &progress{tell: s.query.Progress}
	for _, partition := range s.partitions {
		p.total += s.events[partition].End - s.events[partition].Start
	}
	p.say(0)
	for _, partition := range s.partitions {
		if err := s.verifyPart(ctx, partition, part{}, p, s.events[partition].End-s.events[partition].Start, tell); err != nil {
			return err
		}
	}
	return nil
}

// verifyPart verifies threads of a partition: those of one part, or where these are too many to be planned at once, of its halves. It is to
// take as long as so many records.
func (s *shadow) verifyPart(ctx context.Context, partition int32, of part, p *progress, share int64, tell func([]Verified) error) error {
	s.part = of
	batches, apart, err := s.plan(ctx, partition)
	if errors.Is(err, errTooMany) {
		for i, half := range of.halves() {
			if err := s.verifyPart(ctx, partition, half, p, (share+int64(i))/2, tell); err != nil {
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
		later, err := s.verify(ctx, b, p, tell)
		if err != nil {
			return err
		}
		apart = append(apart, later...)
	}
	for _, key := range apart {
		ids, err := record.SplitKey(key)
		if err == nil {
			err = s.query.Apart(ids[0], ids[1])
		}
		if err != nil {
			return err
		}
	}
	return nil
}

// verify verifies the threads of a batch, but for those with newer records by now.
func (s *shadow) verify(ctx context.Context, b *batch, p *progress, tell func([]Verified) error) (apart []string, err error) {
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
		if !slices.Contains(apart, thread) {
			apart = append(apart, thread)
		}
	}
	threads := make(map[string]*Verifier, len(runs))
	for key, list := range runs {
		slices.SortStableFunc(list, func(a, b Verified) int { return compareStart(a.Record, b.Record) })
		heads, from := make([]*record.Run, len(list)), &records{byRun: make(map[string]*record.Run, len(list))}
		for i, r := range list {
			heads[i], from.byRun[r.Record.RunID] = r.Record, r.Record
		}
		held := kafka.Span{Start: s.events[b.partition].Start, End: b.raw.End}
		if threads[key], err = NewVerifier(heads, nil, held, from); err != nil {
			return nil, err
		}
	}
	for m, err := range kafka.Scan(ctx, s.cfg, s.cfg.Topics().Events, map[int32]kafka.Span{b.partition: b.raw}) {
		if err != nil {
			return nil, fmt.Errorf("reading raw events: %w", err)
		}
		p.step()
		if t := threads[string(m.Key)]; t != nil {
			if err := t.Take(m); err != nil {
				return nil, err
			}
		}
	}
	for _, key := range slices.Sorted(maps.Keys(threads)) {
		proofs, err := threads[key].Proofs()
		if err != nil {
			return nil, err
		}
		for i, p := range proofs { // in the same order
			r := &runs[key][i]
			if r.Proof = p; len(r.misnamed) > 0 {
				r.Proof.Verdict, r.Proof.Differences = Differs, append(r.misnamed, p.Differences...)
			}
		}
		if err := tell(runs[key]); err != nil {
			return nil, err
		}
		delete(threads, key)
		delete(runs, key)
	}
	return apart, nil
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

// records are those of a thread, by run (Source).
type records struct {
	byRun map[string]*record.Run
	// holding are the runs by their own messages, once somebody asks.
	holding map[string][]string
}

// Record implements Source.
func (r *records) Record(run string) (*record.Run, error) { return r.byRun[run], nil }

// Holding implements Source.
func (r *records) Holding(messageIDs []string) (runs []string, err error) {
	if r.holding == nil {
		r.holding = map[string][]string{}
		for run, rec := range r.byRun {
			if rec.Status == record.StatusRunning {
				continue
			}
			for _, m := range rec.Messages {
				r.holding[m.ID] = append(r.holding[m.ID], run)
			}
		}
	}
	for _, id := range messageIDs {
		runs = append(runs, r.holding[id]...)
	}
	return runs, nil
}

// History implements Source.
func (r *records) History(run string) (lineage.History, error) {
	chain, err := lineage.BaseChain(run, func(id string) (string, bool) {
		rec, ok := r.byRun[id]
		if !ok {
			return "", false
		}
		return rec.Base, true
	})
	contents := make([]lineage.Content, len(chain))
	for i, id := range chain {
		contents[i] = contentOf(r.byRun[id])
	}
	at := lineage.History{}
	if err == nil {
		at, err = lineage.Restore(contents...)
	}
	if err != nil {
		return lineage.History{}, &UnprovableError{Reason: err.Error()}
	}
	return at, nil
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
