package agui

import (
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
)

// With Spans an object or an array gives the same as without, whatever part of the text it is.
func TestSpans_ChangeNothing(t *testing.T) {
	long := 0
	for seed := range uint64(20) {
		rng := rand.New(rand.NewPCG(seed, 0))
		text := json.RawMessage(" " + nested(rng, 40) + " ")
		s := SpansOf(text)
		if s != nil {
			long += len(s.starts)
		}
		skipped := 0
		var walk func(v json.RawMessage)
		walk = func(v json.RawMessage) {
			if IsArray(v) || IsObject(v) {
				if end, err := s.skip(v, 0); err != nil || end != len(v) {
					t.Fatalf("seed %d: ends at %d of %d, %v", seed, end, len(v), err)
				}
				if len(v) >= LongSpan {
					skipped++
				}
			}
			with, without := slices.Collect(s.Elements(v)), slices.Collect(Elements(v))
			if fmt.Sprintf("%s", with) != fmt.Sprintf("%s", without) {
				t.Fatalf("seed %d: elements %s, want %s", seed, with, without)
			}
			for i, j := FirstMember(v), FirstMember(v); i >= 0; {
				name, value, next := s.MemberAt(v, i)
				n, want, after := (*Spans)(nil).MemberAt(v, j)
				if string(name) != string(n) || string(value) != string(want) || next != after {
					t.Fatalf("seed %d: member %s: %s, %d; want %s: %s, %d", seed, name, value, next, n, want, after)
				}
				i, j = next, after
				with = append(with, value)
			}
			for _, v := range with {
				walk(v)
			}
		}
		walk(text[1 : len(text)-1])
		if s != nil && skipped != len(s.starts) {
			t.Fatalf("seed %d: %d long values, %d known", seed, skipped, len(s.starts))
		}
	}
	if long == 0 {
		t.Error("nothing long was drawn")
	}
}

// nested is JSON with white space in it, and brackets in strings.
func nested(rng *rand.Rand, depth int) string {
	if depth == 0 || rng.IntN(12) == 0 {
		return `"` + strings.Repeat(`]}\\\"[{`, rng.IntN(100)) + `"`
	}
	var b strings.Builder
	object := rng.IntN(2) == 0
	n := rng.IntN(4)
	for i := range n {
		if i > 0 {
			b.WriteString(" , ")
		}
		if object {
			fmt.Fprintf(&b, `"{\\\"%d" :`, i)
		}
		if i == n-1 {
			b.WriteString(nested(rng, depth-1))
		} else {
			b.WriteString(nested(rng, min(depth-1, 3)))
		}
	}
	if object {
		return "{ " + b.String() + "}"
	}
	return "[" + b.String() + " ]"
}
