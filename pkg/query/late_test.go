package query

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/skeinhq/skein/pkg/agui"
	"github.com/skeinhq/skein/pkg/record"
)

const flushFailed = `{"type":"RUN_ERROR","message":"flush failed","code":"FLUSH"}`

// A run that failed after its RUN_FINISHED is a failed run in each answer, and waits for nobody.
func TestLateError_IsHowTheRunEnded(t *testing.T) {
	f := newRawFixture(t)
	at := []int64{
		f.event("r", fmt.Sprintf(started, "r")),
		f.event("r", `{"type":"RUN_FINISHED","threadId":"chat","runId":"r","outcome":{"type":"interrupt","interrupts":[{"id":"i","reason":"approval"}]}}`),
	}
	f.event("other", fmt.Sprintf(started, "other"))
	late := f.event("r", flushFailed)
	f.indexedFor("acme", "chat", "r", "", func(r *record.Run) {
		r.FailLate(record.LateError{Offset: late, Event: []byte(flushFailed)})
	}, at...)
	for path, wants := range map[string][]string{
		"/v1/threads/chat/runs/r":         {`"status":"error"`, `"terminal":{"type":"RUN_FINISHED"`, `"lateError":{"offset":3,"event":` + flushFailed, `"interrupts":[]`},
		"/v1/threads/chat/runs/r/history": {`"status":"error"`, `"error":{"message":"flush failed","code":"FLUSH"}`, `"through":"3:3"`},
		"/v1/threads/chat/runs/r/state":   {`"status":"error"`, `"n":2,"total":2,"lateError":{"offset":3,"event":` + flushFailed},
		"/v1/runs?status=error":           {`"runId":"r"`, `"errorCode":"FLUSH"`},
		"/v1/interrupts":                  {`"runs":[]`},
		"/v1/threads/chat/runs/r/verify":  {`"verdict":"proved"`},
	} {
		body := f.get("acme", path).body
		for _, want := range wants {
			if !strings.Contains(body, want) {
				t.Errorf("%s: %s\nhas not %s", path, body, want)
			}
		}
	}
	f.replays("/v1/threads/chat/runs/r/events", append(at, late)...)
	events := f.get("acme", "/v1/threads/chat/runs/r/history", "Accept", "text/event-stream").body
	if strings.Contains(events, "RUN_FINISHED") || !strings.HasSuffix(events, "id: 3:3\ndata: "+flushFailed+"\n\n") {
		t.Errorf("a restored run ends with %s", events)
	}
	// Verification finds another event there.
	f.indexedFor("acme", "chat", "r", "", func(r *record.Run) {
		r.FailLate(record.LateError{Offset: late, Event: []byte(`{"type":"RUN_ERROR","message":"another"}`)})
	}, at...)
	if body := f.get("acme", "/v1/threads/chat/runs/r/verify").body; !strings.Contains(body, `"lateError"`) || !strings.Contains(body, `"differs"`) {
		t.Errorf("verify: %s", body)
	}
}

// A stream that has sent RUN_FINISHED sends the RUN_ERROR after it once; another that joins or resumes ends with it.
func TestStream_SendsALateErrorOnce(t *testing.T) {
	for name, indexed := range map[string]bool{"from the log": false, "from its record": true} {
		t.Run(name, func(t *testing.T) {
			f := newRawFixture(t)
			thread := f.thread()
			event := func(run, value string) int64 {
				return f.add("acme", thread, record.Headers{Kind: record.KindEvent, RunID: run, Seq: -1}, value)
			}
			path, ofRun := "/v1/threads/"+thread+"/stream", "/v1/threads/"+thread+"/runs/r/stream"
			at := []int64{event("r", fmt.Sprintf(started, "r")), event("r", fmt.Sprintf(finished, "r"))}
			f.produce()
			lines := f.stream(path, "")
			ended := find(t, lines, "RUN_FINISHED")
			late := event("r", flushFailed)
			if indexed {
				f.indexedFor("acme", thread, "r", "", func(r *record.Run) {
					r.FailLate(record.LateError{Offset: late, Event: []byte(flushFailed)})
				}, at...)
			}
			f.produce()
			failed := find(t, lines, "RUN_ERROR")
			event("next", fmt.Sprintf(started, "next"))
			f.produce()
			following := []string{"RUN_STARTED", "RUN_ERROR"}
			for name, c := range map[string]struct {
				path, id string
				want     []string
			}{
				"it goes on":                   {"", "", following[:1]},
				"it resumes before the error":  {path, ended, []string{"RUN_ERROR", "RUN_STARTED"}},
				"it resumes after the error":   {path, failed, following[:1]},
				"the run's stream, joined":     {ofRun, "", []string{"RUN_STARTED", "MESSAGES_SNAPSHOT", "STATE_SNAPSHOT", "RUN_ERROR"}},
				"the run's stream, resumed":    {ofRun, ended, []string{"RUN_ERROR"}},
				"the run's stream, at its end": {ofRun, failed, nil},
			} {
				lines := lines
				if c.path != "" {
					lines = f.stream(c.path, c.id)
				}
				var got []string
				for (len(c.want) == 0 || len(got) < len(c.want)) && lines.Scan() {
					if data, ok := strings.CutPrefix(lines.Text(), "data: "); ok {
						ev, err := agui.Decode([]byte(data))
						if err != nil {
							t.Fatal(err)
						}
						got = append(got, string(ev.Type))
					}
				}
				if !slices.Equal(got, c.want) {
					t.Errorf("%s: %v, want %v", name, got, c.want)
				}
			}
		})
	}
}
