package deadletter

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"time"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/skeinhq/skein/pkg/kafka"
	"github.com/skeinhq/skein/pkg/record"
)

// Outcome is what a retry did with a dead letter.
type Outcome string

// The outcomes. Only Published is of a record that was published.
const (
	Published Outcome = "published"
	// Hopeless: a retry has no chance (Letter.Chance).
	Hopeless Outcome = "hopeless"
	// Unchanged: a retry helps only after something has changed, and neither reason nor id was said.
	Unchanged Outcome = "unchanged"
	// PublishedBefore: a retry of it is on skein.events already.
	PublishedBefore Outcome = "published-before"
	// FailedBefore: it is itself what became of a retry.
	FailedBefore Outcome = "failed-before"
	// Untold: skein.events does not go back far enough to say whether it was published before.
	Untold Outcome = "untold"
	// Erased: its thread was erased since.
	Erased Outcome = "erased"
)

// Retried is what became of one dead letter.
type Retried struct {
	Letter
	Outcome Outcome `json:"outcome"`
	// RetriedAt is where the retry lies in skein.events, this one or the one before.
	RetriedAt *record.Position `json:"retriedAt,omitempty"`
}

// Retry says what to publish again.
type Retry struct {
	Query
	// Again publishes also what was published before, has failed before, or where that cannot be told.
	Again bool
	// DryRun publishes nothing, and says what would be done.
	DryRun bool
	// Progress is called while skein.events is read, with records; nil is nobody.
	Progress func(done, total int)

	patience time.Duration // with others' transactions; zero is settleTimeout
}

// The bounds on one retry, which is one transaction.
const (
	maxRetries    = 10_000
	maxRetryBytes = 128 << 20
)

// ErrTooMany says that more dead letters are meant than one transaction should hold.
var ErrTooMany = errors.New("too many dead letters for one retry")

// ErrOvertaken says that another retry has begun meanwhile. Nothing was published.
var ErrOvertaken = errors.New("another retry of this topic set has begun; nothing was published")

// ErrUnsettled says that records of skein.events cannot be read yet, as somebody's transaction is open there: the same retry or an
// erasure may be among them. Nothing was published.
var ErrUnsettled = errors.New("somebody's transaction is open; nothing was published")

// settleTimeout is how long a retry waits for the end of others' transactions.
const settleTimeout = 10 * time.Second

// Run publishes the original records of dead letters to skein.events, each to its thread's partition, in
// one transaction: all of them or none. It answers with one line for each dead letter that is meant, in
// their order.
//
// Retries of a topic set have one transactional id, and it is taken before anything is read. So of two at
// the same time one is fenced, and what the other reads has all that was ever committed: nothing is
// published twice unless Again asks for it. After an error that leaves the outcome open, another Run tells.
func (r Retry) Run(ctx context.Context, cfg kafka.Config) ([]Retried, error) {
	var cl *kgo.Client
	if !r.DryRun {
		var err error
		if cl, err = kafka.NewTransactor(ctx, cfg, cfg.TopicPrefix+"skein-dead-letters-retry"); err != nil {
			return nil, err
		}
		defer cl.Close()
	}
	meant, records, err := r.meant(ctx, cfg)
	if err != nil {
		return nil, err
	}
	if err := r.compare(ctx, cfg, meant, records); err != nil {
		return nil, err
	}
	var publish []*kgo.Record
	for i := range meant {
		if meant[i].Outcome == Published {
			publish = append(publish, records[i])
		}
	}
	if r.DryRun || len(publish) == 0 {
		return meant, nil
	}
	if err := commit(ctx, cl, publish); err != nil {
		return nil, fmt.Errorf("publishing dead letters again: %w", err)
	}
	for i := range meant {
		if meant[i].Outcome == Published {
			meant[i].RetriedAt = &record.Position{Partition: records[i].Partition, Offset: records[i].Offset}
		}
	}
	return meant, nil
}

// meant reads the dead letters that are meant, what they say of themselves, and for each the record that
// would be published. Outcomes are those that need no look at skein.events.
func (r Retry) meant(ctx context.Context, cfg kafka.Config) ([]Retried, []*kgo.Record, error) {
	var meant []Retried
	var records []*kgo.Record
	bytes := 0
	for m, err := range each(ctx, cfg, r.Query, nil) {
		if err != nil {
			return nil, nil, err
		}
		l := Read(m)
		if !r.matches(l) {
			continue
		}
		if bytes += len(m.Value); len(meant) == maxRetries || bytes > maxRetryBytes {
			return nil, nil, fmt.Errorf("%w: it takes up to %d, of %d MiB: mean fewer, by thread, reason or time", ErrTooMany, maxRetries, maxRetryBytes>>20)
		}
		e := Retried{Letter: l, Outcome: Published}
		switch {
		case l.Chance == ChanceNever:
			e.Outcome = Hopeless
		case l.Chance == ChanceAfterChange && r.Reason == "" && len(r.IDs) == 0:
			e.Outcome = Unchanged
		case l.RetryOf != nil && !r.Again:
			e.Outcome = FailedBefore
		}
		meant, records = append(meant, e), append(records, again(m, cfg.Topics().Events, -1))
	}
	return meant, records, nil
}

// clockSkew is how far the clocks of those who write to Kafka may differ.
const clockSkew = time.Hour

// compare looks on skein.events, behind the dead letters' own records, for retries and erasures, and says
// which partition a retry goes to.
func (r Retry) compare(ctx context.Context, cfg kafka.Config, meant []Retried, records []*kgo.Record) error {
	open := map[string]map[record.Position]int{} // by key
	var oldest time.Time
	for i, e := range meant {
		if e.Outcome != Published {
			continue
		}
		key := string(records[i].Key)
		if open[key] == nil {
			open[key] = map[record.Position]int{}
		}
		open[key][e.ID] = i
		if oldest.IsZero() || e.At.Before(oldest) {
			oldest = e.At
		}
	}
	if len(open) == 0 {
		return nil
	}
	spans, since, err := r.eventSpans(ctx, cfg, slices.Collect(maps.Keys(open)), oldest.Add(-clockSkew))
	if err != nil {
		return err
	}
	from := make([]int64, len(meant)) // from where on a record has to do with the dead letter
	read := map[int32]kafka.Span{}
	total := 0
	for _, letters := range open {
		for _, i := range letters {
			e := &meant[i]
			p := record.Partition(records[i].Key, int32(len(spans)))
			records[i].Partition = p
			span := spans[p]
			from[i] = e.Position.Offset + 1
			gone := from[i] < span.Start
			if e.Position.Partition != p { // offsets of two partitions do not compare
				from[i] = since[p]
				gone = span.Start > 0 && since[p] <= span.Start
			}
			if gone && !r.Again {
				e.Outcome = Untold
			}
			was, ok := read[p]
			if !ok {
				was = kafka.Span{Start: span.End, End: span.End}
			}
			read[p] = kafka.Span{Start: max(span.Start, min(was.Start, from[i])), End: span.End}
		}
	}
	for _, s := range read {
		total += int(s.End - s.Start)
	}
	done := 0
	for m, err := range kafka.Scan(ctx, cfg, cfg.Topics().Events, read) {
		if err != nil {
			return fmt.Errorf("looking for earlier retries: %w", err)
		}
		if done++; r.Progress != nil && (done%1000 == 0 || done == total) {
			r.Progress(done, total)
		}
		letters := open[string(m.Key)]
		if letters == nil {
			continue
		}
		at := record.Position{Partition: m.Partition, Offset: m.Offset}
		if headers, err := kafka.ParseHeaders(m.Headers); err == nil && headers.Kind == record.KindErase {
			for _, i := range letters {
				if m.Offset >= from[i] {
					meant[i].Outcome, meant[i].RetriedAt = Erased, nil
				}
			}
			continue
		}
		of := retryOf(m)
		if of == nil {
			continue
		}
		if i, ok := letters[*of]; ok && meant[i].Outcome != Erased {
			meant[i].RetriedAt = &at
			if !r.Again {
				meant[i].Outcome = PublishedBefore
			}
		}
	}
	return nil
}

// eventSpans asks for what skein.events holds, and for the offsets at a time, once all can be read that lies on the
// partitions of the keys.
func (r Retry) eventSpans(ctx context.Context, cfg kafka.Config, keys []string, at time.Time) (spans map[int32]kafka.Span, since map[int32]int64, err error) {
	adm, err := kafka.NewAdmin(cfg)
	if err != nil {
		return nil, nil, err
	}
	defer adm.Close()
	patience := cmp.Or(r.patience, settleTimeout)
	ctx, cancel := context.WithTimeout(ctx, patience+askTimeout)
	defer cancel()
	// A thread's partition depends on the count, so one that is under change must not be used.
	count, err := kafka.PartitionCount(ctx, adm, cfg.Topics())
	if err != nil {
		return nil, nil, err
	}
	partitions := map[int32]bool{}
	for _, key := range keys {
		partitions[record.Partition([]byte(key), count)] = true
	}
	topic := cfg.Topics().Events
	if err := settle(ctx, adm, topic, partitions, patience); err != nil {
		return nil, nil, err
	}
	if spans, err = kafka.Spans(ctx, adm, topic); err != nil {
		return nil, nil, err
	}
	since, err = kafka.OffsetsAt(ctx, adm, topic, at)
	return spans, since, err
}

// settle waits until no transaction is open on the partitions: what lies behind its first record is not among their Spans.
func settle(ctx context.Context, adm *kadm.Client, topic string, partitions map[int32]bool, patience time.Duration) error {
	tick := time.NewTicker(100 * time.Millisecond)
	defer tick.Stop()
	for end := time.Now().Add(patience); ; {
		open, err := kafka.Unsettled(ctx, adm, topic)
		if err != nil {
			return err
		}
		maps.DeleteFunc(open, func(p int32, _ kafka.Span) bool { return !partitions[p] })
		if len(open) == 0 {
			return nil
		}
		if time.Now().After(end) {
			p := slices.Min(slices.Collect(maps.Keys(open)))
			return fmt.Errorf("%w: what lies on partition %d of %s from %d to %d cannot be read before it ends, and may be the same retry, or an erasure. Try again then",
				ErrUnsettled, p, topic, open[p].Start, open[p].End)
		}
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-tick.C:
		}
	}
}

func retryOf(m *kgo.Record) *record.Position {
	// Of an event that was copied, it names a dead letter of another topic set.
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
		// Nothing is committed, whether the brokers hear of the abort or not.
		ending, cancel := context.WithTimeout(context.WithoutCancel(ctx), askTimeout)
		defer cancel()
		return overtaken(errors.Join(kafka.Unacknowledged(err), cl.EndTransaction(ending, kgo.TryAbort)))
	}
	if err := cl.EndTransaction(ctx, kgo.TryCommit); err != nil {
		if fenced := overtaken(err); errors.Is(fenced, ErrOvertaken) {
			return fenced
		}
		return fmt.Errorf("the outcome is not known: the same retry again says which were published: %w", err)
	}
	return nil
}

// overtaken names the error of a transactional id that another process has taken.
func overtaken(err error) error {
	for _, fenced := range []error{kerr.ProducerFenced, kerr.InvalidProducerEpoch, kerr.InvalidProducerIDMapping} {
		if errors.Is(err, fenced) {
			return fmt.Errorf("%w: %w", ErrOvertaken, err)
		}
	}
	return err
}
