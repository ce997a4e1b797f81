package main

import (
	"slices"
	"strings"
	"testing"
)

func TestDiffering_NamesKeysOfEither(t *testing.T) {
	before := map[string][]byte{"same": []byte("1"), "other": []byte("a long text, and its end"), "gone": []byte("1"), "empty": nil}
	after := map[string][]byte{"same": []byte("1"), "other": []byte("a long text, and an end"), "new": []byte("1"), "empty": nil}
	if got := differing(before, after); !slices.Equal(got, []string{"gone", "new", "other"}) {
		t.Errorf("%q differ", got)
	}
	got := difference(before["other"], after["other"])
	for _, want := range []string{"from byte 17 on", "- a long text, and its end", "+ a long text, and an end"} {
		if !strings.Contains(got, want) {
			t.Errorf("the difference has no %q: %s", want, got)
		}
	}
}
