package query

import (
	"bytes"
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/skeinhq/skein/internal/front"
	"github.com/skeinhq/skein/pkg/agui"
	"github.com/skeinhq/skein/pkg/record"
	"github.com/skeinhq/skein/pkg/store"
	"github.com/skeinhq/skein/pkg/timeline"
)

const (
	// maxChangeBytes bounds the size of a page of changes. A page has at least one change if one exists.
	maxChangeBytes = 4 << 20
	// changesFor bounds the time spent on one page.
	changesFor = 2 * time.Second
	// changesLook is the number of steps between two checks of changesFor.
	changesLook = 256
)

// changesAnswer is a page of the changes to one place along a chain of runs, in the order of the events.
type changesAnswer struct {
	ThreadID string `json:"threadId"`
	// RunID is the run at the end of the chain.
	RunID string `json:"runId"`
	// Path is the JSON Pointer of the place in the state. For a message, MessageID replaces it.
	Path      *string     `json:"path,omitempty"`
	MessageID agui.String `json:"messageId,omitempty"`
	// Before is the value at the place before the page; absent if there was none.
	Before  json.RawMessage `json:"before,omitempty"`
	Changes []placeChange   `json:"changes"`
	// Unread are the runs of the chain whose events could not be read, with the reason.
	Unread []unreadRun `json:"unread"`
	// Next is the "from" of the next page; absent at the end.
	Next      string          `json:"next,omitempty"`
	IndexedTo record.Position `json:"indexedTo"`
}

// placeChange is one change to a place. A step of a run made it or, if the run's events are not readable, the run as a
// whole.
type placeChange struct {
	RunID    string           `json:"runId"`
	N        *int             `json:"n,omitempty"`
	Position *record.Position `json:"position,omitempty"`
	Time     *time.Time       `json:"time,omitempty"`
	Type     agui.Type        `json:"type,omitempty"`
	Op       timeline.Op      `json:"op"`
	Before   json.RawMessage  `json:"before,omitempty"`
	After    json.RawMessage  `json:"after,omitempty"`
	// Path and Text describe what was appended to a message. They replace Before and After.
	Path string          `json:"path,omitempty"`
	Text json.RawMessage `json:"text,omitempty"`
}

// unreadRun is a run whose events could not be read, and why.
type unreadRun struct {
	RunID  string `json:"runId"`
	Reason string `json:"reason"`
}

// changes answers with all events that changed a place in the state, or a message, along the chain of the run in the
// path (by default the thread's tip).
func (c *call) changes() (*answer, error) {
	place, err := c.place()
	if err != nil {
		return nil, err
	}
	limit, err := c.limit()
	if err != nil {
		return nil, err
	}
	n, run, err := c.changesFrom()
	if err != nil {
		return nil, err
	}
	v, err := c.readInTime()
	if err != nil {
		return nil, err
	}
	graph := graphOf(v.runs)
	tip := cmp.Or(c.runID, graph.Tip())
	b := blame{c: c, view: v, place: place, limit: limit, until: time.Now().Add(changesFor)}
	rows := byID(v.runs)
	for _, id := range graph.Chain(tip) {
		b.chain = append(b.chain, rows[id])
	}
	if len(b.chain) == 0 {
		return nil, store.ErrNotFound
	}
	first := 0
	if run != "" {
		if first = slices.IndexFunc(b.chain, func(r store.Run) bool { return r.RunID == run }); first < 0 {
			if graph.Find(run) < 0 {
				if err := c.checkErased(c.Call, -1); err != nil {
					return nil, err
				}
			}
			return nil, badRequest("from names run %q, which is not on the chain of run %q; use next of the previous page", run, tip)
		}
	}
	b.a = changesAnswer{ThreadID: c.threadID, RunID: tip, Changes: []placeChange{}, Unread: []unreadRun{}, IndexedTo: v.indexedTo}
	if place.IsMessage() {
		b.a.MessageID = agui.String(c.Query.Get("message"))
	} else {
		path := c.Query.Get("path")
		b.a.Path = &path
	}
	if err := b.walk(first, n); err != nil {
		return nil, err
	}
	if place.IsMessage() && len(b.a.Changes) == 0 && b.a.Next == "" { // it may be one of the erased ones
		if err := c.checkErased(c.Call, -1); err != nil {
			return nil, err
		}
	}
	return &answer{body: document(b.a)}, nil
}

// place reads the requested place. The default is the whole state.
func (c *call) place() (timeline.Place, error) {
	path, message := c.Query.Get("path"), c.Query.Get("message")
	switch {
	case path != "" && message != "":
		return timeline.Place{}, badRequest("give either path, a JSON Pointer into the state such as /cart/total, or message, the id of a message")
	case message != "":
		return timeline.MessagePlace(message), nil
	}
	place, err := timeline.StatePlace(path)
	if err != nil {
		return place, badRequest("path: %v", err)
	}
	return place, nil
}

// changesFrom reads the start of a page: a step number and its run, with a colon between them.
func (c *call) changesFrom() (n int, run string, err error) {
	text := c.Query.Get("from")
	if text == "" {
		return 0, "", nil
	}
	number, run, ok := strings.Cut(text, ":")
	n, err = strconv.Atoi(number)
	if !ok || err != nil || n < 0 || record.ValidateID(run) != nil {
		return 0, "", c.badParam("from", "next of the page before, such as 17:run-1")
	}
	return n, run, nil
}

// blame walks along a chain of runs and collects the changes of one place.
type blame struct {
	c     *call
	view  view
	place timeline.Place
	limit int
	until time.Time
	chain []store.Run // from the root on
	bytes int
	// value is the current value at the place. known is true once a run was read.
	value json.RawMessage
	known bool
	a     changesAnswer
}

// walk starts at step n of the run chain[first] and ends when the page is full or the chain ends.
func (b *blame) walk(first, n int) error {
	quiet, err := b.quiet(first)
	if err != nil {
		return err
	}
	for i := first; i < len(b.chain); i, n = i+1, 0 {
		if quiet[b.chain[i].RunID] {
			continue
		}
		if i > first && b.full() {
			b.a.Next = "0:" + b.chain[i].RunID
			return nil
		}
		until, err := b.taken(i)
		if err != nil {
			return err
		}
		err = b.c.stepThrough(b.view, b.chain[i].RunID, func(*timeline.Reader) bool { return false }, func(s stepping) error {
			return b.run(s, n, until)
		})
		if err = b.unread(i, err); err != nil || b.a.Next != "" {
			return err
		}
	}
	return nil
}

// full reports whether the page is full.
func (b *blame) full() bool {
	return len(b.a.Changes) >= b.limit || b.bytes >= maxChangeBytes || time.Now().After(b.until)
}

// taken returns the offset below which events of run i of the chain are in the history of its child, the next run. The
// child started from the run as it was then; later events of the run are not part of the chain.
func (b *blame) taken(i int) (int64, error) {
	if i == len(b.chain)-1 {
		return math.MaxInt64, nil
	}
	child := b.chain[i+1]
	if b.chain[i].Raw.Next <= child.Raw.First && b.chain[i].Status != record.StatusRunning {
		return math.MaxInt64, nil
	}
	until := child.Raw.First
	err := b.c.stepThrough(b.view, child.RunID, func(*timeline.Reader) bool { return true }, func(s stepping) error {
		until = s.Begins()
		return nil
	})
	if why := new(front.Problem); errors.As(err, &why) && why.Retry == 0 { // walk reports this error when it reaches the child
		err = nil
	}
	return until, err
}

// run walks through the steps of a run below an offset.
func (b *blame) run(s stepping, n int, until int64) error {
	end := s.Len() + 1
	for end > 1 && s.Step(end-1).Offset >= until {
		end--
	}
	if n >= end {
		return badRequest("from names step %d of run %q, whose steps end at %d; use next of the previous page", n, s.row.RunID, end-1)
	}
	var at *timeline.Cursor // not the cached one, which requests for steps use
	var counted int64
	for part := n; part < end; part += changesLook {
		_ = s.c.load.take(-counted) // a release never fails
		last := min(part+changesLook, end) - 1
		values, reached, err := s.reach(at, part-1, last)
		if err != nil {
			return err
		}
		folding := s.FoldingBytes(part-1, last)
		if err := s.c.load.take(folding); err != nil {
			return err
		}
		counted = reached + folding
		if at, err = s.From(s.c.R.Context(), at, part-1, values); err != nil {
			return err
		}
		w := at.Watch(b.place)
		b.see(w.Value())
		for k := part; k <= last; k++ {
			if err := b.c.R.Context().Err(); err != nil {
				return err
			}
			step, before, changed, err := w.Next()
			if err != nil {
				return err
			}
			if !changed {
				continue
			}
			b.add(s, step, before, w.Value())
			if len(b.a.Changes) >= b.limit || b.bytes >= maxChangeBytes {
				b.next(k+1, end, s.row.RunID)
				return nil
			}
		}
		b.value = w.Value()
		if b.full() {
			b.next(last+1, end, s.row.RunID)
			return nil
		}
	}
	return nil
}

// see sets the current value at the place. The first one is the page's Before.
func (b *blame) see(value json.RawMessage) {
	if !b.known {
		b.a.Before, b.known = value, true
	}
	b.value = value
}

// next ends the page before step n of a run. If the run has no such step, the next run begins the next page.
func (b *blame) next(n, end int, run string) {
	if n < end {
		b.a.Next = fmt.Sprintf("%d:%s", n, run)
	}
}

func (b *blame) add(s stepping, step timeline.Step, before, after json.RawMessage) {
	change := placeChange{RunID: s.row.RunID, N: &step.N, Type: step.Type()}
	if step.Offset >= 0 {
		change.Position, change.Time = &record.Position{Partition: s.row.Raw.Partition, Offset: step.Offset}, &step.Time
	}
	b.append(change, before, after)
}

// append adds a change with its kind and values.
func (b *blame) append(change placeChange, before, after json.RawMessage) {
	switch {
	case before == nil:
		change.Op, change.After = timeline.Add, after
	case after == nil:
		change.Op, change.Before = timeline.Remove, before
	default:
		change.Op, change.Before, change.After = timeline.Replace, before, after
		if !b.place.IsMessage() {
			break
		}
		if m := timeline.CompareMessage(0, agui.Message{Raw: before}, agui.Message{Raw: after}); m.Op == timeline.Append {
			change.Op, change.Path, change.Text, change.Before, change.After = m.Op, m.Path, m.Text, nil, nil
		}
	}
	// These are slices of larger texts. Copies do not keep those in memory.
	change.Before, change.After, change.Text = bytes.Clone(change.Before), bytes.Clone(change.After), bytes.Clone(change.Text)
	b.bytes += len(change.Before) + len(change.After) + len(change.Text)
	b.a.Changes = append(b.a.Changes, change)
}

// unread reports run i as unread, with its net change, if err is a 409 or 410. It ignores a 404 (no event yet) and returns other errors.
func (b *blame) unread(i int, err error) error {
	why := new(front.Problem)
	if !errors.As(err, &why) || why.Status != http.StatusGone && why.Status != http.StatusConflict {
		if err != nil && why.Status == http.StatusNotFound && why.Members != nil { // none of its events has arrived
			return nil
		}
		return err
	}
	row := b.chain[i]
	b.a.Unread = append(b.a.Unread, unreadRun{row.RunID, why.Detail})
	if !b.known && i > 0 {
		h, err := b.c.restore(b.c.R.Context(), b.view.runs, b.chain[i-1].RunID)
		if err != nil {
			return err
		}
		b.see(record.Compacted(b.place.Of(h.History)))
	}
	b.see(b.value)
	h, err := b.c.restore(b.c.R.Context(), b.view.runs, row.RunID)
	if err != nil {
		return err
	}
	before, after := b.value, record.Compacted(b.place.Of(h.History))
	b.value = after
	if differ, err := timeline.Differ(before, after); err != nil || !differ {
		return err
	}
	b.append(placeChange{RunID: row.RunID}, before, after)
	return nil
}

// quiet returns the runs, from chain[first] on, whose records show that they did not change the place.
func (b *blame) quiet(first int) (map[string]bool, error) {
	var asked []store.Run
	for i := max(first, 1); i < len(b.chain); i++ {
		row := b.chain[i]
		if !row.Status.Sealed() || row.Base == "" || row.Base != b.chain[i-1].RunID || len(row.Layout) > 0 || b.restless(row) {
			continue
		}
		asked = append(asked, row)
	}
	quiet := map[string]bool{}
	if len(asked) == 0 {
		return quiet, nil
	}
	contents, err := b.c.store.Contents(b.c.R.Context(), b.c.Tenant, b.c.threadID, asked)
	if err != nil {
		return nil, err
	}
	for _, row := range b.chain {
		held, ok := contents[row.RunID]
		if !ok {
			continue
		}
		if b.place.IsMessage() {
			id := b.c.Query.Get("message")
			quiet[row.RunID] = !slices.ContainsFunc(held.Messages, func(m agui.Message) bool { return m.ID == id })
		} else {
			quiet[row.RunID] = held.State == nil
		}
	}
	return quiet, nil
}

// restless reports whether a run has events that may have changed the place and changed it back.
func (b *blame) restless(row store.Run) bool {
	for name := range row.Stats.Events {
		switch agui.Type(name) {
		case agui.StateSnapshot, agui.StateDelta:
			if !b.place.IsMessage() {
				return true
			}
		case agui.MessagesSnapshot, agui.ActivitySnapshot, agui.ActivityDelta:
			if b.place.IsMessage() {
				return true
			}
		}
	}
	return false
}
