package conformance_test

import (
	"encoding/json"
	"flag"
	"fmt"
	"os"
	"regexp"
	"slices"
	"strings"
	"testing"

	"pgregory.net/rapid"

	"github.com/skeinhq/skein/internal/seedtest"
	"github.com/skeinhq/skein/pkg/agui"
	"github.com/skeinhq/skein/pkg/compact"
	"github.com/skeinhq/skein/pkg/fold"
	"github.com/skeinhq/skein/pkg/lineage"
	"github.com/skeinhq/skein/test/conformance"
)

var streamsFile = flag.String("streams", "", "write the generated streams to this file, as jobs of reduce.mjs")

var verificationRules = compact.VerificationRules()

func countOf(anomalies map[string]int64, rules []string) []int64 {
	counts := make([]int64, len(rules))
	for i, rule := range rules {
		counts[i] = anomalies[rule]
	}
	return counts
}

// cut returns the events up to the first terminal one: what comes after it is none of the run, also where the schema
// refuses that one.
func cut(events []json.RawMessage) []json.RawMessage {
	for i, raw := range events {
		if ev, _ := fold.Decode(raw); ev != nil && ev.Type.Terminal() {
			return events[:i+1]
		}
	}
	return events
}

// TestGenerated_EqualsTheOfficialClient folds generated threads, whole and spoiled, with Skein and
// with the official client. TestMain says how many; a failure is shrunk, prints its seed and is written to files.
func TestGenerated_EqualsTheOfficialClient(t *testing.T) {
	client := conformance.Need(t)
	jobs := json.NewEncoder(streamsWriter(t))
	writesFailedCase(t)
	rapid.Check(t, func(rt *rapid.T) {
		report.threads++
		g, c := gen{t: rt}, comparison{rt, client}
		its := conformance.Start{Messages: encode(g.sound().messages(4)), State: encode(g.state())}
		have, its := c.start(lineage.History{}, its, its)
		runs := 1
		switch {
		case g.chance(10):
			runs = 3 + g.n(3)
		case g.chance(12):
			runs = 2
		}
		var chain []folded
		var sent []json.RawMessage // of all runs so far
		for run := range runs {
			s := g.drawStream(fmt.Sprint("r", run), have)
			r := c.run(fmt.Sprint("run ", run), have, its, s.events)
			chain, sent = append(chain, r.got), append(sent, r.events...)
			if err := jobs.Encode(conformance.Job{Start: its, Events: r.events, Upgrade: true, Schema: true, Skip: true, Verify: true}); err != nil {
				rt.Fatal(err)
			}
			report.stream(s, r)
			if run < runs-1 {
				called, held := g.nextInput(run, r)
				have, its = c.start(lineage.History{Messages: r.got.run.Messages(), State: r.got.State}, called, held)
			}
		}
		c.playsBack(chain, sent)
	})
	report.check(t)
}

// The retired THINKING_* events carry no ids; the client makes up random ones, so they are not among the
// generated ones. All short streams of them are held against it here, with owners, opened or not.
func TestThinking_EqualsTheOfficialClient(t *testing.T) {
	shortStreams(t,
		`{"type":"THINKING_START","title":"t"}`, `{"type":"THINKING_END"}`,
		`{"type":"THINKING_TEXT_MESSAGE_START","subagentRunId":"s"}`, `{"type":"THINKING_TEXT_MESSAGE_START","metadata":{"a":1}}`,
		`{"type":"THINKING_TEXT_MESSAGE_CONTENT","delta":"x"}`, `{"type":"THINKING_TEXT_MESSAGE_CONTENT","delta":"y","subagentRunId":"s"}`,
		`{"type":"THINKING_TEXT_MESSAGE_END"}`, `{"type":"TEXT_MESSAGE_CHUNK","messageId":"m","subagentRunId":"s","delta":"z"}`,
		`{"type":"TEXT_MESSAGE_CHUNK","subagentRunId":"s","delta":"z"}`,
	)
}

// What chunks without an id go on with may have been ended, or taken over by another, in the meantime. Chance seldom draws
// that together with a chunk that carries next to nothing.
func TestChunks_EqualTheOfficialClient(t *testing.T) {
	shortStreams(t,
		`{"type":"TEXT_MESSAGE_CHUNK","messageId":"m","subagentRunId":"s"}`, `{"type":"TOOL_CALL_CHUNK","toolCallId":"m","toolCallName":"n","subagentRunId":"s"}`,
		`{"type":"TEXT_MESSAGE_END","messageId":"m"}`, `{"type":"TOOL_CALL_END","toolCallId":"m"}`,
		`{"type":"TOOL_CALL_RESULT","messageId":"m","toolCallId":"m","content":[]}`,
		`{"type":"TOOL_CALL_START","toolCallId":"m","toolCallName":"n"}`,
		`{"type":"TEXT_MESSAGE_CHUNK"}`, `{"type":"TOOL_CALL_CHUNK"}`,
		`{"type":"TEXT_MESSAGE_CHUNK","unknown":1}`, `{"type":"TOOL_CALL_CHUNK","messageId":"of another type"}`,
		`{"type":"TEXT_MESSAGE_CHUNK","metadata":{}}`, `{"type":"TOOL_CALL_CHUNK","metadata":{}}`,
		`{"type":"TEXT_MESSAGE_CHUNK","rawEvent":1}`, `{"type":"TOOL_CALL_CHUNK","delta":"x"}`,
		`{"type":"REASONING_MESSAGE_CHUNK","messageId":"m","subagentRunId":"s"}`, `{"type":"REASONING_MESSAGE_END","messageId":"m"}`,
		`{"type":"REASONING_MESSAGE_CHUNK","unknown":1}`, `{"type":"REASONING_MESSAGE_CHUNK","metadata":{}}`,
	)
}

// shortStreams holds runs of three of the events against the client: each third of them, from a random one on, or all.
func shortStreams(t *testing.T, word ...string) {
	t.Helper()
	client := conformance.Need(t)
	n := len(word)
	var jobs []conformance.Job
	from := int(seedtest.New(t) % step)
	for i := range n * n * n {
		if !*variantsAll && i%step != from {
			continue
		}
		job := conformance.Job{Upgrade: true, Schema: true, Skip: true, Verify: true}
		job.Start.Messages = json.RawMessage(`[{"id":"","role":"user","content":"no id"}]`)
		job.Events = []json.RawMessage{json.RawMessage(`{"type":"RUN_STARTED","threadId":"t","runId":"r"}`)}
		for _, w := range []int{i / n / n, i / n % n, i % n} {
			job.Events = append(job.Events, json.RawMessage(word[w]))
		}
		jobs = append(jobs, job)
	}
	for i, want := range client.Play(t, jobs...) {
		got := foldOf(t, jobs[i].Start, jobs[i].Events)
		maskReasoning(t, &want.Conversation, &got.Conversation)
		if d := differs(want, got); d != "" {
			t.Fatalf("%s\n%s", jobs[i].Events, d)
		}
	}
}

// playsBack has a client that holds nothing play the compacted events of a chain: it ends up with what the last
// run left, and its verification has nothing against them where it has nothing against what the runs sent and
// each says where it starts.
func (c comparison) playsBack(chain []folded, sent []json.RawMessage) {
	runs, started := make([]*compact.Run, len(chain)), true
	for i, f := range chain {
		runs[i] = f.run
		started = started && f.run.Summary().Started != nil
	}
	left := chain[len(chain)-1].Conversation
	job := conformance.Job{Events: compact.Compacted(steps(runs)...), Upgrade: true, Schema: true, Verify: true}
	played := c.reduce(job)
	var d string
	switch {
	case played.Error != nil:
		d = fmt.Sprintf("event %d is malformed: %s", played.Error.Index, played.Error.Message)
	case started && played.Violation != nil &&
		c.reduce(conformance.Job{Events: sent, Upgrade: true, Schema: true, Skip: true, Verify: true}).Violation == nil:
		d = fmt.Sprintf("event %d breaks a rule: %s", played.Violation.Index, played.Violation.Message)
	default:
		d = conformance.Diff(left, played.Conversation)
	}
	if d != "" {
		c.fail(failedCase{compared{events: job.Events, want: played, got: chain[len(chain)-1]}}, "compacted, %d runs: %s\nevents\n%s", len(chain), d, strings.Join(stream{events: sent}.lines(), "\n"))
	}
}

func (c comparison) reduce(job conformance.Job) conformance.Result {
	c.t.Helper()
	return c.client.Play(c.t, job)[0]
}

func (s stream) lines() []string {
	lines := make([]string, len(s.events))
	for i, e := range s.events {
		lines[i] = string(e)
	}
	return lines
}

// nextInput goes on with a thread as a client does: its user changes what it holds, or does not, and says something.
// What it calls the next run with is what it holds then without the activity messages.
func (g gen) nextInput(run int, r compared) (called, held conformance.Start) {
	var messages []json.RawMessage
	if err := json.Unmarshal(r.want.Messages, &messages); err != nil {
		g.t.Fatal(err)
	}
	if had := len(sayable(messages)); g.chance(40) {
		changes := []int{}
		for range g.n(2) + 1 {
			changes = append(changes, g.n(9))
		}
		slices.Sort(changes) // what comes in comes last: else nothing says on which side of it an activity belongs
		for i, change := range changes {
			messages = g.edited(messages, change, fmt.Sprintf("new%d-%d", run, i))
		}
		if had > 0 && len(sayable(messages)) == 0 {
			messages = nil // with what they stood between, the activities are gone
		}
	}
	if g.chance(85) {
		messages = append(messages, encode(obj{"id": fmt.Sprint("said", run), "role": "user", "content": g.word()}))
	}
	held = conformance.Start{Messages: toJSON(g.t, some(messages)), State: r.want.State}
	if g.chance(15) {
		held.State = encode(g.state())
	}
	return conformance.Start{Messages: toJSON(g.t, sayable(messages)), State: held.State}, held
}

// edited is a list of messages with one change that a user makes. An activity stays behind what it stood behind.
func (g gen) edited(messages []json.RawMessage, change int, newID string) []json.RawMessage {
	var places []int // of messages that are no activities
	for i, m := range messages {
		if !isActivity(m) {
			places = append(places, i)
		}
	}
	if len(places) == 0 {
		return messages
	}
	nth := g.n(len(places) - 1)
	at := places[nth]
	switch change {
	case 1, 2, 3: // another text
		m, _ := parsed(g.t, messages[at]).(obj)
		if _, text := m["content"].(string); !text {
			return messages
		}
		m["content"] = g.word()
		messages = slices.Clone(messages)
		messages[at] = encode(m)
	case 4, 5, 6, 7: // one or some are taken out, or all to the end
		last := places[min(nth+pick(g, []int{0, 1, 2, len(places)}), len(places)-1)]
		var kept []json.RawMessage
		for i, m := range messages {
			if i < at || i > last || isActivity(m) {
				kept = append(kept, m)
			}
		}
		messages = kept
	case 8, 9: // one comes in between
		if m := encode(g.sound().message(newID)); !isActivity(m) {
			messages = slices.Insert(slices.Clone(messages), at, m)
		}
	case 0: // all is cleared
		messages = nil
	}
	return messages
}

// sayable are the messages that a client sends.
func sayable(messages []json.RawMessage) []json.RawMessage {
	return slices.DeleteFunc(slices.Clone(some(messages)), isActivity)
}

func isActivity(m json.RawMessage) bool {
	role := agui.Lookup(m, "role")
	return agui.IsString(role) && agui.TextOf(role).String() == agui.RoleActivity
}

// some is a list that is not null as JSON.
func some(list []json.RawMessage) []json.RawMessage {
	if list == nil {
		return []json.RawMessage{}
	}
	return list
}

// start is what a run starts from that is called with messages and a state behind a parent: what Skein makes of them, and
// what the client holds. Where the two part as docs/fold.md says, the difference is applied to one of them.
func (c comparison) start(parent lineage.History, called, its conformance.Start) (lineage.History, conformance.Start) {
	c.t.Helper()
	s := startParting{t: c.t, parent: parent, called: called, want: its}
	input, err := agui.DecodeInput(fmt.Appendf(nil, `{"messages":%s,"state":%s}`, called.Messages, called.State), "")
	if s.err = err; err == nil {
		s.got = lineage.StartHistory(lineage.ParentExplicit, parent, input)
	}
	for range len(documentedRows) {
		d := "the client goes on with an input that is malformed to Skein"
		if s.err == nil {
			d = conformance.Diff(conformance.Conversation(s.want),
				conformance.Conversation{Messages: encode(list(s.got.Messages)), State: s.got.State})
		}
		if d == "" {
			return s.got, s.want
		}
		if !s.recognised() {
			c.t.Fatalf("a run is called with\n%s state %s\nbehind\n%s state %s\nand starts from something else: %s %v",
				called.Messages, called.State, encode(list(parent.Messages)), parent.State, d, s.err)
		}
	}
	return s.got, s.want
}

func streamsWriter(t *testing.T) *os.File {
	t.Helper()
	name := *streamsFile
	if name == "" {
		name = os.DevNull
	}
	f, err := os.OpenFile(name, os.O_CREATE|os.O_WRONLY|os.O_TRUNC, 0o644)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := f.Close(); err != nil {
			t.Error(err)
		}
	})
	return f
}

// ruleOf names the rule behind what the client's verification says.
func ruleOf(message string) (string, error) {
	for _, v := range violations {
		if v.says.MatchString(message) {
			return v.rule, nil
		}
	}
	return "", fmt.Errorf("the client's verification has a rule that Skein has no name for: %s", message)
}

// violations are the messages of verifyEvents of @ag-ui/client 1.0.0, the first that matches.
var violations = func() (all []struct {
	says *regexp.Regexp
	rule string
}) {
	for _, row := range [][2]string{
		{`^First event must be`, "first-event-not-run-started"},
		{`'RUN_STARTED' while a run is still active`, "run-started-twice"},
		{`does not match|A tool call belongs to the message that carries it`, "subagent-mismatch"},
		{`A text message with ID .* is already in progress`, "text-start-while-open"},
		{`'TEXT_MESSAGE_CONTENT' event: No active`, "text-content-not-open"},
		{`'TEXT_MESSAGE_END' event: No active`, "text-end-not-open"},
		{`A tool call with ID .* is already in progress`, "tool-start-while-open"},
		{`'TOOL_CALL_ARGS' event: No active`, "tool-content-not-open"},
		{`'TOOL_CALL_END' event: No active`, "tool-end-not-open"},
		{`A reasoning message with ID .* is already in progress`, "reasoning-start-while-open"},
		{`'REASONING_MESSAGE_CONTENT' event: No active`, "reasoning-content-not-open"},
		{`'REASONING_MESSAGE_END' event: No active`, "reasoning-end-not-open"},
		{`A reasoning span with ID .* is already in progress`, "reasoning-span-start-while-open"},
		{`'REASONING_END' event: No active`, "reasoning-span-end-not-open"},
		{`^Step .* is already active`, "step-start-while-open"},
		{`'STEP_FINISHED' for step`, "step-end-not-open"},
		{`'SUBAGENT_STARTED': subagent .* is already active`, "subagent-start-while-open"},
		{`'SUBAGENT_STARTED': subagent .* has already finished`, "subagent-start-again"},
		{`'SUBAGENT_STARTED': parentSubagentRunId`, "subagent-parent-unknown"},
		{`no active subagent found`, "subagent-end-not-open"},
		{`while steps are still active`, "open-at-end-step"},
		{`while text messages are still active`, "open-at-end-text"},
		{`while reasoning messages are still active`, "open-at-end-reasoning"},
		{`while reasoning spans are still active`, "open-at-end-reasoning-span"},
		{`while tool calls are still active`, "open-at-end-tool"},
		{`while subagents are still active`, "open-at-end-subagent"},
	} {
		all = append(all, struct {
			says *regexp.Regexp
			rule string
		}{regexp.MustCompile(row[0]), row[1]})
	}
	return all
}()
