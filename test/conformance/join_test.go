package conformance_test

import (
	"bytes"
	"cmp"
	"encoding/json"
	"slices"
	"strings"
	"testing"

	"pgregory.net/rapid"

	"github.com/skeinhq/skein/pkg/agui"
	"github.com/skeinhq/skein/pkg/compact"
	"github.com/skeinhq/skein/test/conformance"
)

// joins returns what a client gets that joins a stream before each of its events: the prelude, and what comes then.
func joins(t rapid.TB, start conformance.Start, events []json.RawMessage) [][]json.RawMessage {
	t.Helper()
	var messages []agui.Message
	if len(start.Messages) > 0 {
		if err := json.Unmarshal(start.Messages, &messages); err != nil {
			t.Fatal(err)
		}
	}
	r := compact.New(messages, start.State)
	var streams [][]json.RawMessage
	for i, line := range events {
		ev, err := agui.Decode(line)
		if err == nil {
			err = r.Apply(ev)
		}
		if err != nil && !agui.IsMalformed(err) {
			break
		}
		checkpoint, err := r.Checkpoint() // as where a record is gone on from
		if err != nil {
			t.Fatal(err)
		}
		again, err := compact.Resume(r.Messages(), r.State(), checkpoint)
		if err != nil {
			t.Fatal(err)
		}
		if r.Ended() {
			break
		}
		prelude := again.Prelude()
		// What stands before RUN_STARTED is malformed, and nobody joins behind it.
		if bytes.Contains(prelude[0], []byte(`"RUN_STARTED"`)) {
			streams = append(streams, append(prelude, events[i+1:]...))
		}
	}
	return streams
}

// A client that joins a generated stream at any event ends with what one holds that has seen them all. Where the client's verification
// finds a fault, it ends the stream there: what it would hold behind that is nobody's concern. Nor are streams here of which Skein holds
// something else (docs/fold.md has those).
func TestPrelude_JoinsAGeneratedStreamAtAnyEvent(t *testing.T) {
	client := conformance.Need(t)
	fewerChecks(t, 4)
	drawn, joined := 0, 0
	rapid.Check(t, func(rt *rapid.T) {
		g := gen{t: rt}.sound()
		start := conformance.Start{Messages: json.RawMessage(`[]`), State: json.RawMessage(`{}`)}
		have := history(rt, conformance.Conversation(start))
		s := g.drawStream("r", have)
		drawn++
		if sharesIDs(s.events) {
			return
		}
		whole := conformance.Job{Events: s.events, Upgrade: true, Schema: true, Skip: true, Verify: true}
		streams := joins(rt, start, s.events)
		if len(streams) == 0 {
			return
		}
		at := g.n(len(streams) - 1)
		part := whole
		part.Events = streams[at]
		results := client.Play(rt, whole, part)
		// Skein takes a RUN_STARTED without threadId, which the client leaves out.
		unread := slices.ContainsFunc(results[1].Skipped, func(e conformance.EventError) bool { return e.Index == 0 })
		if unread || results[0].Violation != nil || conformance.Diff(results[0].Conversation, foldFrom(rt, have, s.events).Conversation) != "" {
			return
		}
		joined++
		if d := conformance.Diff(results[0].Conversation, results[1].Conversation); d != "" {
			rt.Errorf("joined behind event %d: %s\n%s\nof\n%s", at, d, strings.Join(stream{events: part.Events}.lines(), "\n"),
				strings.Join(s.lines(), "\n"))
		}
		if v := results[1].Violation; v != nil {
			rt.Errorf("joined behind event %d: event %d breaks a rule: %s\n%s\nof\n%s", at, v.Index, v.Message, strings.Join(stream{events: part.Events}.lines(), "\n"), strings.Join(s.lines(), "\n"))
		}
	})
	if joined == 0 {
		t.Error("no stream was joined")
	}
	t.Logf("joined %d of %d streams", joined, drawn)
}

// sharesIDs says whether a stream uses an id for more than one thing: a message or a tool call for two agents, or an id of
// a snapshot for two messages. The client's verification takes what a snapshot holds for its message's agent, and its
// reducer finds one message by an id, so what it makes of such a stream depends on what it saw before (docs/live.md).
func sharesIDs(events []json.RawMessage) bool {
	type held struct {
		ID            string
		SubagentRunID *string
		ToolCalls     []struct{ ID string }
	}
	messages, calls := map[string]string{}, map[string]string{} // the agent that each is of
	shared := false
	claim := func(of map[string]string, id string, subagent *string) {
		agent := "main"
		if subagent != nil {
			agent = "subagent " + *subagent
		}
		was, known := of[id]
		shared = shared || known && was != agent
		of[id] = agent
	}
	hold := func(list []held) {
		once := map[string]bool{}
		for _, m := range list {
			shared = shared || once[m.ID]
			once[m.ID] = true
			claim(messages, m.ID, m.SubagentRunID)
			for _, c := range m.ToolCalls {
				claim(calls, c.ID, m.SubagentRunID)
			}
		}
	}
	for _, line := range events {
		var ev struct {
			Type                       agui.Type
			MessageID, ParentMessageID string
			ToolCallID                 string
			SubagentRunID              *string
			Messages                   []held
			Input                      struct{ Messages []held }
		}
		if json.Unmarshal(line, &ev) != nil {
			continue
		}
		hold(ev.Messages)
		hold(ev.Input.Messages)
		switch ev.Type {
		case agui.TextMessageStart, agui.TextMessageChunk, agui.ReasoningMessageStart, agui.ReasoningMessageChunk, agui.ToolCallResult:
			if ev.MessageID != "" {
				claim(messages, ev.MessageID, ev.SubagentRunID)
			}
		case agui.ToolCallStart, agui.ToolCallChunk:
			if ev.ToolCallID != "" {
				claim(calls, ev.ToolCallID, ev.SubagentRunID)
				claim(messages, cmp.Or(ev.ParentMessageID, ev.ToolCallID), ev.SubagentRunID)
			}
		}
	}
	return shared
}
