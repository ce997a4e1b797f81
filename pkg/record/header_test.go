package record_test

import (
	"errors"
	"reflect"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/skeinhq/skein/pkg/record"
)

func TestHeaders_RoundTrip(t *testing.T) {
	for name, h := range map[string]record.Headers{
		"an event with everything": {Version: 1, Kind: record.KindEvent, RunID: "run/1 🧶", Seq: 42, Agent: "proxy", Traceparent: traceparent},
		"a proxy's own event": {Version: 1, Kind: record.KindEvent, RunID: "r", Seq: 7, Agent: "shop",
			Labels: []record.Label{{Key: "user", Value: "7"}, {Key: "Env"}}, Synthetic: true, Incomplete: 3},
		"seq 0":                      {Version: 1, Kind: record.KindEvent, RunID: "r", Seq: 0},
		"an input without seq":       {Version: 1, Kind: record.KindInput, RunID: "r", Seq: -1},
		"a fence with its kind only": {Version: 1, Kind: record.KindFence, Seq: -1},
		"a position's kind":          {Version: 1, Kind: record.KindProgress, Seq: -1},
		"the largest seq":            {Version: 1, Kind: record.KindEvent, Seq: 1<<63 - 1},
	} {
		t.Run(name, func(t *testing.T) {
			got, err := record.ParseHeaders(h.Encode())
			if err != nil || !got.Equal(h) {
				t.Errorf("headers are %+v, %v; want %+v", got, err, h)
			}
		})
	}
}

func TestHeaders_EncodeWritesTheVersionFirst(t *testing.T) {
	got := record.Headers{Kind: record.KindRun, RunID: "r", Seq: -1}.Encode()
	want := []record.Header{{Key: "skein-version", Value: []byte("1")}, {Key: "skein-kind", Value: []byte("run")},
		{Key: "run-id", Value: []byte("r")}}
	if !reflect.DeepEqual(got, want) {
		t.Errorf("headers are %s, want %s", got, want)
	}
}

func TestParseHeaders_TakesPlainRecordsForEvents(t *testing.T) {
	want := record.Headers{Version: 1, Kind: record.KindEvent, Seq: -1}
	for name, hs := range map[string][]record.Header{
		"none":         nil,
		"others' only": {{Key: "tracestate", Value: []byte("a=1")}, {Key: "traceparent", Value: []byte("00-…")}},
	} {
		t.Run(name, func(t *testing.T) {
			if got, err := record.ParseHeaders(hs); err != nil || !got.Equal(want) {
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
		"a newer version":                     {record.Headers{Version: 2, Seq: -1}.Encode(), record.ErrUnknownVersion},
		"a newer one of a producer":           {one("skein-version", "2"), record.ErrInvalidHeader},
		"version 0":                           {one("skein-version", "0"), record.ErrInvalidHeader},
		"a version with a sign":               {one("skein-version", "+1"), record.ErrInvalidHeader},
		"a version that is a word":            {one("skein-version", "one"), record.ErrInvalidHeader},
		"an empty version":                    {one("skein-version", ""), record.ErrInvalidHeader},
		"an unknown kind":                     {one("skein-kind", "Event"), record.ErrUnknownKind},
		"a negative seq":                      {one("seq", "-1"), record.ErrInvalidHeader},
		"a seq that is a float":               {one("seq", "1.0"), record.ErrInvalidHeader},
		"a seq beyond 63 bits":                {one("seq", "9223372036854775808"), record.ErrInvalidHeader},
		"an empty run id":                     {one("run-id", ""), record.ErrInvalidHeader},
		"a newer version, and another writer": {append(one("skein-writer", "kafka"), one("skein-version", "7")...), record.ErrInvalidHeader},
		"a run id of two dots":                {one("run-id", ".."), record.ErrInvalidHeader},
		"a run id of 513 bytes":               {one("run-id", strings.Repeat("x", 513)), record.ErrInvalidHeader},
		"a run id that is no text":            {one("run-id", "\xff"), record.ErrInvalidHeader},
	} {
		t.Run(name, func(t *testing.T) {
			if _, err := record.ParseHeaders(tc.in); !errors.Is(err, tc.want) {
				t.Errorf("error is %v, want %v", err, tc.want)
			}
		})
	}
}

func TestParseHeaders_NamesBothVersions(t *testing.T) {
	_, err := record.ParseHeaders([]record.Header{
		{Key: "skein-kind", Value: []byte("?")}, {Key: "skein-version", Value: []byte("7")}, {Key: "skein-writer", Value: []byte("skein")},
	})
	want := "reading header skein-version: unknown record version 7, this program knows up to 1"
	if !errors.Is(err, record.ErrUnknownVersion) || err.Error() != want {
		t.Errorf("it says %q, want %q", err, want)
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
		{header(record.HeaderKind, "event"), header(record.HeaderRunID, "r1"), header(record.HeaderSeq, "3"), header(record.HeaderAgent, "a"),
			header("label-a", "1"), header("label-b", "2")},
		{header(record.HeaderAgent, "a"), header("label-a", "1"), header("label-b", "3"), header(record.HeaderSynthetic, "true")},
		{header(record.HeaderAgent, "b"), header("label-a", "1")},
		{header("label-b", "2"), header("label-a", "1"), header("label-a", "1")},
		{header("label-a", "1"), header("label-b", "2"), header("label-a", "4")},
		{header(record.HeaderKind, "input"), header(record.HeaderRunID, "r2")},
		{header(record.HeaderKind, "none"), header(record.HeaderRunID, ""), header(record.HeaderSeq, "x")},
		{header(record.HeaderRunID, "r1"), header(record.HeaderRunID, "r2")},
		{header(record.HeaderKind, "")},
		{header(record.HeaderTraceparent, traceparent), header(record.HeaderTraceparent, "00-…")},
		{header(record.HeaderTraceparent, strings.ToUpper(traceparent)), header(record.HeaderAgent, "a")},
	}
	// What Encode writes, and all that differs from it in one header.
	labels := []record.Label{{Key: "a", Value: "1"}, {Key: "b", Value: "2"}}
	written := record.Headers{Kind: record.KindEvent, RunID: "r", Seq: 4, Agent: "a", Labels: labels, Traceparent: traceparent}.Encode()
	given = append(given, written, written[2:4])
	given = append(given, append(slices.Clip(written), header("x", "y")), append(slices.Clip(written), header("label-c", "3")))
	for i, h := range written {
		given = append(given, slices.Delete(slices.Clone(written), i, i+1), slices.Insert(slices.Clone(written), i, h))
		for _, value := range []string{"", "2", "007", "-1", "+1", "1_0", "12345678901234567890", "input", "b"} {
			other := slices.Clone(written)
			other[i] = header(h.Key, value)
			given = append(given, other)
		}
	}
	for i, like := range given {
		before, _ := record.ParseHeaders(like)
		for j, hs := range given {
			want, wantErr := record.ParseHeaders(hs)
			got, err := record.ParseHeadersLike(hs, &before)
			if !got.Equal(want) || (err == nil) != (wantErr == nil) {
				t.Errorf("%d like %d: got %+v, %v; want %+v, %v", j, i, got, err, want, wantErr)
			}
			if again, err := record.ParseHeadersLike(hs, &want); !again.Equal(want) || (err == nil) != (wantErr == nil) {
				t.Errorf("%d like itself: got %+v, %v", j, again, err)
			}
		}
	}
}

func TestParseHeaders_ReadsLabels(t *testing.T) {
	var many []string
	var first []record.Label
	for i := range 20 {
		key := strconv.Itoa(i)
		many = append(many, "label-"+key, "v")
		if i < 16 {
			first = append(first, record.Label{Key: key, Value: "v"})
		}
	}
	first[3].Value = "w"
	long := strings.Repeat("k", 256)
	for name, c := range map[string]struct {
		in   []string
		want []record.Label
	}{
		"as they come": {[]string{"label-b", "1", "label-A", ""}, []record.Label{{Key: "b", Value: "1"}, {Key: "A"}}},
		"the last of a key": {[]string{"label-b", "1", "label-a", "2", "label-b", "3"},
			[]record.Label{{Key: "b", Value: "3"}, {Key: "a", Value: "2"}}},
		"the first 16":                 {append(many, "label-3", "w"), first},
		"256 bytes":                    {[]string{"label-" + long, long}, []record.Label{{Key: long, Value: long}}},
		"a key of 257 bytes":           {[]string{"label-" + long + "k", "v", "label-a", "1"}, []record.Label{{Key: "a", Value: "1"}}},
		"a value of 257 bytes":         {[]string{"label-a", long + "v"}, nil},
		"no key":                       {[]string{"label-", "v"}, nil},
		"a key that is no text":        {[]string{"label-\xff", "v"}, nil},
		"a value that is no text":      {[]string{"label-a", "\xff"}, nil},
		"other headers, in upper case": {[]string{"Label-a", "1", "labels", "2"}, nil},
	} {
		t.Run(name, func(t *testing.T) {
			if got, err := record.ParseHeaders(headersOf(c.in...)); err != nil || !slices.Equal(got.Labels, c.want) {
				t.Errorf("labels are %q, %v; want %q", got.Labels, err, c.want)
			}
		})
	}
}

func TestParseHeaders_ReadsTheMarkOfTheProxy(t *testing.T) {
	for value, want := range map[string]bool{"true": true, "": false, "false": false, "1": false, "TRUE": false} {
		if got, err := record.ParseHeaders(headersOf("skein-synthetic", value)); err != nil || got.Synthetic != want {
			t.Errorf("%q: synthetic is %t, %v; want %t", value, got.Synthetic, err, want)
		}
	}
}

// headersOf makes headers of names and values in turn.
func headersOf(parts ...string) (hs []record.Header) {
	for i := 0; i < len(parts); i += 2 {
		hs = append(hs, record.Header{Key: parts[i], Value: []byte(parts[i+1])})
	}
	return hs
}
