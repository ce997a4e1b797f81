package conformance_test

import (
	"bytes"
	"encoding/json"
	"flag"
	"os"
	"path/filepath"
	"slices"
	"testing"

	"github.com/skeinhq/skein/test/conformance"
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

// shrink takes out of a case what it fails without: rapid shrinks what is drawn, which is more than the case.
func (c comparison) shrink(f *failedCase) {
	var messages []json.RawMessage
	if err := json.Unmarshal(f.start.Messages, &messages); err != nil {
		c.t.Fatal(err)
	}
	fails := func(messages, events []json.RawMessage) bool {
		start := conformance.Start{Messages: toJSON(c.t, some(messages)), State: f.start.State}
		r, d := c.compare(history(c.t, conformance.Conversation(start)), start, events)
		if d != "" {
			f.compared = r
		}
		return d != ""
	}
	fewer := func(list []json.RawMessage, fails func([]json.RawMessage) bool) []json.RawMessage {
		for i := len(list) - 1; i >= 0; i-- {
			if without := slices.Delete(slices.Clone(list), i, i+1); fails(without) {
				list = without
			}
		}
		return list
	}
	events := f.events
	events = fewer(events, func(l []json.RawMessage) bool { return fails(messages, l) })
	messages = fewer(messages, func(l []json.RawMessage) bool { return fails(l, events) })
	fewer(events, func(l []json.RawMessage) bool { return fails(messages, l) })
}

// writesFailedCase writes the case that a test fails on, once it is shrunk, to files that the client and the command read.
func writesFailedCase(t *testing.T, client *conformance.Client) {
	t.Helper()
	lastFailed = nil
	t.Cleanup(func() {
		if !t.Failed() || lastFailed == nil || *failedDir == "" {
			return
		}
		if lastFailed.start.Messages != nil {
			comparison{t, client}.shrink(lastFailed)
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
