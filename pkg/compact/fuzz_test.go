package compact_test

import (
	"bytes"
	"encoding/json"
	"os"
	"path/filepath"
	"testing"

	"github.com/rogpeppe/go-internal/txtar"

	"github.com/skeinhq/skein/pkg/agui"
	"github.com/skeinhq/skein/pkg/compact"
)

// addLines gives a fuzz test the events of all golden files.
func addLines(f *testing.F, add func(lines []byte)) {
	f.Helper()
	files, err := filepath.Glob("testdata/*.txtar")
	if err != nil || len(files) == 0 {
		f.Fatalf("no golden files: %v", err)
	}
	for _, file := range files {
		b, err := os.ReadFile(file)
		if err != nil {
			f.Fatal(err)
		}
		for _, part := range txtar.Parse(b).Files {
			if part.Name == "in.jsonl" {
				add(part.Data)
			}
		}
	}
}

// FuzzRun folds any lines. No panic; only malformed events are refused; messages and state are JSON
// within the limits; a fold that stops at any event goes on with the same bytes; what Compacted says
// folds without an error to the same messages and state.
func FuzzRun(f *testing.F) {
	addLines(f, func(lines []byte) { f.Add(lines, 3) })
	f.Fuzz(func(t *testing.T, lines []byte, stop int) {
		whole, pieces := compact.New(nil, nil), compact.New(nil, nil)
		for i, line := range bytes.Split(lines, []byte("\n")) {
			ev, err := agui.Decode(line)
			if err != nil {
				if !agui.IsMalformed(err) {
					t.Fatalf("%v: %s", err, line)
				}
				continue
			}
			if whole.Ended() {
				break
			}
			if err := whole.Apply(ev); err != nil && !agui.IsMalformed(err) {
				t.Fatalf("%v: %s", err, line)
			}
			if i == stop {
				pieces = resume(t, pieces)
			}
			if err := pieces.Apply(ev); err != nil && !agui.IsMalformed(err) {
				t.Fatalf("%v: %s", err, line)
			}
		}
		if a, b := result(t, whole), result(t, pieces); !bytes.Equal(a, b) {
			t.Fatalf("without a stop\n%s\nwith one\n%s", a, b)
		}
		for _, m := range whole.Messages() {
			if err := agui.CheckDepth(m.Raw, agui.MaxMessageDepth); err != nil {
				t.Fatalf("%v: %s", err, m.Raw)
			}
		}
		if err := agui.Check(whole.State()); err != nil {
			t.Fatalf("%v: %s", err, whole.State())
		}
		again := compact.New(nil, nil)
		for _, raw := range compact.Compacted(compact.Step{Run: whole}) {
			ev, err := agui.Decode(raw)
			if err == nil {
				err = again.Apply(ev)
			}
			if err != nil {
				t.Fatalf("%v: %s", err, raw)
			}
		}
		if a, b := result(t, whole), result(t, again); !bytes.Equal(a, b) {
			t.Fatalf("folded\n%s\nagain\n%s", a, b)
		}
	})
}

// FuzzResume goes on from any checkpoint, or says why not. A damaged record must not take the
// process down: no panic, then or at the next events.
func FuzzResume(f *testing.F) {
	events := []byte(started + "\n" + `{"type":"TOOL_CALL_START","toolCallId":"c","toolCallName":"n"}` + "\n" + `{"type":"RUN_ERROR","message":"m","usage":[{"inputTokens":1}]}`)
	for _, damaged := range []string{`null`, `{}`, `{"verify":null}`, `{"events":null,"eventBytes":null,"toolCalls":null,"anomalies":null,"answered":null}`,
		`{"verify":{"open":{"tool":null},"owners":{"toolCall":null}}}`, `{"same":[[0,0],[0,1]]}`, `{"lanes":[{"kind":"tool"}]}`} {
		f.Add([]byte(damaged), []byte(`[{"id":"m","role":"user","content":""}]`), events)
	}
	addLines(f, func(lines []byte) {
		r := compact.New(nil, nil)
		for _, line := range bytes.Split(lines, []byte("\n")) {
			ev, err := agui.Decode(line)
			if err != nil || ev.Type == agui.RunFinished || r.Apply(ev) != nil {
				continue
			}
		}
		checkpoint, err := r.Checkpoint()
		if err != nil {
			f.Fatal(err)
		}
		messages, err := json.Marshal(r.Messages())
		if err != nil {
			f.Fatal(err)
		}
		f.Add([]byte(checkpoint), messages, lines)
	})
	f.Fuzz(func(t *testing.T, checkpoint, list, lines []byte) {
		var messages []agui.Message
		if json.Unmarshal(list, &messages) != nil {
			return
		}
		r, err := compact.Resume(messages, nil, checkpoint)
		if err != nil {
			return
		}
		for _, line := range bytes.Split(lines, []byte("\n")) {
			if ev, err := agui.Decode(line); err == nil && !r.Ended() {
				if err := r.Apply(ev); err != nil && !agui.IsMalformed(err) {
					t.Fatalf("%v: %s", err, line)
				}
			}
		}
		result(t, r)
	})
}
