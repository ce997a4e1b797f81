package ingest

import (
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"strings"
	"testing"
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
		"no more than 16":    {http.MethodPost, "events", strings.Repeat(`{"type":"RUN_STARTED","threadId":"x","runId":"r1"}`+"\n", 20), "16"},
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
			if c.want == "16" && len(got) == mostWarnings {
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
	if err := k.body.Close(); err != nil {
		t.Fatal(err)
	}
	text, err := k.r.ReadString('\n')
	var last struct{ Done struct{ Warnings []warning } }
	if err := errors.Join(err, json.Unmarshal([]byte(text), &last)); err != nil || len(last.Done.Warnings) != 1 ||
		last.Done.Warnings[0].Anomaly != "thread-mismatch" {
		t.Errorf("the last line is %s, %v", text, err)
	}
}
