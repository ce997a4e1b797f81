package record_test

import (
	"math"
	"testing"

	"github.com/skeinhq/skein/pkg/record"
)

func TestPositionRecord_RoundTrip(t *testing.T) {
	for _, next := range []int64{0, 1, math.MaxInt64} {
		for _, events := range []string{"", "q83vEjRWeJCrze8SNFZ4kA=="} {
			for _, want := range []record.Progress{{Next: next, Events: events},
				{Next: next, Events: events, Committed: next, Processed: math.MaxInt64, Partitions: 3, StreamTime: 1788264000000,
					Gap: record.Gap{End: 3, Until: 5}}} {
				if got, err := record.DecodeProgress(record.EncodeProgress(want)); err != nil || got != want {
					t.Errorf("got %+v, %v; want %+v", got, err, want)
				}
			}
		}
	}
	if got := string(record.EncodeProgress(record.Progress{Next: 42})); got != `{"next":42}` {
		t.Errorf("value is %s", got)
	}
	if got := string(record.EncodeProgress(record.Progress{Next: 42, Events: "a+/=", Processed: 43, Partitions: 2})); got != `{"next":42,"events":"a+/=","processed":43,"partitions":2}` {
		t.Errorf("value is %s", got)
	}
	if got, err := record.DecodeProgress([]byte(`{"later":{"a":1}, "next": 7}`)); err != nil || got.Next != 7 {
		t.Errorf("with a member of the future: %v, %v", got, err)
	}
}

func TestParseMetadata(t *testing.T) {
	for _, want := range []record.Progress{
		{Processed: 7, Partitions: 12}, {Processed: 7, Partitions: 12, StreamTime: 1788264000000},
		{Processed: 7, Partitions: 12, Gap: record.Gap{End: 7}},
		{Processed: math.MaxInt64, Partitions: 1, StreamTime: 8, Gap: record.Gap{End: math.MaxInt64, Until: 1788264000000}},
	} {
		if got, err := record.ParseMetadata(want.Metadata()); err != nil || got != want {
			t.Errorf("%q is %+v, %v", want.Metadata(), got, err)
		}
	}
	for _, bad := range []string{"", "7", "skein2 p=7 n=12", "skein1 p=7 n=12 t=x", "skein1 p=7 n=12 g=7"} {
		if got, err := record.ParseMetadata(bad); err == nil {
			t.Errorf("%q is %+v", bad, got)
		}
	}
}

func TestDecodeProgress_RefusesWhatIsNone(t *testing.T) {
	for _, bad := range []string{``, `{}`, `[]`, `7`, `{"next":-1}`, `{"next":1.5}`, `{"next":"1"}`, `{"next":null}`, `{"next":9223372036854775808}`, `{"next":1,"committed":2,"processed":1}`, `{"next":1,"committed":-1}`} {
		if got, err := record.DecodeProgress([]byte(bad)); err == nil {
			t.Errorf("%s was taken for %v", bad, got)
		}
	}
}

// No run's key can be that of a position or a fence: those have one part.
func TestProgressKey_IsNoRunsKey(t *testing.T) {
	for _, key := range []string{record.ProgressKey, record.FenceKey} {
		if parts, err := record.SplitKey(key); err != nil || len(parts) != 1 {
			t.Errorf("%s has the parts %q, %v", key, parts, err)
		}
	}
}
