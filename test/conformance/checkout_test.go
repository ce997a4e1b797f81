package conformance_test

import (
	"bytes"
	"encoding/json"
	"fmt"
	"net/url"
	"strings"
	"testing"

	"github.com/skeinhq/skein/internal/app/dev/devtest"
	"github.com/skeinhq/skein/internal/recordings"
	"github.com/skeinhq/skein/pkg/client"
	"github.com/skeinhq/skein/test/conformance"
)

// The official client goes on from a checkout: started with the input that Skein gives, it plays one more
// run, and holds then what Skein says of that run, which it was sent with that input.
func TestCheckout_TheOfficialClientGoesOnFromIt(t *testing.T) {
	live := conformance.Need(t)
	c := devtest.Client(t, devtest.Start(t).URL())
	for _, recorded := range recordings.All() {
		t.Run(recorded.String(), func(t *testing.T) {
			t.Parallel() // most of it is waiting for the index
			send := func(run string, input, events []byte) string {
				t.Helper()
				if _, err := c.PutInput(t.Context(), recorded.ThreadID, run, input); err != nil {
					t.Fatal(err)
				}
				ack, err := c.PostEvents(t.Context(), recorded.ThreadID, run, client.TypeNDJSON, bytes.NewReader(events))
				if err != nil {
					t.Fatal(err)
				}
				return fmt.Sprintf("%d:%d", ack.Partition, ack.LastOffset)
			}
			get := func(path, at string, query url.Values) []byte {
				t.Helper()
				body, err := conformance.Get(t.Context(), c, path, at, query)
				if err != nil {
					t.Fatal(err)
				}
				return body
			}
			first := recorded.Runs[0]
			at := send(first.RunID, first.Input, first.Events)
			input := get(client.RunPath(recorded.ThreadID, first.RunID)+"/checkout", at, url.Values{"runId": {"next"}})
			var given struct {
				Messages        json.RawMessage
				State           json.RawMessage
				RunID, ThreadID string
			}
			if err := json.Unmarshal(input, &given); err != nil {
				t.Fatal(err)
			}
			events := []json.RawMessage{
				encode(obj{"type": "RUN_STARTED", "threadId": given.ThreadID, "runId": given.RunID}),
				encode(obj{"type": "TEXT_MESSAGE_CHUNK", "messageId": "next-answer", "role": "assistant", "delta": "and so on"}),
				encode(obj{"type": "STATE_DELTA", "delta": []any{obj{"op": "add", "path": "/wentOn", "value": true}}}),
				encode(obj{"type": "RUN_FINISHED", "threadId": given.ThreadID, "runId": given.RunID}),
			}
			want := live.Play(t, conformance.Job{
				Start: conformance.Start{Messages: given.Messages, State: given.State}, Events: events, Upgrade: true, Schema: true, Verify: true,
			})[0]
			if want.Error != nil || want.Violation != nil {
				t.Fatalf("the client does not go on: %+v %+v", want.Error, want.Violation)
			}
			at = send(given.RunID, input, []byte(strings.Join(stream{events: events}.lines(), "\n")))
			var got conformance.Conversation
			if err := json.Unmarshal(get(client.RunPath(recorded.ThreadID, given.RunID)+"/history", at, nil), &got); err != nil {
				t.Fatal(err)
			}
			if d := conformance.Diff(want.Conversation, withoutActivity(t, got)); d != "" {
				t.Error(d)
			}
			var run struct{ ParentRunID, ParentBy string }
			if err := json.Unmarshal(get(client.RunPath(recorded.ThreadID, given.RunID), at, nil), &run); err != nil {
				t.Fatal(err)
			}
			if run.ParentRunID != first.RunID || run.ParentBy != "explicit" {
				t.Errorf("it follows %q by %s, not from the run that was checked out", run.ParentRunID, run.ParentBy)
			}
		})
	}
}

// withoutActivity leaves out what no input has: Skein keeps the parent's activity messages beside it.
func withoutActivity(t *testing.T, c conformance.Conversation) conformance.Conversation {
	t.Helper()
	var all []json.RawMessage
	if err := json.Unmarshal(c.Messages, &all); err != nil {
		t.Fatal(err)
	}
	c.Messages = encode(sayable(all))
	return c
}
