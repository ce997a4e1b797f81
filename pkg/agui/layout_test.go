package agui

import (
	"encoding/json"
	"fmt"
	"reflect"
	"strings"
	"testing"

	"pgregory.net/rapid"
)

// msgs makes messages of words such as "a" or "a:2": an id, and a content that differs.
func msgs(words string) []Message {
	var list []Message
	for _, w := range strings.Fields(words) {
		id, content, _ := strings.Cut(w, ":")
		list = append(list, Message{ID: id, Role: RoleUser,
			Raw: json.RawMessage(fmt.Sprintf(`{"id":%q,"role":"user","content":%q}`, id, content))})
	}
	return list
}

func words(list []Message) string {
	var out []string
	for _, m := range list {
		var v struct{ ID, Content string }
		if err := json.Unmarshal(m.Raw, &v); err != nil {
			return err.Error()
		}
		w := v.ID
		if v.Content != "" {
			w += ":" + v.Content
		}
		out = append(out, w)
	}
	return strings.Join(out, " ")
}

func TestLayout_DiffAndApply(t *testing.T) {
	tests := map[string]struct {
		base, full, own string
		layout          Layout
	}{
		"nothing at all":                 {},
		"the same":                       {base: "a b", full: "a b"},
		"a new conversation":             {full: "a b", own: "a b"},
		"messages are appended":          {base: "a b", full: "a b c d", own: "c d"},
		"one is changed in place":        {base: "a b c", full: "a b:2 c", own: "b:2"},
		"changed and appended":           {base: "a b c", full: "a b:2 c d", own: "b:2 d"},
		"all are removed":                {base: "a b", full: "", layout: Layout{{}}},
		"the end is removed":             {base: "a b c", full: "a", layout: Layout{{To: 1}}},
		"the front is removed":           {base: "a b c", full: "b c", layout: Layout{{From: 1, To: 3}}},
		"the order changes":              {base: "a b c", full: "c a b", layout: Layout{{From: 2, To: 3}, {From: 0, To: 2}}},
		"one is put between":             {base: "a b", full: "a x b", own: "x", layout: Layout{{To: 1}, {Own: true, To: 1}, {From: 1, To: 2}}},
		"the front becomes a summary":    {base: "a b c d", full: "s d", own: "s", layout: Layout{{Own: true, To: 1}, {From: 3, To: 4}}},
		"an id twice, both new":          {base: "a", full: "a x:1 x:2", own: "x:1 x:2"},
		"an id twice, one in the base":   {base: "a x:1", full: "a x:1 x:2", own: "x:2", layout: Layout{{To: 2}, {Own: true, To: 1}}},
		"the second of an id is changed": {base: "x:1 x:2", full: "x:1 x:3", own: "x:3", layout: Layout{{To: 1}, {Own: true, To: 1}}},
		"a message is doubled":           {base: "a", full: "a a", layout: Layout{{To: 1}, {To: 1}}},
		"changed and moved to the end":   {base: "a b", full: "b a:2", own: "a:2", layout: Layout{{From: 1, To: 2}, {Own: true, To: 1}}},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			base, full := msgs(tt.base), msgs(tt.full)
			own, layout := Diff(base, full)
			if words(own) != tt.own || !reflect.DeepEqual(layout, tt.layout) {
				t.Fatalf("Diff = %q, %+v; want %q, %+v", words(own), layout, tt.own, tt.layout)
			}
			back, err := layout.Apply(base, own)
			if err != nil {
				t.Fatal(err)
			}
			if words(back) != tt.full {
				t.Fatalf("Apply = %q, want %q", words(back), tt.full)
			}
		})
	}
}

func TestLayout_RefusesForeignLists(t *testing.T) {
	for _, l := range []Layout{{{To: 3}}, {{From: -1, To: 1}}, {{From: 2, To: 1}}, {{Own: true, To: 2}}, {{To: 1}, {From: 1, To: 1 << 40}}} {
		if _, err := l.Apply(msgs("a b"), msgs("c")); err == nil {
			t.Errorf("%+v was applied to lists that it does not fit", l)
		}
	}
}

func TestLayout_ApplyLeavesItsArgumentsAlone(t *testing.T) {
	base := msgs("a b c")[:2]
	full, err := Layout(nil).Apply(base, msgs("a:2 d"))
	if err != nil {
		t.Fatal(err)
	}
	if got := words(full); got != "a:2 b d" {
		t.Errorf("Apply = %q", got)
	}
	if got := words(base[:3]); got != "a b c" {
		t.Errorf("the base became %q", got)
	}
}

// Laws: Apply after Diff gives full; the layout is nil exactly where the default rule gives full;
// nothing that base holds is stored again.
func TestLayout_Laws(t *testing.T) {
	list := rapid.Custom(func(t *rapid.T) []Message {
		w := rapid.SliceOfN(rapid.SampledFrom(strings.Fields("a a:1 a:2 b b:1 c d e f g h")), 0, 12).Draw(t, "words")
		return msgs(strings.Join(w, " "))
	})
	rapid.Check(t, func(t *rapid.T) {
		base, full := list.Draw(t, "base"), list.Draw(t, "full")
		if rapid.Bool().Draw(t, "grows") {
			full = append(append([]Message{}, base...), full...)
		}
		own, layout := Diff(base, full)
		back, err := layout.Apply(base, own)
		if err != nil {
			t.Fatal(err)
		}
		if words(back) != words(full) {
			t.Fatalf("Apply(Diff) = %q, want %q", words(back), words(full))
		}
		byRule, err := Layout(nil).Apply(base, own)
		if err != nil {
			t.Fatal(err)
		}
		if (layout == nil) != (words(byRule) == words(full)) {
			t.Fatalf("layout %+v, but the default rule gives %q for %q", layout, words(byRule), words(full))
		}
		held := map[string]bool{}
		for _, m := range base {
			held[string(m.Raw)] = true
		}
		for _, m := range own {
			if held[string(m.Raw)] {
				t.Fatalf("%q is in the base and stored again", m.Raw)
			}
		}
	})
}
