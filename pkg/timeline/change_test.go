package timeline

import (
	"encoding/json"
	"fmt"
	"slices"
	"testing"

	jsonpatch "github.com/evanphx/json-patch/v5"
	"pgregory.net/rapid"

	"github.com/skeinhq/skein/pkg/agui"
	"github.com/skeinhq/skein/pkg/lineage"
)

// apply makes the changes.
func apply(t rapid.TB, h lineage.History, c Change) lineage.History {
	list := slices.Clone(h.Messages)
	for _, m := range c.Messages {
		switch m.Op {
		case Add:
			list = slices.Insert(list, m.Index, m.Message)
		case Replace:
			list[m.Index] = m.Message
		case Remove:
			if list[m.Index].ID != m.Message.ID {
				t.Fatalf("message %q is removed where %q is", m.Message.ID, list[m.Index].ID)
			}
			list = slices.Delete(list, m.Index, m.Index+1)
		}
	}
	patch, err := jsonpatch.DecodePatch(c.State)
	if err != nil {
		t.Fatal(err)
	}
	state, err := patch.Apply(h.State)
	if err != nil {
		t.Fatal(err)
	}
	return lineage.History{Messages: list, State: state}
}

func TestCompare_LeadsFromOneHistoryToTheOther(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		draw := func(name string) lineage.History {
			h := lineage.History{State: fmt.Appendf(nil, `{"n":%d}`, rapid.IntRange(0, 2).Draw(t, name+" state"))}
			for _, n := range rapid.SliceOfN(rapid.IntRange(0, 11), 0, 8).Draw(t, name) {
				id := fmt.Sprint("m", n/2)
				h.Messages = append(h.Messages, agui.Message{ID: id, Role: agui.RoleUser, Raw: fmt.Appendf(nil, `{"id":%q,"role":"user","content":"%d"}`, id, n%2)})
			}
			return h
		}
		before, after := draw("before"), draw("after")
		c, err := Compare(before, after)
		if err != nil {
			t.Fatal(err)
		}
		got := apply(t, before, c)
		if !slices.EqualFunc(got.Messages, after.Messages, func(a, b agui.Message) bool { return string(a.Raw) == string(b.Raw) }) {
			t.Errorf("got %s, want %s", texts(got), texts(after))
		}
		if string(got.State) != string(after.State) {
			t.Errorf("got state %s, want %s", got.State, after.State)
		}
		if same := texts(before) == texts(after) && string(before.State) == string(after.State); c.Empty() != same {
			t.Errorf("%+v is empty: %v, want %v", c, c.Empty(), same)
		}
	})
}

func texts(h lineage.History) string {
	var all []json.RawMessage
	for _, m := range h.Messages {
		all = append(all, m.Raw)
	}
	return fmt.Sprintf("%s", all)
}
