package query

import (
	"cmp"
	"encoding/json"
	"fmt"
	"net/http"
	"sort"
	"strconv"
	"time"

	"github.com/skeinhq/skein/internal/front"
	"github.com/skeinhq/skein/pkg/agui"
	"github.com/skeinhq/skein/pkg/fold"
	"github.com/skeinhq/skein/pkg/record"
	"github.com/skeinhq/skein/pkg/timeline"
)

// maxStepBytes bounds the size of a page of steps. A page has at least one step.
const maxStepBytes = 4 << 20

// stateAnswer holds the messages and state that the official client had after a step of a run.
type stateAnswer struct {
	stateHead
	Messages []agui.Message  `json:"messages"`
	State    json.RawMessage `json:"state"`
	stateSteps
}

// stateHead is the part of a stateAnswer before the messages.
type stateHead struct {
	ThreadID string        `json:"threadId"`
	RunID    string        `json:"runId"`
	Status   record.Status `json:"status"`
	badges
	// N is the step after which messages and state are shown; -1 is before the run's start.
	N int `json:"n"`
	// Total is the number of the run's last step so far.
	Total int `json:"total"`
	// LateError came after the last step, and changed nothing but the status.
	LateError *record.LateError `json:"lateError,omitempty"`
}

// stateSteps is the part of a stateAnswer after the state.
type stateSteps struct {
	// Step is step N, if one step was requested.
	Step *stepAnswer `json:"step,omitempty"`
	// Steps are the steps after N, if a page was requested. Next is the first step of the next page; absent on the last
	// page.
	Steps     []stepAnswer    `json:"steps,omitempty"`
	Next      *int            `json:"next,omitempty"`
	IndexedTo record.Position `json:"indexedTo"`
}

// encode returns the answer as JSON. It appends messages, state and events, most of the answer, as they are.
// encoding/json would check them again and drop the white space of events, which callers get byte for byte.
func (a *stateAnswer) encode() ([]byte, error) {
	head, err := marshal(a.stateHead)
	if err != nil {
		return nil, err
	}
	tail, err := a.stateSteps.encode()
	if err != nil {
		return nil, err
	}
	n := len(head) + len(a.State) + len(tail) + 64
	for _, m := range a.Messages {
		n += len(m.Raw) + 1
	}
	b := append(make([]byte, 0, n), head[:len(head)-1]...)
	b = append(b, `,"messages":[`...)
	for i, m := range a.Messages {
		if i > 0 {
			b = append(b, ',')
		}
		b = append(b, m.Raw...)
	}
	b = append(append(b, `],"state":`...), a.State...)
	b = append(append(b, ','), tail[1:]...)
	return append(b, '\n'), nil
}

func (s stateSteps) encode() ([]byte, error) {
	rest := s
	rest.Step, rest.Steps = nil, nil
	tail, err := marshal(rest)
	if err != nil {
		return nil, err
	}
	b := []byte{'{'}
	if s.Step != nil {
		if b, err = s.Step.append(append(b, `"step":`...)); err != nil {
			return nil, err
		}
		b = append(b, ',')
	}
	for i, step := range s.Steps {
		if i == 0 {
			b = append(b, `"steps":[`...)
		}
		if b, err = step.append(b); err != nil {
			return nil, err
		}
		b = append(b, ',')
		if i == len(s.Steps)-1 {
			b[len(b)-1] = ']'
			b = append(b, ',')
		}
	}
	return append(b, tail[1:]...), nil
}

// stepAnswer is one step of a run and its change.
type stepAnswer struct {
	N int `json:"n"`
	// Position and Time are absent in a step 0 without an input of its own.
	Position *record.Position `json:"position,omitempty"`
	Time     *time.Time       `json:"time,omitempty"`
	Kind     record.Kind      `json:"kind"`
	// Type is the event's type; absent if the step is not an event.
	Type    agui.Type    `json:"type,omitempty"`
	Seq     *int64       `json:"seq,omitempty"`
	Outcome fold.Outcome `json:"outcome"`
	// Event is the record's value if it is JSON; otherwise Bytes is.
	Event  json.RawMessage `json:"event,omitempty"`
	Bytes  []byte          `json:"bytes,omitempty"`
	Change timeline.Change `json:"change"`
}

// append appends the step as JSON, with the event's own bytes.
func (a stepAnswer) append(b []byte) ([]byte, error) {
	event := a.Event
	a.Event = nil
	rest, err := marshal(a)
	if err != nil || event == nil {
		return append(b, rest...), err
	}
	b = append(append(append(b, `{"event":`...), event...), ',')
	return append(b, rest[1:]...), nil
}

func newStepAnswer(s timeline.Step, partition int32, change timeline.Change) stepAnswer {
	a := stepAnswer{N: s.N, Kind: s.Kind, Type: s.Type(), Outcome: s.Outcome, Change: change}
	if s.Offset >= 0 {
		a.Position, a.Time = &record.Position{Partition: partition, Offset: s.Offset}, &s.Time
	}
	if s.Seq >= 0 {
		a.Seq = &s.Seq
	}
	if agui.CheckDepth(s.Value, agui.MaxEventDepth) == nil {
		a.Event = s.Value
	} else {
		a.Bytes = s.Value
	}
	return a
}

// state answers with the messages and state after a step of the run in the path (by default the thread's tip), and with
// the step's change. With from or limit, it answers with the messages and state before a step, and with a page of steps
// from that step on. With find, it answers as find does.
func (c *call) state() (*answer, error) {
	if c.Query.Get("find") != "" {
		return c.find()
	}
	page := c.Query.Get("from") != "" || c.Query.Get("limit") != ""
	if page && c.Query.Get("at") != "" {
		return nil, badRequest("at requests one step, from and limit a page of them: use one or the other")
	}
	limit, err := c.limit()
	if err != nil {
		return nil, err
	}
	name, fallback := "at", "end"
	if page {
		name, fallback = "from", "start"
	}
	ref, err := c.stepRef(name, fallback)
	if err != nil {
		return nil, err
	}
	v, err := c.readInTime()
	if err != nil {
		return nil, err
	}
	run := cmp.Or(c.runID, graphOf(v.runs).Tip())
	enough := func(r *timeline.Reader) bool {
		if page && ref.n >= 0 {
			return r.Len() >= ref.n+limit-1
		}
		return ref.within(r)
	}
	a := stateAnswer{stateHead: stateHead{ThreadID: c.threadID, RunID: run}, stateSteps: stateSteps{IndexedTo: v.indexedTo}}
	err = c.stepThrough(v, run, enough, func(s stepping) error {
		a.Status, a.badges, a.Total, a.LateError = s.row.Status, badgesOf(s.row), s.Len(), s.row.LateError
		n, err := ref.find(s)
		if err != nil {
			return err
		}
		to := a.one
		if page {
			to = func(s stepping, n int) (*timeline.Cursor, error) { return a.page(s, n, limit) }
		}
		at, err := to(s, n)
		if err == nil {
			err = c.weigh(a.Messages, a.State)
		}
		if err != nil { // a refused request leaves no cursor
			return err
		}
		s.keep(at)
		return nil
	})
	if err != nil {
		return nil, err
	}
	return &answer{contentType: typeJSON, body: a.encode}, nil
}

// one fills in the answer for one step.
func (a *stateAnswer) one(s stepping, n int) (*timeline.Cursor, error) {
	at, err := s.at(n-1, n)
	if err != nil {
		return nil, err
	}
	step, change, err := s.next(at)
	if err != nil {
		return nil, err
	}
	answer := newStepAnswer(step, s.row.Raw.Partition, change)
	a.Step = &answer
	a.stand(at)
	return at, nil
}

// page fills in the answer for a page of steps.
func (a *stateAnswer) page(s stepping, from, limit int) (*timeline.Cursor, error) {
	end := min(s.Len()+1, from+limit)
	at, err := s.at(from-1, end-1)
	if err != nil {
		return nil, err
	}
	a.stand(at)
	for n, bytes := from, 0; n < end && (n == from || bytes < maxStepBytes); n++ {
		step, change, err := s.next(at)
		if err != nil {
			return nil, err
		}
		bytes += len(step.Value) + change.Bytes()
		a.Steps = append(a.Steps, newStepAnswer(step, s.row.Raw.Partition, change))
	}
	if next := from + len(a.Steps); next <= s.Len() {
		a.Next = &next
	}
	return at, nil
}

// stand sets the answer's N, messages and state to those at a cursor.
func (a *stateAnswer) stand(at *timeline.Cursor) {
	h := at.History()
	a.N, a.Messages, a.State = at.N(), list(h.Messages), h.State
}

// stepRef names a step of a run.
type stepRef struct {
	name string // of the parameter
	n    int    // -1 if Point names the step
	record.Point
}

// stepRef parses a step parameter: a number, a position, @ and a time, start or end. fallback is its default.
func (c *call) stepRef(name, fallback string) (stepRef, error) {
	text, ref := cmp.Or(c.Query.Get(name), fallback), stepRef{name: name, n: -1}
	n, err := strconv.Atoi(text)
	if err == nil && n >= 0 {
		ref.n = n
		return ref, nil
	}
	if ref.Point, err = record.ParsePoint(text); err != nil {
		return ref, c.badParam(name, "the number of a step, a position such as 3:1024, a time such as @2026-09-17T12:00:00Z, start or end")
	}
	if ref.Start {
		ref.n = 0
	}
	if ref.Position != nil {
		err = c.checkErased(c.Call, ref.Position.Offset)
	}
	return ref, err
}

// within reports whether the step is certainly among those read so far.
func (ref stepRef) within(r *timeline.Reader) bool {
	switch {
	case ref.End:
		return false
	case ref.Position != nil:
		return r.Next() > ref.Position.Offset
	case ref.n >= 0:
		return r.Len() >= ref.n
	}
	return r.Len() > 0 && r.Step(r.Len()).Time.After(ref.At)
}

// find returns the number of the step, or a refusal that names the existing steps.
func (ref stepRef) find(s stepping) (int, error) {
	switch {
	case ref.End:
		return s.Len(), nil
	case ref.Position != nil:
		return ref.findPosition(s)
	case ref.n >= 0:
		if ref.n > s.Len() {
			return 0, ref.none(s, fmt.Sprintf("run %[2]q has no step %[1]d", ref.n, s.row.RunID))
		}
		return ref.n, nil
	}
	return ref.findTime(s)
}

func (ref stepRef) findPosition(s stepping) (int, error) {
	p := *ref.Position
	if p.Partition != s.row.Raw.Partition {
		return 0, badRequest("%s names partition %d, but this thread lies on partition %d", ref.name, p.Partition, s.row.Raw.Partition)
	}
	if p.Offset == s.Step(0).Offset {
		return 0, nil
	}
	i := sort.Search(s.Len(), func(i int) bool { return s.Step(i+1).Offset >= p.Offset }) // the number of steps before p
	if i < s.Len() && s.Step(i+1).Offset == p.Offset {
		return i + 1, nil
	}
	if i == s.Len() && !s.Done() && p.Offset >= s.Next() {
		return 0, ref.none(s, fmt.Sprintf("there is no event at %s yet, or it is not known whether it belongs to run %q", p, s.row.RunID))
	}
	beside := ""
	for _, n := range []int{i, i + 1} {
		if n >= 1 && n <= s.Len() {
			beside += fmt.Sprintf("; step %d is at %s", n, record.Position{Partition: p.Partition, Offset: s.Step(n).Offset})
		}
	}
	return 0, ref.none(s, fmt.Sprintf("the record at %s is not an event of run %q%s", p, s.row.RunID, beside))
}

// findTime returns the step at a time: the last one at or before it. For the start of a page it is the first one at or
// after it.
func (ref stepRef) findTime(s stepping) (int, error) {
	first, last := s.Step(0).Time, s.Step(s.Len()).Time
	if first.IsZero() {
		first = s.Step(1).Time
	}
	switch {
	case ref.At.Before(first) && ref.name == "at":
		return 0, ref.none(s, fmt.Sprintf("run %q began at %s", s.row.RunID, first.Format(time.RFC3339Nano)))
	case ref.At.After(last) && (s.Done() || ref.name != "at"):
		return 0, ref.none(s, fmt.Sprintf("the last event of run %q came at %s", s.row.RunID, last.Format(time.RFC3339Nano)))
	case ref.At.After(last) && ref.At.After(time.Now()):
		return 0, ref.none(s, fmt.Sprintf("%[2]s is in the future, and run %[1]q is still open", s.row.RunID, ref.At.Format(time.RFC3339Nano)))
	}
	n := 1
	for n <= s.Len() && (s.Step(n).Time.Before(ref.At) || ref.name == "at" && s.Step(n).Time.Equal(ref.At)) {
		n++
	}
	if ref.name == "at" {
		n--
	}
	return n, nil
}

// none returns the refusal for a step that does not exist.
func (ref stepRef) none(s stepping, what string) error {
	detail := what + fmt.Sprintf("; the steps go from 0, which is the start, to %d", s.Len())
	if !s.Done() {
		detail += " so far"
	}
	return &front.Problem{Status: http.StatusNotFound, Detail: detail, Members: map[string]any{"total": s.Len()}}
}
