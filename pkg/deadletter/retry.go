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
	// Hopeless: a retry has no chance (Record.Chance).
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
	Record
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

// ErrErased says that a thread was erased while the retry looked. Nothing was published.
var ErrErased = errors.New("a thread was erased meanwhile; nothing was published: the same again leaves it out")

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
	read, err := r.compare(ctx, cfg, meant, records)
	if err != nil {
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
	err = commit(ctx, cl, publish, func() error { return erasedMeanwhile(ctx, cfg, read, publish) })
	if err != nil {
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
		e := Retried{Record: l, Outcome: Published}
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
// which partition a retry goes to. It returns what it has read.
func (r Retry) compare(ctx context.Context, cfg kafka.Config, meant []Retried, records []*kgo.Record) (map[int32]kafka.Span, error) {
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
		return nil, nil
	}
	spans, since, err := r.eventSpans(ctx, cfg, slices.Collect(maps.Keys(open)), oldest.Add(-clockSkew))
	if err != nil {
		return nil, err
	}
	from := make([]int64, len(meant)) // from where on a record has to do with the dead letter
	read := map[int32]kafka.Span{}
	cut := map[int]bool{} // the letters whose erasure skein.events may hold no more
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
			} else if gone {
				cut[i] = true
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
			return nil, fmt.Errorf("looking for earlier retries: %w", err)
		}
		if done++; r.Progress != nil && (done%1000 == 0 || done == total) {
			r.Progress(done, total)
		}
		letters := open[string(m.Key)]
		if letters == nil {
			continue
		}
		at := record.Position{Partition: m.Partition, Offset: m.Offset}
		if isErasure(m) {
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
	return read, r.compareErased(ctx, cfg, meant, records, from, cut)
}

// compareErased asks skein.runs, which keeps erasures for good, for those that skein.events holds no more.
func (r Retry) compareErased(ctx context.Context, cfg kafka.Config, meant []Retried, records []*kgo.Record, from []int64, cut map[int]bool) error {
	if len(cut) == 0 {
		return nil
	}
	keys := map[string]bool{}
	partitions := map[int32]bool{} // a thread has the same one on all topics of a set
	for i := range cut {
		keys[string(records[i].Key)], partitions[records[i].Partition] = true, true
	}
	spans, err := bounds(ctx, cfg, cfg.Topics().Runs, time.Time{})
	if err != nil {
		return err
	}
	maps.DeleteFunc(spans, func(p int32, _ kafka.Span) bool { return !partitions[p] })
	done, total := 0, 0
	for _, s := range spans {
		total += int(s.End - s.Start)
	}
	type erasure struct {
		below int64 // what lies below is erased
		at    time.Time
	}
	erasures := map[string]erasure{} // by key
	for m, err := range kafka.Scan(ctx, cfg, cfg.Topics().Runs, spans) {
		if err != nil {
			return fmt.Errorf("looking for erasures: %w", err)
		}
		if done++; r.Progress != nil && done%1000 == 0 {
			r.Progress(done, total)
		}
		if !keys[string(m.Key)] || len(m.Value) == 0 {
			continue
		}
		below, err := record.DecodeErased(m.Value)
		if err != nil {
			return fmt.Errorf("looking for erasures: partition %d of %s, offset %d: %w", m.Partition, m.Topic, m.Offset, err)
		}
		erasures[string(m.Key)] = erasure{below, m.Timestamp}
	}
	for i := range cut {
		e, ok := erasures[string(records[i].Key)]
		since := e.below > from[i]
		if meant[i].Position.Partition != records[i].Partition { // offsets of two partitions do not compare
			since = !e.at.Before(meant[i].At.Add(-clockSkew))
		}
		if ok && since {
			meant[i].Outcome, meant[i].RetriedAt = Erased, nil
		}
	}
	return nil
}

// erasedMeanwhile looks for erasures between what was read and what is about to be published: what is published behind
// one would be of the thread's next life. Of transactions that are open or were aborted they count as well, as nobody
// knows yet, or it costs no more than another try.
func erasedMeanwhile(ctx context.Context, cfg kafka.Config, read map[int32]kafka.Span, publish []*kgo.Record) error {
	keys, spans := map[string]bool{}, map[int32]kafka.Span{}
	for _, m := range publish { // the first of a partition comes first
		keys[string(m.Key)] = true
		if _, ok := spans[m.Partition]; !ok {
			spans[m.Partition] = kafka.Span{Start: read[m.Partition].End, End: m.Offset}
		}
	}
	for m, err := range kafka.ScanUncommitted(ctx, cfg, cfg.Topics().Events, spans) {
		if err != nil {
			return fmt.Errorf("looking for erasures: %w", err)
		}
		if keys[string(m.Key)] && isErasure(m) {
			return ErrErased
		}
	}
	return nil
}

func isErasure(m *kgo.Record) bool {
	headers, err := kafka.ParseHeaders(m.Headers)
	return err == nil && headers.Kind == record.KindErase
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

// settle waits until all can be read that lies on the partitions by now: what lies behind the first record of an open
// transaction is not among their Spans. Transactions that begin meanwhile are not waited for, as that could be for ever.
func settle(ctx context.Context, adm *kadm.Client, topic string, partitions map[int32]bool, patience time.Duration) error {
	tick := time.NewTicker(100 * time.Millisecond)
	defer tick.Stop()
	var wanted map[int32]kafka.Span // what cannot be read yet
	for end := time.Now().Add(patience); ; {
		open, err := kafka.Unsettled(ctx, adm, topic)
		if err != nil {
			return err
		}
		maps.DeleteFunc(open, func(p int32, _ kafka.Span) bool { return !partitions[p] })
		if wanted == nil {
			wanted = maps.Clone(open)
		}
		maps.DeleteFunc(wanted, func(p int32, s kafka.Span) bool {
			now, ok := open[p]
			return !ok || now.Start >= s.End
		})
		if len(wanted) == 0 {
			return nil
		}
		if time.Now().After(end) {
			p := slices.Min(slices.Collect(maps.Keys(wanted)))
			return fmt.Errorf("%w: what lies on partition %d of %s from %d to %d cannot be read before it ends, and may be the same retry, or an erasure. Try again then",
				ErrUnsettled, p, topic, wanted[p].Start, wanted[p].End)
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

// commit publishes records in one transaction, unless look, which is called once they have their offsets, says no.
func commit(ctx context.Context, cl *kgo.Client, records []*kgo.Record, look func() error) error {
	if err := cl.BeginTransaction(); err != nil {
		return err
	}
	err := cl.ProduceSync(ctx, records...).FirstErr()
	if err == nil {
		err = look()
	}
	if err != nil {
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
