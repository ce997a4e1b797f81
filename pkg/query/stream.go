package query

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
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

// Why a stream ended, for metrics.
const (
	endRun     = "run"     // the run is over, and all of it was given
	endLife    = "life"    // the longest life of a stream
	endSlow    = "slow"    // the reader did not keep up
	endErased  = "erased"  // the thread was erased
	endDrain   = "drain"   // the process ends
	endLeft    = "left"    // the reader has left
	endRefused = "refused" // it was refused before its first byte
	endFailed  = "failed"  // something else went wrong
)

// streamRetry is the pause before a stream that goes on looks again for what does not answer.
const streamRetry = time.Second

// silentBeats is after how many heartbeats without a word of its run a stream looks whether that was given up.
const silentBeats = 4

// stream is one live answer: the events of a run, or of a thread's runs, one run after another, as they come.
type stream struct {
	*call
	ctx   context.Context
	out   *sse
	key   string
	from  cursor
	until time.Time

	// runID is the one run that is asked for; empty for those of a thread, from the latest on, or once the latest alone.
	runID string
	once  bool
	// rows are the thread's as the index has them, and thread what has come since. They are nil while no run of the thread
	// goes on: then a record that comes has them read again.
	rows      []store.Run
	thread    *live.Thread
	partition int32
	// reader gives raw records; everything below through was given.
	reader  *tail.Reader
	through int64
	like    record.Headers

	// playing is the run whose events are given; nil before the first and between two. Of a stream that was resumed only those are
	// behind the offset after and the number seq.
	playing *live.Run
	after   int64
	seq     int64
	// played is the run that was given last, and begun its start; -1 before there was one.
	played string
	begun  int64
	// last is the latest id that was given.
	last cursor
	// beats counts heartbeats since the last event. away is what the reader was told of Kafka.
	beats int
	away  bool
}

// endError ends a stream whose first bytes are out.
type endError struct {
	why    string // for metrics
	detail string // for the reader
	// event is a RUN_ERROR that is given before; nil where the reader may come again and go on.
	event []byte
}

func (e *endError) Error() string { return e.detail }

var (
	errLife = &endError{why: endLife, detail: "the stream has reached its longest life; go on from the last id"}
	errSlow = &endError{why: endSlow, detail: "the stream was not read fast enough; go on from the last id"}
	// errDraining ends streams where the process does.
	errDraining = &endError{why: endDrain, detail: "this process ends; go on from the last id"}
)

// newStream returns a stream of a run, or of a thread's runs.
func (c *call) newStream(ctx context.Context, runID string, from cursor) (*stream, error) {
	key, err := record.ThreadKey(c.tenant, c.threadID)
	if err != nil {
		return nil, badRequest(err.Error())
	}
	// Streams that began in one moment are not to end in one.
	life := c.cfg.StreamLife - time.Duration(rand.Int64N(int64(c.cfg.StreamLife/10)+1))
	return &stream{
		call: c, ctx: ctx, out: newSSE(c.w, c.cfg.StreamRetry, c.streams.stall), key: key, from: from, last: from, until: time.Now().Add(life),
		runID: runID, begun: -1, after: from.at.Offset, seq: from.seq,
	}, nil
}

// serve gives events until the stream ends.
func (s *stream) serve() error {
	defer s.close()
	if done, err := s.recorded(); err != nil {
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
		if err := s.out.flush(); err != nil {
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
	}
}

// reopen opens the thread. A stream whose first bytes are out waits for what does not answer.
func (s *stream) reopen() error {
	for told := false; ; {
		err := s.open()
		if err == nil || !s.out.begun || s.ctx.Err() != nil || errors.Is(err, errBroken) {
			return err
		}
		if !time.Now().Before(s.until) {
			return errLife
		}
		if !told {
			s.cfg.Logger.WarnContext(s.ctx, "live stream waits", "tenant", s.tenant, "thread_id", s.threadID, "error", err)
			s.out.comment("what the thread holds cannot be read now; the stream goes on once it can")
			told = true
		} else {
			s.out.comment("")
		}
		if err := s.out.flush(); err != nil {
			return err
		}
		if err := s.sleep(streamRetry); err != nil {
			return err
		}
	}
}

// fallBack serves what can be had without the store that has failed before the first byte: a run behind an event without the lineage store and,
// for a client that restores a thread, what the lineage store says without Kafka.
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
	s.cfg.Logger.WarnContext(s.ctx, "restoring a thread without its latest events", "tenant", s.tenant, "thread_id", s.threadID, "error", err)
	return s.history(run)
}

// recorded answers where the run's record says all that is asked for.
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
	case s.from.seq >= 0 && row.Raw.NextSeq >= 0 && s.from.seq >= row.Raw.NextSeq-1 && row.Status != record.StatusAbandoned:
		s.nothing()
		return true, nil
	case s.from.seq >= 0 && row.Raw.NextSeq < 0:
		return false, s.unnumbered()
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

// nothing answers a reader that has had everything.
func (s *stream) nothing() {
	s.w.Header().Set("Cache-Control", "no-store")
	s.w.WriteHeader(http.StatusNoContent)
}

// foreign refuses an id that is none of what is asked for.
func (s *stream) foreign() error {
	of := "this thread"
	if s.runID != "" {
		of = "this run"
	}
	return badRequest(fmt.Sprintf("%s: %s is no event of %s that was given; come without it to join", headerLastEventID, s.from, of))
}

// open reads what the index has of the thread, and begins to follow it from where that ends.
func (s *stream) open() error {
	deadline := time.Now().Add(s.cfg.Wait)
	for {
		err := s.openOnce()
		if err == nil || !errors.Is(err, errBehind) {
			return err
		}
		if time.Now().After(deadline) {
			return later("the thread is indexed in part; try again")
		}
		if err := s.sleep(s.cfg.Poll); err != nil {
			return err
		}
	}
}

func (s *stream) openOnce() error {
	// How far the index is first: rows that are read after it are at least as new. What it says for every tenant: runs of
	// this one may have rows that are further, while another run of it has none yet.
	to, err := s.store.IndexedTo(s.ctx, everyTenant)
	if err != nil {
		return err
	}
	rows, err := s.store.Thread(s.ctx, s.tenant, s.threadID)
	if err != nil && !errors.Is(err, store.ErrNotFound) {
		return err
	}
	lighten(rows)
	s.rows = rows
	if len(rows) > 0 {
		s.partition = rows[0].Raw.Partition
	} else if s.partition, err = s.tail.Partition(s.ctx, s.key); err != nil {
		return err
	}
	if at := s.from.at; s.resumes() && at.Offset >= 0 && at.Partition != s.partition {
		return s.foreign()
	}
	thread, err := live.New(s.threadID, recordsOf(rows), to[s.partition], &recordsOfThread{s, rows})
	if err != nil {
		return err
	}
	from, err := s.start(thread, rows)
	if err != nil {
		return err
	}
	s.thread = thread
	return s.follow(from)
}

// lighten takes out of rows what streams do not ask for: a reader holds those of its thread while a run goes on.
func lighten(rows []store.Run) {
	for i := range rows {
		r := &rows[i]
		if r.Input != nil { // what counts is that there was one
			r.Input = json.RawMessage(`{}`)
		}
		r.Events, r.Labels, r.Interrupts, r.PendingToolCalls, r.Resumes = nil, nil, nil, nil, nil
		r.Stats = record.Stats{Anomalies: r.Stats.Anomalies}
	}
}

// follow begins to read from an offset on.
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

// skip goes on where the log begins: what open runs have said before is gone.
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

// resumes reports whether the reader has named an event, of which it is not known yet whose it is.
func (s *stream) resumes() bool { return !s.from.joins() && s.playing == nil && s.begun < 0 }

// gone refuses an id from before what is kept.
func (s *stream) gone() error {
	return &refusal{status: http.StatusGone, detail: fmt.Sprintf("%s: %s is older than skein.events keeps; come without it to join", headerLastEventID, s.from)}
}

// unnumbered refuses a number of an event where the run's producer gives none. A stream that has begun is ended.
func (s *stream) unnumbered() error {
	detail := fmt.Sprintf("%s: %s, but the events of run %q have no numbers; come without it to join", headerLastEventID, s.from, s.runID)
	if s.out.begun {
		return &endError{why: endRefused, detail: detail}
	}
	return badRequest(detail)
}

// unknown refuses an id from the future.
func (s *stream) unknown() error {
	return badRequest(fmt.Sprintf("%s: skein.events has nothing at %s yet: the id is of another topic set, or was made up; come without it to join", headerLastEventID, s.from))
}

// start returns the offset from which on raw records are needed.
func (s *stream) start(thread *live.Thread, rows []store.Run) (int64, error) {
	from := thread.From()
	switch at := s.from.at.Offset; {
	case !s.resumes():
	case s.from.seq >= 0:
		if s.runID == "" {
			return 0, badRequest(headerLastEventID + ": numbers of the proxy's events belong to a run; ask for that run's stream")
		}
		if r := thread.Run(s.runID); r != nil && r.Record != nil && r.Record.Raw.NextSeq > s.from.seq+1 {
			from = min(from, thread.Replay(r, r.Record.Raw.First))
		}
	default:
		erased, err := s.store.Erasure(s.ctx, s.tenant, s.threadID)
		if err != nil && !errors.Is(err, store.ErrNotFound) {
			return 0, err
		}
		if err == nil && at < erased.Below {
			return 0, &refusal{status: http.StatusGone, detail: fmt.Sprintf("%s: what lay at %s was erased", headerLastEventID, s.from)}
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

// take has the thread take records, and gives events of the run that is played.
func (s *stream) take(b tail.Batch) error {
	if s.thread == nil && len(b.Records) > 0 {
		s.close() // all of them are read again
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
	if err != nil || run == nil || outcome != fold.Folded && outcome != fold.SyntheticEnd {
		return err
	}
	if s.resumes() {
		switch id := run.Head.ID; {
		case s.from.seq >= 0 && id == s.runID && run.NextSeq() < 0:
			return s.unnumbered()
		case s.from.seq >= 0 && id == s.runID:
			s.playing = run
		case m.Offset == s.from.at.Offset && (s.runID == "" || id == s.runID):
			s.playing = run
			return nil
		}
	}
	if run != s.playing || m.Offset <= s.after || e.Headers.Seq < s.seq {
		return nil
	}
	if had := s.seq >= 0 && e.Headers.Seq == s.seq; had {
		s.seq = -1 // from here on every event is new, be it numbered or not
		return nil
	}
	s.give(m.Value, cursor{at: e.Position(), seq: -1})
	s.beats = 0
	return nil
}

// readable reads a record; ok is false for a dead letter.
func (s *stream) readable(m *kgo.Record) (e record.Event, ok bool, err error) {
	e, err = kafka.Event(m, s.like)
	if errors.Is(err, record.ErrUnknownVersion) {
		return e, false, fmt.Errorf("reading record %s: %w", e.Position(), err)
	}
	return e, err == nil && len(m.Value) <= kafka.MaxValueBytes, nil
}

// give writes an event, with its id.
func (s *stream) give(event []byte, at cursor) {
	s.out.begin(s.from)
	s.last = at
	s.out.event(event, &at)
	s.streams.metrics.events.Inc()
}

// block writes events that a reader has only whole: the last one carries the id.
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

// play goes on from what was taken: it ends the run that is over, and joins the one that comes next.
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
			if s.caughtUp() { // what is wrong with the id is known by now
				s.out.begin(s.from)
			}
			return false, nil
		}
		if err := s.end(s.playing); err != nil {
			return false, err
		}
		s.played, s.begun, s.playing = s.playing.Head.ID, s.playing.Head.Start, nil
		if s.runID != "" || s.once {
			if !s.out.begun {
				s.nothing()
			}
			return true, s.out.flush()
		}
		if from := s.thread.From(); s.through < from { // what lies between is of runs that are over
			if err := s.follow(from); err != nil {
				return false, err
			}
		}
	}
	if !s.caughtUp() {
		return false, nil
	}
	if s.once {
		return true, s.nobody()
	}
	s.out.begin(s.from)
	if s.thread != nil && !s.thread.Open() { // what comes next has the thread read anew
		s.thread, s.rows = nil, nil
	}
	return false, nil
}

// caughtUp reports whether all was read that there was when the reader began.
func (s *stream) caughtUp() bool { return s.through >= s.reader.End() }

// pick returns the run that is played next; nil where it is not there.
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

// over reports whether all that is known of a run was read, and nothing more will come.
func (s *stream) over(r *live.Run) bool { return !r.Head.Open() && s.through >= r.Next }

// join brings a client that holds nothing of the run to where it stands.
func (s *stream) join(r *live.Run) error {
	s.playing, s.after, s.seq = r, -1, -1
	f := r.Fold()
	if f == nil {
		return s.history(r.Head.ID)
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

// holdsOther reports whether a client that has followed the stream holds what is not of a run with this parent.
func (s *stream) holdsOther(parent string) bool { return s.played != "" && s.played != parent }

// history gives a run as its record tells it.
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
	return s.out.flush()
}

// whole returns the events that give a run which is over to a client.
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

// started is the RUN_STARTED of a run that has none.
func (s *stream) started(run string) json.RawMessage {
	b := agui.AppendString([]byte(`{"type":"RUN_STARTED","threadId":`), s.threadID)
	return append(agui.AppendString(append(b, `,"runId":`...), run), '}')
}

// end gives the end of a run that Skein has ended: it lies on no topic.
func (s *stream) end(r *live.Run) error {
	at := cursor{at: record.Position{Partition: s.partition, Offset: r.Next - 1}, ended: true, seq: -1}
	if r.Fold() != nil && r.Fold().Ended() || r.Record == nil || r.Record.Status != record.StatusAbandoned || r.Record.Terminal == nil || s.last == at || s.from == at {
		return nil
	}
	s.give(r.Record.Terminal, at)
	return nil
}

// next waits for records. What a reader has to be told meanwhile it says by comments.
func (s *stream) next() (tail.Batch, error) {
	for {
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
			if err := s.beat(); err != nil {
				return b, err
			}
		}
		if err := s.out.flush(); err != nil {
			return b, err
		}
	}
}

// say tells the reader whether Kafka answers.
func (s *stream) say(away bool) {
	switch {
	case away == s.away:
		return
	case away:
		s.out.begin(s.from)
		s.out.comment("Kafka does not answer; the stream goes on once it does")
	default:
		s.out.comment("Kafka answers again")
	}
	s.away = away
}

// lost says why no more records come.
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

// beat shows that the stream is alive, and looks from time to time whether its run still is.
func (s *stream) beat() error {
	if s.out.begun || !s.resumes() {
		s.out.begin(s.from)
		s.out.comment("")
	}
	if s.beats++; s.playing == nil || s.beats%silentBeats != 0 {
		return nil
	}
	id := s.playing.Head.ID
	row, err := s.store.Run(s.ctx, s.tenant, s.threadID, id)
	switch {
	case errors.Is(err, store.ErrNotFound) && s.playing.Record != nil:
		return s.erased()
	case err != nil: // the next look may tell
		return s.ctx.Err()
	case row.Status != record.StatusAbandoned || row.Raw.Next < s.playing.Next:
		return nil
	}
	// Nothing of it has come since: what is told of it is read anew.
	s.playing.Record = &row.Run
	s.playing.Head.End, s.playing.Head.Status = s.playing.Next-1, lineage.Status(row.Status)
	if err := s.end(s.playing); err != nil {
		return err
	}
	s.played, s.begun, s.playing = id, s.playing.Head.Start, nil
	if s.runID == "" {
		return nil
	}
	return &endError{why: endRun}
}

// codeErased is the code of the RUN_ERROR that ends a stream whose thread was erased.
const codeErased = "skein-erased"

const erasedDetail = "the thread was erased"

var errErased = &endError{
	why: endErased, detail: erasedDetail, event: []byte(`{"type":"RUN_ERROR","message":"` + erasedDetail + `","code":"` + codeErased + `"}`),
}

// erased ends the stream: what was given of the thread is no more.
func (s *stream) erased() error {
	switch {
	case !s.out.begun && !s.from.joins():
		return &refusal{status: http.StatusGone, detail: erasedDetail}
	case s.playing == nil && s.begun < 0: // nothing was given of it: what comes now is of its next life
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

// recordsOfThread gives what the index and skein.runs say of a thread's runs (live.Source).
type recordsOfThread struct {
	*stream
	rows []store.Run
}

func (s *recordsOfThread) row(run string) (store.Run, error) {
	i := slices.IndexFunc(s.rows, func(r store.Run) bool { return r.RunID == run })
	if i < 0 {
		return store.Run{}, fmt.Errorf("%w: run %q has no row", errBehind, run)
	}
	return s.rows[i], nil
}

// Record implements live.Source.
func (s *recordsOfThread) Record(run string) (*record.Run, error) {
	row, err := s.row(run)
	if err != nil {
		return nil, err
	}
	rec, err := s.recordOf(row)
	if errors.Is(err, ErrRecordGone) {
		return nil, fmt.Errorf("%w: run %q has a newer record: %w", errBehind, run, err)
	}
	if err != nil || rec.Base == "" {
		return rec, err
	}
	if base, err := s.row(rec.Base); err != nil || base.Refolds != rec.BaseRefolds {
		return nil, fmt.Errorf("%w: run %q is told against another record of run %q: %w", errBehind, run, rec.Base, err)
	}
	return rec, nil
}

// History implements live.Source.
func (s *recordsOfThread) History(run string) (lineage.History, error) {
	h, err := s.restore(s.rows, run)
	return h.History, err
}

// Holding implements live.Source.
func (s *recordsOfThread) Holding(messageIDs []string) ([]string, error) {
	versions, err := s.store.Holding(s.ctx, s.tenant, s.threadID, messageIDs)
	if err != nil {
		return nil, err
	}
	var runs []string
	for run := range versions {
		runs = append(runs, run)
	}
	return runs, nil
}
