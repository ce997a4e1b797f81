package conformance_test

import (
	"encoding/json"
	"fmt"
	"strings"
	"testing"

	"github.com/skeinhq/skein/pkg/agui"
	"github.com/skeinhq/skein/pkg/compact"
	"github.com/skeinhq/skein/pkg/lineage"
	"github.com/skeinhq/skein/pkg/record"
	"github.com/skeinhq/skein/test/conformance"
)

// nested is a list that is so deep.
func nested(depth int) string { return strings.Repeat("[", depth) + strings.Repeat("]", depth) }

const depthRun = `{"type":"RUN_STARTED","threadId":"t","runId":"r"}`

// deepest are the ways to what is nested as deep as it may be, and, with 1 more, deeper.
var deepest = map[string]func(more int) []string{
	"state by a snapshot": func(more int) []string {
		return []string{depthRun, `{"type":"STATE_SNAPSHOT","snapshot":` + nested(512+more) + `}`}
	},
	"state by a patch": func(more int) []string {
		return []string{depthRun, `{"type":"STATE_SNAPSHOT","snapshot":{"b":` + nested(300) + `}}`,
			`{"type":"STATE_DELTA","delta":[{"op":"add","path":"/b` + strings.Repeat("/0", 299) + `/-","value":` + nested(211+more) + `}]}`}
	},
	"state of an input": func(more int) []string {
		return []string{`{"type":"RUN_STARTED","threadId":"t","runId":"r","input":{"threadId":"t","runId":"r","messages":[],"state":` + nested(512+more) + `}}`}
	},
	"an activity by a snapshot": func(more int) []string {
		return []string{depthRun, `{"type":"ACTIVITY_SNAPSHOT","messageId":"w","activityType":"p","content":{"b":` + nested(510+more) + `}}`}
	},
	"an activity by a patch": func(more int) []string {
		return []string{depthRun, `{"type":"ACTIVITY_SNAPSHOT","messageId":"w","activityType":"p","content":{"b":` + nested(300) + `}}`,
			`{"type":"ACTIVITY_DELTA","messageId":"w","activityType":"p","patch":[{"op":"add","path":"/b` + strings.Repeat("/0", 299) + `/-","value":` + nested(211+more) + `}]}`}
	},
	"a message's metadata": func(more int) []string {
		return []string{depthRun, `{"type":"TEXT_MESSAGE_START","messageId":"a","metadata":{"k":` + nested(510+more) + `}}`, `{"type":"TEXT_MESSAGE_END","messageId":"a"}`}
	},
	"a tool call's metadata": func(more int) []string {
		return []string{depthRun, `{"type":"TOOL_CALL_START","toolCallId":"c","toolCallName":"n"}`,
			`{"type":"TOOL_CALL_END","toolCallId":"c","metadata":{"k":` + nested(510+more) + `}}`}
	},
	"a part of a tool result": func(more int) []string {
		return []string{depthRun, `{"type":"TOOL_CALL_RESULT","messageId":"m","toolCallId":"c","content":[{"type":"invented","k":` + nested(509+more) + `}]}`}
	},
	"an older part of a tool result": func(more int) []string {
		return []string{depthRun, `{"type":"TOOL_CALL_RESULT","messageId":"m","toolCallId":"c","content":[{"type":"binary","mimeType":"image/png","url":"u","filename":` + nested(509+more) + `}]}`}
	},
	"a message of a snapshot": func(more int) []string {
		return []string{depthRun, `{"type":"MESSAGES_SNAPSHOT","messages":[{"id":"u","role":"user","content":"x","vendor":` + nested(513+more) + `}]}`}
	},
	"an older part of a snapshot": func(more int) []string {
		return []string{depthRun, `{"type":"MESSAGES_SNAPSHOT","messages":[{"id":"u","role":"user","content":[{"type":"binary","mimeType":"image/png","url":"u","filename":` + nested(510+more) + `}]}]}`}
	},
	"a message of an input": func(more int) []string {
		return []string{`{"type":"RUN_STARTED","threadId":"t","runId":"r","input":{"threadId":"t","runId":"r","messages":[{"id":"u","role":"user","content":"x","vendor":` + nested(513+more) + `}]}}`}
	},
	"an older part of an input": func(more int) []string {
		return []string{`{"type":"RUN_STARTED","threadId":"t","runId":"r","input":{"messages":[{"content":[{"type":"binary","mimeType":"image/png","url":"u","filename":` + nested(510+more) + `}]}]}}`}
	},
	"an older resume of an input": func(more int) []string {
		return []string{`{"type":"RUN_STARTED","threadId":"t","runId":"r","input":{"messages":[],"resume":{"interruptId":"i","status":"resolved","payload":` + nested(513+more) + `}}}`}
	},
}

// What a fold holds is written and read again, however deep it is, in whatever carries it; and what is refused for its
// depth is refused where it comes in.
func TestDepth_WhatAFoldHoldsIsReadAgain(t *testing.T) {
	for name, of := range deepest {
		t.Run(name, func(t *testing.T) {
			f := foldLines(t, of(0))
			if len(f.malformed) > 0 || len(f.run.Summary().Anomalies) > 0 {
				t.Fatalf("refused at the limit: events %v, %v", f.malformed, f.run.Summary().Anomalies)
			}
			beyond := foldLines(t, of(1))
			if len(beyond.malformed)+len(beyond.run.Summary().Anomalies) == 0 {
				t.Error("one deeper is not refused")
			}
			messages, state := f.run.Messages(), f.run.State()
			if started, err := agui.Decode([]byte(of(0)[0])); err != nil {
				t.Fatal(err)
			} else if in := started.Input(""); in != nil && in.State != nil {
				state = in.State // an input's state is that of the run, which the fold is given
			}

			same := func(where string, gotMessages []agui.Message, gotState json.RawMessage) {
				t.Helper()
				if d := conformance.Diff(conformance.Conversation{Messages: toJSON(t, append([]agui.Message{}, messages...)), State: state},
					conformance.Conversation{Messages: toJSON(t, append([]agui.Message{}, gotMessages...)), State: gotState}); d != "" {
					t.Errorf("%s: %s", where, d)
				}
			}

			// As events; compacted ones, and those of the history's SSE form and of skein.snapshots, are the same two.
			whole := compact.New(messages, state)
			played := foldOf(t, conformance.Start{}, compact.Compacted(compact.Step{Run: whole}))
			if len(played.malformed) > 0 {
				t.Errorf("compacted events %v are malformed", played.malformed)
			}
			same("compacted events", played.run.Messages(), played.run.State())

			// As an input, sent beside the stream and on RUN_STARTED, and as that is read back from a record.
			resume := json.RawMessage(`[]`)
			if in, err := agui.Decode([]byte(of(0)[0])); err == nil && in.Input("") != nil && in.Input("").Resume != nil {
				resume = toJSON(t, in.Input("").Resume)
			}
			text := fmt.Appendf(nil, `{"threadId":"t","runId":"r","messages":%s,"state":%s,"resume":%s,"tools":[],"context":[]}`,
				toJSON(t, append([]agui.Message{}, messages...)), state, resume)
			in, err := agui.DecodeInput(text, "")
			if err != nil {
				t.Fatalf("the input is malformed: %v", err)
			}
			same("an input", in.Messages, in.State)
			ev, err := agui.Decode(fmt.Appendf(nil, `{"type":"RUN_STARTED","threadId":"t","runId":"r","input":%s}`, text))
			if err != nil {
				t.Fatalf("RUN_STARTED is malformed: %v", err)
			}
			same("the input of RUN_STARTED", ev.Input("").Messages, ev.Input("").State)
			if got := toJSON(t, ev.Input("").Resume); string(got) != string(resume) && len(ev.Input("").Resume) > 0 {
				t.Errorf("resume is %s, want %s", got, resume)
			}
			if again, err := agui.DecodeInput(in.Raw, ""); err != nil {
				t.Errorf("the input does not decode again: %v", err)
			} else {
				same("the input again", again.Messages, again.State)
			}

			// As a record, with the input that it names over its base.
			own, layout := agui.Diff(nil, messages)
			rec := &record.Run{Tenant: "a", ThreadID: "t", RunID: "r", Status: record.StatusFinished,
				Lineage:  record.Lineage{ParentBy: record.ParentNone},
				Messages: own, Layout: layout, State: state, InputMessages: in.Messages, Input: agui.Without(in.Raw, "messages"), Resumes: in.Resume}
			b, err := record.EncodeRun(rec)
			if err != nil {
				t.Fatal(err)
			}
			if rec, err = record.DecodeRun(b); err != nil {
				t.Fatal(err)
			}
			at, err := lineage.Restore(lineage.Content{RunID: rec.RunID, Messages: rec.Messages, Layout: rec.Layout, State: rec.State})
			if err != nil {
				t.Fatal(err)
			}
			same("a record", at.Messages, at.State)
			same("a record's input", rec.InputMessages, agui.Lookup(rec.Input, "state"))

			// As a checkpoint: what comes next finds what it was before.
			checkpoint, err := f.run.Checkpoint()
			if err != nil {
				t.Fatal(err)
			}
			resumed, err := compact.Resume(at.Messages, at.State, checkpoint)
			if err != nil {
				t.Fatal(err)
			}
			straight := compact.New(messages, state)
			for _, line := range []string{
				`{"type":"TEXT_MESSAGE_CONTENT","messageId":"u","delta":"more"}`, `{"type":"TEXT_MESSAGE_CONTENT","messageId":"a","delta":"more"}`,
				`{"type":"TOOL_CALL_ARGS","toolCallId":"c","delta":"more"}`, `{"type":"ACTIVITY_DELTA","messageId":"w","activityType":"q","patch":[]}`,
				`{"type":"STATE_DELTA","delta":[{"op":"test","path":"","value":7}]}`,
			} {
				ev, err := agui.Decode([]byte(line))
				if err != nil {
					t.Fatal(err)
				}
				for _, run := range []*compact.Run{resumed, straight} {
					if err := run.Apply(ev); err != nil {
						t.Fatal(err)
					}
				}
			}
			messages, state = straight.Messages(), straight.State()
			same("from a checkpoint on", resumed.Messages(), resumed.State())
		})
	}
}

func foldLines(t *testing.T, events []string) folded {
	t.Helper()
	return foldOf(t, conformance.Start{}, conformance.Raw(events))
}
