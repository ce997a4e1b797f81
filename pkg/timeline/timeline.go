package timeline

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/skeinhq/skein/pkg/agui"
	"github.com/skeinhq/skein/pkg/compact"
	"github.com/skeinhq/skein/pkg/fold"
	"github.com/skeinhq/skein/pkg/lineage"
	"github.com/skeinhq/skein/pkg/record"
)

// Step is one record of a run. Step 0 is the run's start: the change that the run's input makes to the parent's
// history. Steps from 1 on are the run's records in log order, except for inputs before the first event.
type Step struct {
	N int
	// Offset is the record's offset. Step 0 has the input's offset, or -1 if no input was sent separately from the stream.
	Offset int64
	// Time is the time of the Kafka record; zero if there is no record.
	Time    time.Time
	Kind    record.Kind
	Seq     int64
	Outcome fold.Outcome
	// Value is nil if the Timeline does not hold it (see Missing).
	Value []byte
	// takes is the approximate memory for folding the step, in bytes.
	takes int64
}

// Type returns the AG-UI type of the step's event, or of the event in place of a malformed end; empty if the step is not a
// valid event.
func (s Step) Type() agui.Type {
	if s.Kind != record.KindEvent {
		return ""
	}
	ev, _ := fold.Decode(s.Value)
	if ev == nil {
		return ""
	}
	return ev.Type
}

// markEvery is the minimum number of events between two marks. Moving to a step folds at most about as many.
const markEvery = 256

// These are the bytes that a step, and a message, take besides their contents.
const (
	stepBytes    = 112
	messageBytes = 56
)

// mark is the fold of a run after some of its steps.
type mark struct {
	after      int
	messages   []agui.Message
	state      json.RawMessage
	checkpoint json.RawMessage
	// fresh is how many bytes this mark does not share with the mark before it.
	fresh int64
	// overhead is compact.Run.Overhead of the fold. A fold that starts at the mark may parse the same documents.
	overhead int64
}

// Timeline holds the steps of a run, and the run's fold after every few hundred of them, so that the cost of moving to
// a step does not depend on the length of the run. One goroutine adds steps; Cursors may be used at the same time.
type Timeline struct {
	// limit bounds the bytes that the timeline holds.
	limit  int64
	before lineage.History // the parent's history
	start  Step
	begun  bool
	steps  []Step // without their values
	values [][]byte
	// bare: the values exceeded the limit, so the timeline no longer holds them.
	bare  bool
	marks []mark
	every int // events between two marks
	count int // messages after the last step that was folded
	// overhead is compact.Run.Overhead after the last step that was folded.
	overhead int64
	// folded is the number of events since the last mark, and bytes is their size.
	folded, bytes int64
	// held is how many bytes the timeline holds; origin is the part of held for before.
	held, origin int64
}

// ErrTooLong means that the steps of a run exceed the limit of its Timeline even without their values.
var ErrTooLong = errors.New("the run has too many events to step through it")

func newTimeline(limit int64) *Timeline {
	return &Timeline{limit: limit, every: markEvery, start: Step{Offset: -1, Kind: record.KindInput, Seq: -1, Outcome: fold.Input}}
}

// Begun reports whether an event of the run was folded. Until then the run's parent is undecided.
func (t *Timeline) Begun() bool { return t.begun }

// Len returns the number of the last step.
func (t *Timeline) Len() int { return len(t.steps) }

// Step returns a step from 0 to Len.
func (t *Timeline) Step(n int) Step {
	if n == 0 {
		return t.start
	}
	s := t.steps[n-1]
	if !t.bare {
		s.Value = t.values[n-1]
	}
	return s
}

// Bytes returns the approximate memory that the timeline holds.
func (t *Timeline) Bytes() int64 { return t.held }

// begin sets the parent's history and the first fold. It may be called again before the first folded step.
func (t *Timeline) begin(before lineage.History, started *compact.Run) error {
	for _, m := range t.marks {
		t.held -= m.fresh
	}
	t.before, t.marks, t.held = before.Unshare(), nil, t.held-t.origin
	t.origin = sizeOf(before.Messages, nil) + int64(len(before.State))
	t.held += t.origin
	if err := t.mark(started); err != nil {
		return err
	}
	t.count, t.overhead = started.MessageCount(), int64(started.Overhead())
	t.marks[0].after = 0 // earlier steps are not folded
	return nil
}

// add appends a step. run is the fold after the step.
func (t *Timeline) add(s Step, value []byte, run *compact.Run) error {
	s.N, s.Value = len(t.steps)+1, nil
	if folds(s.Outcome) {
		n, overhead := run.MessageCount(), int64(run.Overhead())
		s.takes = foldedByte*int64(len(value)) + foldedMessage*int64(max(0, n-t.count)) + max(0, overhead-t.overhead)
		t.count, t.overhead = n, overhead
	}
	t.steps = append(t.steps, s)
	t.held += stepBytes
	if !t.bare {
		t.values = append(t.values, value)
		t.held += int64(len(value))
	}
	if folds(s.Outcome) {
		t.folded++
		t.bytes += int64(len(value))
		if t.folded >= int64(t.every) && t.bytes >= t.marks[len(t.marks)-1].fresh {
			if err := t.mark(run); err != nil {
				return err
			}
		}
	}
	return t.fit()
}

// folds reports whether a step with this outcome is folded.
func folds(o fold.Outcome) bool { return o == fold.Folded || o == fold.SyntheticEnd }

// mark adds a mark that holds the current fold.
func (t *Timeline) mark(run *compact.Run) error {
	checkpoint, err := run.Checkpoint()
	if err != nil {
		return err
	}
	m := mark{
		after: len(t.steps), messages: run.Messages(), state: run.State(), checkpoint: checkpoint, overhead: int64(run.Overhead()),
	}
	known, state := t.before.Messages, t.before.State
	if n := len(t.marks); n > 0 {
		known, state = t.marks[n-1].messages, t.marks[n-1].state
	}
	m.fresh = sizeOf(m.messages, known) + int64(len(checkpoint))
	if !same(m.state, state) {
		m.fresh += int64(len(m.state))
	}
	t.marks = append(t.marks, m)
	t.folded, t.bytes = 0, 0
	t.held += m.fresh
	return nil
}

// sizeOf returns the size in bytes of a list of messages, without the texts that it shares with the list known.
func sizeOf(messages, known []agui.Message) int64 {
	n := int64(len(messages) * messageBytes)
	at := 0
	for _, m := range messages {
		if at < len(known) && known[at].ID == m.ID {
			if at++; same(known[at-1].Raw, m.Raw) {
				continue
			}
		}
		n += int64(len(m.Raw))
	}
	return n
}

// fit keeps the timeline within its limit. It first drops the values, which the log still has, and then every second
// mark.
func (t *Timeline) fit() error {
	if t.held > t.limit && !t.bare {
		for _, v := range t.values {
			t.held -= int64(len(v))
		}
		t.bare, t.values = true, nil
	}
	for t.held > t.limit && len(t.marks) > 1 {
		t.every *= 2
		thin := t.marks[:0:0]
		for i, m := range t.marks {
			if t.held -= m.fresh; i%2 > 0 {
				continue
			}
			// The mark before it is dropped, so this mark alone holds what both held.
			if i > 0 {
				m.fresh += t.marks[i-1].fresh
			}
			t.held += m.fresh
			thin = append(thin, m)
		}
		t.marks = thin
	}
	if t.held > t.limit && len(t.steps) > 0 && int64(len(t.steps))*stepBytes > t.limit {
		return ErrTooLong
	}
	return nil
}

// Missing returns the range of offsets of the values that the timeline lacks, but that From needs for moving to the
// step from, and then on to the step to. The range is empty if no value is missing.
func (t *Timeline) Missing(c *Cursor, from, to int) (offsets [2]int64) {
	if !t.bare {
		return offsets
	}
	first := t.markAt(from).after
	if t.Reaches(c, from) {
		first = max(c.n, 0)
	}
	if to = min(to, len(t.steps)); first >= to {
		return offsets
	}
	return [2]int64{t.steps[first].Offset, t.steps[to-1].Offset + 1}
}

// markAt returns the last mark at or before a step.
func (t *Timeline) markAt(n int) mark {
	i, found := slices.BinarySearchFunc(t.marks, n, func(m mark, n int) int { return m.after - n })
	if !found {
		i--
	}
	return t.marks[max(i, 0)]
}

// Cursor is a position after a step of a run. It moves only forward. It is not safe for concurrent use.
type Cursor struct {
	from   mark // where it started
	start  Step
	steps  []Step
	values func(Step) []byte
	first  lineage.History // after step 0
	n      int             // the last step that was folded
	fold   *compact.Run
	at     lineage.History
	// stale: messages and state of at are older than the fold. staleState: its state is.
	stale, staleState bool
	// text is the size of the folded events that are not counted in state. state is the size of those that made the
	// current state.
	text, state int64
}

const (
	// foldedByte is the approximate memory, in bytes, for each byte of a folded event: as text that may grow, written as
	// JSON, and in the form of records. TestCursor_TakesNoMoreThanItCounts checks it.
	foldedByte = 4
	// openedByte is the same for each byte of a mark that an event has changed. The mark still holds the original byte.
	openedByte = 3
)

// Bytes returns the approximate memory that the cursor holds in addition to its timeline.
func (c *Cursor) Bytes() int64 {
	at := c.History()
	opened := min(sizeOf(at.Messages, c.from.messages), sizeOf(c.from.messages, nil))
	if !same(at.State, c.from.state) {
		opened += min(int64(len(at.State)), int64(len(c.from.state)))
	}
	return foldBytes(c.fold) + int64(len(c.from.checkpoint)) + openedByte*opened + foldedByte*(c.text+c.state)
}

// CursorBytes returns the approximate memory for moving to step n with From, including what c already holds.
func (t *Timeline) CursorBytes(c *Cursor, n int) int64 {
	if t.Reaches(c, n) {
		return c.Bytes() + t.FoldingBytes(c.n, n)
	}
	m := t.markAt(n)
	own := m.overhead + int64(len(m.state)+len(m.checkpoint))
	return foldedMessage*int64(len(m.messages)) + sizeOf(m.messages, nil) + own + t.FoldingBytes(m.after, n)
}

// FoldingBytes returns the approximate memory for folding the steps after step from, up to and including step to.
func (t *Timeline) FoldingBytes(from, to int) int64 {
	n := int64(0)
	for _, s := range t.steps[max(from, 0):max(from, to, 0)] {
		n += s.takes
	}
	return n
}

// Reaches reports whether From moves this cursor on to step n. If a mark is nearer to step n than the place where the
// cursor started, From starts a new cursor at that mark. So the events that a cursor has folded, and the memory for
// them, do not grow with the run.
func (t *Timeline) Reaches(c *Cursor, n int) bool {
	return c != nil && c.n <= n && c.from.after == t.markAt(n).after
}

// From returns a cursor after step n, from -1 (before the run's start) to Len. The argument values returns the values
// that Missing reports; it may be nil if none is missing. The run must have begun. c is a cursor of this timeline, or
// nil. If Reaches reports true, From moves c on, which avoids folding the same events again. The caller must not use c
// afterwards, not even after an error. Once ctx is done, From folds no more events and returns its error.
func (t *Timeline) From(ctx context.Context, c *Cursor, n int, values func(Step) []byte) (*Cursor, error) {
	if !t.Reaches(c, n) {
		m := t.markAt(n)
		run, err := compact.Resume(m.messages, m.state, m.checkpoint)
		if err != nil {
			return nil, err
		}
		run.Keep(agui.NoFamilies) // the steps already hold the events
		c = &Cursor{from: m, n: m.after, fold: run, stale: true, staleState: true}
	}
	c.start, c.steps, c.values = t.start, t.steps, values
	if held := t.values; !t.bare {
		c.values = func(s Step) []byte { return held[s.N-1] }
	}
	if n < 0 {
		run := c.fold
		c.n, c.at, c.stale, c.staleState, c.first = -1, t.before, false, false, fold.At(run, t.before)
		if c.at.State == nil {
			c.at.State = json.RawMessage(`{}`)
		}
		return c, nil
	}
	for c.n < n {
		if err := ctx.Err(); err != nil {
			return nil, err
		}
		if _, _, err := c.advance(false); err != nil {
			return nil, err
		}
	}
	return c, nil
}

// Park drops what the cursor needs only for moving and the timeline also holds. From restores it.
func (c *Cursor) Park() { c.steps, c.values, c.first = nil, nil, lineage.History{} }

// N returns the number of the cursor's step: the cursor is positioned after it.
func (c *Cursor) N() int { return c.n }

// History returns the history after the cursor's step, in the form of records.
func (c *Cursor) History() lineage.History {
	if c.stale || c.staleState {
		c.at, c.stale, c.staleState = fold.At(c.fold, c.at), false, false
	}
	return c.at
}

// Next moves to the next step, which must exist, and returns it with its change.
func (c *Cursor) Next() (Step, Change, error) {
	if c.n < 0 {
		before := c.at
		s, _, err := c.advance(false)
		if err != nil {
			return s, Change{}, err
		}
		return s, Compare(before, c.at), nil
	}
	before := c.messages()
	s, edits, err := c.advance(true)
	if err != nil {
		return s, Change{}, err
	}
	return s, Change{Messages: compareMessages(before, c.messages()), State: statePatch(edits...)}, nil
}

// messages returns the messages of History without writing the state, which may be large.
func (c *Cursor) messages() []agui.Message {
	if c.stale {
		c.at.Messages, c.stale = fold.MessagesAt(c.fold, c.at.Messages), false
	}
	return c.at.Messages
}

// advance moves to the next step. If noting is set, it returns the edits of the state, but not those of the run's start.
func (c *Cursor) advance(noting bool) (s Step, edits []compact.Edit, err error) {
	if c.n++; c.n == 0 {
		c.at = c.first
		return c.start, nil, nil
	}
	s = c.steps[c.n-1]
	s.Value = c.values(s)
	if !folds(s.Outcome) {
		return s, nil, nil
	}
	ev, err := fold.Decode(s.Value)
	switch {
	case ev != nil && s.Outcome == fold.SyntheticEnd:
		err = c.fold.End(ev)
	case err == nil && noting:
		edits, err = c.fold.ApplyNoting(ev)
	case err == nil:
		err = c.fold.Apply(ev)
	}
	if err != nil {
		return s, nil, fmt.Errorf("folding step %d again: %w", s.N, err)
	}
	switch size := int64(len(s.Value)); ev.Type {
	case agui.StateSnapshot: // nothing of the earlier state remains
		c.state = size
	case agui.StateDelta:
		c.state += size
	case agui.Custom, agui.Raw, agui.Meta: // the fold keeps nothing of these
	default:
		c.text += size
	}
	c.stale, c.staleState = true, true
	return s, edits, nil
}
