package lineage

import (
	"cmp"
	"errors"
	"slices"

	"github.com/skeinhq/skein/pkg/agui"
)

// Anomalies of a placement.
const (
	// AnomalySelfParent: the run names itself as its parent, which counts as naming none.
	AnomalySelfParent = "self-parent"
	// AnomalyParentCycle: the run names a parent whose own ancestors name this run. The chain has no cycle, since this run
	// came first.
	AnomalyParentCycle = "parent-cycle"
	// AnomalyPlacedAlone: the parent was open, and its history is too large for the record that fixes the run's placement,
	// so the run starts without it. The caller of Place finds this, not Place.
	AnomalyPlacedAlone = "placed-alone"
)

// Start is a run that is about to begin.
type Start struct {
	// RunID is the run's id, unique in its thread; ClientID the agent's id for it, if that differs.
	RunID, ClientID string
	// ParentRunID is the parent that the run or its input names, or empty.
	ParentRunID string
	// Input is nil if none came before the run's first event or with it.
	Input *agui.RunAgentInput
	// Offset is the offset of the run's first event. Place ignores records from there on.
	Offset int64
}

// Placement is a run's place in its thread.
type Placement struct {
	// Run is the metadata of the new run, which is open and has no history yet. Place sets HasInput for every input. The
	// caller, who has the parent's history, must clear it for a normalised one (Normalised).
	Run Run
	// Anomalies are counted by rule in the run's statistics.
	Anomalies []string
}

// Place finds a new run's parent, branch, depth, root and base from the runs that started before it, as they were then.
// It does not add the run.
//
// A named parent counts if that run is known at this offset and did not spawn this one (spawned); otherwise the run is a root, and
// SpawnedBy holds the name. If none is named and there is an input, the parent is the run whose whole history is the longest prefix of the
// input's messages, which are compared by id or, where the client gave none, by role and content; of several such runs, the one that
// started last. Without such a run the new one is a root. But if the input is missing too, or is on RUN_STARTED and has no message that
// the thread has, the parent is the run that ended last.
//
// Errors are the Loader's or Known's.
func (t *Thread) Place(s Start) (Placement, error) {
	p := Placement{
		Run: Run{
			ID: s.RunID, ParentBy: ParentNone, Branch: s.RunID, Root: s.RunID,
			HasInput: s.Input != nil, Start: s.Offset, End: -1, Status: StatusRunning,
		},
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
	p.Run.Parent, p.Run.Root, p.Run.Depth, p.Run.Spawned = parent.ID, parent.Root, parent.Depth+1, parent.Spawned
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
	named := s.ParentRunID
	if named != "" && (named == s.RunID || named == p.Run.ClientRunID()) {
		p.Anomalies = append(p.Anomalies, AnomalySelfParent)
		named = ""
	}
	switch {
	case named != "":
		parent, err := t.latestBefore(named, s.Offset)
		if err != nil {
			return nil, err
		}
		spawned := parent == nil || parent.ID == s.RunID
		if !spawned {
			spawned, err = t.spawned(s, parent)
			p.Run.Spawned = spawned
		}
		if spawned || err != nil {
			p.Run.SpawnedBy = agui.String(named)
			return nil, err
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
		parent, err := t.interrupted(s)
		if parent == nil && err == nil {
			parent, err = t.longestPrefix(s)
		}
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

// spawned reports whether a named run of the thread spawned the new one, instead of being continued by it: it is not sealed, and the new
// run has a whole input that shares no message with it, and has an id to show that. In doubt it is the parent, so that the run keeps its
// history.
func (t *Thread) spawned(s Start, named *entry) (bool, error) {
	if s.Input == nil || s.Input.Serialised || named.Sealed && named.End < s.Offset ||
		!slices.ContainsFunc(s.Input.Messages, func(m agui.Message) bool { return !unnamed(m) }) {
		return false, nil
	}
	at, err := t.historyOf(named)
	return err == nil && !at.knows(s.Input), err
}

// historyOf returns the history at a run's end, or the current one of an open run.
func (t *Thread) historyOf(e *entry) (History, error) {
	switch {
	case e.messages != nil:
		return History{Messages: e.messages()}, nil
	case t.known == nil:
		return History{}, errNoKnown
	}
	return t.known.History(e.ID)
}

// interrupted returns the run that the input's resume answers, whatever its messages: the one that started last of those that ended with an
// interrupt of that id, if no run goes on from it yet.
func (t *Thread) interrupted(s Start) (best *entry, _ error) {
	for _, r := range s.Input.Resume {
		id := agui.Lookup(r, "interruptId")
		if !agui.IsString(id) {
			continue
		}
		k := interruptKey(agui.TextOf(id).String())
		if t.loader != nil {
			if err := t.loader.ByKey([]Key{k}, s.Offset); err != nil {
				return nil, err
			}
		}
		for _, e := range slices.Backward(startedBefore(t.byKey.At(k), s.Offset)) {
			if e.ID == s.RunID || e.Open() || e.End >= s.Offset {
				continue
			}
			answered, err := t.firstChildBefore(e.ID, s.Offset)
			if err != nil {
				return nil, err
			}
			if !answered && (best == nil || byStart(e, best) > 0) {
				best = e
			}
			break
		}
	}
	return best, nil
}

// knowsOf reports whether an input that names no parent is whole: it was sent beside the stream, or the thread has one
// of its messages.
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
	if last := t.lastEnded(s.Offset); last != nil && slices.ContainsFunc(s.Input.Messages, unnamed) {
		if at, err := t.historyOf(last); err != nil || at.knows(s.Input) {
			return true, err
		}
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

var errNoKnown = errors.New("placing a run: the messages of the thread are unknown (Thread.SetKnown)")

// prefix is a prefix of an input's messages, in the form that a history would have.
type prefix struct {
	names []string
	key   Key
	// length is three times the number of messages in it, without activities, plus 2, 1 or 0 by how close a match it is.
	length int
}

// prefixesOf returns the prefixes of an input that may be a run's whole history, the longest first. Reasoning that the
// fold named itself counts in no history (Key), and clients have other ids for it, so each prefix is tried with the
// reasoning and without: a history with it is the closer match. If messages came without ids, each is also tried by contents. Only keyed
// prefixes have keys.
func prefixesOf(input []agui.Message, keyed bool) []prefix {
	var all []prefix
	n := newNamer()
	add := func(closeness int, names func(agui.Message) []string) {
		var list []string
		var key Key
		length, from := closeness, len(all)
		for _, m := range input {
			if isActivity(m) {
				continue
			}
			length += 3
			own := names(m)
			list = append(list, own...)
			for i := 0; keyed && i < len(own); i++ {
				key = n.next(key, []byte(own[i]))
			}
			if len(own) > 0 {
				all = append(all, prefix{list, key, length})
			} else if len(all) > from {
				all[len(all)-1].length = length
			}
		}
	}
	add(2, namesOf)
	if slices.ContainsFunc(input, func(m agui.Message) bool { return m.Role == agui.RoleReasoning }) {
		add(1, func(m agui.Message) []string {
			if m.Role == agui.RoleReasoning {
				return nil
			}
			return namesOf(m)
		})
	}
	if slices.ContainsFunc(input, unnamed) {
		add(0, saidAloud)
	}
	slices.SortStableFunc(all, func(a, b prefix) int { return cmp.Compare(b.length, a.length) })
	return all
}

// unnamed reports whether a message came without an id.
func unnamed(m agui.Message) bool { return agui.Unnamed(m.ID) }

// longestPrefix finds the run whose whole history is the longest prefix of the input's messages.
func (t *Thread) longestPrefix(s Start) (*entry, error) {
	prefixes := prefixesOf(s.Input.Messages, true)
	best, length := t.longestLive(prefixes, s)
	best, length = t.longestEnded(prefixes, best, length, s)
	if t.loader == nil {
		return best, nil
	}
	// Equal lengths count too: of several runs, the parent is the one that started last.
	var longer []Key
	for _, p := range prefixes {
		if p.length >= length {
			longer = append(longer, p.key)
		}
	}
	if err := t.loader.ByKey(longer, s.Offset); err != nil {
		return nil, err
	}
	best, _ = t.longestEnded(prefixes, best, length, s)
	return best, nil
}

// longestEnded is longestPrefix over the ended runs in memory. The argument best is the longest match so far.
func (t *Thread) longestEnded(prefixes []prefix, best *entry, length int, s Start) (*entry, int) {
	for _, p := range prefixes {
		if p.length < length {
			break
		}
		list := startedBefore(t.byKey.At(p.key), s.Offset)
		for i := len(list) - 1; i >= 0; i-- {
			e := list[i]
			if e.ID == s.RunID || e.End >= s.Offset { // its state at the offset is unknown
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

// matches returns the length of the longest prefix that is a history, by its ids or by its contents as of an ended run (Run.Keys), or 0.
func matches(history []agui.Message, prefixes []prefix) int {
	ids, contents := form{of: namesOf}, form{of: saidAloud}
	for _, p := range prefixes {
		said := p.names[len(p.names)-1][0] == saidMark
		if ids.equals(history, p.names) || said && contents.equals(history, p.names) {
			return p.length
		}
	}
	return 0
}

// form is a history as a list of names. Most histories differ from an input in their last message, so only that is read at first.
type form struct {
	of         func(agui.Message) []string
	last, list []string
}

func (f *form) equals(history []agui.Message, names []string) bool {
	for i := len(history) - 1; i >= 0 && len(f.last) == 0; i-- {
		f.last = f.of(history[i])
	}
	if len(f.last) == 0 || names[len(names)-1] != f.last[len(f.last)-1] {
		return false
	}
	if f.list == nil {
		f.list = make([]string, 0, len(history))
		for _, m := range history {
			f.list = append(f.list, f.of(m)...)
		}
	}
	return slices.Equal(names, f.list)
}

// maxTrees limits the trees in the search for a cycle of named parents. The root of each such tree named a parent that came later, and each
// further tree can cost two reads of runs that are not in memory. So Place finds only cycles over the run and two such trees; the chain has
// no cycle in any case.
const maxTrees = 2

// descendsFrom reports whether e's tree was spawned, directly or through other trees, by the run whose client run id is the argument named.
func (t *Thread) descendsFrom(e *entry, named string, offset int64) (bool, error) {
	for trees := 1; ; trees++ {
		root := t.runs.At(e.Root)
		if root == nil { // it is not in memory: its own id names it
			if _, err := t.latestBefore(e.Root, offset); err != nil {
				return false, err
			}
			root = t.runs.At(e.Root)
		}
		if root == nil || root.SpawnedBy == "" {
			return false, nil
		}
		spawnedBy := string(root.SpawnedBy)
		if spawnedBy == named || trees == maxTrees {
			return spawnedBy == named, nil
		}
		var err error
		if e, err = t.latestBefore(spawnedBy, offset); e == nil || err != nil {
			return false, err
		}
	}
}
