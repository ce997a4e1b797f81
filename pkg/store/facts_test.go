package store

import (
	"encoding/json"
	"reflect"
	"strings"
	"testing"
	"time"

	"github.com/skeinhq/skein/pkg/agui"
	"github.com/skeinhq/skein/pkg/record"
)

func message(t testing.TB, raw string) agui.Message {
	t.Helper()
	var m agui.Message
	if err := json.Unmarshal([]byte(raw), &m); err != nil {
		t.Fatal(err)
	}
	return m
}

func messages(t testing.TB, raws ...string) []agui.Message {
	t.Helper()
	var list []agui.Message
	for _, raw := range raws {
		list = append(list, message(t, raw))
	}
	return list
}

func TestFactsOf_AskedComparesContents(t *testing.T) {
	asked := func(raws ...string) string { return FactsOf(&record.Run{InputMessages: messages(t, raws...)}).Asked }
	first := asked(`{"id":"1","role":"user","content":"caf\u00e9"}`)
	for name, same := range map[string]string{
		"another id":             asked(`{"id":"2","role":"user","content":"café"}`),
		"another order":          asked(`{"content":"café","role":"user","id":"2"}`),
		"the history comes with": asked(`{"id":"0","role":"user","content":"Hello"}`, `{"id":"a","role":"assistant","content":"Yes?"}`, `{"id":"2","role":"user","content":"café"}`),
	} {
		if same != first || len(first) != 16 {
			t.Errorf("%s: %q, want %q", name, same, first)
		}
	}
	for name, other := range map[string]string{
		"another text":   asked(`{"id":"1","role":"user","content":"tea"}`),
		"another role":   asked(`{"id":"1","role":"system","content":"café"}`),
		"two messages":   asked(`{"id":"1","role":"user","content":"ca"}`, `{"id":"2","role":"user","content":"fé"}`),
		"nothing is new": asked(`{"id":"1","role":"user","content":"café"}`, `{"id":"a","role":"assistant","content":"x"}`),
	} {
		if other == first {
			t.Errorf("%s: the same hash", name)
		}
	}
	if got := asked(); got != "" {
		t.Errorf("without messages: %q", got)
	}
}

func TestFactsOf_ReadsEndsAndTexts(t *testing.T) {
	long := strings.Repeat("é", 300)
	for name, c := range map[string]struct {
		run  record.Run
		want Facts
	}{
		"an error": {
			record.Run{Status: record.StatusError, Terminal: json.RawMessage(`{"type":"RUN_ERROR","code":"c","message":"` + strings.Repeat("é", 600) + `"}`)},
			Facts{ErrorCode: "c", ErrorMessage: strings.Repeat("é", 512)},
		},
		"an error of many lines": {
			record.Run{Status: record.StatusError, Terminal: json.RawMessage(`{"type":"RUN_ERROR","message":"first\n` + strings.Repeat("é", 600) + `\nlast"}`)},
			Facts{ErrorMessage: "first\n" + strings.Repeat("é", 251) + "\n…\n" + strings.Repeat("é", 252) + "\nlast"},
		},
		"an error after the end": {
			record.Run{
				Status: record.StatusError, Terminal: json.RawMessage(`{"type":"RUN_FINISHED"}`),
				LateError: &record.LateError{Event: json.RawMessage(`{"type":"RUN_ERROR","code":"c","message":"m"}`)},
			},
			Facts{ErrorCode: "c", ErrorMessage: "m"},
		},
		"cancelled by the agent":   {record.Run{Status: record.StatusCancelled, Terminal: json.RawMessage(`{"type":"RUN_FINISHED"}`)}, Facts{CancelledBy: "agent"}},
		"cancelled, as if stopped": {record.Run{Status: record.StatusCancelled, Terminal: json.RawMessage(`{"metadata":{"skein.stopped":{}}}`)}, Facts{CancelledBy: "agent"}},
		"stopped through Skein":    {record.Run{Status: record.StatusCancelled, Synthetic: true, Terminal: json.RawMessage(`{"metadata":{"skein.stopped":{}}}`)}, Facts{CancelledBy: "skein"}},
		"its caller has left":      {record.Run{Status: record.StatusCancelled, Synthetic: true}, Facts{CancelledBy: "caller"}},
		"a long reply":             {record.Run{Messages: messages(t, `{"id":"a","role":"assistant","content":"`+long+`"}`, `{"id":"t","role":"tool","toolCallId":"c","content":"x"}`)}, Facts{Reply: strings.Repeat("é", 200)}},
		"an answer with a payload": {record.Run{Resumes: []json.RawMessage{json.RawMessage(`{"interruptId":"i","status":"resolved","payload":"yes"}`)}}, Facts{Resumed: `"yes"`}},
		"an answer without":        {record.Run{Resumes: []json.RawMessage{json.RawMessage(`{"interruptId":"i","status":"cancelled"}`)}}, Facts{Resumed: "cancelled"}},
		"what is no text":          {record.Run{Messages: messages(t, `{"id":"a","role":"assistant","content":7}`)}, Facts{}},
	} {
		if got := FactsOf(&c.run); got != c.want {
			t.Errorf("%s: %+v, want %+v", name, got, c.want)
		}
	}
	parts := FactsOf(&record.Run{InputMessages: messages(t, `{"id":"u","role":"user","content":[{"type":"text","text":"Look:"},{"type":"image","source":{}},{"type":"text","text":"here"}]}`)})
	if parts.Question != "Look:\nhere" {
		t.Errorf("question of parts: %q", parts.Question)
	}
}

func TestContentFactsOf_JoinsCallsWithResults(t *testing.T) {
	r := &record.Run{
		InputMessages: messages(t, `{"id":"old","role":"assistant","content":"","toolCalls":[{"id":"c0","type":"function","function":{"name":"ask","arguments":"{}"}}]}`,
			`{"id":"r0","role":"tool","toolCallId":"c0","content":"42"}`),
		Messages: messages(t,
			`{"id":"a","role":"assistant","toolCalls":[{"id":"c1","type":"function","function":{"name":"search","arguments":"{\"q\":1}"}},{"id":"c2","type":"function","function":{"name":"fetch","arguments":""}}]}`,
			`{"id":"r1","role":"tool","toolCallId":"c1","content":"nothing","error":"timeout"}`,
			`{"id":"r0","role":"tool","toolCallId":"c0","content":"42"}`,
			`{"id":"ra","role":"tool","toolCallId":"approved","content":"paid"}`,
			`{"id":"a2","role":"assistant","toolCalls":[{"id":"c1","type":"function","function":{"name":"again","arguments":""}},{"id":"c3","type":"function","function":{"name":"late","arguments":""}}]}`),
		StartedAt:        time.Date(2026, 9, 17, 11, 59, 59, 0, time.UTC),
		PendingToolCalls: []string{"c2", "c9"},
		Interrupts:       []json.RawMessage{json.RawMessage(`{"id":"i","reason":"approval","message":"Sure?","toolCallId":"c2","expiresAt":"2026-09-17T14:00:00+02:00"}`), json.RawMessage(`7`)},
		Resumes:          []json.RawMessage{json.RawMessage(`{"interruptId":"i0","status":"resolved","payload":{"b":1,"a":2}}`)},
	}
	r.Stats.Usage = []record.TokenUsage{{Provider: "a", Model: "large"}, {Provider: "b", Model: "large"}}
	r.Stats.ToolCallTimes = map[string][]int64{"c1": {1000, 1350}, "c2": {1000}, "c0": {1, 2}, "c3": {}}
	took := int64(350)
	at := time.Date(2026, 9, 17, 12, 0, 0, 0, time.UTC)
	want := Contents{
		Model: "large",
		ToolCalls: []ToolCall{
			{ID: "c1", Name: "search", MessageID: "a", Made: true, CalledAt: &at, DurationMs: &took, ArgumentBytes: 7, Answered: true, ResultBytes: 7, Failed: true, Error: "timeout"},
			{ID: "c2", Name: "fetch", MessageID: "a", Made: true, CalledAt: &at, Pending: true},
			{ID: "c1", Name: "again", MessageID: "a2", Made: true},
			{ID: "c3", Name: "late", MessageID: "a2", Made: true},
			{ID: "approved", MessageID: "ra", Answered: true, ResultBytes: 4},
			{ID: "c0", MessageID: "r0", Answered: true, ResultBytes: 2},
		},
		Interrupts: []Interrupt{{ID: "i", Reason: "approval", Message: "Sure?", ToolCallID: "c2", ExpiresAt: &at}, {}},
		Answers:    []Answer{{InterruptID: "i0", Status: "resolved", Payload: `{"b":1,"a":2}`}},
	}
	if got := ContentFactsOf(r); !reflect.DeepEqual(got, want) {
		t.Errorf("got  %+v\nwant %+v", got, want)
	}
}
