package ingest

import (
	"bufio"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/skeinhq/skein/pkg/kafka/kafkatest"
)

// answerLine is ackLine as a caller reads it.
type answerLine struct {
	Acknowledged, Done, Failed *struct {
		answer
		Refused int64 `json:"refused"`
		Status  int   `json:"status"`
	}
	Refused *refusal
}

// said is what a line says, in short.
func (l answerLine) said() string {
	switch {
	case l.Acknowledged != nil:
		return fmt.Sprintf("acknowledged to line %d, %d events", l.Acknowledged.Line, l.Acknowledged.Accepted)
	case l.Refused != nil:
		return fmt.Sprintf("refused line %d: %s", l.Refused.Line, l.Refused.Reason)
	case l.Done != nil:
		return fmt.Sprintf("done: %d events, %d refused", l.Done.Accepted, l.Done.Refused)
	case l.Failed != nil:
		return fmt.Sprintf("failed: %d %s at line %d, %d events", l.Failed.Status, l.Failed.Reason, l.Failed.Line, l.Failed.Accepted)
	}
	return "nothing"
}

// talk is a request whose answer comes while it is sent.
type talk struct {
	t    *testing.T
	body *io.PipeWriter
	resp *http.Response
	r    *bufio.Reader
}

func (d *stage) talk(t *testing.T, contentType string) *talk {
	t.Helper()
	rd, wr := io.Pipe()
	req, err := http.NewRequestWithContext(t.Context(), http.MethodPost, d.srv.URL+d.path("events"), rd)
	if err != nil {
		t.Fatal(err)
	}
	req.Header.Set("Content-Type", contentType)
	req.Header.Set("Accept", "application/problem+json, application/x-ndjson;q=0.5")
	resp, err := d.client.Do(req)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = wr.Close(); _ = resp.Body.Close() })
	if resp.StatusCode != http.StatusOK || resp.Header.Get("Content-Type") != typeNDJSON || resp.Header.Get("X-Accel-Buffering") != "no" ||
		resp.Header.Get("Cache-Control") != "no-store" {
		t.Fatalf("answer is %d with %v", resp.StatusCode, resp.Header)
	}
	return &talk{t: t, body: wr, resp: resp, r: bufio.NewReader(resp.Body)}
}

func (k *talk) say(text string) {
	k.t.Helper()
	if _, err := io.WriteString(k.body, text); err != nil {
		k.t.Fatal(err)
	}
}

// hear is the next line.
func (k *talk) hear() answerLine {
	k.t.Helper()
	text, err := k.r.ReadBytes('\n')
	if err != nil {
		k.t.Fatalf("reading the answer: %v", err)
	}
	var l answerLine
	if err := json.Unmarshal(text, &l); err != nil {
		k.t.Fatalf("%s: %v", text, err)
	}
	return l
}

func (k *talk) wants(lines ...string) {
	k.t.Helper()
	for _, want := range lines {
		if got := k.hear().said(); got != want {
			k.t.Fatalf("the answer says %q, want %q", got, want)
		}
	}
}

// ends wants the last line, and nothing behind it.
func (k *talk) ends(want string) {
	k.t.Helper()
	k.wants(want)
	if rest, err := io.ReadAll(k.r); err != nil || len(rest) > 0 {
		k.t.Errorf("behind the last line there is %q, %v", rest, err)
	}
}

func TestAcks_ComeWhileTheCallerSends(t *testing.T) {
	d := newStage(t)
	k := d.talk(t, typeNDJSON)
	k.say(ev1 + "\n")
	k.wants("acknowledged to line 1, 1 events")
	k.say("{\n")
	k.wants("refused line 2: not-json")
	k.say(ev2 + "\n" + ev3) // the last without a line feed
	k.wants("acknowledged to line 3, 2 events")
	if err := k.body.Close(); err != nil {
		t.Fatal(err)
	}
	k.wants("acknowledged to line 4, 3 events")
	k.ends("done: 3 events, 1 refused")
	if got := d.written(); !slices.Equal(got, []string{ev1, ev2, ev3}) {
		t.Errorf("written is %q", got)
	}
}

// Of an array all events may stand on one line: then their number says how far it is.
func TestAcks_EventsOfOneLineAreToldOneByOne(t *testing.T) {
	k := newStage(t).talk(t, typeJSON)
	k.say("[" + ev1)
	k.wants("acknowledged to line 1, 1 events")
	k.say("," + ev2)
	k.wants("acknowledged to line 1, 2 events")
	k.say("]")
	if err := k.body.Close(); err != nil {
		t.Fatal(err)
	}
	k.ends("done: 2 events, 0 refused")
}

func TestAcks_ABadLineCostsOnlyItself(t *testing.T) {
	shared := newStage(t)
	large := `{"type":"X","x":"` + strings.Repeat("x", shared.svc.cfg.MaxEventBytes) + `"}`
	huge := `{"type":"X","x":"` + strings.Repeat("x", 5*readBuffer) + `"}`
	seq := func(n int, ev string) string { return fmt.Sprintf(`{"seq":%d,"event":%s}`, n, ev) }
	for name, tc := range map[string]struct{ contentType, body, want string }{
		"no JSON":             {typeNDJSON, ev1 + "\nno\n" + ev2, "refused line 2: not-json"},
		"no object":           {typeNDJSON, ev1 + "\n7\n" + ev2, "refused line 2: not-an-object"},
		"no type":             {typeNDJSON, ev1 + "\n{}\n" + ev2, "refused line 2: no-type"},
		"too large":           {typeNDJSON, ev1 + "\n" + large + "\n" + ev2, "refused line 2: too-large"},
		"larger than all":     {typeNDJSON, ev1 + "\n" + huge + "\n" + ev2, "refused line 2: too-large"},
		"the first is bad":    {typeNDJSON, "\n" + huge + "\n" + ev1 + "\n" + ev2 + "\n", "refused line 2: too-large"},
		"the last is bad":     {typeNDJSON, ev1 + "\n" + ev2 + "\n" + huge, "refused line 3: too-large"},
		"numbered, none":      {typeSequenced, seq(0, ev1) + "\n{}\n" + seq(2, ev2), "refused line 2: no-seq"},
		"numbered, back":      {typeSequenced, seq(3, ev1) + "\n" + seq(2, ev3) + "\n" + seq(4, ev2), "refused line 2: seq-order"},
		"numbered, no event":  {typeSequenced, seq(0, ev1) + "\n{\"seq\":1}\n" + seq(2, ev2), "refused line 2: not-an-object"},
		"numbered, bad event": {typeSequenced, seq(0, ev1) + "\n" + seq(1, "{}") + "\n" + seq(2, ev2), "refused line 2: no-type"},
		"numbered, no JSON":   {typeSequenced, seq(0, ev1) + "\n{\"seq\n" + seq(2, ev2), "refused line 2: not-json"},
		"numbered, too large": {typeSequenced, seq(0, ev1) + "\n" + seq(1, huge) + "\n" + seq(2, ev2), "refused line 2: too-large"},
		"SSE, no JSON":        {typeSSE, "data: " + ev1 + "\n\ndata: {\n\ndata: " + ev2 + "\n\n", "refused line 3: not-json"},
		"SSE, done":           {typeSSE, "data: " + ev1 + "\n\ndata: [DONE]\n\ndata: " + ev2 + "\n\n", "refused line 3: done-marker"},
		"SSE, too large": {typeSSE, "data: " + ev1 + "\n\ndata: {\ndata: " + huge + "\ndata: }\n\ndata: " + ev2,
			"refused line 3: too-large"},
		"SSE, many lines": {typeSSE, "data: " + ev1 + "\n\n" + strings.Repeat("data: "+strings.Repeat(" ", 999)+"\n", 9) + "\ndata: " + ev2,
			"refused line 3: too-large"},
		"an array": {typeJSON, "[" + ev1 + ",\n{},\n" + ev2 + "]", "refused line 2: no-type"},
	} {
		t.Run(name, func(t *testing.T) {
			d := shared.in(t, name)
			k := d.talk(t, tc.contentType)
			go func() { _, _ = io.WriteString(k.body, tc.body); _ = k.body.Close() }()
			var said []string
			for {
				l := k.hear()
				if l.Acknowledged == nil {
					said = append(said, l.said())
				}
				if l.Done != nil || l.Failed != nil {
					break
				}
			}
			if want := []string{tc.want, "done: 2 events, 1 refused"}; !slices.Equal(said, want) {
				t.Errorf("the answer says %q, want %q", said, want)
			}
			if got := d.written(); !slices.Equal(got, []string{ev1, ev2}) {
				t.Errorf("written is %.200q", got)
			}
		})
	}
}

func TestAcks_WhatCannotBeReadOnEndsTheStream(t *testing.T) {
	shared := newStage(t)
	for name, tc := range map[string]struct{ contentType, body, want string }{
		"a broken array":  {typeJSON, "[" + ev1 + "\n" + ev2 + "]", "failed: 400 not-json at line 2, 1 events"},
		"a large element": {typeJSON, "[" + ev1 + `,{"x":"` + strings.Repeat("x", 5000) + `"}]`, "failed: 413 too-large at line 1, 1 events"},
		"no array":        {typeJSON, ev1, "failed: 400 not-an-array at line 1, 0 events"},
	} {
		t.Run(name, func(t *testing.T) {
			k := shared.in(t, name).talk(t, tc.contentType)
			k.say(tc.body)
			l := k.hear()
			for l.Acknowledged != nil {
				l = k.hear()
			}
			if got := l.said(); got != tc.want {
				t.Errorf("the answer says %q, want %q", got, tc.want)
			}
		})
	}
	t.Run("a body that is cut", func(t *testing.T) {
		d := shared.in(t, t.Name())
		k := d.talk(t, typeNDJSON)
		k.say(ev1 + "\n")
		k.wants("acknowledged to line 1, 1 events")
		_ = k.body.CloseWithError(io.ErrUnexpectedEOF)
		d.eventually("nothing hangs, and what was acknowledged stays", func() bool { return len(d.written()) == 1 })
	})
}

func TestAcks_BeforeTheFirstEventErrorsAreProblems(t *testing.T) {
	d := newStage(t)
	for path, contentType := range map[string]string{d.path("events"): "text/plain", "/v1/threads/%ff/runs/r/events": typeNDJSON} {
		if a := d.do(http.MethodPost, path, strings.NewReader(ev1), "Content-Type", contentType, "Accept", typeNDJSON); a.status/100 != 4 {
			t.Errorf("%s: answer is %d", path, a.status)
		}
	}
}

func TestAcks_SayWhatKafkaHasWhenItGoesAway(t *testing.T) {
	t.Parallel()
	c := kafkatest.StartCluster(t, 1)
	d := impatient(t, c)
	k := d.talk(t, typeNDJSON)
	k.say(ev1 + "\n" + ev2 + "\n")
	for k.hear().Acknowledged.Accepted < 2 {
	}
	c.Stop()
	k.say(ev3 + "\n")
	k.ends("failed: 503 unavailable at line 0, 2 events")
}

// TestAcks_AreToldAgain is for what stands between: it cuts connections on which nothing comes.
func TestAcks_AreToldAgain(t *testing.T) {
	cfg := testConfig(kafkatest.Start(t, 3))
	cfg.Heartbeat = 50 * time.Millisecond
	k := open(t, cfg).talk(t, typeNDJSON)
	k.wants("acknowledged to line 0, 0 events", "acknowledged to line 0, 0 events")
	k.say(ev1 + "\n")
	for k.hear().Acknowledged.Accepted == 0 {
	}
	k.wants("acknowledged to line 1, 1 events", "acknowledged to line 1, 1 events")
}

func TestAcks_ACallerThatDoesNotReadIsEnded(t *testing.T) {
	t.Parallel()
	d := newStage(t)
	d.svc.front.Stall = 500 * time.Millisecond
	k := d.talk(t, typeNDJSON)
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		for bad := strings.Repeat("{\n", 10_000); ; {
			if _, err := io.WriteString(k.body, bad); err != nil {
				return
			}
		}
	}()
	select {
	case <-ended:
	case <-time.After(kafkatest.Timeout):
		t.Fatal("ingest reads on without end")
	}
}

func TestWantsAcks(t *testing.T) {
	for accept, want := range map[string]bool{
		"": false, "*/*": false, "application/json": false, "application/x-ndjson": true, "Application/X-NDJSON ; q=0.9": true,
		"application/problem+json,application/x-ndjson": true, "application/x-ndjson;q=0": false, "application/x-ndjson;q=0.000": false,
		"text/;": false,
	} {
		if got := wantsAcks(&http.Request{Header: http.Header{"Accept": {accept}}}); got != want {
			t.Errorf("%q: %v, want %v", accept, got, want)
		}
	}
}
