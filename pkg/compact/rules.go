package compact

import "slices"

// The rules that a fold counts in Summary.Anomalies, by name. Names stay stable: they are in run
// records. docs/fold.md tells what each means.

// VerificationRules returns the rules of the client's verifyEvents, at which the official client
// ends a stream and the fold goes on.
func VerificationRules() []string {
	rules := []string{
		"first-event-not-run-started", "run-started-twice",
		"step-start-while-open", "step-end-not-open", "open-at-end-step",
		"subagent-start-while-open", "subagent-start-again", "subagent-parent-unknown", "subagent-end-not-open", "open-at-end-subagent",
		ruleMismatch,
	}
	for _, k := range []entityKind{kindText, kindTool, kindReasoning, kindSpan} {
		rules = append(rules, string(k)+startWhileOpen, string(k)+endNotOpen, openAtEnd+string(k))
		if k != kindSpan { // a span has no content
			rules = append(rules, string(k)+contentNotOpen)
		}
	}
	slices.Sort(rules)
	return rules
}

// ReducerRules returns the rules at which the client's reducer, or its enforcement before it, does something else
// than the event says, or nothing; it warns, or keeps silent.
func ReducerRules() []string {
	return []string{
		"activity-delta-on-message", "activity-patch-failed", "activity-unknown", "encrypted-value-unknown", ruleStripped, "message-unknown",
		ruleOperation, "state-patch-failed", "text-on-activity", "tool-call-renamed", "tool-call-unknown", "tool-parent-not-assistant",
	}
}

// ruleStripped is of a message that has no role, or an unknown one and no id: the client's enforcement takes it out of
// the list that it came in, and so does the fold.
const ruleStripped = "message-stripped"

// ruleOperation is of an operation that RFC 6902 does not have: the client's enforcement takes it out of the patch, and
// the others are applied.
const ruleOperation = "operation-stripped"

// What the names of rules on an entity are made of.
const (
	startWhileOpen = "-start-while-open"
	contentNotOpen = "-content-not-open"
	endNotOpen     = "-end-not-open"
	openAtEnd      = "open-at-end-"
	ruleMismatch   = "subagent-mismatch"
)
