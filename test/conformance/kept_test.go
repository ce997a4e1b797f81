package conformance_test

import (
	"encoding/json"
	"slices"
	"strings"
	"testing"

	"github.com/skeinhq/skein/test/conformance"
)

// Rows of docs/fold.md that no case can hold, as its want.json is the reducer's.

// The whole client strips a message of an unknown role; its reducer, and Skein, keep one that has an id.
func TestDifference_MessagesOfUnknownRolesAreKept(t *testing.T) {
	client := conformance.Need(t)
	const list = `[{"id":"u","role":"user","content":"x"},{"id":"n","role":"narrator","content":{"k":1},"vendor":1}]`
	for name, events := range map[string][]json.RawMessage{
		"in a snapshot": {
			json.RawMessage(`{"type":"RUN_STARTED","threadId":"t","runId":"r"}`),
			json.RawMessage(`{"type":"MESSAGES_SNAPSHOT","messages":` + list + `}`),
		},
		"in an input": {
			json.RawMessage(`{"type":"RUN_STARTED","threadId":"t","runId":"r","input":{"threadId":"t","runId":"r","messages":` + list + `,"tools":[],"context":[]}}`),
		},
	} {
		t.Run(name, func(t *testing.T) {
			job := conformance.Job{Events: events, Upgrade: true, Schema: true}
			whole := job
			whole.Strip = true
			results := client.Play(t, job, whole)
			f := foldOf(t, conformance.Start{}, events)
			if d := conformance.Diff(results[0].Conversation, f.Conversation); d != "" || len(f.run.Messages()) != 2 ||
				len(f.run.Summary().Anomalies) > 0 {
				t.Errorf("%s: %s, %v", d, f.Messages, f.run.Summary().Anomalies)
			}
			if got := string(results[1].Messages); strings.Contains(got, "narrator") || !strings.Contains(got, `"u"`) {
				t.Errorf("the whole client has %s", got)
			}
		})
	}
}

// The client reads other bytes than UTF-8 as U+FFFD; to Skein they are no JSON, and cost the event.
func TestDifference_BytesThatAreNotUTF8CostTheEvent(t *testing.T) {
	client := conformance.Need(t)
	for name, odd := range map[string]string{"no character": "\xff", "half a surrogate pair": "\xed\xa0\x80", "half a character": "\xc3",
		"a long zero": "\xc0\x80"} {
		t.Run(name, func(t *testing.T) {
			events := conformance.Raw([]string{
				`{"type":"RUN_STARTED","threadId":"t","runId":"r"}`, `{"type":"TEXT_MESSAGE_START","messageId":"m"}`,
				`{"type":"TEXT_MESSAGE_CONTENT","messageId":"m","delta":"a` + odd + `b"}`, `{"type":"TEXT_MESSAGE_CONTENT","messageId":"m","delta":"c"}`,
			})
			if got := string(client.Play(t, conformance.Job{Events: events})[0].Messages); !strings.Contains(got, "\ufffd") {
				t.Errorf("the client has %s", got)
			}
			f := foldOf(t, conformance.Start{}, events)
			if got := string(f.run.Messages()[0].Get("content")); got != `"c"` || !slices.Equal(f.malformed, []int{2}) {
				t.Errorf("content is %s, and %v are malformed", got, f.malformed)
			}
		})
	}
}
