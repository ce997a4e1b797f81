package kafka

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"slices"
	"sync/atomic"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/skeinhq/skein/pkg/record"
)

const (
	// lookEvery is the time between two looks of a StallWatch. A partition that has not moved between two looks is
	// stalled: no transaction of a stage is open for that long.
	lookEvery = 5 * time.Second
	// lookTimeout bounds a look, and peekTimeout the read of one partition in it.
	lookTimeout = 10 * time.Second
	peekTimeout = 3 * time.Second
)

// peekBytes bounds what a peek fetches: it needs one record, and a larger batch comes alone.
const peekBytes = 64 << 10

// The causes of a stall, for the metric.
const (
	stalledOpen   = "open-transaction"
	stalledUnread = "unread"
)

// StallWatch finds the partitions of a group's member that make no progress although they have records. The member
// cannot see that: a broker returns nothing beyond the last stable offset, and nothing if fetches fail, and the
// member takes both for the end. So the watch compares the last stable offset with the high watermark and with the
// group's offset. What it finds counts in the member's Lag.
type StallWatch struct {
	cfg          Config
	topic, group string
	lag          *Lag
	adm          *kadm.Client
	stalled      *prometheus.GaugeVec
	seen         map[int32]standing // at the last look
	finding      atomic.Pointer[error]
}

// standing is the state of a partition at a look.
type standing struct {
	// next is the first offset that the group has not processed; negative: it has committed none.
	next int64
	// holds: the member has read records that it has not processed, and its lag counts them.
	holds bool
	// stable is the last stable offset, end the high watermark.
	stable, end int64
	// unread is since when a record waits to be read, open since when a transaction is open; zero: not so.
	unread, open time.Time
	// err is why the broker returned no offsets or no record.
	err error
	// read is the offset below which no record waits.
	read int64
}

// NewStallWatch makes the watch of a stage's member of a group. If cfg has a Registerer it gets a metric
// that is named after the stage. Run closes its client.
func NewStallWatch(cfg Config, stage, topic, group string, lag *Lag) (*StallWatch, error) {
	w := &StallWatch{
		topic: topic, group: group, lag: lag, seen: map[int32]standing{},
		stalled: prometheus.NewGaugeVec(prometheus.GaugeOpts{
			Name: "skein_" + stage + "_stalled_partitions",
			Help: "Partitions that make no progress although they have unread records, by cause: an open transaction of any producer, or unread.",
		}, []string{"cause"}),
	}
	for _, cause := range []string{stalledOpen, stalledUnread} {
		w.stalled.WithLabelValues(cause)
	}
	if cfg.Registerer != nil {
		if err := cfg.Registerer.Register(w.stalled); err != nil {
			return nil, fmt.Errorf("registering metrics of stalled partitions: %w", err)
		}
	}
	// It reports what its clients would warn of, and the stage's own clients have the metrics.
	cfg.Logger, cfg.Registerer = nil, nil
	cl, err := cfg.newClient("watch", false)
	if err != nil {
		return nil, err
	}
	w.cfg, w.adm = cfg, kadm.NewClient(cl)
	return w, nil
}

// Run looks until ctx ends. A look that fails finds nothing: another check reports that Kafka does not answer.
func (w *StallWatch) Run(ctx context.Context, logger *slog.Logger) {
	defer w.adm.Close()
	tick := time.NewTicker(lookEvery)
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
		}
		if err := w.Look(ctx); err != nil && ctx.Err() == nil {
			logger.Debug("looking for stalled partitions", "error", err)
		}
	}
}

// Check returns what the last look found, or nil.
func (w *StallWatch) Check(context.Context) error {
	if err := w.finding.Load(); err != nil {
		return *err
	}
	return nil
}

// Look compares the member's partitions with the look before. If the brokers do not answer it changes nothing and
// returns why.
func (w *StallWatch) Look(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, lookTimeout)
	defer cancel()
	now, err := w.ask(ctx, w.lag.reading())
	if err != nil {
		return err
	}
	for p, s := range now {
		if was, ok := w.seen[p]; ok {
			now[p] = w.compare(ctx, p, was, s)
		}
	}
	w.seen = now
	w.publish()
	return nil
}

// ask returns the state of partitions, as far as the brokers' offsets show it.
func (w *StallWatch) ask(ctx context.Context, partitions map[int32]bool) (map[int32]standing, error) {
	now := make(map[int32]standing, len(partitions))
	if len(partitions) == 0 {
		return now, nil
	}
	group, err := w.adm.FetchOffsets(ctx, w.group)
	if err != nil && !errors.Is(err, kerr.GroupIDNotFound) { // that is a group that has committed nothing
		return nil, fmt.Errorf("asking for the offsets of group %s: %w", w.group, explain(err))
	}
	stable, stableErr := w.adm.ListCommittedOffsets(ctx, w.topic)
	ends, endErr := w.adm.ListEndOffsets(ctx, w.topic)
	if err := errors.Join(stableErr, endErr); err != nil && (len(stable[w.topic]) == 0 || len(ends[w.topic]) == 0) {
		return nil, fmt.Errorf("asking for the ends of %s: %w", w.topic, explain(err))
	}
	for p, holds := range partitions {
		s := standing{next: -1, holds: holds}
		if o, ok := group.Lookup(w.topic, p); ok && o.Err == nil {
			s.next = o.At
			// The compactor commits the first offset that it needs again, and its processed offset beside it.
			if processed, _, err := record.DecodeProcessed(o.Metadata); err == nil {
				s.next = processed
			}
		}
		stableAt, endAt := stable[w.topic][p], ends[w.topic][p]
		s.stable, s.end, s.err = stableAt.Offset, endAt.Offset, explain(cmp.Or(stableAt.Err, endAt.Err))
		now[p] = s
	}
	return now, nil
}

// compare returns s with what it shows beside the look before.
func (w *StallWatch) compare(ctx context.Context, p int32, was, s standing) standing {
	switch {
	case s.err != nil:
		if was.err != nil {
			s.unread = cmp.Or(was.unread, time.Now())
		}
		return s
	case s.stable < s.end && was.stable == s.stable && was.stable < was.end:
		s.open = cmp.Or(was.open, time.Now())
	}
	switch {
	case s.next != was.next || s.holds || s.next >= s.stable || was.stable <= max(was.next, 0): // it has moved, or records came since
	case was.read >= was.stable:
		s.read = was.read
	case !was.unread.IsZero() && was.err == nil:
		s.unread = was.unread
	default:
		// The offsets alone prove nothing: transaction markers and aborted records may lie there.
		if s.unread, s.err = w.peek(ctx, p, Span{Start: s.next, End: was.stable}); s.err != nil {
			s.unread = cmp.Or(was.unread, time.Now())
		} else if s.unread.IsZero() {
			s.read = was.stable
		}
	}
	return s
}

// peek returns the time of the first record of a span, or zero if it holds none.
func (w *StallWatch) peek(ctx context.Context, p int32, span Span) (time.Time, error) {
	ctx, cancel := context.WithTimeout(ctx, peekTimeout)
	defer cancel()
	if span.Start < 0 {
		span.Start = StartOffset
	}
	for m, err := range scan(ctx, w.cfg, w.topic, map[int32]Span{p: span},
		kgo.KeepRetryableFetchErrors(), kgo.FetchMaxPartitionBytes(peekBytes), kgo.FetchMaxBytes(peekBytes)) {
		if err != nil {
			return time.Time{}, err
		}
		return m.Timestamp, nil
	}
	return time.Time{}, nil
}

// publish hands the findings to the metric, the lag and Check.
func (w *StallWatch) publish() {
	since := map[int32]time.Time{}
	var open, unread int
	var found []error
	for _, p := range slices.Sorted(maps.Keys(w.seen)) {
		s := w.seen[p]
		if !s.open.IsZero() {
			open++
			since[p] = s.open
		}
		if !s.unread.IsZero() {
			unread++
			since[p] = s.unread
		}
		switch {
		case !s.unread.IsZero() && s.err != nil:
			found = append(found, fmt.Errorf("%s/%d cannot be read since %s: %w", w.topic, p, s.unread.UTC().Format(time.RFC3339), s.err))
		case !s.unread.IsZero():
			found = append(found, fmt.Errorf("%s/%d stands at offset %d, although a record of %s can be read there",
				w.topic, p, s.next, s.unread.UTC().Format(time.RFC3339)))
		case !s.open.IsZero():
			found = append(found, fmt.Errorf("%s/%d can be read up to offset %d only: a transaction is open there; "+
				"end its producer, or abort it: kafka-transactions.sh abort --topic %s --partition %d --start-offset %d",
				w.topic, p, s.stable, w.topic, p, s.stable))
		}
	}
	var first error
	if len(found) > 0 {
		first = found[0]
	}
	if len(found) > 1 {
		first = fmt.Errorf("%w (and %d more)", first, len(found)-1)
	}
	w.stalled.WithLabelValues(stalledOpen).Set(float64(open))
	w.stalled.WithLabelValues(stalledUnread).Set(float64(unread))
	w.lag.stall(since)
	w.finding.Store(&first)
}
