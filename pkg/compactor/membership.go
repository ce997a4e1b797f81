package compactor

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"sync"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/skeinhq/skein/pkg/compactor/partition"
)

// membership holds the partitions that the group has assigned to this member. The client's callbacks update it and have
// committed offsets fetched in the background; the main loop does everything else.
type membership struct {
	topic      string // skein.events
	partitions int32  // of the topic set
	logger     *slog.Logger
	metrics    *metrics
	now        func() time.Time
	// fetch fetches the committed offsets of assignments in the background and passes each to offsetFetched.
	fetch func([]*assignment)

	mu       sync.Mutex
	assigned map[int32]*assignment
	// inGroup: the group has sent an assignment, which may be empty, and has not removed the member since.
	inGroup bool
	// revoked: partitions were revoked since the last End, so the next End will abort.
	revoked bool
	// joining is when the current rebalance began; zero if there is none. callbackDue: the next onAssigned does not end
	// the rebalance, since kgo rejoins after a revocation and hides the onRevoked of that second rebalance.
	joining     time.Time
	callbackDue bool
	// failure is an error that a callback found; it ends the session.
	failure error
}

// joinWait is the longest time that a transaction waits for a join.
const joinWait = 5 * time.Second

// owned is the state of this member's partitions at one moment.
type owned struct {
	parts map[int32]view
	// joining: a join is under way. A transaction would carry the old generation and be aborted, or stall.
	joining bool
}

// open returns the processors of open partitions, except those that still have to mark runs for a gap.
func (o owned) open() (parts []*partition.Processor) {
	for _, v := range o.parts {
		if v.phase == phaseOpen && !v.part.Stats().Paused {
			parts = append(parts, v.part)
		}
	}
	return parts
}

func (m *membership) onAssigned(_ context.Context, cl *kgo.Client, assigned map[string][]int32) {
	ids := assigned[m.topic]
	if len(ids) > 0 {
		// Paused before the client even fetches offsets, so that it fetches no records yet.
		cl.PauseFetchPartitions(map[string][]int32{m.topic: ids})
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	if !m.callbackDue {
		m.joining = time.Time{}
	}
	m.callbackDue = false
	if !m.inGroup && len(m.assigned) == 0 {
		m.metrics.lag.Only(ids...) // partitions of an earlier session may be another member's now
	}
	m.inGroup = true
	added := make([]*assignment, len(ids))
	for i, id := range ids {
		added[i] = newAssignment(id, m.now())
		m.put(added[i])
	}
	m.metrics.lag.Opening(ids...)
	if len(ids) > 0 {
		m.fetch(added)
		m.logger.Info("partitions assigned", "partitions", ids)
	}
}

// put replaces the assignment of a partition.
func (m *membership) put(a *assignment) {
	if old := m.assigned[a.id]; old != nil {
		old.cancel()
	}
	m.assigned[a.id] = a
}

// drop ends an assignment.
func (m *membership) drop(a *assignment) {
	a.cancel()
	delete(m.assigned, a.id)
	m.metrics.lag.Gone(a.id)
	m.metrics.stops.Remove(a.id)
}

// stop marks a partition as stopped, since a newer Skein wrote its next record.
func (m *membership) stop(id int32, err error) {
	if m.metrics.stops.Add(id, err) {
		m.logger.Error("partition stopped: a newer version wrote its next record; update this process", "partition", id, "error", err)
	}
}

func (m *membership) onRevoked(_ context.Context, _ *kgo.Client, revoked map[string][]int32) {
	m.lost(revoked[m.topic], true)
}

func (m *membership) onLost(_ context.Context, _ *kgo.Client, lost map[string][]int32) {
	m.lost(lost[m.topic], false)
}

// lost drops partitions at once, inside the callback: the broker does not check the ownership of a partition, so this member must
// not write for it any more.
func (m *membership) lost(ids []int32, revoked bool) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.joining = m.now() // until onAssigned, which comes for every generation, even with nothing new
	m.inGroup = m.inGroup && revoked
	for _, id := range ids {
		if a := m.assigned[id]; a != nil { // nil while the session closes: the lag is then the next session's
			m.drop(a)
		}
		m.revoked = true
		m.callbackDue = revoked
	}
	if len(ids) > 0 {
		m.logger.Info("partitions taken", "partitions", ids, "lost", !revoked)
	}
}

// offsetFetched sets the group's committed offset of a partition.
func (m *membership) offsetFetched(a *assignment, offset int64, metadata string) {
	progress, err := partition.ParseProgress(offset, metadata, m.partitions)
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.assigned[a.id] != a || a.phase != phaseFetchingOffsets {
		return
	}
	if err != nil {
		m.failure = fmt.Errorf("opening partition %d: %w", a.id, err)
		return
	}
	a.progress, a.phase = progress, phaseFencing
}

// adjustOffsets replaces a missing committed offset by 0, as SetOffsets and CommittedOffsets silently skip partitions
// without one. The partition is paused, and its real first offset is set when it opens.
func adjustOffsets(_ context.Context, m map[string]map[int32]kgo.Offset) (map[string]map[int32]kgo.Offset, error) {
	for _, offsets := range m {
		for p, o := range offsets {
			if o.EpochOffset().Offset < 0 {
				offsets[p] = kgo.NewOffset().At(0)
			}
		}
	}
	return m, nil
}

// owned returns this member's partitions. The argument held is the client's own list. owned drops partitions that have
// left the list, since the client hides callbacks between two Ends.
func (m *membership) owned(held map[int32]kgo.EpochOffset) owned {
	m.mu.Lock()
	defer m.mu.Unlock()
	own := owned{parts: make(map[int32]view, len(m.assigned)), joining: !m.joining.IsZero() && m.now().Sub(m.joining) < joinWait}
	opening := 0
	for id, a := range m.assigned {
		if _, ok := held[id]; ok {
			a.seen = true
		} else if a.seen {
			m.logger.Info("partition left without a callback", "partition", id)
			m.drop(a)
			continue
		}
		if a.phase != phaseOpen {
			opening++
		}
		own.parts[id] = view{assignment: a, phase: a.phase, listed: a.seen, progress: a.progress}
	}
	m.metrics.partitions.WithLabelValues("open").Set(float64(len(own.parts) - opening))
	m.metrics.partitions.WithLabelValues("opening").Set(float64(opening))
	return own
}

// open returns the assignments of open partitions.
func (m *membership) open() map[int32]*assignment {
	m.mu.Lock()
	defer m.mu.Unlock()
	open := make(map[int32]*assignment, len(m.assigned))
	for id, a := range m.assigned {
		if a.phase == phaseOpen {
			open[id] = a
		}
	}
	return open
}

// misplaced reports whether the next transaction would send a record on the wrong partition to dead letters.
func (m *membership) misplaced() bool {
	for _, a := range m.open() {
		if a.part.Stats().Misplaced > 0 {
			return true
		}
	}
	return false
}

// current reports whether the assignment has not ended.
func (m *membership) current(a *assignment) bool {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.assigned[a.id] == a
}

// advance sets the phase of an assignment.
func (m *membership) advance(a *assignment, to phase) {
	m.mu.Lock()
	defer m.mu.Unlock()
	a.phase = to
}

// takeRevocation reports whether partitions were revoked since the last call, and returns the failure of a callback.
func (m *membership) takeRevocation() (revoked bool, failure error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.failure != nil {
		return false, m.failure
	}
	revoked, m.revoked = m.revoked, false
	return revoked, nil
}

// reopen replaces all assignments, as the committed offsets are unknown, and returns the partitions.
func (m *membership) reopen() (ids []int32) {
	m.mu.Lock()
	defer m.mu.Unlock()
	var again []*assignment
	for id, old := range m.assigned {
		a := newAssignment(id, m.now())
		a.seen = old.seen
		m.put(a)
		again, ids = append(again, a), append(ids, id)
	}
	m.fetch(again)
	return ids
}

// ready returns nil while all assigned partitions are open, else an error with what is missing.
func (m *membership) ready() error {
	m.mu.Lock()
	defer m.mu.Unlock()
	if !m.inGroup {
		return errors.New("the group has not given out its partitions")
	}
	opening := 0
	for _, a := range m.assigned {
		if a.phase != phaseOpen {
			opening++
		}
	}
	if opening > 0 {
		err := fmt.Errorf("%d of %d partitions are not open yet", opening, len(m.assigned))
		if stopped := m.metrics.stops.Check(); stopped != nil {
			err = fmt.Errorf("%w: %w", err, stopped)
		}
		return err
	}
	return nil
}

// close ends all assignments. It leaves their lag in the metric, as the next session or another member gets the partitions.
func (m *membership) close() {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.fetch = func([]*assignment) {} // a callback may yet come
	for id, a := range m.assigned {
		a.cancel()
		delete(m.assigned, id)
		m.metrics.stops.Remove(id)
	}
}
