package conformance_test

import (
	"bytes"
	"encoding/json"
	"flag"
	"os"
	"path/filepath"
	"testing"
)

var failedDir = flag.String("failed", filepath.Join("..", "..", ".cache", "conformance"),
	"write a failing case to this folder; empty: do not")

// failedCase is a run on which Skein and the client part; one without a start is of compacted events.
type failedCase struct{ compared }

// lastFailed is the last case that failed: of a test that rapid has shrunk, the smallest.
var lastFailed *failedCase

// fail ends the check, and keeps the case for the files that writesFailedCase leaves.
func (c comparison) fail(f failedCase, format string, args ...any) {
	c.t.Helper()
	lastFailed = &f
	c.t.Fatalf(format, args...)
}

// writesFailedCase writes the case that a test fails on to files that the client and the command read.
func writesFailedCase(t *testing.T) {
	t.Helper()
	lastFailed = nil
	t.Cleanup(func() {
		if !t.Failed() || lastFailed == nil || *failedDir == "" {
			return
		}
		dir, err := filepath.Abs(*failedDir)
		if err == nil {
			err = os.MkdirAll(dir, 0o755)
		}
		if err != nil {
			t.Error(err)
			return
		}
		name := filepath.Join(dir, t.Name())
		var events bytes.Buffer
		for _, e := range lastFailed.events {
			events.Write(onOneLine(e))
			events.WriteByte('\n')
		}
		files := map[string][]byte{name + ".jsonl": events.Bytes(), name + ".client.json": encode(lastFailed.want),
			name + ".skein.json": encode(lastFailed.got.Conversation)}
		if lastFailed.start.Messages != nil {
			files[name+".input.json"] = encode(obj{"threadId": "t", "runId": "r", "messages": lastFailed.start.Messages,
				"state": lastFailed.start.State,
				"tools": []any{}, "context": []any{}})
		} else if err := os.Remove(name + ".input.json"); err != nil && !os.IsNotExist(err) {
			t.Error(err)
		}
		for file, text := range files {
			if err := os.WriteFile(file, text, 0o644); err != nil {
				t.Error(err)
			}
		}
		t.Logf("the case is in\n\t%s.jsonl\nfor\n\tskein fold %[1]s.jsonl\n\tnode reduce.mjs %[1]s.jsonl", name)
	})
}

// onOneLine is an event without line feeds between its tokens.
func onOneLine(event json.RawMessage) []byte {
	return bytes.ReplaceAll(bytes.ReplaceAll(event, []byte("\n"), []byte(" ")), []byte("\r"), []byte(" "))
}
