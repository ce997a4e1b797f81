package conformance_test

import (
	"encoding/json"
	"testing"

	"github.com/skeinhq/skein/test/conformance"
)

func TestDiff_ComparesJSONValues(t *testing.T) {
	tests := []struct {
		name      string
		want, got string
		diff      string
	}{
		{"members in another order", `{"a":1,"b":2}`, `{"b":2,"a":1}`, ""},
		{"numbers written another way", `[1,1.0,1e2]`, `[1.0,1,100]`, ""},
		{"a large number as the client rounds it", `12345678901234567000`, `12345678901234567890`, ""},
		{"escapes of the same character", `"\u00e9\n"`, `"é\u000a"`, ""},
		{"a surrogate pair and its character", `"\ud83d\ude00"`, `"😀"`, ""},
		{"the same half of a pair", `"\ud83d"`, `"\uD83D"`, ""},
		{"two halves of different pairs", `"\ud83d"`, `"\ud83c"`, "state: "},
		{"half a pair and the replacement character", `"\ud83d"`, `"�"`, "state: "},
		{"an escaped backslash before u", `"\\ud83d"`, `"\\ud83c"`, "state: "},
		{"a missing member", `{"a":{"b":1}}`, `{"a":{}}`, "state/a/b: want 1, got no such member"},
		{"a member too many", `{}`, `{"a":null}`, "state/a: want no such member, got null"},
		{"elements in another order", `[1,2]`, `[2,1]`, "state/0: want 1, got 2"},
		{"an element too few", `[1,2]`, `[1]`, "state: want 2 elements, got 1"},
		{"null and false", `null`, `false`, "state: want null, got false"},
		{"an object and an array", `{}`, `[]`, "state: want {}, got []"},
		{"not JSON", `{}`, `{`, "state: decoding"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			c := func(state string) conformance.Conversation {
				return conformance.Conversation{Messages: json.RawMessage(`[]`), State: json.RawMessage(state)}
			}
			got := conformance.Diff(c(tt.want), c(tt.got))
			if (got == "") != (tt.diff == "") || len(got) < len(tt.diff) || got[:len(tt.diff)] != tt.diff {
				t.Errorf("Diff = %q, want %q", got, tt.diff)
			}
		})
	}
}
