package lineage

import (
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/skeinhq/skein/pkg/agui"
	"github.com/skeinhq/skein/pkg/compact"
)

// ErrMissingRun is returned if a run whose content is needed is missing.
var ErrMissingRun = errors.New("the run is not there")

// ErrBrokenChain is returned if the base of a run is not the run before it in the chain.
var ErrBrokenChain = errors.New("the runs are no chain")

// History is what the official client holds: messages and state. The slices are shared between
// histories and must not be changed.
type History struct {
	Messages []agui.Message  `json:"messages"`
	State    json.RawMessage `json:"state"`

	shared *compact.Base // of Messages; nil if they are not shared
}

// Share returns the history in a form in which the cost of Fold and RestoreFrom does not depend on its length.
// Histories made from the result share its messages too. The result is not safe for concurrent use.
func (h History) Share() History {
	if h.shared == nil {
		base := compact.NewBase(h.Messages)
		h.shared = &base
	}
	return h
}

// Unshare returns a copy of the history that shares nothing.
func (h History) Unshare() History {
	h.shared = nil
	return h
}

// Fold starts the fold of a run that continues the history.
func (h History) Fold() *compact.Run {
	if h.shared != nil {
		return compact.NewOn(*h.shared, stateOrEmpty(h.State))
	}
	return compact.New(h.Messages, stateOrEmpty(h.State))
}

// Added returns the messages that a run started by Fold appended. Its second result is false if the run changed the
// history in another way, or if the history is not shared.
func (h History) Added(run *compact.Run) (added []agui.Message, only bool) {
	if h.shared == nil {
		return nil, false
	}
	return run.Added(*h.shared)
}

// Bytes returns the size of the messages as JSON, without separators.
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

// List returns the identity of the list of messages that the history shares (Share), and the estimated memory of that
// list in bytes. It returns nil if the history shares none.
func (h History) List() (list any, held int) {
	if h.shared == nil {
		return nil, 0
	}
	return h.shared.List()
}

// Content is one run's part of its history, as its record holds it.
type Content struct {
	RunID string
	// Base is the run whose history Messages, Layout and State are relative to, or empty.
	Base     string
	Messages []agui.Message
	Layout   agui.Layout
	// State is nil if it equals the base's.
	State json.RawMessage
}

// BaseChain returns the runs whose contents make up a run's history: its bases from the first, which has none, to the
// run itself. baseOf returns a run's base, and false for a missing run. To stop at a run whose history is already
// known, let baseOf return "" for it.
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

// Restore builds the history of the last run of a chain in the order of BaseChain. The cost is linear in the contents
// while runs only append and replace messages; each run that reorders or removes messages costs time linear in the
// whole conversation.
func Restore(chain ...Content) (History, error) {
	if len(chain) > 0 && chain[0].Base != "" {
		return History{}, fmt.Errorf("restoring run %q: its base %q is missing: %w", chain[0].RunID, chain[0].Base, ErrBrokenChain)
	}
	return RestoreFrom(History{}, chain...)
}

// RestoreFrom is Restore on the known history of the first run's base. If that history is shared (Share) and the runs
// only append, the cost does not depend on its length, and the result is shared.
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

// onlyAdds reports whether the content only appends messages with new ids to its base's.
func (c *Content) onlyAdds(base compact.Base) bool {
	return len(c.Layout) == 0 && !slices.ContainsFunc(c.Messages, func(m agui.Message) bool { return base.Has(m.ID) })
}

func stateOrEmpty(state json.RawMessage) json.RawMessage {
	if state == nil {
		return json.RawMessage(`{}`)
	}
	return state
}

// conversation applies layouts one after another as Layout.Apply does, but keeps the positions of ids in between, so
// that a long chain of short runs costs linear time.
type conversation struct {
	list []agui.Message
	// first maps an id to the position of its first message; nil until it is needed.
	first map[string]int
	// owned is true if list may be changed in place.
	owned bool
}

// apply applies one layout. last is true for the final one, after which positions are not needed.
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

// note adds the positions of the messages at the index from and later. It runs after they were appended, so that two
// own messages with one new id are both appended.
func (c *conversation) note(from int) {
	for i, m := range c.list[from:] {
		if _, ok := c.first[m.ID]; !ok {
			c.first[m.ID] = from + i
		}
	}
}

// Normalised reports whether a run's input leaves out messages that the history already has, as AG-UI's serialised form
// does. The run's history is then the parent's followed by the input's messages. The argument by is how the parent was
// found, and parent is its history at the run's start.
//
// An input sent beside the stream is never normalised: it is what the agent received. An input on RUN_STARTED is
// normalised if none of its messages is known (knows): in the parent's history if a parent was named or resumed, else in the thread
// (Thread.Place then chooses the latest run as parent). An input with a known message is whole, so it can show an edit
// or a regeneration. The input of a run without a parent in the thread is whole, too.
func Normalised(by ParentBy, parent History, input *agui.RunAgentInput) bool {
	if input == nil || !input.Serialised {
		return false
	}
	switch by {
	case ParentLatest:
		return true
	case ParentExplicit:
		return !parent.knows(input)
	case ParentContent: // found by the input's messages, or by its resume
		return len(parent.Messages) > 0 && !parent.knows(input)
	}
	return false
}

// knows reports whether an input has a message of the history. One without an id shows it only if the input begins with the whole history,
// or if it repeats what an assistant said, which only an agent adds; a user may well say the same twice. An input with a resume adds no
// question, so any message shows it there.
func (h History) knows(input *agui.RunAgentInput) bool {
	if h.hasAny(input.Messages) {
		return true
	}
	repeated := make(map[string]bool)
	for _, m := range input.Messages {
		if unnamed(m) && (m.Role == agui.RoleAssistant || len(input.Resume) > 0) {
			repeated[aloud(m)] = true
		}
	}
	delete(repeated, "")
	return len(repeated) > 0 && slices.ContainsFunc(h.Messages, func(m agui.Message) bool { return repeated[aloud(m)] }) ||
		slices.ContainsFunc(input.Messages, unnamed) && matches(h.Messages, prefixesOf(input.Messages, false)) > 0
}

// aloud returns as one string what a message says to all clients (saidAloud).
func aloud(m agui.Message) string { return strings.Join(saidAloud(m), "") }

// hasAny reports whether the history has a message with the id of one of these.
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

// StartHistory returns the history from which a run's fold starts. With a whole input it is the input's messages, with
// the parent's activity messages inserted at their places, since clients leave those out. Without a whole input it is
// the parent's; the fold appends the messages of a normalised input itself at RUN_STARTED, as the client does. The
// state is the input's, else the parent's, else {}. The parent of a root is the zero History.
//
// An activity's place is after the message that preceded it in the parent's history; if that is gone, after the nearest
// earlier one that remains, or else at the front.
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

// keepActivity returns an input's messages with the parent's activities, which the client left out, inserted at their
// places. If the history has other messages and the input has none of them, the client has cleared the conversation,
// and the activities go too.
func keepActivity(parent, input []agui.Message) []agui.Message {
	if !slices.ContainsFunc(parent, isActivity) {
		return slices.Clip(input)
	}
	at := pair(parent, input, "")
	shared, other := false, false // only messages that clients send count
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

// name identifies a message in a list. An activity and another message may have the same id, and the client sends only
// the other message.
type name struct {
	id       string
	activity bool
}

func nameOf(m agui.Message) name { return name{m.ID, isActivity(m)} }

// pair returns, for each message of a history, its index in an input, or -1 if it is gone. A message whose name occurs
// once in both is found by name. Then pair searches for messages with repeated names, for those that the fold named
// itself (compact.MadeByThinking), and for those that came without an id in an input of the given run, in order and only
// between the matches by name, so that none is matched with a message from elsewhere.
func pair(history, input []agui.Message, run string) []int {
	had := make(map[name]int, len(history)) // occurrences
	for _, m := range history {
		had[nameOf(m)]++
	}
	places := make(map[name][]int, len(input))
	for i, m := range input {
		places[nameOf(m)] = append(places[nameOf(m)], i)
	}
	unique := func(m agui.Message) bool { return had[nameOf(m)] == 1 && len(places[nameOf(m)]) == 1 }
	thoughts := map[string][]int{} // of the input alone, by content
	others := map[string][]int{}   // of the input, those without an id, by what they say
	end := make([]int, len(input)+1)
	end[len(input)] = len(input)
	for i, m := range slices.Backward(input) {
		if end[i] = end[i+1]; unique(m) {
			end[i] = i
		}
		if text, ok := thought(m); ok && had[nameOf(m)] == 0 {
			thoughts[text] = append(thoughts[text], i)
		}
		if run != "" && agui.UnnamedIn(run, m.ID) {
			others[sayings(m)] = append(others[sayings(m)], i)
		}
	}
	for _, lists := range []map[string][]int{thoughts, others} {
		for _, list := range lists {
			slices.Reverse(list)
		}
	}

	at := make([]int, len(history))
	next := 0 // index in the input after the last match
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
		if len(list) == 0 && len(others) > 0 && !isActivity(m) {
			list = others[sayings(m)]
		}
		if n, _ := slices.BinarySearch(list, next); n < len(list) && list[n] < end[next] {
			at[i], next = list[n], list[n]+1
		}
	}
	return at
}

// sayings returns what a message says as one string.
func sayings(m agui.Message) string { return strings.Join(said(m), "") }

// Named returns the messages of a run's input, in which those that came without an id have the id of the message of the parent's history
// that they repeat. It reports whether any has.
func Named(run string, parent, input []agui.Message) (out []agui.Message, renamed bool) {
	if len(parent) == 0 || !slices.ContainsFunc(input, func(m agui.Message) bool { return agui.UnnamedIn(run, m.ID) }) {
		return input, false
	}
	out = slices.Clone(input)
	for i, j := range pair(parent, input, run) {
		if id := parent[i].ID; j >= 0 && id != input[j].ID && agui.UnnamedIn(run, input[j].ID) {
			out[j].ID, renamed = id, true
			out[j].Raw = agui.WithFirst(agui.Without(input[j].Raw, "id"), "id", agui.AppendString(nil, id))
		}
	}
	return out, renamed
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

// InputMessages returns a history's messages as a client sends them: without activities.
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

// NormalizeInput returns those of an input's messages that the parent's history lacks, and the layout from which
// FullInput restores the input.
func NormalizeInput(parent, input []agui.Message) (own []agui.Message, layout agui.Layout) {
	return agui.Diff(InputMessages(parent), input)
}

// FullInput restores the messages that NormalizeInput took apart.
func FullInput(parent, own []agui.Message, layout agui.Layout) ([]agui.Message, error) {
	full, err := layout.Apply(InputMessages(parent), own)
	if err != nil {
		return nil, fmt.Errorf("restoring an input: %w", err)
	}
	return full, nil
}
