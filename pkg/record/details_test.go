package record_test

import (
	"errors"
	"slices"
	"strings"
	"testing"

	"github.com/skeinhq/skein/pkg/record"
)

func TestDecodePatch_ReadsWhatItNames(t *testing.T) {
	title := func(s string) record.Detail { return record.Detail{Name: record.DetailTitle, Value: s} }
	archived := func(s string) record.Detail { return record.Detail{Name: record.DetailArchived, Value: s} }
	long := strings.Repeat("é", record.MaxTitleBytes/2)
	for text, c := range map[string]struct {
		want      []record.Detail
		canonical string
	}{
		`{"title":"Trip to Oslo"}`:                 {[]record.Detail{title("Trip to Oslo")}, `{"title":"Trip to Oslo"}`},
		` {"archived": true, "title": "a\u0062"} `: {[]record.Detail{title("ab"), archived("true")}, `{"title":"ab","archived":true}`},
		`{"title":null}`:                           {[]record.Detail{title("")}, `{"title":null}`},
		`{"archived":false}`:                       {[]record.Detail{archived("")}, `{"archived":false}`},
		`{"title":"` + long + `"}`:                 {[]record.Detail{title(long)}, `{"title":"` + long + `"}`},
		`{"title":"<b>&\u2028"}`:                   {[]record.Detail{title("<b>&\u2028")}, "{\"title\":\"<b>&\u2028\"}"},
	} {
		got, err := record.DecodePatch([]byte(text))
		if err != nil || !slices.Equal(got, c.want) {
			t.Errorf("%s: %q, %v; want %q", text, got, err, c.want)
		}
		if b := string(record.EncodePatch(got)); b != c.canonical {
			t.Errorf("%s is written as %s, want %s", text, b, c.canonical)
		}
		for _, d := range got {
			if again, err := record.DecodeDetail(d.Name, record.EncodeDetail(d)); err != nil || again != d {
				t.Errorf("%q is read back as %q, %v", d, again, err)
			}
		}
	}
}

func TestDecodePatch_SaysWhatItTakes(t *testing.T) {
	for text, says := range map[string]string{
		``: "want a JSON object", `x`: "want a JSON object", `null`: "want a JSON object", `[]`: "want a JSON object",
		`"a"`:                  "want a JSON object",
		"{\"title\":\"\xff\"}": "want a JSON object", `{"title":"a"} {}`: "want a JSON object",
		`{}`: "the patch is empty", `{"color":1,"title":"a"}`: `"color" is unknown`, `{"Title":"a"}`: `"Title" is unknown`,
		`{"title":7}`: "want a text", `{"title":["a"]}`: "want a text", `{"title":""}`: "not empty", `{"title":"  "}`: "not empty",
		`{"title":"a\nb"}`: "without line feeds", `{"title":"\u0085"}`: "not empty", `{"title":"a\u0000"}`: "without line feeds",
		`{"title":"` + strings.Repeat("x", record.MaxTitleBytes+1) + `"}`: "at most 512 bytes, not 513",
		`{"archived":null}`: "want true or false", `{"archived":"true"}`: "want true or false", `{"archived":1}`: "want true or false",
	} {
		got, err := record.DecodePatch([]byte(text))
		if !errors.Is(err, record.ErrInvalidDetails) || !strings.Contains(err.Error(), says) {
			t.Errorf("%.60s: %q, %v; want an error that says %q", text, got, err, says)
		}
	}
}

// FuzzDecodePatch: no panic; what is read is written and read as the same.
func FuzzDecodePatch(f *testing.F) {
	for _, s := range []string{
		`{"title":"a","archived":true}`, `{"title":null,"archived":false}`, `{"title":"\ud800"}`, `{"title":"\u2028"}`,
	} {
		f.Add([]byte(s))
	}
	f.Fuzz(func(t *testing.T, b []byte) {
		details, err := record.DecodePatch(b)
		if err != nil {
			return
		}
		again, err := record.DecodePatch(record.EncodePatch(details))
		if err != nil || !slices.Equal(again, details) {
			t.Errorf("%q is read back as %q, %v", details, again, err)
		}
	})
}
