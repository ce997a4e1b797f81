package compactor

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"time"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/skeinhq/skein/internal/trace"
	"github.com/skeinhq/skein/pkg/compactor/partition"
	"github.com/skeinhq/skein/pkg/fold"
	"github.com/skeinhq/skein/pkg/kafka"
)

// share is one partition's part of a transaction.
type share struct {
	view        // its progress goes into the group's offsets
	effects     partition.Effects
	fenceRecord *kgo.Record
}

// collect returns what the next transaction commits: the effects of all open partitions, the fences of those that are opening, and the
// offset of every partition whose progress is known, polled or not. The offset commit fences the transaction: the broker checks member,
// generation and instance, but not the ownership of a partition. Records that are processed later go into another transaction.
func (s *session) collect(ctx context.Context, own owned) (shares []share, err error) {
	now := s.now()
	ends := s.logEnds(ctx, own, now)
	if err := partition.CutLargest(own.open(), now); err != nil {
		return nil, err
	}
	room := s.room
	s.room = partition.NewRoom(max(1, len(own.parts)))
	s.limitMemory(own)
	for _, v := range s.inTurn(own) {
		switch v.phase {
		case phaseFetchingOffsets:
		case phaseFencing:
			if v.listed {
				shares = append(shares, share{view: v, fenceRecord: s.opener.fence(v.id)})
			}
		case phaseCatchingUp:
			shares = append(shares, share{view: v})
		case phaseOpen:
			end, known := ends[v.id]
			if !known {
				end = -1
			}
			paused := v.part.Stats().Paused
			e, err := v.part.Collect(partition.Cycle{Now: now, LogEnd: end, Room: room, Stopping: ctx.Err() != nil})
			if err != nil {
				return nil, err
			}
			if stats := v.part.Stats(); paused && !stats.Paused {
				s.opener.readFrom(v.id, stats.Next)
			}
			v.progress = e.Progress
			shares = append(shares, share{view: v, effects: e})
		}
	}
	return shares, nil
}

// inTurn returns this member's partitions in an order that rotates, as the first partition finds the room empty.
func (s *session) inTurn(own owned) []view {
	ids := slices.Sorted(maps.Keys(own.parts))
	parts := make([]view, len(ids))
	for i, id := range ids {
		parts[(i+s.turn)%len(ids)] = own.parts[id]
	}
	s.turn++
	return parts
}

// isWorthCommitting reports whether there is a reason for a transaction.
func isWorthCommitting(shares []share) bool {
	return slices.ContainsFunc(shares, func(sh share) bool { return sh.fenceRecord != nil || sh.effects.Changed })
}

// logEnds returns the log's end offset for each partition with a run that is due to expire or to be closed. It asks the
// brokers at intervals. Without an answer no run expires by the clock.
func (s *session) logEnds(ctx context.Context, own owned, now time.Time) map[int32]int64 {
	if now.Sub(s.expiryCheckedAt) < min(time.Minute, max(s.cfg.IdleLimit/10, 50*time.Millisecond)) {
		return nil
	}
	s.expiryCheckedAt = now
	var due []int32
	for id, v := range own.parts {
		if v.phase != phaseOpen {
			continue
		}
		if at := v.part.Stats().NextExpiry; !at.IsZero() && !at.After(now) {
			due = append(due, id)
		}
	}
	if len(due) == 0 {
		return nil
	}
	ctx, cancel := context.WithTimeout(ctx, 2*time.Second)
	defer cancel()
	listed, err := s.admin.ListEndOffsets(ctx, s.topics.Events)
	if err != nil {
		s.logger.Debug("listing end offsets", "topic", s.topics.Events, "error", err)
		return nil
	}
	ends := map[int32]int64{}
	for _, id := range due {
		if end, ok := listed.Lookup(s.topics.Events, id); ok && end.Err == nil {
			ends[id] = end.Offset
		}
	}
	return ends
}

// transaction is the open transaction. Records are sent while others are folded, so that the client compresses them meanwhile.
type transaction struct {
	ctx     context.Context
	cancel  context.CancelFunc
	refused kgo.FirstErrPromise // not aborting: the transaction's abort needs every answer
}

// begin begins a transaction unless one is open.
func (s *session) begin(ctx context.Context) error {
	if s.txn != nil {
		return nil
	}
	if err := s.group.Begin(); err != nil {
		return fmt.Errorf("beginning transaction: %w", err)
	}
	s.txn = &transaction{}
	s.txn.ctx, s.txn.cancel = detached(ctx)
	return nil
}

// sendBytes is the size of a partition's outputs that are sent before the transaction ends: smaller batches cost more than they save.
var sendBytes = 128 << 10

// send sends what the partitions have written, where it is much, unless the transaction has to wait (hold).
func (s *session) send(ctx context.Context, own owned) error {
	if own.joining || s.members.misplaced() {
		return nil
	}
	for _, p := range own.open() {
		outputs := p.Send(sendBytes)
		if len(outputs) == 0 {
			continue
		}
		if err := s.begin(ctx); err != nil {
			return err
		}
		for _, o := range outputs {
			s.group.Produce(s.txn.ctx, o.Record, s.txn.refused.Promise())
		}
	}
	return nil
}

// abandon aborts the open transaction, if there is one. What was sent in it is sent again in the next.
func (s *session) abandon() error {
	if s.txn == nil {
		return nil
	}
	txn := s.txn
	defer txn.cancel()
	s.txn = nil
	if _, err := s.group.End(txn.ctx, kgo.TryAbort); err != nil {
		return endError(err)
	}
	for _, v := range s.owned().parts {
		if v.phase == phaseOpen {
			v.part.Resend()
		}
	}
	return nil
}

// commit writes the shares in one transaction. The shares are durable only if it returns cycleCommitted. An error ends the session.
func (s *session) commit(ctx context.Context, shares []share) (cycleOutcome, error) {
	began := s.now()
	if err := s.begin(ctx); err != nil {
		return cycleFailed, err
	}
	txn := s.txn
	defer txn.cancel()
	refused := s.produce(txn, shares)
	s.txn = nil
	committed, err := s.end(kgo.PreTxnCommitFnContext(txn.ctx, s.commitOffsets(shares)), refused)
	s.metrics.commitSeconds.Observe(s.now().Sub(began).Seconds())
	outcome := cycleUnknown
	switch {
	case err != nil:
		outcome, err = cycleFailed, endError(err)
	case committed:
		outcome = cycleCommitted
		s.trace(began, shares)
	case refused != nil:
		outcome = cycleAborted
		if errors.Is(refused, kerr.UnknownTopicID) { // created again: the client keeps the deleted topic
			err = fmt.Errorf("producing: %w", refused)
		}
	}
	s.metrics.transactions.WithLabelValues(string(outcome)).Inc()
	return outcome, err
}

// trace makes the spans of a transaction and of the runs whose ends it has written.
func (s *session) trace(began time.Time, shares []share) {
	if s.cfg.Tracer == nil {
		return
	}
	var runs []trace.Ended
	for _, sh := range shares {
		for _, o := range sh.effects.Outputs {
			if o.Ended != nil {
				runs = append(runs, trace.Ended{Run: o.Ended, ParentTraceparent: o.ParentTraceparent})
			}
		}
	}
	s.cfg.Tracer.Transaction(began, runs)
}

// produce sends all records that are not sent and waits until each of the transaction is acknowledged or refused.
func (s *session) produce(txn *transaction, shares []share) error {
	isNew := false
	produce := func(m *kgo.Record, sent bool) {
		if !sent {
			s.group.Produce(txn.ctx, m, txn.refused.Promise())
		}
		isNew = isNew || !s.learned[m.Topic]
		s.learned[m.Topic] = true
	}
	for _, sh := range shares {
		if sh.fenceRecord != nil {
			produce(sh.fenceRecord, false)
		}
		for i, o := range sh.effects.Outputs {
			produce(o.Record, i < sh.effects.Sent)
		}
	}
	if err := s.client.Flush(txn.ctx); err != nil {
		return fmt.Errorf("producing: %w", err)
	}
	if isNew { // the client needs metadata of these topics before the transaction ends
		kafka.Learned(s.client)
	}
	return txn.refused.Err()
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

// commitOffsets returns a function that replaces the offsets in the client's commit request, as the polled offsets are the wrong ones.
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

// settle updates the partitions after their transaction was committed. With cycleIdle nothing was committed, because any records that were
// read lie below the processed offset: then settle only counts them and frees memory.
func (s *session) settle(shares []share, outcome cycleOutcome) (cycleOutcome, error) {
	now, idle := s.now(), outcome == cycleIdle
	openRuns, openRunBytes, oldest := 0, 0, time.Time{}
	for _, sh := range shares {
		s.count(sh)
		if !idle && !s.members.current(sh.assignment) {
			outcome = cycleLostPartition // its next owner reads what was committed
			continue
		}
		switch sh.phase {
		case phaseOpen:
			var err error
			if idle { // cycles between the committed and the processed offset may be idle for long
				err = sh.part.Unload(now)
			} else {
				err = sh.part.Committed(sh.effects, now)
			}
			if err != nil {
				return cycleFailed, err
			}
			stats := sh.part.Stats()
			openRuns += stats.OpenRuns
			openRunBytes += stats.OpenRunBytes
			if at := stats.OldestOpenRun; oldest.IsZero() || !at.IsZero() && at.Before(oldest) {
				oldest = at
			}
			s.metrics.lag.Done(sh.id)
		case phaseFencing:
			sh.fence = sh.fenceRecord.Offset
			s.members.advance(sh.assignment, phaseCatchingUp)
			s.opener.open(sh.assignment)
		}
	}
	s.noteOpenRuns(openRuns, openRunBytes)
	s.metrics.oldestRun.Store(&oldest)
	return outcome, s.noteTenants(shares, now)
}

// noteOpenRuns sets the gauges of open runs and the memory that they may still take, once some have left memory.
func (s *session) noteOpenRuns(runs, bytes int) {
	s.metrics.openRuns.Set(float64(runs))
	s.metrics.openRunBytes.Set(float64(bytes))
	s.room.LimitMemory(s.cfg.Room(bytes))
}

// tenantsEvery is the time between two counts of open runs by tenant. Each count visits every run in memory.
const tenantsEvery = 5 * time.Second

// noteTenants counts the tenants' open runs.
func (s *session) noteTenants(shares []share, now time.Time) error {
	if s.metrics.tenants == nil || now.Sub(s.tenantsNotedAt) < tenantsEvery {
		return nil
	}
	s.tenantsNotedAt = now
	runs, bytes := map[string]float64{}, map[string]float64{}
	for _, sh := range shares {
		if sh.phase == phaseOpen && s.members.current(sh.assignment) {
			if err := sh.part.OpenRuns(runs, bytes); err != nil {
				return err
			}
		}
	}
	s.metrics.tenantOpenRuns.Set(runs)
	s.metrics.tenantOpenRunBytes.Set(bytes)
	return nil
}

// limitMemory makes the next transaction end before open runs hold more memory than they may.
func (s *session) limitMemory(own owned) {
	bytes := 0
	for _, p := range own.open() {
		bytes += p.Stats().OpenRunBytes
	}
	s.room.LimitMemory(s.cfg.Room(bytes))
}

// reopen opens every partition again from what is committed, as the transaction was aborted or its outcome is unknown.
// The client's own offsets are those that it has polled; open runs may hold back the committed ones.
func (s *session) reopen() {
	ids := s.members.reopen()
	slices.Sort(ids)
	s.client.PauseFetchPartitions(map[string][]int32{s.topics.Events: ids})
	s.logger.Warn("transaction did not commit, or its outcome is unknown: opening partitions again", "partitions", ids)
}

// count raises the metrics by what was committed, or read again.
func (s *session) count(sh share) {
	m := s.metrics
	m.events.WithLabelValues(string(fold.Folded)).Add(float64(sh.effects.Counts.Folded))
	for outcome, n := range sh.effects.Counts.Outcomes {
		m.events.WithLabelValues(string(outcome)).Add(float64(n))
	}
	for reason, n := range sh.effects.Counts.DeadLetters {
		m.deadLetters.WithLabelValues(reason).Add(float64(n))
	}
	for rule, n := range sh.effects.Counts.Anomalies {
		m.anomalies.WithLabelValues(rule).Add(float64(n))
	}
	for status, n := range sh.effects.Counts.Ended {
		m.runs.WithLabelValues(string(status)).Add(float64(n))
	}
	for what, r := range sh.effects.Counts.Reads {
		m.storeReads.WithLabelValues(what).Add(float64(r.Calls))
		m.storeReadBytes.WithLabelValues(what).Add(float64(r.Bytes))
	}
	for _, c := range sh.effects.Cut {
		m.cutRuns.Inc()
		s.logger.Warn("contents of run are cut: it is too large, or open runs hold more memory than they may", "tenant", c.Tenant, "thread_id", c.ThreadID, "run_id", c.RunID, "partition", sh.id, "bytes", c.Bytes)
	}
	for _, r := range sh.effects.Differing {
		s.logger.Warn("a run was sent again with other bytes, which were dropped", "tenant", r.Tenant, "thread_id", r.ThreadID,
			"run_id", r.RunID, "partition", sh.id)
	}
	m.eventBytes.Add(float64(sh.effects.Counts.Bytes))
	m.lostOffsets.Add(float64(sh.effects.Counts.Lost))
	for _, o := range sh.effects.Outputs {
		m.recordBytes.Add(float64(len(o.Record.Key) + len(o.Record.Value)))
		m.countTenant(o)
		if o.Kind != "" {
			m.records.WithLabelValues(o.Kind).Inc()
		}
	}
	if sh.fenceRecord != nil {
		m.records.WithLabelValues(kindFence).Inc()
	}
}

// endError classifies an error of End: another process has this instance's ids, or a new session is needed.
func endError(err error) error {
	if isFenced(err) {
		return fmt.Errorf("%w: %w", ErrFenced, err)
	}
	return fmt.Errorf("ending transaction: %w", err)
}

// grace is how long a transaction may continue after the process is asked to stop.
const grace = 5 * time.Second

// detached returns a context that outlives its parent by the grace: a cancelled End leaves the client in a state that
// only a new session cures.
func detached(parent context.Context) (context.Context, context.CancelFunc) {
	ctx, cancel := context.WithCancel(context.WithoutCancel(parent))
	stop := context.AfterFunc(parent, func() {
		select {
		case <-time.After(grace):
			cancel()
		case <-ctx.Done():
		}
	})
	return ctx, func() {
		stop()
		cancel()
	}
}
