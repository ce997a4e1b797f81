package conformance_test

import (
	"bytes"
	"encoding/json"
	"maps"
	"slices"

	"pgregory.net/rapid"

	"github.com/skeinhq/skein/pkg/agui"
	"github.com/skeinhq/skein/pkg/lineage"
	"github.com/skeinhq/skein/test/conformance"
)

// stream is a generated run: episodes of well-behaved agents, interleaved, then mutated.
type stream struct {
	events    []json.RawMessage
	mutations []string
}

type obj = map[string]any

// Halves of a surrogate pair, which Go's strings cannot hold: encode writes their escapes.
const (
	highHalf = conformance.Half + "D83D"
	lowHalf  = conformance.Half + "DE00"
)

var (
	messageIDs = []string{"m0", "m1", "m2", "m3", "é\"4"}
	halfIDs    = []string{highHalf + "5", lowHalf + "5"}
	callIDs    = []string{"c0", "c1", "c2", "m1"} // one that is a message's id too
	subagents  = []string{"s0", "s0", "s1", "s1", ""}
	words      = []string{"", "a", "some words ", "é", "😀", highHalf, lowHalf, lowHalf + highHalf, "\n\"\\/", "{", "}", "\u2028<&>"}
	pointers   = []string{"", "/", "/a", "/b", "/l", "/l/0", "/l/1", "/l/-", "/l/9", "/l/01", "/l/x", "/o/k", "/o/k/d", "/o", "/nope/x",
		"/a~1b", "/m~0n", "/0", "/length", "/1/a", "/__proto__/x", "/constructor/prototype/x", "/l/0/z", "/é"}
	anyValues = []any{nil, true, false, 0, 1, -1.5, 1e3, "", "v", []any{}, []any{1, "x"}, obj{}, obj{"k": "v", "d": obj{"e": nil}}, "😀"}
)

// gen draws what streams are made of.
type gen struct {
	t *rapid.T
	// large is what large values of the stream are: "text", "list", "object" or "deep"; it has none where it is empty.
	large string
	// patches says that most of the stream is patches.
	patches bool
	// own stands in front of the ids of messages and calls.
	own string
	// plain says that values are written as JavaScript writes them.
	plain bool
	// noOdd says that content has no parts that are malformed, or that the client takes out or upgrades.
	noOdd bool
}

// sound draws messages as a client holds them.
func (g gen) sound() gen {
	g.noOdd = true
	return g
}

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

// word is a piece of text.
func (g gen) word() string {
	if g.large == "text" && g.chance(20) {
		return g.largeText()
	}
	return pick(g, words)
}

// name is one of those, or now and then one that half a surrogate pair tells from another.
func (g gen) name(of []string) string {
	if g.chance(1) {
		return pick(g, halfIDs)
	}
	return pick(g, of)
}

func (g gen) messageID() string { return g.own + g.name(messageIDs) }
func (g gen) callID() string    { return g.own + g.name(callIDs) }

func (g gen) state() any {
	if g.large != "" && g.large != "text" && g.chance(50) {
		return obj{"a": g.largeValue(), "l": []any{1}}
	}
	return clone(pick(g, []any{obj{}, obj{"a": 1, "l": []any{1, 2, 3}, "o": obj{"k": obj{"d": 1}}},
		obj{"l": []any{obj{"a": 1}, []any{2}, 3, "text"}, "b": "v"}, obj{"l": []any{}, "a/b": 1, "m~n": 2, "": 3},
		[]any{obj{"a": 1}, 2}, obj{"l": []any{obj{"a": []any{1, 2}}, []any{3, []any{4}}, "text", 7}, "o": obj{"k": []any{obj{}, nil}}}, nil,
		"text", 7}))
}

// patch draws operations that know nothing of the document.
func (g gen) patch() []any {
	ops := []any{}
	for range g.n(3) {
		op := obj{"op": pick(g, []string{"add", "add", "add", "replace", "replace", "remove", "move", "copy", "test"}), "path": pick(g, pointers)}
		switch op["op"] {
		case "add", "replace", "test":
			op["value"] = g.value()
		case "move", "copy":
			op["from"] = pick(g, pointers)
		}
		if g.chance(4) {
			op["op"] = pick(g, []string{"invented", "_get"})
		}
		ops = append(ops, op)
	}
	return ops
}

// delta is a patch: one that is drawn when the document is known, or one that knows nothing of it.
func (g gen) delta() any {
	if g.chance(65) {
		return &livePatch{}
	}
	return g.patch()
}

func (g gen) content() any {
	if g.chance(75) {
		return g.word()
	}
	parts := []any{obj{"type": "text", "text": g.word()}, obj{"type": "image", "source": obj{"type": "url", "value": "u"}}}
	if !g.noOdd && g.chance(20) {
		parts = slices.Insert(parts, g.n(len(parts)), clone(pick(g, oddParts)))
	}
	return parts
}

// oddParts are of older forms, unknown, mirrored by another part, or malformed.
var oddParts = []any{
	obj{"type": "binary", "mimeType": "image/png", "data": "iVBORw0KGgo="}, obj{"type": "binary", "mimeType": "image/png", "url": "u"},
	obj{"type": "binary", "mimeType": "text/plain", "url": "u", "filename": "f"}, obj{"type": "binary", "mimeType": "audio/wav", "id": "x"},
	obj{"type": "image", "source": obj{"type": "url", "value": "u"}, "metadata": nil}, obj{"type": "hologram", "text": "x"},
	obj{"type": "audio", "source": obj{"type": "telepathy"}}, obj{"type": "text"}, obj{}, nil,
}

func (g gen) message(id string) obj {
	m := obj{"id": id, "role": pick(g, []string{"user", "assistant", "assistant", "tool", "system", "developer", "reasoning", "activity",
		"critic"})}
	switch m["role"] {
	case "user":
		m["content"] = g.content()
	case "assistant":
		if g.chance(70) {
			m["content"] = g.word()
		}
		if g.chance(50) {
			m["toolCalls"] = g.calls()
		}
	case "tool":
		m["content"], m["toolCallId"] = g.content(), g.callID()
	case "activity":
		m["activityType"], m["content"] = pick(g, []string{"plan", "chart"}), obj{"l": []any{1}}
	default:
		m["content"] = g.word()
		if g.chance(20) { // which the schema does not know there
			calls := g.calls()
			if g.chance(10) {
				calls = slices.Insert(calls, g.n(len(calls)), pick(g, []any{obj{"id": "c0"}, nil, "c0", obj{"id": "c1", "function": obj{}}}))
			}
			m["toolCalls"] = calls
		}
	}
	if g.chance(15) {
		m["metadata"] = g.metadata()
		if m["role"] == "critic" && g.chance(30) {
			m["metadata"] = pick(g, []any{"text", []any{1, "x"}})
		}
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
		calls = append(calls, obj{"id": g.callID(), "type": "function", "function": obj{"name": "n", "arguments": pick(g, words)}})
	}
	return calls
}

func (g gen) messages(most int) []any {
	list := []any{}
	for range g.n(most) {
		list = append(list, g.message(g.messageID()))
	}
	if g.chance(10) {
		for range 1 + g.n(2)/2*(1+g.n(1)) {
			list = append(list, obj{"id": callingActivity, "role": "activity", "activityType": pick(g, []string{"plan", "chart"}),
				"content": obj{"l": []any{1}}, "toolCalls": g.calls()})
		}
	}
	return list
}

// callingActivity is the id of the activities that carry tool calls, which the schema does not know there.
const callingActivity = "calling"

// brought are messages as an event brings them, at times with one that cannot be stored or found.
func (g gen) brought(most int) []any {
	list := g.messages(most)
	if g.chance(50) {
		list = slices.Insert(list, g.n(len(list)),
			pick(g, []any{obj{"id": "m0", "lacks": "role"}, obj{"id": "m0", "role": 7, "content": "x"}, obj{"role": "critic"}, obj{}}))
	}
	return list
}

// episode is a piece of a run as an agent would send it.
func (g gen) episode() []obj {
	sub := g.or(25, pick(g, subagents))
	id, call := g.messageID(), g.callID()
	span := func(start, content, end agui.Type, key, id string, first ...any) []obj {
		out := []obj{g.event(start, append([]any{key, id, "subagentRunId", sub}, first...)...)}
		for range g.n(3) {
			out = append(out, g.event(content, key, id, "delta", g.word(), "subagentRunId", sub))
		}
		return append(out, g.event(end, key, id, "subagentRunId", sub))
	}
	which := rapid.IntRange(0, 19).Draw(g.t, "episode")
	if g.patches && g.chance(80) {
		which = pick(g, []int{11, 14})
	}
	switch which {
	case 0, 1, 2:
		return span(agui.TextMessageStart, agui.TextMessageContent, agui.TextMessageEnd, "messageId", id,
			"role", g.or(60, pick(g, []string{"assistant", "user", "system", "developer"})), "name", g.or(10, "bot"))
	case 3, 4:
		out := span(agui.ToolCallStart, agui.ToolCallArgs, agui.ToolCallEnd, "toolCallId", call,
			"toolCallName", pick(g, []string{"look", "book"}), "parentMessageId", g.or(60, g.messageID()))
		if g.chance(60) {
			out = append(out, g.event(agui.ToolCallResult, "messageId", g.messageID(), "toolCallId", call, "content", g.content(),
				"role", g.or(50, "tool"), "subagentRunId", sub))
		}
		return out
	case 5, 18:
		out := []obj{g.event(agui.ReasoningStart, "messageId", id, "subagentRunId", sub)}
		out = append(out, span(agui.ReasoningMessageStart, agui.ReasoningMessageContent, agui.ReasoningMessageEnd, "messageId", id, "role",
			"reasoning")...)
		out = append(out, g.event(agui.ReasoningEnd, "messageId", id))
		if g.chance(50) {
			out = append(out, g.event(agui.ReasoningEncryptedValue, "subtype", pick(g, []string{"message", "tool-call"}),
				"entityId", pick(g, []string{g.messageID(), g.callID()}), "encryptedValue", "x"))
		}
		return out
	case 6, 7:
		out := []obj{g.event(agui.TextMessageChunk, "messageId", id, "delta", g.or(80, pick(g, words)), "role", g.or(20, "user"), "name",
			g.or(10, "bot"), "subagentRunId", sub)}
		for range g.n(3) {
			out = append(out, g.between()...)
			out = append(out, g.event(agui.TextMessageChunk, "messageId", g.or(30, id), "delta", g.or(85, pick(g, words)), "subagentRunId",
				g.or(50, sub)))
		}
		return out
	case 8:
		out := []obj{g.event(agui.ToolCallChunk, "toolCallId", call, "toolCallName", g.or(95, "look"), "parentMessageId", g.or(40, id), "delta",
			g.or(50, "{"), "subagentRunId", sub)}
		for range g.n(3) {
			out = append(out, g.between()...)
			out = append(out, g.event(agui.ToolCallChunk, "toolCallId", g.or(30, call), "delta", g.or(85, pick(g, words)), "subagentRunId",
				g.or(50, sub)))
		}
		return out
	case 9:
		out := []obj{g.event(agui.ReasoningMessageChunk, "messageId", id, "delta", g.word(), "subagentRunId", sub)}
		for range g.n(2) {
			out = append(out, g.between()...)
			out = append(out, g.event(agui.ReasoningMessageChunk, "delta", g.or(85, pick(g, words)), "subagentRunId", g.or(50, sub)))
		}
		return out
	case 10:
		if g.chance(4) { // a form that only Skein takes
			return []obj{g.event(agui.StateSnapshot, "state", g.state())}
		}
		return []obj{g.event(agui.StateSnapshot, "snapshot", g.state())}
	case 11, 12:
		var out []obj
		for range g.n(3) + 1 {
			out = append(out, g.event(agui.StateDelta, "delta", g.delta()))
		}
		if g.chance(4) { // forms that only Skein takes
			if patch := g.patch(); g.chance(50) && len(patch) > 0 {
				out[0]["delta"] = patch[0]
			} else {
				delete(out[0], "delta")
				out[0]["patch"] = patch
			}
		}
		if g.chance(40) {
			out = slices.Insert(out, 0, g.event(agui.StateSnapshot, "snapshot", g.state()))
		}
		return out
	case 13:
		if g.chance(6) {
			return g.callingActivities()
		}
		e := g.event(agui.MessagesSnapshot, "messages", g.brought(4))
		if g.chance(25) {
			e["metadata"] = obj{"@ag-ui/client": pick(g,
				[]any{obj{"authoritativeActivityTypes": []any{"plan"}}, obj{"authoritativeActivityTypes": nil},
					obj{"authoritativeActivityTypes": 7}, obj{"authoritativeActivityTypes": []any{1}}, obj{}, "x", nil, []any{}})}
		}
		return []obj{e}
	case 14, 15:
		if g.chance(10) {
			id = callingActivity
		}
		out := []obj{g.event(agui.ActivitySnapshot, "messageId", id, "activityType", pick(g, []string{"plan", "chart"}), "content", g.activity(),
			"subagentRunId", sub)}
		if g.chance(30) {
			out[0]["replace"] = g.chance(50)
		}
		if g.chance(20) { // patched before it is there
			out = nil
		}
		for range g.n(3) {
			whose := sub
			if g.chance(16) {
				whose = pick(g, subagents)
			}
			out = append(out, g.event(agui.ActivityDelta, "messageId", id, "activityType", pick(g, []string{"plan", "chart"}), "patch", g.delta(),
				"subagentRunId", whose))
		}
		return out
	case 16, 19:
		name, step := g.name(subagents), g.name([]string{"s"})
		out := []obj{g.event(agui.SubagentStarted, "subagentRunId", name, "name", "n", "parentSubagentRunId", g.or(20, pick(g, subagents))),
			g.event(agui.StepStarted, "stepName", step, "subagentRunId", name), g.event(agui.StepFinished, "stepName", step, "subagentRunId", name)}
		if g.chance(30) {
			return append(out, g.event(agui.SubagentError, "subagentRunId", name, "message", "boom"))
		}
		return append(out, g.event(agui.SubagentFinished, "subagentRunId", name))
	default:
		if g.chance(30) {
			return g.thinking()
		}
		return []obj{pick(g, []obj{g.event(agui.Custom, "name", "n", "value", nil), g.event(agui.Raw, "event", 1),
			g.event(unknownType, "messageId", id), g.event(agui.Meta, "metaType", "x")})}
	}
}

// callingActivities are activities of one id, with tool calls, of which a patch changes the first and an event brings
// more of a call.
func (g gen) callingActivities() []obj {
	activity := obj{"id": callingActivity, "role": "activity", "activityType": "plan", "content": obj{"l": []any{1}},
		"toolCalls": []any{obj{"id": call0, "type": "function", "function": obj{"name": "n", "arguments": "{"}}}}
	out := []obj{
		g.event(agui.MessagesSnapshot, "messages", append(g.messages(2), activity)),
		g.event(agui.MessagesSnapshot, "messages", []any{activity, activity}),
		g.event(agui.ActivityDelta, "messageId", callingActivity, "activityType", "plan", "patch",
			[]any{obj{"op": "add", "path": "/k", "value": 1}}),
	}
	return append(out, g.event(agui.ToolCallArgs, "toolCallId", call0, "delta", g.word()))
}

// call0 is the id of a call.
const call0 = "c0"

// activity is the content of one.
func (g gen) activity() obj {
	if g.large != "" && g.large != "text" && g.chance(50) {
		return obj{"a": g.largeValue()}
	}
	return pick(g, []obj{{}, {"a": 1, "l": []any{1, 2}}, {"l": []any{obj{"a": 1}, []any{2, 3}}, "o": obj{"k": "v"}}})
}

// thinking is reasoning in its retired form, which has no ids.
func (g gen) thinking() []obj {
	out := []obj{g.event(agui.ThinkingTextMessageStart)}
	for range g.n(2) {
		out = append(out, g.event(agui.ThinkingTextMessageContent, "delta", g.word()))
	}
	out = append(out, g.event(agui.ThinkingTextMessageEnd))
	if g.chance(70) {
		out = append(append([]obj{g.event(agui.ThinkingStart, "title", g.or(50, "t"))}, out...), g.event(agui.ThinkingEnd))
	}
	return out
}

// between is what agents send in the middle of a chunked message; most of it closes the lane.
func (g gen) between() []obj {
	if !g.chance(20) {
		return nil
	}
	return []obj{pick(g, []obj{g.event(agui.Custom, "name", "n", "value", 1), g.event(agui.StepStarted, "stepName", "s"),
		g.event(agui.Raw, "event", 1),
		g.event(agui.StateSnapshot, "snapshot", obj{}),
		g.event(agui.ActivitySnapshot, "messageId", g.own+"m3", "activityType", "plan", "content", obj{}),
		g.event(unknownType), g.event(agui.SubagentFinished, "subagentRunId", "s0")})}
}

// drawStream makes a whole run that starts from a history.
func (g gen) drawStream(runID string, start lineage.History) stream {
	if g.chance(3) {
		g.large = pick(g, []string{"text", "list", "object", "deep"})
	}
	g.patches = g.chance(12)
	var s stream
	var open [][]obj
	for range rapid.IntRange(1, 6).Draw(g.t, "episodes") {
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
	if g.chance(2) { // a form that only Skein takes
		delete(started, "threadId")
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
	for range rapid.SampledFrom([]int{0, 0, 1, 1, 2, 4}).Draw(g.t, "mutations") {
		var name string
		before := encode(events)
		if events, name = g.mutate(events); !bytes.Equal(before, encode(events)) {
			s.mutations = append(s.mutations, name)
		}
	}
	s.events = g.write(append(events, g.end(runID)...), start)
	return s
}

// write spells events, and draws the patches that wait for the document that they will meet.
func (g gen) write(events []obj, start lineage.History) []json.RawMessage {
	var out []json.RawMessage
	run, folded := start.Fold(), 0
	for _, e := range events {
		for _, key := range []string{"delta", "patch"} {
			live, waits := e[key].(*livePatch)
			if !waits {
				continue
			}
			if live.drawn == nil || g.chance(50) { // else the same again, of an event that was doubled
				for ; folded < len(out); folded++ {
					apply(g.t, run, out[folded])
				}
				live.drawn = g.patch()
				if doc := document(g.t, run, e); len(names(doc)) > 0 {
					live.drawn = g.patchOn(doc)
				}
			}
			e = maps.Clone(e)
			e[key] = live.drawn
		}
		out = append(out, g.spelling().encode(e))
	}
	return out
}

// document is what a patch would meet, or nil.
func document(t rapid.TB, run interface {
	State() json.RawMessage
	Messages() []agui.Message
}, event obj) any {
	doc := run.State()
	if event["type"] == string(agui.ActivityDelta) {
		doc = nil
		for _, m := range run.Messages() {
			if m.Role == agui.RoleActivity && m.ID == event["messageId"] {
				doc = m.Get("content")
				break
			}
		}
	}
	if doc == nil {
		return nil
	}
	return parsed(t, doc)
}

// says reports whether a string is in a value, however it is spelled.
func says(v json.RawMessage, text string) bool {
	decoded, err := conformance.Decode(v)
	return err == nil && bytes.Contains(encode(decoded), encode(text))
}

func parsed(t rapid.TB, value json.RawMessage) any {
	v, err := conformance.Decode(value)
	if err != nil {
		t.Fatal(err)
	}
	return v
}

func (g gen) input(runID string) obj {
	in := obj{"threadId": "t", "runId": runID, "messages": g.brought(3), "tools": []any{}, "context": []any{}}
	if g.chance(10) { // forms that only Skein takes
		list := in["messages"].([]any)
		switch g.n(4) {
		case 4:
			delete(in, "messages")
			return in
		case 0:
			delete(in, "threadId")
		case 1:
			delete(in, "runId")
		case 2:
			in["messages"] = append(list, "a bare string", obj{"content": "no id and no role"}, obj{"role": "user", "content": "no id"})
		case 3:
			in["resume"] = obj{"interruptId": "i", "status": "resolved"}
			return in
		}
	}
	if g.chance(10) { // what the fold does not look at
		in[pick(g, []string{"tools", "context"})] = []any{pick(g, []any{nil, 7, obj{}, obj{"name": 7}})}
	}
	if g.chance(40) {
		resume := []any{}
		for range g.n(2) {
			entry := obj{"interruptId": "i", "status": pick(g, []string{"resolved", "cancelled"})}
			if g.chance(5) {
				entry["status"] = "invented"
			}
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
		list = append(list, obj{"provider": "p", "model": g.name([]string{"m", "n"}),
			"inputTokens": pick(g, []any{0, 7, 1e3, 7, 7, -1, 1.5, "7"}), "totalTokens": g.n(9)})
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
		if g.chance(10) { // a form that only Skein takes
			return []obj{finished("outcome", "interrupt", "interrupt", obj{"id": "i", "reason": "r"})}
		}
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
var mutationNames = []string{"dropped", "doubled", "swapped", "moved", "wrong message id", "wrong call id", "wrong owner", "member removed",
	"member spoiled"}

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
		change("messageId", g.messageID())
	case "wrong call id":
		change("toolCallId", g.callID())
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
		member, v := pick(g, []string{"messageId", "delta", "toolCallId", "content", "role", "metadata", "subagentRunId", "timestamp",
			"parentMessageId"}), pick(g, anyValues)
		having(member)
		change(member, v)
	}
	return events, name
}
