package page_test

import (
	"cmp"
	"fmt"
	"slices"
	"testing"
	"time"
)

type object = map[string]any

// tour plays a thread that shows everything: forks, an answer made again, an edited question, an interrupt with two answers,
// errors, a fold, a fan, a run that goes on, tools, state, reasoning and activities.
func tour(t *testing.T, address string) {
	t.Helper()
	const thread = "trip-planner"
	at := time.Now().Add(-3 * time.Hour).UnixMilli()
	producer := []string{"Skein-Agent", "travel-desk", "Skein-Label-Env", "prod", "Skein-Label-User", "u-236", "Skein-Label-Trace", "7c0ffee/1"}
	// What a run names as its parent, where it is not the one that it goes on from; "-" is nothing.
	names := map[string]string{"found": "-", "spawned": "research/run-7", "early": "one"}
	histories := map[string][]any{} // by run: the messages behind it
	run := func(id, parent, question string, middle []object, end object) {
		messages := append(slices.Clone(histories[parent]), object{"id": "u-" + id, "role": "user", "content": question})
		var input any = object{"threadId": thread, "runId": id, "messages": messages, "state": object{}, "tools": []any{}, "context": []any{}, "forwardedProps": object{}}
		if named := cmp.Or(names[id], parent); named != "" && named != "-" {
			input.(object)["parentRunId"] = named
		}
		events := []any{object{"type": "RUN_STARTED", "threadId": thread, "runId": id, "timestamp": at}}
		said := ""
		for k, e := range middle {
			if e["type"] == "TEXT_MESSAGE_CONTENT" {
				said += e["delta"].(string)
			}
			e["timestamp"] = at + int64(k+1)*140
			if gap, ok := e["after"].(int); ok {
				at += int64(gap)
				e["timestamp"] = at + int64(k+1)*140
				delete(e, "after")
			}
			events = append(events, e)
		}
		histories[id] = append(messages, object{"id": "a-" + id, "role": "assistant", "content": said})
		at += int64(len(middle)+1) * 140
		if end != nil {
			end["threadId"], end["runId"], end["timestamp"] = thread, id, at
			events = append(events, end)
		}
		at += 20_000
		if id == "guess" {
			input = nil
		}
		publishAs(t, producer, address, thread, id, input, events...)
	}
	say := func(id string, words ...string) []object {
		out := []object{{"type": "TEXT_MESSAGE_START", "messageId": "a-" + id, "role": "assistant"}}
		for _, w := range words {
			out = append(out, object{"type": "TEXT_MESSAGE_CONTENT", "messageId": "a-" + id, "delta": w})
		}
		return append(out, object{"type": "TEXT_MESSAGE_END", "messageId": "a-" + id})
	}
	finished := func() object { return object{"type": "RUN_FINISHED"} }
	talk := func(id, parent, question string, words ...string) {
		run(id, parent, question, say(id, words...), finished())
	}

	talk("r01", "", "Where shall we go in May?", "Paris is **mild** in May. ", "Zürich is greener.\n\n", "- 20 °C\n- little rain")
	for n := 2; n <= 12; n++ {
		talk(fmt.Sprintf("r%02d", n), fmt.Sprintf("r%02d", n-1), fmt.Sprintf("And what about day %d?", n), "That day is free.")
	}
	call := func(id, name, args, result string, wait int) []object {
		out := []object{
			{"type": "TOOL_CALL_START", "toolCallId": id, "toolCallName": name, "parentMessageId": "m-" + id},
			{"type": "TOOL_CALL_ARGS", "toolCallId": id, "delta": args}, {"type": "TOOL_CALL_END", "toolCallId": id},
		}
		if result != "" {
			out = append(out, object{"type": "TOOL_CALL_RESULT", "messageId": "t-" + id, "toolCallId": id, "content": result, "role": "tool", "after": wait})
		}
		return out
	}
	events := []object{
		{"type": "STATE_SNAPSHOT", "snapshot": object{"title": "List", "items": []any{}}},
		{"type": "STEP_STARTED", "stepName": "plan"},
		{"type": "REASONING_MESSAGE_START", "messageId": "think", "role": "reasoning"},
		{"type": "REASONING_MESSAGE_CONTENT", "messageId": "think", "delta": "Both cities need a forecast. Then the list."},
		{"type": "REASONING_MESSAGE_END", "messageId": "think"},
		{"type": "STEP_FINISHED", "stepName": "plan"}, {"type": "STEP_STARTED", "stepName": "weather"},
	}
	events = append(events, call("c1", "weather", `{"city":"Paris"}`, `{"city":"Paris","c":20}`, 900)...)
	events = append(events, call("c2", "weather", `{"city":"Zürich"}`, `{"city":"Zürich","c":12}`, 6000)...)
	events = append(events, object{"type": "STEP_FINISHED", "stepName": "weather"}, object{"type": "STATE_DELTA", "delta": []any{object{"op": "add", "path": "/items/0", "value": "milk"}}},
		object{"type": "ACTIVITY_SNAPSHOT", "messageId": "act", "activityType": "LIST", "content": object{"count": 1}},
		object{"type": "STATE_DELTA", "delta": []any{object{"op": "add", "path": "/items/-", "value": "eggs / ~tilde"}}})
	events = append(events, say("ask", "Paris has 20 °C, Zürich 12 °C. ", "Shall I clear the old list?")...)
	events = append(events, call("c3", "delete_file", `{"path":"/tmp/old-list"}`, "", 0)...)
	ask := object{"type": "RUN_FINISHED", "outcome": object{"type": "interrupt", "interrupts": []any{object{"id": "i1", "reason": "tool_call", "message": "Approve delete_file(\"/tmp/old-list\")?", "toolCallId": "c3", "responseSchema": object{"type": "object", "properties": object{"approved": object{"type": "boolean"}}}}}}}
	run("ask", "r12", "Weather in Paris and Zürich, then make a shopping list", events, ask)
	answer := func(id, status string, words string) {
		input := object{"threadId": thread, "runId": id, "parentRunId": "ask", "messages": []any{}, "state": object{}, "tools": []any{}, "context": []any{}, "forwardedProps": object{}, "resume": []any{object{"interruptId": "i1", "status": status, "payload": object{"approved": status == "resolved"}}}}
		list := []any{object{"type": "RUN_STARTED", "threadId": thread, "runId": id, "timestamp": at}}
		for _, e := range say(id, words) {
			e["timestamp"] = at + 300
			list = append(list, e)
		}
		at += 30_000
		publishAs(t, producer, address, thread, id, input, append(list, object{"type": "RUN_FINISHED", "threadId": thread, "runId": id, "timestamp": at - 29_000})...)
	}
	answer("yes", "resolved", "Done: the old list is gone.")
	answer("no", "cancelled", "I leave it where it is.")
	run("archive", "yes", "Ask the archive for last year", say("archive", "Looking"), object{"type": "RUN_ERROR", "message": "the archive did not answer within 5 s", "code": "timeout"})
	talk("archive-again", "yes", "Ask the archive for last year", "Last year it rained.")
	talk("edited", "r12", "Only a shopping list, please", "Milk and eggs.")
	for n := range 6 {
		talk(fmt.Sprintf("again-%d", n), "archive-again", "And the year before?", "It rained then, too.")
	}
	talk("found", "archive-again", "Show me the map", "Here it is.") // its parent is found by content
	talk("guess", "", "", "Turn 1: you said nothing.")               // by its time alone
	talk("spawned", "", "Think", "About Lisbon.")
	talk("early", "", "Think again", "Porto, then.")
	talk("one", "early", "One more", "Faro.")
	run("export", "no", "Remove the old export", say("export", "I need a word on that."), object{"type": "RUN_FINISHED", "outcome": object{"type": "interrupt", "interrupts": []any{object{"id": "i2", "reason": "tool_call", "message": "Approve delete_file(\"/srv/exports/may.zip\")?"}}}})
	at = time.Now().Add(-20 * time.Second).UnixMilli()
	run("now", "again-0", "And what did the archive say of May?", say("now", "It says")[:2], nil)
	get(t, address+"/v1/threads/"+thread+"/lineage", func(l struct{ Runs []any }) bool { return len(l.Runs) == 31 })
}
