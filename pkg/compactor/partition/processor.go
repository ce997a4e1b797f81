package partition

import (
	"errors"
	"fmt"
	"math"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/skeinhq/skein/pkg/compactor/runstore"
	"github.com/skeinhq/skein/pkg/fold"
	"github.com/skeinhq/skein/pkg/kafka"
	"github.com/skeinhq/skein/pkg/record"
)

// Processor folds the records of one partition and collects what a transaction has to write. One goroutine uses it at a
// time. Records and times come in as values. After a transaction of unknown outcome it is thrown away, and the next one
// is opened from what was committed.
//
// Decisions must come out the same when the events between the committed and the processed offset are read again. Two rules
// see to that. Whatever depends on time or order is asked by offset ("had not ended before"). And where a run's parent is
// resolved while another run of its thread is open, both are written in the next transaction, together with every run of the
// thread whose resolution is in no record (writeUnsealed). So a run whose resolution is in no record had only sealed neighbours,
// which never change: read again, its parent comes out the same. Where what the run holds is over the limit, the
// record has its resolution alone (resolutionRecord).
type Processor struct {
	id     int32
	cfg    Config
	topics kafka.Topics
	count  int32 // partitions of the topic set
	store  *runstore.Store

	progress  Progress // what the next transaction says; the processed offset moves with each record
	committed Progress // what the last one said
	next      int64    // the next record to read

	clock     streamClock
	threads   map[string]*thread
	runs      runTable
	histories *histories
	unsaved   unsaved
	// expiring holds every open run, since its last record in stream time; closing every one that expired and may
	// go on, since its last record on skein.runs, by the clock.
	expiring, closing *expiryQueue
	share             share // of what the process may hold
	unloading         bool  // more runs of threads are to leave memory

	loop      *fold.Loop
	admission admission // of the record that is being processed
	gap       *gap      // nil: nothing is skipped

	room      *Room // of the transaction that outputs go into
	outputs   []Output
	counts    Counts
	refolding *RefoldRequest // what the last record was; see BeginRefold
}

// OpenReport says how a partition was opened, for the log.
type OpenReport struct {
	// Progress is where the processor resumes.
	Progress Progress
	// FromRecord: the group's offsets are gone or were set back, so that Progress is from the progress record.
	FromRecord bool
	// SetHigher is what nobody reads, as somebody has set the group's offset higher than what was committed.
	SetHigher OffsetRange
	// Gone is what skein.events lost before it was read.
	Gone OffsetRange
}

// OffsetRange is a range of offsets, without its end. The zero value is none.
type OffsetRange struct{ From, Until int64 }

// Open returns the processor of a partition, on a store that has every committed record. group is what the group has
// committed, and logStart the first offset that skein.events still has.
func Open(id int32, cfg Config, topics kafka.Topics, store *runstore.Store, group Progress, logStart int64) (*Processor, OpenReport, error) {
	last := store.Followed().Progress
	resumed, err := group.reconcile(last)
	if err != nil {
		return nil, OpenReport{}, err
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
		p.committed = group // so that the next transaction tells the group and skein.runs, whatever comes
	}
	if until <= from {
		return p, report, nil
	}
	lost := int64(0)
	if resumed.Processed > 0 { // else nothing was ever committed, and the log simply begins later
		lost = until - from
		if logStart > resumed.Committed {
			report.Gone = OffsetRange{resumed.Committed, logStart}
		}
	}
	return p, report, p.openGap(until, lost)
}

// newProcessor opens a partition over a store that has caught up with all that was committed.
func newProcessor(id int32, cfg Config, topics kafka.Topics, store *runstore.Store, pos Progress) (*Processor, error) {
	p := &Processor{
		id: id, cfg: cfg, topics: topics, count: pos.Partitions, store: store, progress: pos, committed: pos, next: pos.Committed,
		threads: map[string]*thread{}, runs: newRunTable(), histories: newHistories(cfg.CacheBytes), unsaved: newUnsaved(),
		expiring: newExpiryQueue(), closing: newExpiryQueue(), share: cfg.share(1), room: NewRoom(1), counts: newCounts(),
	}
	p.loop = fold.NewLoop(&p.admission)
	if pos.StreamTime != 0 {
		p.clock.stream = time.UnixMilli(pos.StreamTime).UTC()
	}
	return p, store.EachUnsealed(func(key string, recordedAt time.Time, h *runstore.Metadata) {
		if h.Open() {
			since := h.LastAt
			if recordedAt.Before(since.Add(-clockSkew)) { // an older version took what the producer said
				since = recordedAt
			}
			p.expiring.add(key, since)
		} else {
			p.closing.add(key, recordedAt)
		}
	})
}

// Stop says why Process took no more records.
type Stop int

const (
	// StopEnd: there are no more.
	StopEnd Stop = iota
	// StopFull: the room of the transaction is full.
	StopFull
	// StopRefold: the next record may be a request to refold a thread, for BeginRefold.
	StopRefold
)

// Process folds records in offset order and returns how many it took. It keeps none of their bytes: the caller may use
// them again. It stops early, between two records, when room is full or before a refold request. An error is never
// about the data: it says that the partition cannot go on.
func (p *Processor) Process(records []*kgo.Record, now time.Time, room *Room) (taken int, stop Stop, err error) {
	p.enter(room)
	for taken, m := range records {
		switch {
		case mayBeRefoldRequest(m):
			return taken, StopRefold, nil
		case room.Full():
			return taken, StopFull, nil
		}
		if err := p.process(m, now); err != nil {
			return taken, StopEnd, err
		}
	}
	return len(records), StopEnd, nil
}

// Cycle is what Collect has to know of the transaction and of the log.
type Cycle struct {
	Now time.Time
	// LogEnd is where skein.events ends, -1 if nobody has asked. Once everything below it is processed, runs expire
	// by the clock, as no record comes that moves stream time.
	LogEnd int64
	Room   *Room
}

// Collect returns what the next transaction holds. Nothing may be processed until its outcome is known.
func (p *Processor) Collect(c Cycle) (Effects, error) {
	p.enter(c.Room)
	if c.LogEnd >= 0 {
		p.clock.noteLogEnd(c.LogEnd, p.next, c.Now)
	}
	return p.collect(c.Now)
}

// Stats is what the session has to know of a processor.
type Stats struct {
	// Next is the next record to read, Processed the processed offset.
	Next, Processed int64
	// Paused: open runs are being marked for a gap in skein.events. Nothing may be processed meanwhile, and Next is not
	// known yet.
	Paused bool
	// OpenRuns are the runs that have not ended; OpenRunBytes is what runs hold in memory.
	OpenRuns, OpenRunBytes int
	// NextExpiry is when a run expires, if no record of it comes; zero if none can expire.
	NextExpiry time.Time
	// Misplaced are the records on the wrong partition that the next transaction sends to dead letters.
	Misplaced int
}

// Stats returns how the processor stands.
func (p *Processor) Stats() Stats {
	return Stats{
		Next: p.next, Processed: p.progress.Processed, Paused: p.gap != nil,
		OpenRuns: len(p.expiring.heap), OpenRunBytes: p.runs.bytes, NextExpiry: p.nextExpiry(),
		Misplaced: p.counts.DeadLetters[reasonWrongPartition],
	}
}

// nextExpiry is when the run that has waited longest expires, or is to be closed.
func (p *Processor) nextExpiry() (at time.Time) {
	if w := p.expiring.oldest(); w != nil {
		at = w.since.Add(p.cfg.IdleLimit)
	}
	w := p.closing.oldest()
	if w == nil {
		return at
	}
	limit := time.Duration(math.MaxInt64)
	if p.cfg.IdleLimit <= limit/closeAfter {
		limit = p.cfg.IdleLimit * closeAfter
	}
	if closed := w.since.Add(limit); at.IsZero() || closed.Before(at) {
		return closed
	}
	return at
}

// enter has the processor use the room of the next transaction.
func (p *Processor) enter(room *Room) {
	if p.room == room {
		return
	}
	if p.room.partitions != room.partitions {
		p.share = p.cfg.share(room.partitions)
		p.histories.limit = p.share.cacheBytes
	}
	p.room = room
	if p.runs.overMemory {
		room.Fill()
	}
}

// process takes the next record of skein.events and keeps nothing of it: its bytes may be used again
// once process has returned. An error is never about the data: it says that the
// partition cannot go on.
func (p *Processor) process(m *kgo.Record, now time.Time) error {
	if m.Offset < p.next { // fetched again
		return nil
	}
	p.next = m.Offset + 1
	if m.Attrs.IsControl() {
		// The marker of a transaction: all that it says is that it was read. It counts as decided, so that the committed offset comes to the
		// log's end, too: one that stays below would take a marker that has expired for events that are gone.
		p.progress.Processed = max(p.progress.Processed, p.next)
		return nil
	}
	p.counts.Bytes += len(m.Key) + len(m.Value)
	rebuilds := m.Offset < p.progress.Processed
	if p.clock.advance(m.Timestamp, now) {
		p.closeGap()
	}
	result, err := p.route(&message{Record: m, rebuilds: rebuilds, now: now})
	if err != nil {
		return fmt.Errorf("processing record %s: %w", record.Position{Partition: p.id, Offset: m.Offset}, err)
	}
	if !rebuilds {
		p.progress.Processed = m.Offset + 1
		p.counts.Outcomes[result]++
	}
	return nil
}

// route checks a record, and bytes it to what its kind asks for.
func (p *Processor) route(m *message) (_ fold.Outcome, err error) {
	if len(m.Value) > p.cfg.RecordLimit {
		return p.deadLetter(m, reasonTooLarge, fmt.Sprintf("%d bytes, %d are allowed", len(m.Value), p.cfg.RecordLimit))
	}
	t := p.threads[string(m.Key)] // a key that is in memory was checked before
	var tenant, id string
	if t == nil {
		parts, err := record.SplitKey(string(m.Key))
		if err != nil {
			return p.deadLetter(m, reasonBadKey, err.Error())
		}
		if len(parts) != 2 {
			return p.deadLetter(m, reasonBadKey, "want tenant/thread")
		}
		if want := record.Partition(m.Key, p.count); want != p.id {
			return p.deadLetter(m, reasonWrongPartition, fmt.Sprintf("the key belongs to partition %d of %d", want, p.count))
		}
		tenant, id = parts[0], parts[1]
	}
	var like record.Headers
	if t != nil {
		like = t.headers
	}
	m.headers, err = kafka.ParseHeadersLike(m.Headers, like)
	switch {
	case errors.Is(err, record.ErrUnknownVersion):
		return "", err
	case errors.Is(err, record.ErrUnknownKind):
		return p.deadLetter(m, reasonUnknownKind, err.Error())
	case err != nil:
		return p.deadLetter(m, reasonBadHeaders, err.Error())
	}
	if m.headers.Kind == record.KindCancel { // no sign of life of the run, be there one or not
		return outcomeCancel, nil
	}
	if t == nil {
		if t, err = p.thread(string(m.Key), tenant, id); err != nil {
			return "", err
		}
	}
	t.usedAt, t.headers = m.now, m.headers
	if !m.rebuilds && !p.clock.stream.Before(t.noExpiryBefore) {
		if err := p.expireIdleOf(t, m.now); err != nil {
			return "", err
		}
	}
	if m.Offset < t.erased { // between the committed and the processed offset: what was made of it is gone
		return outcomeErased, nil
	}
	switch m.headers.Kind {
	case record.KindEvent, record.KindInput:
		return p.fold(t, m)
	case record.KindErase:
		return p.erase(t, m)
	case record.KindRefold:
		return p.takeRefold(t, m)
	default:
		return p.deadLetter(m, reasonUnknownKind, string(m.headers.Kind))
	}
}

// fold has the loop fold an event or an input, and does what follows from it for the run.
func (p *Processor) fold(t *thread, m *message) (fold.Outcome, error) {
	a := &p.admission
	*a = admission{p: p, thread: t, message: m}
	taken, outcome, err := p.loop.Next(m.event())
	if taken == nil || err != nil {
		return outcome, err
	}
	r := a.run
	if outcome != fold.Malformed || !a.isNew { // no run begins with what cannot be folded
		if a.isNew {
			p.register(r)
		}
		if err := p.noteRecord(r, m); err != nil {
			return "", err
		}
	}
	switch outcome {
	case fold.Folded, fold.SyntheticEnd:
		return outcomeFolded, p.advance(r, a.resolution, m)
	case fold.Malformed:
		return p.deadLetter(m, reasonMalformed, p.loop.Decoded().Malformed().Error())
	}
	if r.Fold == nil && m.headers.Kind == record.KindInput {
		err = p.reactivate(r)
	}
	if outcome == fold.Repeat {
		return outcomeDropped, err
	}
	return outcome, err
}

// advance does what follows from an event that was folded; at the run's first one, resolved is its parent resolution.
func (p *Processor) advance(r *run, resolved *resolution, m *message) error {
	if err := p.reactivate(r); err != nil { // before its resolution says that it is open
		return err
	}
	if resolved != nil {
		if err := p.decide(r, resolved); err != nil {
			return err
		}
		p.countAnomalies(m, resolved.Anomalies)
	}
	if r.Fold.Ended() {
		return p.seal(r)
	}
	return p.endOutgrown(r, len(p.loop.Decoded().Payload().Raw))
}

// countAnomalies counts anomalies for the metric; below the processed offset that was done before.
func (p *Processor) countAnomalies(m *message, rules []string) {
	if m.rebuilds {
		return
	}
	for _, rule := range rules {
		p.counts.Anomalies[rule]++
	}
}
