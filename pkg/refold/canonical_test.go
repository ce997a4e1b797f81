package refold

import (
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
