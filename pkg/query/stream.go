package query

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/skeinhq/skein/pkg/fold"
	"github.com/skeinhq/skein/pkg/kafka"
	"github.com/skeinhq/skein/pkg/live"
	"github.com/skeinhq/skein/pkg/record"
	"github.com/skeinhq/skein/pkg/store"
	"github.com/skeinhq/skein/pkg/tail"
)

// stream sends one reader the events of a run, or of the runs of a thread one after another, as they arrive.
type stream struct {
	*call
	ctx  context.Context // ends with errLife at the latest
	out  sse
	key  string
	from cursor

	// runID is the requested run. If it is empty, the stream serves the thread's runs from the latest on; with once, only
	// the latest.
	runID string
	once  bool
	// until is where a read that follows its thread ends, and wants the records of open runs (live.Thread.Current); tail.End for streams.
	until int64
	// rows are the thread's runs in the index; thread follows the records after them. Both are nil while no run of the
	// thread is open. The next record of the thread then makes the stream read them again.
	rows      []store.Run
	thread    *live.Thread
	partition int32
	// erasedAt is the position after the thread's last erasure that was read since the thread was opened; 0 if there is none.
	erasedAt int64
	// patchedAt is the position of the last patch of the thread's details that was read; 0 if there is none.
	patchedAt int64
	// held is the memory that was taken for the stream itself, its rows and its folds.
	held int64
	// reader returns raw records. The stream has processed all of them below through.
	reader  *tail.Reader
	through int64
	like    record.Headers

	// playing is the run whose events are sent; nil before the first run and between two. Only events beyond the offset in
	// after and the sequence number in seq are sent.
	playing *live.Run
	after   int64
	seq     int64
	// played is the last run that was sent whole. begun is its start offset; -1 before the first run.
	played string
	begun  int64
	// last is the last id that was sent.
	last cursor
	// wrote is when something was last sent to the reader.
	wrote time.Time
	// heard is when the playing run had its last event, or was last checked. away: the last comment reported that Kafka
	// does not answer.
	heard time.Time
	away  bool
}

// newStream returns a stream of a run, or of a thread's runs.
func (c *call) newStream(ctx context.Context, runID string, from cursor) (*stream, error) {
	key, err := record.ThreadKey(c.Tenant, c.threadID)
	return &stream{
		call: c, ctx: ctx, out: sse{w: c.W}, key: key, from: from, last: from, wrote: time.Now(), runID: runID,
		until: tail.End, begun: -1, after: from.at.Offset, seq: from.seq,
	}, err
}

// serve sends events until the stream ends.
func (s *stream) serve() error {
	defer s.close()
	done := false
	err := s.patiently(func() error {
		return s.load.withSlot(s.ctx, func() (err error) {
			done, err = s.recorded()
			return err
		})
	}, store.ErrNotFound)
	if err != nil {
		return s.fallBack(err)
	} else if done {
		return nil
	}
	for {
		if s.reader == nil {
			if err := s.patiently(s.open); err != nil {
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
		if err := s.takeInTurn(b); err != nil {
			return err
		}
		if err := s.weigh(); err != nil {
			return err
		}
	}
}

// streamBytes is the approximate memory of a stream that only waits, its buffer included.
const streamBytes = 4<<10 + keptBuffer

// weigh takes or releases memory so that the load matches what the stream holds now.
func (s *stream) weigh() error {
	bytes := s.bytes()
	err := s.load.hold(bytes - s.held)
	if err == nil {
		s.held = bytes
	}
	return err
}

// bytes is the approximate memory of the stream.
func (s *stream) bytes() int64 {
	bytes := int64(streamBytes)
	if s.thread != nil {
		bytes += int64(len(s.rows))*store.RowBytes + s.thread.Bytes()
	}
	return bytes
}

// flush sends what was written. If that exceeds the kept buffer, flush takes memory for it, since a slow reader
// occupies it for long.
func (s *stream) flush() error {
	if s.out.b.Len() > 0 {
		s.wrote = time.Now()
	}
	if n := int64(s.out.b.Len()); n > keptBuffer {
		if err := s.load.hold(n); err != nil {
			s.out.b = bytes.Buffer{}
			return err
		}
		defer func() { _ = s.load.hold(-n) }() // a release never fails
	}
	return s.out.flush()
}

// takeInTurn processes records. A stream that is behind folds without a pause, and many of those would occupy all
// processors. So it takes a slot for each batch until it has caught up.
func (s *stream) takeInTurn(b tail.Batch) error {
	if s.caughtUp() {
		return s.take(b)
	}
	if err := s.load.acquire(s.ctx); err != nil {
		return err
	}
	defer s.load.releaseSlot()
	return s.take(b)
}

// take processes records and sends the events of the playing run.
func (s *stream) take(b tail.Batch) error {
	if s.thread == nil && len(b.Records) > 0 {
		for _, m := range b.Records {
			e, ok, err := s.readable(m)
			if err != nil {
				return err
			}
			if ok && e.Headers.Kind == record.KindErase && s.begun >= 0 { // the index may not have the erasure yet when the thread is opened again
				return errErased
			}
		}
		s.close() // the thread is opened again and these records are read again
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
	return s.checkRun()
}

func (s *stream) takeRecord(m *kgo.Record) error {
	e, ok, err := s.readable(m)
	switch {
	case !ok:
		return err
	case e.Headers.Kind == record.KindErase:
		s.erasedAt = m.Offset + 1
		return s.erased()
	case e.Headers.Kind == record.KindCancel && s.asksToStop(e) && (s.out.begun || !s.resumes()):
		s.out.begin(s.from) // a producer over HTTP, which does not read Kafka, hears of it by its run's stream
		s.out.comment(stopRequested)
		return nil
	case e.Headers.Kind == record.KindThread:
		s.patchedAt = m.Offset
		return nil
	case !e.OfRun():
		return nil
	}
	s.like = e.Headers
	run, outcome, err := s.thread.Take(e)
	if err != nil || run == nil {
		return err
	}
	had := false
	if s.seq >= 0 && run.ID == s.runID && e.Headers.Seq >= s.seq { // every later event is new, numbered or not
		had, s.seq = e.Headers.Seq == s.seq, -1
	}
	if outcome != fold.Folded && outcome != fold.SyntheticEnd && outcome != fold.LateError {
		return nil
	}
	if s.resumes() {
		switch id := run.ID; {
		case s.from.seq >= 0 && id == s.runID && run.NextSeq < 0:
			return s.unnumbered()
		case s.from.seq >= 0 && id == s.runID && run.Record == nil && e.Headers.Seq > s.from.seq:
			if err := s.checkErased(s.Call, -1); err != nil { // the run begins behind the id
				return err
			}
			s.playing, s.heard = run, time.Now()
		case s.from.seq >= 0 && id == s.runID:
			s.playing, s.heard = run, time.Now()
		case m.Offset == s.from.at.Offset && (s.runID == "" || id == s.runID):
			s.playing, s.heard = run, time.Now()
			return nil
		}
	}
	if outcome == fold.LateError { // endLate sends it
		return nil
	}
	if run != s.playing || m.Offset <= s.after || s.seq >= 0 || had {
		return nil
	}
	value := m.Value
	if outcome == fold.SyntheticEnd { // maybe in place of a malformed end
		if ev, _ := fold.Decode(value); ev != nil {
			value = ev.Raw
		}
	}
	s.give(identified(value, s.threadID, run.ClientRunID()), cursor{at: e.Position(), seq: -1})
	s.heard = time.Now()
	return nil
}

// asksToStop reports whether a request to stop is for the stream's run. One without a run is for those of the thread that began before the
// offset that it names, which is its own if it names none.
func (s *stream) asksToStop(e record.Event) bool {
	if s.runID == "" || e.Headers.RunID != "" {
		return s.runID != "" && e.Headers.RunID == s.runID
	}
	asked := struct{ Before int64 }{e.Offset}
	if json.Unmarshal(e.Value, &asked) != nil {
		asked.Before = e.Offset
	}
	r := s.thread.Get(s.runID)
	return r != nil && r.Start < asked.Before
}

// stopRequested is the comment of a run's stream where somebody asked that the run be stopped. Programs compare it.
const stopRequested = "stop requested"

// readable decodes a record; ok is false if the compactor treats it as a dead letter.
func (s *stream) readable(m *kgo.Record) (e record.Event, ok bool, err error) {
	e, err = kafka.Event(m, &s.like, s.cfg.Tail.Kafka.IngestKeys)
	if errors.Is(err, record.ErrUnknownVersion) {
		return e, false, fmt.Errorf("reading record %s: %w", e.Position(), err)
	}
	refused := e.Signature == record.SignatureWrong && !e.OfRun() // of a run's records live.Thread decides
	return e, err == nil && len(m.Value) <= kafka.MaxValueBytes && !refused, nil
}

// give sends an event with its id.
func (s *stream) give(event []byte, at cursor) {
	s.out.begin(s.from)
	s.last = at
	s.out.event(event, &at)
	s.metrics.streamed.Inc()
}

// block sends events that belong together. Only the last one has an id, so a reader that is disconnected within the
// block gets all of it again.
func (s *stream) block(events []json.RawMessage, at cursor) {
	s.out.begin(s.from)
	for i, ev := range events {
		if i < len(events)-1 {
			s.out.event(ev, nil)
			s.metrics.streamed.Inc()
		} else {
			s.give(ev, at)
		}
	}
}

// next waits for records and meanwhile sends heartbeats and comments. If the playing run turns out to be abandoned, it
// returns an empty batch, because the next run may have begun already.
func (s *stream) next() (tail.Batch, error) {
	for {
		if ended, err := s.checkAbandoned(); ended || err != nil {
			return tail.Batch{Through: s.through}, err
		}
		silent := time.Since(s.wrote)
		if silent >= s.cfg.StreamHeartbeat { // records of other runs of the thread send nothing
			if err := s.beat(); err != nil {
				return tail.Batch{}, err
			}
			continue
		}
		ctx, cancel := context.WithTimeout(s.ctx, s.cfg.StreamHeartbeat-silent)
		b, err := s.reader.Next(ctx)
		cancel()
		switch {
		case err == nil:
			s.say(b.Away)
			return b, nil
		case s.ctx.Err() != nil || !errors.Is(err, context.DeadlineExceeded):
			return b, s.lost(err)
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

// beat sends a heartbeat. It does not begin the stream of a resuming reader, whose id may prove invalid.
func (s *stream) beat() error {
	s.wrote = time.Now()
	if s.out.begun || !s.resumes() {
		s.out.begin(s.from)
		s.out.comment("")
	}
	return s.flush()
}

// late sends a heartbeat while the stream waits for a slot. If a resuming reader waits for that long, an invalid id is
// found only after the stream has begun.
func (s *stream) late() error {
	s.out.begin(s.from)
	return s.beat()
}

func (s *stream) close() {
	if s.reader != nil {
		s.reader.Close()
		s.reader = nil
	}
}
