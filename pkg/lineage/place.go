package lineage

import (
	"cmp"
	"errors"
	"slices"

	"github.com/skeinhq/skein/pkg/agui"
	"github.com/skeinhq/skein/pkg/compact"
)

// The anomalies that placing a run can find.
const (
	// AnomalySelfParent: the run names itself as its parent. It counts as naming none.
	AnomalySelfParent = "self-parent"
	// AnomalyParentCycle: the run names a parent whose own chain was said to hang from this
	// run. The given parents form a cycle; the chain does not, since that run came first.
	AnomalyParentCycle = "parent-cycle"
	// AnomalyPlacedAlone: the parent had not ended, and what the run would have taken over from it is too large for the record
	// that says where the run belongs: it begins without that. Whoever places the run finds it, not Place.
	AnomalyPlacedAlone = "placed-alone"
)

// Start is a run that is about to begin.
type Start struct {
	// RunID is the run's id, unique in its thread; ClientID the id that the agent gave, if another.
	RunID, ClientID string
	// ParentRunID is what the run or its input names as parent, or empty.
	ParentRunID string
	// Input is nil where none came before the run's first event or with it.
	Input *agui.RunAgentInput
	// Offset is the position of the run's first event. What lies at it or behind does not count.
	Offset int64
}

// Placement is where a run belongs.
type Placement struct {
	// Run is the head of the new run: open, its history not yet told. Whether its input is whole (HasInput) is for the
	// caller to say, who has the parent's history: see Normalised.
	Run Run
	// Anomalies are counted by rule in the run's statistics.
	Anomalies []string
	// Concurrent says that another run of the thread was open at this position. The placement
	// may rest on how that run stood then, which its final record does not say: the new run's
	// record has to be durable no later than the other's.
	Concurrent bool
}

// Place decides where a run belongs, from the runs that started before it and as they stood then.
// It does not add the run.
//
// A given parent counts where it names a run that is known at this position; where it does not,
// the run is a root and keeps the id as SpawnedBy. Where none is given and there is an input, the
// longest prefix of its messages that is the whole history of a run names the parent, of several
// such runs the one that started last; no such run, and the new one is a root. Where there is no
// input either, or one on RUN_STARTED that has no message which the thread has, the run that ended last is the parent.
//
// An error is the Loader's or Known's.
func (t *Thread) Place(s Start) (Placement, error) {
	p := Placement{
		Run: Run{
			ID: s.RunID, ParentBy: ParentNone, Branch: s.RunID, Root: s.RunID,
			HasInput: s.Input != nil, Start: s.Offset, End: -1, Status: StatusRunning,
		},
		Concurrent: t.concurrent(s.RunID, s.Offset),
	}
	if s.ClientID != s.RunID {
		p.Run.ClientID = s.ClientID
	}
	parent, err := t.parent(s, &p)
	if err != nil {
		return Placement{}, err
	}
	if parent == nil {
		p.Run.ParentBy = ParentNone
		return p, nil
	}
	p.Run.Parent, p.Run.Root, p.Run.Depth = parent.ID, parent.Root, parent.Depth+1
	first, err := t.firstChildBefore(parent.ID, s.Offset)
	if err != nil {
		return Placement{}, err
	}
	if !first {
		p.Run.Branch = parent.Branch
	}
	if parent.Sealed && parent.End < s.Offset {
		p.Run.Base = parent.ID
	}
	return p, nil
}

func (t *Thread) parent(s Start, p *Placement) (*entry, error) {
	given := s.ParentRunID
	if given != "" && (given == s.RunID || given == p.Run.ClientRunID()) {
		p.Anomalies = append(p.Anomalies, AnomalySelfParent)
		given = ""
	}
	switch {
	case given != "":
		parent, err := t.latestBefore(given, s.Offset)
		if err != nil {
			return nil, err
		}
		if parent == nil || parent.ID == s.RunID {
			p.Run.SpawnedBy = given
			return nil, nil
		}
		cycle, err := t.descendsFrom(parent, p.Run.ClientRunID(), s.Offset)
		if err != nil {
			return nil, err
		}
		if cycle {
			p.Anomalies = append(p.Anomalies, AnomalyParentCycle)
		}
		p.Run.ParentBy = ParentExplicit
		return parent, nil
	case s.Input != nil:
		p.Run.ParentBy = ParentContent
		parent, err := t.longestPrefix(s)
		if parent != nil || err != nil {
			return parent, err
		}
		if whole, err := t.knowsOf(s); whole || err != nil {
			return nil, err
		}
	}
	p.Run.ParentBy = ParentLatest
	return t.lastEnded(s.Offset), nil
}

// knowsOf reports whether an input that names no parent is whole: it came beside the stream, or the thread has one of
// its messages.
func (t *Thread) knowsOf(s Start) (bool, error) {
	if !s.Input.Serialised {
		return true, nil
	}
	ids := make([]string, len(s.Input.Messages))
	for i, m := range s.Input.Messages {
		ids[i] = m.ID
	}
	if len(ids) == 0 {
		return false, nil
	}
	slices.Sort(ids)
	for _, e := range t.open {
		if e.messages == nil || e.Start >= s.Offset || e.ID == s.RunID {
			continue
		}
		for _, m := range e.messages() {
			if _, ok := slices.BinarySearch(ids, m.ID); ok {
				return true, nil
			}
		}
	}
	if t.known == nil {
		return false, errNoKnown
	}
	return t.known.Any(slices.Compact(ids), s.Offset)
}

var errNoKnown = errors.New("placing a run: nobody tells which messages the thread has (Thread.Tell)")

// prefix is a beginning of an input's messages as a history would have them.
type prefix struct {
	ids []string
	key Key
	// length is twice how many messages the input has up to there, activities aside, and one more where all of them count in the
	// key: a history that has the reasoning is nearer than one of the same messages without.
	length int
}

// prefixesOf returns the beginnings of an input that may be a run's whole history, the longest first. Messages that the
// fold has named itself count in no history (Key), and the client has them under other ids: so reasoning is looked for as
// it stands, and as if it were none.
func prefixesOf(input []agui.Message) []prefix {
	var all []prefix
	for _, without := range []bool{false, true} {
		var ids []string
		var key Key
		var buf []byte
		length, reasoning, from := 0, false, len(all)
		if !without {
			length++
		}
		for _, m := range input {
			if isActivity(m) {
				continue
			}
			length += 2
			reasoning = reasoning || m.Role == agui.RoleReasoning
			if compact.MadeByThinking(m) || without && m.Role == agui.RoleReasoning {
				if len(all) > from {
					all[len(all)-1].length = length
				}
				continue
			}
			ids = append(ids, m.ID)
			key, buf = key.next(m.ID, buf)
			all = append(all, prefix{ids, key, length})
		}
		if !reasoning {
			break
		}
	}
	slices.SortStableFunc(all, func(a, b prefix) int { return cmp.Compare(b.length, a.length) })
	return all
}

// longestPrefix finds the run whose whole history is the longest prefix of the input's messages.
func (t *Thread) longestPrefix(s Start) (*entry, error) {
	prefixes := prefixesOf(s.Input.Messages)
	best, length := t.longestLive(prefixes, s)
	best, length = t.longestEnded(prefixes, best, length, s)
	if t.loader == nil {
		return best, nil
	}
	// Of the same length, too: of several runs the one that started last is the parent.
	var longer []Key
	for _, p := range prefixes {
		if p.length >= length {
			longer = append(longer, p.key)
		}
	}
	if err := t.loader.ByHistory(longer, s.Offset); err != nil {
		return nil, err
	}
	best, _ = t.longestEnded(prefixes, best, length, s)
	return best, nil
}

// longestEnded is longestPrefix over the runs that are not live, where best, of that length, is found already.
func (t *Thread) longestEnded(prefixes []prefix, best *entry, length int, s Start) (*entry, int) {
	for _, p := range prefixes {
		if p.length < length {
			break
		}
		list := startedBefore(t.byKey[p.key], s.Offset)
		for i := len(list) - 1; i >= 0; i-- {
			e := list[i]
			if e.ID == s.RunID || e.End >= s.Offset { // how that one stood at the offset is not known
				continue
			}
			if p.length > length || byStart(e, best) > 0 {
				best, length = e, p.length
			}
			break
		}
	}
	return best, length
}

// longestLive is longestPrefix over the live runs.
func (t *Thread) longestLive(prefixes []prefix, s Start) (best *entry, length int) {
	for _, e := range t.open {
		if e.messages == nil || e.Start >= s.Offset || e.ID == s.RunID {
			continue
		}
		n := matches(e.messages(), prefixes)
		if n > length || n > 0 && n == length && byStart(e, best) > 0 {
			best, length = e, n
		}
	}
	return best, length
}

// matches returns the length of the longest prefix that a history is, else 0.
func matches(history []agui.Message, prefixes []prefix) int {
	ids := make([]string, 0, len(history))
	for _, m := range history {
		if counts(m) {
			ids = append(ids, m.ID)
		}
	}
	for _, p := range prefixes {
		if len(p.ids) == len(ids) && slices.Equal(p.ids, ids) {
			return p.length
		}
	}
	return 0
}

// maxTrees bounds the search for a cycle of given parents. Each tree is one whose root named a parent that came
// late; to look at one more can cost two reads of what a thread does not hold. So a cycle is seen that goes over
// the run and two such trees; the chain has none in any case.
const maxTrees = 2

// descendsFrom reports whether the tree of e was said to be spawned by the run of that given id,
// directly or over other trees.
func (t *Thread) descendsFrom(e *entry, given string, offset int64) (bool, error) {
	for trees := 1; ; trees++ {
		root := t.runs[e.Root]
		if root == nil { // it is not held: its own id names it
			if _, err := t.latestBefore(e.Root, offset); err != nil {
				return false, err
			}
			root = t.runs[e.Root]
		}
		if root == nil || root.SpawnedBy == "" {
			return false, nil
		}
		if root.SpawnedBy == given || trees == maxTrees {
			return root.SpawnedBy == given, nil
		}
		var err error
		if e, err = t.latestBefore(root.SpawnedBy, offset); e == nil || err != nil {
			return false, err
		}
	}
}
