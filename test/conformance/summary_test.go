package conformance_test

import (
	"encoding/json"
	"fmt"
	"io"
	"maps"
	"slices"
	"strings"
	"testing"

	"github.com/skeinhq/skein/pkg/agui"
	"github.com/skeinhq/skein/pkg/compact"
)

// summary counts what was compared, so that "no differences" says between what.
type summary struct {
	recordedThreads, recordedRuns, cases int

	// variants of events, those of them that the client rejects, and those that differ as documented.
	variants, variantsRejected, variantsDocumented int

	threads, runs, malformed, violations int
	types, mutations, rules              map[string]int
	// departures are how often generated streams met a row of docs/fold.md.
	departures map[string]int
}

// report is of all tests of the package; they do not run in parallel.
var report = summary{types: map[string]int{}, mutations: map[string]int{}, rules: map[string]int{}, departures: map[string]int{}}

// met counts a documented difference.
func (s *summary) met(row string) { s.departures[row]++ }

func (s *summary) stream(drawn stream, r compared) {
	s.runs++
	for _, e := range drawn.events {
		var head struct{ Type string }
		if json.Unmarshal(e, &head) == nil {
			s.types[head.Type]++
		}
	}
	for _, m := range drawn.mutations {
		s.mutations[m]++
	}
	for rule, n := range r.got.run.Summary().Anomalies {
		s.rules[rule] += int(n)
	}
	s.malformed += len(r.want.Skipped)
	if r.want.Violation != nil {
		s.violations++
	}
}

// eventTypes are those of AG-UI 1.0, the draft META, one that nobody knows, and the retired ones.
var eventTypes = []agui.Type{
	agui.RunStarted, agui.RunFinished, agui.RunError, agui.StepStarted, agui.StepFinished,
	agui.TextMessageStart, agui.TextMessageContent, agui.TextMessageEnd, agui.TextMessageChunk,
	agui.ToolCallStart, agui.ToolCallArgs, agui.ToolCallEnd, agui.ToolCallChunk, agui.ToolCallResult,
	agui.StateSnapshot, agui.StateDelta, agui.MessagesSnapshot, agui.ActivitySnapshot, agui.ActivityDelta,
	agui.ReasoningStart, agui.ReasoningEnd, agui.ReasoningMessageStart, agui.ReasoningMessageContent, agui.ReasoningMessageEnd,
	agui.ReasoningMessageChunk, agui.ReasoningEncryptedValue, agui.SubagentStarted, agui.SubagentFinished, agui.SubagentError,
	agui.Raw, agui.Custom, agui.Meta, unknownType,
	agui.ThinkingStart, agui.ThinkingEnd, agui.ThinkingTextMessageStart, agui.ThinkingTextMessageContent, agui.ThinkingTextMessageEnd,
}

// check demands that the streams had everything in them: each of it 1,000 times in the long form of
// 100,000 threads, and each documented difference once; a tenth of that share in 10,000, where chance weighs more.
// And that no rule was counted which has no name.
func (s *summary) check(t *testing.T) {
	t.Helper()
	if s.threads < demanding {
		return
	}
	least := s.threads / 1000
	if s.threads >= 10*demanding {
		least = s.threads / 100
		for _, r := range documentedRows {
			if s.departures[r.name] == 0 {
				t.Errorf("no stream met the documented difference %q: it is not proven that the kit would recognise it", r.name)
			}
		}
	}
	demand := func(what string, counts map[string]int, names []string) {
		for _, name := range names {
			if counts[name] < least {
				t.Errorf("%s %s: %d times in %d threads, want %d or more", what, name, counts[name], s.threads, least)
			}
		}
		for name := range counts {
			if !slices.Contains(names, name) {
				t.Errorf("%s %s is in no list", what, name)
			}
		}
	}
	var types []string
	for _, t := range eventTypes {
		types = append(types, string(t))
	}
	demand("event type", s.types, types)
	demand("mutation", s.mutations, append([]string{cutShort, startedTwice, again}, mutationNames...))
	demand("rule", s.rules, slices.Concat(compact.VerificationRules(), compact.ReducerRules()))
}

func (s *summary) print(w io.Writer) {
	if s.recordedRuns == 0 && s.cases == 0 && s.runs == 0 && s.variants == 0 {
		return
	}
	fmt.Fprintln(w, "compared with the official AG-UI client 1.0.0, without a difference:")
	fmt.Fprintf(w, "  recorded threads   %d (%d runs)\n", s.recordedThreads, s.recordedRuns)
	fmt.Fprintf(w, "  cases              %d\n", s.cases)
	fmt.Fprintf(w, "  variants of events %d (%d malformed, %d differ as documented)\n", s.variants, s.variantsRejected, s.variantsDocumented)
	fmt.Fprintf(w, "  generated threads  %d (%d runs, %d of them break a rule of the client's verification, at the same event; %d malformed events)\n",
		s.threads, s.runs, s.violations, s.malformed)
	counts(w, "events by type", s.types)
	counts(w, "mutations", s.mutations)
	counts(w, "rules counted", s.rules)
	of := map[string]int{}
	for _, r := range documentedRows {
		of[r.name] = s.departures[r.name]
	}
	counts(w, "documented differences by rule", of)
}

func counts(w io.Writer, title string, of map[string]int) {
	if len(of) == 0 {
		return
	}
	fmt.Fprintf(w, "  %s\n", title)
	names := slices.Sorted(maps.Keys(of))
	width := 0
	for _, name := range names {
		width = max(width, len(name))
	}
	for _, name := range names {
		fmt.Fprintf(w, "    %s%s %7d\n", name, strings.Repeat(" ", width-len(name)), of[name])
	}
}
