package artifact_test

import (
	"encoding/json"
	"testing"
	"time"

	"github.com/skeinhq/skein/pkg/agui"
	"github.com/skeinhq/skein/pkg/artifact"
)

var began = time.Date(2026, 4, 14, 19, 0, 0, 0, time.UTC)

func event(tb testing.TB, text string) *agui.Event {
	tb.Helper()
	ev, err := agui.Decode([]byte(text))
	if err != nil {
		tb.Fatal(err)
	}
	return ev
}

func messages(tb testing.TB, list string) []agui.Message {
	tb.Helper()
	all, _ := event(tb, `{"type":"MESSAGES_SNAPSHOT","messages":`+list+`}`).Messages()
	return all
}

func jsonOf(tb testing.TB, v any) string {
	tb.Helper()
	b, err := json.Marshal(v)
	if err != nil {
		tb.Fatal(err)
	}
	return string(b)
}

func TestFromRun_KeepsTextMessagesAndTellsWhatItLeavesOut(t *testing.T) {
	run := artifact.Run{
		ThreadID: "t", RunID: "r", ParentRunID: "p", StartedAt: began, Basis: "inferred",
		Terminal: event(t, `{"type":"RUN_ERROR","message":"no answer","code":"timeout"}`),
		Messages: messages(t, `[
			{"id":"1","role":"system","content":"be kind"},
			{"id":"2","role":"user","name":"Ann","content":"hi","metadata":{"a":1}},
			{"id":"3","role":"user","content":[{"type":"text","text":"look"}]},
			{"id":"4","role":"assistant","toolCalls":[{"id":"c","type":"function","function":{"name":"f","arguments":"{}"}}]},
			{"id":"5","role":"assistant","content":"","toolCalls":[]},
			{"id":"6","role":"tool","toolCallId":"c","content":"42","encryptedValue":"x"},
			{"id":"7","role":"assistant","content":"it is 42","toolCalls":[]},
			{"id":"8","role":"reasoning","content":"hm"},
			{"id":"9","role":"activity","activityType":"plan","content":{}},
			{"id":"10","role":"assistant","content":"","toolCalls":[{"id":"d","type":"function","function":{"name":"f","arguments":"{}"}}]},
			{"id":"11","role":"assistant","content":"","name":""}]`),
	}
	a, report, err := artifact.FromRun(run, time.Time{})
	if err != nil {
		t.Fatal(err)
	}
	b, err := a.Encode()
	if err != nil {
		t.Fatal(err)
	}
	want := `{"schema":"ag-ui.compacted-message-snapshot.export.v1","framework":"ag_ui","surface":"compacted_message_snapshot_artifact",` +
		`"thread_id_ref":"t","run_id_ref":"r","parent_run_id_ref":"p","started_at":"2026-04-14T19:00:00Z","messages":[` +
		`{"id":"1","role":"system","content":"be kind"},{"id":"2","role":"user","content":"hi","name":"Ann"},` +
		`{"id":"5","role":"assistant","content":""},{"id":"6","role":"tool","content":"42"},{"id":"7","role":"assistant","content":"it is 42"},` +
		`{"id":"11","role":"assistant","content":""}],` +
		`"terminal_event":"RUN_ERROR","error_message":"no answer","error_code":"timeout"}`
	if string(b) != want {
		t.Errorf("artifact\n%s\nwant\n%s", b, want)
	}
	if got, want := jsonOf(t, report), `{"projection":"text-messages-v1","messages":6,`+
		`"leftOut":{"activity":1,"content-parts":1,"no-text":2,"reasoning":1},`+
		`"stripped":{"encryptedValue":1,"metadata":1,"name":1,"toolCallId":1,"toolCalls":2},"startedAtFrom":"record","basis":"inferred"}`; got != want {
		t.Errorf("report\n%s\nwant\n%s", got, want)
	}
}

func TestFromRun_SaysWhoseTimeItHas(t *testing.T) {
	const noTime = `{"type":"RUN_STARTED","threadId":"t","runId":"r"}`
	const withTime = `{"type":"RUN_STARTED","threadId":"t","runId":"r","timestamp":1776193200000}`
	const micros = `{"type":"RUN_STARTED","threadId":"t","runId":"r","timestamp":1776193200000000}`
	option, record := began.Add(time.Hour), began.Add(time.Minute)
	for name, tc := range map[string]struct {
		started     string
		run, option time.Time
		want        time.Time
		from        string
	}{
		"the option's":                        {withTime, began, option, option, artifact.FromOption},
		"the event's":                         {withTime, began, time.Time{}, began, artifact.FromEvent},
		"the record's":                        {noTime, record, time.Time{}, record, artifact.FromRecord},
		"the record's, which no start tells":  {"", record, time.Time{}, record, artifact.FromRecord},
		"the event's, with another before it": {withTime, record, time.Time{}, began, artifact.FromEvent},
		"the event's, without a record's":     {withTime, time.Time{}, time.Time{}, began, artifact.FromEvent},
		"the record's, where it is no time":   {micros, record, time.Time{}, record, artifact.FromRecord},
	} {
		t.Run(name, func(t *testing.T) {
			run := artifact.Run{ThreadID: "t", RunID: "r", StartedAt: tc.run, Terminal: event(t, `{"type":"RUN_ERROR","message":"no"}`)}
			if tc.started != "" {
				run.Started = event(t, tc.started)
			}
			a, report, err := artifact.FromRun(run, tc.option)
			if err != nil {
				t.Fatal(err)
			}
			if !a.StartedAt.Equal(tc.want) || report.StartedAtFrom != tc.from {
				t.Errorf("%s, from %s", a.StartedAt, report.StartedAtFrom)
			}
		})
	}
}

func TestFromEnvelope_DropsAndCountsWhatIsNoPartOfIt(t *testing.T) {
	capture := func(started string) [][]byte {
		return [][]byte{
			[]byte(`{"type":"STATE_SNAPSHOT","snapshot":{}}`), []byte(started), []byte(`{"type":"NEW","a":1}`),
			[]byte(`{"type":"MESSAGES_SNAPSHOT","messages":[]}`),
			[]byte(`{"type":"RUN_FINISHED","threadId":"t","runId":"r","timestamp":1776193260000}`),
		}
	}
	a, report, err := artifact.FromEnvelope(capture(`{"type":"RUN_STARTED","threadId":"t","runId":"r","parentRunId":"p","timestamp":1776193200000}`), time.Time{})
	if err != nil {
		t.Fatal(err)
	}
	if !a.StartedAt.Equal(began) || !a.FinishedAt.Equal(began.Add(time.Minute)) || a.ParentRunIDRef != "p" {
		t.Errorf("%+v", a)
	}
	if got, want := jsonOf(t, report), `{"projection":"text-messages-v1","messages":0,"leftOut":{},"stripped":{},`+
		`"events":{"NEW":1,"STATE_SNAPSHOT":1},"startedAtFrom":"event"}`; got != want {
		t.Errorf("report\n%s\nwant\n%s", got, want)
	}
	a, report, err = artifact.FromEnvelope(capture(`{"type":"RUN_STARTED","threadId":"t","runId":"r",`+
		`"input":{"threadId":"t","runId":"r","parentRunId":"q","messages":[]}}`), began.Add(time.Hour))
	if err != nil || !a.StartedAt.Equal(began.Add(time.Hour)) || report.StartedAtFrom != artifact.FromOption || a.ParentRunIDRef != "q" {
		t.Errorf("with an option and a parent in the input: %+v, %+v, %v", a, report, err)
	}
}
