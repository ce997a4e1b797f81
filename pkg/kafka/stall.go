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
	// lookEvery is the time between two looks of a StallWatch. No stage keeps a transaction open for this long.
	lookEvery = 5 * time.Second
	// lookTimeout limits the time of a look; peekTimeout that of reading one partition in it.
	lookTimeout = 10 * time.Second
	peekTimeout = 3 * time.Second
	// peekBytes limits the bytes that a peek fetches, since it needs only one record.
	peekBytes = 64 << 10

	// The causes of a stall, for the metric.
	stalledOpen   = "open-transaction"
	stalledUnread = "unread"
)

// StallWatch finds the partitions of a group's member that make no progress although they have records. The member itself cannot
// find them: if fetches fail, or beyond the last stable offset, it gets no records, as at the end of the log. The watch therefore
// compares the last stable offset with the high watermark and the group's offset, and adds stalled partitions to the member's Lag.
type StallWatch struct {
	cfg          Config
	topic, group string
	lag          *Lag
	adm          *kadm.Client
	stalled      *prometheus.GaugeVec
	seen         map[int32]seen  // state of each partition at the last look
	empty        map[int32]int64 // offset of each partition below which no record is unread
	finding      atomic.Pointer[error]
}

// seen is the state of a partition at a look.
type seen struct {
	// next is the first offset that the group has not processed; negative: the group has committed none. stable is the last stable
	// offset, end the high watermark.
	next, stable, end int64
	// reading means that the member has read records that are not done, and that its lag already counts.
	reading bool
	// err is the broker's error for the partition's offsets.
	err error
	stall
}

// stall is what a look found on a partition; the zero value means no stall.
type stall struct {
	cause string
	// since is the time of the first unread record, or if that is unknown, of the first look that found the stall.
	since time.Time
	text  error
}

// NewStallWatch returns the watch for a stage's member of a group. If cfg has a Registerer, it registers a metric with the stage's
// name there. Run closes the watch's client.
func NewStallWatch(cfg Config, stage, topic, group string, lag *Lag) (*StallWatch, error) {
	w := &StallWatch{
		topic: topic, group: group, lag: lag, seen: map[int32]seen{}, empty: map[int32]int64{},
		stalled: prometheus.NewGaugeVec(prometheus.GaugeOpts{
			Name: "skein_" + stage + "_stalled_partitions",
			Help: "Partitions that make no progress although they have unread records, by cause: " +
				"an open transaction of any producer, or unread.",
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
	// The watch reports findings instead of the client's warnings, and the stage's own clients have metrics.
	cfg.Logger, cfg.Registerer = nil, nil
	cl, err := cfg.newClient("watch", false)
	if err != nil {
		return nil, err
	}
	w.cfg, w.adm = cfg, kadm.NewClient(cl)
	return w, nil
}

// Run calls Look every lookEvery until ctx ends. It logs failed looks only for debugging, because another check reports missing
// brokers.
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

// Check returns the finding of the last look, or nil.
func (w *StallWatch) Check(context.Context) error {
	if err := w.finding.Load(); err != nil {
		return *err
	}
	return nil
}

// Look compares the member's partitions with the previous look. If brokers do not answer, it changes nothing and returns the error.
func (w *StallWatch) Look(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, lookTimeout)
	defer cancel()
	now, err := w.offsets(ctx, w.lag.reading())
	if err != nil {
		return err
	}
	for p, s := range now {
		if was, ok := w.seen[p]; ok {
			s.stall = w.compare(ctx, p, was, s)
			now[p] = s
		}
	}
	maps.DeleteFunc(w.empty, func(p int32, _ int64) bool { _, ok := now[p]; return !ok })
	w.seen = now
	w.publish()
	return nil
}

// offsets returns the offsets of partitions.
func (w *StallWatch) offsets(ctx context.Context, partitions map[int32]bool) (map[int32]seen, error) {
	now := make(map[int32]seen, len(partitions))
	if len(partitions) == 0 {
		return now, nil
	}
	group, err := w.adm.FetchOffsets(ctx, w.group)
	if err != nil && !errors.Is(err, kerr.GroupIDNotFound) { // with GroupIDNotFound, the group has committed nothing
		return nil, fmt.Errorf("asking for the offsets of group %s: %w", w.group, explain(err))
	}
	stable, stableErr := w.adm.ListCommittedOffsets(ctx, w.topic)
	ends, endErr := w.adm.ListEndOffsets(ctx, w.topic)
	if err := errors.Join(stableErr, endErr); err != nil && (len(stable[w.topic]) == 0 || len(ends[w.topic]) == 0) {
		return nil, fmt.Errorf("asking for the ends of %s: %w", w.topic, explain(err))
	}
	for p, reading := range partitions {
		s := seen{next: -1, reading: reading}
		if o, ok := group.Lookup(w.topic, p); ok && o.Err == nil {
			s.next = o.At
			// The compactor commits the first offset that it needs after a restart; the metadata has its processed offset.
			if committed, err := record.ParseMetadata(o.Metadata); err == nil {
				s.next = committed.Processed
			}
		}
		stableAt, endAt := stable[w.topic][p], ends[w.topic][p]
		s.stable, s.end, s.err = stableAt.Offset, endAt.Offset, explain(cmp.Or(stableAt.Err, endAt.Err))
		now[p] = s
	}
	return now, nil
}

// compare returns what a look finds on a partition. The argument was is the partition's state at the previous look.
func (w *StallWatch) compare(ctx context.Context, p int32, was, s seen) stall {
	since := func(cause string) time.Time {
		if was.cause == cause {
			return was.since
		}
		return time.Now()
	}
	unread := func(err error) stall {
		at := since(stalledUnread)
		return stall{stalledUnread, at, fmt.Errorf("%s/%d cannot be read since %s: %w", w.topic, p, at.UTC().Format(time.RFC3339), err)}
	}
	if s.next < was.next { // the group's offset was set back
		delete(w.empty, p)
	}
	switch {
	case s.err != nil && was.err == nil:
		return stall{}
	case s.err != nil:
		return unread(s.err)
	case !s.reading && s.next == was.next && max(s.next, w.empty[p]) < was.stable:
		// Offsets alone do not prove a stall, because there may be only transaction markers and aborted records.
		switch at, err := w.peek(ctx, p, Span{Start: s.next, End: was.stable}); {
		case err != nil:
			return unread(err)
		case !at.IsZero():
			return stall{stalledUnread, at, fmt.Errorf("%s/%d stands at offset %d, although a record of %s can be read there",
				w.topic, p, s.next, at.UTC().Format(time.RFC3339))}
		}
		w.empty[p] = was.stable
	}
	if s.stable < s.end && was.stable == s.stable && was.stable < was.end {
		return stall{stalledOpen, since(stalledOpen), fmt.Errorf("%s/%d can be read up to offset %d only: a transaction is open there; "+
			"end its producer, or abort it: kafka-transactions.sh abort --topic %s --partition %d --start-offset %d",
			w.topic, p, s.stable, w.topic, p, s.stable)}
	}
	return stall{}
}

// peek returns the time of the first record of a span, or zero if the span has no record.
func (w *StallWatch) peek(ctx context.Context, p int32, span Span) (time.Time, error) {
	ctx, cancel := context.WithTimeout(ctx, peekTimeout)
	defer cancel()
	if span.Start < 0 {
		span.Start = Earliest
	}
	for m, err := range Scan(ctx, w.cfg, w.topic, map[int32]Span{p: span},
		kgo.KeepRetryableFetchErrors(), kgo.FetchMaxPartitionBytes(peekBytes), kgo.FetchMaxBytes(peekBytes)) {
		if err != nil {
			return time.Time{}, err
		}
		return m.Timestamp, nil
	}
	return time.Time{}, nil
}

// publish sets the metric, the lag and the result of Check.
func (w *StallWatch) publish() {
	since, causes := map[int32]time.Time{}, map[string]int{}
	var first error
	for _, p := range slices.Sorted(maps.Keys(w.seen)) {
		if s := w.seen[p]; s.cause != "" {
			since[p] = s.since
			causes[s.cause]++
			first = cmp.Or(first, s.text)
		}
	}
	for _, cause := range []string{stalledOpen, stalledUnread} {
		w.stalled.WithLabelValues(cause).Set(float64(causes[cause]))
	}
	w.lag.stall(since)
	if len(since) > 1 {
		first = fmt.Errorf("%w (and %d more)", first, len(since)-1)
	}
	w.finding.Store(&first)
}
