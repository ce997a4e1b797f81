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

// Step is one record of a run. Step 0 is the run's start: what its input changed in the history that it goes on from. From 1 on they are
// the run's records in the order of the log, but for inputs that came before the first event.
type Step struct {
	N int
	// Offset is where the record lies; of step 0 the input's, -1 where none was sent beside the stream.
	Offset int64
	// Time is the Kafka record's; zero where there is none.
	Time    time.Time
	Kind    record.Kind
	Seq     int64
	Outcome fold.Outcome
	// Value is nil where a Timeline does not hold it (Missing).
	Value []byte
}

// Type is the AG-UI type of the step's event; empty where it is none.
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

// markEvery is how many events are folded between two marks at least. To go to a step costs up to about as many.
const markEvery = 256

// The memory that steps and messages take beside their bytes.
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
	// fresh is how many bytes it holds that the mark before it does not.
	fresh int64
}

// Timeline holds what it takes to go to any step of a run at a cost that does not depend on how long the run is: the steps, and the fold
// after every few hundred of them. One goroutine adds steps; Cursors may go on beside it.
type Timeline struct {
	// limit is how many bytes it may hold.
	limit  int64
	before lineage.History // what the run goes on from
	start  Step
	begun  bool
	steps  []Step // their values aside
	values [][]byte
	// bare: the values do not fit into the limit and are not held.
	bare  bool
	marks []mark
	every int // events between two marks
	// folded and bytes are of the events since the last mark.
	folded, bytes int64
	// held is all that the timeline holds, origin what of it before does.
	held, origin int64
}

// ErrTooLong says that a run has more steps than fit into the memory that a Timeline may hold.
var ErrTooLong = errors.New("the run has too many events to step through it")

func newTimeline(limit int64) *Timeline {
	return &Timeline{limit: limit, every: markEvery, start: Step{Offset: -1, Kind: record.KindInput, Seq: -1, Outcome: fold.Input}}
}

// Begun reports whether the run has begun: without an event, what it starts from is not decided.
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

// begin sets what the run starts from. It may come again before the first step that is folded.
func (t *Timeline) begin(before lineage.History, started *compact.Run) error {
	for _, m := range t.marks {
		t.held -= m.fresh
	}
	t.before, t.marks, t.held = before.Unshare(), nil, t.held-t.origin
	t.origin = sizeOf(before.Messages, nil) + int64(len(before.State))
	t.held += t.origin
	return t.mark(started)
}

// add adds a step; started is the fold behind it.
func (t *Timeline) add(s Step, value []byte, run *compact.Run) error {
	s.N, s.Value = len(t.steps)+1, nil
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

// folds reports whether a step of the outcome is folded.
func folds(o fold.Outcome) bool { return o == fold.Folded || o == fold.SyntheticEnd }

// mark notes the fold as it stands.
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

// Missing returns the range of offsets whose values a Cursor needs to go from a step to another and the timeline does not hold; the
// range is empty where it holds them all.
func (t *Timeline) Missing(from, to int) (offsets [2]int64) {
	if !t.bare {
		return offsets
	}
	first := t.markAt(from).after
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

// Cursor stands behind a step of a run and goes forward. It is not safe for concurrent use.
type Cursor struct {
	start  Step
	steps  []Step
	values func(Step) []byte
	first  lineage.History // behind step 0
	n      int             // the step behind which it stands
	fold   *compact.Run
	at     lineage.History
	stale  bool // at is not that of the fold
}

// At returns a cursor behind a step, from -1, which is before the run's start, to Len. Values gives what Missing has told of; it may be
// nil where that is nothing. The run has to have begun.
func (t *Timeline) At(n int, values func(Step) []byte) (*Cursor, error) {
	m := t.markAt(n)
	run, err := compact.Resume(m.messages, m.state, m.checkpoint)
	if err != nil {
		return nil, err
	}
	c := &Cursor{start: t.start, steps: t.steps, values: values, n: m.after, fold: run, stale: true}
	if held := t.values; !t.bare {
		c.values = func(s Step) []byte { return held[s.N-1] }
	}
	if n < 0 {
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

// N is the step behind which the cursor stands.
func (c *Cursor) N() int { return c.n }

// History is the history behind the step, in the form in which records have it.
func (c *Cursor) History() lineage.History {
	if c.stale {
		c.at, c.stale = fold.At(c.fold, c.at), false
	}
	return c.at
}

// Next goes to the next step, and returns it with what it changed. The caller sees to it that there is one.
func (c *Cursor) Next() (Step, Change, error) {
	before := c.History()
	s, err := c.advance()
	if err != nil {
		return s, Change{}, err
	}
	change, err := Compare(before, c.History())
	if err != nil {
		return s, Change{}, fmt.Errorf("comparing the histories before and behind step %d: %w", s.N, err)
	}
	return s, change, nil
}

// advance goes to the next step.
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
	c.stale = true
	return s, nil
}
