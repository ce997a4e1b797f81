package partition

import (
	"cmp"
	"container/list"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/skeinhq/skein/pkg/compactor/runstore"
	"github.com/skeinhq/skein/pkg/deadletter"
	"github.com/skeinhq/skein/pkg/fold"
	"github.com/skeinhq/skein/pkg/kafka"
	"github.com/skeinhq/skein/pkg/record"
)

// Processor folds the records of one partition and collects what a transaction has to write. One goroutine uses it at a
// time. Records and times come in as values. After a transaction of unknown outcome it is thrown away, and the next one
// is opened from what was committed.
//
// A new owner reads the events between the committed and the processed offset again, and must decide the same. Decisions that depend on
// time or order compare offsets. The transaction after a run's first event writes the run's parent resolution (announce), so that no
// later process resolves it again from what other open runs of the thread are by then.
type Processor struct {
	ledger
	count int32 // partitions of the topic set

	retirement retirement

	threads   map[string]*thread
	runs      runTable
	histories *histories
	awaiting  awaiting
	limits    limits // of the process's memory
	unloading bool   // the next commit continues to unload threads

	loop    fold.Loop
	message message // the record that is being processed; it is used again for the next
}

// OpenReport describes how a partition was opened, for the log.
type OpenReport struct {
	// Progress is where the processor resumes.
	Progress Progress
	// FromRecord means that Progress is from the progress record, as the group's offsets are gone or were set back.
	FromRecord bool
	// SetHigher are offsets that are never read, as the group's offset was set higher than what was committed.
	SetHigher OffsetRange
	// Gone are offsets that skein.events lost before they were read.
	Gone OffsetRange
}

// OffsetRange is the offsets from From to before Until. The zero value is empty.
type OffsetRange struct{ From, Until int64 }

// Open returns the processor of a partition. The store must have every committed record, group is what the group has committed, and
// logStart is the first offset that skein.events still has.
func Open(
	id int32, cfg Config, topics kafka.Topics, store *runstore.Store, group Progress, logStart int64,
) (*Processor, OpenReport, error) {
	last := store.Followed().Progress
	resumed, err := group.reconcile(last)
	if err != nil {
		return nil, OpenReport{}, err
	}
	switch {
	case cfg.IngestKeys == nil:
		resumed.Signed = 0
	case resumed.Signed == 0:
		resumed.Signed = resumed.Processed + 1
	}
	p, err := newProcessor(id, cfg, topics, store, resumed)
	if err != nil {
		return nil, OpenReport{}, err
	}
	report := OpenReport{Progress: resumed, FromRecord: resumed.Processed != group.Processed}
	from, until := resumed.Committed, logStart
	if group.wasSetHigher(last) {
		from, until = last.Committed, max(logStart, resumed.Committed)
		report.SetHigher = OffsetRange{from, resumed.Committed}
	}
	if report.FromRecord || report.SetHigher != (OffsetRange{}) {
		p.committed = group // differs, so the next transaction writes it to the group and to skein.runs in any case
	}
	if until <= from {
		return p, report, nil
	}
	lost := int64(0)
	if resumed.Processed > 0 { // otherwise nothing was ever committed, and the log begins later
		lost = until - from
		if logStart > resumed.Committed {
			report.Gone = OffsetRange{resumed.Committed, logStart}
		}
	}
	return p, report, p.openGap(until, lost)
}

// newProcessor returns the processor of a partition. The store must have every committed record.
func newProcessor(id int32, cfg Config, topics kafka.Topics, store *runstore.Store, pos Progress) (*Processor, error) {
	p := &Processor{
		ledger: ledger{
			id: id, cfg: cfg, topics: topics, store: store, progress: pos, committed: pos, next: pos.Committed,
			unsaved: newUnsaved(), room: NewRoom(1), counts: newCounts(),
		},
		count: pos.Partitions, threads: map[string]*thread{}, runs: newRunTable(), histories: newHistories(cfg.CacheBytes),
		awaiting: awaiting{byBranch: map[string]*list.Element{}}, limits: cfg.limits(1),
	}
	p.retirement = retirement{p: p, expiring: newExpiryQueue(), closing: newExpiryQueue()}
	if pos.StreamTime != 0 {
		p.clock.stream = time.UnixMilli(pos.StreamTime).UTC()
	}
	type unsealed struct {
		key   string
		since time.Time
		queue *expiryQueue
	}
	var runs []unsealed
	err := store.EachUnsealed(func(key string, recordedAt time.Time, h *fold.Metadata) {
		if h.Open() {
			runs = append(runs, unsealed{key, h.LastAt, p.retirement.expiring})
		} else {
			runs = append(runs, unsealed{key, recordedAt, p.retirement.closing})
		}
	})
	slices.SortFunc(runs, func(a, b unsealed) int { return cmp.Or(a.since.Compare(b.since), cmp.Compare(a.key, b.key)) })
	for _, r := range runs {
		r.queue.add(r.key, r.since)
	}
	return p, err
}

// Stop is the reason for which Process took no more records.
type Stop int

const (
	// StopEnd: there are no more records.
	StopEnd Stop = iota
	// StopFull: the room of the transaction is full.
	StopFull
	// StopVersion: a newer Skein wrote the next record (kafka.CheckVersion returns its version). The partition must stop there.
	StopVersion
)

// Process folds records in offset order and returns how many it took. It keeps none of their bytes, so the caller may use them again. It
// stops early if room is full, or before a record of a newer Skein. The memory that these records take of the room counts once all of them
// are folded. An error is never about the data: the partition cannot continue.
func (p *Processor) Process(records []*kgo.Record, now time.Time, room *Room) (taken int, stop Stop, err error) {
	p.enter(room)
	before := p.runs.bytes
	defer func() { room.memory.Add(int64(before - p.runs.bytes)) }() // once, as other partitions use the room, too
	for taken, m := range records {
		if room.Full() {
			return taken, StopFull, nil
		}
		switch err := p.process(m, now); {
		case err == nil:
		case errors.Is(err, record.ErrUnknownVersion):
			return taken, StopVersion, nil
		default:
			return taken, StopEnd, err
		}
	}
	return len(records), StopEnd, nil
}

// Cycle describes the transaction and the log for Collect.
type Cycle struct {
	Now time.Time
	// LogEnd is the end offset of skein.events; -1 if it is not known. Once everything below it is processed, runs expire by the
	// clock, as no record moves stream time.
	LogEnd int64
	Room   *Room
	// Stopping means that the process ends, so that branches await no snapshot any longer.
	Stopping bool
}

// Collect returns what the next transaction writes. Nothing may be processed until its outcome is known.
func (p *Processor) Collect(c Cycle) (Effects, error) {
	p.enter(c.Room)
	if c.LogEnd >= 0 {
		p.clock.noteLogEnd(c.LogEnd, p.next, c.Now)
	}
	if err := p.writeSnapshots(c); err != nil {
		return Effects{}, err
	}
	return p.collect(c.Now)
}

// Stats are figures of a processor, for its session.
type Stats struct {
	// Next is the next record to read, Processed the processed offset.
	Next, Processed int64
	// Paused means that open runs are being marked for a gap in skein.events. Until that is done, nothing may be processed, and Next is not
	// known.
	Paused bool
	// OpenRuns is the number of open runs, OpenRunBytes the memory of runs.
	OpenRuns, OpenRunBytes int
	// OldestOpenRun is when the oldest open run began; zero if there is none. For a run that another process began, or that was
	// silent beyond the idle limit, it is a later time: that of its last event then.
	OldestOpenRun time.Time
	// NextExpiry is when the next run expires or is closed; zero if there is none.
	NextExpiry time.Time
	// Misplaced are the records on the wrong partition that the next transaction sends to dead letters.
	Misplaced int
}

// Stats returns the processor's current figures.
func (p *Processor) Stats() Stats {
	return Stats{
		Next: p.next, Processed: p.progress.Processed, Paused: p.gap != nil,
		OpenRuns: len(p.retirement.expiring.heap), OpenRunBytes: p.runs.bytes, NextExpiry: p.retirement.nextExpiry(),
		OldestOpenRun: p.retirement.expiring.begun(), Misplaced: p.counts.DeadLetters[deadletter.WrongPartition],
	}
}

// OpenRuns adds each tenant's open and expired runs, and the memory of its runs, to the two maps.
func (p *Processor) OpenRuns(runs, bytes map[string]float64) error {
	for _, queue := range []*expiryQueue{p.retirement.expiring, p.retirement.closing} {
		for escaped, of := range queue.tenants {
			tenant, err := record.UnescapeKeyPart(escaped)
			if err != nil {
				return fmt.Errorf("counting open runs: %w", err)
			}
			runs[tenant] += float64(of.Len())
		}
	}
	for _, r := range p.runs.byKey {
		bytes[r.thread.tenant] += float64(r.counted)
	}
	return nil
}

// enter sets the room of the next transaction.
func (p *Processor) enter(room *Room) {
	if p.room == room {
		return
	}
	if p.room.partitions != room.partitions {
		p.limits = p.cfg.limits(room.partitions)
		p.histories.limit = p.limits.cacheBytes
	}
	p.room = room
	if p.runs.overMemory {
		room.Fill()
	}
}

// process folds one record of skein.events and keeps none of its bytes. An error is never about the data: the partition cannot continue.
// With record.ErrUnknownVersion the record is not processed.
func (p *Processor) process(m *kgo.Record, now time.Time) error {
	if m.Offset < p.next { // fetched again
		return nil
	}
	if m.Attrs.IsControl() {
		p.next = m.Offset + 1
		// A transaction marker counts as processed, so that the committed offset reaches the log's end. Otherwise an expired marker
		// would look like lost events.
		p.progress.Processed = max(p.progress.Processed, p.next)
		return nil
	}
	t := p.threads[string(m.Key)] // the key of a thread in memory is valid
	p.message.read(m, t)
	if errors.Is(p.message.unread, record.ErrUnknownVersion) && !p.refuses(&p.message) {
		return p.message.unread
	}
	p.next = m.Offset + 1
	p.counts.Bytes += len(m.Key) + len(m.Value)
	p.message.rebuilds, p.message.now = m.Offset < p.progress.Processed, now
	if p.clock.advance(m.Timestamp, now) {
		p.closeGap()
	}
	result, err := p.route(t, &p.message)
	if err != nil {
		return fmt.Errorf("processing record %s: %w", record.Position{Partition: p.id, Offset: m.Offset}, err)
	}
	if !p.message.rebuilds {
		p.progress.Processed = m.Offset + 1
		if result == fold.Folded { // as nearly all are
			p.counts.Folded++
		} else {
			p.counts.Outcomes[result]++
		}
	}
	return nil
}

// refuses reports whether ingest must have signed a record and has not. Nothing in its headers counts then, not even its version.
func (p *Processor) refuses(m *message) bool {
	return p.progress.Signed != 0 && m.Offset >= p.progress.Signed-1 && p.cfg.IngestKeys.Refuses(m.Record)
}

// route validates a record and dispatches it by its kind. t is its thread, nil if that is not in memory.
func (p *Processor) route(t *thread, m *message) (_ fold.Outcome, err error) {
	if len(m.Value) > kafka.MaxValueBytes {
		return p.deadLetter(m, deadletter.TooLarge, fmt.Sprintf("%d bytes, %d are allowed", len(m.Value), kafka.MaxValueBytes))
	}
	var tenant, id string
	if t == nil {
		parts, err := record.SplitKey(string(m.Key))
		if err != nil {
			return p.deadLetter(m, deadletter.BadKey, err.Error())
		}
		if len(parts) != 2 {
			return p.deadLetter(m, deadletter.BadKey, "want tenant/thread")
		}
		if want := record.Partition(m.Key, p.count); want != p.id {
			return p.deadLetter(m, deadletter.WrongPartition, fmt.Sprintf("the key belongs to partition %d of %d", want, p.count))
		}
		tenant, id = parts[0], parts[1]
	}
	if p.refuses(m) {
		return p.deadLetter(m, deadletter.NotFromIngest, "")
	}
	switch bad := m.unread; {
	case errors.Is(bad, record.ErrUnknownKind):
		return p.deadLetter(m, deadletter.UnknownKind, bad.Error())
	case bad != nil:
		return p.deadLetter(m, deadletter.BadHeaders, bad.Error())
	}
	switch m.event.Headers.Kind { // these neither begin a run nor keep one open
	case record.KindCancel:
		return outcomeCancel, nil
	case record.KindClaim:
		return outcomeClaim, nil
	case record.KindThread:
		return p.setDetails(m)
	}
	if t == nil {
		if t, err = p.thread(string(m.Key), tenant, id); err != nil {
			return "", err
		}
	}
	t.usedAt, t.headers = m.now, m.event.Headers
	if !m.rebuilds && !p.clock.stream.Before(t.noExpiryBefore) {
		if err := p.retirement.expireIdleOf(t, m.now); err != nil {
			return "", err
		}
	}
	if m.Offset < t.erased { // between the committed and the processed offset: its run was deleted
		return outcomeErased, nil
	}
	switch m.event.Headers.Kind {
	case record.KindEvent, record.KindInput:
		return p.fold(t, m)
	case record.KindErase:
		return p.erase(t, m)
	default:
		return p.deadLetter(m, deadletter.UnknownKind, string(m.event.Headers.Kind))
	}
}

// fold passes an event or an input to the loop, and updates the run by the outcome.
func (p *Processor) fold(t *thread, m *message) (outcome fold.Outcome, err error) {
	p.loop.Runs = t
	taken, outcome, err := p.loop.Next(&m.event)
	if err != nil {
		return "", err
	}
	if taken == nil {
		return p.leaveOut(t, m, outcome)
	}
	if outcome == fold.Malformed && t.IsNew { // it begins no run
		return p.malformed(m)
	}
	r := t.Member.live
	var resolved *resolution
	if t.Resolution != nil && r.Fold != nil {
		resolved = r.resolvedAt(t.Resolution)
	}
	if t.IsNew {
		r.register()
	}
	if err := r.noteEvent(m); err != nil {
		return "", err
	}
	if outcome, err = p.advance(r, resolved, m, outcome); err != nil {
		return "", err
	}
	if t.IsNew {
		err = p.retirement.endOverQuota(r, m)
	}
	if r.meta.live == r { // it has not left memory meanwhile
		p.runs.recount(r)
	}
	return outcome, err
}

// leaveOut returns the outcome of a record that is folded into no run, and writes its dead letter if it becomes one.
func (p *Processor) leaveOut(t *thread, m *message, outcome fold.Outcome) (fold.Outcome, error) {
	switch outcome {
	case fold.Covered:
		t.awaitAgain(m.Offset)
		return outcomeDropped, nil
	case fold.Repeat:
		return p.repeated(t, m)
	case fold.LateError:
		return outcome, t.failLate(m.Offset)
	case fold.Late:
		return p.deadLetter(m, deadletter.AfterTerminal, "run "+t.Member.ID)
	case fold.NoRun:
		return p.deadLetter(m, deadletter.NoRun, "")
	case fold.Malformed:
		return p.malformed(m)
	default:
		return outcome, nil
	}
}

// malformed writes the dead letter of a record that is no event or input, or that its run cannot fold.
func (p *Processor) malformed(m *message) (fold.Outcome, error) {
	return p.deadLetter(m, deadletter.Malformed, p.loop.Decoded().Malformed().Error())
}

// advance updates a run after one of its records. At the run's first event, resolved is its parent resolution.
func (p *Processor) advance(r *run, resolved *resolution, m *message, outcome fold.Outcome) (fold.Outcome, error) {
	switch outcome {
	case fold.Malformed:
		return p.malformed(m)
	case fold.Repeat:
		var err error
		if outcome, err = p.repeated(r.thread, m); err != nil {
			return "", err
		}
		fallthrough
	case fold.Input:
		if r.Fold != nil || m.event.Headers.Kind != record.KindInput {
			return outcome, nil
		}
		return outcome, r.reactivate()
	}
	if err := r.reactivate(); err != nil { // before decide, which shows the run as open
		return "", err
	}
	if resolved != nil {
		if err := r.decide(resolved); err != nil {
			return "", err
		}
		p.countAnomalies(m, resolved.Anomalies)
	}
	if r.Fold.Ended() {
		if err := r.seal(); err != nil || p.loop.Decoded().Malformed() == nil {
			return fold.Folded, err
		}
		return p.malformed(m)
	}
	return fold.Folded, r.cutIfOutgrown(len(p.loop.Decoded().Payload().Raw))
}
