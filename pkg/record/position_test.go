package record_test

import (
	"encoding/json"
	"testing"

	"github.com/skeinhq/skein/pkg/record"
)

func TestPosition_RoundTrip(t *testing.T) {
	p := record.Position{Partition: 3, Offset: 1 << 60}
	b, err := json.Marshal(p)
	if err != nil || string(b) != `"3:1152921504606846976"` {
		t.Fatalf("position is %s, %v", b, err)
	}
	var back record.Position
	if err := json.Unmarshal(b, &back); err != nil || back != p {
		t.Errorf("position is %v, %v; want %v", back, err, p)
	}
}

func TestParsePosition_RefusesOtherForms(t *testing.T) {
	for _, s := range []string{"", "3", ":", "3:", ":4", "-1:4", "3:-4", "+3:4", "3:4:5", " 3:4", "3:4 ", "2147483648:0",
		"0:9223372036854775808"} {
		if p, err := record.ParsePosition(s); err == nil {
			t.Errorf("%q is taken for %v", s, p)
		}
	}
}
