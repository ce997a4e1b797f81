package record_test

import (
	"errors"
	"reflect"
	"strings"
	"testing"

	"github.com/skeinhq/skein/pkg/record"
)

func TestHeaders_RoundTrip(t *testing.T) {
	for name, h := range map[string]record.Headers{
		"an event with everything":   {Version: 1, Kind: record.KindEvent, RunID: "run/1 🧶", Seq: 42, Source: "proxy"},
		"seq 0":                      {Version: 1, Kind: record.KindEvent, RunID: "r", Seq: 0},
		"an input without seq":       {Version: 1, Kind: record.KindInput, RunID: "r", Seq: -1},
		"a fence with its kind only": {Version: 1, Kind: record.KindFence, Seq: -1},
		"a position's kind":          {Version: 1, Kind: record.KindPosition, Seq: -1},
		"the largest seq":            {Version: 1, Kind: record.KindEvent, Seq: 1<<63 - 1},
	} {
		t.Run(name, func(t *testing.T) {
			got, err := record.ParseHeaders(h.Encode())
			if err != nil || got != h {
				t.Errorf("headers are %+v, %v; want %+v", got, err, h)
			}
		})
	}
}

func TestHeaders_EncodeWritesTheVersionFirst(t *testing.T) {
	got := record.Headers{Kind: record.KindRun, RunID: "r", Seq: -1}.Encode()
	want := []record.Header{{Key: "skein-version", Value: []byte("1")}, {Key: "skein-kind", Value: []byte("run")}, {Key: "run-id", Value: []byte("r")}}
	if !reflect.DeepEqual(got, want) {
		t.Errorf("headers are %s, want %s", got, want)
	}
}

func TestParseHeaders_TakesPlainRecordsForEvents(t *testing.T) {
	want := record.Headers{Version: 1, Kind: record.KindEvent, Seq: -1}
	for name, hs := range map[string][]record.Header{
		"none":         nil,
		"others' only": {{Key: "traceparent", Value: []byte("00-…")}},
	} {
		t.Run(name, func(t *testing.T) {
			if got, err := record.ParseHeaders(hs); err != nil || got != want {
				t.Errorf("headers are %+v, %v; want %+v", got, err, want)
			}
		})
	}
}

func TestParseHeaders_LastOfARepeatedOneCounts(t *testing.T) {
	got, err := record.ParseHeaders([]record.Header{{Key: "run-id", Value: []byte("a")}, {Key: "run-id", Value: []byte("b")}})
	if err != nil || got.RunID != "b" {
		t.Errorf("run id is %q, %v; want b", got.RunID, err)
	}
}

func TestParseHeaders_RefusesWhatItDoesNotKnow(t *testing.T) {
	one := func(key, value string) []record.Header { return []record.Header{{Key: key, Value: []byte(value)}} }
	for name, tc := range map[string]struct {
		in   []record.Header
		want error
	}{
		"a newer version":          {one("skein-version", "2"), record.ErrUnknownVersion},
		"version 0":                {one("skein-version", "0"), record.ErrInvalidHeader},
		"a version with a sign":    {one("skein-version", "+1"), record.ErrInvalidHeader},
		"a version that is a word": {one("skein-version", "one"), record.ErrInvalidHeader},
		"an empty version":         {one("skein-version", ""), record.ErrInvalidHeader},
		"an unknown kind":          {one("skein-kind", "Event"), record.ErrInvalidHeader},
		"a negative seq":           {one("seq", "-1"), record.ErrInvalidHeader},
		"a seq that is a float":    {one("seq", "1.0"), record.ErrInvalidHeader},
		"a seq beyond 63 bits":     {one("seq", "9223372036854775808"), record.ErrInvalidHeader},
		"an empty run id":          {one("run-id", ""), record.ErrInvalidHeader},
		"a run id of two dots":     {one("run-id", ".."), record.ErrInvalidHeader},
		"a run id of 513 bytes":    {one("run-id", strings.Repeat("x", 513)), record.ErrInvalidHeader},
		"a run id that is no text": {one("run-id", "\xff"), record.ErrInvalidHeader},
	} {
		t.Run(name, func(t *testing.T) {
			if _, err := record.ParseHeaders(tc.in); !errors.Is(err, tc.want) {
				t.Errorf("error is %v, want %v", err, tc.want)
			}
		})
	}
}

func TestParseHeaders_ReturnsWhatItCouldRead(t *testing.T) {
	got, err := record.ParseHeaders([]record.Header{
		{Key: "skein-kind", Value: []byte("input")}, {Key: "seq", Value: []byte("x")}, {Key: "run-id", Value: []byte("r")},
	})
	if !errors.Is(err, record.ErrInvalidHeader) || got.Kind != record.KindInput || got.RunID != "r" || got.Seq != -1 {
		t.Errorf("headers are %+v, %v", got, err)
	}
}

func TestParseHeadersLike_SaysTheSameWhateverItIsLike(t *testing.T) {
	header := func(k, v string) record.Header { return record.Header{Key: k, Value: []byte(v)} }
	given := [][]record.Header{
		nil,
		{header(record.HeaderKind, "event"), header(record.HeaderRunID, "r1"), header(record.HeaderSeq, "3"), header(record.HeaderSource, "a")},
		{header(record.HeaderKind, "input"), header(record.HeaderRunID, "r2"), header(record.HeaderSource, "")},
		{header(record.HeaderKind, "none"), header(record.HeaderRunID, ""), header(record.HeaderSeq, "x")},
		{header(record.HeaderRunID, "r1"), header(record.HeaderRunID, "r2")},
		{header(record.HeaderKind, "")},
	}
	for i, like := range given {
		before, _ := record.ParseHeaders(like)
		for j, hs := range given {
			want, wantErr := record.ParseHeaders(hs)
			got, err := record.ParseHeadersLike(hs, before)
			if got != want || (err == nil) != (wantErr == nil) {
				t.Errorf("%d like %d: got %+v, %v; want %+v, %v", j, i, got, err, want, wantErr)
			}
			if again, err := record.ParseHeadersLike(hs, want); again != want || (err == nil) != (wantErr == nil) {
				t.Errorf("%d like itself: got %+v, %v", j, again, err)
			}
		}
	}
}
