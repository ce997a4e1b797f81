package timeline

import (
	"encoding/json"
	"fmt"
	"slices"
	"strconv"
	"strings"
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
		case Append:
			list[m.Index] = grow(t, list[m.Index], m)
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

// grow appends the text of a change to a string of a message.
func grow(t rapid.TB, m agui.Message, c MessageChange) agui.Message {
	at := m.Raw
	for _, name := range strings.Split(c.Path, "/")[1:] {
		if i, err := strconv.Atoi(name); err == nil {
			at = slices.Collect(agui.Elements(at))[i]
		} else {
			at = agui.Lookup(at, name)
		}
	}
	if !agui.IsString(at) || !agui.IsString(c.Text) || m.ID != string(c.MessageID) {
		t.Fatalf("%s is appended to %s of %s", c.Text, at, m.Raw)
	}
	end := cap(m.Raw) - cap(at) + len(at) - 1 // at is a part of Raw
	m.Raw = slices.Concat(m.Raw[:end], c.Text[1:len(c.Text)-1], m.Raw[end:])
	return m
}

func TestCompare_TellsTextThatWasAppended(t *testing.T) {
	for name, c := range map[string]struct{ before, after, path, text string }{
		"content":                 {`{"id":"m","role":"assistant","content":"a","name":"n"}`, `{"id":"m","role":"assistant","content":"a\"}b","name":"n"}`, "/content", `"\"}b"`},
		"content that was empty":  {`{"id":"m","role":"assistant","content":""}`, `{"id":"m","role":"assistant","content":"é"}`, "/content", `"é"`},
		"arguments":               {`{"id":"m","role":"assistant","toolCalls":[{"id":"1","function":{"name":"f","arguments":"{"}},{"id":"2","function":{"name":"f","arguments":"{"}}]}`, `{"id":"m","role":"assistant","toolCalls":[{"id":"1","function":{"name":"f","arguments":"{"}},{"id":"2","function":{"name":"f","arguments":"{\"a"}}]}`, "/toolCalls/1/function/arguments", `"\"a"`},
		"text before it":          {`{"id":"m","role":"assistant","content":"a"}`, `{"id":"m","role":"assistant","content":"ba"}`, "", ""},
		"shorter":                 {`{"id":"m","role":"assistant","content":"ab"}`, `{"id":"m","role":"assistant","content":"a"}`, "", ""},
		"half a character before": {`{"id":"m","role":"assistant","content":"\ud83d"}`, `{"id":"m","role":"assistant","content":"😀 and more"}`, "", ""},
		"a member":                {`{"id":"m","role":"assistant","content":"a"}`, `{"id":"m","role":"assistant","content":"a","name":"n"}`, "", ""},
		"content and a member":    {`{"id":"m","role":"assistant","content":"a","name":"n"}`, `{"id":"m","role":"assistant","content":"ab","name":"nn"}`, "", ""},
		"another call":            {`{"id":"m","role":"assistant","toolCalls":[]}`, `{"id":"m","role":"assistant","toolCalls":[{"id":"1","function":{"name":"f","arguments":""}}]}`, "", ""},
		"a part":                  {`{"id":"m","role":"user","content":[]}`, `{"id":"m","role":"user","content":[1]}`, "", ""},
	} {
		t.Run(name, func(t *testing.T) {
			before := agui.Message{ID: "m", Role: "assistant", Raw: json.RawMessage(c.before)}
			got := CompareMessage(7, before, agui.Message{ID: "m", Role: "assistant", Raw: json.RawMessage(c.after)})
			if got.Path != c.path || string(got.Text) != c.text || (got.Op == Append) != (c.path != "") || got.Index != 7 {
				t.Fatalf("got %+v", got)
			}
			if got.Op == Append {
				if grown := grow(t, before, got); string(grown.Raw) != c.after {
					t.Errorf("applied, it gives %s", grown.Raw)
				}
			}
		})
	}
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
