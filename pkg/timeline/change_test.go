package timeline

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"math/rand/v2"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"testing"

	jsonpatch "github.com/evanphx/json-patch/v5"
	"pgregory.net/rapid"

	"github.com/skeinhq/skein/internal/seedtest"
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
		c := Compare(before, after)
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

// What an event changed comes from its own operations, whatever a client accepts: indexes that JSON Pointers do not have, values that
// are moved or copied into one another, operations that nobody knows, and patches that fail.
func TestCursor_ChangesOfRandomPatchesLeadToTheState(t *testing.T) {
	seed := seedtest.New(t)
	rng := rand.New(rand.NewPCG(seed, 0))
	paths := []string{"/a", "/b", "/l", "/l/0", "/l/1", "/l/-", "/l/01", "/l/7", "/l/1/a", "/o", "/o/a", "/o/a/b", "/m~1n", "/m~0n",
		"/o/toString"}
	values := []string{`1`, `2`, `"é "`, `{}`, `{"a": [1, {"b":2}]}`, `[]`, `[[1],2]`, `{"l":[3,2,1],"o":{"a":{"b":[]}},"a":1}`}
	th := newThread(t)
	th.run("r", "")
	th.event("r", `{"type":"RUN_STARTED","threadId":"t","runId":"r"}`)
	pick := func(from []string) string { return from[rng.IntN(len(from))] }
	single := map[int]bool{} // steps of one operation that is one edit; a move is two, which may cancel each other
	for n := range 1500 {
		if n%10 == 0 {
			th.event("r", `{"type":"STATE_SNAPSHOT","snapshot":{"a": 1,"l":[1,2,{"a":3}],"o":{"a":{"b":[]}}}}`)
		}
		var ops []string
		for range 1 + rng.IntN(3) {
			op := pick([]string{"add", "add", "replace", "replace", "remove", "move", "copy", "test", "frob"})
			ops = append(ops, fmt.Sprintf(`{"op":%q,"path":%q,"from":%q,"value":%s}`, op, pick(paths), pick(paths), pick(values)))
		}
		th.event("r", `{"type":"STATE_DELTA","delta":[`+strings.Join(ops, ",")+`]}`)
		single[len(th.log)] = len(ops) == 1 && !strings.Contains(ops[0], `"move"`)
	}
	r := th.read("r", 1<<30)
	th.check(r, "r", func(int) bool { return false })
	c, err := r.From(t.Context(), nil, 1, nil)
	if err != nil {
		t.Fatal(err)
	}
	for c.N() < r.Len() {
		before := c.History().State
		s, change, err := c.Next()
		if err != nil {
			t.Fatal(err)
		}
		if single[s.N] && change.Empty() != sameJSON(t, before, c.History().State) {
			t.Errorf("step %d, %s: from %s to %s the change is %s", s.N, s.Value, before, c.History().State, change.State)
		}
	}
}

func TestCursor_ChangesOfOneEvent(t *testing.T) {
	large := `{"op":"add","path":"/b","value":"` + strings.Repeat("x", 1<<20) + `"}`
	const toAndFro = `,{"op":"move","from":"/b","path":"/c"},{"op":"move","from":"/c","path":"/b"}`
	for name, c := range map[string]struct{ event, want string }{
		"a value as it was":           {`DELTA","delta":[{"op":"replace","path":"/a","value":{"x":1,"y":2}}]`, `[]`},
		"a part of a value":           {`DELTA","delta":[{"op":"add","path":"/a","value":{"x":1,"y":3}}]`, `[{"op":"replace","path":"/a/y","value":3}]`},
		"the end of a list":           {`DELTA","delta":[{"op":"add","path":"/l/-","value":3},{"op":"add","path":"/l/-","value":4}]`, `[{"op":"add","path":"/l/2","value":3},{"op":"add","path":"/l/3","value":4}]`},
		"a value that comes and goes": {`DELTA","delta":[{"op":"add","path":"/b","value":1},{"op":"remove","path":"/b"}]`, `[]`},
		"a value that goes and comes": {`DELTA","delta":[{"op":"remove","path":"/a"},{"op":"add","path":"/a","value":{"x":1,"y":2}}]`, `[]`},
		"the whole":                   {`DELTA","delta":[{"op":"replace","path":"","value":{"a":{"x":1,"y":2}}}]`, `[{"op":"remove","path":"/l"}]`},
		"a patch that fails":          {`DELTA","delta":[{"op":"add","path":"/b","value":1},{"op":"remove","path":"/c"}]`, `[]`},
		"a lone surrogate":            {`DELTA","delta":[{"op":"add","path":"/\ud800","value":1}]`, `[{"op":"replace","path":"","value":{"a":{"x":1,"y":2},"l":[1,2],"\ud800":1}}]`},
		"a null beside a surrogate":   {`DELTA","delta":[{"op":"add","path":"/\ud800","value":1},{"op":"remove","path":""}]`, `[{"op":"replace","path":"","value":null}]`},
		"the whole to itself":         {`DELTA","delta":[{"op":"add","path":"/b","value":1},{"op":"copy","from":"","path":""}]`, `[{"op":"add","path":"/b","value":1}]`},
		"more than may be noted":      {`DELTA","delta":[` + large + strings.Repeat(toAndFro, 2) + `]`, `[` + large + `]`},
		"a snapshot":                  {`SNAPSHOT","snapshot":{"l":[1,2],"a":{"x":0,"y":2}}`, `[{"op":"replace","path":"/a/x","value":0}]`},
	} {
		th := newThread(t)
		th.run("r", "")
		th.event("r", `{"type":"RUN_STARTED","threadId":"t","runId":"r"}`)
		th.event("r", `{"type":"STATE_SNAPSHOT","snapshot":{"a":{"x":1,"y":2},"l":[1,2]}}`)
		th.event("r", `{"type":"STATE_`+c.event+`}`)
		r := th.read("r", 1<<30)
		at, err := r.From(t.Context(), nil, 2, nil)
		if err != nil {
			t.Fatal(err)
		}
		if _, change, err := at.Next(); err != nil || string(change.State) != c.want {
			t.Errorf("%s: %s, %v; want %s", name, change.State, err, c.want)
		}
	}
}

// A snapshot of many keys is one operation if that is shorter, so that clients copy nothing for each key.
func TestCompare_ReplacesAWholeWhereThatIsShorterThanManyOperations(t *testing.T) {
	object := func(members int) lineage.History {
		all := map[string]any{}
		for i := range members {
			all[fmt.Sprint("k", i)] = i
		}
		b, err := json.Marshal(map[string]any{"o": all})
		if err != nil {
			t.Fatal(err)
		}
		return lineage.History{State: b}
	}
	for _, c := range []struct{ from, to, ops int }{{0, 3000, 1}, {3000, 0, 1}, {2990, 3000, 10}, {2800, 3000, 200}, {0, 50, 50}} {
		change := Compare(object(c.from), object(c.to))
		var ops []struct{ Path string }
		if err := json.Unmarshal(change.State, &ops); err != nil || len(ops) != c.ops || c.ops == 1 && ops[0].Path != "/o" {
			t.Errorf("from %d to %d members: %d operations, want %d: %v", c.from, c.to, len(ops), c.ops, err)
		}
		if got := apply(t, object(c.from), change).State; !sameJSON(t, got, object(c.to).State) {
			t.Errorf("from %d to %d members the change leads to %s", c.from, c.to, got)
		}
	}
}

// A step costs what its event changes, and not the size of the state: here 500 KB, of which each step once wrote and compared all.
func TestCursor_StepsOfALargeStateCostTheirChange(t *testing.T) {
	var state strings.Builder
	for i := range 3000 {
		fmt.Fprintf(&state, `,"k%d":{"text":"%s","n":[{"c":%d}]}`, i, strings.Repeat("words ", 24), i)
	}
	th := newThread(t)
	th.blind = true
	th.run("r", "")
	th.event("r", `{"type":"RUN_STARTED","threadId":"t","runId":"r"}`)
	th.event("r", `{"type":"STATE_SNAPSHOT","snapshot":{"n":0,"log":[]`+state.String()+`}}`)
	for i := range 200 {
		th.event("r", fmt.Sprintf(`{"type":"STATE_DELTA","delta":[{"op":"replace","path":"/n","value":%d},{"op":"add","path":"/log/-","value":{"i":%d}},{"op":"replace","path":"/k%d/n/0/c","value":-1}]}`, i+1, i, i))
		th.event("r", fmt.Sprintf(`{"type":"TEXT_MESSAGE_CHUNK","messageId":"m","role":"assistant","delta":"word %d "}`, i))
	}
	r := th.read("r", 1<<30)
	left, leave := context.WithCancel(t.Context())
	leave()
	if _, err := r.From(left, nil, r.Len(), nil); !errors.Is(err, context.Canceled) {
		t.Errorf("events are folded for a caller who has left: %v", err)
	}
	for name, begin := range map[string]func(*Cursor) func() error{
		"a step": func(c *Cursor) func() error { return func() error { _, _, err := c.Next(); return err } },
		"a step of a watch": func(c *Cursor) func() error {
			w := c.Watch(place(t, "/log/0/i"))
			return func() error { _, _, _, err := w.Next(); return err }
		},
	} {
		c, err := r.From(t.Context(), nil, 4, nil) // the state is read
		if err != nil {
			t.Fatal(err)
		}
		next := begin(c)
		var before, after runtime.MemStats
		runtime.ReadMemStats(&before)
		for c.N() < 256 {
			if err := next(); err != nil {
				t.Fatal(err)
			}
		}
		runtime.ReadMemStats(&after)
		if took := (after.TotalAlloc - before.TotalAlloc) / 252; took > 16<<10 {
			t.Errorf("%s takes %d bytes, with a state of %d bytes", name, took, state.Len())
		}
	}
}
