package artifact

import (
	"fmt"
	"strconv"
)

// Rule is the stable name of one rule.
type Rule string

// The rules of an artifact.
const (
	RuleJSON              Rule = "not-json"             // it is one JSON object
	RuleMissing           Rule = "missing-field"        // a field that is required is there
	RuleUnknown           Rule = "unknown-field"        // there is no other field
	RuleRepeated          Rule = "repeated-field"       // no field is repeated
	RuleType              Rule = "wrong-type"           // a field has the JSON type of the contract
	RuleSchema            Rule = "schema"               // schema names this version
	RuleFramework         Rule = "framework"            // framework is ag_ui
	RuleSurface           Rule = "surface"              // surface is that of this contract
	RuleLength            Rule = "length"               // a text is neither empty nor too long
	RuleAddress           Rule = "address"              // an id is not a URL
	RuleUnicode           Rule = "not-unicode"          // a text can be written in UTF-8
	RuleTime              Rule = "time"                 // a time is RFC 3339
	RuleTerminal          Rule = "terminal-event"       // the terminal event is RUN_FINISHED or RUN_ERROR
	RuleErrorWithFinished Rule = "error-with-finished"  // a run that finished has no error
	RuleCodeAlone         Rule = "code-without-error"   // a code comes with a message
	RuleLines             Rule = "several-lines"        // an error text is one line
	RuleRole              Rule = "role"                 // a message's role is one of five
	RuleToolCalls         Rule = "tool-calls"           // a message calls no tools
	RuleContentParts      Rule = "content-parts"        // a message's content is text
	RuleDuplicateID       Rule = "duplicate-message-id" // a message id does not repeat
)

// The rules of a source.
const (
	RuleEvent            Rule = "malformed-event"         // every line of a capture is an AG-UI event
	RuleNoStarted        Rule = "no-run-started"          // a capture has a RUN_STARTED
	RuleSeveralStarted   Rule = "several-run-started"     // and no second one
	RuleNoSnapshot       Rule = "no-snapshot"             // a capture has a MESSAGES_SNAPSHOT
	RuleSeveralSnapshots Rule = "several-snapshots"       // and no second one
	RuleNoTerminal       Rule = "no-terminal-event"       // a capture has a RUN_FINISHED or RUN_ERROR
	RuleSeveralTerminals Rule = "several-terminal-events" // and no second one
	RuleNoStart          Rule = "no-start-time"           // a time at which the run began is known
	RuleRunMismatch      Rule = "run-mismatch"            // the terminal event is of the run that RUN_STARTED began
	RuleOpen             Rule = "not-ended"               // the run has a real end
	RuleTruncated        Rule = "truncated"               // the run's record has all content
)

// Rules returns all rules, those of artifacts first.
func Rules() []Rule {
	return []Rule{
		RuleJSON, RuleMissing, RuleUnknown, RuleRepeated, RuleType, RuleSchema, RuleFramework, RuleSurface, RuleLength,
		RuleAddress, RuleUnicode, RuleTime, RuleTerminal, RuleErrorWithFinished, RuleCodeAlone, RuleLines, RuleRole,
		RuleToolCalls, RuleContentParts, RuleDuplicateID,
		RuleEvent, RuleNoStarted, RuleSeveralStarted, RuleNoSnapshot, RuleSeveralSnapshots, RuleNoTerminal, RuleSeveralTerminals,
		RuleNoStart, RuleRunMismatch, RuleOpen, RuleTruncated,
	}
}

// Error names the rule that an artifact or its source breaks.
type Error struct {
	Rule Rule
	// Where is a field, such as messages[3].id, or empty.
	Where  string
	Detail string // for a person
}

func (e *Error) Error() string {
	if e.Where == "" {
		return fmt.Sprintf("%s: %s", e.Rule, e.Detail)
	}
	return fmt.Sprintf("%s: %s: %s", e.Rule, e.Where, e.Detail)
}

func refuse(rule Rule, where, format string, args ...any) error {
	return &Error{Rule: rule, Where: where, Detail: fmt.Sprintf(format, args...)}
}

// at returns the name of a list's element.
func at(list string, i int) string { return list + "[" + strconv.Itoa(i) + "]" }
