package page_test

import (
	"bytes"
	"cmp"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"slices"
	"strings"
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
	producer := []string{"Skein-Agent", "travel-desk", "Skein-Label-Env", "prod", "Skein-Label-User", "u-236", "Skein-Label-Trace",
		"7c0ffee/1", "traceparent", "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01"}
	// What a run names as its parent, where it is not the one that it goes on from; "-" is nothing.
	names := map[string]string{"found": "-", "spawned": "research/run-7", "early": "one"}
	histories, states := map[string][]any{}, map[string]any{} // by run: the messages and the state behind it
	run := func(id, parent, question string, middle []object, end object) {
		messages := append(slices.Clone(histories[parent]), object{"id": "u-" + id, "role": "user", "content": question})
		state := states[parent]
		if state == nil {
			state = object{}
		}
		states[id] = state
		var input any = object{"threadId": thread, "runId": id, "messages": messages, "state": state, "tools": []any{}, "context": []any{},
			"forwardedProps": object{}}
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
	finished := func() object {
		return object{"type": "RUN_FINISHED", "usage": []any{object{"provider": "p", "model": "m", "inputTokens": 7, "outputTokens": 2, "totalTokens": 99},
			object{"model": "m", "outputTokens": 1}}}
	}
	talk := func(id, parent, question string, words ...string) {
		run(id, parent, question, say(id, words...), finished())
	}

	talk("r01", "", "Where shall we go in May?", "Paris is **mild** in May. ", "Zürich is greener.\n\n", "- 20 °C\n- little rain")
	for n, said := range [][2]string{
		{"How many days does Paris need?", "Three, if you leave out Versailles. "},
		{"And Zürich?", "Two are enough: the old town, and a boat on the lake."},
		{"Is there a train between them?", "A TGV, in four hours. It leaves at 7:18, 12:18 and 18:18."},
		{"What does it cost?", "From 39 € when booked six weeks ahead, else about 120 €."},
		{"Where would we stay in Paris?", "Near Canal Saint-Martin: quiet, and ten minutes from the Gare de l'Est."},
		{"Anything for the children?", "The Jardin d'Acclimatation, and the model trains at the Gare de Lyon."},
		{"What if it rains?", "The Musée d'Orsay on day one. Book a time: the queue is long."},
		{"And in Zürich?", "The Landesmuseum is beside the station, and free for children."},
		{"Which day is best for the boat?", "Sunday. On Saturday the lake is full."},
		{"Do we need francs?", "No. Cards are taken everywhere, on the boat as well."},
		{"What do we have to pack?", "A coat for the evenings, and good shoes. I can make a list."},
	} {
		talk(fmt.Sprintf("r%02d", n+2), fmt.Sprintf("r%02d", n+1), said[0], said[1])
	}
	call := func(id, name, args, result string, wait int) []object {
		out := []object{
			{"type": "TOOL_CALL_START", "toolCallId": id, "toolCallName": name, "parentMessageId": "m-" + id},
			{"type": "TOOL_CALL_ARGS", "toolCallId": id, "delta": args}, {"type": "TOOL_CALL_END", "toolCallId": id},
		}
		if result != "" {
			out = append(out, object{"type": "TOOL_CALL_RESULT", "messageId": "t-" + id, "toolCallId": id, "content": result, "role": "tool",
				"after": wait})
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
	events = append(events, object{"type": "STEP_FINISHED", "stepName": "weather"},
		object{"type": "STATE_DELTA", "delta": []any{object{"op": "add", "path": "/items/0", "value": "milk"}}},
		object{"type": "ACTIVITY_SNAPSHOT", "messageId": "act", "activityType": "LIST", "content": object{"count": 1}},
		object{"type": "STATE_DELTA", "delta": []any{object{"op": "add", "path": "/items/-", "value": "eggs / ~tilde"}}})
	events = append(events, say("ask", "Paris has 20 °C, Zürich 12 °C. ", "Shall I clear the old list?")...)
	events = append(events, call("c3", "delete_file", `{"path":"/tmp/old-list"}`, "", 0)...)
	ask := object{"type": "RUN_FINISHED", "outcome": object{"type": "interrupt",
		"interrupts": []any{object{"id": "i1", "reason": "tool_call", "message": "Approve delete_file(\"/tmp/old-list\")?", "toolCallId": "c3",
			"responseSchema": object{"type": "object", "properties": object{"approved": object{"type": "boolean"}}}}}}}
	run("ask", "r12", "Weather in Paris and Zürich, then make a shopping list", events, ask)
	asked := get(t, address+"/v1/threads/"+thread+"/runs/ask/checkout", func(c struct {
		Messages []any
		State    any
	},
	) bool {
		return len(c.Messages) > 24
	})
	histories["ask"], states["ask"] = asked.Messages, asked.State
	answer := func(id, status string, words string) {
		input := object{"threadId": thread, "runId": id, "parentRunId": "ask", "messages": histories["ask"], "state": states["ask"],
			"tools": []any{}, "context": []any{}, "forwardedProps": object{},
			"resume": []any{object{"interruptId": "i1", "status": status, "payload": object{"approved": status == "resolved"}}}}
		list := []any{object{"type": "RUN_STARTED", "threadId": thread, "runId": id, "timestamp": at}}
		for _, e := range say(id, words) {
			e["timestamp"] = at + 300
			list = append(list, e)
		}
		histories[id], states[id] = append(slices.Clone(histories["ask"]), object{"id": "a-" + id, "role": "assistant", "content": words}),
			states["ask"]
		at += 30_000
		publishAs(t, producer, address, thread, id, input,
			append(list, object{"type": "RUN_FINISHED", "threadId": thread, "runId": id, "timestamp": at - 29_000})...)
	}
	answer("yes", "resolved", "Done: the old list is gone. The new one has milk and eggs.")
	answer("no", "cancelled", "Then I leave the old list where it is. Milk and eggs are on a new one.")
	run("archive", "yes", "Ask the archive for last year", say("archive", "Looking"),
		object{"type": "RUN_ERROR", "message": "the archive did not answer within 5 s", "code": "timeout"})
	talk("archive-again", "yes", "Ask the archive for last year", "In May of last year it rained on nine days in Paris, and on four in Zürich.\n\n",
		"| Place | January | February | March | April | May | June | July | August | September |\n|---|---|---|---|---|---|---|---|---|---|\n",
		"| Paris | 10 days | 9 days | 8 days | 9 days | 9 days | 7 days | 6 days | 6 days | 8 days |\n| Zürich | 8 | 8 | 9 | 7 | 4 | 10 | 11 | 9 | 8 |")
	talk("edited", "r12", "Only make a shopping list", "Milk, eggs, and bread for the train.")
	for n, said := range []string{
		"It rained on six days in Paris, and on seven in Zürich.", "Six wet days in Paris, seven in Zürich; the coldest night had 4 °C.",
		"Paris: six days of rain. Zürich: seven.", "In 2024 May was wetter in Zürich, with seven days of rain.",
		"Six days in Paris. For Zürich the archive has no figure.", "It rained less than last year: six days in Paris.",
	} {
		talk(fmt.Sprintf("again-%d", n), "archive-again", "And the year before?", said)
	}
	// its parent is found by content
	talk("found", "archive-again", "Show me both on a map", "Paris and Zürich lie 490 km apart: four hours by train.")
	talk("guess", "", "", "You said nothing. Shall I go on with the list?") // by its time alone
	talk("spawned", "", "Look for museums that open on Mondays", "The Louvre does, and the Landesmuseum does not.")
	talk("early", "", "Check the ferry times, too", "The first boat leaves at 9:10.")
	talk("one", "early", "And the last one?", "At 18:30.")
	run("export", "no", "Remove the old export", say("export", "That cannot be undone, so I ask first."),
		object{"type": "RUN_FINISHED", "outcome": object{"type": "interrupt",
			"interrupts": []any{object{"id": "i2", "reason": "tool_call", "message": "Approve delete_file(\"/srv/exports/may.zip\")?"}}}})
	at = time.Now().Add(-20 * time.Second).UnixMilli()
	run("now", "again-0", "And what did the archive say of May?", say("now", "It says")[:2], nil)
	get(t, address+"/v1/threads/"+thread+"/lineage", func(l struct{ Runs []any }) bool { return len(l.Runs) == 31 })
	expenses(t, address, at)
}

// bigEvent is an event that JSON.parse and an encoder would write in another way; its é is two bytes.
const bigEvent = `{"type": "CUSTOM", "name": "receipt", "value": {"id": 12345678901234567890, "total": 1.50, "shop": "Café", "2": "b", "1": "a"}, "timestamp": %d}`

// picture is base64 as an agent has it of a file of 1,500 bytes.
var picture = base64.StdEncoding.EncodeToString(bytes.Repeat([]byte("\x89PNG\r\n\x1a\n\x00\x00\xffIHDR"), 100))

// expenses plays a thread with contents that are large: a picture inside of a message, a long result, a history that a later run leaves
// out.
func expenses(t *testing.T, address string, at int64) {
	t.Helper()
	const thread = "expenses-may"
	by := []string{"Skein-Agent", "expense-desk", "Skein-Label-Env", "prod", "Skein-Label-User", "u-087"}
	ask := object{"id": "u1", "role": "user",
		"content": []object{{"type": "text", "text": "What did we spend on the train?"},
			{"type": "binary", "mimeType": "image/png", "data": picture}}}
	var lines strings.Builder
	for n := range 900 {
		fmt.Fprintf(&lines, "%d. 2026-05-%02d, SNCF, seat %d, 39.00 €\n", n+1, n%31+1, n%90+1)
	}
	started := func(id string) object {
		return object{"type": "RUN_STARTED", "threadId": thread, "runId": id, "timestamp": at}
	}
	input := func(id string, messages ...object) object {
		return object{"threadId": thread, "runId": id, "messages": messages,
			"state": object{"receipt": picture, "number": json.Number("12345678901234567890")}, "tools": []any{}, "context": []any{},
			"forwardedProps": object{}}
	}
	publishAs(t, by, address, thread, "receipts", input("receipts", ask), started("receipts"),
		object{"type": "REASONING_MESSAGE_CHUNK", "messageId": "think", "delta": "The receipt is of SNCF. I look the others up.",
			"timestamp": at + 200},
		json.RawMessage(fmt.Sprintf(bigEvent, at+250)),
		object{"type": "TOOL_CALL_START", "toolCallId": "c1", "toolCallName": "find_receipts", "timestamp": at + 300}, object{"type": "TOOL_CALL_ARGS", "toolCallId": "c1", "delta": `{"shop":"SNCF"}`, "timestamp": at + 320}, object{"type": "TOOL_CALL_END", "toolCallId": "c1", "timestamp": at + 340},
		object{"type": "TOOL_CALL_RESULT", "messageId": "t1", "toolCallId": "c1", "role": "tool",
			"content": marshal(t, object{"list": lines.String(), "scan": picture}), "timestamp": at + 900},
		object{"type": "TEXT_MESSAGE_CHUNK", "messageId": "a1", "role": "assistant", "delta": "900 seats of 39.00 €:\n\n" + lines.String(),
			"timestamp": at + 1400},
		object{"type": "RUN_FINISHED", "threadId": thread, "runId": "receipts", "timestamp": at + 1500})
	at += 60_000
	// It goes on from a summary.
	publishAs(t, by, address, thread, "sum",
		object{"threadId": thread, "runId": "sum", "parentRunId": "receipts",
			"messages": []object{{"id": "s", "role": "system", "content": "So far: 900 seats of 39.00 €."},
				{"id": "u2", "role": "user", "content": "And in all?"}}, "state": object{}, "tools": []any{}, "context": []any{},
			"forwardedProps": object{}}, started("sum"),
		object{"type": "MESSAGES_SNAPSHOT", "messages": []object{{"id": "s", "role": "system", "content": "So far: 900 seats of 39.00 €."},
			{"id": "u2", "role": "user", "content": "And in all?"}}, "timestamp": at + 100},
		object{"type": "TEXT_MESSAGE_CHUNK", "messageId": "a2", "role": "assistant", "delta": "35,100.00 €.", "timestamp": at + 700},
		object{"type": "RUN_FINISHED", "threadId": thread, "runId": "sum", "timestamp": at + 800})
	get(t, address+"/v1/threads/"+thread+"/lineage", func(l struct{ Runs []struct{ Status string } }) bool {
		return len(l.Runs) == 2 && l.Runs[1].Status == "finished"
	})
}
