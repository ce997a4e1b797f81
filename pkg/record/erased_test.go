package record_test

import (
	"math"
	"testing"

	"github.com/skeinhq/skein/pkg/record"
)

func TestErasureRecord_RoundTrip(t *testing.T) {
	for _, below := range []int64{0, 1, math.MaxInt64} {
		if got, err := record.DecodeErased(record.EncodeErased(below)); err != nil || got != below {
			t.Errorf("got %d, %v; want %d", got, err, below)
		}
	}
	if got := string(record.EncodeErased(42)); got != `{"below":42}` {
		t.Errorf("value is %s", got)
	}
}

func TestDecodeErased_RefusesWhatIsNone(t *testing.T) {
	for _, bad := range []string{``, `{}`, `[]`, `7`, `{"below":-1}`, `{"below":1.5}`, `{"below":"1"}`, `{"below":null}`} {
		if got, err := record.DecodeErased([]byte(bad)); err == nil {
			t.Errorf("%s was taken for %d", bad, got)
		}
	}
}
