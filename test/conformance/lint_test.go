package conformance_test

import (
	"encoding/json"
	"fmt"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/skeinhq/skein/pkg/agui"
	"github.com/skeinhq/skein/pkg/compact"
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

// judgedOtherwise compares what lint finds with what the client says: where it ends, what it takes out and converts on the way, and where
// its reducer warns. It returns "" where they are the same.
func judgedOtherwise(want conformance.Result, found []lint.Finding, of int) string {
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
		return "the client plays it all, lint stops at " + stop
	case want.Ends != nil && (stop == "" || want.Ends.Index != last-1):
		return fmt.Sprintf("the client ends at event %d (%s), lint at %q", want.Ends.Index+1, want.Ends.Message, stop)
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
			return fmt.Sprintf("event %d: the client says %q, lint finds %q", i+1, says[i], finds[i])
		}
	}
	return ""
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
	case strings.HasPrefix(message, "[ag-ui][compat] Minting a messageId"), strings.HasPrefix(message, "[ag-ui][compat] A binary content part carries only an id"):
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
	results, err := client.Reduce(jobs...)
	if err != nil {
		t.Fatal(err)
	}
	for i, want := range results {
		d := judgedOtherwise(want, linted(jobs[i].Start, jobs[i].Events), len(jobs[i].Events))
		if (d != "") != foldedOtherwise[names[i]] {
			t.Errorf("%s: it differs: %q", names[i], d)
		}
	}
}

// Every instance of what the protocol has, with one member changed: what the client refuses, takes out or converts, lint says, at the same
// path, and nothing else.
func TestLint_EqualsTheOfficialClientOnVariants(t *testing.T) {
	client, ok := conformance.Live(t)
	if !ok {
		t.Skip("needs the running client; install Node 20 and run: make conformance-setup")
	}
	var names []string
	var jobs []conformance.Job
	for _, in := range instances() {
		for v := range variants(in.event) {
			names = append(names, in.name+v.name)
			jobs = append(jobs, job(t, in, v.event))
		}
	}
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
