package lineage

import (
	"bytes"
	"encoding/json"
	"fmt"

	"github.com/skeinhq/skein/pkg/agui"
)

// Difference is how two histories differ.
type Difference struct {
	From string `json:"from"`
	To   string `json:"to"`
	// CommonAncestor is the last run that both chains hold (one of the two where it lies on
	// the other's chain), or empty for runs of different trees.
	CommonAncestor string `json:"commonAncestor,omitempty"`
	// OnlyFrom and OnlyTo are the messages whose id the other history does not have.
	OnlyFrom []agui.Message `json:"onlyFrom"`
	OnlyTo   []agui.Message `json:"onlyTo"`
	// Changed are the messages that both have with different content.
	Changed []Change `json:"changed"`
	// Reordered says that what both have does not stand in the same order.
	Reordered bool `json:"reordered,omitempty"`
	// State is the JSON Patch (RFC 6902) that turns the one state into the other.
	State json.RawMessage `json:"state"`
}

// Change is one message in two forms.
type Change struct {
	ID   string       `json:"id"`
	From agui.Message `json:"from"`
	To   agui.Message `json:"to"`
}

// Empty reports whether the histories are the same.
func (d *Difference) Empty() bool {
	return len(d.OnlyFrom) == 0 && len(d.OnlyTo) == 0 && len(d.Changed) == 0 && !d.Reordered && string(d.State) == "[]"
}

// Diff compares the histories of two runs of the graph. Messages are told apart by id; where an id
// stands several times, by its turn.
func (g *Graph) Diff(from, to string, a, b History) (Difference, error) {
	d := Difference{From: from, To: to, CommonAncestor: g.CommonAncestor(from, to)}
	d.OnlyFrom, d.OnlyTo, d.Changed, d.Reordered = compare(a.Messages, b.Messages)
	var err error
	if d.State, err = Patch(stateOrEmpty(a.State), stateOrEmpty(b.State)); err != nil {
		return Difference{}, fmt.Errorf("comparing the states of run %q and run %q: %w", from, to, err)
	}
	return d, nil
}

func compare(a, b []agui.Message) (onlyA, onlyB []agui.Message, changed []Change, reordered bool) {
	onlyA, onlyB, changed = []agui.Message{}, []agui.Message{}, []Change{} // lists in JSON, never null
	places := make(map[string][]int, len(b))
	for i, m := range b {
		places[m.ID] = append(places[m.ID], i)
	}
	paired := make([]bool, len(b))
	last := -1
	for _, m := range a {
		at := places[m.ID]
		if len(at) == 0 {
			onlyA = append(onlyA, m)
			continue
		}
		i := at[0]
		places[m.ID], paired[i] = at[1:], true
		if i < last {
			reordered = true
		}
		last = max(last, i)
		if !bytes.Equal(m.Raw, b[i].Raw) {
			changed = append(changed, Change{ID: m.ID, From: m, To: b[i]})
		}
	}
	for i, m := range b {
		if !paired[i] {
			onlyB = append(onlyB, m)
		}
	}
	return onlyA, onlyB, changed, reordered
}
