package ingest

import (
	"net/http"
	"strings"
	"testing"

	"github.com/skeinhq/skein/pkg/record"
)

const input1 = `{"threadId":"t1", "runId":"r1","messages":[{"id":"m","role":"user","content":"hi"}],"tools":[],"context":[],"state":{"n":1.0},"forwardedProps":{}}`

func TestInput_IsWrittenAsItCame(t *testing.T) {
	d := newStage(t)
	for name, tc := range map[string]struct{ contentType, encoding, body string }{
		"JSON":                  {"application/json", "", input1},
		"JSON with a charset":   {"application/json; charset=UTF-8", "", input1},
		"no content type":       {"", "", input1},
		"space and a byte mark": {"application/json", "", "\ufeff\n " + input1 + "\r\n"},
		"gzip":                  {"application/json", "gzip", gzipped(t, input1)},
		"zstd":                  {"application/json", "zstd", zstandard(t, input1)},
	} {
		t.Run(name, func(t *testing.T) {
			d := d.in(t, name)
			a := d.do(http.MethodPut, d.path("input"), strings.NewReader(tc.body), "Content-Type", tc.contentType, "Content-Encoding", tc.encoding)
			if a.status != http.StatusOK {
				t.Fatalf("answer is %d %s", a.status, a.body)
			}
			rs := d.records()
			if len(rs) != 1 || string(rs[0].Value) != input1 || rs[0].Partition != a.Partition || rs[0].Offset != a.Offset {
				t.Fatalf("records are %v; answer is %s", rs, a.body)
			}
			h, err := record.ParseHeaders(rs[0].Headers)
			if want := (record.Headers{Version: 1, Kind: record.KindInput, RunID: "r1", Seq: -1}); err != nil || !h.Equal(want) {
				t.Errorf("headers are %+v, %v; want %+v", h, err, want)
			}
		})
	}
}

func TestInput_BadDataIsRefused(t *testing.T) {
	d := newStage(t)
	for name, tc := range map[string]struct {
		contentType, body string
		status            int
		reason            string
	}{
		"nothing":               {typeJSON, "", 400, "not-json"},
		"not JSON":              {typeJSON, "x", 400, "not-json"},
		"cut":                   {typeJSON, input1[:40], 400, "not-json"},
		"two of them":           {typeJSON, input1 + input1, 400, "not-json"},
		"an array":              {typeJSON, "[" + input1 + "]", 400, "not-an-object"},
		"no messages":           {typeJSON, `{"threadId":"t1","runId":"r1"}`, 400, "schema"},
		"messages that are not": {typeJSON, `{"threadId":"t1","runId":"r1","messages":[1]}`, 400, ""},
		"too deep":              {typeJSON, `{"messages":[],"state":` + strings.Repeat("[", 600) + strings.Repeat("]", 600) + "}", 400, "too-deep"},
		"too large":             {typeJSON, strings.Replace(input1, "hi", strings.Repeat("h", 5000), 1), 413, "too-large"},
		"far too large":         {typeJSON, strings.Replace(input1, "hi", strings.Repeat("h", 500000), 1), 413, "too-large"},
		"NDJSON":                {typeNDJSON, input1, 415, "media-type"},
	} {
		t.Run(name, func(t *testing.T) {
			d := d.in(t, name)
			a := d.do(http.MethodPut, d.path("input"), strings.NewReader(tc.body), "Content-Type", tc.contentType)
			if a.status != tc.status || (tc.reason != "" && a.Reason != tc.reason) {
				t.Errorf("answer is %d %s, want %d %s", a.status, a.body, tc.status, tc.reason)
			}
			wantTypes(t, a, typeJSON)
			if got := d.written(); len(got) != 0 {
				t.Errorf("written is %q, want nothing", got)
			}
		})
	}
}
