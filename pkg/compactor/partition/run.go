package partition

import (
	"time"

	"github.com/skeinhq/skein/pkg/agui"
	"github.com/skeinhq/skein/pkg/compact"
	"github.com/skeinhq/skein/pkg/fold"
	"github.com/skeinhq/skein/pkg/lineage"
	"github.com/skeinhq/skein/pkg/record"
)

// run is one run in memory. A run leaves memory once its record is committed: for good if it is
// sealed, else after a while of silence, to be loaded from its record when it goes on.
type run struct {
	key    string // of its record
	thread *thread
	meta   *threadRun // shared with the thread

	// Run is the run as the loop folds it. Its Input is there until its first event only: from then on rec has it.
	*fold.Run
	// rec holds what does not change any more once the run is placed: ids, lineage, input.
	rec record.Run
	// base is the history that rec is encoded relative to; empty without a base. The fold holds its messages
	// anyway, and to restore it again at each record could mean to read a long chain.
	base lineage.History

	ranges record.Ranges

	// changedFrom is the first record of the run that is in no committed record, -1 if all are.
	changedFrom int64
	changedAt   time.Time // the stream time then
	// recorded says that a committed record of the run exists.
	hasRecord bool
	// placed says that a committed record has the run's place. What a pending run's record says of it is, as a rule,
	// for now only: its first event decides.
	placed bool
	// decided is the run's place, from its first event on until it is in a record, or out of a record until its first event is read again.
	decided *resolution
	// recordIsOpen says that the latest committed record shows the run as open: whoever reads it knows
	// that there may be more.
	recordIsOpen bool
	// due asks for a record in the next transaction, whatever the checkpoint rule says.
	due bool
	// unfit says that its last record was over the limit and was not written.
	unfit     bool
	savedAt   time.Time // when the last record was made, or the run came into memory
	savedSize int       // bytes of the last record, or about that where it was not written
	newBytes  int       // raw bytes since
	baseBytes int       // bytes of the history that it goes on from
	said      int64     // raw bytes of all folded events
	touchedAt time.Time
	wait      *wait
	// made is its record as an abandoned run, until another record of its comes.
	made *Output
}

func newRun(t *thread, key string, h *threadRun, now time.Time) *run {
	r := &run{
		key: key, thread: t, meta: h, Run: fold.NewRun(t.id, h.ID, h.Given()),
		changedFrom: -1, savedAt: now, touchedAt: now,
	}
	r.Seq.Next = h.NextSeq
	r.rec = record.Run{Tenant: t.tenant, ThreadID: t.id, RunID: h.ID, ClientRunID: h.ClientID, FoldVersion: compact.Version}
	return r
}

// take notes a record of skein.events as the run's, whatever becomes of it.
func (r *run) take(offset int64, at, now time.Time, size int) {
	r.ranges.Add(offset)
	r.meta.Next, r.meta.NextSeq = offset+1, r.Seq.Next
	r.meta.LastAt = at
	if r.changedFrom < 0 {
		r.changedFrom = offset
	}
	r.newBytes += size
	r.touchedAt, r.made = now, nil
}

// noteRecord notes the record that the run took last as the run's, whatever became of it.
func (p *Processor) noteRecord(r *run, m *message) error {
	if r.changedFrom < 0 {
		p.changed[r] = struct{}{}
		r.changedAt = p.streamTime
	}
	r.take(m.Offset, p.heard(m.now), m.now, len(m.Value))
	p.countAnomalies(m, r.Noted)
	if r.meta.Open() {
		p.expiring.heard(r.wait, r.meta.LastAt)
		return nil
	}
	r.wait.since = m.now
	r.meta.End = m.Offset // abandoned: it ends with its last record, as a process that reads the record will say
	return r.show()
}

// runOverhead is what a run holds in memory, with its thread, before it has said anything:
// TestRun_HoldsAboutWhatItIsCountedFor.
const runOverhead = 7 << 10

// size is about what the run holds in memory: as much as its last record and what came since, the history that it goes on
// from, which runs of one thread may share, and what every run does.
func (r *run) size() int { return runOverhead + r.savedSize + r.newBytes + r.baseBytes }

// isBasedOn notes the history that the run goes on from.
func (r *run) isBasedOn(at lineage.History) { r.baseBytes = at.Bytes() + len(at.State) }

// show lets lineage see the run as it stands, once its place is decided.
func (r *run) show() error {
	switch {
	case !r.meta.Pending:
		return r.thread.live(r.meta, r.Fold.Messages)
	case r.meta.Placed:
		return r.thread.live(r.meta, func() []agui.Message { return r.decided.parent.Messages })
	default:
		return nil
	}
}
