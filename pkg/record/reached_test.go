package record_test

import (
	"math"
	"testing"

	"github.com/skeinhq/skein/pkg/record"
)

func TestPositionRecord_RoundTrip(t *testing.T) {
	for _, next := range []int64{0, 1, math.MaxInt64} {
		for _, events := range []string{"", "q83vEjRWeJCrze8SNFZ4kA=="} {
			if got, topic, err := record.DecodePosition(record.EncodePosition(next, events)); err != nil || got != next || topic != events {
				t.Errorf("got %d of %q, %v; want %d of %q", got, topic, err, next, events)
			}
		}
	}
	if got := string(record.EncodePosition(42, "")); got != `{"next":42}` {
		t.Errorf("value is %s", got)
	}
	if got := string(record.EncodePosition(42, "a+/=")); got != `{"next":42,"events":"a+/="}` {
		t.Errorf("value is %s", got)
	}
	if got, _, err := record.DecodePosition([]byte(`{"later":{"a":1}, "next": 7}`)); err != nil || got != 7 {
		t.Errorf("with a member of the future: %d, %v", got, err)
	}
}

func TestDecodePosition_RefusesWhatIsNone(t *testing.T) {
	for _, bad := range []string{``, `{}`, `[]`, `7`, `{"next":-1}`, `{"next":1.5}`, `{"next":"1"}`, `{"next":null}`, `{"next":9223372036854775808}`} {
		if got, _, err := record.DecodePosition([]byte(bad)); err == nil {
			t.Errorf("%s was taken for %d", bad, got)
		}
	}
}

// No run's key can be that of a position or a fence: those have one part.
func TestPositionKey_IsNoRunsKey(t *testing.T) {
	for _, key := range []string{record.PositionKey, record.FenceKey} {
		if parts, err := record.SplitKey(key); err != nil || len(parts) != 1 {
			t.Errorf("%s has the parts %q, %v", key, parts, err)
		}
	}
}
