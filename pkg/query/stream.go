package query

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"math/rand/v2"
	"net/http"
	"slices"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/skeinhq/skein/pkg/agui"
	"github.com/skeinhq/skein/pkg/compact"
	"github.com/skeinhq/skein/pkg/fold"
	"github.com/skeinhq/skein/pkg/kafka"
	"github.com/skeinhq/skein/pkg/lineage"
	"github.com/skeinhq/skein/pkg/live"
	"github.com/skeinhq/skein/pkg/record"
	"github.com/skeinhq/skein/pkg/store"
	"github.com/skeinhq/skein/pkg/tail"
)

// The reasons for the end of a stream, for metrics.
const (
	endRun     = "run"     // the run is over and was sent whole
	endLife    = "life"    // --stream-life is over
	endSlow    = "slow"    // the reader did not keep up
	endErased  = "erased"  // the thread was erased
	endDrain   = "drain"   // the process stops
	endRoom    = "room"    // the tenant's streams and reads hold its share of memory
	endRevoked = "revoked" // the credentials of the reader expired or were revoked
	endLeft    = "left"    // the reader disconnected
	endRefused = "refused" // the request was refused
	endFailed  = "failed"  // something else went wrong
)

// streamRetry is the pause between two attempts to read the thread while the store or Kafka does not answer.
const streamRetry = time.Second

// silentBeats is the number of heartbeats' time without an event of its run after which a stream checks whether that was abandoned.
const silentBeats = 4

// stream serves one reader the events of a run, or of the runs of a thread one after another, as they come.
type stream struct {
	*call
	ctx   context.Context
	out   *sse
	key   string
	from  cursor
	until time.Time

	// runID is the requested run. If it is empty, the stream serves the thread's runs from the latest on, or with once the latest alone.
	runID string
	once  bool
	// rows are the thread's runs in the index, and thread follows what has come since. Both are nil while no run of the thread is
	// open; the next record of the thread makes the stream read them again.
	rows      []store.Run
	thread    *live.Thread
	partition int32
	// held is the memory that was counted: of the stream itself, its rows and folds.
	held int64
	// reader returns raw records; all of them below through were taken in.
	reader  *tail.Reader
	through int64
	like    record.Headers

	// playing is the run whose events are sent; nil before the first run and between two. Only events after the offset after, and after the
	// sequence number seq, are sent.
	playing *live.Run
	after   int64
	seq     int64
	// played is the last run that was sent whole, and begun its start offset; -1 before the first.
	played string
	begun  int64
	// last is the last id that was sent.
	last cursor
	// heard is when the playing run had its last event, or was checked. away: the last comment said that Kafka does not answer.
	heard time.Time
	away  bool
}

// endError ends a stream that has begun.
type endError struct {
	why    string // for metrics
	detail string // for the reader, as a comment
	// event is a RUN_ERROR that is sent first; nil if the reader can resume.
	event []byte
}

func (e *endError) Error() string { return e.detail }

var (
	errLife     = &endError{why: endLife, detail: "the stream has reached its longest life; resume from the last id"}
	errSlow     = &endError{why: endSlow, detail: "the stream was not read fast enough; resume from the last id"}
	errDraining = &endError{why: endDrain, detail: "this process is stopping; resume from the last id"}
	errRoom     = &endError{why: endRoom, detail: "your streams and reads hold as much memory as one tenant may have; resume from the last id"}
)

// newStream returns a stream of a run, or of a thread's runs.
func (c *call) newStream(ctx context.Context, runID string, from cursor) (*stream, error) {
	key, err := record.ThreadKey(c.tenant, c.threadID)
	if err != nil {
		return nil, badRequest(err.Error())
	}
	// Streams that began together should not all end together.
	life := c.cfg.StreamLife - time.Duration(rand.Int64N(int64(c.cfg.StreamLife/10)+1))
	return &stream{
		call: c, ctx: ctx, out: newSSE(c.w, c.cfg.StreamRetry), key: key, from: from, last: from, until: time.Now().Add(life),
		runID: runID, begun: -1, after: from.at.Offset, seq: from.seq,
	}, nil
}

// serve sends events until the stream ends.
func (s *stream) serve() error {
	defer s.close()
	done := false
	err := s.load.inTurn(s.ctx, func() (err error) {
		done, err = s.recorded()
		return err
	})
	if err != nil {
		return s.fallBack(err)
	} else if done {
		return nil
	}
	for {
		if s.reader == nil {
			if err := s.reopen(); err != nil {
				return s.fallBack(err)
			}
		}
		if done, err := s.play(); done || err != nil {
			return err
		}
		if err := s.flush(); err != nil {
			return err
		}
		b, err := s.next()
		if errors.Is(err, tail.ErrGone) && !s.resumes() && !s.caughtUp() {
			if err = s.skip(); err == nil {
				continue
			}
		}
		if err != nil {
			return err
		}
		if err := s.take(b); err != nil {
			return err
		}
		if err := s.weigh(); err != nil {
			return err
		}
	}
}

// reopen opens the thread. A stream that has begun retries until the store and Kafka answer.
func (s *stream) reopen() error { return s.patiently(s.open) }

// patiently calls f. A stream that has begun calls it again, and says so in comments, until the store and Kafka answer; an error that another
// call would return as well, or one of final, ends it.
func (s *stream) patiently(f func() error, final ...error) error {
	for waiting := false; ; {
		err := f()
		is := func(e error) bool { return errors.Is(err, e) }
		if err == nil || !s.out.begun || s.ctx.Err() != nil || is(errBroken) || is(errCaller) || is(errNoRoom) || slices.ContainsFunc(final, is) {
			return err
		}
		if !time.Now().Before(s.until) {
			return errLife
		}
		if !waiting {
			s.cfg.Logger.WarnContext(s.ctx, "live stream waits until its thread can be read", "tenant", s.tenant, "thread_id", s.threadID, "error", err)
			s.out.comment("the thread cannot be read now; the stream continues once it can")
			waiting = true
		} else {
			s.out.comment("")
		}
		if err := s.flush(); err != nil {
			return err
		}
		if err := s.sleep(streamRetry); err != nil {
			return err
		}
	}
}

// fallBack serves a request whose first read has failed, if it can be served without the part that is away: the rest of a run without the
// lineage store, or a restored thread without Kafka.
func (s *stream) fallBack(err error) error {
	if s.out.begun || s.ctx.Err() != nil {
		return err
	}
	if errors.Is(err, errIndex) {
		return s.bare(err)
	}
	refused := new(refusal)
	if !s.once || len(s.rows) == 0 || errors.As(err, &refused) {
		return err
	}
	run := cmp.Or(s.runID, tip(s.rows).RunID)
	if i := slices.IndexFunc(s.rows, func(r store.Run) bool { return r.RunID == run }); i < 0 || s.rows[i].Status == record.StatusRunning {
		return err
	}
	s.cfg.Logger.WarnContext(s.ctx, "restoring a thread from the lineage store alone", "tenant", s.tenant, "thread_id", s.threadID, "error", err)
	return s.load.inTurn(s.ctx, func() error { return s.history(run) })
}

// recorded answers from the run's record alone, if the run has ended and its record is all that the reader needs.
func (s *stream) recorded() (done bool, _ error) {
	if s.runID == "" {
		return false, nil
	}
	row, err := s.store.Run(s.ctx, s.tenant, s.threadID, s.runID)
	if errors.Is(err, store.ErrNotFound) || err == nil && row.Status == record.StatusRunning {
		return false, nil
	}
	if err != nil {
		return false, err
	}
	last := row.Raw.Next - 1
	switch at := s.from.at; {
	case s.from.joins():
		if s.rows, err = s.store.Thread(s.ctx, s.tenant, s.threadID); err != nil {
			return false, err
		}
		s.partition = row.Raw.Partition
		return true, s.history(s.runID)
	case s.from.seq >= 0 && row.Raw.NextSeq < 0:
		return false, s.unnumbered()
	case s.from.seq >= 0 && row.Status == record.StatusAbandoned:
		return false, nil
	case s.from.seq >= 0 && s.from.seq >= row.Raw.NextSeq:
		return false, s.foreign()
	case s.from.seq >= 0 && s.from.seq == row.Raw.NextSeq-1:
		s.nothing()
		return true, nil
	case s.from.seq >= 0:
		return false, nil
	case at.Partition != row.Raw.Partition || at.Offset < row.Raw.First || at.Offset > last:
		return false, s.foreign()
	case at.Offset == last && (row.Status != record.StatusAbandoned || s.from.ended):
		s.nothing()
		return true, nil
	}
	return false, nil
}

// nothing answers a reader that already has everything: 204.
func (s *stream) nothing() {
	s.w.Header().Set("Cache-Control", "no-store")
	s.w.WriteHeader(http.StatusNoContent)
}

// foreign refuses an id that is no event of the requested run or thread.
func (s *stream) foreign() error {
	of := "this thread"
	if s.runID != "" {
		of = "this run"
	}
	return badRequest(fmt.Sprintf("%s: %s is not an event of %s that was sent; leave it out to join", headerLastEventID, s.from, of))
}

// open reads the thread's runs from the index and follows the log from where the index ends. It waits while the index is behind.
func (s *stream) open() error {
	deadline := time.Now().Add(s.cfg.Wait)
	for {
		err := s.load.inTurn(s.ctx, s.openOnce)
		if err == nil || !errors.Is(err, errBehind) {
			return err
		}
		if time.Now().After(deadline) {
			return later("the thread is only partly indexed; try again")
		}
		if err := s.sleep(s.cfg.Poll); err != nil {
			return err
		}
	}
}

func (s *stream) openOnce() error {
	// The index's position comes before the rows, so that the rows are at least as new. It is the position for all tenants: the tenant's own
	// counts its rows, one of which may be ahead of a run that is not indexed yet.
	to, err := s.store.IndexedTo(s.ctx, everyTenant)
	if err != nil {
		return err
	}
	rows, err := s.store.Thread(s.ctx, s.tenant, s.threadID)
	if err != nil && !errors.Is(err, store.ErrNotFound) {
		return err
	}
	s.rows = rows
	if len(rows) > 0 {
		s.partition = rows[0].Raw.Partition
	} else if s.partition, err = s.tail.Partition(s.ctx, s.key); err != nil {
		return err
	}
	if at := s.from.at; s.resumes() && at.Offset >= 0 && at.Partition != s.partition {
		return s.foreign()
	}
	lighten(rows)
	thread, err := live.New(s.threadID, recordsOf(rows), to[s.partition], &recordsOfThread{s, rows})
	if err != nil {
		return err
	}
	from, err := s.start(thread, rows)
	if err != nil {
		return err
	}
	s.thread = thread
	if err := s.weigh(); err != nil {
		return err
	}
	return s.follow(from)
}

// streamBytes is about how much memory a stream takes that only waits, its buffer included.
const streamBytes = 4<<10 + keptBuffer

// weigh counts the memory that the stream holds by now.
func (s *stream) weigh() error {
	bytes := int64(streamBytes)
	if s.thread != nil {
		bytes += int64(len(s.rows))*store.RowBytes + s.thread.Bytes()
	}
	err := s.load.hold(bytes - s.held)
	if err == nil {
		s.held = bytes
	}
	return err
}

// flush sends what was written. A reader that takes it slowly keeps its memory, so that is counted.
func (s *stream) flush() error {
	if n := int64(s.out.b.Len()); n > keptBuffer {
		if err := s.load.hold(n); err != nil {
			s.out.b = bytes.Buffer{}
			return err
		}
		defer func() { _ = s.load.hold(-n) }() // giving back never fails
	}
	return s.out.flush()
}

// lighten drops the parts of rows that streams do not use: each reader of an open run holds the rows of its thread.
func lighten(rows []store.Run) {
	for i := range rows {
		r := &rows[i]
		if r.Input != nil { // only its presence counts
			r.Input = json.RawMessage(`{}`)
		}
		r.Events, r.Labels, r.Interrupts, r.PendingToolCalls, r.Resumes = nil, nil, nil, nil, nil
		r.Stats = record.Stats{Anomalies: r.Stats.Anomalies}
	}
}

// follow starts to read at an offset.
func (s *stream) follow(from int64) error {
	s.close()
	reader, err := s.tail.Follow(s.ctx, s.key, s.partition, from)
	if errors.Is(err, tail.ErrGone) && s.resumes() {
		return s.unknown()
	}
	if err != nil {
		return err
	}
	if s.resumes() && s.from.at.Offset >= reader.End() {
		reader.Close()
		return s.unknown()
	}
	s.reader, s.through = reader, from
	return nil
}

// skip continues at the start of the log. Earlier events of open runs are gone.
func (s *stream) skip() error {
	first, err := s.tail.Start(s.ctx, s.partition)
	if err != nil {
		return err
	}
	if first <= s.through {
		return fmt.Errorf("following %s from %d:%d on: %w", s.key, s.partition, s.through, tail.ErrGone)
	}
	return s.follow(first)
}

// resumes reports whether the reader has given the id of an event whose run is not known yet.
func (s *stream) resumes() bool { return !s.from.joins() && s.playing == nil && s.begun < 0 }

// gone refuses an id that is older than the log.
func (s *stream) gone() error {
	return &refusal{status: http.StatusGone, detail: fmt.Sprintf("%s: %s is older than skein.events keeps; leave it out to join", headerLastEventID, s.from)}
}

// unnumbered refuses a seq id for a run whose producer does not number events. It ends a stream that has begun.
func (s *stream) unnumbered() error {
	detail := fmt.Sprintf("%s: %s, but the events of run %q have no sequence numbers; leave it out to join", headerLastEventID, s.from, s.runID)
	if s.out.begun {
		return &endError{why: endRefused, detail: detail}
	}
	return badRequest(detail)
}

// unknown refuses an id beyond the end of the log.
func (s *stream) unknown() error {
	return badRequest(fmt.Sprintf("%s: skein.events has nothing at %s yet: the id is of another topic set, or invented; leave it out to join", headerLastEventID, s.from))
}

// start returns the offset from which raw records are needed.
func (s *stream) start(thread *live.Thread, rows []store.Run) (int64, error) {
	from := thread.From()
	switch at := s.from.at.Offset; {
	case !s.resumes():
	case s.from.seq >= 0:
		if s.runID == "" {
			return 0, badRequest(headerLastEventID + ": seq numbers the events of one run; use that run's stream")
		}
		if r := thread.Run(s.runID); r != nil && r.Record != nil {
			missing := r.Record.Raw.NextSeq - s.from.seq - 1
			if missing > 0 || missing == 0 && r.Record.Status != record.StatusRunning { // of an abandoned run the end is missing
				from = min(from, thread.Replay(r, r.Record.Raw.First))
			}
		}
	default:
		erased, err := s.store.Erasure(s.ctx, s.tenant, s.threadID)
		if err != nil && !errors.Is(err, store.ErrNotFound) {
			return 0, err
		}
		if err == nil && at < erased.Below {
			return 0, &refusal{status: http.StatusGone, detail: fmt.Sprintf("%s: the event at %s was erased", headerLastEventID, s.from)}
		}
		from = min(from, at)
		for i := range rows {
			if raw := rows[i].Raw; raw.First <= at && at < raw.Next {
				from = min(from, thread.Replay(thread.Run(rows[i].RunID), at))
			}
		}
	}
	return from, nil
}

// take takes in records and sends the events of the run that is playing.
func (s *stream) take(b tail.Batch) error {
	if s.thread == nil && len(b.Records) > 0 {
		s.close() // the thread is opened again, and these records are read once more
		return nil
	}
	for _, m := range b.Records {
		if err := s.takeRecord(m); err != nil {
			return err
		}
	}
	if s.through = b.Through; s.resumes() && s.from.at.Offset >= 0 && s.through > s.from.at.Offset {
		return s.foreign()
	}
	return nil
}

func (s *stream) takeRecord(m *kgo.Record) error {
	e, ok, err := s.readable(m)
	switch {
	case !ok:
		return err
	case e.Headers.Kind == record.KindErase:
		return s.erased()
	case !e.OfRun():
		return nil
	}
	s.like = e.Headers
	run, outcome, err := s.thread.Take(e)
	if err != nil || run == nil {
		return err
	}
	had := false
	if s.seq >= 0 && run.Head.ID == s.runID && e.Headers.Seq >= s.seq { // behind it every event is new, be it numbered or not
		had, s.seq = e.Headers.Seq == s.seq, -1
	}
	if outcome != fold.Folded && outcome != fold.SyntheticEnd {
		return nil
	}
	if s.resumes() {
		switch id := run.Head.ID; {
		case s.from.seq >= 0 && id == s.runID && run.NextSeq() < 0:
			return s.unnumbered()
		case s.from.seq >= 0 && id == s.runID:
			s.playing, s.heard = run, time.Now()
		case m.Offset == s.from.at.Offset && (s.runID == "" || id == s.runID):
			s.playing, s.heard = run, time.Now()
			return nil
		}
	}
	if run != s.playing || m.Offset <= s.after || s.seq >= 0 || had {
		return nil
	}
	s.give(m.Value, cursor{at: e.Position(), seq: -1})
	s.heard = time.Now()
	return nil
}

// readable decodes a record; ok is false if it is a dead letter.
func (s *stream) readable(m *kgo.Record) (e record.Event, ok bool, err error) {
	e, err = kafka.Event(m, s.like)
	if errors.Is(err, record.ErrUnknownVersion) {
		return e, false, fmt.Errorf("reading record %s: %w", e.Position(), err)
	}
	return e, err == nil && len(m.Value) <= kafka.MaxValueBytes, nil
}

// give sends an event with its id.
func (s *stream) give(event []byte, at cursor) {
	s.out.begin(s.from)
	s.last = at
	s.out.event(event, &at)
	s.streams.metrics.events.Inc()
}

// block sends events that belong together: only the last one has an id, so a reader that is cut within them gets all of them again.
func (s *stream) block(events []json.RawMessage, at cursor) {
	s.out.begin(s.from)
	for i, ev := range events {
		if i < len(events)-1 {
			s.out.event(ev, nil)
			s.streams.metrics.events.Inc()
		} else {
			s.give(ev, at)
		}
	}
}

// play ends the playing run if it is over, and joins the next one.
func (s *stream) play() (done bool, _ error) {
	for s.thread != nil {
		if s.playing == nil {
			next := s.pick()
			if next == nil {
				break
			}
			if err := s.join(next); err != nil {
				return false, err
			}
		}
		if !s.over(s.playing) {
			if s.caughtUp() { // the id is known to be right
				s.out.begin(s.from)
			}
			return false, nil
		}
		s.end(s.playing)
		s.played, s.begun, s.playing = s.playing.Head.ID, s.playing.Head.Start, nil
		if s.runID != "" || s.once {
			if !s.out.begun {
				s.nothing()
			}
			return true, s.flush()
		}
		if from := s.thread.From(); s.through < from { // the events in between belong to runs that are over
			if err := s.follow(from); err != nil {
				return false, err
			}
		}
	}
	if !s.caughtUp() {
		return false, nil
	}
	if s.once {
		return true, s.empty()
	}
	s.out.begin(s.from)
	if s.thread != nil && !s.thread.Open() { // the next record makes the stream read the thread again
		s.thread, s.rows = nil, nil
		return false, s.weigh()
	}
	return false, nil
}

// caughtUp reports whether everything was read that the log had when the reader began.
func (s *stream) caughtUp() bool { return s.through >= s.reader.End() }

// pick returns the run to play next; nil if there is none yet.
func (s *stream) pick() *live.Run {
	if s.resumes() || !s.caughtUp() {
		return nil
	}
	if s.runID != "" {
		if r := s.thread.Run(s.runID); r != nil && r.Begun() {
			return r
		}
		return nil
	}
	var latest *live.Run
	for _, r := range s.thread.Runs() {
		switch {
		case !r.Begun() || r.Head.Start <= s.begun:
		case s.begun >= 0:
			return r
		default:
			latest = r
		}
	}
	return latest
}

// over reports whether the run has ended and all of its events were read.
func (s *stream) over(r *live.Run) bool { return !r.Head.Open() && s.through >= r.Next }

// join sends the current state of a run to a client that has none of it.
func (s *stream) join(r *live.Run) error {
	s.playing, s.heard, s.after, s.seq = r, time.Now(), -1, -1
	f := r.Fold()
	if f == nil {
		history := func() error { return s.history(r.Head.ID) }
		return s.patiently(func() error { return s.load.inTurn(s.ctx, history) }, store.ErrNotFound)
	}
	at := cursor{at: record.Position{Partition: s.partition, Offset: r.Next - 1}, seq: -1}
	switch {
	case f.Ended():
		s.block(s.whole(r.Head.ID, f.Summary().Started, f.Messages(), f.State(), f.Summary().Terminal, s.holdsOther(r.Head.Parent)), at)
	case s.holdsOther(r.Head.Parent):
		s.block(f.PreludeAfresh(), at)
	default:
		s.block(f.Prelude(), at)
	}
	return nil
}

// holdsOther reports whether the client holds a run that is not this parent, because the stream played it before.
func (s *stream) holdsOther(parent string) bool { return s.played != "" && s.played != parent }

// history sends a run from its record.
func (s *stream) history(run string) error {
	h, err := s.restore(s.rows, run)
	if err != nil {
		return err
	}
	at := cursor{at: record.Position{Partition: h.run.Raw.Partition, Offset: h.run.Raw.Next - 1}, seq: -1}
	at.ended = h.run.Status == record.StatusAbandoned
	terminal := h.run.Terminal
	if h.run.Status == record.StatusRunning {
		terminal = nil
	}
	s.block(s.whole(run, h.run.Started, h.Messages, h.State, terminal, s.holdsOther(h.run.ParentRunID)), at)
	s.load.rest() // its reader may be slow
	return s.flush()
}

// whole returns the events of an ended run for a client: start, snapshots and terminal event.
func (s *stream) whole(run string, started json.RawMessage, messages []agui.Message, state, terminal json.RawMessage, anew bool) []json.RawMessage {
	if started == nil {
		started = s.started(run)
	}
	events := append([]json.RawMessage{started}, compact.Snapshots(messages, state, anew)...)
	if terminal != nil {
		events = append(events, terminal)
	}
	return events
}

// started makes the RUN_STARTED of a run that has none.
func (s *stream) started(run string) json.RawMessage {
	b := agui.AppendString([]byte(`{"type":"RUN_STARTED","threadId":`), s.threadID)
	return append(agui.AppendString(append(b, `,"runId":`...), run), '}')
}

// end sends the terminal event of a run that Skein has ended. That event is on no topic.
func (s *stream) end(r *live.Run) {
	at := cursor{at: record.Position{Partition: s.partition, Offset: r.Next - 1}, ended: true, seq: -1}
	if r.Fold() != nil && r.Fold().Ended() || r.Record == nil || r.Record.Status != record.StatusAbandoned || r.Record.Terminal == nil || s.last == at || s.from == at {
		return
	}
	s.give(r.Record.Terminal, at)
}

// next waits for records and meanwhile sends heartbeats and comments. It returns an empty batch when the playing run turned out to be
// abandoned: the next one may be there already.
func (s *stream) next() (tail.Batch, error) {
	for {
		if ended, err := s.checkAbandoned(); ended || err != nil {
			return tail.Batch{Through: s.through}, err
		}
		wait := min(s.cfg.StreamHeartbeat, time.Until(s.until))
		if wait <= 0 {
			return tail.Batch{}, errLife
		}
		ctx, cancel := context.WithTimeout(s.ctx, wait)
		b, err := s.reader.Next(ctx)
		cancel()
		switch {
		case err == nil:
			s.say(b.Away)
			return b, nil
		case s.ctx.Err() != nil || !errors.Is(err, context.DeadlineExceeded):
			return b, s.lost(err)
		case time.Now().Before(s.until):
			s.beat()
		}
		if err := s.flush(); err != nil {
			return b, err
		}
	}
}

// say sends a comment when Kafka stops answering, and when it answers again.
func (s *stream) say(away bool) {
	switch {
	case away == s.away:
		return
	case away:
		s.out.begin(s.from)
		s.out.comment("Kafka does not answer; the stream continues once it does")
	default:
		s.out.comment("Kafka answers again")
	}
	s.away = away
}

// lost maps an error of the reader to the end of the stream.
func (s *stream) lost(err error) error {
	switch {
	case s.ctx.Err() != nil:
		return context.Cause(s.ctx)
	case errors.Is(err, tail.ErrSlow):
		return errSlow
	case errors.Is(err, tail.ErrClosed):
		return errDraining
	case errors.Is(err, tail.ErrGone) && s.resumes():
		return s.gone()
	}
	return err
}

// beat sends a heartbeat.
func (s *stream) beat() {
	if s.out.begun || !s.resumes() {
		s.out.begin(s.from)
		s.out.comment("")
	}
}

// checkAbandoned asks the store about a playing run that has been silent for a while, also while other runs of the thread go on. It sends the
// end of one that was abandoned, and reports whether it did.
func (s *stream) checkAbandoned() (ended bool, _ error) {
	if s.playing == nil || time.Since(s.heard) < silentBeats*s.cfg.StreamHeartbeat {
		return false, nil
	}
	s.heard = time.Now()
	id := s.playing.Head.ID
	var row store.Run
	err := s.load.inTurn(s.ctx, func() (err error) {
		row, err = s.store.Run(s.ctx, s.tenant, s.threadID, id)
		return err
	})
	switch {
	case errors.Is(err, store.ErrNotFound) && s.playing.Record != nil:
		return false, s.erased()
	case err != nil: // the next check may succeed
		return false, s.ctx.Err()
	case row.Status != record.StatusAbandoned || row.Raw.Next < s.playing.Next:
		return false, nil
	}
	// The run has had no event since: send its synthetic end.
	s.playing.Record = &row.Run
	s.playing.Head.End, s.playing.Head.Status = s.playing.Next-1, lineage.Status(row.Status)
	s.end(s.playing)
	s.played, s.begun, s.playing = id, s.playing.Head.Start, nil
	if s.runID == "" {
		return true, nil
	}
	return true, &endError{why: endRun}
}

// codeErased is the code of the RUN_ERROR that ends the stream of an erased thread.
const codeErased = "skein-erased"

const erasedDetail = "the thread was erased"

var errErased = &endError{
	why: endErased, detail: erasedDetail, event: []byte(`{"type":"RUN_ERROR","message":"` + erasedDetail + `","code":"` + codeErased + `"}`),
}

// erased handles an erasure of the thread: it refuses a resumed stream that has not begun, ends one that has sent events, and starts over for one
// that has sent none.
func (s *stream) erased() error {
	switch {
	case !s.out.begun && !s.from.joins():
		return &refusal{status: http.StatusGone, detail: erasedDetail}
	case s.playing == nil && s.begun < 0: // nothing was sent; later events belong to a new thread
		thread, err := live.New(s.threadID, nil, s.through, &recordsOfThread{stream: s})
		s.thread, s.rows = thread, nil
		return err
	}
	return errErased
}

func (s *stream) sleep(d time.Duration) error {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-t.C:
		return nil
	case <-s.ctx.Done():
		return context.Cause(s.ctx)
	}
}

func (s *stream) close() {
	if s.reader != nil {
		s.reader.Close()
		s.reader = nil
	}
}

// recordsOfThread reads a thread's runs from the index and skein.runs (live.Source). Once the thread is open, its reads wait for the store: the
// thread cannot take a record twice. Before, reopen repeats them all.
type recordsOfThread struct {
	*stream
	rows []store.Run
}

func (s *recordsOfThread) patiently(f func() error) error {
	if s.thread == nil {
		return f()
	}
	return s.stream.patiently(f, errBehind, store.ErrNotFound)
}

func (s *recordsOfThread) row(run string) (store.Run, error) {
	i := slices.IndexFunc(s.rows, func(r store.Run) bool { return r.RunID == run })
	if i < 0 {
		return store.Run{}, fmt.Errorf("%w: run %q has no row", errBehind, run)
	}
	return s.rows[i], nil
}

// Record implements live.Source.
func (s *recordsOfThread) Record(run string) (rec *record.Run, _ error) {
	row, err := s.row(run)
	if err != nil {
		return nil, err
	}
	err = s.patiently(func() (err error) {
		rec, err = s.recordOf(row)
		return err
	})
	if errors.Is(err, ErrRecordGone) {
		return nil, fmt.Errorf("%w: run %q has a newer record: %w", errBehind, run, err)
	}
	if err != nil || rec.Base == "" {
		return rec, err
	}
	if base, err := s.row(rec.Base); err != nil || base.Refolds != rec.BaseRefolds {
		return nil, fmt.Errorf("%w: run %q is based on another record of run %q: %w", errBehind, run, rec.Base, err)
	}
	return rec, nil
}

// History implements live.Source.
func (s *recordsOfThread) History(run string) (lineage.History, error) {
	var h restored
	err := s.patiently(func() error {
		return s.load.inTurn(s.ctx, func() (err error) {
			h, err = s.restore(s.rows, run)
			return err
		})
	})
	return h.History, err
}

// Holding implements live.Source.
func (s *recordsOfThread) Holding(messageIDs []string) ([]string, error) {
	var versions map[string]int64
	err := s.patiently(func() (err error) {
		versions, err = s.store.Holding(s.ctx, s.tenant, s.threadID, messageIDs)
		return err
	})
	return slices.Collect(maps.Keys(versions)), err
}
