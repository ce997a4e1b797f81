package ingest

import (
	"fmt"
	"net/http"
	"strings"
	"testing"

	"github.com/skeinhq/skein/pkg/record"
)

func TestPatch_IsARecordOfTheThread(t *testing.T) {
	d := newStage(t).in(t, "a/b c")
	if a := d.post(typeNDJSON, ev1); a.status != http.StatusOK {
		t.Fatalf("answer is %d %s", a.status, a.body)
	}
	for i, mediaType := range []string{typeJSON, typeMergePatch, ""} {
		a := d.do(http.MethodPatch, "/v1/threads/a%2Fb%20c", strings.NewReader(`{ "archived":true, "title":"Trip to\u0020Oslo" }`),
			"Content-Type", mediaType)
		rs := d.records()
		if a.status != http.StatusOK || len(rs) != i+2 {
			t.Fatalf("answer is %d %s, and there are %d records", a.status, a.body, len(rs))
		}
		last := rs[len(rs)-1]
		h, err := record.ParseHeaders(last.Headers)
		if want := (record.Headers{Version: 1, Kind: record.KindThread, Seq: -1}); err != nil || !h.Equal(want) ||
			string(last.Key) != "dev/a%2Fb%20c" || string(last.Value) != `{"title":"Trip to Oslo","archived":true}` {
			t.Errorf("record is %s %+v %s, %v; want %+v", last.Key, h, last.Value, err, want)
		}
		if want := fmt.Sprintf(`{"partition":%d,"offset":%d}`, rs[0].Partition, last.Offset); strings.TrimSpace(a.body) != want {
			t.Errorf("answer is %s, want %s", a.body, want)
		}
	}
}

func TestPatch_RefusesWhatIsNoPatch(t *testing.T) {
	d := newStage(t)
	for name, c := range map[string]struct {
		contentType, body string
		status            int
		reason, says      string
	}{
		"nothing":             {typeJSON, ``, 400, "schema", `want a JSON object such as {"title": "Trip to Oslo"}`},
		"not JSON":            {typeJSON, `title`, 400, "schema", "want a JSON object"},
		"an unknown member":   {typeJSON, `{"titel":"a"}`, 400, "schema", `"titel" is unknown`},
		"an empty patch":      {typeJSON, `{}`, 400, "schema", "the patch is empty"},
		"a number as title":   {typeJSON, `{"title":1}`, 400, "schema", "title: want a text"},
		"a long title":        {typeJSON, `{"title":"` + strings.Repeat("x", 513) + `"}`, 400, "schema", "at most 512 bytes, not 513"},
		"a title of lines":    {typeJSON, `{"title":"a\nb"}`, 400, "schema", "without line feeds"},
		"archived as a text":  {typeJSON, `{"archived":"yes"}`, 400, "schema", "archived: want true or false"},
		"a long body":         {typeJSON, `{"title":"` + strings.Repeat("x", 10<<10) + `"}`, 413, "too-large", ""},
		"another form":        {"text/plain", `{"title":"a"}`, 415, "media-type", "application/json"},
		"a form for the body": {typeNDJSON, `{"title":"a"}`, 415, "media-type", "application/json"},
	} {
		t.Run(name, func(t *testing.T) {
			d := d.in(t, name)
			a := d.do(http.MethodPatch, "/v1/threads/t", strings.NewReader(c.body), "Content-Type", c.contentType)
			if a.status != c.status || a.Reason != c.reason || !strings.Contains(a.Detail, c.says) {
				t.Errorf("answer is %d %s, want %d %s that says %q", a.status, a.body, c.status, c.reason, c.says)
			}
			if got := d.records(); len(got) != 0 {
				t.Errorf("written are %d records, want none", len(got))
			}
		})
	}
}
