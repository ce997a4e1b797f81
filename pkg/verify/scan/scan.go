package scan

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

// Query selects runs: those of one thread, those with events in a span of one partition, or all.
type Query struct {
	// Tenant is the owner of the runs; "" selects all tenants.
	Tenant string
	// Thread is a thread of the tenant; "" selects all.
	Thread string
	// Partition and Span limit the offsets of the runs' events; a nil Span means no limit.
	Partition int32
	Span      *kafka.Span
	// Progress is called with the number of raw records read so far and the total; it may be nil.
	Progress func(done, total int)
	// Excluded is called for each thread that Verify leaves out because the thread is too large or got newer records meanwhile.
	Excluded func(tenant, thread string) error
}

// These limit what is folded at the same time: threads, which take about 30 KB each while their runs are open, and
// bytes of their records (weigh). If more threads than maxThreads extend over a whole partition, the partition is read
// once per group of maxThreads (docs/bench/verify.md). Verify also limits how many runs it plans, at about 200 bytes
// each, and reads a larger partition in several passes.
const (
	maxThreads     = 4_000
	maxRecordBytes = 64 << 20
	maxPlanned     = 250_000
)

// VerifyBytes is the approximate memory of Verify, in bytes.
const VerifyBytes = 2 * maxRecordBytes

// Verified is the result of verifying one run.
type Verified struct {
	Record *record.Run
	// Version is the offset of the record in skein.runs.
	Version int64
	Report  verify.Report

	misnamed []string
}

// Verify verifies the selected runs of a tenant and calls report for each thread with the thread's runs, ordered by
// start. It leaves out runs that start while it reads. It reads the run records of a partition once, then the raw
// records in batches of threads that are close together.
func Verify(ctx context.Context, cfg kafka.Config, q Query, report func([]Verified) error) error {
	if q.Tenant == "" { // this would select all tenants
		return errors.New("verifying runs: no tenant is given")
	}
	r := &reader{cfg: cfg, query: q, maxRuns: maxPlanned, maxBytes: maxRecordBytes, report: reportVerified(report)}
	return r.run(ctx)
}

// reportVerified adapts report to reader.report: it passes report the verified runs of each thread.
func reportVerified(report func([]Verified) error) func(*verify.Thread, []Verified) error {
	return func(t *verify.Thread, runs []Verified) error {
		reports, err := t.Reports()
		if err != nil {
			return err
		}
		for i, p := range reports { // same order as runs
			if runs[i].Report = p; len(runs[i].misnamed) > 0 {
				runs[i].Report.Verdict, runs[i].Report.Differences = verify.Differs, append(runs[i].misnamed, p.Differences...)
			}
		}
		return report(runs)
	}
}

// Changes folds the raw events of the selected runs again. It calls report for each run with the changes that the
// current rules would make, ordered by partition, thread and start. It leaves out runs that start while it reads.
func Changes(ctx context.Context, cfg kafka.Config, q Query, report func(verify.Result) error) error {
	q.Excluded = func(_, thread string) error {
		return fmt.Errorf("reading run records: some of thread %q were replaced or erased meanwhile; try again", thread)
	}
	r := &reader{cfg: cfg, query: q, follow: true, report: func(t *verify.Thread, runs []Verified) error {
		results, err := t.Changes()
		if err != nil {
			return err
		}
		for i, result := range results { // same order as runs
			raw := runs[i].Record.Raw
			if q.Span != nil && !overlap(*q.Span, kafka.Span{Start: raw.First, End: raw.Next}) {
				continue
			}
			if err := report(result); err != nil {
				return err
			}
		}
		return nil
	}}
	return r.run(ctx)
}

// reader reads the runs that a query selects, thread by thread.
type reader struct {
	cfg   kafka.Config
	query Query
	// report is called for each thread after all its raw events were read, with the thread's runs ordered by start.
	report func(t *verify.Thread, runs []Verified) error
	// follow makes a change carry over to the runs that depend on the changed run (verify.Thread.FollowChanges).
	follow bool
	// maxRuns is how many runs are planned at once; maxBytes limits the size of a thread's records. 0 means no limit.
	maxRuns, maxBytes int

	partitions []int32
	thread     string // key of the selected thread; "" for all
	events     map[int32]kafka.Span
	runs       map[int32]kafka.Span
	part       part
}

// run reads all runs that the query selects.
func (r *reader) run(ctx context.Context) error {
	if err := r.fetchSpans(ctx); err != nil {
		return err
	}
	p := &progress{call: r.query.Progress}
	for _, partition := range r.partitions {
		p.total += r.events[partition].End - r.events[partition].Start
	}
	p.report(0)
	for _, partition := range r.partitions {
		if err := r.readPart(ctx, partition, part{}, p, r.events[partition].End-r.events[partition].Start); err != nil {
			return err
		}
	}
	return nil
}

// readPart reads the threads in one part of a partition. If the part has too many runs to plan at once, it reads the
// part's two halves one after the other. weight is the part's share of the progress, in records.
func (r *reader) readPart(ctx context.Context, partition int32, of part, p *progress, weight int64) error {
	r.part = of
	batches, excluded, err := r.plan(ctx, partition)
	if errors.Is(err, errTooMany) {
		for i, half := range of.halves() {
			if err := r.readPart(ctx, partition, half, p, (weight+int64(i))/2); err != nil {
				return err
			}
		}
		return nil
	}
	if err != nil {
		return err
	}
	p.begin(weight, batches)
	defer p.end()
	for _, b := range batches {
		later, err := r.fold(ctx, b, p)
		if err != nil {
			return err
		}
		excluded = append(excluded, later...)
	}
	for _, key := range excluded {
		ids, err := record.SplitKey(key)
		if err == nil {
			err = r.query.Excluded(ids[0], ids[1])
		}
		if err != nil {
			return err
		}
	}
	return nil
}

// fold folds the threads of a batch and reports them. It returns the keys of threads that it leaves out because they
// have newer records.
func (r *reader) fold(ctx context.Context, b *batch, p *progress) (excluded []string, err error) {
	runs := map[string][]Verified{}
	if err := r.read(ctx, b, func(thread string, m *kgo.Record, rec *record.Run) error {
		ids, err := record.SplitKey(string(m.Key))
		if err != nil {
			return fmt.Errorf("reading run record %d:%d: %w", m.Partition, m.Offset, err)
		}
		runs[thread] = append(runs[thread], Verified{Record: rec, Version: m.Offset, misnamed: nameByKey(rec, ids)})
		return nil
	}); err != nil {
		return nil, err
	}
	for _, thread := range b.records { // records that no longer exist
		delete(runs, thread)
		if !slices.Contains(excluded, thread) {
			excluded = append(excluded, thread)
		}
	}
	threads := make(map[string]*verify.Thread, len(runs))
	for key, list := range runs {
		slices.SortStableFunc(list, func(a, b Verified) int { return cmp.Compare(a.Record.Raw.First, b.Record.Raw.First) })
		records := make([]*record.Run, len(list))
		for i, v := range list {
			records[i] = v.Record
		}
		held := [2]int64{r.events[b.partition].Start, b.raw.End}
		if threads[key], err = verify.NewThread(records, nil, held, verify.NewRecords(records)); err != nil {
			return nil, err
		}
		if r.follow {
			threads[key].FollowChanges()
		}
	}
	for m, err := range kafka.Scan(ctx, r.cfg, r.cfg.Topics().Events, map[int32]kafka.Span{b.partition: b.raw}) {
		if err != nil {
			return nil, fmt.Errorf("reading raw events: %w", err)
		}
		p.step()
		if t := threads[string(m.Key)]; t != nil {
			e, ok, err := kafka.RunEvent(m, t.Headers(), r.cfg.IngestKeys)
			if ok {
				err = t.Take(e)
			}
			if err != nil {
				return nil, err
			}
		}
	}
	for _, key := range slices.Sorted(maps.Keys(threads)) {
		if err := r.report(threads[key], runs[key]); err != nil {
			return nil, err
		}
		delete(threads, key)
		delete(runs, key)
	}
	return excluded, nil
}

// nameByKey sets tenant, thread and run id from the record's key, and returns the names of the members that it had to change.
func nameByKey(rec *record.Run, ids []string) (differ []string) {
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

// progress reports how many records of skein.events were read. Only after planning a part is it known how many
// records the part needs.
type progress struct {
	call        func(done, total int)
	done, total int64
	// weight is the part's share of the total. records is how many records the part needs; read of them were read.
	weight, read, records int64
}

func (p *progress) begin(weight int64, batches []*batch) {
	p.weight, p.read, p.records = weight, 0, 0
	for _, b := range batches {
		p.records += max(0, b.raw.End-b.raw.Start)
	}
}

// step counts one record.
func (p *progress) step() {
	if p.read++; p.read%1000 == 0 {
		p.report(p.done + int64(float64(p.weight)*float64(min(p.read, p.records))/float64(p.records)))
	}
}

func (p *progress) end() {
	p.done += p.weight
	p.report(p.done)
}

func (p *progress) report(done int64) {
	if p.call != nil {
		p.call(int(done), int(p.total))
	}
}
