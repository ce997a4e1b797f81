package partition

import (
	"encoding/json"
	"time"

	"github.com/skeinhq/skein/pkg/agui"
	"github.com/skeinhq/skein/pkg/compact"
	"github.com/skeinhq/skein/pkg/fold"
	"github.com/skeinhq/skein/pkg/lineage"
	"github.com/skeinhq/skein/pkg/record"
)

// run is one run in memory. After its record is committed, it is evicted: a sealed run at once, others once they were idle for a while
// (evict). The next event of an evicted run that is not sealed loads it from its record.
type run struct {
	key    string // of its record
	thread *thread
	meta   *threadRun // shared with the thread

	// Run is the run in the loop. Its Input is set until its first event; then origin has the input.
	*fold.Run
	// origin is what the run began with: noOrigin before the first event, and for a run that began with nothing.
	origin *origin
	// These members of the record do not follow from the metadata.
	foldVersion int
	kept        agui.Families
	rawLost     bool
	cutAt       *record.Cut

	ranges record.Ranges

	// changedFrom is the offset of the run's first event or input that no committed run record contains; -1 if there is none.
	changedFrom int64
	changedAt   time.Time // the stream time then
	written     written
	// unwritten is the run's parent resolution, from its first event on until a committed record has it (announce).
	unwritten *resolution
	// again means that its input repeats that of a sealed run with its client run id. Until its first event it may be no run at all
	// (fold.Thread.repeatsRun), so no announcement shows it, and it has a record after CheckpointMax only.
	again bool
	// due requests a record in the next transaction, regardless of the checkpoint rule.
	due bool
	// overLimit means that its last record was over the limit and was not written.
	overLimit bool
	// ending is the terminal event of a run that Skein ends because of a limit; nil for others.
	ending     json.RawMessage
	newBytes   int   // raw bytes since the last record
	baseBytes  int   // bytes of the run's starting history
	eventBytes int64 // raw bytes of all folded events
	touchedAt  time.Time
	counted    int // the size that runTable counts
	expiry     *expiryEntry
	// expired is its encoded record as an expired run; the run's next event or input clears it.
	expired *Output
}

// origin is what a run began with. It does not change, except that a cut shortens the input.
type origin struct {
	// base is the history that the record is encoded relative to; empty without a base. The fold has its messages anyway, and
	// restoring it for each record could mean reading a long chain.
	base lineage.History
	// These are the members of the record that describe the input.
	input    json.RawMessage
	messages []agui.Message
	layout   agui.Layout
	form     record.InputForm
	rewrote  []string
	resumes  []json.RawMessage
}

// setOrigin sets what the run began with to that of its record.
func (r *run) setOrigin(rec *record.Run, base lineage.History) {
	if r.origin = noOrigin; rec.Input != nil || rec.Base != "" {
		r.origin = &origin{base, rec.Input, rec.InputMessages, rec.InputLayout, rec.InputForm, rec.Rewrote, rec.Resumes}
	}
}

var noOrigin = &origin{}

// written describes the latest committed record of a run.
type written struct {
	exists bool
	// open means that the record shows the run as open, so readers know that there may be more.
	open bool
	// at is when the last record was made (written, or over the limit) or the run was loaded; bytes is that record's size.
	at    time.Time
	bytes int
}

func newRun(t *thread, key string, h *threadRun, folded *fold.Run, now time.Time) *run {
	return &run{
		key: key, thread: t, meta: h, Run: folded,
		changedFrom: -1, written: written{at: now}, touchedAt: now, foldVersion: compact.Version, origin: noOrigin,
	}
}

// take adds a record of skein.events to the run's raw ranges, whatever its outcome.
func (r *run) take(offset int64, at, now time.Time, size int) {
	r.ranges.Add(offset)
	r.meta.Next, r.meta.NextSeq = offset+1, r.Seq.Next
	r.meta.LastAt = at
	if r.changedFrom < 0 {
		r.changedFrom = offset
	}
	r.newBytes += size
	r.touchedAt, r.expired = now, nil
}

// noteEvent adds a record of skein.events to its run, whatever its outcome.
func (r *run) noteEvent(m *message) error {
	p := r.thread.p
	if r.changedFrom < 0 {
		p.runs.change(r)
		r.changedAt = p.clock.stream
	}
	r.take(m.Offset, p.clock.recordTime(m.now), m.now, len(m.Value))
	p.countAnomalies(m, r.Noted)
	if !r.meta.IsExpired() {
		p.retirement.expiring.refresh(r.expiry, r.meta.LastAt)
		return nil
	}
	p.retirement.closing.refresh(r.expiry, m.now)
	r.meta.Expire() // again: it ends at its last record, as for a process that loads it
	return r.show()
}

// recordCommitted updates the run after a record of it was committed, and reports whether the record covers all of the run; bytes is the
// record's size. An announcement covers none of the run's unwritten events.
func (r *run) recordCommitted(announces bool, bytes int, now time.Time) (all bool) {
	r.written.exists, r.written.open, r.unwritten = true, r.meta.Open(), nil
	if announces {
		return false
	}
	r.changedFrom, r.due, r.overLimit, r.expired = -1, false, false, nil
	r.written.at, r.written.bytes, r.newBytes = now, bytes, 0
	if r.meta.Base == "" { // the record has the whole history
		r.baseBytes = 0
	}
	return true
}

// runOverhead is the memory of a run without events, with its thread: TestRun_HoldsAboutWhatItIsCountedFor.
const runOverhead = 5 << 10

// size returns about how much memory the run takes: runOverhead, its last record, the raw bytes since, and the history that it starts from,
// which runs of one thread may share.
func (r *run) size() int {
	size := runOverhead + r.written.bytes + r.baseBytes
	if r.cutAt == nil { // a cut run keeps nothing of later events
		size += r.newBytes
	}
	if r.Fold != nil {
		size += r.Fold.Overhead()
	}
	return size
}

// setBase records the size of the history that the run starts from.
func (r *run) setBase(at lineage.History) { r.baseBytes = at.Bytes() + len(at.State) }

// show passes the current run to package lineage, once its parent is resolved for good.
func (r *run) show() error { return r.thread.Show(&r.meta.Metadata, r.Run) }
