package eventstream

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"strings"
	"testing"
	"testing/iotest"
)

const fuzzLimit = 200

const (
	ev1 = `{"type":"RUN_STARTED","threadId":"t1","runId":"r1"}`
	ev2 = `{ "type" : "CUSTOM", "b":1,"a":1.10, "name":"\ud83e", "value":null}`
	ev3 = `{"type":"NEVER_HEARD_OF","x":[{"}":"]\\\""}]}`
)

var seeds = []string{
	"", "\n", ev1, ev1 + "\n" + ev2 + "\r\n\n" + ev3, "\ufeff" + ev1, "x", "{", strings.Repeat("y", 3*fuzzLimit),
	"[]", " [ ] ", "[" + ev1 + "]", "[" + ev1 + ",\n" + ev2 + " , " + ev3 + "\n]\n", "[{},]", "[,]", "[1]", "[{}{}]", "[{}]x", `[{"a":"}]\""}]`, "[{]}]", "\ufeff[]",
	"data: " + ev1 + "\n\n", "data:" + ev1 + "\r\n\r\ndata: {\ndata: }\n\n", ":c\nevent: x\nid: 1\ndata\n\ndata: [DONE]\n\n", "data: a",
	"data: a\nb", "data\ndata\n\n", "data:\ndata:\n\n",
	`{"seq":0,"event":` + ev1 + "}\n" + `{"event":{},"seq":1}`, `{"seq":"0"}`, `{"event":null,"seq":1}`,
}

var forms = map[string]Form{"ndjson": NDJSON, "array": Array, "sse": ServerSent, "numbered": Numbered}

// drain reads a stream to its end.
func drain(form Form, r io.Reader) (events []Event, end error) {
	rd := New(r, form, fuzzLimit, 64<<10, Memory{})
	for {
		ev, err := rd.Next()
		if err != nil {
			return events, err
		}
		ev.Value = bytes.Clone(ev.Value)
		events = append(events, ev)
	}
}

// Invariants of every form: no panic; it ends with io.EOF or a refusal that names a line of the body;
// events are not empty, not above the limit, and lie in the body in order; lines only grow; the same
// comes out however the body is cut into reads.
func FuzzReader(f *testing.F) {
	for _, s := range seeds {
		f.Add([]byte(s))
	}
	f.Fuzz(func(t *testing.T, in []byte) {
		for name, form := range forms {
			events, end := drain(form, bytes.NewReader(in))
			var bad *Error
			lines := int64(bytes.Count(in, []byte("\n")) + 1)
			if form == ServerSent { // a CR alone ends a line of these, too
				lines += int64(bytes.Count(in, []byte("\r")))
			}
			if !errors.Is(end, io.EOF) && (!errors.As(end, &bad) || bad.Line < 1 || bad.Line > lines || bad.Detail == "") {
				t.Fatalf("%s ends with %v", name, end)
			}
			rest, last := in, int64(1)
			for _, ev := range events {
				if len(ev.Value) == 0 || len(ev.Value) > fuzzLimit {
					t.Fatalf("%s: an event of %d bytes", name, len(ev.Value))
				}
				if ev.Line < last || ev.Line > lines {
					t.Fatalf("%s: line %d after line %d", name, ev.Line, last)
				}
				last = ev.Line
				parts := [][]byte{ev.Value}
				if form == ServerSent {
					parts = bytes.Split(ev.Value, []byte("\n"))
				}
				for _, p := range parts {
					i := bytes.Index(rest, p)
					if i < 0 {
						t.Fatalf("%s: %q is not in the rest of the body %q", name, p, rest)
					}
					rest = rest[i+len(p):]
				}
			}
			slow, slowEnd := drain(form, iotest.OneByteReader(bytes.NewReader(in)))
			if fmt.Sprint(slow) != fmt.Sprint(events) || fmt.Sprint(slowEnd) != fmt.Sprint(end) {
				t.Fatalf("%s, read byte by byte: %v %v; at once: %v %v", name, slow, slowEnd, events, end)
			}
		}
	})
}

// Invariant: what encoding/json takes for an array of objects gives its elements, byte for byte, and
// no error (but too-large); what it does not take for an array is an error here or in the check of an
// element.
func FuzzArray_AgreesWithEncodingJSON(f *testing.F) {
	for _, s := range seeds {
		f.Add([]byte(s))
	}
	f.Fuzz(func(t *testing.T, in []byte) {
		if bytes.HasPrefix(in, []byte("\ufeff")) {
			return // encoding/json knows no byte order mark
		}
		var want []json.RawMessage
		valid := json.Unmarshal(in, &want) == nil && bytes.HasPrefix(bytes.Trim(in, Space), []byte("["))
		objects := valid
		for _, w := range want {
			objects = objects && w[0] == '{' && len(w) <= fuzzLimit
		}
		events, end := drain(Array, bytes.NewReader(in))
		if objects {
			if !errors.Is(end, io.EOF) || len(events) != len(want) {
				t.Fatalf("%d events and %v, want %d", len(events), end, len(want))
			}
			for i, w := range want {
				if !bytes.Equal(events[i].Value, w) {
					t.Fatalf("event %d is %q, want %q", i, events[i].Value, w)
				}
			}
			return
		}
		if !errors.Is(end, io.EOF) || valid {
			return
		}
		for _, ev := range events {
			if !json.Valid(ev.Value) {
				return
			}
		}
		t.Fatalf("%q is no array, and was read as %v", in, events)
	})
}
