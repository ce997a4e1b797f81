package eventstream

import (
	"bytes"
	"encoding/json"
	"errors"
	"io"
	"math"
	"slices"
	"strings"
	"testing"
	"testing/iotest"
)

func TestAny_TakesEveryForm(t *testing.T) {
	want := []string{`{"a":1.0}`, `{"b":"\ud800 x"}`}
	for name, text := range map[string]string{
		"lines":                      "{\"a\":1.0}\n\n{\"b\":\"\\ud800 x\"}",
		"lines that end with CRLF":   "\r\n{\"a\":1.0}\r\n\r\n{\"b\":\"\\ud800 x\"} \r\n",
		"SSE":                        "data: {\"a\":1.0}\n\nevent: x\ndata: {\"b\":\"\\ud800 x\"}\n\n",
		"SSE that ends with CRLF":    ": comment\r\n\r\ndata: {\"a\":1.0}\r\n\r\ndata:\r\n\r\nid: 1\r\ndata:{\"b\":\"\\ud800 x\"}\r\n",
		"SSE that ends with CR":      "\r: comment\r\rdata: {\"a\":1.0}\r\rid: 1\rdata:{\"b\":\"\\ud800 x\"}\r",
		"SSE that ends with all":     "data: {\"a\":1.0}\r\n\revent: x\ndata: {\"b\":\"\\ud800 x\"}\r\n\n\r",
		"array in one line":          `[{"a":1.0},{"b":"\ud800 x"}]`,
		"array of many lines":        " \n[\n  {\n \"a\": 1.0\n },\n  {\"b\":\"\\ud800 x\"}\n]\n\n",
		"objects over lines":         "\n{\n  \"a\": 1.0\n}\n\n{\n\"b\":\n\"\\ud800 x\"}",
		"objects over lines of CRLF": "{\r\n  \"a\": 1.0\r\n}\r\n{\r\n\"b\":\r\n\"\\ud800 x\"\r\n}\r\n",
		"objects that touch":         "{\n  \"a\": 1.0\n}{\n  \"b\": \"\\ud800 x\"\n}",
		"objects in one line":        "{\"a\":1.0} {\"b\":\"\\ud800 x\"}",
	} {
		for _, text := range []string{text, byteOrderMark + text} {
			for _, r := range []io.Reader{strings.NewReader(text), iotest.OneByteReader(strings.NewReader(text))} {
				got, err := readEvents(t, r)
				if err != nil || !slices.Equal(got, want) {
					t.Errorf("%s: got %q, %v, want %q", name, got, err, want)
				}
			}
		}
	}
}

// What is no event costs itself, and the events behind it are found.
func TestAny_GoesOnBehindWhatIsNoEvent(t *testing.T) {
	const object = "{\n  \"a\": {\n    \"b\": [1, {}]\n  }\n}\n"
	const read = `{"a":{"b":[1,{}]}}`
	type item struct {
		line int
		text string
	}
	for name, c := range map[string]struct {
		text string
		want []item
	}{
		"a line before":           {"Starting\n[info] x\n" + object, []item{{1, "Starting"}, {2, "[info] x"}, {3, read}}},
		"a line before lines":     {"data\n{\"a\":1}\nid: 1\n{\n", []item{{1, "data"}, {2, `{"a":1}`}, {3, "id: 1"}, {4, "{"}}},
		"something behind a line": {"{\"a\":1}x\n{\"a\":1}\n", []item{{1, `{"a":1}x`}, {2, `{"a":1}`}}},
		"a line that is cut":      {"{\"a\":\"b\n{\"a\":1}\n", []item{{1, `{"a":"b`}, {2, `{"a":1}`}}},
		"something behind":        {object + "x\ny\n" + object, []item{{1, read}, {6, "x"}, {7, "y"}, {8, read}}},
		"cut in a string":         {object + "{\n\"a\": \"b\n" + object, []item{{1, read}, {6, "{\n\"a\": \"b"}, {8, read}}},
		"cut behind a member":     {object + "{\n\"a\": 1\n " + object, []item{{1, read}, {6, "{\n\"a\": 1\n "}, {8, read}}},
		"cut behind a comma":      {object + "{\n\"a\": 1,\n" + object, []item{{1, read}, {6, "{\n\"a\": 1,\n"}, {8, read}}},
		"cut in a list":           {object + "{\n\"a\": [1\n" + object, []item{{1, read}, {6, "{\n\"a\": [1\n"}, {8, read}}},
		"the wrong bracket":       {object + "{\n\"a\": [1}\n}\n" + object, []item{{1, read}, {6, "{\n\"a\": [1"}, {9, read}}},
		"a missing comma":         {object + "{\n\"a\": 1\n\"b\": {\n}\n}\n" + object, []item{{1, read}, {6, "{\n\"a\": 1\n"}, {11, read}}},
		"cut by the end":          {object + "{\n\"a\":", []item{{1, read}, {6, "{\n\"a\":"}}},
	} {
		t.Run(name, func(t *testing.T) {
			for _, in := range []io.Reader{strings.NewReader(c.text), iotest.OneByteReader(strings.NewReader(c.text))} {
				r := newAny(in)
				var got []item
				for {
					text, err := r.Next()
					if errors.Is(err, io.EOF) {
						break
					}
					if err != nil {
						t.Fatal(err)
					}
					got = append(got, item{int(text.Line), string(text.Value)})
				}
				if !slices.Equal(got, c.want) {
					t.Errorf("got %#v, want %#v", got, c.want)
				}
			}
		})
	}
}

// An agent that is silent behind an event has said it.
func TestAny_WaitsForNoMoreThanTheEvent(t *testing.T) {
	for name, pieces := range map[string][]string{
		"lines":   {"{\"a\":1}\n", "{\"a\":1}\n"},
		"SSE":     {"data: {\"a\":1}\n\n", "data: {\"a\":1}\n\n"},
		"array":   {"[{\"a\":1}", ",{\"a\":1}"},
		"objects": {"{\n\"a\":1}", "\n{\"a\":1}"},
	} {
		t.Run(name, func(t *testing.T) {
			stdin, agent := io.Pipe()
			defer func() { _ = agent.Close() }() // of a pipe: no error
			r := newAny(stdin)
			for _, piece := range pieces {
				go func() { _, _ = io.WriteString(agent, piece) }() // next says what is missing
				if text, err := r.Next(); err != nil || string(text.Value) != `{"a":1}` {
					t.Errorf("got %q, %v", text.Value, err)
				}
			}
		})
	}
}

// No more is read ahead than the buffer holds, also where all events are one line.
func TestAny_HoldsOneEventAtATime(t *testing.T) {
	for name, event := range map[string]string{
		"lines": "{\"a\":1}\n", "SSE": "data: {\"a\":1}\n\n", "array": "{\"a\":1},", "objects": "{\n\"a\":1}", "objects in one line": "{\"a\":1}",
	} {
		t.Run(name, func(t *testing.T) {
			rest := strings.NewReader(strings.Repeat(event, 1<<20))
			var in io.Reader = rest
			if name == "array" {
				in = io.MultiReader(strings.NewReader("["), rest)
			}
			r := newAny(in)
			for range 3 {
				if text, err := r.Next(); err != nil || string(text.Value) != `{"a":1}` {
					t.Fatalf("got %q, %v", text.Value, err)
				}
			}
			if read := rest.Size() - int64(rest.Len()); read > 1<<18 {
				t.Errorf("%d bytes were read for 3 events", read)
			}
		})
	}
}

func newAny(in io.Reader) *Reader { return New(in, Any, math.MaxInt32, 64<<10, Memory{}) }

// readEvents reads all events, up to the end or an error.
func readEvents(t *testing.T, in io.Reader) (events []string, err error) {
	t.Helper()
	var read bytes.Buffer
	r := newAny(io.TeeReader(in, &read))
	for {
		event, err := r.Next()
		if errors.Is(err, io.EOF) {
			return events, nil
		}
		if err != nil {
			return events, err
		}
		if events = append(events, string(event.Value)); len(events) > read.Len() {
			t.Fatalf("%d events out of %d bytes", len(events), read.Len())
		}
	}
}

// FuzzAny: no panic, an end, and no more events than bytes. It makes no difference in what pieces the bytes
// come. Events that are JSON objects are read as the same from lines, from SSE, from an array, and laid out over lines.
func FuzzAny(f *testing.F) {
	for _, s := range []string{
		"{\"type\":\"RAW\"}\n\n{}\r\n", "data: {\"a\":\ndata: 1}\n\n: comment\ndata:{}\n\n", "[{}, {\"a\":[1]}]\n", "[", "[{}]x", "id: 1\n\ndata",
		"\xff",
		byteOrderMark + "{}", "{\n\"a\":[\n{\"b\":\"\\\"}\"}]\n}\n{\n}{", "x\n{\n\"a\n{}\n", "{\"a\":1\n{\"a\":\n1}",
	} {
		f.Add([]byte(s))
	}
	f.Fuzz(func(t *testing.T, data []byte) {
		read, err := readEvents(t, bytes.NewReader(data))
		slow, slowErr := readEvents(t, iotest.OneByteReader(bytes.NewReader(data)))
		if !slices.Equal(slow, read) || (slowErr == nil) != (err == nil) {
			t.Fatalf("byte by byte: %q, %v, want %q, %v", slow, slowErr, read, err)
		}
		if err != nil {
			return
		}
		var events, spread []string
		for _, e := range read {
			var line, lines bytes.Buffer
			if strings.HasPrefix(e, "{") && json.Compact(&line, []byte(e)) == nil && json.Indent(&lines, []byte(e), "", " ") == nil {
				events = append(events, line.String())
				spread = append(spread, "{\n"+strings.TrimPrefix(lines.String(), "{"))
			}
		}
		if len(events) == 0 {
			return
		}
		for form, text := range map[string]string{
			"lines":   strings.Join(events, "\n"),
			"SSE":     "data: " + strings.Join(events, "\n\ndata: "),
			"array":   "[" + strings.Join(events, ",\n") + "]",
			"objects": strings.Join(spread, "\n"),
		} {
			got, err := readEvents(t, strings.NewReader(text))
			if err != nil || !slices.Equal(got, events) {
				t.Fatalf("as %s: %v\n%q\nwant\n%q", form, err, got, events)
			}
		}
	})
}
