package conformance_test

import (
	"bytes"
	"encoding/json"
	"fmt"
	"regexp"
	"slices"
	"strings"
	"testing"

	"pgregory.net/rapid"

	"github.com/skeinhq/skein/internal/recordings"
	"github.com/skeinhq/skein/pkg/agui"
	"github.com/skeinhq/skein/pkg/compact"
	"github.com/skeinhq/skein/pkg/lineage"
	"github.com/skeinhq/skein/pkg/lint"
	"github.com/skeinhq/skein/test/conformance"
)

// linted is what pkg/lint finds in a stream.
func linted(start conformance.Start, events []json.RawMessage) []lint.Finding {
	var found []lint.Finding
	var input *agui.RunAgentInput
	if len(start.Messages) > 0 || len(start.State) > 0 {
		input = &agui.RunAgentInput{State: start.State}
		if len(start.Messages) > 0 {
			if err := json.Unmarshal(start.Messages, &input.Messages); err != nil {
				panic(err) // of a test's own making
			}
		}
	}
	l := lint.New("stream", input, func(f lint.Finding) { found = append(found, f) })
	for i, e := range events {
		l.Event(e, i+1)
	}
	l.End()
	return found
}

// judgedOtherwise compares what lint finds with what the client says: where it ends, and by which rule, what it takes out and converts on
// the way, and where its reducer warns. It returns how they differ, up to which event, or "".
func judgedOtherwise(want conformance.Result, found []lint.Finding, of int) (upTo int, d string) {
	found = slices.DeleteFunc(found, func(f lint.Finding) bool { // rules that the client 1.0.0 does not check
		return f.Rule == lint.RuleThread || f.Rule == lint.RuleRun || f.Rule == lint.RuleInterrupt
	})
	last := of // the events that the client looks at
	stop := ""
	for _, f := range found {
		if f.Level == lint.Error {
			stop = fmt.Sprintf("event %d: %s: %s", f.Event, f.Rule, f.Message)
			last = f.Event
			break
		}
	}
	switch {
	case want.Ends == nil && stop != "":
		return last, "the client plays it all, lint stops at " + stop
	case want.Ends != nil && (stop == "" || want.Ends.Index != last-1):
		return min(last, want.Ends.Index+1), fmt.Sprintf("the client ends at event %d (%s), lint at %q", want.Ends.Index+1, want.Ends.Message,
			stop)
	}
	if want.Ends != nil {
		rule := endRule(want.Ends.Message)
		if !slices.ContainsFunc(found, func(f lint.Finding) bool {
			// That a chunk comes too late says more than that it continues nothing.
			return f.Event == last && (f.Rule == rule || rule == lint.RuleChunk && f.Rule == lint.RuleAfterEnd)
		}) {
			return last, fmt.Sprintf("event %d: the client ends there by %s (%s), lint by %q", last, rule, want.Ends.Message, stop)
		}
	}
	says, finds := make([][]string, last), make([][]string, last)
	for _, w := range want.Warned {
		if s := warning(w.Message); s != "" && w.Index >= 0 && w.Index < last {
			says[w.Index] = append(says[w.Index], s)
		}
	}
	for _, f := range found {
		if s := finding(f); s != "" && f.Event <= last {
			finds[f.Event-1] = append(finds[f.Event-1], s)
		}
	}
	for i := range says {
		slices.Sort(says[i])
		slices.Sort(finds[i])
		if says[i], finds[i] = oneOfReducer(says[i]), oneOfReducer(finds[i]); !slices.Equal(says[i], finds[i]) {
			return i + 1, fmt.Sprintf("event %d: the client says %q, lint finds %q", i+1, says[i], finds[i])
		}
	}
	return 0, ""
}

// endRule names the rule behind what the client says when it ends.
func endRule(message string) string {
	switch {
	case strings.HasPrefix(message, "["), strings.HasPrefix(message, "Cannot read properties of"): // of zod, of its boundary
		return lint.RuleSchema
	case strings.Contains(message, "The run has already"):
		return lint.RuleAfterEnd
	case strings.HasPrefix(message, "First TEXT_"), strings.HasPrefix(message, "First TOOL_"), strings.HasPrefix(message, "First REASONING_"),
		strings.HasPrefix(message, "Cannot continue"), strings.HasPrefix(message, "Ambiguous"):
		return lint.RuleChunk
	}
	rule, err := ruleOf(message)
	if err != nil {
		return err.Error()
	}
	return rule
}

const byReducer = "the reducer warns"

// oneOfReducer is a sorted list in which that the reducer warns stands once: rules and warnings are not one to one.
func oneOfReducer(list []string) []string { return slices.Compact(list) }

var (
	takenOut  = regexp.MustCompile(`^\[ag-ui\]\[enforce\] Removed unrecognised material at '(?s:(.*))' on .*\. Nothing handled`)
	converted = regexp.MustCompile(`^\[ag-ui\]\[compat\] Converting deprecated (?s:(.*)) to (.*)\. The old shape`)
)

// warning puts what the client says into one form with what lint finds.
func warning(message string) string {
	if m := takenOut.FindStringSubmatch(message); m != nil {
		return "takes out " + m[1]
	}
	if m := converted.FindStringSubmatch(message); m != nil {
		return "converts " + m[1] + " to " + m[2]
	}
	switch {
	case strings.HasPrefix(message, "[ag-ui][enforce] Dropping unrecognised event"):
		return "drops"
	case strings.HasPrefix(message, "[ag-ui][compat] Dropping THINKING_START.title"):
		return "takes out /title"
	case strings.HasPrefix(message, "[ag-ui][compat] Minting a messageId"),
		strings.HasPrefix(message, "[ag-ui][compat] A binary content part carries only an id"):
		return "" // the event is refused, or the part taken out, for that
	}
	return byReducer
}

// silent are the rules at which the client's reducer does nothing and says nothing.
var silent = map[string]bool{"activity-unknown": true, "encrypted-value-unknown": true}

func finding(f lint.Finding) string {
	switch f.Rule {
	case lint.RuleMemberStripped, lint.RuleMessageStripped, lint.RulePartStripped, lint.RuleOutcomeStripped, lint.RuleOperationStripped:
		return "takes out " + strings.ToValidUTF8(string(f.Path), "\ufffd")
	case lint.RuleUnknownType:
		return "drops"
	case lint.RuleOlderNull, lint.RuleOlderThinking, lint.RuleOlderBinary:
		what, instead, _ := strings.Cut(f.Message, ", which the client converts to ")
		return "converts " + what + " to " + instead
	}
	if slices.Contains(reducerRules, f.Rule) && !silent[f.Rule] {
		return byReducer
	}
	return ""
}

// foldedOtherwise are variants of which lint says that a patch fails, as it does in Skein's fold, and the client goes on with a
// document that is none: rows of docs/fold.md.
var foldedOtherwise = func() map[string]bool {
	all := map[string]bool{`STATE_DELTA (move)/delta/0/from ""`: true, `ACTIVITY_DELTA (move)/patch/0/from ""`: true}
	for _, op := range []string{"replace", "remove", "move", "copy"} {
		all["ACTIVITY_DELTA ("+op+`)/patch/0/path ""`] = true
	}
	return all
}()

// lintEquals holds lint to the client on streams that have names.
func lintEquals(t *testing.T, client *conformance.Client, names []string, jobs []conformance.Job) {
	t.Helper()
	for i := range jobs {
		jobs[i] = conformance.Job{Start: jobs[i].Start, Events: jobs[i].Events, Judge: true}
	}
	results := client.Play(t, jobs...)
	for i, want := range results {
		_, d := judgedOtherwise(want, linted(jobs[i].Start, jobs[i].Events), len(jobs[i].Events))
		if (d != "") != foldedOtherwise[names[i]] {
			t.Errorf("%s: it differs: %q", names[i], d)
		}
	}
}

// Every instance of what the protocol has, with one member changed: what the client refuses, takes out or converts, lint says, at the same
// path, and nothing else.
func TestLint_EqualsTheOfficialClientOnVariants(t *testing.T) {
	client := conformance.Need(t)
	names, jobs := someVariants(t)
	lintEquals(t, client, names, jobs)
}

var reducerRules = func() []string {
	var names []string
	for _, r := range lint.Rules() {
		if slices.Contains(compact.ReducerRules(), r.Name) && r.Name != lint.RuleMessageStripped && r.Name != lint.RuleOperationStripped {
			names = append(names, r.Name)
		}
	}
	return names
}()

// Generated streams are full of faults, and the client ends at the first. What it ends at is taken out, and the rest judged again.
func TestLint_EqualsTheOfficialClientOnGeneratedStreams(t *testing.T) {
	client := conformance.Need(t)
	fewerChecks(t, 4)
	writesFailedCase(t)
	judged, ends := 0, 0
	rapid.Check(t, func(rt *rapid.T) {
		g, c := gen{t: rt}, comparison{rt, client}
		its := conformance.Start{Messages: encode(g.sound().messages(4)), State: encode(g.state())}
		have, its := c.start(lineage.History{}, its, its)
		events := g.drawStream("r0", have).events
		if g.chance(50) {
			events = append(events, g.drawStream("r1", have).events...)
		}
		for range len(events) + mostPartings {
			judged++
			want := c.reduce(conformance.Job{Start: its, Events: events, Judge: true})
			upTo, d := judgedOtherwise(want, linted(its, events), len(events))
			if d != "" {
				// The fold that lint is built on may have met a row of docs/fold.md.
				from := startOf(events[:upTo])
				before, at := have, its
				if from > 0 {
					at = conformance.Start(c.reduce(conformance.Job{Start: its, Events: events[:from], Upgrade: true, Schema: true,
						Strip: true}).Conversation)
					before = history(rt, conformance.Conversation(at))
				}
				instead, ok := c.departed(before, at, events[from:upTo])
				// Infinity in the place of the state takes patches without a word, and is null to all who compare.
				if i := slices.IndexFunc(events[:upTo], func(e json.RawMessage) bool { return infinite(decoded(e)) }); !ok && i >= 0 {
					report.met("numbers that no double can hold")
					events = slices.Delete(slices.Clone(events), i, i+1)
					continue
				}
				if !ok {
					c.fail(failedCase{compared{start: its, events: events, want: want}}, "%s\n%s", d, strings.Join(stream{events: events}.lines(), "\n"))
				}
				events = slices.Concat(events[:from], instead, events[upTo:])
				continue
			}
			if want.Ends == nil {
				return
			}
			ends++
			events = slices.Delete(slices.Clone(events), want.Ends.Index, want.Ends.Index+1)
		}
	})
	t.Logf("%d streams judged, of which %d end early", judged, ends)
}

// departed returns a run without the documented differences to the client that its events have met, or that there are none.
func (c comparison) departed(before lineage.History, at conformance.Start, run []json.RawMessage) ([]json.RawMessage, bool) {
	c.t.Helper()
	behind := run[len(cut(run)):]
	run = cut(run)
	meets := func(run []json.RawMessage) ([]json.RawMessage, bool) {
		r, other := c.compare(before, at, run)
		return r.events, other == "" && !slices.EqualFunc(r.events, run, func(a, b json.RawMessage) bool { return string(a) == string(b) })
	}
	if instead, ok := meets(run); ok {
		return slices.Concat(instead, behind), true
	}
	// That a patch has failed for one of the two may show in nothing, as where it replaces the character of a string.
	last := len(run) - 1
	patched, _ := parsed(c.t, run[last]).(obj)
	for _, key := range []string{"delta", "patch"} {
		if ops, ok := patched[key].([]any); ok {
			patched[key] = append(ops, obj{"op": "add", "path": "", "value": obj{"passed": true}})
			if _, ok := meets(append(slices.Clone(run[:last]), encode(patched))); ok {
				return slices.Concat(run[:last], behind), true
			}
		}
	}
	return nil, false
}

// startOf is where the last run of a stream begins.
func startOf(events []json.RawMessage) int {
	for i := len(events) - 1; i > 0; i-- {
		if kind, err := agui.Envelope(events[i]); err == nil && kind == agui.RunStarted {
			return i
		}
	}
	return 0
}

// Bodies as agents send them, whole and spoiled in their framing, before a whole HttpAgent: its run fails if and only if lint has an error.
// Only where CR ends lines for the standard and none for the client may the client also read on, or lose events.
func TestLint_EqualsAnHttpAgentOnBodies(t *testing.T) {
	client := conformance.Need(t)
	holds := func(t rapid.TB, body []byte) bool {
		results := client.Play(t, conformance.Job{Answer: &conformance.Answer{Body: body}})
		l := lint.New("body", nil, func(lint.Finding) {})
		if err := l.ReadSSE(bytes.NewReader(body), 1); err != nil {
			t.Fatal(err)
		}
		l.End()
		stops := l.Tally().Stops
		fails := results[0].Rejected != ""
		if crlf := stops != nil && stops.Rule == lint.RuleCRLF; fails != (stops != nil) && !crlf {
			t.Errorf("the client says %q (delivered %v), lint %+v\n%.400q", results[0].Rejected, results[0].Delivered, stops, body)
		}
		if stops == nil && len(results[0].Delivered) == 0 && l.Tally().Warnings == 0 {
			t.Errorf("the client has nothing, and lint finds nothing\n%.400q", body)
		}
		return stops != nil
	}
	var bodies [][]byte
	for _, thread := range recordings.All() {
		for _, run := range thread.Runs {
			holds(t, run.SSE())
			if len(run.SSE()) < 4_000 {
				bodies = append(bodies, run.SSE())
			}
		}
	}
	started := `{"type":"RUN_STARTED","threadId":"t","runId":"r"}`
	for _, body := range []string{
		"", ": hi\n\n", "<html>", started + "\n", "data: " + started, "data: null\n\n", "data: {\"type\":\"FOO\"}\n\n",
		"data: " + started + "\r\n\r\n",
		"data: {\"type\":\"CUSTOM\",\"name\":\"\xff\",\"value\":1}\n\n", "\ufeffdata: " + started + "\n\n", "data: \ufeff" + started + "\n\n",
		"data: " + started + "\n\ndata: {\"type\":\"CUSTOM\",\"name\":\"n\",\"value\":\"" + strings.Repeat("x", 11<<20) + "\"}\n\n",
		"data: " + started + "\n\ndata: {\"type\":\"CUSTOM\",\"name\":\"n\",\"value\":\"" + strings.Repeat("é", 9<<20) + "\"}\n\n",
	} {
		holds(t, []byte(body))
	}
	failed := 0
	fewerChecks(t, 8)
	rapid.Check(t, func(rt *rapid.T) {
		body := slices.Clone(rapid.SampledFrom(bodies).Draw(rt, "body"))
		for range rapid.IntRange(1, 3).Draw(rt, "faults") {
			if old := rapid.SampledFrom([]string{"\n\n", "\n", "data: ", "data", ""}).Draw(rt, "old"); old != "" {
				n := rapid.SampledFrom([]int{1, 2, -1}).Draw(rt, "times")
				body = bytes.Replace(body, []byte(old), []byte(rapid.SampledFrom([]string{
					"\r\n\r\n", "\n", "\r\n", "\r", "\n \n", "data:", " data: ", "data: data: ", "\n\n\n", "id: 1\ndata: ", ": c\n", "",
				}).Draw(rt, "new")), n)
				continue
			}
			at := rapid.IntRange(0, len(body)).Draw(rt, "at")
			put := rapid.SampledFrom([]string{"\n", "\r", "\n\n", " ", "\xff", "\ufeff", "data: [DONE]\n\n", "data:\n\n", "\ndata: {}\n",
				"\x00"}).Draw(rt, "put")
			body = slices.Concat(body[:at], []byte(put), body[at:])
		}
		if holds(rt, body) {
			failed++
		}
	})
	t.Logf("%d of the spoiled bodies fail", failed)
}
