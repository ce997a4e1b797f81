package agui

import (
	"encoding/json"
	"testing"

	"pgregory.net/rapid"
)

func TestText_NormalForm(t *testing.T) {
	for in, want := range map[string]string{
		`"plain"`:           `"plain"`,
		`"\u00e9\u4e2d"`:    `"é中"`,
		`"\ud83d\ude00"`:    `"😀"`,
		`"\ud83d"`:          `"\ud83d"`,
		`"\uDE00\uD83D"`:    `"\ude00\ud83d"`,
		`"\ud83dx\ude00"`:   `"\ud83dx\ude00"`,
		`"\/\"\\\b\f\n\r"`:  `"/\"\\\b\f\n\r"`,
		`"\u0000\u001f\t"`:  `"\u0000\u001f\t"`,
		`"<>&\u2028\u003c"`: "\"<>&\u2028<\"",
	} {
		if got := string(TextOf(json.RawMessage(in)).AppendJSON(nil)); got != want {
			t.Errorf("%s: got %s, want %s", in, got, want)
		}
	}
}

// Any way to cut a text into deltas gives the same bytes, and the normal form is its own.
func TestText_AnySplitGivesTheSame(t *testing.T) {
	piece := rapid.SampledFrom([]string{`a`, `é`, `😀`, `\ud83d`, `\ude00`, `\u0041`, `\n`, `\\`, `\"`, `/`, `\/`, `\u2028`})
	rapid.Check(t, func(t *rapid.T) {
		pieces := rapid.SliceOf(piece).Draw(t, "pieces")
		var whole Text
		var resumed Text
		for _, p := range pieces {
			whole = append(whole, p...)
			// A checkpoint in between writes the text and reads it again.
			if rapid.Bool().Draw(t, "checkpoint") {
				resumed = TextOf(resumed.AppendJSON(nil))
			}
			resumed = append(resumed, p...)
		}
		a, b := string(whole.AppendJSON(nil)), string(resumed.AppendJSON(nil))
		if a != b {
			t.Fatalf("%s\n%s", a, b)
		}
		if c := string(TextOf(json.RawMessage(a)).AppendJSON(nil)); c != a {
			t.Fatalf("not a normal form: %s, then %s", a, c)
		}
		var std string
		if err := json.Unmarshal([]byte(a), &std); err != nil {
			t.Fatal(err)
		}
	})
}
