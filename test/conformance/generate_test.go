package conformance_test

import (
	"bytes"
	"encoding/json"
	"fmt"
	"regexp"
	"slices"
	"strings"

	"pgregory.net/rapid"

	"github.com/skeinhq/skein/pkg/agui"
)

// stream is a generated run: episodes of well-behaved agents, interleaved, then mutated.
type stream struct {
	events    []json.RawMessage
	mutations []string
}

type obj = map[string]any

// Halves of a surrogate pair, which Go's strings cannot hold: encode writes their escapes.
const (
	highHalf = "\U0010F001"
	lowHalf  = "\U0010F002"
)

var writeHalves = strings.NewReplacer(highHalf, `\ud83d`, lowHalf, `\ude00`)

var (
	messageIDs = []string{"m0", "m1", "m2", "m3", "é\"4"}
	callIDs    = []string{"c0", "c1", "c2", "m1"} // one that is a message's id too
	subagents  = []string{"s0", "s0", "s1", "s1", ""}
	words      = []string{"", "a", "some words ", "é", "😀", highHalf, lowHalf, lowHalf + highHalf, "\n\"\\/", "{", "}", "\u2028<&>"}
	pointers   = []string{"", "/", "/a", "/b", "/l", "/l/0", "/l/1", "/l/-", "/l/9", "/l/01", "/l/x", "/o/k", "/o/k/d", "/o", "/nope/x",
		"/a~1b", "/m~0n", "/__proto__/x", "/constructor/prototype/x", "/l/0/z", "/é"}
	anyValues = []any{nil, true, false, 0, 1, -1.5, 1e3, "", "v", []any{}, []any{1, "x"}, obj{}, obj{"k": "v", "d": obj{"e": nil}}, "😀"}
)

// gen draws what streams are made of.
type gen struct{ t *rapid.T }

func pick[T any](g gen, from []T) T { return from[rapid.IntRange(0, len(from)-1).Draw(g.t, "pick")] }

// chance is true about so often. rapid prefers small numbers, so the likelier answer gets those.
func (g gen) chance(percent int) bool {
	n := rapid.IntRange(1, 100).Draw(g.t, "chance")
	if percent > 50 {
		return n <= percent
	}
	return n > 100-percent
}

func (g gen) n(limit int) int { return rapid.IntRange(0, limit).Draw(g.t, "n") }

func (g gen) event(t agui.Type, members ...any) obj {
	o := obj{"type": string(t)}
	for i := 0; i < len(members); i += 2 {
		if v, ok := members[i+1].(string); ok && v == absent {
			continue
		}
		o[members[i].(string)] = members[i+1]
	}
	if g.chance(8) {
		o["metadata"] = g.metadata()
	}
	if g.chance(4) {
		o["vendorField"] = pick(g, anyValues)
	}
	if g.chance(4) {
		o["rawEvent"] = pick(g, anyValues)
	}
	if g.chance(10) {
		o["timestamp"] = 1795250047000 + g.n(1000)
	}
	return o
}

// unknownType is the type of a version that is still to come.
const unknownType agui.Type = "FROM_THE_FUTURE"

const absent = "\x00absent"

func (g gen) or(percent int, v string) string {
	if g.chance(percent) {
		return v
	}
	return absent
}

func (g gen) metadata() obj {
	m := obj{}
	for range g.n(2) + 1 {
		m[pick(g, []string{"k", "l", "usage", "__proto__"})] = pick(g, anyValues)
	}
	return m
}

func (g gen) state() any {
	return pick(g, []any{obj{}, obj{"a": 1, "l": []any{1, 2, 3}, "o": obj{"k": obj{"d": 1}}}, obj{"l": []any{}, "a/b": 1, "m~n": 2, "": 3},
		[]any{obj{"a": 1}, 2}, nil, "text", 7})
}

func (g gen) patch() []any {
	ops := []any{}
	for range g.n(3) {
		op := obj{"op": pick(g, []string{"add", "add", "add", "replace", "replace", "remove", "move", "copy", "test"}), "path": pick(g, pointers)}
		switch op["op"] {
		case "add", "replace", "test":
			op["value"] = pick(g, anyValues)
		case "move", "copy":
			op["from"] = pick(g, pointers)
			if op["path"] == "" {
				// docs/fold.md: what is not there, moved or copied to the root, leaves the client with undefined. So what
				// goes there is put in place first.
				if from := pick(g, []string{"", "/a", "/l/0", "/o/k"}); from != "" && g.chance(60) {
					value := obj{"k": pick(g, anyValues)}
					ops = append(ops, obj{"op": "add", "path": "", "value": obj{"a": value, "l": []any{value}, "o": obj{"k": value}}})
					op["from"] = from
				} else {
					op["from"] = ""
				}
			} else if op["op"] == "move" && op["from"] == "" { // and this with a circle
				op["from"] = "/o"
			}
		}
		if g.chance(4) {
			op["op"] = "invented"
		}
		ops = append(ops, op)
	}
	return ops
}

// leavesObject takes out of a patch what makes the document something else than an object: the client
// lets an activity become that, and its schema refuses the activity from then on (docs/fold.md).
func leavesObject(patch []any) []any {
	return slices.DeleteFunc(patch, func(op any) bool {
		o := op.(obj)
		_, object := o["value"].(obj)
		from, _ := o["from"].(string) // what patch moves or copies to the root is one
		return o["path"] == "" && !object && from == ""
	})
}

func (g gen) content() any {
	if g.chance(75) {
		return pick(g, words)
	}
	return []any{obj{"type": "text", "text": pick(g, words)}, obj{"type": "image", "source": obj{"type": "url", "value": "u"}}}
}

func (g gen) message(id string) obj {
	m := obj{"id": id, "role": pick(g, []string{"user", "assistant", "assistant", "tool", "system", "developer", "reasoning", "activity", "critic"})}
	switch m["role"] {
	case "user":
		m["content"] = g.content()
	case "assistant":
		if g.chance(70) {
			m["content"] = pick(g, words)
		}
		if g.chance(50) {
			m["toolCalls"] = g.calls()
		}
	case "tool":
		m["content"], m["toolCallId"] = g.content(), pick(g, callIDs)
	case "activity":
		m["activityType"], m["content"] = pick(g, []string{"plan", "chart"}), obj{"l": []any{1}}
	default:
		m["content"] = pick(g, words)
		if g.chance(20) { // which the schema does not know there
			m["toolCalls"] = g.calls()
		}
	}
	if g.chance(15) {
		m["metadata"] = g.metadata()
	}
	if g.chance(15) {
		m["subagentRunId"] = pick(g, subagents)
	}
	if g.chance(10) {
		m["vendorField"] = pick(g, anyValues)
	}
	return m
}

func (g gen) calls() []any {
	calls := []any{}
	for range g.n(2) {
		calls = append(calls, obj{"id": pick(g, callIDs), "type": "function", "function": obj{"name": "n", "arguments": pick(g, words)}})
	}
	return calls
}

func (g gen) messages(most int) []any {
	list := []any{}
	for range g.n(most) {
		list = append(list, g.message(pick(g, messageIDs)))
	}
	if g.chance(10) {
		// In several places its calls would be shared (docs/fold.md), so it has an id of its own.
		list = append(list, obj{"id": callingActivity, "role": "activity", "activityType": pick(g, []string{"plan", "chart"}), "content": obj{"l": []any{1}}, "toolCalls": g.calls()})
	}
	return list
}

// callingActivity is the id of the activities that carry tool calls, which the schema does not know there.
const callingActivity = "calling"

// brought are messages as an event brings them, at times with one that the client's enforcement takes out.
func (g gen) brought(most int) []any {
	list := g.messages(most)
	if g.chance(5) {
		list = slices.Insert(list, g.n(len(list)), any(obj{"id": "m0", "lacks": "role"}))
	}
	return list
}

// enforced is an event without such messages, which the client's reducer would keep (docs/fold.md).
func enforced(event json.RawMessage) json.RawMessage { return stripped.ReplaceAll(event, nil) }

var stripped = regexp.MustCompile(`{"id":"m0","lacks":"role"},|,?{"id":"m0","lacks":"role"}`)

// episode is a piece of a run as an agent would send it.
func (g gen) episode() []obj {
	sub := g.or(25, pick(g, subagents))
	id, call := pick(g, messageIDs), pick(g, callIDs)
	span := func(start, content, end agui.Type, key, id string, first ...any) []obj {
		out := []obj{g.event(start, append([]any{key, id, "subagentRunId", sub}, first...)...)}
		for range g.n(3) {
			out = append(out, g.event(content, key, id, "delta", pick(g, words), "subagentRunId", sub))
		}
		return append(out, g.event(end, key, id, "subagentRunId", sub))
	}
	switch rapid.IntRange(0, 19).Draw(g.t, "episode") {
	case 0, 1, 2:
		return span(agui.TextMessageStart, agui.TextMessageContent, agui.TextMessageEnd, "messageId", id,
			"role", g.or(60, pick(g, []string{"assistant", "user", "system", "developer"})), "name", g.or(10, "bot"))
	case 3, 4:
		out := span(agui.ToolCallStart, agui.ToolCallArgs, agui.ToolCallEnd, "toolCallId", call,
			"toolCallName", pick(g, []string{"look", "book"}), "parentMessageId", g.or(60, pick(g, messageIDs)))
		if g.chance(60) {
			out = append(out, g.event(agui.ToolCallResult, "messageId", pick(g, messageIDs), "toolCallId", call, "content", g.content(),
				"role", g.or(50, "tool"), "subagentRunId", sub))
		}
		return out
	case 5, 18:
		out := []obj{g.event(agui.ReasoningStart, "messageId", id, "subagentRunId", sub)}
		out = append(out, span(agui.ReasoningMessageStart, agui.ReasoningMessageContent, agui.ReasoningMessageEnd, "messageId", id, "role", "reasoning")...)
		out = append(out, g.event(agui.ReasoningEnd, "messageId", id))
		if g.chance(50) {
			out = append(out, g.event(agui.ReasoningEncryptedValue, "subtype", pick(g, []string{"message", "tool-call"}),
				"entityId", pick(g, append(messageIDs, callIDs...)), "encryptedValue", "x"))
		}
		return out
	case 6, 7:
		out := []obj{g.event(agui.TextMessageChunk, "messageId", id, "delta", g.or(80, pick(g, words)), "role", g.or(20, "user"), "name", g.or(10, "bot"), "subagentRunId", sub)}
		for range g.n(3) {
			out = append(out, g.between()...)
			out = append(out, g.event(agui.TextMessageChunk, "messageId", g.or(30, id), "delta", g.or(85, pick(g, words)), "subagentRunId", g.or(50, sub)))
		}
		return out
	case 8:
		out := []obj{g.event(agui.ToolCallChunk, "toolCallId", call, "toolCallName", g.or(95, "look"), "parentMessageId", g.or(40, id), "delta", g.or(50, "{"), "subagentRunId", sub)}
		for range g.n(3) {
			out = append(out, g.between()...)
			out = append(out, g.event(agui.ToolCallChunk, "toolCallId", g.or(30, call), "delta", g.or(85, pick(g, words)), "subagentRunId", g.or(50, sub)))
		}
		return out
	case 9:
		out := []obj{g.event(agui.ReasoningMessageChunk, "messageId", id, "delta", pick(g, words), "subagentRunId", sub)}
		for range g.n(2) {
			out = append(out, g.between()...)
			out = append(out, g.event(agui.ReasoningMessageChunk, "delta", g.or(85, pick(g, words)), "subagentRunId", g.or(50, sub)))
		}
		return out
	case 10:
		return []obj{g.event(agui.StateSnapshot, "snapshot", g.state())}
	case 11, 12:
		var out []obj
		for range g.n(3) {
			out = append(out, g.event(agui.StateDelta, "delta", g.patch()))
		}
		return out
	case 13:
		e := g.event(agui.MessagesSnapshot, "messages", g.brought(4))
		if g.chance(25) {
			e["metadata"] = obj{"@ag-ui/client": pick(g, []any{obj{"authoritativeActivityTypes": []any{"plan"}}, obj{"authoritativeActivityTypes": nil},
				obj{"authoritativeActivityTypes": 7}, obj{"authoritativeActivityTypes": []any{1}}, obj{}, "x", nil, []any{}})}
		}
		return []obj{e}
	case 14, 15:
		if g.chance(10) {
			id = callingActivity
		}
		out := []obj{g.event(agui.ActivitySnapshot, "messageId", id, "activityType", pick(g, []string{"plan", "chart"}), "content", pick(g, []any{obj{}, obj{"a": 1, "l": []any{1, 2}}}), "subagentRunId", sub)}
		if g.chance(30) {
			out[0]["replace"] = g.chance(50)
		}
		if g.chance(20) { // patched before it is there
			out = nil
		}
		for range g.n(2) {
			whose := sub
			if g.chance(16) {
				whose = pick(g, subagents)
			}
			out = append(out, g.event(agui.ActivityDelta, "messageId", id, "activityType", pick(g, []string{"plan", "chart"}), "patch", leavesObject(g.patch()), "subagentRunId", whose))
		}
		return out
	case 16, 19:
		name := pick(g, subagents)
		out := []obj{g.event(agui.SubagentStarted, "subagentRunId", name, "name", "n", "parentSubagentRunId", g.or(20, pick(g, subagents))),
			g.event(agui.StepStarted, "stepName", "s", "subagentRunId", name), g.event(agui.StepFinished, "stepName", "s", "subagentRunId", name)}
		if g.chance(30) {
			return append(out, g.event(agui.SubagentError, "subagentRunId", name, "message", "boom"))
		}
		return append(out, g.event(agui.SubagentFinished, "subagentRunId", name))
	default:
		return []obj{pick(g, []obj{g.event(agui.Custom, "name", "n", "value", nil), g.event(agui.Raw, "event", 1), g.event(unknownType, "messageId", id), g.event(agui.Meta, "metaType", "x")})}
	}
}

// between is what agents send in the middle of a chunked message; most of it closes the lane.
func (g gen) between() []obj {
	if !g.chance(20) {
		return nil
	}
	return []obj{pick(g, []obj{g.event(agui.Custom, "name", "n", "value", 1), g.event(agui.StepStarted, "stepName", "s"), g.event(agui.Raw, "event", 1),
		g.event(agui.StateSnapshot, "snapshot", obj{}), g.event(agui.ActivitySnapshot, "messageId", "m3", "activityType", "plan", "content", obj{}),
		g.event(unknownType), g.event(agui.SubagentFinished, "subagentRunId", "s0")})}
}

// drawStream makes a whole run.
func drawStream(t *rapid.T, runID string) stream {
	g := gen{t}
	var s stream
	var open [][]obj
	for range rapid.IntRange(1, 6).Draw(t, "episodes") {
		e := g.episode()
		if n := len(e); n > 1 && g.chance(16) {
			e = e[:g.n(n-2)+1]
			s.mutations = append(s.mutations, cutShort)
		}
		if len(e) > 0 && g.chance(8) {
			e = slices.Insert(e, 0, e[0])
			s.mutations = append(s.mutations, startedTwice)
		}
		open = append(open, e)
		if g.chance(18) {
			open = append(open, slices.Clone(e))
			s.mutations = append(s.mutations, again)
		}
	}
	started := g.event(agui.RunStarted, "threadId", "t", "runId", runID)
	if g.chance(15) {
		started["input"] = g.input(runID)
	}
	events := []obj{started}
	// Mostly one after the other, at times interleaved.
	mixed := g.chance(40)
	for len(open) > 0 {
		i := 0
		if mixed {
			i = g.n(len(open) - 1)
		}
		if len(open[i]) == 0 {
			open = append(open[:i], open[i+1:]...)
			continue
		}
		events = append(events, open[i][0])
		open[i] = open[i][1:]
	}
	for range rapid.SampledFrom([]int{0, 0, 1, 1, 2, 4}).Draw(t, "mutations") {
		var name string
		before := encode(events)
		if events, name = g.mutate(events); !bytes.Equal(before, encode(events)) {
			s.mutations = append(s.mutations, name)
		}
	}
	events = append(events, g.end(runID)...)
	for _, e := range events {
		s.events = append(s.events, encode(e))
	}
	return s
}

func (g gen) input(runID string) obj {
	in := obj{"threadId": "t", "runId": runID, "messages": g.brought(3), "tools": []any{}, "context": []any{}}
	if g.chance(40) {
		resume := []any{}
		for range g.n(2) {
			entry := obj{"interruptId": "i", "status": pick(g, []string{"resolved", "cancelled"})}
			if g.chance(50) {
				entry["payload"] = pick(g, anyValues)
			}
			resume = append(resume, entry)
		}
		in["resume"] = resume
	}
	return in
}

// usage is token usage, at times with a count that is none.
func (g gen) usage() []any {
	list := []any{}
	for range g.n(2) {
		list = append(list, obj{"provider": "p", "model": pick(g, []string{"m", "n"}), "inputTokens": pick(g, []any{0, 7, 1e3, 7, 7, -1, 1.5, "7"}), "totalTokens": g.n(9)})
	}
	return list
}

// end is how a run ends: well, badly, not at all, or twice.
func (g gen) end(runID string) []obj {
	finished := func(members ...any) obj {
		e := g.event(agui.RunFinished, append([]any{"threadId", "t", "runId", runID}, members...)...)
		if g.chance(15) {
			e["usage"] = g.usage()
		}
		return e
	}
	failed := g.event(agui.RunError, "message", "boom")
	if g.chance(30) {
		failed["usage"] = g.usage()
	}
	switch g.n(11) {
	case 7:
		return []obj{finished("outcome", obj{"type": "interrupt", "interrupts": []any{obj{"id": "i", "reason": "r"}}})}
	case 8:
		return []obj{finished("outcome", obj{"type": pick(g, []string{"cancelled", "success"})}, "result", pick(g, anyValues))}
	case 9:
		return append([]obj{finished(), failed}, g.episode()...)
	case 10:
		return []obj{failed}
	case 11:
		return nil
	default:
		return []obj{finished()}
	}
}

// mutationNames are the ways in which agents and networks spoil streams.
var mutationNames = []string{"dropped", "doubled", "swapped", "moved", "wrong message id", "wrong call id", "wrong owner", "member removed", "member spoiled"}

// Three more are done to whole episodes: the agent dies in one, starts twice or goes through it again.
const (
	cutShort     = "episode cut short"
	startedTwice = "episode started twice"
	again        = "episode again"
)

func (g gen) mutate(events []obj) ([]obj, string) {
	name := pick(g, mutationNames)
	if len(events) == 0 {
		return events, name
	}
	i := g.n(len(events) - 1)
	e := events[i]
	// having goes on to the next event that has a member.
	having := func(key string) bool {
		for range events {
			if _, ok := e[key]; ok {
				return true
			}
			i = (i + 1) % len(events)
			e = events[i]
		}
		return false
	}
	change := func(key string, v any) {
		if !having(key) {
			return
		}
		c := obj{}
		for k, have := range e {
			c[k] = have
		}
		c[key] = v
		events[i] = c
	}
	switch name {
	case "dropped":
		return append(events[:i:i], events[i+1:]...), name
	case "doubled":
		return append(events[:i+1:i+1], events[i:]...), name
	case "swapped":
		if i+1 < len(events) {
			events[i], events[i+1] = events[i+1], events[i]
		}
	case "moved":
		rest := append(events[:i:i], events[i+1:]...)
		j := g.n(len(rest))
		return append(rest[:j:j], append([]obj{e}, rest[j:]...)...), name
	case "wrong message id":
		change("messageId", pick(g, messageIDs))
	case "wrong call id":
		change("toolCallId", pick(g, callIDs))
	case "wrong owner":
		change("subagentRunId", pick(g, subagents))
	case "member removed":
		c := obj{}
		victim := pick(g, []string{"messageId", "delta", "toolCallId", "toolCallName", "content", "role", "snapshot", "patch", "subagentRunId"})
		having(victim)
		for k, v := range e {
			if k != victim {
				c[k] = v
			}
		}
		events[i] = c
	case "member spoiled":
		member, v := pick(g, []string{"messageId", "delta", "toolCallId", "content", "role", "metadata", "subagentRunId", "timestamp", "parentMessageId"}), pick(g, anyValues)
		having(member)
		if _, object := v.(obj); object && member == "delta" && e["type"] == string(agui.StateDelta) {
			break // an older form of a patch of one operation (pkg/agui/upgrade.go), which the client knows no more
		}
		change(member, v)
	}
	return events, name
}

func encode(v any) json.RawMessage {
	var b strings.Builder
	enc := json.NewEncoder(&b)
	enc.SetEscapeHTML(false)
	if err := enc.Encode(v); err != nil {
		panic(fmt.Sprintf("encoding a generated value: %v", err))
	}
	return json.RawMessage(writeHalves.Replace(strings.TrimSpace(b.String())))
}
