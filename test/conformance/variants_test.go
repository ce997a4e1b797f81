package conformance_test

import (
	"encoding/json"
	"flag"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/skeinhq/skein/internal/seedtest"
	"github.com/skeinhq/skein/pkg/agui"
	"github.com/skeinhq/skein/test/conformance"
)

// TestVariants_EqualTheOfficialClient takes an instance of each event type, message, tool, content part, operation and
// outcome that has all its members, changes one member at a time, at any depth, and holds Skein's verdict (folded or
// malformed) and what it makes of the stream to the client's.
func TestVariants_EqualTheOfficialClient(t *testing.T) {
	client := conformance.Need(t)
	names, jobs := someVariants(t)
	results := client.Play(t, jobs...)
	rejected := 0
	found := map[string]bool{}
	var asStripped []int
	for i, want := range results {
		if len(want.Skipped) > 0 {
			rejected++
		}
		got := foldOf(t, jobs[i].Start, jobs[i].Events)
		if strings.HasPrefix(names[i], "THINKING_") { // the client's ids are random
			maskReasoning(t, &want.Conversation, &got.Conversation)
		}
		d := verdictDiffers(want, got)
		switch {
		case d == "" || found[names[i]] || circles[names[i]]:
		case documented[names[i]] == "":
			t.Errorf("%s: %s\n%s", names[i], d, jobs[i].Events[variantAt])
		default:
			found[names[i]] = true
			if documented[names[i]] == noRole {
				asStripped = append(asStripped, i)
			}
		}
	}
	equalsStripped(t, client, names, jobs, asStripped)
	for name, reason := range documented {
		if !found[name] && (*variantsAll || slices.Contains(names, name)) {
			t.Errorf("%s does not differ (any more): %s", name, reason)
		}
	}
	report.variants, report.variantsRejected, report.variantsDocumented = len(results), rejected, len(found)
}

var variantsAll = flag.Bool("variants.all", false, "take each variant of an event, and each short stream, not every third")

// step is of how many variants and short streams one is taken, from a random one on, where -variants.all is not set.
const step = 3

// someVariants returns variants of all instances, by name, and a job for each.
func someVariants(t *testing.T) (names []string, jobs []conformance.Job) {
	t.Helper()
	n := seedtest.New(t) % step
	for _, in := range instances() {
		for v := range variants(in.event) {
			if n++; *variantsAll || n%step == 0 {
				names = append(names, in.name+v.name)
				jobs = append(jobs, job(t, in, v.event))
			}
		}
	}
	return names, jobs
}

// equalsStripped holds some of the jobs to what the client makes of them behind its own enforcement.
func equalsStripped(t *testing.T, client *conformance.Client, names []string, all []conformance.Job, which []int) {
	t.Helper()
	var jobs []conformance.Job
	for _, i := range which {
		all[i].Strip = true
		jobs = append(jobs, all[i])
	}
	for j, want := range client.Play(t, jobs...) {
		got := foldOf(t, jobs[j].Start, jobs[j].Events)
		if d := verdictDiffers(want, got); d != "" {
			t.Errorf("%s, stripped: %s\n%s", names[which[j]], d, jobs[j].Events[variantAt])
		}
	}
}

// A message that cannot be stored or found costs itself, and not those beside it.
func TestStripped_MessagesLeaveTheOthers(t *testing.T) {
	client := conformance.Need(t)
	for name, m := range map[string]string{
		"no role": `{"id":"b","content":7}`, "a role that is no string": `{"id":"b","role":null,"content":"x"}`, "nothing": `{}`,
		"an unknown role and no id": `{"id":null,"role":"invented"}`, "a role that stands twice": `{"id":"b","role":"user","role":1,"content":"x"}`,
	} {
		list := `[{"id":"x","role":"user","content":"1"},` + m + `,{"id":"y","role":"reasoning","content":"2"}]`
		for _, event := range []string{
			`{"type":"MESSAGES_SNAPSHOT","messages":` + list + `}`,
			`{"type":"RUN_STARTED","threadId":"t","runId":"r","input":{"threadId":"t","runId":"r","messages":` + list + `}}`,
		} {
			job := conformance.Job{Upgrade: true, Schema: true, Strip: true, Events: []json.RawMessage{json.RawMessage(event)}}
			got := foldOf(t, job.Start, job.Events)
			if d := verdictDiffers(client.Play(t, job)[0], got); d != "" || len(got.run.Messages()) != 2 || got.run.Summary().Anomalies["message-stripped"] != 1 {
				t.Errorf("%s: %s: %v\n%s\n%s", name, d, got.run.Summary().Anomalies, event, got.Messages)
			}
		}
	}
}

// verdictDiffers compares verdicts first: a result that differs says less than who took what.
func verdictDiffers(want conformance.Result, got folded) string {
	skipped := rejected(want)
	if !slices.Equal(skipped, got.malformed) {
		said := ""
		for _, e := range want.Skipped {
			said = strings.Join(strings.Fields(e.Message), " ")
		}
		return fmt.Sprintf("the client takes events %v for malformed, the fold %v: %.200s", skipped, got.malformed, said)
	}
	return conformance.Diff(want.Conversation, got.Conversation)
}

type instance struct {
	name  string
	event obj
}

// variantAt is the variant's place in the events of its job.
const variantAt = 1

// job puts an event into a run of which it changes something, and lets others follow that show what.
func job(t *testing.T, in instance, event any) conformance.Job {
	t.Helper()
	raw := encode(event)
	if !json.Valid(raw) {
		t.Fatalf("%s: not JSON: %s", in.name, raw)
	}
	j := conformance.Job{Upgrade: true, Schema: true, Skip: true, Start: conformance.Start{
		Messages: json.RawMessage(`[{"id":"a","role":"assistant","content":"x","toolCalls":[{"id":"c","type":"function","function":{"name":"n","arguments":"{"}}]},
			{"id":"w","role":"activity","activityType":"p","content":{"a":1,"l":[1,2]}}]`),
		State: json.RawMessage(`{"a":1,"l":[1,2]}`),
	}}
	j.Events = []json.RawMessage{json.RawMessage(`{"type":"RUN_STARTED","threadId":"t","runId":"r"}`), raw}
	if t := in.event["type"]; t == string(agui.RunFinished) || t == string(agui.RunError) {
		return j // nothing comes behind
	}
	for _, e := range []string{
		`{"type":"TEXT_MESSAGE_CONTENT","messageId":"new","delta":"b"}`,
		`{"type":"TOOL_CALL_ARGS","toolCallId":"c","delta":"}"}`,
		`{"type":"TOOL_CALL_ARGS","toolCallId":"new","delta":"}"}`,
		`{"type":"STATE_DELTA","delta":[{"op":"add","path":"/z","value":1}]}`,
		`{"type":"ACTIVITY_DELTA","messageId":"w","activityType":"q","patch":[{"op":"add","path":"/z","value":1}]}`,
	} {
		j.Events = append(j.Events, json.RawMessage(e))
	}
	return j
}

type variant struct {
	name  string
	event any
}

// values are one of each JSON type, empty ones, and numbers that are no counts.
var values = []string{`null`, `true`, `7`, `1.5`, `-1`, `""`, `"x"`, `[]`, `[null]`, `{}`}

// variants yields an event as it is, and with one member changed.
func variants(event obj) func(yield func(variant) bool) {
	return func(yield func(variant) bool) {
		going := yield(variant{"", event})
		var walk func(v any, path string, with func(any) any)
		change := func(name string, with func(any) any, v any) {
			going = going && yield(variant{name, with(v)})
		}
		each := func(v any, path string, with func(any) any) {
			for _, raw := range values {
				if string(encode(v)) != raw {
					change(path+" "+raw, with, json.RawMessage(raw))
				}
			}
			walk(v, path, with)
		}
		walk = func(v any, path string, with func(any) any) {
			switch v := v.(type) {
			case obj:
				for _, name := range slices.Sorted(maps.Keys(v)) {
					if path == "" && name == "type" {
						continue // another event type is another event
					}
					in := func(m any) any {
						c := maps.Clone(v)
						c[name] = m
						return with(c)
					}
					c := maps.Clone(v)
					delete(c, name)
					change(path+"/"+name+" missing", with, c)
					each(v[name], path+"/"+name, in)
				}
				c := maps.Clone(v)
				c["vendorField"] = 1
				change(path+" unknown member", with, c)
			case []any:
				for i := range v {
					each(v[i], path+"/"+strconv.Itoa(i), func(e any) any {
						c := slices.Clone(v)
						c[i] = e
						return with(c)
					})
				}
			}
		}
		walk(event, "", func(v any) any { return v })
	}
}

// instances are events that have all their members.
func instances() []instance {
	of := func(t agui.Type, members ...any) obj {
		o := obj{"type": string(t), "timestamp": 1795250047000, "rawEvent": obj{"k": 1}, "metadata": obj{"k": 1}}
		for i := 0; i < len(members); i += 2 {
			o[members[i].(string)] = members[i+1]
		}
		return o
	}
	// by is an event that can be a subagent's.
	by := func(t agui.Type, members ...any) obj { return of(t, append(members, "subagentRunId", "s")...) }
	list := []instance{
		{"", by(agui.TextMessageStart, "messageId", "new", "role", "user", "name", "n")},
		{"", by(agui.TextMessageContent, "messageId", "a", "delta", "d")},
		{"", by(agui.TextMessageEnd, "messageId", "a")},
		{"", by(agui.TextMessageChunk, "messageId", "new", "role", "user", "name", "n", "delta", "d")},
		{"", by(agui.ToolCallStart, "toolCallId", "new", "toolCallName", "n", "parentMessageId", "a")},
		{"", by(agui.ToolCallArgs, "toolCallId", "c", "delta", "d")},
		{"", by(agui.ToolCallEnd, "toolCallId", "c")},
		{"", by(agui.ToolCallChunk, "toolCallId", "new", "toolCallName", "n", "parentMessageId", "a", "delta", "d")},
		{"", by(agui.ToolCallResult, "messageId", "new", "toolCallId", "c", "content", "x", "role", "tool")},
		{"", by(agui.StateSnapshot, "snapshot", obj{"k": 1})},
		{"", by(agui.ActivitySnapshot, "messageId", "w", "activityType", "q", "content", obj{"k": 1}, "replace", true)},
		{"", by(agui.ReasoningStart, "messageId", "new")},
		{"", by(agui.ReasoningEnd, "messageId", "new")},
		{"", by(agui.ReasoningMessageStart, "messageId", "new", "role", "reasoning")},
		{"", by(agui.ReasoningMessageContent, "messageId", "a", "delta", "d")},
		{"", by(agui.ReasoningMessageEnd, "messageId", "a")},
		{"", by(agui.ReasoningMessageChunk, "messageId", "new", "delta", "d")},
		{"", by(agui.ReasoningEncryptedValue, "subtype", "message", "entityId", "a", "encryptedValue", "e")},
		{" (tool call)", by(agui.ReasoningEncryptedValue, "subtype", "tool-call", "entityId", "c", "encryptedValue", "e")},
		{"", of(agui.SubagentStarted, "subagentRunId", "s", "name", "n", "description", "d", "parentSubagentRunId", "p", "parentToolCallId", "c",
			"parentMessageId", "a")},
		{"", of(agui.SubagentError, "subagentRunId", "s", "message", "m", "code", "c")},
		{"", by(agui.StepStarted, "stepName", "n")},
		{"", by(agui.StepFinished, "stepName", "n")},
		{"", by(agui.Raw, "event", obj{"k": 1}, "source", "s")},
		{"", by(agui.Custom, "name", "n", "value", obj{"k": 1})},
		{"", by(agui.ThinkingStart, "title", "t")},
		{"", by(agui.ThinkingEnd)},
		{"", by(agui.ThinkingTextMessageStart)},
		{"", by(agui.ThinkingTextMessageContent, "delta", "d")},
		{"", by(agui.ThinkingTextMessageEnd)},
		{"", of(unknownType, "messageId", "a")},
		{"", of(agui.RunError, "message", "m", "code", "c", "usage", usageOf())},
	}
	for kind, outcome := range map[string]obj{
		"success":   {"type": "success", "pendingToolCallIds": []any{"c"}},
		"cancelled": {"type": "cancelled"},
		"interrupt": {"type": "interrupt", "interrupts": []any{obj{"id": "i", "reason": "r", "message": "m", "toolCallId": "c",
			"responseSchema": obj{"k": 1}, "expiresAt": "e", "metadata": obj{"k": 1}, "subagentRunId": "s"}}},
		"unknown": {"type": "invented"},
	} {
		e := of(agui.RunFinished, "threadId", "t", "runId", "r", "result", obj{"k": 1}, "outcome", outcome)
		if kind == "success" {
			e["usage"] = usageOf()
		}
		list = append(list, instance{" (" + kind + ")", e})
	}
	for kind, outcome := range map[string]obj{
		"success": {"type": "success"}, "suspended": {"type": "suspended", "interruptIds": []any{"i"}}, "unknown": {"type": "invented"},
	} {
		list = append(list, instance{" (" + kind + ")",
			of(agui.SubagentFinished, "subagentRunId", "s", "result", obj{"k": 1}, "outcome", outcome)})
	}
	for kind, op := range map[string]obj{
		"add": {"op": "add", "path": "/b", "value": obj{"k": 1}}, "replace": {"op": "replace", "path": "/a", "value": 2},
		"remove": {"op": "remove", "path": "/a"}, "test": {"op": "test", "path": "/a", "value": 1},
		"move": {"op": "move", "from": "/a", "path": "/b"}, "copy": {"op": "copy", "from": "/l/0", "path": "/b"},
		"unknown": {"op": "invented", "path": "/a"},
	} {
		list = append(list, instance{" (" + kind + ")", by(agui.StateDelta, "delta", []any{op})},
			instance{" (" + kind + ")", by(agui.ActivityDelta, "messageId", "w", "activityType", "q", "patch", []any{op})})
	}
	parts := parts()
	for kind, part := range parts {
		if part["type"] == "binary" {
			continue // upgraded there by Skein only, with its variants as in a message: see upgrade_test.go
		}
		list = append(list, instance{" (" + kind + ")", by(agui.ToolCallResult, "messageId", "new", "toolCallId", "c", "content", []any{part})})
	}
	for kind, m := range messages(parts) {
		list = append(list, instance{" (" + kind + ")", of(agui.MessagesSnapshot, "messages", []any{m})},
			instance{" (" + kind + ")", of(agui.RunStarted, "threadId", "t", "runId", "r", "input",
				obj{"threadId": "t", "runId": "r", "messages": []any{m}})})
	}
	list = append(list, instance{" (input)",
		of(agui.RunStarted, "threadId", "t", "runId", "r", "protocolVersion", "1.0", "parentRunId", "p", "input", obj{
			"threadId": "t", "runId": "r", "protocolVersion": "1.0", "parentRunId": "p", "state": obj{"k": 1}, "forwardedProps": obj{"k": 1},
			"messages": []any{obj{"id": "new", "role": "user", "content": "x"}},
			"tools":    []any{obj{"name": "n", "description": "d", "parameters": obj{"k": 1}, "metadata": obj{"k": 1}}},
			"context":  []any{obj{"description": "d", "value": "v"}},
			"resume":   []any{obj{"interruptId": "i", "status": "resolved", "payload": obj{"k": 1}, "metadata": obj{"k": 1}}},
		})})
	for i := range list {
		list[i].name = list[i].event["type"].(string) + list[i].name
	}
	return list
}

func usageOf() []any {
	u := obj{"provider": "p", "model": "m"}
	for i, name := range agui.UsageCounts {
		u[name] = i
	}
	return []any{u}
}

// parts are content parts by what they are.
func parts() map[string]obj {
	all := map[string]obj{"text part": {"type": "text", "text": "x", "id": "i", "metadata": obj{"k": 1}},
		"unknown part": {"type": "invented", "id": "i"}}
	for kind, source := range map[string]obj{
		"image": {"type": "data", "value": "v", "mimeType": "m"}, "audio": {"type": "url", "value": "v", "mimeType": "m"},
		"video": {"type": "file", "value": "v", "provider": "p", "mimeType": "m"}, "document": {"type": "invented", "value": "v"},
	} {
		all[kind+" part, "+source["type"].(string)] = obj{"type": kind, "id": "i", "metadata": obj{"k": 1}, "source": source}
	}
	all["binary part, data"] = obj{"type": "binary", "id": "i", "mimeType": "image/png", "data": "v", "filename": "f"}
	all["binary part, url"] = obj{"type": "binary", "id": "i", "mimeType": "m", "url": "v", "filename": "f"}
	return all
}

// messages are messages by their role, one of a user for each content part.
func messages(parts map[string]obj) map[string]obj {
	all := map[string]obj{
		"developer": {"name": "n", "encryptedValue": "e", "content": "x"}, "system": {"name": "n", "encryptedValue": "e", "content": "x"},
		"user": {"name": "n", "encryptedValue": "e", "content": "x"}, "reasoning": {"encryptedValue": "e", "content": "x"},
		"assistant": {"name": "n", "encryptedValue": "e", "content": "x", "toolCalls": []any{obj{"id": "new", "type": "function",
			"function": obj{"name": "n", "arguments": "{"}, "encryptedValue": "e", "metadata": obj{"k": 1}}}},
		"tool":     {"toolCallId": "c", "error": "e", "encryptedValue": "e", "content": "x"},
		"activity": {"activityType": "p", "content": obj{"k": 1}},
		"invented": {"content": "x"},
	}
	for role, m := range all {
		m["id"], m["role"], m["metadata"], m["subagentRunId"] = "new", role, obj{"k": 1}, "s"
	}
	for kind, part := range parts {
		all["user, "+kind] = obj{"id": "new", "role": "user", "content": []any{part}}
	}
	all["user, a part in both forms"] = obj{"id": "new", "role": "user", "content": []any{
		obj{"type": "binary", "id": "i", "mimeType": "image/png", "data": "x", "filename": "f"},
		obj{"type": "image", "source": obj{"type": "data", "value": "x", "mimeType": "image/png"}, "metadata": obj{"filename": "f"}},
	}}
	return all
}

// circles leave the client with an object that holds itself, which no JSON can show (docs/fold.md).
var circles = map[string]bool{"STATE_DELTA (move)/delta/0/from \"\"": true, "ACTIVITY_DELTA (move)/patch/0/from \"\"": true}

const noRole = "a message without role, or of an unknown one without id, cannot be stored or found: left out, as by the client's enforcement"

// documented are the variants that differ, by name, with the reason. docs/fold.md has them as rows.
var documented = func() map[string]string {
	all := map[string]string{}
	differ := func(reason, member string, how ...string) {
		for _, v := range how {
			all[member+" "+v] = reason
		}
	}
	const (
		older      = "an older form that Skein takes: pkg/agui/upgrade.go"
		serialised = "AG-UI's serialised form leaves out what is in the history, and so may all of the list: folded"
		unused     = "the fold does not use it, and the messages beside it would be lost: folded"
		object     = "an activity's content stays an object: the patch fails"
	)
	noString := []string{"null", "true", "7", "1.5", "-1", "[]", "[null]", "{}"}
	noObject := []string{"null", "true", "7", "1.5", "-1", `""`, `"x"`, "[]", "[null]"}
	for kind := range messages(parts()) {
		snapshot, input := "MESSAGES_SNAPSHOT ("+kind+")/messages/0", "RUN_STARTED ("+kind+")/input"
		differ(noRole, snapshot, "{}")
		differ(noRole, snapshot+"/role", append(noString, "missing")...)
		differ(noRole, input+"/messages/0", "{}")
		differ(noRole, input+"/messages/0/role", noString...)
		differ(older, input+"/messages/0", `""`, `"x"`)
		differ(older, input+"/messages/0/role", "missing")
		differ(older, input+"/messages/0/id", "missing")
		differ(older, input+"/threadId", "missing")
		differ(older, input+"/runId", "missing")
		differ(serialised, input, "{}")
		differ(serialised, input+"/messages", "missing")
		differ(older, "RUN_STARTED ("+kind+")/threadId", "missing")
	}
	differ(noRole, "MESSAGES_SNAPSHOT (invented)/messages/0/id", append(noString, "missing")...)
	differ(noRole, "RUN_STARTED (invented)/input/messages/0/id", noString...)
	for _, op := range []string{"add", "replace", "remove", "test", "move", "copy", "unknown"} {
		differ(older, "STATE_DELTA ("+op+")/delta", "{}")
	}
	for _, op := range []string{"replace", "remove", "move", "copy"} {
		differ(object, "ACTIVITY_DELTA ("+op+")/patch/0/path", `""`)
	}
	for _, kind := range []string{"image part, data", "audio part, url", "video part, file"} {
		differ(older, "TOOL_CALL_RESULT ("+kind+")/content/0/metadata", "null")
	}
	const input = "RUN_STARTED (input)/input"
	differ(older, "RUN_STARTED (input)/threadId", "missing")
	differ(older, input+"/threadId", "missing")
	differ(older, input+"/runId", "missing")
	differ(serialised, input, "{}")
	differ(serialised, input+"/messages", "missing")
	differ(noRole, input+"/messages/0", "{}")
	differ(noRole, input+"/messages/0/role", noString...)
	differ(older, input+"/messages/0", `""`, `"x"`)
	differ(older, input+"/messages/0/role", "missing")
	differ(older, input+"/messages/0/id", "missing")
	for _, list := range []string{"/tools", "/context"} {
		differ(unused, input+list, "[null]")
		differ(unused, input+list+"/0", append(noObject, "{}")...)
		differ(unused, input+list+"/0/description", append(noString, "missing")...)
	}
	differ(unused, input+"/tools/0/name", append(noString, "missing")...)
	differ(unused, input+"/context/0/value", append(noString, "missing")...)
	differ(unused, input+"/tools/0/metadata", noObject...)
	differ(unused, input+"/resume/0/metadata", noObject...)
	differ(unused, input+"/resume/0/status", `""`, `"x"`)
	return all
}()
