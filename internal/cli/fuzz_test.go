package cli

import (
	"bytes"
	"encoding/json"
	"errors"
	"io"
	"testing"
)

// readEvents reads all events, up to the end or an error.
func readEvents(t *testing.T, data []byte) (events [][]byte, err error) {
	t.Helper()
	r := newEventReader(bytes.NewReader(data))
	for {
		event, err := r.next()
		if errors.Is(err, io.EOF) {
			return events, nil
		}
		if err != nil {
			return events, err
		}
		if events = append(events, bytes.Clone(event)); len(events) > len(data) {
			t.Fatalf("%d events out of %d bytes", len(events), len(data))
		}
	}
}

// FuzzEventReader: no panic, an end, and no more events than bytes. Events that are JSON objects are read
// as the same from lines, from SSE and from an array.
func FuzzEventReader(f *testing.F) {
	for _, s := range []string{"{\"type\":\"RAW\"}\n\n{}\r\n", "data: {\"a\":\ndata: 1}\n\n: comment\ndata:{}\n\n", "[{}, {\"a\":[1]}]\n", "[", "[{}]x", "id: 1\n\ndata", "\xff"} {
		f.Add([]byte(s))
	}
	f.Fuzz(func(t *testing.T, data []byte) {
		read, err := readEvents(t, data)
		if err != nil {
			return
		}
		var events [][]byte
		for _, e := range read {
			var line bytes.Buffer
			if e = bytes.TrimSpace(e); len(e) > 0 && e[0] == '{' && json.Compact(&line, e) == nil {
				events = append(events, line.Bytes())
			}
		}
		if len(events) == 0 {
			return
		}
		forms := map[string][]byte{
			"lines": bytes.Join(events, []byte("\n")),
			"SSE":   append([]byte("data: "), bytes.Join(events, []byte("\n\ndata: "))...),
			"array": append(append([]byte("["), bytes.Join(events, []byte(",\n"))...), ']'),
		}
		for form, data := range forms {
			got, err := readEvents(t, data)
			if err != nil || !bytes.Equal(bytes.Join(got, []byte("\n")), forms["lines"]) {
				t.Fatalf("as %s: %v\n%q\nwant\n%q", form, err, got, events)
			}
		}
	})
}
