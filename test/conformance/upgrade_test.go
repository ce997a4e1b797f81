package conformance_test

import (
	"encoding/json"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/skeinhq/skein/pkg/agui"
	"github.com/skeinhq/skein/test/conformance"
)

// upgradePair is a run as an older agent sends it and as one of AG-UI 1.0 does.
type upgradePair struct{ older, now []string }

// upgradePairs has one or more for every row of the upgrade table, by what the table calls the older form.
var upgradePairs = func() map[string]map[string]upgradePair {
	const started, finished = `{"type":"RUN_STARTED","threadId":"t","runId":"r"}`, `{"type":"RUN_FINISHED","threadId":"t","runId":"r"}`
	// of is a pair of two lists of events of one length, one or more a line, with what stands around both.
	of := func(older, now string) upgradePair {
		run := func(events string) []string {
			lines := strings.Split(strings.TrimSpace(events), "\n")
			for i, line := range lines {
				lines[i] = strings.TrimSpace(line)
			}
			if !strings.Contains(lines[0], `"RUN_STARTED"`) {
				lines = slices.Insert(lines, 0, started)
			}
			if !strings.Contains(lines[len(lines)-1], `"RUN_FINISHED"`) {
				lines = append(lines, finished)
			}
			return lines
		}
		return upgradePair{run(older), run(now)}
	}
	// each is the pair of a form with the older and the newer text in the place of a mark.
	each := func(form, older, now string) upgradePair {
		return of(strings.ReplaceAll(form, "…", older), strings.ReplaceAll(form, "…", now))
	}
	const parts = `{"type":"MESSAGES_SNAPSHOT","messages":[{"id":"u","role":"user","content":[{"type":"text","text":"see"},…]}]}`
	const input = `{"type":"RUN_STARTED","threadId":"t","runId":"r","input":{"threadId":"t","runId":"r","tools":[],"context":[],…}}
		{"type":"TEXT_MESSAGE_CONTENT","messageId":"message-r~1","delta":" more"}`
	const call = `{"type":"TEXT_MESSAGE_START","messageId":"a"}
		{"type":"TEXT_MESSAGE_END","messageId":"a"}
		{"type":"TOOL_CALL_START","toolCallId":"c","toolCallName":"look"…}
		{"type":"TOOL_CALL_ARGS","toolCallId":"c","delta":"{}"}
		{"type":"TOOL_CALL_END","toolCallId":"c"}`
	result := strings.ReplaceAll(call, "…", "") + "\n" +
		`{"type":"TOOL_CALL_RESULT","messageId":"m","toolCallId":"c","content":[{"type":"text","text":"see"},…]}`
	return map[string]map[string]upgradePair{
		"rawEvent, result, outcome, parentMessageId: null": {
			// A chunk that carries something of its own stands for an empty delta, which makes parts a text.
			"rawEvent": each(strings.ReplaceAll(parts, "…", `{"type":"text","text":"it"}`)+`
				{"type":"TEXT_MESSAGE_CHUNK","messageId":"u"…}`, `,"rawEvent":null`, ``),
			"result":               each(`{"type":"RUN_FINISHED","threadId":"t","runId":"r"…}`, `,"result":null`, ``),
			"a subagent's result":  each(`{"type":"SUBAGENT_STARTED","subagentRunId":"s","name":"n"}`+"\n"+`{"type":"SUBAGENT_FINISHED","subagentRunId":"s"…}`, `,"result":null`, ``),
			"outcome":              each(`{"type":"RUN_FINISHED","threadId":"t","runId":"r"…}`, `,"outcome":null`, ``),
			"parentMessageId":      each(call, `,"parentMessageId":null`, ``),
			"a chunk's, as a call": each(`{"type":"TOOL_CALL_CHUNK","toolCallId":"c","toolCallName":"look","delta":"{"…}`+"\n"+`{"type":"TOOL_CALL_CHUNK","toolCallId":"c","delta":"}"…}`, `,"parentMessageId":null`, ``),
		},
		"STATE_DELTA patch": {
			"a list":      each(`{"type":"STATE_DELTA",…:[{"op":"add","path":"/a","value":1},{"op":"add","path":"/b","value":2}]}`, `"patch"`, `"delta"`),
			"one of them": of(`{"type":"STATE_DELTA","patch":{"op":"add","path":"/a","value":1}}`, `{"type":"STATE_DELTA","delta":[{"op":"add","path":"/a","value":1}]}`),
		},
		"STATE_DELTA delta as a single operation": {
			"": each(`{"type":"STATE_SNAPSHOT","snapshot":{"a":[1,2]}}`+"\n"+`{"type":"STATE_DELTA","delta":…}`, `{"op":"remove","path":"/a/0"}`, `[{"op":"remove","path":"/a/0"}]`),
		},
		"STATE_SNAPSHOT state": {
			"": each(`{"type":"STATE_SNAPSHOT",…:{"a":1}}`+"\n"+`{"type":"STATE_DELTA","delta":[{"op":"replace","path":"/a","value":2}]}`, `"state"`, `"snapshot"`),
		},
		`RUN_FINISHED outcome "interrupt" + interrupt`: {
			"": each(strings.ReplaceAll(call, "…", "")+"\n"+`{"type":"RUN_FINISHED","threadId":"t","runId":"r","outcome":…}`,
				`"interrupt","interrupt":{"id":"i","reason":"tool_call","toolCallId":"c"}`, `{"type":"interrupt","interrupts":[{"id":"i","reason":"tool_call","toolCallId":"c"}]}`),
		},
		`REASONING_MESSAGE_START role "assistant"`: {
			"": each(`{"type":"REASONING_START","messageId":"r"}
				{"type":"REASONING_MESSAGE_START","messageId":"r","role":"…"}
				{"type":"REASONING_MESSAGE_CONTENT","messageId":"r","delta":"hm"}
				{"type":"REASONING_MESSAGE_END","messageId":"r"}
				{"type":"REASONING_END","messageId":"r"}`, "assistant", "reasoning"),
		},
		"REASONING_ENCRYPTED_VALUE encryptedContent": {
			"of a message": each(`{"type":"TEXT_MESSAGE_CHUNK","messageId":"m","delta":"x"}`+"\n"+`{"type":"REASONING_ENCRYPTED_VALUE","subtype":"message","entityId":"m",…:"s"}`, `"encryptedContent"`, `"encryptedValue"`),
			"of a call":    each(strings.ReplaceAll(call, "…", "")+"\n"+`{"type":"REASONING_ENCRYPTED_VALUE","subtype":"tool-call","entityId":"c",…:"s"}`, `"encryptedContent"`, `"encryptedValue"`),
		},
		"binary content parts": {
			"an image": each(parts, `{"type":"binary","mimeType":"image/png","data":"AA","filename":"f"}`,
				`{"type":"image","source":{"type":"data","value":"AA","mimeType":"image/png"},"metadata":{"filename":"f"}}`),
			"a sound":    each(parts, `{"type":"binary","mimeType":"audio/ogg","url":"u"}`, `{"type":"audio","source":{"type":"url","value":"u","mimeType":"audio/ogg"}}`),
			"a video":    each(parts, `{"type":"binary","mimeType":"video/mp4","url":"u"}`, `{"type":"video","source":{"type":"url","value":"u","mimeType":"video/mp4"}}`),
			"a document": each(parts, `{"type":"binary","mimeType":"text/csv","data":"","url":"u"}`, `{"type":"document","source":{"type":"url","value":"u","mimeType":"text/csv"}}`),
			"of an input": each(input, `"messages":[{"id":"message-r~1","role":"assistant"},{"id":"u","role":"user","content":[{"type":"binary","mimeType":"text/csv","url":"u"}]}]`,
				`"messages":[{"id":"message-r~1","role":"assistant"},{"id":"u","role":"user","content":[{"type":"document","source":{"type":"url","value":"u","mimeType":"text/csv"}}]}]`),
		},
		"content parts: null metadata": {
			"": each(parts, `{"type":"image","source":{"type":"url","value":"u"},"metadata":null}`, `{"type":"image","source":{"type":"url","value":"u"}}`),
		},
		"TOOL_CALL_RESULT content: both of these": {
			"binary": each(result, `{"type":"binary","mimeType":"image/png","data":"AA","filename":"f"}`,
				`{"type":"image","source":{"type":"data","value":"AA","mimeType":"image/png"},"metadata":{"filename":"f"}}`),
			"binary that mirrors": each(result, `{"type":"binary","mimeType":"image/png","url":"u"},{"type":"image","source":{"type":"url","value":"u","mimeType":"image/png"}}`,
				`{"type":"image","source":{"type":"url","value":"u","mimeType":"image/png"}}`),
			"null metadata": each(result, `{"type":"image","source":{"type":"url","value":"u"},"metadata":null}`, `{"type":"image","source":{"type":"url","value":"u"}}`),
		},
		"messages of unknown roles: null subagentRunId": {
			"": each(`{"type":"MESSAGES_SNAPSHOT","messages":[{"id":"w","role":"narrator"…}]}`, `,"subagentRunId":null`, ``),
		},
		"input: messages as strings, without id or role": {
			"strings": each(input, `"messages":["hi","there"]`, `"messages":[{"id":"message-r~1","role":"user","content":"hi"},{"id":"message-r~2","role":"user","content":"there"}]`),
			"neither": each(input, `"messages":[{"content":"hi"}]`, `"messages":[{"id":"message-r~1","role":"user","content":"hi"}]`),
			"no id":   each(input, `"messages":[{"role":"assistant","content":"hi"}]`, `"messages":[{"id":"message-r~1","role":"assistant","content":"hi"}]`),
			"no role": each(input, `"messages":[{"id":"message-r~1","content":"hi"}]`, `"messages":[{"id":"message-r~1","role":"user","content":"hi"}]`),
		},
		"input: resume as an object": {
			"": each(input, `"messages":["a"],"resume":{"interruptId":"i","status":"resolved"}`, `"messages":[{"id":"message-r~1","role":"user","content":"a"}],"resume":[{"interruptId":"i","status":"resolved"}]`),
		},
		"input: null forwardedProps, parameters, payload": {
			"forwardedProps": each(input, `"messages":["a"],"forwardedProps":null`, `"messages":[{"id":"message-r~1","role":"user","content":"a"}]`),
			"parameters": each(strings.ReplaceAll(input, `"tools":[],`, ``), `"messages":["a"],"tools":[{"name":"n","description":"d","parameters":null}]`,
				`"messages":[{"id":"message-r~1","role":"user","content":"a"}],"tools":[{"name":"n","description":"d"}]`),
			"payload": each(input, `"messages":["a"],"resume":[{"interruptId":"i","status":"resolved","payload":null}]`, `"messages":[{"id":"message-r~1","role":"user","content":"a"}],"resume":[{"interruptId":"i","status":"resolved"}]`),
		},
		"THINKING_*": {
			"": of(`{"type":"THINKING_START","title":"t"}
				{"type":"THINKING_TEXT_MESSAGE_START"}
				{"type":"THINKING_TEXT_MESSAGE_CONTENT","delta":"hm"}
				{"type":"THINKING_TEXT_MESSAGE_END"}
				{"type":"THINKING_TEXT_MESSAGE_START"}
				{"type":"THINKING_TEXT_MESSAGE_CONTENT","delta":"well"}
				{"type":"THINKING_TEXT_MESSAGE_END"}
				{"type":"THINKING_END"}`,
				`{"type":"REASONING_START","messageId":"span"}
				{"type":"REASONING_MESSAGE_START","messageId":"thinking-r-2","role":"reasoning"}
				{"type":"REASONING_MESSAGE_CONTENT","messageId":"thinking-r-2","delta":"hm"}
				{"type":"REASONING_MESSAGE_END","messageId":"thinking-r-2"}
				{"type":"REASONING_MESSAGE_START","messageId":"thinking-r-3","role":"reasoning"}
				{"type":"REASONING_MESSAGE_CONTENT","messageId":"thinking-r-3","delta":"well"}
				{"type":"REASONING_MESSAGE_END","messageId":"thinking-r-3"}
				{"type":"REASONING_END","messageId":"span"}`),
		},
		"RUN_STARTED without threadId": {
			"": each(`{"type":"RUN_STARTED",…"runId":"r","input":{"threadId":"t","runId":"r","messages":[{"id":"u","role":"user","content":"hi"}],"tools":[],"context":[]}}`, ``, `"threadId":"t",`),
		},
	}
}()

// Every row of the upgrade table has a pair here; each run of an older agent folds to what the 1.0 run folds to,
// and that one to what the official client makes of it.
func TestUpgrade_EachRowFoldsAsTheNewerForm(t *testing.T) {
	rows := upgradeTable(t)
	for row := range upgradePairs {
		if !slices.Contains(rows, row) {
			t.Errorf("the table has no row %q", row)
		}
	}
	live, ok := conformance.Live(t)
	for _, row := range rows {
		if len(upgradePairs[row]) == 0 {
			t.Errorf("the row %q has no pair", row)
		}
		for name, pair := range upgradePairs[row] {
			t.Run(strings.TrimSpace(row+" "+name), func(t *testing.T) {
				older, now := pair.fold(t, pair.older), pair.fold(t, pair.now)
				if d := conformance.Diff(now.Conversation, older.Conversation); d != "" {
					t.Errorf("the older form: %s", d)
				}
				a, b := older.run.Summary(), now.run.Summary()
				delete(a.Anomalies, "reasoning-role") // of the older form alone
				for _, said := range []struct {
					name       string
					now, older any
				}{
					{"status", b.Status, a.Status}, {"interrupts", b.Interrupts, a.Interrupts}, {"anomalies", b.Anomalies, a.Anomalies},
					{"pending tool calls", b.PendingToolCalls, a.PendingToolCalls}, {"tool calls", b.ToolCalls, a.ToolCalls},
					{"input", inputOf(t, pair.now), inputOf(t, pair.older)},
				} {
					if d := conformance.DiffJSON(said.name, toJSON(t, said.now), toJSON(t, said.older)); d != "" {
						t.Errorf("the older form: %s", d)
					}
				}
				if !ok {
					return
				}
				want := live.Play(t, conformance.Job{Events: conformance.Raw(pair.now), Schema: true, Verify: true})[0]
				if want.Error != nil {
					t.Fatalf("the client takes the 1.0 form for malformed: %v", want.Error)
				}
				if d := conformance.Diff(want.Conversation, now.Conversation); d != "" {
					t.Errorf("the 1.0 form: %s", d)
				}
			})
		}
	}
}

func (upgradePair) fold(t *testing.T, events []string) folded {
	t.Helper()
	lines := conformance.Raw(events)
	f := foldOf(t, conformance.Start{}, lines)
	for _, i := range f.malformed {
		_, err := agui.Decode(lines[i])
		t.Errorf("taken for malformed: %s: %v", lines[i], err)
	}
	return f
}

// inputOf is the run's input as it is read, be it on RUN_STARTED or sent beside the stream; null where it has none.
func inputOf(t *testing.T, events []string) json.RawMessage {
	t.Helper()
	text := agui.Lookup(json.RawMessage(events[0]), "input")
	if text == nil {
		return nil
	}
	input, err := agui.DecodeInput(text, "")
	if err != nil {
		t.Fatal(err)
	}
	return encode(obj{"messages": input.Messages, "rest": agui.Without(input.Raw, "messages")})
}

// upgradeTable reads what the table in pkg/agui/upgrade.go calls the older forms.
func upgradeTable(t *testing.T) []string {
	t.Helper()
	source, err := os.ReadFile(filepath.Join("..", "..", "pkg", "agui", "upgrade.go"))
	if err != nil {
		t.Fatal(err)
	}
	_, table, _ := strings.Cut(string(source), "//	member or form")
	table, _, found := strings.Cut(table, "\nfunc ")
	var rows []string
	for _, m := range regexp.MustCompile(`(?m)^//\t(\S.*?)  `).FindAllStringSubmatch(table, -1) {
		rows = append(rows, m[1])
	}
	if !found || len(rows) < 13 {
		t.Fatalf("the table has the rows %q", rows)
	}
	return rows
}
