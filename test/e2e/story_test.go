package e2e_test

import (
	"encoding/json"
	"fmt"
	"testing"

	"github.com/skeinhq/skein/internal/recordings"
	"github.com/skeinhq/skein/test/conformance"
)

// story is a tenant's thread, with what the history of each run has to be.
type story struct {
	tenant string
	thread recordings.Thread
	want   []conformance.Conversation
}

// recorded are all recordings, as the first tenant's.
func recorded(t *testing.T) []story {
	t.Helper()
	var out []story
	for _, thread := range recordings.All() {
		want, err := conformance.Expected(thread)
		if err != nil {
			t.Fatal(err)
		}
		s := story{tenant: tenantA, thread: thread}
		for _, run := range want {
			s.want = append(s.want, run.Conversation)
		}
		out = append(out, s)
	}
	return out
}

// namesakes are threads of the second tenant under ids of recorded ones, runs and messages included, with
// nothing of theirs but the ids. Every third recording has none.
func namesakes(t *testing.T) []story {
	t.Helper()
	var out []story
	for i, thread := range recordings.All() {
		if i%3 == 0 {
			continue
		}
		s := story{tenant: tenantB, thread: recordings.Thread{
			Framework: thread.Framework, Name: thread.Name, ThreadID: thread.ThreadID,
		}}
		for _, run := range thread.Runs {
			own, want := namesake(t, run)
			s.thread.Runs = append(s.thread.Runs, own)
			s.want = append(s.want, want)
		}
		out = append(out, s)
	}
	return out
}

// namesake is a run of the same ids that asks and says a sentence of its own, with the history that is
// its own alone.
func namesake(t *testing.T, run recordings.Run) (recordings.Run, conformance.Conversation) {
	t.Helper()
	object := func(v any) json.RawMessage {
		b, err := json.Marshal(v)
		if err != nil {
			t.Fatal(err)
		}
		return b
	}
	type members = map[string]any
	question := members{"id": "q " + run.RunID, "role": "user", "content": "What does " + tenantB + " know of " + run.File + "?"}
	answer := members{"id": "a " + run.RunID, "role": "assistant", "content": "Only what " + tenantB + " has said."}
	state := members{"of": tenantB}
	own := recordings.Run{File: run.File, ThreadID: run.ThreadID, RunID: run.RunID}
	own.Input = object(members{
		"threadId": run.ThreadID, "runId": run.RunID, "messages": []any{question}, "state": state,
		"tools": []any{}, "context": []any{}, "forwardedProps": members{},
	})
	for _, event := range []members{
		{"type": "RUN_STARTED", "threadId": run.ThreadID, "runId": run.RunID},
		{"type": "TEXT_MESSAGE_START", "messageId": answer["id"], "role": "assistant"},
		{"type": "TEXT_MESSAGE_CONTENT", "messageId": answer["id"], "delta": answer["content"]},
		{"type": "TEXT_MESSAGE_END", "messageId": answer["id"]},
		{"type": "RUN_FINISHED", "threadId": run.ThreadID, "runId": run.RunID},
	} {
		own.Events = fmt.Appendf(own.Events, "%s\n", object(event))
	}
	return own, conformance.Conversation{Messages: object([]any{question, answer}), State: object(state)}
}
