package compact

import "slices"

// These are the names of the rules that a fold counts in Summary.Anomalies. The names are stable, since run records contain
// them. docs/fold.md explains each rule.

// VerificationRules returns the rules of the client's verifyEvents. The official client ends a stream at the first breach; the
// fold counts it and continues.
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

// ReducerRules returns the rules for events that the client's reducer, or its enforcement before it, ignores or applies only in
// part, with or without a warning.
func ReducerRules() []string {
	return []string{
		"activity-delta-on-message", "activity-patch-failed", "activity-unknown", "encrypted-value-unknown", ruleStripped, "message-unknown",
		ruleOperation, "state-patch-failed", "text-on-activity", "tool-call-renamed", "tool-call-unknown", "tool-parent-not-assistant",
	}
}

// ProtocolRules returns the rules of AG-UI 1.1 that neither the client's verification nor its reducer has.
func ProtocolRules() []string { return []string{ruleInterrupt, ruleRole, ruleVersion} }

const (
	// ruleInterrupt counts interrupts with the id of an earlier one of the run. The fold keeps the first of them.
	ruleInterrupt = "interrupt-repeated"
	// ruleRole counts REASONING_MESSAGE_START with the role assistant, which older agents send.
	ruleRole = "reasoning-role"
	// ruleVersion counts a protocolVersion that agui.Understands does not accept.
	ruleVersion = "protocol-version"
)

// ruleStripped counts messages without a role, or with an unknown role and no id. The client's enforcement and the fold
// remove them from the list of messages.
const ruleStripped = "message-stripped"

// ruleOperation counts operations that RFC 6902 does not define. The client's enforcement and the fold remove them from the
// patch.
const ruleOperation = "operation-stripped"

// The prefixes and suffixes of rules that concern an entity.
const (
	startWhileOpen = "-start-while-open"
	contentNotOpen = "-content-not-open"
	endNotOpen     = "-end-not-open"
	openAtEnd      = "open-at-end-"
	ruleMismatch   = "subagent-mismatch"
)
