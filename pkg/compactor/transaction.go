package compactor

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/skeinhq/skein/pkg/kafka"
	"github.com/skeinhq/skein/pkg/record"
)

// The outcomes of transactions, for the metric.
const (
	txnCommitted = "committed"
	// txnAborted: this process has given it up, as a record was not acknowledged.
	txnAborted = "aborted"
	// txnUnknown: aborted by a rebalance or a broker, or the client cannot tell.
	txnUnknown = "unknown"
	// txnError: the client cannot be trusted any more; a new session follows.
	txnError = "error"
)

// share is one partition's part of a transaction.
type share struct {
	view        // its position goes into the group's offsets
	effects     Effects
	fenceRecord *kgo.Record
}

// transact writes one transaction: the outputs of all open partitions, fences of those that are
// opening, and the offset of every partition whose position is known, polled or not. The offsets
// carry the fence: the broker checks member, generation and instance, not who owns a partition.
func (s *session) transact(ctx context.Context, parts map[int32]view, now time.Time) error {
	shares, changed, err := s.shares(parts, s.logEnds(ctx, parts, now), now)
	if err != nil {
		return err
	}
	if !changed { // what was read, if anything, is committed already
		s.done(shares)
		for _, sh := range shares {
			if sh.phase == phaseOpen {
				if err := sh.part.Unload(now); err != nil { // between C and P that may be for long
					return err
				}
			}
		}
		return nil
	}
	ctx, cancel := detached(ctx)
	defer cancel()

	began := s.now()
	if err := s.group.Begin(); err != nil {
		return fmt.Errorf("beginning transaction: %w", err)
	}
	failed := s.produce(ctx, shares)
	committed, err := s.end(kgo.PreTxnCommitFnContext(ctx, s.commitOffsets(shares)), failed)
	s.metrics.CommitSeconds.Observe(s.now().Sub(began).Seconds())
	switch {
	case err != nil:
		s.metrics.Transactions.WithLabelValues(txnError).Inc()
		return endError(err)
	case !committed:
		outcome := txnUnknown
		if failed != nil {
			outcome = txnAborted
		}
		s.metrics.Transactions.WithLabelValues(outcome).Inc()
		if errors.Is(failed, kerr.UnknownTopicID) { // made anew: the client stays with the topic that is gone
			return fmt.Errorf("producing: %w", failed)
		}
		s.reopen()
		return nil
	}
	s.metrics.Transactions.WithLabelValues(txnCommitted).Inc()
	return s.settle(shares)
}

// shares collects what is to be committed, ends being where logs end.
func (s *session) shares(parts map[int32]view, ends map[int32]int64, now time.Time) (shares []share, changed bool, err error) {
	room := s.room
	s.room = nil
	for _, v := range parts {
		switch v.phase {
		case phaseAsking:
			continue
		case phaseFencing:
			changed = true
			shares = append(shares, share{view: v, fenceRecord: &kgo.Record{
				Topic: s.topics.Runs, Partition: v.id, Key: []byte(record.FenceKey), Value: []byte(s.cfg.InstanceID),
				Headers: kafka.Headers(record.Headers{Version: record.Version, Kind: record.KindFence, Seq: -1}),
			}})
		case phaseCatching:
			shares = append(shares, share{view: v})
		case phaseOpen:
			end, known := ends[v.id]
			if !known {
				end = -1
			}
			paused := v.part.Stats().Paused
			e, err := v.part.Collect(Cycle{Now: now, LogEnd: end, Room: room})
			if err != nil {
				return nil, false, err
			}
			if stats := v.part.Stats(); paused && !stats.Paused {
				s.readOn(v.id, stats.Next)
			}
			changed = changed || e.Changed
			v.progress = e.Progress
			shares = append(shares, share{view: v, effects: e})
		}
	}
	return shares, changed, nil
}

// produce hands all records to the client and waits until each is acknowledged or refused.
func (s *session) produce(ctx context.Context, shares []share) error {
	var mu sync.Mutex
	var failed error
	promise := func(_ *kgo.Record, err error) {
		if err != nil {
			mu.Lock()
			failed = errors.Join(failed, err)
			mu.Unlock()
		}
	}
	for _, sh := range shares {
		if sh.fenceRecord != nil {
			s.group.Produce(ctx, sh.fenceRecord, promise)
		}
		for _, o := range sh.effects.Outputs {
			s.group.Produce(ctx, o.Record, promise)
		}
	}
	if err := s.client.Flush(ctx); err != nil {
		return fmt.Errorf("producing: %w", err)
	}
	s.learn(shares)
	mu.Lock()
	defer mu.Unlock()
	return failed
}

// learn has the client know the topics of what was produced before the transaction ends (kafka.Learned).
func (s *session) learn(shares []share) {
	first := false
	note := func(m *kgo.Record) {
		if !s.learned[m.Topic] {
			s.learned[m.Topic], first = true, true
		}
	}
	for _, sh := range shares {
		if sh.fenceRecord != nil {
			note(sh.fenceRecord)
		}
		for _, o := range sh.effects.Outputs {
			note(o.Record)
		}
	}
	if first {
		kafka.Learned(s.client)
	}
}

// end commits, or aborts if producing failed.
func (s *session) end(ctx context.Context, failed error) (bool, error) {
	try := kgo.TryCommit
	if failed != nil {
		try = kgo.TryAbort
		s.logger.Warn("transaction is aborted: a record was not acknowledged", "error", failed)
		if isFenced(failed) {
			return false, failed
		}
	}
	return s.group.End(ctx, try)
}

var errUnfenced = errors.New("no partition's position is known: the transaction would not be fenced")

// commitOffsets replaces the client's commit request: what was polled is not what is committed.
func (s *session) commitOffsets(shares []share) func(*kmsg.TxnOffsetCommitRequest) error {
	return func(req *kmsg.TxnOffsetCommitRequest) error {
		t := kmsg.NewTxnOffsetCommitRequestTopic()
		t.Topic = s.topics.Events
		for _, sh := range shares {
			p := kmsg.NewTxnOffsetCommitRequestTopicPartition()
			p.Partition, p.Offset, p.LeaderEpoch = sh.id, sh.progress.Committed, -1
			p.Metadata = kmsg.StringPtr(sh.progress.Metadata())
			t.Partitions = append(t.Partitions, p)
		}
		if len(t.Partitions) == 0 {
			return errUnfenced
		}
		req.Topics = append(req.Topics[:0], t)
		return nil
	}
}

// settle takes in that the transaction was committed.
func (s *session) settle(shares []share) error {
	now := s.now()
	openRuns, openRunBytes := 0, 0
	for _, sh := range shares {
		s.count(sh)
		if !s.current(sh.assignment) {
			continue // taken meanwhile: its next owner reads what was committed
		}
		switch sh.phase {
		case phaseOpen:
			if err := sh.part.Committed(sh.effects, now); err != nil {
				return err
			}
			stats := sh.part.Stats()
			openRuns += stats.OpenRuns
			openRunBytes += stats.OpenRunBytes
		case phaseFencing:
			a := sh.assignment
			a.fence = sh.fenceRecord.Offset
			s.mu.Lock()
			a.phase = phaseCatching
			s.mu.Unlock()
			s.work.Add(1)
			go s.open(a)
		}
	}
	s.done(shares)
	s.metrics.OpenRuns.Set(float64(openRuns))
	s.metrics.OpenRunBytes.Set(float64(openRunBytes))
	return nil
}

// done says that all that was read of the shares' partitions is committed.
func (s *session) done(shares []share) {
	for _, sh := range shares {
		if sh.phase == phaseOpen {
			s.metrics.Lag.Done(sh.id)
		}
	}
}

// reopen goes back to what is committed, on every partition: the outcome is not known. After a held
// commit the client's own idea of the offsets is the position, not what the broker holds.
func (s *session) reopen() {
	s.mu.Lock()
	defer s.mu.Unlock()
	var ids []int32
	for id, old := range s.assigned {
		if old.phase == phaseAsking && !old.asked {
			continue // the assignment's own answer is still to come
		}
		old.cancel()
		a := &assignment{id: id, since: s.now(), fence: -1, asked: true, known: old.known}
		a.ctx, a.cancel = context.WithCancel(context.Background())
		s.assigned[id] = a
		ids = append(ids, id)
		s.work.Add(1)
		go s.refetch(a)
	}
	s.client.PauseFetchPartitions(map[string][]int32{s.topics.Events: ids})
	slices.Sort(ids)
	s.logger.Warn("transaction of unknown outcome, opening partitions again", "partitions", ids)
}

// count raises the metrics by what was committed.
func (s *session) count(sh share) {
	m := s.metrics
	for outcome, n := range sh.effects.Counts.Outcomes {
		m.Events.WithLabelValues(outcomeNames[outcome]).Add(float64(n))
	}
	for reason, n := range sh.effects.Counts.DeadLetters {
		m.DeadLetters.WithLabelValues(reason).Add(float64(n))
	}
	for rule, n := range sh.effects.Counts.Anomalies {
		m.Anomalies.WithLabelValues(rule).Add(float64(n))
	}
	for status, n := range sh.effects.Counts.Ended {
		m.Runs.WithLabelValues(string(status)).Add(float64(n))
	}
	for what, r := range sh.effects.Counts.Reads {
		m.StoreReads.WithLabelValues(what).Add(float64(r.calls))
		m.StoreReadBytes.WithLabelValues(what).Add(float64(r.bytes))
	}
	m.EventBytes.Add(float64(sh.effects.Counts.Bytes))
	m.LostOffsets.Add(float64(sh.effects.Counts.Lost))
	for _, o := range sh.effects.Outputs {
		m.RecordBytes.Add(float64(len(o.Record.Key) + len(o.Record.Value)))
		if o.Kind != "" {
			m.Records.WithLabelValues(o.Kind).Inc()
		}
		if g := o.Outgrown; g != nil {
			s.logger.Warn("run is ended: it has grown too large", "tenant", g.Tenant, "thread_id", g.ThreadID, "run_id", g.RunID, "partition", sh.id, "bytes", g.Bytes)
		}
	}
	if sh.fenceRecord != nil {
		m.Records.WithLabelValues(outputFence).Inc()
	}
}

// endError says what an error of End means: another process has our ids, or a new session is needed.
func endError(err error) error {
	if isFenced(err) {
		return fmt.Errorf("%w: %w", ErrFenced, err)
	}
	return fmt.Errorf("ending transaction: %w", err)
}

// grace is how long a transaction may go on once the process is asked to stop.
const grace = 5 * time.Second

// detached returns a context that outlives its parent by the grace: a cancelled End leaves the
// client in a state that only a new session cures.
func detached(parent context.Context) (context.Context, context.CancelFunc) {
	ctx, cancel := context.WithCancel(context.WithoutCancel(parent))
	var timer *time.Timer
	var mu sync.Mutex
	stop := context.AfterFunc(parent, func() {
		mu.Lock()
		defer mu.Unlock()
		timer = time.AfterFunc(grace, cancel)
	})
	return ctx, func() {
		stop()
		mu.Lock()
		defer mu.Unlock()
		if timer != nil {
			timer.Stop()
		}
		cancel()
	}
}
