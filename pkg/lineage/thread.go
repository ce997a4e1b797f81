package lineage

import (
	"cmp"
	"fmt"
	"slices"

	"github.com/skeinhq/skein/internal/few"
	"github.com/skeinhq/skein/pkg/agui"
)

// Thread holds the metadata of a thread's runs so that a new run can be placed among them. The cost of placing, including the
// calls of a Loader, is linear in the run's input and in the runs that are live at that offset; it does not depend on how
// many runs the thread has. A Thread is not safe for concurrent use.
type Thread struct {
	// loader loads the runs that are not in memory; nil if all are.
	loader Loader
	// known answers which messages the thread has; nil if it is not set.
	known Known

	runs few.Map[string, *entry]
	// byClientRunID holds the runs of each client run id, by start.
	byClientRunID few.Map[string, []*entry]
	// byKey holds the runs of each of their keys (Run.Keys), by start, without live runs.
	byKey few.Map[Key, []*entry]
	// ended holds all runs that have ended, by end.
	ended []*entry
	// open holds the runs that have not ended, by start.
	open []*entry
	// firstChild maps a parent to the earliest start of a child, which continues its branch.
	firstChild few.Map[string, int64]
}

// Loader loads runs of a thread into a Thread. The Thread may leave only sealed runs to it. Of these, the Thread must hold
// the last one that ended before the offset for which a parent is resolved, and those that ended from there on.
type Loader interface {
	// ByID loads the runs that an id may name from an offset on: the run with this id, and of the runs with this client
	// run id the last one that started before the offset and all that started later.
	ByID(id string, offset int64) error
	// ByKey finds the first of the keys (Run.Keys) that a run has which ended before the offset, and loads the run that started last
	// of those.
	ByKey(keys []Key, offset int64) error
	// FirstChild returns the start of the run's earliest child; ok is false if it has none.
	FirstChild(run string) (start int64, ok bool, err error)
}

// Known returns the messages of a thread's runs that are not live. An input on RUN_STARTED with none of them is normalised (Normalised).
type Known interface {
	// Any reports whether a run that started before the offset, and is not live, has a message with one of the ids, which are
	// sorted. Its last history counts if it ended before the offset, else its current one.
	Any(ids []string, offset int64) (bool, error)
	// History returns the history at a run's end, or the current one of an open run.
	History(run string) (History, error)
}

// KnownMessages implements Known.Any in memory, for runs that have ended. It maps a message id to the end offset of the first run
// that ended with it.
type KnownMessages map[string]int64

// Add adds the messages of a run that ended at the offset. Those of its base may be left out.
func (s KnownMessages) Add(end int64, messages []agui.Message) {
	for _, m := range messages {
		if first, ok := s[m.ID]; !ok || end < first {
			s[m.ID] = end
		}
	}
}

// Any reports whether a run that ended before the offset has a message with one of the ids.
func (s KnownMessages) Any(ids []string, offset int64) (bool, error) {
	return slices.ContainsFunc(ids, func(id string) bool {
		end, ok := s[id]
		return ok && end < offset
	}), nil
}

type entry struct {
	// Run is the caller's if it is live. Once it has ended, the caller adds it again before Place is called.
	*Run
	// messages returns the current history of a live run.
	messages func() []agui.Message
}

// NewThread returns a thread of these runs, in any order.
func NewThread(runs ...Run) (*Thread, error) {
	t := &Thread{}
	byStart := slices.Clone(runs)
	slices.SortFunc(byStart, func(a, b Run) int { return cmp.Compare(a.Start, b.Start) })
	for _, r := range byStart {
		if err := t.Add(r); err != nil {
			return nil, err
		}
	}
	return t, nil
}

// LoadFrom sets the loader of runs that the thread does not hold.
func (t *Thread) LoadFrom(loader Loader) { t.loader = loader }

// SetKnown sets the source that answers which messages the thread has. Without it, Place fails if it needs an answer.
func (t *Thread) SetKnown(known Known) { t.known = known }

// Add adds a run, or replaces the one with the same id. HistoryKey identifies its history. For an open run that is still
// folded in memory, call AddLive instead. The fields that Place sets must not change.
func (t *Thread) Add(r Run) error { return t.put(&r, nil) }

// AddLive adds an open run whose history may change, and keeps r, whose ids and place must not change. Placing another run calls
// the argument messages, which must return the current history. Add replaces the run once it has ended or left memory.
func (t *Thread) AddLive(r *Run, messages func() []agui.Message) error {
	if !r.Open() {
		return fmt.Errorf("adding run %q to its thread: it has ended and cannot be live", r.ID)
	}
	return t.put(r, messages)
}

func (t *Thread) put(r *Run, messages func() []agui.Message) error {
	if r.ID == "" {
		return fmt.Errorf("adding a run to its thread: it has no id")
	}
	e := &entry{Run: r, messages: messages}
	if old, ok := t.runs.Get(r.ID); ok {
		if old.Parent != r.Parent || old.Branch != r.Branch || old.Start != r.Start || old.ClientRunID() != r.ClientRunID() {
			return fmt.Errorf("adding run %q to its thread: it was placed at offset %d under %q on branch %q, and now at %d under %q on %q",
				r.ID, old.Start, old.Parent, old.Branch, r.Start, r.Parent, r.Branch)
		}
		t.remove(old)
	}
	t.runs.Set(r.ID, e)
	t.byClientRunID.Set(e.ClientRunID(), insert(t.byClientRunID.At(e.ClientRunID()), e, byStart))
	if messages == nil {
		for _, k := range r.Keys() {
			t.byKey.Set(k, insert(t.byKey.At(k), e, byStart))
		}
	}
	if r.Open() {
		t.open = insert(t.open, e, byStart)
	} else {
		t.ended = insert(t.ended, e, byEnd)
	}
	if r.Parent != "" {
		if first, ok := t.firstChild.Get(r.Parent); !ok || r.Start < first {
			t.firstChild.Set(r.Parent, r.Start)
		}
	}
	return nil
}

// remove removes a run from all indexes whose keys may change.
func (t *Thread) remove(e *entry) {
	t.byClientRunID.Set(e.ClientRunID(), without(t.byClientRunID.At(e.ClientRunID()), e, byStart))
	if e.messages == nil {
		for _, k := range e.Keys() {
			if rest := without(t.byKey.At(k), e, byStart); len(rest) > 0 {
				t.byKey.Set(k, rest)
			} else {
				t.byKey.Delete(k)
			}
		}
	}
	if e.messages != nil || e.Open() {
		t.open = without(t.open, e, byStart)
	} else {
		t.ended = without(t.ended, e, byEnd)
	}
}

// Len returns the number of runs.
func (t *Thread) Len() int { return t.runs.Len() }

// Run returns a run by its id.
func (t *Thread) Run(id string) (Run, bool) {
	e, ok := t.runs.Get(id)
	if !ok {
		return Run{}, false
	}
	return *e.Run, true
}

// latestBefore returns the run that a client run id named at an offset: of several, the one that started last. It also
// accepts Skein's own id of a run, as a checkout returns it.
func (t *Thread) latestBefore(id string, offset int64) (*entry, error) {
	if t.loader != nil {
		if err := t.loader.ByID(id, offset); err != nil {
			return nil, err
		}
	}
	if list := startedBefore(t.byClientRunID.At(id), offset); len(list) > 0 {
		return list[len(list)-1], nil
	}
	if e := t.runs.At(id); e != nil && e.Start < offset {
		return e, nil
	}
	return nil, nil
}

// firstChildBefore reports whether a child of the run started before the offset.
func (t *Thread) firstChildBefore(run string, offset int64) (bool, error) {
	first, ok := t.firstChild.Get(run)
	if ok && first < offset {
		return true, nil
	}
	if t.loader == nil {
		return false, nil
	}
	first, ok, err := t.loader.FirstChild(run)
	return ok && first < offset, err
}

// LastEnded returns the run that ended last before the offset.
func (t *Thread) LastEnded(offset int64) (Run, bool) {
	if e := t.lastEnded(offset); e != nil {
		return *e.Run, true
	}
	return Run{}, false
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

func byStart(a, b *entry) int {
	return cmp.Or(cmp.Compare(a.Start, b.Start), cmp.Compare(a.ID, b.ID))
}

func byEnd(a, b *entry) int {
	return cmp.Or(cmp.Compare(a.End, b.End), byStart(a, b))
}

// insert inserts e in order, which is at the end for a run that has just started or ended.
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

// startedBefore returns the runs of a list sorted by start that started before the offset.
func startedBefore(list []*entry, offset int64) []*entry {
	if n := len(list); n == 0 || list[n-1].Start < offset {
		return list
	}
	i, _ := slices.BinarySearchFunc(list, offset, func(e *entry, offset int64) int { return cmp.Compare(e.Start, offset) })
	return list[:i]
}
