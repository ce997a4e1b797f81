package fold

import (
	"encoding/json"
	"testing"

	"github.com/skeinhq/skein/pkg/agui"
)

// What a record holds already is not looked into again; everything else comes out without white space.
func TestCompactedAll_LooksAtNewMessagesOnly(t *testing.T) {
	spaced := func(id string) agui.Message { return agui.Message{ID: id, Raw: []byte(`{ "id":"` + id + `"}`)} }
	bare := func(id string) string { return `{"id":"` + id + `"}` }
	a, b, c := spaced("a"), spaced("b"), spaced("c") // never in a record: so that a look into one shows
	for name, tc := range map[string]struct {
		messages []agui.Message
		want     []string
	}{
		"one is added":             {[]agui.Message{a, b, c, spaced("d")}, []string{string(a.Raw), string(b.Raw), string(c.Raw), bare("d")}},
		"one is replaced":          {[]agui.Message{a, spaced("b"), c}, []string{string(a.Raw), bare("b"), string(c.Raw)}},
		"one is put in between":    {[]agui.Message{a, spaced("x"), b, c}, []string{string(a.Raw), bare("x"), string(b.Raw), string(c.Raw)}},
		"equal text, other memory": {[]agui.Message{spaced("a")}, []string{bare("a")}},
		"nothing":                  {nil, nil},
	} {
		t.Run(name, func(t *testing.T) {
			before := append([]agui.Message(nil), tc.messages...)
			got := compactedAll([]agui.Message{a, b, c}, tc.messages)
			if len(got) != len(tc.want) {
				t.Fatalf("%d messages", len(got))
			}
			for i, m := range got {
				if string(m.Raw) != tc.want[i] {
					t.Errorf("message %d is %s, want %s", i, m.Raw, tc.want[i])
				}
				if string(tc.messages[i].Raw) != string(before[i].Raw) {
					t.Errorf("the list that was given is changed at %d", i)
				}
			}
		})
	}
}

func TestSameValue_TellsValuesApart(t *testing.T) {
	for name, c := range map[string]struct {
		a, b string
		want bool
	}{
		"another order of members":               {`{"a":1,"b":"x"}`, `{"b":"x","a":1}`, true},
		"an escape for a character":              {`["\u00e9"]`, `["é"]`, true},
		"a pair as escapes":                      {`["\uD83D\uDE00"]`, `["😀"]`, true},
		"half a pair, in another order":          {`{"a":"\ud83d","b":1}`, `{"b":1,"a":"\uD83D"}`, true},
		"another half":                           {`{"a":"\ud83d","b":1}`, `{"b":1,"a":"\ud83e"}`, false},
		"half a pair, and the sign for none":     {`{"a":"\ud83d","b":1}`, `{"b":1,"a":"\ufffd"}`, false},
		"two halves the wrong way round":         {`["\ude00\ud83d"]`, `["\uDE00\uD83D"]`, true},
		"half a pair, and its name as text":      {`["\ud83d"]`, `["\\ud83d"]`, false},
		"half a pair, and what stands for it":    {`["\ud83d"]`, "[\"\U0010FFFFd83d\"]", false},
		"half a pair, and the same as escapes":   {`["\ud83d"]`, `["\uDBFF\uDFFFd83d"]`, false},
		"a number written in another way":        {`[1.0]`, `[1]`, false},
		"a number that no float holds, as it is": {`{"a":12345678901234567890,"b":1}`, `{"b":1,"a":12345678901234567890}`, true},
	} {
		t.Run(name, func(t *testing.T) {
			if got := sameValue(json.RawMessage(c.a), json.RawMessage(c.b)); got != c.want {
				t.Errorf("%s and %s: %t", c.a, c.b, got)
			}
		})
	}
}
