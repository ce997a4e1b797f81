package lineage

import (
	"slices"
	"strings"
	"testing"

	"pgregory.net/rapid"

	"github.com/skeinhq/skein/pkg/agui"
)

func TestRewritesOf_TellsTheKind(t *testing.T) {
	for name, c := range map[string]struct{ parent, input, want string }{
		"goes on":                                {"u1 a1", "u1 a1 u2", ""},
		"the same again":                         {"u1 a1", "u1 a1", ""},
		"activity messages are not sent":         {"u1 @p a1", "u1 a1 u2", ""},
		"no parent's history":                    {"", "u1", ""},
		"nothing is sent":                        {"u1 a1", "", ""},
		"the front is left out":                  {"u1 a1 u2 a2", "u2 a2 u3", "trimmed"},
		"the middle is left out":                 {"u1 a1 u2 a2", "u1 a2 u3", "trimmed"},
		"a summary in the place of the front":    {"u1 a1 u2 a2", "s u2 a2 u3", "summarised"},
		"a summary in the middle":                {"u1 a1 u2 a2", "u1 s a2 u3", "summarised"},
		"edited in place":                        {"u1 a1", "u1:new a1 u2", "edited"},
		"the last question is edited, same id":   {"u1 a1 u2 a2", "u1 a1 u2:new", "rewound edited"},
		"the last question is edited, new id":    {"u1 a1 u2 a2", "u1 a1 u3", "rewound"},
		"an answer is made anew":                 {"u1 a1", "u1", "rewound"},
		"a system prompt in front":               {"u1 a1", "sys u1 a1 u2", "inserted"},
		"another order":                          {"u1 a1 u2", "a1 u1 u2", "reordered"},
		"nothing is left":                        {"u1 a1", "s u2", "replaced"},
		"trimmed, and edited":                    {"u1 a1 u2", "a1:new u2 u3", "trimmed edited"},
		"trimmed at both ends":                   {"u1 a1 u2 a2", "a1 u3", "trimmed rewound"},
		"an id that stands twice":                {"x y x:2", "x y x:2 u", ""},
		"the second of an id that stood twice":   {"x y x:2", "x y u", "rewound"},
		"an id of the history stands once more":  {"x y", "x y x", ""},
		"one stands once more, before the last":  {"x y", "x x y", "inserted"},
		"an activity of the id of a message":     {"u1 @a a", "u1 a u2", ""},
		"a summary, and the end is left out too": {"u1 a1 u2 a2", "s u2 u3", "summarised rewound"},
	} {
		t.Run(name, func(t *testing.T) {
			var got []string
			for _, r := range RewritesOf(msgs(c.parent), msgs(c.input)) {
				got = append(got, string(r))
				if !slices.Contains(Rewrites, r) {
					t.Errorf("Rewrites lacks %s", r)
				}
			}
			if strings.Join(got, " ") != c.want {
				t.Errorf("%q, want %q", got, c.want)
			}
		})
	}
}

// Law: an input has no rewrite exactly where the history, activity messages aside, is its front; then
// and only then does nothing of the history change.
func TestRewritesOf_NoneExactlyWhereTheInputGoesOn(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		some := rapid.SliceOfN(rapid.SampledFrom([]string{"a", "a:2", "b", "c", "d:1", "@p"}), 1, 6)
		parent := msgs(strings.Join(some.Draw(t, "parent"), " "))
		input := msgs(strings.Join(some.Draw(t, "input"), " "))
		if rapid.Bool().Draw(t, "goes on") {
			input = slices.Concat(InputMessages(parent), input)
		}
		history, sent := InputMessages(parent), InputMessages(input)
		goesOn := len(history) == 0 || len(sent) == 0 || len(sent) >= len(history) && slices.EqualFunc(history, sent[:len(history)],
			func(a, b agui.Message) bool { return a.ID == b.ID && string(a.Raw) == string(b.Raw) })
		if got := RewritesOf(parent, input); (len(got) == 0) != goesOn {
			t.Fatalf("%s to %s: %q", words(parent), words(input), got)
		}
	})
}
