package deadletter

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/skeinhq/skein/pkg/kafka"
	"github.com/skeinhq/skein/pkg/record"
)

// Outcome is what a retry did with one dead letter, or why it left it out; with DryRun, what it would do.
type Outcome string

// The outcomes. Only records with the outcome Published are published.
const (
	Published Outcome = "published"
	// Hopeless means that a retry cannot help (ChanceNever).
	Hopeless Outcome = "hopeless"
	// Unchanged means that a retry helps only after a change (ChanceAfterChange), and the query has neither a reason nor ids.
	Unchanged Outcome = "unchanged"
	// PublishedBefore means that skein.events already has a retry of the dead letter.
	PublishedBefore Outcome = "published-before"
	// FailedBefore means that the dead letter is the result of a failed retry.
	FailedBefore Outcome = "failed-before"
	// Untold means that records have expired among which an earlier retry or an erasure could have been.
	Untold Outcome = "untold"
	// Erased means that the thread was erased after the original record.
	Erased Outcome = "erased"
)

// Retried is the result for one dead letter.
type Retried struct {
	Record
	Outcome Outcome `json:"outcome"`
	// RetriedAt is the position in skein.events of this or an earlier retry.
	RetriedAt *record.Position `json:"retriedAt,omitempty"`

	// original is the record to publish. from is the first offset of its partition at which an earlier retry, or an erasure of its thread, can
	// be.
	original *kgo.Record
	from     int64
}

// Retry publishes the original records of dead letters again.
type Retry struct {
	Query
	// Again also publishes dead letters that would be PublishedBefore, FailedBefore or Untold.
	Again bool
	// DryRun publishes nothing and returns the outcomes.
	DryRun bool
	// Progress is called with record counts while Run reads skein.events; it may be nil.
	Progress func(done, total int)
}

// The limits on one retry, which is one transaction.
const (
	maxRetries    = 10_000
	maxRetryBytes = 128 << 20
)

// ErrTooMany means that the query matches more dead letters than one transaction should contain.
var ErrTooMany = errors.New("too many dead letters for one retry")

// Run publishes the original records to skein.events, each to its thread's partition, in one transaction, so either all or none. It returns
// a result for each dead letter of the query, in the order of the dead letters.
//
// All retries of a topic set share one transactional id, and Run initialises the producer id before it reads. Of two concurrent runs, one
// is thus fenced and publishes nothing. Run does not wait for open transactions of other producers, so it misses an erasure in one of
// these. If the outcome of the commit is unknown, a second Run finds what the first one has published.
func (r Retry) Run(ctx context.Context, cfg kafka.Config) ([]Retried, error) {
	var cl *kgo.Client
	if !r.DryRun {
		var err error
		if cl, err = kafka.NewTransactor(ctx, cfg, cfg.TopicPrefix+"skein-dead-letters-retry"); err != nil {
			return nil, err
		}
		defer cl.Close()
	}
	results, refused, err := r.read(ctx, cfg)
	if err != nil {
		return nil, err
	}
	if err := r.compare(ctx, cfg, results, refused); err != nil {
		return nil, err
	}
	var publish []*kgo.Record
	for _, e := range results {
		if e.Outcome == Published {
			publish = append(publish, e.original)
		}
	}
	if r.DryRun || len(publish) == 0 {
		return results, nil
	}
	if err := commit(ctx, cl, publish); err != nil {
		return nil, fmt.Errorf("publishing dead letters again: %w", err)
	}
	for i, e := range results {
		if e.Outcome == Published {
			results[i].RetriedAt = &record.Position{Partition: e.original.Partition, Offset: e.original.Offset}
		}
	}
	return results, nil
}

// read reads the dead letters of the query and sets the outcomes that do not depend on skein.events. It also returns the positions of
// erasures that are dead letters themselves: they have erased nothing.
func (r Retry) read(ctx context.Context, cfg kafka.Config) (results []Retried, refused map[record.Position]bool, err error) {
	bytes := 0
	refused = map[record.Position]bool{}
	for m, err := range each(ctx, cfg, r.Query, nil) {
		if err != nil {
			return nil, nil, err
		}
		l := Read(m)
		if l.Kind == record.KindErase && l.Position != nil {
			refused[*l.Position] = true
		}
		if !r.matches(l) {
			continue
		}
		if bytes += len(m.Value); len(results) == maxRetries || bytes > maxRetryBytes {
			return nil, nil, fmt.Errorf("%w: it takes up to %d, of %d MiB: select fewer, by thread, reason or time",
				ErrTooMany, maxRetries, maxRetryBytes>>20)
		}
		e := Retried{Record: l, Outcome: Published, original: again(m, cfg.Topics().Events)}
		switch {
		case l.Chance == ChanceNever:
			e.Outcome = Hopeless
		case l.Chance == ChanceAfterChange && r.Reason == "" && len(r.IDs) == 0:
			e.Outcome = Unchanged
		case l.RetryOf != nil && !r.Again:
			e.Outcome = FailedBefore
		}
		results = append(results, e)
	}
	return results, refused, nil
}

// clockSkew is the assumed maximum difference between the clocks of all producers.
const clockSkew = time.Hour

// compare sets each record's partition. It reads skein.events from the original records on, to find earlier retries and erasures of their
// threads.
func (r Retry) compare(ctx context.Context, cfg kafka.Config, results []Retried, refused map[record.Position]bool) error {
	if len(results) == 0 {
		return nil
	}
	oldest := slices.MinFunc(results, func(a, b Retried) int { return a.At.Compare(b.At) }).At
	spans, since, err := offsets(ctx, cfg, cfg.Topics().Events, oldest.Add(-clockSkew))
	if err != nil {
		return err
	}
	byKey := map[string][]*Retried{}
	read := map[int32]kafka.Span{}
	for i := range results {
		e := &results[i]
		if e.Outcome != Published {
			continue
		}
		p := record.Partition(e.original.Key, int32(len(spans)))
		span := spans[p]
		e.original.Partition, e.from = p, e.Position.Offset+1
		gone := e.from < span.Start
		if e.Position.Partition != p { // the offset belongs to another partition
			e.from = since[p]
			gone = span.Start > 0 && since[p] <= span.Start
		}
		if gone && !r.Again {
			e.Outcome = Untold
		}
		byKey[string(e.original.Key)] = append(byKey[string(e.original.Key)], e)
		span.Start = max(span.Start, e.from)
		if s, ok := read[p]; ok {
			span.Start = min(span.Start, s.Start)
		}
		read[p] = span
	}
	done, total := 0, 0
	for _, s := range read {
		total += int(max(0, s.End-s.Start))
	}
	for m, err := range kafka.Scan(ctx, cfg, cfg.Topics().Events, read) {
		if err != nil {
			return fmt.Errorf("looking for earlier retries: %w", err)
		}
		if done++; r.Progress != nil && (done%1000 == 0 || done == total) {
			r.Progress(done, total)
		}
		headers, err := record.ParseHeaders(m.Headers)
		at := record.Position{Partition: m.Partition, Offset: m.Offset}
		erased, of := err == nil && headers.Kind == record.KindErase && !refused[at], retryOf(m)
		for _, e := range byKey[string(m.Key)] {
			switch {
			case erased && m.Offset >= e.from:
				e.Outcome, e.RetriedAt = Erased, nil
			case of != nil && *of == e.ID && e.Outcome != Erased:
				e.RetriedAt = &at
				if !r.Again {
					e.Outcome = PublishedBefore
				}
			}
		}
	}
	return nil
}

func retryOf(m *kgo.Record) *record.Position {
	// In a copied event, the header contains the position of a dead letter in another topic set.
	if slices.ContainsFunc(m.Headers, func(h kgo.RecordHeader) bool { return h.Key == record.HeaderCopiedFrom }) {
		return nil
	}
	i := slices.IndexFunc(m.Headers, func(h kgo.RecordHeader) bool { return h.Key == record.HeaderRetryOf })
	if i < 0 {
		return nil
	}
	return position(m.Headers[i].Value)
}

// commit publishes records in one transaction.
func commit(ctx context.Context, cl *kgo.Client, records []*kgo.Record) error {
	if err := cl.BeginTransaction(); err != nil {
		return err
	}
	if err := cl.ProduceSync(ctx, records...).FirstErr(); err != nil {
		// Nothing is committed, even if the abort request does not reach the brokers.
		ending, cancel := context.WithTimeout(context.WithoutCancel(ctx), askTimeout)
		defer cancel()
		return errors.Join(kafka.Unacknowledged(err), cl.EndTransaction(ending, kgo.TryAbort))
	}
	if err := cl.EndTransaction(ctx, kgo.TryCommit); err != nil {
		return fmt.Errorf("the outcome is not known unless another retry has fenced this one: repeat it to see what was published: %w", err)
	}
	return nil
}
