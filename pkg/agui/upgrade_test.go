package agui

import (
	"encoding/json"
	"reflect"
	"testing"
)

// Each row of the upgrade table: an older event and what AG-UI 1.0 calls it. Both must decode to
// the same members, and the older one must keep its bytes.
func TestUpgrade_EachRow(t *testing.T) {
	const finished = `{"type":"RUN_FINISHED","threadId":"t","runId":"r"`
	const input = `{"type":"RUN_STARTED","threadId":"t","runId":"r","input":{"threadId":"t","runId":"r","messages":`
	for name, row := range map[string]struct{ older, now string }{
		"rawEvent null":        {`{"type":"TEXT_MESSAGE_END","messageId":"m","rawEvent":null}`, `{"type":"TEXT_MESSAGE_END","messageId":"m"}`},
		"result null":          {finished + `,"result":null}`, finished + `}`},
		"outcome null":         {finished + `,"outcome":null}`, finished + `}`},
		"subagent result null": {`{"type":"SUBAGENT_FINISHED","subagentRunId":"s","result":null}`, `{"type":"SUBAGENT_FINISHED","subagentRunId":"s"}`},
		"parentMessageId null": {`{"type":"TOOL_CALL_START","toolCallId":"c","toolCallName":"n","parentMessageId":null}`, `{"type":"TOOL_CALL_START","toolCallId":"c","toolCallName":"n"}`},
		"parentMessageId null on a chunk": {`{"type":"TOOL_CALL_CHUNK","toolCallId":"c","toolCallName":"n","parentMessageId":null}`,
			`{"type":"TOOL_CALL_CHUNK","toolCallId":"c","toolCallName":"n"}`},
		"patch for delta": {`{"type":"STATE_DELTA","patch":[{"op":"add","path":"/a","value":1}]}`, `{"type":"STATE_DELTA","delta":[{"op":"add","path":"/a","value":1}]}`},
		"patch as a single operation": {`{"type":"STATE_DELTA","patch":{"op":"add","path":"/a","value":1}}`,
			`{"type":"STATE_DELTA","delta":[{"op":"add","path":"/a","value":1}]}`},
		"delta as a single operation": {`{"type":"STATE_DELTA","delta":{"op":"remove","path":"/a"}}`, `{"type":"STATE_DELTA","delta":[{"op":"remove","path":"/a"}]}`},
		"state for snapshot":          {`{"type":"STATE_SNAPSHOT","state":{"a":1}}`, `{"type":"STATE_SNAPSHOT","snapshot":{"a":1}}`},
		"outcome as a string": {finished + `,"outcome":"interrupt","interrupt":{"id":"i","reason":"r"}}`,
			finished + `,"outcome":{"type":"interrupt","interrupts":[{"id":"i","reason":"r"}]}}`},
		"reasoning with role assistant": {`{"type":"REASONING_MESSAGE_START","messageId":"m","role":"assistant"}`,
			`{"type":"REASONING_MESSAGE_START","messageId":"m","role":"reasoning"}`},
		"encryptedContent": {`{"type":"REASONING_ENCRYPTED_VALUE","subtype":"message","entityId":"m","encryptedContent":"x"}`,
			`{"type":"REASONING_ENCRYPTED_VALUE","subtype":"message","entityId":"m","encryptedValue":"x"}`},
		"binary part with data": {`{"type":"MESSAGES_SNAPSHOT","messages":[{"id":"a","role":"user","content":[{"type":"binary","mimeType":"image/png","data":"AA","filename":"f"}]}]}`,
			`{"type":"MESSAGES_SNAPSHOT","messages":[{"id":"a","role":"user","content":[{"type":"image","source":{"type":"data","value":"AA","mimeType":"image/png"},"metadata":{"filename":"f"}}]}]}`},
		"binary part with url": {`{"type":"MESSAGES_SNAPSHOT","messages":[{"id":"a","role":"user","content":[{"type":"binary","mimeType":"text/csv","url":"u"}]}]}`,
			`{"type":"MESSAGES_SNAPSHOT","messages":[{"id":"a","role":"user","content":[{"type":"document","source":{"type":"url","value":"u","mimeType":"text/csv"}}]}]}`},
		"media metadata null": {input + `[{"id":"a","role":"user","content":[{"type":"image","source":{"type":"url","value":"u"},"metadata":null}]}]}}`,
			input + `[{"id":"a","role":"user","content":[{"type":"image","source":{"type":"url","value":"u"}}]}]}}`},
		"binary part of a tool result": {`{"type":"TOOL_CALL_RESULT","messageId":"m","toolCallId":"c","content":[{"type":"binary","mimeType":"image/png","data":"AA"}]}`,
			`{"type":"TOOL_CALL_RESULT","messageId":"m","toolCallId":"c","content":[{"type":"image","source":{"type":"data","value":"AA","mimeType":"image/png"}}]}`},
		"media metadata null of a tool result": {`{"type":"TOOL_CALL_RESULT","messageId":"m","toolCallId":"c","content":[{"type":"audio","source":{"type":"url","value":"u"},"metadata":null}]}`,
			`{"type":"TOOL_CALL_RESULT","messageId":"m","toolCallId":"c","content":[{"type":"audio","source":{"type":"url","value":"u"}}]}`},
		"unknown role, subagentRunId null": {input + `[{"id":"a","role":"narrator","subagentRunId":null}]}}`, input + `[{"id":"a","role":"narrator"}]}}`},
		"resume as an object": {input + `[],"resume":{"interruptId":"i","status":"resolved"}}}`,
			input + `[],"resume":[{"interruptId":"i","status":"resolved"}]}}`},
		"resume payload null": {input + `[],"resume":[{"interruptId":"i","status":"resolved","payload":null}]}}`,
			input + `[],"resume":[{"interruptId":"i","status":"resolved"}]}}`},
		"forwardedProps null": {input + `[],"forwardedProps":null}}`, input + `[]}}`},
		"parameters null": {input + `[],"tools":[{"name":"n","description":"d","parameters":null}]}}`,
			input + `[],"tools":[{"name":"n","description":"d"}]}}`},
	} {
		t.Run(name, func(t *testing.T) {
			older, err := Decode([]byte(row.older))
			if err != nil {
				t.Fatalf("older form: %v", err)
			}
			now, err := Decode([]byte(row.now))
			if err != nil {
				t.Fatalf("1.0 form: %v", err)
			}
			if string(older.Raw) != row.older {
				t.Errorf("bytes changed: %s", older.Raw)
			}
			for _, s := range now.spec.members {
				if a, b := older.JSON(s.field), now.JSON(s.field); !sameJSON(a, b) {
					t.Errorf("%s: %s, want %s", s.field, a, b)
				}
			}
		})
	}
}

func TestUpgrade_RunStartedWithoutThread(t *testing.T) {
	ev, err := Decode([]byte(`{"type":"RUN_STARTED","runId":"r"}`))
	if err != nil || ev.RunID != "r" || ev.ThreadID != "" {
		t.Errorf("got %+v, %v", ev, err)
	}
}

// Messages that come without an id get one of the run's, so that two runs never have the same.
func TestDecodeInput_NamesMessagesAfterTheirRun(t *testing.T) {
	const list = `["hi",{"content":"there"},{"id":"a","content":"you"},{"role":"system","content":"x"}]`
	want := func(run string) string {
		return `[{"id":"message-` + run + `~1","role":"user","content":"hi"},{"id":"message-` + run + `~2","role":"user","content":"there"},` +
			`{"role":"user","id":"a","content":"you"},{"id":"message-` + run + `~4","role":"system","content":"x"}]`
	}
	for name, c := range map[string]struct{ input, run, want string }{
		"the run that the caller names": {`{"runId":"other","messages":` + list + `}`, "r~2", want("r~2")},
		"the run that the input names":  {`{"runId":"r","messages":` + list + `}`, "", want("r")},
		"nobody names a run":            {`{"messages":` + list + `}`, "", want("")},
		"an id that has to be escaped":  {`{"messages":["hi"]}`, `a"b`, `[{"id":"message-a\"b~1","role":"user","content":"hi"}]`},
	} {
		t.Run(name, func(t *testing.T) {
			in, err := DecodeInput([]byte(c.input), c.run)
			if err != nil {
				t.Fatal(err)
			}
			got, err := json.Marshal(in.Messages)
			if err != nil || string(got) != c.want {
				t.Errorf("got %s, %v, want %s", got, err, c.want)
			}
		})
	}
	ev, err := Decode([]byte(`{"type":"RUN_STARTED","runId":"r","input":{"runId":"other","messages":["hi"]}}`))
	if err != nil {
		t.Fatal(err)
	}
	if a, b := ev.Input("").Messages[0].ID, ev.Input("r~2").Messages[0].ID; a != "message-r~1" || b != "message-r~2~1" {
		t.Errorf("of RUN_STARTED: %q and %q", a, b)
	}
}

// Ids as clients make them are not taken for those of DecodeInput.
func TestUnnamed(t *testing.T) {
	for id, want := range map[string]struct{ anywhere, inRun bool }{
		"": {true, true}, "message-r~1": {true, true}, "message-r~10": {true, true}, "message-r~2~1": {true, false}, "message-~1": {true, false},
		"message-user-1712345678901": {}, "message-r-3": {}, "message-550e8400-e29b-41d4-a716-446655440000": {}, "message-r~": {},
		"message-r~1a": {}, "r~1": {},
	} {
		if a, b := Unnamed(id), UnnamedIn("r", id); a != want.anywhere || b != want.inRun {
			t.Errorf("%q: %v, in the run %v", id, a, b)
		}
	}
	if UnnamedIn("a", "message-a~1~2") {
		t.Error("a message of run a~1 is one of run a")
	}
}

// AG-UI's serialised form may leave out all messages. What is sent beside the stream is the whole conversation.
func TestInput_MayHaveNoMessagesOnRunStartedOnly(t *testing.T) {
	ev, err := Decode([]byte(`{"type":"RUN_STARTED","runId":"r","input":{"state":1}}`))
	if err != nil {
		t.Fatal(err)
	}
	if in := ev.Input(""); in == nil || !in.Serialised || len(in.Messages) != 0 || string(in.State) != "1" {
		t.Errorf("got %+v", in)
	}
	if _, err := DecodeInput([]byte(`{"state":1}`), ""); !IsMalformed(err) {
		t.Errorf("beside the stream: want a malformed error, got %v", err)
	}
}

func TestDecodeInput_RefusesWhatTheSchemaRejects(t *testing.T) {
	for _, in := range []string{
		``, `[]`, `{}`, `{"messages":{}}`, `{"messages":[7]}`, `{"messages":[],"runId":1}`, `{"messages":[],"tools":{}}`,
		`{"messages":[],"resume":[{"interruptId":"i"}]}`, `{"messages":[{"id":"a","role":"user","content":7}]}`,
	} {
		if _, err := DecodeInput([]byte(in), ""); !IsMalformed(err) {
			t.Errorf("%s: want a malformed error, got %v", in, err)
		}
	}
}

// FuzzDecodeInput: no panic; what is accepted holds messages that are JSON with an id and a role.
func FuzzDecodeInput(f *testing.F) {
	f.Add([]byte(`{"messages":["a",{"content":[{"type":"binary","mimeType":"a/b","url":"u"}]}],"resume":{},"state":null}`))
	f.Fuzz(func(t *testing.T, b []byte) {
		in, err := DecodeInput(b, "")
		if err != nil {
			if !IsMalformed(err) {
				t.Fatalf("not about the data: %v", err)
			}
			return
		}
		for _, m := range in.Messages {
			var read Message
			if err := read.UnmarshalJSON(m.Raw); err != nil || read.ID != m.ID || read.Role != m.Role {
				t.Fatalf("%s reads as %+v, %v", m.Raw, read, err)
			}
		}
	})
}

func sameJSON(a, b json.RawMessage) bool {
	if a == nil || b == nil {
		return a == nil && b == nil
	}
	var x, y any
	return json.Unmarshal(a, &x) == nil && json.Unmarshal(b, &y) == nil && reflect.DeepEqual(x, y)
}
