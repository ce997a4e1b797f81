package ingest

import (
	"bytes"
	"compress/gzip"
	"fmt"
	"io"
	"net/http"
	"slices"
	"strings"
	"testing"

	"github.com/klauspost/compress/zstd"

	"github.com/skeinhq/skein/pkg/record"
)

const (
	ev1 = `{"type":"RUN_STARTED","threadId":"t1","runId":"r1"}`
	ev2 = `{ "type" : "CUSTOM", "b":1,"a":1.10, "name":"\ud83e", "value":null}`
	ev3 = `{"type":"NEVER_HEARD_OF","x":[{"}":"]\\\""}]}`
)

func gzipped(t testing.TB, s string) string {
	t.Helper()
	var b bytes.Buffer
	w := gzip.NewWriter(&b)
	if _, err := io.WriteString(w, s); err != nil {
		t.Fatal(err)
	}
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	return b.String()
}

func zstandard(t testing.TB, s string) string {
	t.Helper()
	w, err := zstd.NewWriter(nil)
	if err != nil {
		t.Fatal(err)
	}
	return string(w.EncodeAll([]byte(s), nil))
}

func TestEvents_EveryFormKeepsTheBytes(t *testing.T) {
	shared := newStage(t)
	lines := ev1 + "\n" + ev2 + "\n" + ev3 + "\n"
	sse := "data: " + ev1 + "\n\ndata: " + ev2 + "\n\ndata: " + ev3 + "\n\n"
	for name, tc := range map[string]struct {
		contentType, encoding, body string
		want                        []string
	}{
		"NDJSON":                 {"application/x-ndjson", "", lines, nil},
		"NDJSON with a charset":  {"application/x-ndjson; charset=utf-8", "", lines, nil},
		"JSON lines":             {"application/jsonl", "", lines, nil},
		"no content type":        {"", "", lines, nil},
		"no last line feed":      {"", "", strings.TrimSuffix(lines, "\n"), nil},
		"CRLF and indentation":   {"", "", " " + ev1 + "\r\n\t" + ev2 + "  \r\n" + ev3 + "\r\n", nil},
		"empty lines":            {"", "", "\n\n" + ev1 + "\n \n" + ev2 + "\n\r\n" + ev3 + "\n\n", nil},
		"a byte order mark":      {"", "", "\ufeff" + lines, nil},
		"an array":               {"application/json", "", "[" + ev1 + "," + ev2 + "," + ev3 + "]", nil},
		"an array with space":    {"application/json", "", "\ufeff \n[\n " + ev1 + " ,\n\t" + ev2 + "\r\n,\n" + ev3 + "\n]\n \n", nil},
		"an empty array":         {"application/json", "", " [ ] ", []string{}},
		"an empty body":          {"application/x-ndjson", "", "", []string{}},
		"SSE":                    {"text/event-stream", "", sse, nil},
		"SSE with CRLF":          {"text/event-stream", "", strings.ReplaceAll(sse, "\n", "\r\n"), nil},
		"SSE with CR":            {"text/event-stream", "", strings.ReplaceAll(sse, "\n", "\r"), nil},
		"SSE with all line ends": {"text/event-stream", "", "data: " + ev1 + "\r\rdata: " + ev2 + "\r\n\n: x\rdata: " + ev3 + "\n\r", nil},
		"SSE without a last gap": {"text/event-stream", "", strings.TrimSuffix(sse, "\n\n"), nil},
		"SSE with no space":      {"text/event-stream", "", strings.ReplaceAll(sse, "data: ", "data:"), nil},
		"SSE with all its fields": {"text/event-stream", "",
			": hello\n\nid: 7\nevent: message\nretry: 10\ndata: " + ev1 + "\n\ndata\n\ndata:\n\n:\ndata: " + ev2 + "\n\nnonsense\ndata: " + ev3 +
				"\n\n", nil},
		"SSE in several lines": {"text/event-stream", "", "data: {\ndata: \"type\":\ndata:  \"X\"}\n\n",
			[]string{"{\n\"type\":\n \"X\"}"}},
		"an empty SSE body":           {"text/event-stream", "", "", []string{}},
		"gzip":                        {"", "gzip", gzipped(t, lines), nil},
		"zstd":                        {"", "zstd", zstandard(t, lines), nil},
		"gzip of an array":            {"application/json", "gzip", gzipped(t, "["+ev1+","+ev2+","+ev3+"]"), nil},
		"zstd of SSE":                 {"text/event-stream", "ZSTD", zstandard(t, sse), nil},
		"numbered":                    {"application/vnd.skein.events+ndjson", "", `{"seq":0,"event":` + ev1 + "}\n" + `{ "event": ` + ev2 + ` , "seq" : 1 , "later":{}}` + "\n" + `{"seq":2,"event":` + ev3 + "}", nil},
		"numbered, a member twice":    {"application/vnd.skein.events+ndjson", "", `{"seq":9,"event":{},"seq":0,"event":` + ev1 + "}", []string{ev1}},
		"events of another thread":    {"", "", `{"type":"RUN_STARTED","threadId":"other","runId":"other"}`, []string{`{"type":"RUN_STARTED","threadId":"other","runId":"other"}`}},
		"an event the client rejects": {"", "", `{"type":"TEXT_MESSAGE_START"}`, []string{`{"type":"TEXT_MESSAGE_START"}`}},
	} {
		t.Run(name, func(t *testing.T) {
			d := shared.in(t, name)
			if tc.want == nil {
				tc.want = []string{ev1, ev2, ev3}
			}
			a := d.do(http.MethodPost, d.path("events"), strings.NewReader(tc.body), "Content-Type", tc.contentType, "Content-Encoding", tc.encoding)
			if a.status != http.StatusOK || a.Accepted != int64(len(tc.want)) {
				t.Fatalf("answer is %d %s, want %d accepted", a.status, a.body, len(tc.want))
			}
			if got := d.written(); !slices.Equal(got, tc.want) {
				t.Errorf("written is\n%q, want\n%q", got, tc.want)
			}
			first, last := int64(-1), int64(-1)
			if rs := d.records(); len(rs) > 0 {
				first, last = rs[0].Offset, rs[len(rs)-1].Offset
			}
			if a.FirstOffset != first || a.LastOffset != last {
				t.Errorf("offsets are %d to %d, want %d to %d", a.FirstOffset, a.LastOffset, first, last)
			}
		})
	}
}

func TestEvents_RecordsSayWhereTheyBelong(t *testing.T) {
	d := newStage(t)
	thread, run := "a/b %🧶", "r/\u200b"
	path := "/v1/threads/a%2Fb%20%25%F0%9F%A7%B6/runs/r%2F%E2%80%8B/events"
	a := d.do(http.MethodPost, path, strings.NewReader(`{"seq":5,"event":`+ev1+`}`), "Content-Type", typeSequenced)
	if a.status != http.StatusOK {
		t.Fatalf("answer is %d %s", a.status, a.body)
	}
	key, err := record.ThreadKey("dev", thread)
	if err != nil {
		t.Fatal(err)
	}
	r := d.in(t, thread).records()[0]
	if string(r.Key) != key || r.Partition != record.Partition([]byte(key), 3) || r.Partition != a.Partition || r.Offset != a.FirstOffset {
		t.Errorf("record has key %q, %d:%d; want %q; the answer says %d:%d", r.Key, r.Partition, r.Offset, key, a.Partition, a.FirstOffset)
	}
	h, err := record.ParseHeaders(r.Headers)
	if want := (record.Headers{Version: 1, Kind: record.KindEvent, RunID: run, Seq: 5}); err != nil || !h.Equal(want) {
		t.Errorf("headers are %+v, %v; want %+v", h, err, want)
	}
}

func TestEvents_BadDataEndsTheRequestAndKeepsWhatCameBefore(t *testing.T) {
	shared := newStage(t)
	deep := `{"type":"X","v":` + strings.Repeat("[", 600) + strings.Repeat("]", 600) + "}"
	large := `{"type":"X","v":"` + strings.Repeat("v", 5000) + `"}`
	fits := `{"type":"X","v":"` + strings.Repeat("v", 4<<10-len(`{"type":"X","v":""}`)) + `"}`
	numbered := func(n int, ev string) string { return fmt.Sprintf(`{"seq":%d,"event":%s}`, n, ev) }
	const nd, arr, sse, seq = typeNDJSON, typeJSON, typeSSE, typeSequenced
	for name, tc := range map[string]struct {
		contentType, encoding, body string
		status                      int
		reason                      string
		line                        int64
		accepted                    int64
	}{
		"not JSON":                 {nd, "", ev1 + "\n\nnonsense\n" + ev2, 400, "not-json", 3, 1},
		"not JSON at once":         {nd, "", "nonsense", 400, "not-json", 1, 0},
		"not UTF-8":                {nd, "", ev1 + "\n{\"type\":\"\xff\"}", 400, "not-json", 2, 1},
		"two on a line":            {nd, "", ev1 + "\n" + ev1 + ev2, 400, "not-json", 2, 1},
		"an array in NDJSON":       {nd, "", "[" + ev1 + "]", 400, "not-an-object", 1, 0},
		"a string":                 {nd, "", ev1 + "\n\"x\"", 400, "not-an-object", 2, 1},
		"null":                     {nd, "", "null", 400, "not-an-object", 1, 0},
		"no type":                  {nd, "", ev1 + "\n{\"threadId\":\"t1\"}\n" + ev2, 400, "no-type", 2, 1},
		"an empty type":            {nd, "", `{"type":""}`, 400, "no-type", 1, 0},
		"a type that is a number":  {nd, "", `{"type":1}`, 400, "no-type", 1, 0},
		"too deep":                 {nd, "", ev1 + "\n" + deep, 400, "too-deep", 2, 1},
		"too large":                {nd, "", ev1 + "\n" + large + "\n" + ev2, 413, "too-large", 2, 1},
		"far too large":            {nd, "", ev1 + "\n" + strings.Repeat(large, 100), 413, "too-large", 2, 1},
		"one byte too large":       {nd, "", fits + "\n" + fits + " \n" + fits[:17] + "v" + fits[17:], 413, "too-large", 3, 2},
		"an end in what it says":   {nd, "", ev1 + "\n{\"type\":\"CUSTOM\",\"name\":\"{\\\"type\\\":\\\"RUN_FINISHED\\\"}\",\"value\":{\"type\":\"RUN_FINISHED\"}", 400, "not-json", 2, 1},
		"unterminated JSON":        {nd, "", ev1 + "\n" + ev2[:20], 400, "not-json", 2, 1},
		"an object for an array":   {arr, "", ev1, 400, "not-an-array", 1, 0},
		"nothing for an array":     {arr, "", " \n", 400, "not-json", 2, 0},
		"an array that is cut":     {arr, "", "[" + ev1 + ",\n" + ev2 + ",", 400, "not-json", 2, 2},
		"an array with no end":     {arr, "", "[" + ev1 + ",\n" + ev2, 400, "not-json", 2, 2},
		"an array cut in an event": {arr, "", "[" + ev1 + ",\n" + ev2[:30], 400, "not-json", 2, 1},
		"a comma before the end":   {arr, "", "[" + ev1 + ",\n]", 400, "not-json", 2, 1},
		"a comma first":            {arr, "", "[," + ev1 + "]", 400, "not-json", 1, 0},
		"two commas":               {arr, "", "[" + ev1 + ",," + ev2 + "]", 400, "not-json", 1, 1},
		"no comma":                 {arr, "", "[" + ev1 + " " + ev2 + "]", 400, "not-json", 1, 1},
		"more after the array":     {arr, "", "[" + ev1 + "]\n{}", 400, "not-json", 2, 1},
		"a number in the array":    {arr, "", "[" + ev1 + ",\n17]", 400, "not-an-object", 2, 1},
		"an array in the array":    {arr, "", "[[" + ev1 + "]]", 400, "not-an-object", 1, 0},
		"nonsense in the array":    {arr, "", "[" + ev1 + ",\nx]", 400, "not-json", 2, 1},
		"crossed brackets":         {arr, "", "[" + ev1 + ",\n{\"type\":\"X\",\"v\":[}]]", 400, "not-json", 2, 1},
		"no type in the array":     {arr, "", "[" + ev1 + ",\n\n{},\n" + ev2 + "]", 400, "no-type", 3, 1},
		"too large in the array":   {arr, "", "[" + ev1 + ",\n" + large + "]", 413, "too-large", 2, 1},
		"[DONE]":                   {sse, "", "data: " + ev1 + "\n\ndata: [DONE]\n\n", 400, "done-marker", 3, 1},
		"not JSON in SSE":          {sse, "", "data: " + ev1 + "\n\n: c\ndata: {\ndata: x\n\n", 400, "not-json", 4, 1},
		"SSE that is cut":          {sse, "", "data: " + ev1 + "\n\ndata: " + ev2[:20], 400, "not-json", 3, 1},
		"too large in SSE":         {sse, "", "data: " + ev1 + "\n\ndata: " + large + "\n\n", 413, "too-large", 3, 1},
		"too large in many lines": {sse, "", "data: " + ev1 + "\n\n" + strings.Repeat("data: "+strings.Repeat(" ", 1000)+"\n", 5), 413,
			"too-large", 3, 1},
		"a comment that is too large":     {sse, "", "data: " + ev1 + "\n\n:" + strings.Repeat("c", 10000), 413, "too-large", 3, 1},
		"NDJSON sent as SSE":              {sse, "", "data: " + ev1 + "\n\n" + strings.Repeat("x", 9000), 413, "too-large", 3, 1},
		"no seq":                          {seq, "", numbered(0, ev1) + "\n{\"event\":" + ev2 + "}", 400, "no-seq", 2, 1},
		"a negative seq":                  {seq, "", numbered(0, ev1) + "\n" + numbered(-1, ev2), 400, "no-seq", 2, 1},
		"a seq that is a string":          {seq, "", `{"seq":"1","event":` + ev2 + "}", 400, "no-seq", 1, 0},
		"a seq again":                     {seq, "", numbered(3, ev1) + "\n" + numbered(3, ev2), 400, "seq-order", 2, 1},
		"a seq that goes back":            {seq, "", numbered(3, ev1) + "\n" + numbered(2, ev2), 400, "seq-order", 2, 1},
		"no event":                        {seq, "", numbered(0, ev1) + "\n{\"seq\":1}", 400, "not-an-object", 2, 1},
		"an event that is a string":       {seq, "", numbered(0, ev1) + "\n" + numbered(1, `"x"`), 400, "not-an-object", 2, 1},
		"an event without type, numbered": {seq, "", numbered(0, ev1) + "\n" + numbered(1, `{}`), 400, "no-type", 2, 1},
		"not numbered":                    {seq, "", ev1, 400, "no-seq", 1, 0},
		"numbered but not JSON":           {seq, "", numbered(0, ev1) + "\n{\"seq\":1,\"event\":{}", 400, "not-json", 2, 1},
		"numbered but too large":          {seq, "", numbered(0, ev1) + "\n" + numbered(1, large), 413, "too-large", 2, 1},
		"gzip that is none":               {nd, "gzip", ev1, 400, "bad-encoding", 1, 0},
		"gzip that is cut":                {nd, "gzip", gzipped(t, ev1+"\n"+ev2+"\n")[:60], 400, "cut", 0, -1},
		"zstd that is none":               {nd, "zstd", ev1, 400, "bad-encoding", 1, 0},
		"gzip of nothing":                 {nd, "gzip", "", 400, "cut", 1, 0},
		"an unknown encoding":             {nd, "br", ev1, 415, "bad-encoding", 0, 0},
		"an unknown media type":           {"application/x-www-form-urlencoded", "", ev1, 415, "media-type", 0, 0},
		"a media type that is none":       {"???", "", ev1, 415, "media-type", 0, 0},
	} {
		t.Run(name, func(t *testing.T) {
			d := shared.in(t, name)
			a := d.do(http.MethodPost, d.path("events"), strings.NewReader(tc.body), "Content-Type", tc.contentType, "Content-Encoding", tc.encoding)
			if a.status != tc.status || a.Reason != tc.reason || (tc.line > 0 && a.Line != tc.line) {
				t.Fatalf("answer is %d %s, want %d %s at line %d", a.status, a.body, tc.status, tc.reason, tc.line)
			}
			if tc.accepted < 0 {
				tc.accepted = a.Accepted
			}
			if a.Accepted != tc.accepted || int64(len(d.written())) != tc.accepted {
				t.Errorf("accepted %d, written %d; want %d", a.Accepted, len(d.written()), tc.accepted)
			}
			if a.status != 415 && (a.Accepted > 0) != (a.FirstOffset >= 0) {
				t.Errorf("answer is %s", a.body)
			}
			wantTypes(t, a, acceptedTypes)
			if a.Detail == "" {
				t.Error("the answer has no detail")
			}
		})
	}
}

// One body of many events is written in order, in one partition, whatever the windows.
func TestEvents_KeepTheirOrder(t *testing.T) {
	d := newStage(t)
	var body strings.Builder
	const n = 5000
	for i := range n {
		fmt.Fprintf(&body, `{"type":"X","n":%d,"pad":%q}`+"\n", i, strings.Repeat("p", i%300))
	}
	a := d.post(typeNDJSON, body.String())
	if a.status != http.StatusOK || a.Accepted != n {
		t.Fatalf("answer is %d %s", a.status, a.body)
	}
	for i, r := range d.records() {
		if r.Partition != a.Partition || !strings.HasPrefix(string(r.Value), fmt.Sprintf(`{"type":"X","n":%d,`, i)) {
			t.Fatalf("record %d is %d:%d %s", i, r.Partition, r.Offset, r.Value)
		}
	}
}

// wantTypes: a 415 names what the call takes, other answers name nothing.
func wantTypes(t *testing.T, a answer, types string) {
	t.Helper()
	if a.status != http.StatusUnsupportedMediaType {
		types = ""
	}
	if got := a.header.Get("Accept-Post"); got != types {
		t.Errorf("Accept-Post is %q, want %q", got, types)
	}
}
