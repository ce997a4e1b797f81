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
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/skeinhq/skein/pkg/record"
)

const (
	// lookEvery is the time between two looks of a StallWatch. What stands as it stood at the look before
	// is stalled: no transaction of a stage's own is open for that long.
	lookEvery = 5 * time.Second
	// lookTimeout bounds a look, and peekTimeout the part of it that reads records.
	lookTimeout = 10 * time.Second
	peekTimeout = 3 * time.Second
)

// peekBytes is what a look asks a broker for of each partition.
const peekBytes = 64 << 10

// The causes of a stall, for the metric.
const (
	stalledOpen   = "open-transaction"
	stalledUnread = "unread"
)

// StallWatch finds the partitions of a group's member that stand still although something lies there,
// which the member itself cannot see: a reader is given nothing beyond the last stable offset, and nothing
// where its fetches fail, and takes both for the end. The watch asks the brokers from outside, with clients
// of its own: where each partition ends, up to where it may be read, and what the group has committed.
// What it finds counts in the member's Lag.
type StallWatch struct {
	cfg          Config
	topic, group string
	lag          *Lag
	adm          *kadm.Client
	stalled      *prometheus.GaugeVec
	seen         map[int32]standing // at the last look
	finding      atomic.Pointer[error]
}

// standing is how a partition stands at a look.
type standing struct {
	// next is the first offset that the group has not dealt with; negative: it has begun nowhere.
	next int64
	// holds: the member has read something that it has not dealt with, and its lag knows.
	holds bool
	// stable is the offset up to which records are given out, end where the partition ends.
	stable, end int64
	// asked is why the brokers did not say that.
	asked error

	// oldest is the time of the first record that could be read and was not; zero: none below searched is known.
	oldest   time.Time
	searched int64
	// why is why it cannot be read, or asked for, since when.
	why   error
	since time.Time
	// opened is the time of the record that begins the transaction that is open; zero: none is, for long.
	opened time.Time
}

// unread is since when something waits to be read; zero: nothing does, or nothing has for long.
func (s standing) unread() time.Time {
	if s.why != nil {
		return s.since
	}
	return s.oldest
}

// NewStallWatch makes the watch of a stage's member of a group. Where cfg has a Registerer it gets a metric,
// which is named after the stage. Run ends its client.
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
	// It finds out by itself what its clients would warn of, and others have the metrics.
	cfg.Logger, cfg.Registerer = nil, nil
	cl, err := cfg.newClient("watch", false)
	if err != nil {
		return nil, err
	}
	w.cfg, w.adm = cfg, kadm.NewClient(cl)
	return w, nil
}

// Run looks until ctx ends. That a look fails is no finding: whether Kafka answers is another check's to say.
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

// Look compares how the member's partitions stand with how they stood at the look before. Where the brokers
// say nothing at all it changes nothing and returns why.
func (w *StallWatch) Look(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, lookTimeout)
	defer cancel()
	partitions := w.lag.reading()
	now, err := w.ask(ctx, partitions)
	if err != nil {
		return err
	}
	w.findUnread(ctx, now)
	w.findOpen(ctx, now)
	w.seen = now
	w.tell()
	return nil
}

// ask returns how partitions stand.
func (w *StallWatch) ask(ctx context.Context, partitions map[int32]bool) (map[int32]standing, error) {
	now := make(map[int32]standing, len(partitions))
	if len(partitions) == 0 {
		return now, nil
	}
	group, err := w.adm.FetchOffsets(ctx, w.group)
	if err != nil && !errors.Is(err, kerr.GroupIDNotFound) { // that is one that has committed nothing
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
			// The compactor holds its offset back at the first event that it needs again, and says beside
			// it what it has decided.
			if decided, _, err := record.DecodeProcessed(o.Metadata); err == nil {
				s.next = decided
			}
		}
		var stableAt, endAt error
		s.stable, stableAt = offsetOf(stable, w.topic, p, stableErr)
		s.end, endAt = offsetOf(ends, w.topic, p, endErr)
		s.asked = cmp.Or(stableAt, endAt)
		now[p] = s
	}
	return now, nil
}

// errNoAnswer stands for an answer that leaves a partition out.
var errNoAnswer = errors.New("the broker did not say")

func offsetOf(all kadm.ListedOffsets, topic string, partition int32, missing error) (int64, error) {
	o, ok := all.Lookup(topic, partition)
	switch {
	case ok:
		return o.Offset, o.Err
	case missing != nil:
		return 0, missing
	}
	return 0, errNoAnswer
}

// findUnread finds the partitions where the group stands where it stood, and something can be read there.
// That its offset is below the end proves nothing: a client passes the markers of transactions over, if it is not
// told to keep them, and what was aborted. So where it is not known yet, they are read.
func (w *StallWatch) findUnread(ctx context.Context, now map[int32]standing) {
	from, below := map[int32]int64{}, map[int32]int64{}
	for p, s := range now {
		was, known := w.seen[p]
		switch {
		case s.asked != nil && was.asked == nil:
			s.since = time.Now()
		case s.asked != nil:
			s.why, s.since = s.asked, was.since
		case !known || was.asked != nil || was.next != s.next || s.next >= s.stable || s.holds:
		case was.stable <= max(was.next, 0): // what lies there has come since
		case !was.oldest.IsZero(): // what was found is there still
			s.oldest = was.oldest
		case was.searched < was.stable:
			from[p], below[p] = s.next, was.stable
			if s.next < 0 {
				from[p] = StartOffset
			}
		default:
			s.searched = was.searched
		}
		now[p] = s
	}
	for p, found := range w.peek(ctx, from, below, kgo.ReadCommitted()) {
		s := now[p]
		if found.err == nil {
			s.oldest, s.searched = found.at, below[p]
		} else if s.why, s.since = found.err, w.seen[p].since; s.since.IsZero() {
			s.since = time.Now()
		}
		now[p] = s
	}
}

// findOpen finds the partitions whose last stable offset stands where it stood, before the end: it is the
// first record of a transaction that is open, and that record can be read by who does not ask for more.
func (w *StallWatch) findOpen(ctx context.Context, now map[int32]standing) {
	from, below := map[int32]int64{}, map[int32]int64{}
	for p, s := range now {
		was, known := w.seen[p]
		if !known || s.asked != nil || was.asked != nil || s.stable >= s.end || was.stable >= was.end || was.stable != s.stable {
			continue
		}
		if s.opened = was.opened; s.opened.IsZero() {
			from[p], below[p] = s.stable, s.end
		}
		now[p] = s
	}
	for p, found := range w.peek(ctx, from, below, kgo.ReadUncommitted()) {
		s := now[p]
		if s.opened = found.at; s.opened.IsZero() {
			s.opened = time.Now() // it is open all the same
		}
		now[p] = s
	}
}

// peeked is the time of a partition's first record in a stretch; zero: there is none, or err is why nobody knows.
type peeked struct {
	at  time.Time
	err error
}

var errUnanswered = errors.New("no fetch was answered")

// peek reads the first record of partitions at or above an offset and below another one.
func (w *StallWatch) peek(ctx context.Context, from, below map[int32]int64, level kgo.IsolationLevel) map[int32]peeked {
	out := make(map[int32]peeked, len(from))
	if len(from) == 0 {
		return out
	}
	ctx, cancel := context.WithTimeout(ctx, peekTimeout)
	defer cancel()
	var answers fetchAnswers
	cl, err := NewDirectReader(w.cfg, w.topic, from,
		kgo.FetchIsolationLevel(level), kgo.WithHooks(&answers),
		// The markers of transactions say how far it has come, and errors that pass are what it looks for.
		kgo.KeepControlRecords(), kgo.KeepRetryableFetchErrors(),
		// The first record is all that it wants: a reader's own limits are those of a backlog, which can unpack
		// to hundreds of megabytes. A larger batch comes alone.
		kgo.FetchMaxPartitionBytes(peekBytes), kgo.FetchMaxBytes(4*peekBytes))
	if err != nil {
		for p := range from {
			out[p] = peeked{err: err}
		}
		return out
	}
	defer cl.Close()
	var failed map[int32]error
	for len(out) < len(from) && ctx.Err() == nil {
		fetches := cl.PollFetches(ctx)
		failed = map[int32]error{}
		for _, e := range fetches.Errors() {
			if ctx.Err() == nil {
				failed[e.Partition] = e.Err
			}
		}
		fetches.EachRecord(func(m *kgo.Record) {
			_, known := out[m.Partition]
			switch {
			case known:
			case m.Offset >= below[m.Partition]:
				out[m.Partition] = peeked{}
			case !m.Attrs.IsControl():
				out[m.Partition] = peeked{at: m.Timestamp}
			case m.Offset == below[m.Partition]-1:
				out[m.Partition] = peeked{}
			}
		})
		if len(failed) > 0 && fetches.NumRecords() == 0 {
			select { // the client has the same at once again
			case <-time.After(100 * time.Millisecond):
			case <-ctx.Done():
			}
		}
	}
	for p := range from {
		if _, known := out[p]; known {
			continue
		}
		switch err := failed[p]; {
		case err != nil:
			out[p] = peeked{err: err}
		case answers.n.Load() == 0:
			out[p] = peeked{err: errUnanswered}
		default: // what lies there was aborted, or is a part of it
			out[p] = peeked{}
		}
	}
	return out
}

// fetchAnswers counts fetches that were answered.
type fetchAnswers struct{ n atomic.Int64 }

var _ kgo.HookBrokerE2E = (*fetchAnswers)(nil)

// OnBrokerE2E implements kgo.HookBrokerE2E.
func (f *fetchAnswers) OnBrokerE2E(_ kgo.BrokerMetadata, key int16, e2e kgo.BrokerE2E) {
	if key == int16(kmsg.Fetch) && e2e.Err() == nil {
		f.n.Add(1)
	}
}

// tell hands on what the look has found.
func (w *StallWatch) tell() {
	since := map[int32]time.Time{}
	count := map[string]int{}
	var first error
	others := 0
	for _, p := range slices.Sorted(maps.Keys(w.seen)) {
		s := w.seen[p]
		var found error
		if at := s.unread(); !at.IsZero() {
			since[p] = at
			count[stalledUnread]++
			found = fmt.Errorf("%s/%d stands at offset %d, although a record of %s can be read there", w.topic, p, s.next, at.UTC().Format(time.RFC3339))
			if s.why != nil {
				found = fmt.Errorf("%s/%d cannot be read since %s: %w", w.topic, p, at.UTC().Format(time.RFC3339), explain(s.why))
			}
		}
		if !s.opened.IsZero() {
			if at, ok := since[p]; !ok || s.opened.Before(at) {
				since[p] = s.opened
			}
			count[stalledOpen]++
			if found == nil {
				found = fmt.Errorf("%s/%d can be read up to offset %d only: a transaction is open there since %s; "+
					"end its producer, or abort it: kafka-transactions.sh abort --topic %s --partition %d --start-offset %d",
					w.topic, p, s.stable, s.opened.UTC().Format(time.RFC3339), w.topic, p, s.stable)
			}
		}
		switch {
		case found == nil:
		case first == nil:
			first = found
		default:
			others++
		}
	}
	if others > 0 {
		first = fmt.Errorf("%w (and %d more)", first, others)
	}
	for _, cause := range []string{stalledOpen, stalledUnread} {
		w.stalled.WithLabelValues(cause).Set(float64(count[cause]))
	}
	w.lag.stall(since)
	w.finding.Store(&first)
}
