package timeline

import (
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

// Step is one record of a run. Step 0 is the run's start: the change that its input makes to the parent's history. The steps from 1 on
// are the run's records in the order of the log, except for inputs before the first event.
type Step struct {
	N int
	// Offset is the record's offset; for step 0 that of the input, -1 if none was sent beside the stream.
	Offset int64
	// Time is that of the Kafka record; zero if there is none.
	Time    time.Time
	Kind    record.Kind
	Seq     int64
	Outcome fold.Outcome
	// Value is nil if the Timeline does not hold it (Missing).
	Value []byte
	// takes is about how much memory it takes to fold it.
	takes int64
}

// Type is the AG-UI type of the step's event; empty if it is not an event.
func (s Step) Type() agui.Type {
	if s.Kind != record.KindEvent {
		return ""
	}
	ev, err := agui.Decode(s.Value)
	if err != nil {
		return ""
	}
	return ev.Type
}

// markEvery is the least number of events between two marks: about as many are folded at most to go to a step.
const markEvery = 256

// The memory of a step and of a message beside their bytes.
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
	// fresh is the bytes that it does not share with the mark before it.
	fresh int64
}

// Timeline holds the steps of a run and its fold after every few hundred of them, so that the cost of going to a step does not depend
// on the length of the run. One goroutine adds steps; Cursors may be used at the same time.
type Timeline struct {
	// limit bounds the bytes that it holds.
	limit  int64
	before lineage.History // the parent's history
	start  Step
	begun  bool
	steps  []Step // without their values
	values [][]byte
	// bare: the values exceed the limit and are not held.
	bare  bool
	marks []mark
	every int // events between two marks
	count int // messages after the last step that was folded
	// folded and bytes count the events since the last mark.
	folded, bytes int64
	// held is the bytes that the timeline holds, origin the part of before in it.
	held, origin int64
}

// ErrTooLong is returned if the steps of a run exceed the limit of its Timeline even without their values.
var ErrTooLong = errors.New("the run has too many events to step through it")

func newTimeline(limit int64) *Timeline {
	return &Timeline{limit: limit, every: markEvery, start: Step{Offset: -1, Kind: record.KindInput, Seq: -1, Outcome: fold.Input}}
}

// Begun reports whether an event of the run was folded. Before that, its parent is not decided.
func (t *Timeline) Begun() bool { return t.begun }

// Len is the number of the last step.
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

// Bytes is about how much memory the timeline holds.
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
	t.count = started.MessageCount()
	t.marks[0].after = 0 // steps before it are not folded
	return nil
}

// add adds a step; run is the fold after it.
func (t *Timeline) add(s Step, value []byte, run *compact.Run) error {
	s.N, s.Value = len(t.steps)+1, nil
	if folds(s.Outcome) {
		n := run.MessageCount()
		s.takes = foldedByte*int64(len(value)) + foldedMessage*int64(max(0, n-t.count))
		t.count = n
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

// mark keeps the current fold.
func (t *Timeline) mark(run *compact.Run) error {
	checkpoint, err := run.Checkpoint()
	if err != nil {
		return err
	}
	m := mark{after: len(t.steps), messages: run.Messages(), state: run.State(), checkpoint: checkpoint}
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

// sizeOf is what a list of messages holds beside another one with which it shares some.
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

// fit keeps the timeline within its limit: first the values go, which the log has, then every second mark.
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
			// What it holds beside the one that stays before it, is what both held.
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

// Missing returns the range of offsets whose values From needs to go to a step, and on to another, and the timeline does not hold; the
// range is empty where it holds them all.
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

// markAt is the last mark at or before a step.
func (t *Timeline) markAt(n int) mark {
	i, found := slices.BinarySearchFunc(t.marks, n, func(m mark, n int) int { return m.after - n })
	if !found {
		i--
	}
	return t.marks[max(i, 0)]
}

// Cursor is a place after a step of a run. It moves forward. It is not safe for concurrent use.
type Cursor struct {
	from   mark // where it set out
	start  Step
	steps  []Step
	values func(Step) []byte
	first  lineage.History // after step 0
	n      int             // the last step that was folded
	fold   *compact.Run
	at     lineage.History
	stale  bool // at is not that of the fold
	// text is the bytes of the events that it folded, and state those that are in its state.
	text, state int64
}

const (
	// foldedByte is about how many bytes of memory a byte of an event takes once it is folded: as text that may grow, written as JSON, and
	// in the form of records. TestCursor_TakesNoMoreThanItCounts holds it.
	foldedByte = 4
	// openedByte is the same for a byte of a mark that an event changed; the mark holds the one that came.
	openedByte = 3
)

// Bytes is about how much memory the cursor holds beside its timeline.
func (c *Cursor) Bytes() int64 {
	at := c.History()
	opened := min(sizeOf(at.Messages, c.from.messages), sizeOf(c.from.messages, nil))
	if !same(at.State, c.from.state) {
		opened += min(int64(len(at.State)), int64(len(c.from.state)))
	}
	return foldBytes(c.fold) + int64(len(c.from.checkpoint)) + openedByte*opened + foldedByte*(c.text+c.state)
}

// CursorBytes is about how much memory From takes to go to a step, with what c holds already.
func (t *Timeline) CursorBytes(c *Cursor, n int) int64 {
	if t.Reaches(c, n) {
		return c.Bytes() + t.FoldingBytes(c.n, n)
	}
	m := t.markAt(n)
	return foldedMessage*int64(len(m.messages)) + sizeOf(m.messages, nil) + int64(len(m.state)+len(m.checkpoint)) + t.FoldingBytes(m.after, n)
}

// FoldingBytes is about how much memory it takes to fold the steps behind one up to another.
func (t *Timeline) FoldingBytes(from, to int) int64 {
	n := int64(0)
	for _, s := range t.steps[max(from, 0):max(from, to, 0)] {
		n += s.takes
	}
	return n
}

// Reaches reports whether a cursor goes on to a step: where a mark is nearer to that than where the cursor set out, it sets out
// again. So what it has folded, and what it holds of that, does not grow with the run.
func (t *Timeline) Reaches(c *Cursor, n int) bool {
	return c != nil && c.n <= n && c.from.after == t.markAt(n).after
}

// At returns a cursor after step n, from -1 (before the run's start) to Len. values returns the values that Missing names; it may be
// nil if there are none. The run must have begun.
func (t *Timeline) At(n int, values func(Step) []byte) (*Cursor, error) {
	return t.From(nil, n, values)
}

// From is At for one that has a cursor of this timeline already, or nil, and needs it no more: where no mark is nearer to the step than
// where the cursor set out, that one moves on, which spares folding the same events again. After an error the cursor is of no use.
func (t *Timeline) From(c *Cursor, n int, values func(Step) []byte) (*Cursor, error) {
	if !t.Reaches(c, n) {
		m := t.markAt(n)
		run, err := compact.Resume(m.messages, m.state, m.checkpoint)
		if err != nil {
			return nil, err
		}
		run.Keep(agui.NoFamilies) // the steps have the events
		c = &Cursor{from: m, n: m.after, fold: run, stale: true}
	}
	c.start, c.steps, c.values = t.start, t.steps, values
	if held := t.values; !t.bare {
		c.values = func(s Step) []byte { return held[s.N-1] }
	}
	if n < 0 {
		run := c.fold
		c.n, c.at, c.stale, c.first = -1, t.before, false, fold.At(run, t.before)
		if c.at.State == nil {
			c.at.State = json.RawMessage(`{}`)
		}
		return c, nil
	}
	for c.n < n {
		if _, err := c.advance(); err != nil {
			return nil, err
		}
	}
	return c, nil
}

// Park drops what the cursor needs only to move, and no longer holds for the timeline: From gives it back.
func (c *Cursor) Park() { c.steps, c.values, c.first = nil, nil, lineage.History{} }

// N is the step that the cursor is after.
func (c *Cursor) N() int { return c.n }

// History is the history after that step, in the form of records.
func (c *Cursor) History() lineage.History {
	if c.stale {
		c.at, c.stale = fold.At(c.fold, c.at), false
	}
	return c.at
}

// Next moves to the next step, and returns it with what it changed. There must be one.
func (c *Cursor) Next() (Step, Change, error) {
	before := c.History()
	s, err := c.advance()
	if err != nil {
		return s, Change{}, err
	}
	change, err := Compare(before, c.History())
	if err != nil {
		return s, Change{}, fmt.Errorf("comparing the histories before and after step %d: %w", s.N, err)
	}
	return s, change, nil
}

// advance moves to the next step.
func (c *Cursor) advance() (Step, error) {
	if c.n++; c.n == 0 {
		c.at = c.first
		return c.start, nil
	}
	s := c.steps[c.n-1]
	s.Value = c.values(s)
	if !folds(s.Outcome) {
		return s, nil
	}
	ev, err := agui.Decode(s.Value)
	if err == nil && s.Outcome == fold.SyntheticEnd {
		err = c.fold.End(ev)
	} else if err == nil {
		err = c.fold.Apply(ev)
	}
	if err != nil {
		return s, fmt.Errorf("folding step %d again: %w", s.N, err)
	}
	switch size := int64(len(s.Value)); ev.Type {
	case agui.StateSnapshot: // nothing of the state before it is left
		c.state = size
	case agui.StateDelta:
		c.state += size
	case agui.Custom, agui.Raw, agui.Meta: // nothing of it stays
	default:
		c.text += size
	}
	c.stale = true
	return s, nil
}
