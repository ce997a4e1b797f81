package partition

import (
	"encoding/json"
	"math/rand/v2"
	"strings"
	"testing"

	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/skeinhq/skein/pkg/record"
)

// malformedEnds are ends that the schema refuses, or that are no JSON, with the reason.
var malformedEnds = []struct{ event, why string }{
	{`{"type":"RUN_FINISHED","runId":"r"}`, "RUN_FINISHED: threadId is missing"},
	{`{"type":"RUN_FINISHED","threadId":"t"}`, "RUN_FINISHED: runId is missing"},
	{`{"type":"RUN_FINISHED","thread_id":"t","run_id":"r"}`, "RUN_FINISHED: threadId is missing"},
	{`{"type":"RUN_FINISHED","threadId":"t","runId":"r","outcome":"success"}`, "RUN_FINISHED: outcome"},
	{`{"type":"RUN_FINISHED","threadId":"t","runId":"r","outcome":[{"type":"interrupt"}]}`, "RUN_FINISHED: outcome"},
	{`{"type":"RUN_FINISHED","threadId":"t","runId":"r","timestamp":"2026-01-01T00:00:00Z"}`, "RUN_FINISHED: timestamp"},
	{`{"type":"RUN_FINISHED","threadId":"t","runId":"r","result":NaN}`, "not JSON"},
	{`{"type":"RUN_ERROR","error":"model exploded"}`, "RUN_ERROR: message is missing"},
	{`{"type":"RUN_ERROR","message":null}`, "RUN_ERROR: message must be a string"},
	{`{"type":"RUN_ERROR","message":{"text":"no"}}`, "RUN_ERROR: message must be a string"},
	{`{"message":7,"type":"RUN_ERROR"}`, "RUN_ERROR: message must be a string"},
	{`{"result":NaN,"threadId":"t","type":"RUN_FINISHED","runId":"r"}`, "not JSON"},
	{"{\"message\":\"a\nb\",\"type\":\"RUN_ERROR\"}", "not JSON"},
	{`{"threadId":"\q","ty\u0070e":"\u0052UN_FINISHED"}`, "not JSON"},
	{`{"type":"RUN_FINISHED","threadId":"t","runId":"r",}`, "not JSON"},
	{`{"type":"RUN_FINISHED","threadId":"t","runId":"r`, "not JSON"},
	{"{\"type\":\"RUN_FINISHED\",\"threadId\":\"t\",\"runId\":\"\xff\"}", "not UTF-8"},
	{"\ufeff" + `{"type":"RUN_FINISHED","threadId":"t","runId":"r"}`, "not JSON"},
	{`{"type":"TEXT_MESSAGE_END","messageId":"m"}{"type":"RUN_FINISHED","threadId":"t","runId":"r"}`, "not JSON"},
	{`[{"type":"TEXT_MESSAGE_END","messageId":"m"},{"type":"RUN_FINISHED","threadId":"t","runId":"r"}]`, "not a JSON object"},
}

// A malformed end ends the run as an error that names the event, which is a dead letter, and is in no count or hash.
func TestPartition_AMalformedEndEndsTheRun(t *testing.T) {
	for _, c := range malformedEnds {
		t.Run(c.event, func(t *testing.T) {
			s := newSim(t, nil)
			s.Send("t", "r", started("r"))
			s.Send("t", "r", text("m", "x"))
			s.Send("t", "r", `{"type":"STEP_STARTED"}`)
			s.Send("t", "r", c.event)
			s.Send("t", "r", text("m", "late"))
			s.Send("t", "r", finished("r"))
			s.Input("t", "waits", `{"threadId":"t","runId":"waits","messages":[{"id":"u","role":"user","content":"hi"}]}`)
			s.Send("t", "waits", c.event)
			s.Send("t", "none", c.event) // of no run
			s.all()
			for id, events := range map[string]int64{"r": 2, "waits": 0} {
				r := s.run(id)
				var end struct{ Type, Message, Code string }
				s.check(json.Unmarshal(r.Terminal, &end))
				equal(t, id, []any{r.Status, r.Synthetic, end.Type, end.Code, r.Raw.Events, r.MessageCount, r.Open == nil},
					[]any{record.StatusError, true, "RUN_ERROR", "agent-no-end", events, 1, true})
				if !strings.Contains(end.Message, c.why) {
					t.Errorf("%s: the end says %q, want %q", id, end.Message, c.why)
				}
			}
			equal(t, "anomalies", s.run("r").Stats.Anomalies["malformed"], int64(2))
			equal(t, "first", s.run("r").FirstMalformed, "STEP_STARTED: stepName is missing")
			equal(t, "dead letters", len(s.letters()), 5)
			s.proves()
		})
	}
}

// Without a header it ends the run that it names, else the one that the thread began last.
func TestPartition_AMalformedEndEndsTheRunThatItNames(t *testing.T) {
	s := newSim(t, nil)
	for _, run := range []string{"a", "r", "b"} {
		s.Send("t", "", started(run))
	}
	s.Send("t", "", `{"type":"RUN_FINISHED","runId":"r"}`)
	s.Send("t", "", `{"type":"RUN_FINISHED","run_id":"r"}`)
	s.all()
	equal(t, "status", []record.Status{s.run("a").Status, s.run("r").Status, s.run("b").Status},
		[]record.Status{record.StatusRunning, record.StatusError, record.StatusError})
	s.proves()
}

// spoilEnds makes some ends of a log malformed.
func spoilEnds(events []*kgo.Record, rng *rand.Rand) {
	for _, m := range events {
		if v := string(m.Value); (strings.Contains(v, "RUN_FINISHED") || strings.Contains(v, "RUN_ERROR")) && rng.IntN(4) == 0 {
			m.Value = []byte(malformedEnds[rng.IntN(len(malformedEnds))].event)
		}
	}
}
