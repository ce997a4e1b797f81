package ingest

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"strings"
	"testing"
	"testing/iotest"

	"github.com/skeinhq/skein/internal/front"
)

const fuzzLimit = 200

var seeds = []string{
	"", "\n", ev1, ev1 + "\n" + ev2 + "\r\n\n" + ev3, "\ufeff" + ev1, "x", "{", strings.Repeat("y", 3*fuzzLimit),
	"[]", " [ ] ", "[" + ev1 + "]", "[" + ev1 + ",\n" + ev2 + " , " + ev3 + "\n]\n", "[{},]", "[,]", "[1]", "[{}{}]", "[{}]x", `[{"a":"}]\""}]`, "[{]}]", "\ufeff[]",
	"data: " + ev1 + "\n\n", "data:" + ev1 + "\r\n\r\ndata: {\ndata: }\n\n", ":c\nevent: x\nid: 1\ndata\n\ndata: [DONE]\n\n", "data: a", "data: a\nb", "data\ndata\n\n", "data:\ndata:\n\n",
	`{"seq":0,"event":` + ev1 + "}\n" + `{"event":{},"seq":1}`, `{"seq":"0"}`, `{"event":null,"seq":1}`,
}

type form struct {
	name      string
	mediaType string
}

var forms = []form{{"ndjson", typeNDJSON}, {"array", typeJSON}, {"sse", typeSSE}, {"sequenced", typeSequenced}}

// drain reads a body to its end.
func drain(mediaType string, r io.Reader) (events []event, end error) {
	b, rej := newBody(r, "", readBuffer, newMemory(1<<30, nil).Claim("t", 0))
	if rej != nil {
		return nil, rej
	}
	rd, rej := newEventReader(mediaType, b, fuzzLimit)
	if rej != nil {
		return nil, rej
	}
	for {
		ev, err := rd.next()
		if err != nil {
			return events, err
		}
		events = append(events, ev)
	}
}

// Invariants of every form: no panic; it ends with io.EOF or a refusal that names a line of the body;
// events are not empty, not above the limit, and lie in the body in order; lines only grow; the same
// comes out however the body is cut into reads.
func FuzzEventReaders(f *testing.F) {
	for _, s := range seeds {
		f.Add([]byte(s))
	}
	f.Fuzz(func(t *testing.T, in []byte) {
		for _, form := range forms {
			events, end := drain(form.mediaType, bytes.NewReader(in))
			var rej *front.Problem
			lines := int64(bytes.Count(in, []byte("\n")) + 1)
			if !errors.Is(end, io.EOF) && (!errors.As(end, &rej) || rej.Line < 1 || rej.Line > lines || rej.Detail == "") {
				t.Fatalf("%s ends with %v", form.name, end)
			}
			rest, last := in, int64(1)
			for _, ev := range events {
				if len(ev.value) == 0 || len(ev.value) > fuzzLimit {
					t.Fatalf("%s: an event of %d bytes", form.name, len(ev.value))
				}
				if ev.line < last || ev.line > lines {
					t.Fatalf("%s: line %d after line %d", form.name, ev.line, last)
				}
				last = ev.line
				parts := [][]byte{ev.value}
				if form.mediaType == typeSSE {
					parts = bytes.Split(ev.value, []byte("\n"))
				}
				for _, p := range parts {
					i := bytes.Index(rest, p)
					if i < 0 {
						t.Fatalf("%s: %q is not in the rest of the body %q", form.name, p, rest)
					}
					rest = rest[i+len(p):]
				}
			}
			slow, slowEnd := drain(form.mediaType, iotest.OneByteReader(bytes.NewReader(in)))
			if fmt.Sprint(slow) != fmt.Sprint(events) || fmt.Sprint(slowEnd) != fmt.Sprint(end) {
				t.Fatalf("%s, read byte by byte: %v %v; at once: %v %v", form.name, slow, slowEnd, events, end)
			}
		}
	})
}

// Invariant: what encoding/json takes for an array of objects gives its elements, byte for byte, and
// no error (but too-large); what it does not take for an array is an error here or in the check of an
// element.
func FuzzArrayReader_AgreesWithEncodingJSON(f *testing.F) {
	for _, s := range seeds {
		f.Add([]byte(s))
	}
	f.Fuzz(func(t *testing.T, in []byte) {
		if bytes.HasPrefix(in, []byte("\ufeff")) {
			return // encoding/json knows no byte order mark
		}
		var want []json.RawMessage
		valid := json.Unmarshal(in, &want) == nil && bytes.HasPrefix(bytes.Trim(in, space), []byte("["))
		objects := valid
		for _, w := range want {
			objects = objects && w[0] == '{' && len(w) <= fuzzLimit
		}
		events, end := drain(typeJSON, bytes.NewReader(in))
		if objects {
			if !errors.Is(end, io.EOF) || len(events) != len(want) {
				t.Fatalf("%d events and %v, want %d", len(events), end, len(want))
			}
			for i, w := range want {
				if !bytes.Equal(events[i].value, w) {
					t.Fatalf("event %d is %q, want %q", i, events[i].value, w)
				}
			}
			return
		}
		if !errors.Is(end, io.EOF) || valid {
			return
		}
		for _, ev := range events {
			if !json.Valid(ev.value) {
				return
			}
		}
		t.Fatalf("%q is no array, and was read as %v", in, events)
	})
}

// Invariant: the events are those of a reader that has the whole body and follows the standard line by
// line.
func FuzzSSEReader_AgreesWithTheStandard(f *testing.F) {
	for _, s := range seeds {
		f.Add([]byte(s))
	}
	f.Fuzz(func(t *testing.T, in []byte) {
		events, end := drain(typeSSE, bytes.NewReader(in))
		if !errors.Is(end, io.EOF) {
			return
		}
		var want []string
		var data []string
		flush := func() {
			if s := strings.Join(data, "\n"); s != "" {
				want = append(want, s)
			}
			data = nil
		}
		for _, line := range strings.Split(strings.TrimPrefix(string(in), "\ufeff"), "\n") {
			line = strings.TrimSuffix(line, "\r")
			if line == "" {
				flush()
				continue
			}
			if name, value, _ := strings.Cut(line, ":"); name == "data" {
				data = append(data, strings.TrimPrefix(value, " "))
			}
		}
		flush()
		if len(events) != len(want) {
			t.Fatalf("%d events, want %q", len(events), want)
		}
		for i, w := range want {
			if string(events[i].value) != w {
				t.Fatalf("event %d is %q, want %q", i, events[i].value, w)
			}
		}
	})
}
