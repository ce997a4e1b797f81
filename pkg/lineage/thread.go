package lineage

import (
	"cmp"
	"fmt"
	"slices"

	"github.com/skeinhq/skein/pkg/agui"
)

// Thread holds the heads of a thread's runs so that a new run can be placed among them. Placing
// costs in proportion to the run's input and to the runs that are live at that moment, however
// many runs the thread has; and so does what it asks of a Loader, where it does not hold them all. A Thread
// is not safe for concurrent use.
type Thread struct {
	// loader loads the runs that are not held; nil where all are.
	loader Loader
	// known tells which messages the thread has; nil where nobody does.
	known Known

	runs map[string]*entry
	// byClientRunID holds the runs of each id that an agent used, by start.
	byClientRunID map[string][]*entry
	// byKey holds the runs of each history that is not empty, by start; live runs are not in it.
	byKey map[Key][]*entry
	// ended holds all runs that have ended, by end.
	ended []*entry
	// open holds the runs that have not ended.
	open map[string]*entry
	// firstChild is the earliest start of a child by parent: it continues the parent's branch.
	firstChild map[string]int64
}

// Loader loads runs of a thread that a Thread does not hold, and adds them to it. Only sealed runs may be left to it: not the
// last one that ended before the offset for which a parent is resolved, and none that ended at or behind it.
type Loader interface {
	// ByID loads what an id means from an offset on: of the runs with this client run id the last one that
	// started before and all that started later, and the run with this id.
	ByID(id string, offset int64) error
	// ByHistory finds the first of the histories with which a run ended before the offset, and loads
	// the run that started last of those.
	ByHistory(histories []Key, offset int64) error
	// FirstChild returns the start of the run's earliest child; false where it has none.
	FirstChild(run string) (start int64, ok bool, err error)
}

// Known tells which messages a thread has: an input on RUN_STARTED that has none of them leaves the history out.
type Known interface {
	// Any reports whether a message of one of the ids, which are in order, stands in the history of a run that started before the offset and is
	// not live: as the run's end left it, if that lies before the offset too, else as it stands.
	Any(ids []string, offset int64) (bool, error)
}

// Said is Known over runs that have ended, in memory: by message id, where the first run ended that left one.
type Said map[string]int64

// Add takes in the messages of a run that ended at the offset. What stands in its base may be left out.
func (s Said) Add(end int64, messages []agui.Message) {
	for _, m := range messages {
		if first, ok := s[m.ID]; !ok || end < first {
			s[m.ID] = end
		}
	}
}

// Any implements Known.
func (s Said) Any(ids []string, offset int64) (bool, error) {
	return slices.ContainsFunc(ids, func(id string) bool {
		end, ok := s[id]
		return ok && end < offset
	}), nil
}

type entry struct {
	Run
	// messages gives the history of a live run as it stands.
	messages func() []agui.Message
}

// NewThread returns a thread of these runs, in any order.
func NewThread(runs ...Run) (*Thread, error) {
	t := &Thread{
		runs: make(map[string]*entry, len(runs)), byClientRunID: make(map[string][]*entry, len(runs)),
		byKey: make(map[Key][]*entry, len(runs)), open: make(map[string]*entry),
		firstChild: make(map[string]int64, len(runs)),
	}
	byStart := slices.Clone(runs)
	slices.SortFunc(byStart, func(a, b Run) int { return cmp.Compare(a.Start, b.Start) })
	for _, r := range byStart {
		if err := t.Add(r); err != nil {
			return nil, err
		}
	}
	return t, nil
}

// LoadFrom lets the thread hold a part of its runs; it loads others as it needs them.
func (t *Thread) LoadFrom(loader Loader) { t.loader = loader }

// Tell has the thread ask which messages it has. Without it Place fails where that counts.
func (t *Thread) Tell(known Known) { t.known = known }

// Add puts a run in, or what has become of it: a run of the same id is replaced. The history is
// the one that HistoryKey names, so an open run whose events may still come from memory is added
// by AddLive instead. What was decided when the run was placed must not change.
func (t *Thread) Add(r Run) error { return t.put(r, nil) }

// AddLive puts an open run in whose history may change. messages is called while another run is
// placed and must then return the history as it stands. Add replaces it once the run has ended
// or left memory.
func (t *Thread) AddLive(r Run, messages func() []agui.Message) error {
	if !r.Open() {
		return fmt.Errorf("adding run %q to its thread: it has ended and cannot be live", r.ID)
	}
	return t.put(r, messages)
}

func (t *Thread) put(r Run, messages func() []agui.Message) error {
	if r.ID == "" {
		return fmt.Errorf("adding a run to its thread: it has no id")
	}
	e := &entry{Run: r, messages: messages}
	if old, ok := t.runs[r.ID]; ok {
		if old.Parent != r.Parent || old.Branch != r.Branch || old.Start != r.Start || old.ClientRunID() != r.ClientRunID() {
			return fmt.Errorf("adding run %q to its thread: it was placed at offset %d under %q on branch %q, and now at %d under %q on %q",
				r.ID, old.Start, old.Parent, old.Branch, r.Start, r.Parent, r.Branch)
		}
		t.remove(old)
	}
	t.runs[r.ID] = e
	t.byClientRunID[e.ClientRunID()] = insert(t.byClientRunID[e.ClientRunID()], e, byStart)
	if messages == nil && !r.HistoryKey.IsZero() {
		t.byKey[r.HistoryKey] = insert(t.byKey[r.HistoryKey], e, byStart)
	}
	if r.Open() {
		t.open[r.ID] = e
	} else {
		t.ended = insert(t.ended, e, byEnd)
	}
	if r.Parent != "" {
		if first, ok := t.firstChild[r.Parent]; !ok || r.Start < first {
			t.firstChild[r.Parent] = r.Start
		}
	}
	return nil
}

// remove takes out all but what does not change.
func (t *Thread) remove(e *entry) {
	t.byClientRunID[e.ClientRunID()] = without(t.byClientRunID[e.ClientRunID()], e, byStart)
	if e.messages == nil && !e.HistoryKey.IsZero() {
		if rest := without(t.byKey[e.HistoryKey], e, byStart); len(rest) > 0 {
			t.byKey[e.HistoryKey] = rest
		} else {
			delete(t.byKey, e.HistoryKey)
		}
	}
	delete(t.open, e.ID)
	if !e.Open() {
		t.ended = without(t.ended, e, byEnd)
	}
}

// Len returns the number of runs.
func (t *Thread) Len() int { return len(t.runs) }

// Run returns a run by its id.
func (t *Thread) Run(id string) (Run, bool) {
	e, ok := t.runs[id]
	if !ok {
		return Run{}, false
	}
	return e.Run, true
}

// latestBefore returns the run that an id as agents give it stands for at an offset: of several runs
// the one that started last. Skein's own id of a run, as a checkout gives it, is understood too.
func (t *Thread) latestBefore(given string, offset int64) (*entry, error) {
	if t.loader != nil {
		if err := t.loader.ByID(given, offset); err != nil {
			return nil, err
		}
	}
	if list := startedBefore(t.byClientRunID[given], offset); len(list) > 0 {
		return list[len(list)-1], nil
	}
	if e := t.runs[given]; e != nil && e.Start < offset {
		return e, nil
	}
	return nil, nil
}

// firstChildBefore reports whether a child of the run started before the offset.
func (t *Thread) firstChildBefore(run string, offset int64) (bool, error) {
	first, ok := t.firstChild[run]
	if ok && first < offset {
		return true, nil
	}
	if t.loader == nil {
		return false, nil
	}
	first, ok, err := t.loader.FirstChild(run)
	return ok && first < offset, err
}

// lastEnded returns the run that ended last before the offset.
func (t *Thread) lastEnded(offset int64) *entry {
	if i := t.endedBefore(offset); i > 0 {
		return t.ended[i-1]
	}
	return nil
}

// endedBefore returns how many runs ended before the offset: the first ones of t.ended.
func (t *Thread) endedBefore(offset int64) int {
	if n := len(t.ended); n == 0 || t.ended[n-1].End < offset {
		return n
	}
	i, _ := slices.BinarySearchFunc(t.ended, offset, func(e *entry, offset int64) int { return cmp.Compare(e.End, offset) })
	return i
}

// concurrent reports whether a run other than id was open at the offset.
func (t *Thread) concurrent(id string, offset int64) bool {
	for _, e := range t.open {
		if e.Start < offset && e.ID != id {
			return true
		}
	}
	for i := t.endedBefore(offset); i < len(t.ended); i++ {
		if e := t.ended[i]; e.Start < offset && e.ID != id {
			return true
		}
	}
	return false
}

func byStart(a, b *entry) int {
	return cmp.Or(cmp.Compare(a.Start, b.Start), cmp.Compare(a.ID, b.ID))
}

func byEnd(a, b *entry) int {
	return cmp.Or(cmp.Compare(a.End, b.End), byStart(a, b))
}

// insert puts e in its place, which is the end for a run that has just started or ended.
func insert(list []*entry, e *entry, order func(a, b *entry) int) []*entry {
	if n := len(list); n == 0 || order(list[n-1], e) < 0 {
		return append(list, e)
	}
	i, _ := slices.BinarySearchFunc(list, e, order)
	return slices.Insert(list, i, e)
}

func without(list []*entry, e *entry, order func(a, b *entry) int) []*entry {
	if i, ok := slices.BinarySearchFunc(list, e, order); ok {
		return slices.Delete(list, i, i+1)
	}
	return list
}

// startedBefore returns the part of a list by start that started before the offset.
func startedBefore(list []*entry, offset int64) []*entry {
	if n := len(list); n == 0 || list[n-1].Start < offset {
		return list
	}
	i, _ := slices.BinarySearchFunc(list, offset, func(e *entry, offset int64) int { return cmp.Compare(e.Start, offset) })
	return list[:i]
}
