package lineage

import (
	"encoding/json"
	"errors"
	"fmt"
	"slices"

	"github.com/skeinhq/skein/pkg/agui"
	"github.com/skeinhq/skein/pkg/compact"
)

// ErrMissingRun says that a run whose content is needed is not there.
var ErrMissingRun = errors.New("the run is not there")

// ErrBrokenChain says that runs do not follow on one another by their bases.
var ErrBrokenChain = errors.New("the runs are no chain")

// History is what the official client holds: messages and state. The slices are shared between
// histories and must not be changed.
type History struct {
	Messages []agui.Message  `json:"messages"`
	State    json.RawMessage `json:"state"`

	shared *compact.Base // of Messages; nil where nobody shares them
}

// Share returns the history as one that runs can go on from at a cost that does not depend on its length:
// RestoreFrom and Fold do then. What comes of it shares too, and is not safe for concurrent use.
func (h History) Share() History {
	if h.shared == nil {
		base := compact.NewBase(h.Messages)
		h.shared = &base
	}
	return h
}

// Unshare returns the history as one that nobody shares.
func (h History) Unshare() History {
	h.shared = nil
	return h
}

// Fold starts the fold of a run that goes on from the history.
func (h History) Fold() *compact.Run {
	if h.shared != nil {
		return compact.NewOn(*h.shared, stateOrEmpty(h.State))
	}
	return compact.New(h.Messages, stateOrEmpty(h.State))
}

// Added returns what a run that was started by Fold has put behind the history, if it did nothing else to it
// and the history is shared.
func (h History) Added(run *compact.Run) (behind []agui.Message, only bool) {
	if h.shared == nil {
		return nil, false
	}
	return run.Added(*h.shared)
}

// Bytes is the size of the messages as JSON, but for what joins them.
func (h History) Bytes() int {
	if h.shared != nil {
		return h.shared.Bytes()
	}
	n := 0
	for _, m := range h.Messages {
		n += len(m.Raw)
	}
	return n
}

// List names the list of messages that the history shares with others (Share), and returns about how much
// memory that holds; nil where it shares none.
func (h History) List() (list any, held int) {
	if h.shared == nil {
		return nil, 0
	}
	return h.shared.List()
}

// Content is what one run's record says about its history.
type Content struct {
	RunID string
	// Base is the run whose history Messages, Layout and State are encoded relative to, or empty.
	Base     string
	Messages []agui.Message
	Layout   agui.Layout
	// State is nil where it is the base's.
	State json.RawMessage
}

// BaseChain returns the runs whose contents make up the history of a run: the run itself last,
// before it its base, and so on to a run without a base. baseOf returns a run's base, or false for
// a run that is not there. To stop at a history that is at hand, let baseOf say "" for its run.
func BaseChain(run string, baseOf func(run string) (base string, ok bool)) ([]string, error) {
	var chain []string
	seen := make(map[string]bool)
	for id := run; ; {
		if seen[id] {
			return nil, fmt.Errorf("walking the bases of run %q: %q comes twice: %w", run, id, ErrBrokenChain)
		}
		seen[id] = true
		base, ok := baseOf(id)
		if !ok {
			return nil, fmt.Errorf("walking the bases of run %q: run %q: %w", run, id, ErrMissingRun)
		}
		chain = append(chain, id)
		if base == "" {
			slices.Reverse(chain)
			return chain, nil
		}
		id = base
	}
}

// Restore builds the history of the last run of a chain in the order of BaseChain. The cost is
// linear in the contents, as long as runs add to and replace messages; each run with a layout of
// its own (one that reorders or removes) costs the length of the conversation more.
func Restore(chain ...Content) (History, error) {
	if len(chain) > 0 && chain[0].Base != "" {
		return History{}, fmt.Errorf("restoring run %q: its base %q is not given: %w", chain[0].RunID, chain[0].Base, ErrBrokenChain)
	}
	return RestoreFrom(History{}, chain...)
}

// RestoreFrom is Restore where the history of the first run's base is at hand. Where that is shared (Share), and
// the runs only add to it, the cost does not depend on its length, and the result is shared.
func RestoreFrom(base History, chain ...Content) (History, error) {
	for i, c := range chain {
		if i > 0 && c.Base != chain[i-1].RunID {
			return History{}, fmt.Errorf("restoring run %q: its base is %q, not %q: %w", c.RunID, c.Base, chain[i-1].RunID, ErrBrokenChain)
		}
	}
	state := base.State
	for len(chain) > 0 && base.shared != nil && chain[0].onlyAdds(*base.shared) {
		more := base.shared.Extend(chain[0].Messages)
		base.Messages, base.shared = more.Messages(), &more
		if chain[0].State != nil {
			state = chain[0].State
		}
		chain = chain[1:]
	}
	if len(chain) == 0 {
		base.State = stateOrEmpty(state)
		return base, nil
	}
	conv := conversation{list: slices.Clip(base.Messages)}
	for i, c := range chain {
		if err := conv.apply(c.Layout, c.Messages, i == len(chain)-1); err != nil {
			return History{}, fmt.Errorf("restoring run %q: %w", c.RunID, err)
		}
		if c.State != nil {
			state = c.State
		}
	}
	return History{Messages: slices.Clip(conv.list), State: stateOrEmpty(state)}, nil
}

// onlyAdds reports whether the content puts messages of new ids behind its base's, and does nothing else.
func (c *Content) onlyAdds(base compact.Base) bool {
	return len(c.Layout) == 0 && !slices.ContainsFunc(c.Messages, func(m agui.Message) bool { return base.Has(m.ID) })
}

func stateOrEmpty(state json.RawMessage) json.RawMessage {
	if state == nil {
		return json.RawMessage(`{}`)
	}
	return state
}

// conversation applies layouts one after another, as Layout.Apply does, but keeps the positions of
// ids between them, so that a long chain of short runs is linear.
type conversation struct {
	list []agui.Message
	// first is the position of the first message of an id; nil while it is not known.
	first map[string]int
	// owned says that list is ours to change in place.
	owned bool
}

// apply applies one layout; last says that no other follows, for which positions would be noted.
func (c *conversation) apply(layout agui.Layout, own []agui.Message, last bool) error {
	if len(layout) > 0 || last && c.first == nil && len(own) > 0 {
		list, err := layout.Apply(c.list, own)
		if err != nil {
			return err
		}
		*c = conversation{list: list, owned: true}
		return nil
	}
	if len(own) == 0 {
		return nil
	}
	if c.first == nil {
		c.first = make(map[string]int, len(c.list)+len(own))
		c.note(0)
	}
	base := len(c.list)
	for _, m := range own {
		at, ok := c.first[m.ID]
		if !ok {
			c.list = append(c.list, m) // a list that is not owned is clipped: this copies it
			continue
		}
		if !c.owned {
			c.list, c.owned = slices.Clone(c.list), true
		}
		c.list[at] = m
	}
	if len(c.list) > base {
		c.owned = true
	}
	c.note(base)
	return nil
}

// note enters the messages from a position on. Only now, so that two own messages of one new id
// are both appended.
func (c *conversation) note(from int) {
	for i, m := range c.list[from:] {
		if _, ok := c.first[m.ID]; !ok {
			c.first[m.ID] = from + i
		}
	}
}

// Normalised reports whether a run's input leaves out what is in the history already, as AG-UI's serialised form does:
// history is then the parent's with the input's messages behind. By is how the parent was found, parent its history at
// the run's start.
//
// An input that was sent beside the stream never does: it is what the agent was given. One on RUN_STARTED does where none
// of its messages is known: in the parent's history, or where no parent was given, in the thread (Thread.Place: the
// parent is then the latest). One that names a message which is known is whole, so that an edit or a regeneration can be
// read from it. So is one of a run without a parent in the thread: nothing can be left out.
func Normalised(by ParentBy, parent History, input *agui.RunAgentInput) bool {
	if input == nil || !input.Serialised {
		return false
	}
	switch by {
	case ParentLatest:
		return true
	case ParentExplicit:
		return !parent.hasAny(input.Messages)
	}
	return false
}

// hasAny reports whether a message of the history has the id of one of these.
func (h History) hasAny(messages []agui.Message) bool {
	if h.shared != nil {
		return slices.ContainsFunc(messages, func(m agui.Message) bool { return h.shared.Has(m.ID) })
	}
	ids := make(map[string]struct{}, len(messages))
	for _, m := range messages {
		ids[m.ID] = struct{}{}
	}
	return slices.ContainsFunc(h.Messages, func(m agui.Message) bool {
		_, ok := ids[m.ID]
		return ok
	})
}

// StartHistory returns what a run's fold starts from. With a whole input these are its messages, with
// the parent's activity messages kept in place, since clients leave those out of inputs; without
// one, the parent's. Behind those of a parent the fold itself puts the messages of a normalised one, at RUN_STARTED, as
// the client does. The state is the input's, else the parent's, else {}. A run without a parent
// has the zero History for one.
//
// In place means: behind the message that stood before it in the parent's history, or where that
// is gone behind the nearest earlier one that remains, or else in front.
func StartHistory(by ParentBy, parent History, input *agui.RunAgentInput) History {
	state := stateOrEmpty(parent.State)
	if input != nil && input.State != nil {
		state = input.State
	}
	if input == nil || Normalised(by, parent, input) {
		return History{Messages: slices.Clip(parent.Messages), State: state, shared: parent.shared}
	}
	return History{Messages: keepActivity(parent.Messages, input.Messages), State: state}
}

// keepActivity returns an input's messages with those activities of the parent's history in place that the client left out.
// An input that has no message of the history, which has some, goes on from nothing: the conversation was cleared, and
// its activities with it.
func keepActivity(parent, input []agui.Message) []agui.Message {
	if !slices.ContainsFunc(parent, isActivity) {
		return slices.Clip(input)
	}
	at := pair(parent, input)
	shared, other := false, false // messages that clients send
	for i, m := range parent {
		if !isActivity(m) {
			other, shared = true, shared || at[i] >= 0
		}
	}
	if other && !shared {
		return slices.Clip(input)
	}
	kept := make(map[int][]agui.Message) // by the number of input messages before them
	n, anchor := 0, 0
	for i, m := range parent {
		if at[i] >= 0 {
			anchor = at[i] + 1
		} else if isActivity(m) {
			kept[anchor] = append(kept[anchor], m)
			n++
		}
	}
	out := append(make([]agui.Message, 0, len(input)+n), kept[0]...)
	for i, m := range input {
		out = append(append(out, m), kept[i+1]...)
	}
	return out
}

// name is what tells messages of a list apart. An activity and another message may have one id: what a client left out
// of an input is not there because the other is.
type name struct {
	id       string
	activity bool
}

func nameOf(m agui.Message) name { return name{m.ID, isActivity(m)} }

// pair returns for each message of a history its place in an input, -1 where it is gone. A message whose name stands once
// in both is found by that. The others, of names that stand several times and those that the fold has named itself
// (compact.MadeByThinking), are looked for in turn between the ones that were found, so that none is taken for another
// that stood elsewhere.
func pair(history, input []agui.Message) []int {
	had := make(map[name]int, len(history)) // how often
	for _, m := range history {
		had[nameOf(m)]++
	}
	places := make(map[name][]int, len(input))
	for i, m := range input {
		places[nameOf(m)] = append(places[nameOf(m)], i)
	}
	unique := func(m agui.Message) bool { return had[nameOf(m)] == 1 && len(places[nameOf(m)]) == 1 }
	thoughts := map[string][]int{} // those that the history does not have, by content
	end := make([]int, len(input)+1)
	end[len(input)] = len(input)
	for i, m := range slices.Backward(input) {
		if end[i] = end[i+1]; unique(m) {
			end[i] = i
		}
		if text, ok := thought(m); ok && had[nameOf(m)] == 0 {
			thoughts[text] = append(thoughts[text], i)
		}
	}
	for _, list := range thoughts {
		slices.Reverse(list)
	}

	at := make([]int, len(history))
	next := 0 // in the input, behind what was found last
	for i, m := range history {
		at[i] = -1
		list := places[nameOf(m)]
		if unique(m) {
			at[i], next = list[0], list[0]+1
			continue
		}
		if compact.MadeByThinking(m) && len(list) == 0 {
			text, _ := thought(m)
			list = thoughts[text]
		}
		if n, _ := slices.BinarySearch(list, next); n < len(list) && list[n] < end[next] {
			at[i], next = list[n], list[n]+1
		}
	}
	return at
}

// thought returns the content of a reasoning message.
func thought(m agui.Message) (string, bool) {
	content := m.Get("content")
	if m.Role != agui.RoleReasoning || !agui.IsString(content) {
		return "", false
	}
	return agui.TextOf(content).String(), true
}

func isActivity(m agui.Message) bool { return m.Role == agui.RoleActivity }

// InputMessages returns a history's messages as a client sends them: without activity messages.
func InputMessages(history []agui.Message) []agui.Message {
	if !slices.ContainsFunc(history, isActivity) {
		return slices.Clip(history)
	}
	out := make([]agui.Message, 0, len(history))
	for _, m := range history {
		if !isActivity(m) {
			out = append(out, m)
		}
	}
	return out
}

// NormalizeInput returns what of an input's messages the parent's history does not have, and the
// layout that gives the input back; FullInput does.
func NormalizeInput(parent, input []agui.Message) (own []agui.Message, layout agui.Layout) {
	return agui.Diff(InputMessages(parent), input)
}

// FullInput gives back the messages that NormalizeInput took apart.
func FullInput(parent, own []agui.Message, layout agui.Layout) ([]agui.Message, error) {
	full, err := layout.Apply(InputMessages(parent), own)
	if err != nil {
		return nil, fmt.Errorf("restoring an input: %w", err)
	}
	return full, nil
}
