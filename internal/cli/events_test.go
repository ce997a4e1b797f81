package cli

import (
	"bytes"
	"errors"
	"io"
	"slices"
	"strings"
	"testing"
	"testing/iotest"
)

func TestEventReader_TakesEveryForm(t *testing.T) {
	want := []string{`{"a":1.0}`, `{"b":"\ud800 x"}`}
	for name, text := range map[string]string{
		"lines":                      "{\"a\":1.0}\n\n{\"b\":\"\\ud800 x\"}",
		"lines that end with CRLF":   "\r\n{\"a\":1.0}\r\n\r\n{\"b\":\"\\ud800 x\"} \r\n",
		"SSE":                        "data: {\"a\":1.0}\n\nevent: x\ndata: {\"b\":\"\\ud800 x\"}\n\n",
		"SSE that ends with CRLF":    ": comment\r\n\r\ndata: {\"a\":1.0}\r\n\r\ndata:\r\n\r\nid: 1\r\ndata:{\"b\":\"\\ud800 x\"}\r\n",
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
func TestEventReader_GoesOnBehindWhatIsNoEvent(t *testing.T) {
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
				r := newEventReader(in)
				var got []item
				for {
					text, err := r.next()
					if errors.Is(err, io.EOF) {
						break
					}
					if err != nil {
						t.Fatal(err)
					}
					got = append(got, item{r.line, string(text)})
				}
				if !slices.Equal(got, c.want) {
					t.Errorf("got %#v, want %#v", got, c.want)
				}
			}
		})
	}
}

// An agent that is silent behind an event has said it.
func TestEventReader_WaitsForNoMoreThanTheEvent(t *testing.T) {
	for name, pieces := range map[string][]string{
		"lines":   {"{\"a\":1}\n", "{\"a\":1}\n"},
		"SSE":     {"data: {\"a\":1}\n\n", "data: {\"a\":1}\n\n"},
		"array":   {"[{\"a\":1}", ",{\"a\":1}"},
		"objects": {"{\n\"a\":1}", "\n{\"a\":1}"},
	} {
		t.Run(name, func(t *testing.T) {
			stdin, agent := io.Pipe()
			defer func() { _ = agent.Close() }() // of a pipe: no error
			r := newEventReader(stdin)
			for _, piece := range pieces {
				go func() { _, _ = io.WriteString(agent, piece) }() // next says what is missing
				if text, err := r.next(); err != nil || string(text) != `{"a":1}` {
					t.Errorf("got %q, %v", text, err)
				}
			}
		})
	}
}

// No more is read ahead than the buffer holds, also where all events are one line.
func TestEventReader_HoldsOneEventAtATime(t *testing.T) {
	for name, event := range map[string]string{
		"lines": "{\"a\":1}\n", "SSE": "data: {\"a\":1}\n\n", "array": "{\"a\":1},", "objects": "{\n\"a\":1}", "objects in one line": "{\"a\":1}",
	} {
		t.Run(name, func(t *testing.T) {
			rest := strings.NewReader(strings.Repeat(event, 1<<20))
			var in io.Reader = rest
			if name == "array" {
				in = io.MultiReader(strings.NewReader("["), rest)
			}
			r := newEventReader(in)
			for range 3 {
				if text, err := r.next(); err != nil || string(text) != `{"a":1}` {
					t.Fatalf("got %q, %v", text, err)
				}
			}
			if read := rest.Size() - int64(rest.Len()); read > 1<<18 {
				t.Errorf("%d bytes were read for 3 events", read)
			}
		})
	}
}

// readEvents reads all events, up to the end or an error.
func readEvents(t *testing.T, in io.Reader) (events []string, err error) {
	t.Helper()
	var read bytes.Buffer
	r := newEventReader(io.TeeReader(in, &read))
	for {
		event, err := r.next()
		if errors.Is(err, io.EOF) {
			return events, nil
		}
		if err != nil {
			return events, err
		}
		if events = append(events, string(event)); len(events) > read.Len() {
			t.Fatalf("%d events out of %d bytes", len(events), read.Len())
		}
	}
}
