package compact_test

import (
	"bufio"
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"testing"

	"github.com/rogpeppe/go-internal/txtar"
	"pgregory.net/rapid"

	"github.com/skeinhq/skein/pkg/agui"
	"github.com/skeinhq/skein/pkg/compact"
	"github.com/skeinhq/skein/test/parts/partstest"
)

// goldenCase is a file of testdata: a comment, start.json (optional), in.jsonl and want.json, which is
// what @ag-ui/client 1.0.0 made of the same. test/conformance runs the same files against the client.
type goldenCase struct {
	name     string
	messages []agui.Message
	state    json.RawMessage
	events   []*agui.Event
	want     json.RawMessage
}

func goldenCases(t testing.TB) []goldenCase {
	t.Helper()
	files, err := filepath.Glob("testdata/*.txtar")
	if err != nil || len(files) == 0 {
		t.Fatalf("no golden files: %v", err)
	}
	var out []goldenCase
	for _, file := range files {
		b, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		c := goldenCase{name: strings.TrimSuffix(filepath.Base(file), ".txtar")}
		for _, f := range txtar.Parse(b).Files {
			switch f.Name {
			case "start.json":
				var start struct {
					Messages []agui.Message
					State    json.RawMessage
				}
				if err := json.Unmarshal(f.Data, &start); err != nil {
					t.Fatalf("%s: %v", file, err)
				}
				c.messages, c.state = start.Messages, start.State
			case "in.jsonl":
				c.events = decodeLines(t, f.Data)
			case "want.json":
				c.want = f.Data
			}
		}
		out = append(out, c)
	}
	return out
}

func decodeLines(t testing.TB, data []byte) []*agui.Event {
	t.Helper()
	var out []*agui.Event
	lines := bufio.NewScanner(bytes.NewReader(data))
	lines.Buffer(nil, 1<<24)
	for lines.Scan() {
		ev, err := agui.Decode(bytes.Clone(lines.Bytes()))
		if err != nil {
			t.Fatalf("%s: %v", lines.Text(), err)
		}
		out = append(out, ev)
	}
	return out
}

func result(t testing.TB, r *compact.Run) json.RawMessage {
	t.Helper()
	b, err := json.Marshal(struct {
		Messages []agui.Message  `json:"messages"`
		State    json.RawMessage `json:"state"`
	}{r.Messages(), r.State()})
	if err != nil {
		t.Fatal(err)
	}
	return b
}

// resume goes on from a fold's checkpoint.
func resume(t testing.TB, r *compact.Run) *compact.Run {
	t.Helper()
	checkpoint, err := r.Checkpoint()
	if err != nil {
		t.Fatal(err)
	}
	if r, err = compact.Resume(r.Messages(), slices.Clone(r.State()), checkpoint); err != nil {
		t.Fatal(err)
	}
	return r
}

func same(t testing.TB, a, b json.RawMessage) bool {
	t.Helper()
	var x, y any
	if err := json.Unmarshal(a, &x); err != nil {
		t.Fatalf("%v in %s", err, a)
	}
	if err := json.Unmarshal(b, &y); err != nil {
		t.Fatalf("%v in %s", err, b)
	}
	return reflect.DeepEqual(x, y)
}

func TestRun_EqualsTheOfficialClient(t *testing.T) {
	for _, c := range goldenCases(t) {
		t.Run(c.name, func(t *testing.T) {
			r := compact.New(c.messages, c.state)
			for _, ev := range c.events {
				if err := r.Apply(ev); err != nil {
					t.Fatalf("%s: %v", ev.Raw, err)
				}
			}
			if got := result(t, r); !same(t, got, c.want) {
				t.Errorf("got  %s\nwant %s", got, c.want)
			}
		})
	}
}

// A fold that is put away at any event and taken up again gives the same bytes, checkpoint included.
func TestRun_ResumesAnywhere(t *testing.T) {
	cases := goldenCases(t)
	rapid.Check(t, func(rt *rapid.T) {
		c := cases[rapid.IntRange(0, len(cases)-1).Draw(rt, "case")]
		whole, pieces := compact.New(c.messages, c.state), compact.New(c.messages, c.state)
		for _, ev := range c.events {
			if err := whole.Apply(ev); err != nil {
				rt.Fatal(err)
			}
			if rapid.Bool().Draw(rt, "checkpoint") {
				cp, err := pieces.Checkpoint()
				if err != nil {
					rt.Fatal(err)
				}
				if pieces, err = compact.Resume(pieces.Messages(), pieces.State(), cp); err != nil {
					rt.Fatal(err)
				}
			}
			if err := pieces.Apply(ev); err != nil {
				rt.Fatal(err)
			}
		}
		a, err := whole.Checkpoint()
		if err != nil {
			rt.Fatal(err)
		}
		b, err := pieces.Checkpoint()
		if err != nil {
			rt.Fatal(err)
		}
		if !bytes.Equal(a, b) {
			rt.Fatalf("%s: checkpoints differ\n%s\n%s", c.name, a, b)
		}
		if x, y := result(t, whole), result(t, pieces); !bytes.Equal(x, y) {
			rt.Fatalf("%s:\n%s\n%s", c.name, x, y)
		}
	})
}

func fold(t *testing.T, lines ...string) (*compact.Run, []error) {
	t.Helper()
	r := compact.New(nil, nil)
	var errs []error
	for _, line := range lines {
		ev, err := agui.Decode([]byte(line))
		if err != nil {
			t.Fatalf("%s: %v", line, err)
		}
		if err := r.Apply(ev); err != nil {
			errs = append(errs, err)
		}
	}
	return r, errs
}

const (
	started  = `{"type":"RUN_STARTED","threadId":"t","runId":"r"}`
	finished = `{"type":"RUN_FINISHED","threadId":"t","runId":"r"}`
)

// A chunk that the client throws on costs itself and nothing else.
func TestRun_ChunksThatCannotBePlaced(t *testing.T) {
	for name, lines := range map[string][]string{
		"no id":                {`{"type":"TEXT_MESSAGE_CHUNK","delta":"x"}`},
		"no id after CUSTOM":   {`{"type":"TEXT_MESSAGE_CHUNK","messageId":"a","delta":"x"}`, `{"type":"CUSTOM","name":"n","value":1}`, `{"type":"TEXT_MESSAGE_CHUNK","delta":"y"}`},
		"no tool name":         {`{"type":"TOOL_CALL_CHUNK","toolCallId":"c"}`},
		"another role":         {`{"type":"TEXT_MESSAGE_CHUNK","messageId":"a","delta":"x"}`, `{"type":"TEXT_MESSAGE_CHUNK","role":"user","delta":"y"}`},
		"another owner":        {`{"type":"TEXT_MESSAGE_CHUNK","messageId":"a","delta":"x"}`, `{"type":"TEXT_MESSAGE_CHUNK","messageId":"a","subagentRunId":"s","delta":"y"}`},
		"two possible streams": {`{"type":"TEXT_MESSAGE_CHUNK","messageId":"a","subagentRunId":"s1"}`, `{"type":"TEXT_MESSAGE_CHUNK","messageId":"b","subagentRunId":"s2"}`, `{"type":"TEXT_MESSAGE_CHUNK","delta":"y"}`},
	} {
		t.Run(name, func(t *testing.T) {
			bad := lines[len(lines)-1]
			with, errs := fold(t, append([]string{started}, lines...)...)
			if len(errs) != 1 || !agui.IsMalformed(errs[0]) {
				t.Fatalf("want one malformed event, got %v", errs)
			}
			without, _ := fold(t, append([]string{started}, lines[:len(lines)-1]...)...)
			a, errA := with.Checkpoint()
			b, errB := without.Checkpoint()
			if errA != nil || errB != nil || !bytes.Equal(a, b) || !bytes.Equal(result(t, with), result(t, without)) {
				t.Errorf("%s changed something:\n%s\n%s", bad, a, b)
			}
		})
	}
}

// A snapshot that names an id puts its message wherever that id stands, and each place is written: a megabyte in
// ten thousand places would be ten gigabytes.
func TestRun_RepeatedIDsFillNoMemory(t *testing.T) {
	const places = 17
	lines := []string{started}
	for range places {
		lines = append(lines, `{"type":"TOOL_CALL_RESULT","messageId":"","toolCallId":"c","content":"x"}`)
	}
	for size, fits := range map[int]bool{10: true, 1<<20 - 100: true, 1<<20 + 100: false} {
		r, errs := fold(t, append(lines, `{"type":"TEXT_MESSAGE_CHUNK","messageId":"m","delta":"x"}`,
			`{"type":"MESSAGES_SNAPSHOT","messages":[{"id":"","role":"tool","toolCallId":"c","content":"`+strings.Repeat("y", size)+`"}]}`,
			`{"type":"TEXT_MESSAGE_CHUNK","delta":"z"}`)...)
		written := strings.Count(string(result(t, r)), `"content":"yy`)
		text := strings.Contains(string(result(t, r)), `"xz"`)
		var malformed *agui.MalformedError
		switch {
		case fits && (written != places || text || len(errs) != 1):
			t.Errorf("%d bytes: written %d times, %v", size, written, errs)
		case !fits && (written != 0 || !text || len(errs) != 1 || !errors.As(errs[0], &malformed) || malformed.Rule != agui.RuleRepeated):
			t.Errorf("%d bytes: written %d times, %v", size, written, errs)
		}
	}
}

// What events copy is bounded for the state and all activities together, at the same event wherever there was a checkpoint.
func TestRun_CopiesFillNoMemory(t *testing.T) {
	partstest.SkipShort(t, "time for tests of scale")
	content := `{"x":"` + strings.Repeat("x", 15<<20) + `"}`
	lines := []string{
		started, `{"type":"STATE_SNAPSHOT","snapshot":` + content + `}`,
		`{"type":"ACTIVITY_SNAPSHOT","messageId":"a","activityType":"t","content":` + content + `}`,
	}
	for n := range 2 { // up to four times 15 MiB fit
		op := fmt.Sprintf(`[{"op":"copy","from":"/x","path":"/b%d"}]`, n)
		lines = append(lines, `{"type":"STATE_DELTA","delta":`+op+`}`,
			`{"type":"ACTIVITY_DELTA","messageId":"a","activityType":"t","patch":`+op+`}`)
	}
	r := straightAndResumed(t, lines...)
	want := map[string]int64{"state-patch-failed": 1, "activity-patch-failed": 1}
	if got := r.Summary().Anomalies; !maps.Equal(got, want) || len(r.State())>>20 != 30 || len(r.Messages()[0].Raw)>>20 != 30 {
		t.Errorf("%v, a state of %d bytes and a message of %d", got, len(r.State()), len(r.Messages()[0].Raw))
	}
}

// What comes for a message in many places shows in all of them, up to a limit; then the first goes on alone. A checkpoint in
// between changes nothing.
func TestRun_GrowthInManyPlacesFillsNoMemory(t *testing.T) {
	const places, delta = 17, 512 << 10
	lines := []string{started}
	for range places {
		lines = append(lines, `{"type":"TOOL_CALL_RESULT","messageId":"","toolCallId":"c","content":"x"}`)
	}
	lines = append(lines, `{"type":"MESSAGES_SNAPSHOT","messages":[{"id":"","role":"user","content":""}]}`)
	for range 3 {
		lines = append(lines, `{"type":"TEXT_MESSAGE_CONTENT","messageId":"","delta":"`+strings.Repeat("z", delta)+`"}`)
	}
	for i, m := range straightAndResumed(t, lines...).Messages() {
		want := 2 * delta
		if i == 0 {
			want = 3 * delta
		}
		if got := strings.Count(string(m.Raw), "z"); got != want {
			t.Errorf("place %d has %d bytes, want %d", i, got, want)
		}
	}
}

// A call that is added to a message in two places is held by both: where an activity takes the first, deltas and results
// find the second.
func TestRun_ACallIsAddedInAllPlacesOfItsMessage(t *testing.T) {
	r := compact.New(nil, nil)
	for _, line := range []string{
		started, `{"type":"MESSAGES_SNAPSHOT","messages":[{"id":"a","role":"assistant"},{"id":"a","role":"assistant"}]}`,
		`{"type":"MESSAGES_SNAPSHOT","messages":[{"id":"a","role":"assistant"}]}`, // one, in both places
		`{"type":"TOOL_CALL_START","toolCallId":"before","toolCallName":"n"}`,     // so that calls are looked for already
		`{"type":"TOOL_CALL_START","toolCallId":"c","toolCallName":"n","parentMessageId":"a"}`,
		`{"type":"ACTIVITY_SNAPSHOT","messageId":"a","activityType":"p","content":{}}`,
		`{"type":"TOOL_CALL_ARGS","toolCallId":"c","delta":"1"}`, `{"type":"TOOL_CALL_RESULT","messageId":"r","toolCallId":"c","content":"y"}`,
	} {
		ev, err := agui.Decode([]byte(line))
		if err != nil {
			t.Fatal(err)
		}
		apply(t, r, []*agui.Event{ev})
	}
	var got []string
	for _, m := range r.Messages() {
		got = append(got, string(m.Raw))
	}
	want := []string{
		`{"id":"a","role":"activity","activityType":"p","content":{}}`,
		`{"id":"a","role":"assistant","toolCalls":[{"id":"c","type":"function","function":{"name":"n","arguments":"1"}}]}`,
		`{"id":"r","toolCallId":"c","role":"tool","content":"y"}`,
		`{"id":"before","role":"assistant","toolCalls":[{"id":"before","type":"function","function":{"name":"n","arguments":""}}]}`,
	}
	if !slices.Equal(got, want) {
		t.Errorf("got  %s\nwant %s", strings.Join(got, "\n     "), strings.Join(want, "\n     "))
	}
}

// An activity in two places has its own calls in each once one was changed, looked at in between or put away.
func TestRun_AnActivityInTwoPlacesSharesNoCalls(t *testing.T) {
	activity := `{"id":"a","role":"activity","activityType":"p","content":{},"toolCalls":[{"id":"c","type":"function","function":{"name":"n","arguments":""}}]}`
	lines := []string{started, `{"type":"MESSAGES_SNAPSHOT","messages":[` + activity + `,` + activity + `]}`,
		`{"type":"MESSAGES_SNAPSHOT","messages":[` + activity + `]}`, // one, in both places
		`{"type":"TOOL_CALL_ARGS","toolCallId":"c","delta":"1"}`,
		`{"type":"ACTIVITY_DELTA","messageId":"a","activityType":"p","patch":[{"op":"add","path":"/x","value":1}]}`,
		`{"type":"TOOL_CALL_ARGS","toolCallId":"c","delta":"2"}`,
		`{"type":"ACTIVITY_SNAPSHOT","messageId":"a","activityType":"p","content":{}}`,
		`{"type":"TOOL_CALL_ARGS","toolCallId":"c","delta":"3"}`}
	for name, between := range map[string]func(*compact.Run) *compact.Run{
		"at once": func(r *compact.Run) *compact.Run { return r }, "put away": func(r *compact.Run) *compact.Run { return resume(t, r) },
		"looked at": func(r *compact.Run) *compact.Run {
			r.Messages()
			return r
		},
	} {
		r := compact.New(nil, nil)
		for _, line := range lines {
			ev, err := agui.Decode([]byte(line))
			if err != nil {
				t.Fatal(err)
			}
			apply(t, r, []*agui.Event{ev})
			r = between(r)
		}
		var got []string
		for _, m := range r.Messages() {
			for call := range agui.Elements(m.Get("toolCalls")) {
				got = append(got, string(agui.Lookup(agui.Lookup(call, "function"), "arguments")))
			}
		}
		if !slices.Equal(got, []string{`"123"`, `"1"`}) {
			t.Errorf("%s: arguments %v", name, got)
		}
	}
}

func TestRun_FoldsNothingAfterTheEnd(t *testing.T) {
	r, errs := fold(t, started, finished, `{"type":"STATE_SNAPSHOT","snapshot":1}`, finished)
	if len(errs) != 2 || string(r.State()) != `{}` || r.Summary().Events["RUN_FINISHED"] != 1 {
		t.Errorf("errors %v, state %s", errs, r.State())
	}
}

func TestRun_ThinkingBecomesReasoning(t *testing.T) {
	r, _ := fold(t, started, `{"type":"THINKING_START","title":"x"}`, `{"type":"THINKING_TEXT_MESSAGE_START"}`,
		`{"type":"THINKING_TEXT_MESSAGE_CONTENT","delta":"hm"}`, `{"type":"THINKING_TEXT_MESSAGE_END"}`, `{"type":"THINKING_END"}`, finished)
	want := `{"messages":[{"id":"thinking-r-2","role":"reasoning","content":"hm"}],"state":{}}`
	if got := result(t, r); !same(t, got, json.RawMessage(want)) {
		t.Errorf("got %s", got)
	}
	if len(r.Summary().Anomalies) != 0 {
		t.Errorf("anomalies %v", r.Summary().Anomalies)
	}
}

func TestRun_StatusAndOpenEnds(t *testing.T) {
	call := `{"type":"TOOL_CALL_START","toolCallId":"c","toolCallName":"n"}`
	for name, row := range map[string]struct {
		lines      []string
		status     string
		pending    []string
		interrupts int
	}{
		"an error before a start": {[]string{`{"type":"RUN_ERROR","message":"m"}`}, compact.StatusError, nil, 0},
		"an empty list of calls":  {[]string{started, call, `{"type":"RUN_FINISHED","threadId":"t","runId":"r","outcome":{"type":"success","pendingToolCallIds":[]}}`}, compact.StatusFinished, []string{"c"}, 0},
		"running":                 {[]string{started}, compact.StatusRunning, nil, 0},
		"finished":                {[]string{started, finished}, compact.StatusFinished, nil, 0},
		"an outcome of tomorrow":  {[]string{started, `{"type":"RUN_FINISHED","threadId":"t","runId":"r","outcome":{"type":"x"}}`}, compact.StatusFinished, nil, 0},
		"a cancelled call":        {[]string{started, call, `{"type":"RUN_FINISHED","threadId":"t","runId":"r","outcome":{"type":"cancelled"}}`}, compact.StatusCancelled, nil, 0},
		"error":                   {[]string{started, call, `{"type":"RUN_ERROR","message":"m"}`}, compact.StatusError, []string{"c"}, 0},
		"cancelled":               {[]string{started, `{"type":"RUN_FINISHED","threadId":"t","runId":"r","outcome":{"type":"cancelled"}}`}, compact.StatusCancelled, nil, 0},
		"interrupted": {[]string{started, `{"type":"RUN_FINISHED","threadId":"t","runId":"r","outcome":{"type":"interrupt","interrupts":[{"id":"i","reason":"r"}]}}`},
			compact.StatusInterrupted, nil, 1},
		"an interrupt given twice": {[]string{started, `{"type":"RUN_FINISHED","threadId":"t","runId":"r","outcome":{"type":"interrupt","interrupts":[{"id":"i","reason":"r"},{"id":"j","reason":"r"},{"id":"\u0069","reason":"s"}]}}`},
			compact.StatusInterrupted, nil, 2},
		"a call left open":    {[]string{started, call, finished}, compact.StatusFinished, []string{"c"}, 0},
		"a call answered":     {[]string{started, call, `{"type":"TOOL_CALL_RESULT","messageId":"m","toolCallId":"c","content":""}`, finished}, compact.StatusFinished, nil, 0},
		"calls that it names": {[]string{started, call, `{"type":"RUN_FINISHED","threadId":"t","runId":"r","outcome":{"type":"success","pendingToolCallIds":["d"]}}`}, compact.StatusFinished, []string{"d"}, 0},
	} {
		t.Run(name, func(t *testing.T) {
			r, errs := fold(t, row.lines...)
			s := r.Summary()
			if len(errs) > 0 || s.Status != row.status || !slices.Equal(s.PendingToolCalls, row.pending) || len(s.Interrupts) != row.interrupts {
				t.Errorf("got %s, pending %v, %d interrupts, %v", s.Status, s.PendingToolCalls, len(s.Interrupts), errs)
			}
		})
	}
}

func TestRun_CountsBrokenRules(t *testing.T) {
	const text = `{"type":"TEXT_MESSAGE_START","messageId":"a"}`
	for rule, lines := range map[string][]string{
		"first-event-not-run-started": {text},
		"run-started-twice":           {started, started},
		"text-start-while-open":       {started, text, text},
		"text-content-not-open":       {started, `{"type":"TEXT_MESSAGE_CONTENT","messageId":"a","delta":""}`},
		"text-end-not-open":           {started, `{"type":"TEXT_MESSAGE_END","messageId":"a"}`},
		"tool-start-while-open":       {started, `{"type":"TOOL_CALL_START","toolCallId":"a","toolCallName":""}`, `{"type":"TOOL_CALL_START","toolCallId":"a","toolCallName":""}`},
		"tool-content-not-open":       {started, `{"type":"TOOL_CALL_ARGS","toolCallId":"a","delta":""}`},
		"tool-end-not-open":           {started, `{"type":"TOOL_CALL_END","toolCallId":"a"}`},
		"reasoning-content-not-open":  {started, `{"type":"REASONING_MESSAGE_CONTENT","messageId":"a","delta":""}`},
		"reasoning-span-end-not-open": {started, `{"type":"REASONING_END","messageId":"a"}`},
		"step-start-while-open":       {started, `{"type":"STEP_STARTED","stepName":"s"}`, `{"type":"STEP_STARTED","stepName":"s"}`},
		"step-end-not-open":           {started, `{"type":"STEP_FINISHED","stepName":"s"}`},
		"open-at-end-text":            {started, text, finished},
		"open-at-end-step":            {started, `{"type":"STEP_STARTED","stepName":"s"}`, finished},
		"open-at-end-subagent":        {started, `{"type":"SUBAGENT_STARTED","subagentRunId":"s","name":"n"}`, finished},
		"subagent-end-not-open":       {started, `{"type":"SUBAGENT_FINISHED","subagentRunId":"s"}`},
		"subagent-parent-unknown":     {started, `{"type":"SUBAGENT_STARTED","subagentRunId":"s","name":"n","parentSubagentRunId":"p"}`},
		"subagent-mismatch":           {started, text, `{"type":"TEXT_MESSAGE_CONTENT","messageId":"a","delta":"","subagentRunId":"s"}`},
		"text-on-activity":            {started, `{"type":"FROM_THE_FUTURE"}`, `{"type":"ACTIVITY_SNAPSHOT","messageId":"a","activityType":"t","content":{}}`, text},
		"state-patch-failed":          {started, `{"type":"STATE_DELTA","delta":[{"op":"remove","path":"/a"}]}`},
		"activity-patch-failed": {started, `{"type":"ACTIVITY_SNAPSHOT","messageId":"a","activityType":"t","content":{}}`,
			`{"type":"ACTIVITY_DELTA","messageId":"a","activityType":"t","patch":[{"op":"replace","path":"","value":[]}]}`},
		"interrupt-repeated": {started, `{"type":"RUN_FINISHED","threadId":"t","runId":"r","outcome":{"type":"interrupt","interrupts":[{"id":"i","reason":"r"},{"id":"i","reason":"r"}]}}`},
		"reasoning-role":     {started, `{"type":"REASONING_MESSAGE_START","messageId":"a","role":"assistant"}`, `{"type":"REASONING_MESSAGE_START","messageId":"b","role":"\u0072easoning"}`},
		"protocol-version":   {`{"type":"RUN_STARTED","threadId":"t","runId":"r","protocolVersion":"1.2"}`},
		"activity-unknown":   {started, `{"type":"ACTIVITY_DELTA","messageId":"a","activityType":"t","patch":[]}`},
	} {
		t.Run(rule, func(t *testing.T) {
			r, _ := fold(t, lines...)
			if got := r.Summary().Anomalies; got[rule] != 1 {
				t.Errorf("want it once, got %v", got)
			}
		})
	}
}

// Who owns what is told by presence: the parent agent is no subagent, not even one named "".
func TestRun_CountsWhoSpeaksForAnother(t *testing.T) {
	const call = `{"type":"TOOL_CALL_START","toolCallId":"c","toolCallName":"n"`
	for name, lines := range map[string][]string{
		"a subagent without a name on the parent agent's message": {`{"type":"TEXT_MESSAGE_START","messageId":"a"}`, `{"type":"TEXT_MESSAGE_END","messageId":"a","subagentRunId":""}`},
		"a call within another's message":                         {`{"type":"TEXT_MESSAGE_START","messageId":"a","subagentRunId":"s"}`, call + `,"parentMessageId":"a","subagentRunId":"s2"}`},
		"a subagent's call again, within the parent agent's message": {`{"type":"TEXT_MESSAGE_START","messageId":"a"}`, call + `,"subagentRunId":"s"}`,
			`{"type":"TOOL_CALL_END","toolCallId":"c"}`, call + `,"parentMessageId":"a"}`},
	} {
		t.Run(name, func(t *testing.T) {
			r, _ := fold(t, append([]string{started}, lines...)...)
			if got := r.Summary().Anomalies; got["subagent-mismatch"] != 1 {
				t.Errorf("want a mismatch, got %v", got)
			}
		})
	}
}

// The client drops what it does not know before it verifies: such events may come before the first.
func TestRun_UnknownTypesDoNotBegin(t *testing.T) {
	r, _ := fold(t, `{"type":"FROM_THE_FUTURE"}`, started, finished)
	if got := r.Summary().Anomalies; len(got) != 0 {
		t.Errorf("counted %v", got)
	}
}

// The client takes members that the protocol does not describe out before it verifies: a chunk that has no others is none
// to it, whoever has taken over the message since, and whoever has ended it.
func TestRun_ChunksOfUnknownMembersAreNotVerified(t *testing.T) {
	for name, lines := range map[string][]string{
		"another's message": {`{"type":"TEXT_MESSAGE_CHUNK","messageId":"a","subagentRunId":"s"}`, `{"type":"TOOL_CALL_RESULT","messageId":"a","toolCallId":"c","content":""}`, `{"type":"TEXT_MESSAGE_CHUNK","vendorField":1}`},
		"an ended message":  {`{"type":"TEXT_MESSAGE_CHUNK","messageId":"a","subagentRunId":"s"}`, `{"type":"TEXT_MESSAGE_END","messageId":"a"}`, `{"type":"TEXT_MESSAGE_CHUNK","vendorField":1}`},
		"an ended call":     {`{"type":"TOOL_CALL_CHUNK","toolCallId":"a","toolCallName":"n","subagentRunId":"s"}`, `{"type":"TOOL_CALL_END","toolCallId":"a"}`, `{"type":"TOOL_CALL_CHUNK","vendorField":1}`},
	} {
		t.Run(name, func(t *testing.T) {
			r, _ := fold(t, append([]string{started}, lines...)...)
			if got := r.Summary().Anomalies; len(got) != 0 {
				t.Errorf("counted %v", got)
			}
			for _, own := range []string{`"metadata":{}`, `"rawEvent":1`, `"delta":""`} {
				carries := strings.Replace(lines[2], `"vendorField":1`, own, 1)
				r, _ := fold(t, started, lines[0], lines[1], carries)
				if got := r.Summary().Anomalies; len(got) != 1 {
					t.Errorf("%s: want one rule, got %v", carries, got)
				}
			}
		})
	}
}

func TestRun_Statistics(t *testing.T) {
	r, _ := fold(t, `{"type":"RUN_STARTED","threadId":"t","runId":"r","timestamp":1795250040000,"input":{"messages":[{"id":"u","role":"user","content":"x"}]}}`,
		`{"type":"TEXT_MESSAGE_CHUNK","messageId":"a","delta":"","timestamp":1795250040100}`, `{"type":"TEXT_MESSAGE_CHUNK","delta":"x","timestamp":1795250040250}`,
		`{"type":"TOOL_CALL_CHUNK","toolCallId":"c","toolCallName":"look"}`, `{"type":"CUSTOM","name":"n","value":1}`, `{"type":"META","x":1}`, `{"type":"RAW","event":1}`,
		`{"type":"RUN_FINISHED","threadId":"t","runId":"r","timestamp":1795250042000}`)
	s := r.Summary()
	if s.ToolCalls["look"] != 1 || s.Events["TEXT_MESSAGE_CHUNK"] != 2 {
		t.Errorf("got %+v", s)
	}
	if len(s.Kept) != 2 || string(s.Kept[1]) != `{"type":"META","x":1}` {
		t.Errorf("kept %s", s.Kept)
	}
	if string(s.Started) != `{"type":"RUN_STARTED","threadId":"t","runId":"r","timestamp":1795250040000}` {
		t.Errorf("started %s", s.Started)
	}
}

// straightAndResumed folds events at once, and with a checkpoint behind each of them; both have to be the same.
func straightAndResumed(t *testing.T, lines ...string) *compact.Run {
	t.Helper()
	straight, resumed := compact.New(nil, nil), compact.New(nil, nil)
	for _, line := range lines {
		ev, err := agui.Decode([]byte(line))
		if err != nil {
			t.Fatal(err)
		}
		apply(t, straight, []*agui.Event{ev})
		apply(t, resumed, []*agui.Event{ev})
		resumed = resume(t, resumed)
	}
	if a, b := result(t, straight), result(t, resumed); !bytes.Equal(a, b) {
		t.Errorf("at once\n%.300s\nwith checkpoints\n%.300s", a, b)
	}
	return straight
}

// How deep a document is may be asked for in the middle of a patch that fails then.
func TestRun_AFailedPatchLeavesNoDepthBehind(t *testing.T) {
	deep := strings.Repeat("[", 505) + strings.Repeat("]", 505)
	move := `{"op":"move","from":"/v","path":"/o/o/o/o/o/o/o/v"}`
	r := straightAndResumed(t, started,
		`{"type":"STATE_SNAPSHOT","snapshot":{"v":{"d":`+deep+`},"o":{"o":{"o":{"o":{"o":{"o":{"o":{}}}}}}}}}`,
		`{"type":"STATE_DELTA","delta":[{"op":"remove","path":"/v/d"},`+move+`,{"op":"test","path":"/x","value":1}]}`,
		`{"type":"STATE_DELTA","delta":[`+move+`]}`)
	if err := agui.Check(r.State()); err != nil {
		t.Errorf("the state cannot be read: %v", err)
	}
	if n := r.Summary().Anomalies["state-patch-failed"]; n != 2 {
		t.Errorf("%d patches have failed, want both", n)
	}
}

// The end of a lane comes from an event that is another one's.
func TestRun_TheEndOfALaneBringsNothing(t *testing.T) {
	m := `{"id":"a","role":"user","content":"x"}`
	lines := []string{started, `{"type":"MESSAGES_SNAPSHOT","messages":[` + m + `,` + m + `]}`, `{"type":"MESSAGES_SNAPSHOT","messages":[` + m + `]}`}
	large := `{"type":"STATE_SNAPSHOT","snapshot":"` + strings.Repeat("s", 6<<20) + `"}`
	for range 3 {
		lines = append(lines, `{"type":"TEXT_MESSAGE_CHUNK","messageId":"a","role":"assistant","delta":"z"}`, large)
	}
	r := straightAndResumed(t, append(lines, `{"type":"TEXT_MESSAGE_CONTENT","messageId":"a","delta":"END"}`)...)
	for i, m := range r.Messages() {
		if got := string(m.Get("content")); got != `"xzzzEND"` {
			t.Errorf("place %d has %s", i, got)
		}
	}
}

// What a record keeps of a run has no number that no reader can hold, as what it folds.
func TestRun_KeepsNoNumberBeyondDoubles(t *testing.T) {
	r := straightAndResumed(t, `{"type":"RUN_STARTED","threadId":"t","runId":"r","metadata":{"n":1e400}}`,
		`{"type":"CUSTOM","name":"n","value":1e400}`, `{"type":"RUN_FINISHED","threadId":"t","runId":"r","result":[-1e400]}`)
	s := r.Summary()
	for got, want := range map[string]string{
		string(s.Started):  `{"type":"RUN_STARTED","threadId":"t","runId":"r","metadata":{"n":null}}`,
		string(s.Kept[0]):  `{"type":"CUSTOM","name":"n","value":null}`,
		string(s.Terminal): `{"type":"RUN_FINISHED","threadId":"t","runId":"r","result":[null]}`,
	} {
		if got != want {
			t.Errorf("got %s, want %s", got, want)
		}
	}
}

// A fold that goes on without keeping events has none of the checkpoint's either.
func TestRun_KeepsNothingWhereItIsNotWanted(t *testing.T) {
	run := compact.New(nil, nil)
	apply(t, run, decodeLines(t, []byte(`{"type":"RUN_STARTED","threadId":"t","runId":"r"}
{"type":"CUSTOM","name":"n","value":1}
`)))
	checkpoint, err := run.Checkpoint()
	if err != nil {
		t.Fatal(err)
	}
	for _, families := range []agui.Families{0, agui.NoFamilies} {
		again, err := compact.Resume(run.Messages(), run.State(), checkpoint)
		if err != nil {
			t.Fatal(err)
		}
		again.Keep(families)
		apply(t, again, decodeLines(t, []byte(`{"type":"CUSTOM","name":"n","value":2}`)))
		want := 2
		if families == agui.NoFamilies {
			want = 0
		}
		if kept := again.Summary().Kept; len(kept) != want {
			t.Errorf("with %s it keeps %s, want %d events", families, kept, want)
		}
	}
}

// An activity has replaced the message of a call that chunks still continue. A client that joins holds what the others hold, and makes no
// second message for the call.
func TestPrelude_OfACallWhoseMessageIsAnActivity(t *testing.T) {
	for name, opener := range map[string]string{
		"its own message": `{"type":"TOOL_CALL_CHUNK","toolCallId":"m1","toolCallName":"look"}`,
		"its parent":      `{"type":"TOOL_CALL_CHUNK","toolCallId":"c","toolCallName":"look","parentMessageId":"m1","subagentRunId":"s"}`,
	} {
		events := []string{started, `{"type":"SUBAGENT_STARTED","subagentRunId":"s","name":"n"}`, opener,
			`{"type":"ACTIVITY_SNAPSHOT","messageId":"m1","activityType":"plan","content":{"l":[]},"metadata":{"k":1}}`}
		rest := []string{`{"type":"TEXT_MESSAGE_CHUNK","messageId":"m0","delta":"x"}`, `{"type":"SUBAGENT_FINISHED","subagentRunId":"s"}`, finished}
		at, _ := fold(t, events...)
		whole, _ := fold(t, slices.Concat(events, rest)...)
		var joining []string
		for _, e := range at.Prelude() {
			joining = append(joining, string(e))
		}
		joined, errs := fold(t, slices.Concat(joining, rest)...)
		if got, want := joined.Messages(), whole.Messages(); len(errs) > 0 || len(want) != 2 || !reflect.DeepEqual(got, want) {
			t.Errorf("%s: %v\n%s, want\n%s", name, errs, got, want)
		}
	}
}
