package record_test

import (
	"bytes"
	"encoding/json"
	"testing"

	"github.com/skeinhq/skein/pkg/record"
)

func TestCompacted_LeavesOutWhatJSONDoes(t *testing.T) {
	for _, v := range []string{
		`{}`, `{"a":1}`, ` {"a" : "b \" c"} `, `["\\", "\\\" ", "\"" , "\\\\"]`, `["\\\\\\\" x","y"]`, "[1,\n2]", "{\"a\":\t\"\"}", `"a b"`, `["a","b \\"]`, `["a" ,"b"]`, `"`, `"\`, `["\"`,
	} {
		want := v
		var b bytes.Buffer
		if err := json.Compact(&b, []byte(v)); err == nil {
			want = b.String()
		}
		if got := record.Compacted([]byte(v)); string(got) != want {
			t.Errorf("%s becomes %s, want %s", v, got, want)
		}
	}
}
