package cli

import (
	"errors"
	"io"
	"slices"
	"strings"
	"testing"
)

func TestEventReader_TakesEveryForm(t *testing.T) {
	want := []string{`{"a":1.0}`, `{"b":"\ud800 x"}`}
	for name, text := range map[string]string{
		"lines":               "{\"a\":1.0}\n\n{\"b\":\"\\ud800 x\"}",
		"SSE":                 "data: {\"a\":1.0}\n\nevent: x\ndata: {\"b\":\"\\ud800 x\"}\n\n",
		"array in one line":   `[{"a":1.0},{"b":"\ud800 x"}]`,
		"array of many lines": " \n[\n  {\n \"a\": 1.0\n },\n  {\"b\": \"\\ud800 x\"}\n]\n\n",
	} {
		t.Run(name, func(t *testing.T) {
			var got []string
			r := newEventReader(strings.NewReader(text))
			for {
				event, err := r.next()
				if errors.Is(err, io.EOF) {
					break
				}
				if err != nil {
					t.Fatal(err)
				}
				got = append(got, string(event))
			}
			if !slices.Equal(got, want) {
				t.Errorf("got %q, want %q", got, want)
			}
		})
	}
	for name, c := range map[string]struct{ text, want string }{
		"array that is cut":             {`[{"a":1}`, "does not end behind event 1"},
		"array that is cut in an event": {`[{"a":1},{"b"`, "event 2: unexpected EOF"},
		"array with an error":           {`[{"a":1},{"b":}]`, "event 2: invalid character"},
		"something behind the array":    {"[{\"a\":1}]\n{}", "something follows it"},
	} {
		t.Run(name, func(t *testing.T) {
			r := newEventReader(strings.NewReader(c.text))
			var err error
			for err == nil {
				_, err = r.next()
			}
			if !strings.Contains(err.Error(), c.want) || errors.Is(err, io.EOF) {
				t.Errorf("got %v, want %q", err, c.want)
			}
		})
	}
}
