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

	"github.com/skeinhq/skein/pkg/agui"
	"github.com/skeinhq/skein/pkg/compact"
	"github.com/skeinhq/skein/pkg/lineage"
	"github.com/skeinhq/skein/test/conformance"
)

var streamsFile = flag.String("streams", "", "write the generated streams to this file, as jobs of reduce.mjs")

// foldedStream is what pkg/compact makes of a generated stream, up to its first terminal event.
type foldedStream struct {
	run *compact.Run
	conformance.Conversation
	// violated is the first event at which a rule of the client's verification is counted, or -1, and
	// which rules those are.
	violated int
	rules    []string
	skipped  []int // the malformed events
}

func foldStream(start lineage.History, events []json.RawMessage) (foldedStream, error) {
	f := foldedStream{run: compact.New(start.Messages, start.State), violated: -1}
	anomalies := f.run.Summary().Anomalies
	for i, raw := range events {
		before := countOf(anomalies, verificationRules)
		ev, err := agui.Decode(raw)
		if err == nil {
			err = f.run.Apply(ev)
		}
		if err != nil && !agui.IsMalformed(err) {
			return f, err
		}
		if err != nil {
			f.skipped = append(f.skipped, i)
		}
		if after := countOf(anomalies, verificationRules); f.violated < 0 && !slices.Equal(before, after) {
			f.violated = i
			for r, rule := range verificationRules {
				if after[r] > before[r] {
					f.rules = append(f.rules, rule)
				}
			}
		}
		if f.run.Ended() {
			break
		}
	}
	b, err := json.Marshal(f.run.Messages())
	f.Conversation = conformance.Conversation{Messages: b, State: f.run.State()}
	return f, err
}

var verificationRules = compact.VerificationRules()

func countOf(anomalies map[string]int64, rules []string) []int64 {
	counts := make([]int64, len(rules))
	for i, rule := range rules {
		counts[i] = anomalies[rule]
	}
	return counts
}

// cut returns the events up to the first terminal one that the schema accepts: what comes after it
// is none of the run.
func cut(events []json.RawMessage) []json.RawMessage {
	for i, raw := range events {
		if ev, err := agui.Decode(raw); err == nil && (ev.Type == agui.RunFinished || ev.Type == agui.RunError) {
			return events[:i+1]
		}
	}
	return events
}

// TestGenerated_EqualsTheOfficialClient folds generated threads, whole and spoiled, with Skein and
// with the official client. TestMain says how many; a failure is shrunk and prints its seed.
func TestGenerated_EqualsTheOfficialClient(t *testing.T) {
	client, ok := conformance.Live(t)
	if !ok {
		t.Skip("generated streams have no checked-in results; install Node 20 and run: make conformance-setup")
	}
	jobs := json.NewEncoder(streamsWriter(t))
	rapid.Check(t, func(rt *rapid.T) {
		report.threads++
		g := gen{rt}
		its := conformance.Start{Messages: encode(g.messages(4)), State: encode(g.state())}
		have := g.startsFrom(lineage.History{}, its)
		// docs/fold.md: for Skein an input whose state is null says nothing of it, so it starts from {}.
		null := string(its.State) == "null"
		if null {
			its.State = json.RawMessage(`{}`)
		}
		var chain []foldedStream
		var sent []json.RawMessage // of all runs so far
		for run := range 3 {
			s := drawStream(rt, fmt.Sprint("r", run))
			got, err := foldStream(have, s.events)
			if err != nil {
				rt.Fatal(err)
			}
			job := conformance.Job{Start: its, Upgrade: true, Schema: true, Skip: true, Verify: true}
			for _, event := range cut(s.events) {
				job.Events = append(job.Events, enforced(event))
			}
			results, err := client.Reduce(job)
			if err != nil {
				rt.Fatal(err)
			}
			want := results[0]
			if null && run == 0 {
				report.startsFromNull(rt, client, job, want)
			}
			if d := s.differs(want, got); d != "" {
				rt.Fatalf("run %d: %s\nstart %s state %s\n%s\nskipped %v, violation %v",
					run, d, its.Messages, its.State, strings.Join(s.lines(), "\n"), want.Skipped, want.Violation)
			}
			chain, sent = append(chain, got), append(sent, job.Events...)
			if d, err := playsBack(client, chain, sent); err != nil || d != "" {
				rt.Fatalf("compacted, %d runs: %v\n%s\nevents\n%s", len(chain), err, d, strings.Join(stream{events: sent}.lines(), "\n"))
			}
			if err := jobs.Encode(job); err != nil {
				rt.Fatal(err)
			}
			report.stream(s, want, got)
			if run == 2 || g.chance(75) {
				return
			}
			have, its = g.nextInput(got, want)
		}
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

// shortStreams holds a run of each three of the events against the client.
func shortStreams(t *testing.T, word ...string) {
	t.Helper()
	client, ok := conformance.Live(t)
	if !ok {
		t.Skip("needs the running client; install Node 20 and run: make conformance-setup")
	}
	n := len(word)
	var jobs []conformance.Job
	for i := range n * n * n {
		job := conformance.Job{Upgrade: true, Schema: true, Skip: true, Verify: true}
		job.Start.Messages = json.RawMessage(`[{"id":"","role":"user","content":"no id"}]`)
		job.Events = []json.RawMessage{json.RawMessage(`{"type":"RUN_STARTED","threadId":"t","runId":"r"}`)}
		for _, w := range []int{i / n / n, i / n % n, i % n} {
			job.Events = append(job.Events, json.RawMessage(word[w]))
		}
		jobs = append(jobs, job)
	}
	results, err := client.Reduce(jobs...)
	if err != nil {
		t.Fatal(err)
	}
	for i, want := range results {
		got, err := foldStream(history(t, conformance.Conversation{Messages: jobs[i].Start.Messages}), jobs[i].Events)
		if err != nil {
			t.Fatal(err)
		}
		for _, c := range []*conformance.Conversation{&want.Conversation, &got.Conversation} {
			if *c, err = conformance.MaskReasoning(*c); err != nil {
				t.Fatal(err)
			}
		}
		if d := (stream{}).differs(want, got); d != "" {
			t.Fatalf("%s\n%s", jobs[i].Events, d)
		}
	}
}

// differs compares all that the client says about a stream with what Skein says.
func (s stream) differs(want conformance.Result, got foldedStream) string {
	if d := conformance.Diff(want.Conversation, got.Conversation); d != "" {
		return d
	}
	skipped := make([]int, len(want.Skipped))
	for i, e := range want.Skipped {
		skipped[i] = e.Index
	}
	if slices.Sort(skipped); !slices.Equal(skipped, got.skipped) {
		return fmt.Sprintf("the client takes events %v for malformed, the fold %v", skipped, got.skipped)
	}
	if want.Violation == nil {
		if got.violated >= 0 {
			return fmt.Sprintf("event %d counts %v, and the client's verification lets it pass", got.violated, got.rules)
		}
		return ""
	}
	rule, err := ruleOf(want.Violation.Message)
	switch {
	case err != nil:
		return err.Error()
	case got.violated != want.Violation.Index || !slices.Contains(got.rules, rule):
		return fmt.Sprintf("the client's verification ends at event %d with %s (%s), the fold counts %v at event %d",
			want.Violation.Index, rule, want.Violation.Message, got.rules, got.violated)
	}
	return ""
}

// playsBack has a client that holds nothing play the compacted events of a chain: it ends up with what the last
// run left, and its verification has nothing against them where it has nothing against what the runs sent and
// each says where it starts.
func playsBack(client *conformance.Client, chain []foldedStream, sent []json.RawMessage) (string, error) {
	runs, started := make([]*compact.Run, len(chain)), true
	for i, f := range chain {
		runs[i] = f.run
		started = started && f.run.Summary().Started != nil
	}
	results, err := client.Reduce(conformance.Job{Events: compact.Compacted(steps(runs)...), Upgrade: true, Schema: true, Verify: true})
	if err != nil {
		return "", err
	}
	played := results[0]
	if played.Error != nil {
		return fmt.Sprintf("event %d is malformed: %s", played.Error.Index, played.Error.Message), nil
	}
	if started && played.Violation != nil {
		results, err := client.Reduce(conformance.Job{Events: sent, Upgrade: true, Schema: true, Skip: true, Verify: true})
		if err != nil {
			return "", err
		}
		if results[0].Violation == nil {
			return fmt.Sprintf("event %d breaks a rule: %s", played.Violation.Index, played.Violation.Message), nil
		}
	}
	return conformance.Diff(chain[len(chain)-1].Conversation, played.Conversation), nil
}

func (s stream) lines() []string {
	lines := make([]string, len(s.events))
	for i, e := range s.events {
		lines[i] = string(e)
	}
	return lines
}

// nextInput goes on with a thread as the client does: it says something, and its input is what it
// holds without the activity messages. The second result is what the client itself goes on from.
func (g gen) nextInput(got foldedStream, want conformance.Result) (lineage.History, conformance.Start) {
	var its, sent []json.RawMessage
	if err := json.Unmarshal(want.Messages, &its); err != nil {
		g.t.Fatal(err)
	}
	its = append(its, encode(obj{"id": "said", "role": "user", "content": pick(g, words)}))
	for _, raw := range its {
		if string(agui.Lookup(raw, "role")) != `"activity"` {
			sent = append(sent, raw)
		}
	}
	return g.startsFrom(lineage.History{Messages: got.run.Messages(), State: got.State},
			conformance.Start{Messages: toJSON(g.t, sent), State: want.State}),
		conformance.Start{Messages: toJSON(g.t, its), State: want.State}
}

// startsFrom is what Skein starts a run from that is called with messages and a state.
func (g gen) startsFrom(parent lineage.History, called conformance.Start) lineage.History {
	input, err := agui.DecodeInput(fmt.Appendf(nil, `{"messages":%s,"state":%s}`, called.Messages, called.State), "")
	if err != nil {
		g.t.Fatalf("the client goes on with an input that is malformed to Skein: %v", err)
	}
	return lineage.StartHistory(lineage.ParentExplicit, parent, input)
}

func history(tb rapid.TB, c conformance.Conversation) lineage.History {
	tb.Helper()
	h := lineage.History{State: c.State}
	if err := json.Unmarshal(c.Messages, &h.Messages); err != nil {
		tb.Fatal(err)
	}
	return h
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
