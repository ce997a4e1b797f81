package lineage

import (
	"bytes"
	"encoding/json"
	"fmt"

	"github.com/skeinhq/skein/pkg/agui"
)

// Difference lists how the second of two histories differs from the first.
type Difference struct {
	// OnlyFrom and OnlyTo are the messages whose id the other history does not have.
	OnlyFrom []agui.Message `json:"onlyFrom"`
	OnlyTo   []agui.Message `json:"onlyTo"`
	// Changed are the messages that both have with different content.
	Changed []Change `json:"changed"`
	// Reordered is true if the messages that both have are in another order.
	Reordered bool `json:"reordered,omitempty"`
	// StatePatch is the JSON Patch (RFC 6902) that turns the first state into the second.
	StatePatch json.RawMessage `json:"statePatch"`
}

// Change is a message that both histories have, with different content.
type Change struct {
	ID   agui.String  `json:"id"`
	From agui.Message `json:"from"`
	To   agui.Message `json:"to"`
	// Patch is the JSON Patch (RFC 6902) that turns From into To.
	Patch json.RawMessage `json:"patch"`
}

// Empty reports whether the histories are the same.
func (d *Difference) Empty() bool {
	return len(d.OnlyFrom) == 0 && len(d.OnlyTo) == 0 && len(d.Changed) == 0 && !d.Reordered && string(d.StatePatch) == "[]"
}

// Diff compares two histories. It pairs messages by id; if an id occurs several times, in order. Contents are compared
// by value, as Patch does, since clients write members in any order.
func Diff(from, to History) (Difference, error) {
	d := Difference{OnlyFrom: []agui.Message{}, OnlyTo: []agui.Message{}, Changed: []Change{}} // lists in JSON, never null
	if err := d.compare(from.Messages, to.Messages); err != nil {
		return Difference{}, err
	}
	var err error
	if d.StatePatch, err = Patch(stateOrEmpty(from.State), stateOrEmpty(to.State)); err != nil {
		return Difference{}, fmt.Errorf("comparing states: %w", err)
	}
	return d, nil
}

func (d *Difference) compare(a, b []agui.Message) error {
	places := make(map[string][]int, len(b))
	for i, m := range b {
		places[m.ID] = append(places[m.ID], i)
	}
	paired := make([]bool, len(b))
	last := -1
	for _, m := range a {
		at := places[m.ID]
		if len(at) == 0 {
			d.OnlyFrom = append(d.OnlyFrom, m)
			continue
		}
		i := at[0]
		places[m.ID], paired[i] = at[1:], true
		d.Reordered = d.Reordered || i < last
		last = max(last, i)
		if bytes.Equal(m.Raw, b[i].Raw) {
			continue
		}
		patch, err := Patch(m.Raw, b[i].Raw)
		if err != nil {
			return fmt.Errorf("comparing message %q: %w", m.ID, err)
		}
		if string(patch) != "[]" {
			d.Changed = append(d.Changed, Change{ID: agui.String(m.ID), From: m, To: b[i], Patch: patch})
		}
	}
	for i, m := range b {
		if !paired[i] {
			d.OnlyTo = append(d.OnlyTo, m)
		}
	}
	return nil
}
