package lineage

import (
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"

	"pgregory.net/rapid"

	"github.com/skeinhq/skein/pkg/agui"
)

func TestStartHistory(t *testing.T) {
	state := func(s string) json.RawMessage {
		if s == "" {
			return nil
		}
		return json.RawMessage(s)
	}
	tests := map[string]struct {
		parent, input           string
		noInput                 bool
		parentState, inputState string
		want, wantState         string
	}{
		"nothing at all":                        {noInput: true, wantState: `{}`},
		"a root with an input":                  {input: "u1", inputState: `{"a":1}`, want: "u1", wantState: `{"a":1}`},
		"no input takes the parent's":           {noInput: true, parent: "u1 @x a1", parentState: `[1]`, want: "u1 @x a1", wantState: `[1]`},
		"an input without state":                {input: "u1 a1 u2", parent: "u1 a1", parentState: `{"a":1}`, want: "u1 a1 u2", wantState: `{"a":1}`},
		"no state anywhere":                     {input: "u1", want: "u1", wantState: `{}`},
		"the input's contents count":            {input: "u1:new a1", parent: "u1 a1", want: "u1:new a1", wantState: `{}`},
		"activity stays in place":               {parent: "u1 @x a1 @y @z", input: "u1 a1 u2", want: "u1 @x a1 @y @z u2", wantState: `{}`},
		"activity in front":                     {parent: "@x u1", input: "u1 u2", want: "@x u1 u2", wantState: `{}`},
		"what stood before it is gone":          {parent: "u1 a1 u2 @x a2", input: "u1 a1 u3", want: "u1 a1 @x u3", wantState: `{}`},
		"all that stood before it is gone":      {parent: "u1 @x a1", input: "s u3", want: "s u3", wantState: `{}`},
		"the input brings its own activity":     {parent: "u1 @x @y a1", input: "u1 @y:new a1", want: "u1 @x @y:new a1", wantState: `{}`},
		"an id that became another message":     {parent: "u1 @x", input: "u1 u2 @x:2", want: "u1 u2 @x:2", wantState: `{}`},
		"the input is in another order":         {parent: "u1 a1 @x u2 @y", input: "u2 u1 a1", want: "u2 @y u1 a1 @x", wantState: `{}`},
		"an id that stands twice":               {parent: "d @x d @y", input: "d d", want: "d @x d @y", wantState: `{}`},
		"its first place is gone":               {parent: "d a @x d @y", input: "a d", want: "a @x d @y", wantState: `{}`},
		"its second place is gone":              {parent: "d a d @y", input: "d a u", want: "d a @y u", wantState: `{}`},
		"nothing but activity is there":         {parent: "@x", input: "u1", want: "@x u1", wantState: `{}`},
		"an input without messages":             {parent: "u1 @x", input: "", want: "", wantState: `{}`},
		"null is a state of the parent's":       {parent: "u1", input: "u1", parentState: `null`, want: "u1", wantState: `null`},
		"the input's state replaces the parent": {parent: "u1", input: "u1", parentState: `{"a":1}`, inputState: `[]`, want: "u1", wantState: `[]`},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			var input *agui.RunAgentInput
			if !tt.noInput {
				input = inputOf(tt.input)
				input.State = state(tt.inputState)
			}
			got := StartHistory(ParentExplicit, History{Messages: msgs(tt.parent), State: state(tt.parentState)}, input)
			if words(got.Messages) != tt.want || string(got.State) != tt.wantState {
				t.Errorf("got %q, %s; want %q, %s", words(got.Messages), got.State, tt.want, tt.wantState)
			}
		})
	}
}

// Law: what a client that holds a history sends without activity messages starts a run from just
// that history, and stands in its record as nothing.
// Ids are unique by the protocol, not by nature: a message may have the id of an activity.
func TestStartHistory_KeepsAnActivityWhoseIDAnotherMessageHas(t *testing.T) {
	const activity, answer = `{"id":"x","role":"activity","activityType":"plan","content":{}}`, `{"id":"x","role":"assistant"}`
	var parent, input []agui.Message
	for list, text := range map[*[]agui.Message]string{&parent: "[" + activity + "," + answer + "," + activity + "]",
		&input: "[" + answer + "]"} {
		if err := json.Unmarshal([]byte(text), list); err != nil {
			t.Fatal(err)
		}
	}
	got, err := json.Marshal(StartHistory(ParentExplicit, History{Messages: parent}, &agui.RunAgentInput{Messages: input}).Messages)
	if err != nil {
		t.Fatal(err)
	}
	if want := "[" + activity + "," + answer + "," + activity + "]"; string(got) != want {
		t.Errorf("got %s, want %s", got, want)
	}
}

func TestStartHistory_OfTheParentsOwnMessagesIsTheParent(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		h := conversationOf(t, "history")
		in := &agui.RunAgentInput{Messages: InputMessages(h)}
		if got := words(StartHistory(ParentExplicit, History{Messages: h}, in).Messages); got != words(h) {
			t.Fatalf("got %q, want %q", got, words(h))
		}
		if own, layout := NormalizeInput(h, in.Messages); own != nil || layout != nil {
			t.Fatalf("own messages %q, layout %v", words(own), layout)
		}
	})
}

func TestNamed_KeepsAMessageThatHasItsID(t *testing.T) {
	parent := msgs("message-r~1:hi :ho")
	input := inputOf("message-r~1:hi :ho message-r~3:and").Messages
	input[0].Raw = []byte(`{"role":"user", "id":"message-r~1", "content":"hi"}`)
	out, renamed := Named("r", parent, input)
	if renamed || string(out[0].Raw) != string(input[0].Raw) || words(out) != words(input) {
		t.Errorf("renamed: %v, %s", renamed, out[0].Raw)
	}
}

func TestFullInput_GivesBackTheInput(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		parent, input := conversationOf(t, "parent"), InputMessages(conversationOf(t, "input"))
		own, layout := NormalizeInput(parent, input)
		got, err := FullInput(parent, own, layout)
		if err != nil {
			t.Fatal(err)
		}
		if words(got) != words(input) {
			t.Fatalf("got %q, want %q", words(got), words(input))
		}
	})
	if _, err := FullInput(nil, nil, agui.Layout{{To: 1}}); err == nil {
		t.Error("a layout that does not fit was applied")
	}
}

func conversationOf(t *rapid.T, name string) []agui.Message {
	vocabulary := strings.Fields("u1 u1:new a1 u2 a2 a2:new u3 @x @x:new @y")
	return msgs(strings.Join(rapid.SliceOfN(rapid.SampledFrom(vocabulary), 0, 8).Draw(t, name), " "))
}

// Law: Restore is Apply, run after run.
func TestRestore_EqualsApplyingEachLayout(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		var chain []Content
		var want History
		for i := range rapid.IntRange(0, 12).Draw(t, "runs") {
			next := conversationOf(t, "next")
			if rapid.IntRange(0, 2).Draw(t, "grows") > 0 {
				next = append(slices.Clone(want.Messages), next...)
			}
			c := Content{RunID: fmt.Sprint(i)}
			if i > 0 {
				c.Base = fmt.Sprint(i - 1)
			}
			if rapid.Bool().Draw(t, "state changes") {
				c.State = json.RawMessage(fmt.Sprintf(`{"n":%d}`, i))
				want.State = c.State
			}
			c.Messages, c.Layout = agui.Diff(want.Messages, next)
			chain, want.Messages = append(chain, c), next
		}
		held := make([]string, len(chain))
		for i, c := range chain {
			held[i] = words(c.Messages)
		}
		got, err := Restore(chain...)
		if err != nil {
			t.Fatal(err)
		}
		if words(got.Messages) != words(want.Messages) || string(got.State) != string(stateOrEmpty(want.State)) {
			t.Fatalf("got %q, %s; want %q, %s", words(got.Messages), got.State, words(want.Messages), want.State)
		}
		// In two parts it is the same, and neither part changes what it was given.
		if cut := rapid.IntRange(0, len(chain)).Draw(t, "cut"); cut > 0 {
			front, err := Restore(chain[:cut]...)
			if err != nil {
				t.Fatal(err)
			}
			before := words(front.Messages)
			whole, err := RestoreFrom(front, chain[cut:]...)
			if err != nil {
				t.Fatal(err)
			}
			if words(whole.Messages) != words(want.Messages) || string(whole.State) != string(got.State) {
				t.Fatalf("in two parts: %q, %s", words(whole.Messages), whole.State)
			}
			if words(front.Messages) != before {
				t.Fatalf("the history of the front became %q, it was %q", words(front.Messages), before)
			}
		}
		for i, c := range chain {
			if words(c.Messages) != held[i] {
				t.Fatalf("the content of run %d became %q, it was %q", i, words(c.Messages), held[i])
			}
		}
	})
}

func TestRestore_RefusesWhatIsNoChain(t *testing.T) {
	for name, chain := range map[string][]Content{
		"the first run's base is not given": {{RunID: "b", Base: "a"}},
		"the bases do not follow":           {{RunID: "a"}, {RunID: "b", Base: "x"}},
		"a layout does not fit":             {{RunID: "a", Layout: agui.Layout{{To: 4}}}},
	} {
		if _, err := Restore(chain...); err == nil {
			t.Errorf("%s: it was restored", name)
		}
	}
}

func TestBaseChain(t *testing.T) {
	bases := map[string]string{"a": "", "b": "a", "c": "b", "gap": "missing", "x": "y", "y": "x", "self": "self"}
	baseOf := func(id string) (string, bool) {
		base, ok := bases[id]
		return base, ok
	}
	got, err := BaseChain("c", baseOf)
	if err != nil || !slices.Equal(got, []string{"a", "b", "c"}) {
		t.Errorf("got %v, %v", got, err)
	}
	for id, want := range map[string]error{"gap": ErrMissingRun, "nobody": ErrMissingRun, "x": ErrBrokenChain, "self": ErrBrokenChain} {
		if _, err := BaseChain(id, baseOf); !errors.Is(err, want) {
			t.Errorf("%s: got %v, want %v", id, err, want)
		}
	}
}
