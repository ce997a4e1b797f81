package ingest

import (
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"strconv"
	"strings"
	"testing"

	"github.com/prometheus/client_golang/prometheus/testutil"

	"github.com/skeinhq/skein/pkg/agui"
)

// Ids that contradict the path are accepted, and the answer says what they will count as.
func TestEvents_IDsThatContradictThePathAreWarnedOf(t *testing.T) {
	const thread, run = "thread-mismatch", "run-mismatch"
	d := newStage(t)
	for name, c := range map[string]struct {
		method, call, body string
		want               string // LINE ANOMALY of each
	}{
		"none":               {http.MethodPost, "events", `{"type":"RUN_STARTED","threadId":"t1","runId":"r1"}`, ""},
		"another thread":     {http.MethodPost, "events", "\n" + `{"type":"RUN_STARTED","threadId":"x","runId":"r1"}`, "2 " + thread},
		"another run":        {http.MethodPost, "events", `{"type":"CUSTOM","name":"a","value":1}` + "\n" + `{"type":"RUN_FINISHED","threadId":"t1","runId":"x"}`, "2 " + run},
		"both":               {http.MethodPost, "events", `{"type":"RUN_STARTED","threadId":"x","runId":"y"}`, "1 " + thread + ",1 " + run},
		"names of no run":    {http.MethodPost, "events", `{"type":"CUSTOM","name":"a","value":1,"threadId":"x"}`, ""},
		"no more than 13":    {http.MethodPost, "events", strings.Repeat(`{"type":"RUN_STARTED","threadId":"x","runId":"r1"}`+"\n", 20), "13"},
		"an input":           {http.MethodPut, "input", strings.Replace(input1, `"t1"`, `"x"`, 1), "0 " + thread},
		"an input of others": {http.MethodPut, "input", input1, ""},
	} {
		t.Run(name, func(t *testing.T) {
			d := d.in(t, name)
			body := strings.NewReplacer(`"t1"`, `"`+d.thread+`"`).Replace(c.body)
			kind := typeNDJSON
			if c.call == "input" {
				kind = typeJSON
			}
			a := d.do(c.method, d.path(c.call), strings.NewReader(body), "Content-Type", kind)
			if a.status != http.StatusOK {
				t.Fatalf("answer is %d %s", a.status, a.body)
			}
			var answer struct{ Warnings []warning }
			if err := json.Unmarshal([]byte(a.body), &answer); err != nil {
				t.Fatal(err)
			}
			var got []string
			for _, w := range answer.Warnings {
				got = append(got, fmt.Sprint(w.Line, " ", w.Anomaly))
				if !strings.Contains(w.Detail, "as the path says") {
					t.Errorf("the detail is %q", w.Detail)
				}
			}
			if c.want == "13" && len(got) == mostWarnings-mostReasons {
				return
			}
			if strings.Join(got, ",") != c.want {
				t.Errorf("warnings are %q, want %q: %s", got, c.want, a.body)
			}
		})
	}
}

// A caller that is answered while it sends is told with the last line.
func TestAcks_EndWithTheWarnings(t *testing.T) {
	d := newStage(t).in(t, "acks")
	k := d.talk(t, typeNDJSON)
	k.say(`{"type":"RUN_STARTED","threadId":"x","runId":"r1"}` + "\n")
	k.wants("acknowledged to line 1, 1 events")
	k.say(`{"type":"STEP_STARTED"}` + "\n")
	k.wants("acknowledged to line 2, 2 events")
	if err := k.body.Close(); err != nil {
		t.Fatal(err)
	}
	text, err := k.r.ReadString('\n')
	var last struct{ Done accepted }
	if err := errors.Join(err, json.Unmarshal([]byte(text), &last)); err != nil || len(last.Done.Warnings) != 2 ||
		last.Done.Warnings[0].Anomaly != "thread-mismatch" || last.Done.Unreadable != 1 {
		t.Errorf("the last line is %s, %v", text, err)
	}
}

// Events that no client can read are accepted and kept, and the answer says how many they are, and why the first three are.
func TestEvents_WhatCannotBeFoldedIsWarnedOf(t *testing.T) {
	d := newStage(t)
	const fine = `{"type":"CUSTOM","name":"a","value":1}` + "\n"
	for name, c := range map[string]struct {
		body  string
		count int64
		want  string // LINE DETAIL of each
	}{
		"snake case": {`{"type":"RUN_STARTED","thread_id":"t","run_id":"r1"}` + "\n" + fine + `{"type":"TEXT_MESSAGE_START","message_id":"m"}` + "\n" +
			`{"type":"TEXT_MESSAGE_END","message_id":"m"}` + "\n" + `{"type":"RUN_FINISHED","thread_id":"t","run_id":"r1"}`, 4,
			"1 RUN_STARTED: runId is missing|3 TEXT_MESSAGE_START: messageId is missing|4 TEXT_MESSAGE_END: messageId is missing"},
		"wrong types": {"\n" + `{"type":"TEXT_MESSAGE_CONTENT","messageId":"m","delta":{"text":"x"}}`, 1,
			"2 TEXT_MESSAGE_CONTENT: delta must be a string, not an object"},
		"a number that no double can hold": {`{"type":"RUN_STARTED","threadId":"t","runId":1e400}`, 1, "1 RUN_STARTED: runId must be a string, not null"},
		"older forms":                      {`{"type":"STATE_DELTA","patch":[]}` + "\n" + `{"type":"THINKING_START"}`, 0, ""},
		"unknown types": {`{"type":"NEVER_HEARD_OF"}` + "\n" + `{"type":"run_started"}`, 2,
			`1 no event of AG-UI has the type "NEVER_HEARD_OF"|2 no event of AG-UI has the type "run_started"`},
		"a large one": {`{"type":"CUSTOM","value":"` + strings.Repeat("x", 3<<10) + `"}`, 1, "1 CUSTOM: name is missing"},
		"an end that is no JSON": {`{"x":NaN,"type":"RUN_FINISHED"}` + "\n" + `{"type":"RUN_ERROR","message":"a`, 2,
			"1 not JSON: unexpected character at byte 6|2 not JSON: the text ends before the value does"},
		"after many other warnings": {strings.Repeat(`{"type":"RUN_STARTED","threadId":"x","runId":"r1"}`+"\n", 20) + `{"type":"STEP_STARTED"}`, 1,
			"21 STEP_STARTED: stepName is missing"},
	} {
		t.Run(name, func(t *testing.T) {
			d := d.in(t, name)
			a := d.do(http.MethodPost, d.path("events"), strings.NewReader(c.body), "Content-Type", typeNDJSON)
			var answer accepted
			if err := json.Unmarshal([]byte(a.body), &answer); err != nil {
				t.Fatal(err)
			}
			var got []string
			for _, w := range answer.Warnings {
				if w.Anomaly == "malformed" || w.Anomaly == "unknown-type" {
					got = append(got, fmt.Sprint(w.Line, " ", w.Detail))
				}
			}
			if a.status != http.StatusOK || answer.Unreadable != c.count || strings.Join(got, "|") != c.want {
				t.Errorf("answer is %d %s, want %d, %q", a.status, a.body, c.count, c.want)
			}
			if n := strings.Count(strings.TrimSpace(c.body), "\n") + 1; len(d.written()) != n {
				t.Errorf("%d events were written, want %d", len(d.written()), n)
			}
		})
	}
}

// Who sends a run again is told how many of its events Skein has, and how many it has otherwise.
func TestEvents_RepeatsAreCounted(t *testing.T) {
	d := newStage(t).in(t, "repeats")
	send := func(from int, events ...string) string {
		var body strings.Builder
		for i, ev := range events {
			fmt.Fprintf(&body, `{"seq":%d,"event":%s}`+"\n", from+i, ev)
		}
		a := d.do(http.MethodPost, d.path("events"), strings.NewReader(body.String()), "Content-Type", typeSequenced)
		var answer accepted
		if err := json.Unmarshal([]byte(a.body), &answer); err != nil || a.status != http.StatusOK {
			t.Fatalf("answer is %s, %v", a.body, err)
		}
		return fmt.Sprintf("%d accepted, %d repeated, %d different", answer.Accepted, answer.Repeated, answer.Different)
	}
	const one, two, end, other = `{"type":"CUSTOM","name":"a","value":1}`, `{"type":"CUSTOM","name":"a","value":2}`,
		`{"type":"RUN_FINISHED","threadId":"t","runId":"r1"}`, `{"type":"RUN_STARTED","threadId":"t","runId":"r1","parentRunId":"p"}`
	input := func(value string) {
		if a := d.do(http.MethodPut, d.path("input"), strings.NewReader(value), "Content-Type", typeJSON); a.status != http.StatusOK {
			t.Fatalf("answer is %s", a.body)
		}
	}
	for i, c := range []struct {
		from   int
		events []string // or an input
		want   string
	}{
		{0, []string{ev1, one}, "2 accepted, 0 repeated, 0 different"},
		{0, []string{ev1, two, one}, "3 accepted, 1 repeated, 1 different"}, // the run is open
		{0, []string{other}, "1 accepted, 0 repeated, 1 different"},
		{4, []string{end}, "1 accepted, 0 repeated, 0 different"},
		{3, []string{two, end}, "2 accepted, 1 repeated, 1 different"},   // a number that was left out comes too late
		{0, []string{other, two}, "2 accepted, 0 repeated, 0 different"}, // another run
		{0, []string{other, one}, "2 accepted, 1 repeated, 1 different"},
		{1 << 40, []string{two}, "1 accepted, 0 repeated, 0 different"},
		{0, []string{other, one}, "2 accepted, 0 repeated, 0 different"}, // no longer remembered
		{-1, []string{input1}, ""},                                       // it begins a run
		{0, []string{other, two, end}, "3 accepted, 0 repeated, 0 different"},
		{0, []string{strings.Replace(other, "{", `{ "input":{},`, 1), two}, "2 accepted, 2 repeated, 0 different"}, // it begins no run
		{-1, []string{input1}, ""},
		{0, []string{other, one, end}, "3 accepted, 2 repeated, 1 different"}, // with the same input
		{-1, []string{input1 + " "}, ""},
		{0, []string{other, two}, "2 accepted, 2 repeated, 0 different"}, // white space around an input does not count
		{-1, []string{strings.Replace(input1, "{", "{ ", 1)}, ""},
		{0, []string{other, one, end}, "3 accepted, 0 repeated, 0 different"},
	} {
		if c.from < 0 {
			input(c.events[0])
			continue
		}
		if got := send(c.from, c.events...); got != c.want {
			t.Errorf("request %d: %s, want %s", i, got, c.want)
		}
	}
	if got := testutil.ToFloat64(d.svc.metrics.repeats.WithLabelValues("different")); got != 5 {
		t.Errorf("%v different events are counted", got)
	}
}

func TestSentRuns_AreBounded(t *testing.T) {
	s := newSentRuns()
	for i := range 3 * mostSums / (2 * sumsOfRun) {
		s.of(runKey{"t", strconv.Itoa(i)})
	}
	if n := len(s.runs) + len(s.past); n > mostSums/sumsOfRun || n < mostSums/sumsOfRun/2 {
		t.Errorf("%d runs are remembered", n)
	}
	s.forget("t")
	if len(s.runs)+len(s.past) > 0 {
		t.Error("an erased thread is remembered")
	}
	for i := range 64 { // runs that are sent again and again
		for j := range i + 1 {
			run := s.of(runKey{"t", strconv.Itoa(j)})
			_, one := run.take(0, agui.Custom, 1)
			_, more := run.take(mostRunSums-1, agui.Custom, 1)
			s.grown(one + more)
		}
	}
	held := map[*sentRun]int{}
	for _, runs := range []map[runKey]*sentRun{s.runs, s.past} {
		for _, run := range runs {
			held[run] = len(run.sums)
		}
	}
	sums := 0
	for _, n := range held {
		sums += n
	}
	if sums > mostSums+mostRunSums || sums < mostSums/4 {
		t.Errorf("%d hashes are held", sums)
	}
	if s.forget(""); len(s.runs)+len(s.past) > 0 {
		t.Error("a run of a topic that is gone is remembered")
	}
}
