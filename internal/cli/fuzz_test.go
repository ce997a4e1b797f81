package cli

import (
	"bytes"
	"encoding/json"
	"slices"
	"strings"
	"testing"
	"testing/iotest"
)

// FuzzEventReader: no panic, an end, and no more events than bytes. It makes no difference in what pieces the bytes
// come. Events that are JSON objects are read as the same from lines, from SSE, from an array, and laid out over lines.
func FuzzEventReader(f *testing.F) {
	for _, s := range []string{
		"{\"type\":\"RAW\"}\n\n{}\r\n", "data: {\"a\":\ndata: 1}\n\n: comment\ndata:{}\n\n", "[{}, {\"a\":[1]}]\n", "[", "[{}]x", "id: 1\n\ndata", "\xff",
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
