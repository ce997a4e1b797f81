package lint

import (
	"slices"
	"strings"

	"github.com/skeinhq/skein/pkg/agui"
)

// Level is the severity of a finding, as SARIF names it.
type Level string

const (
	// Error: the client ends the stream at the event, and its run fails; or AG-UI forbids the event, and this client does not check it.
	Error Level = "error"
	// Warning: the client ignores the event or part of it, or changes its meaning, and continues.
	Warning Level = "warning"
	// Note: this client accepts the event, but a later client will not, or other readers do not.
	Note Level = "note"
)

// Rule is one kind of finding.
type Rule struct {
	Name  string
	Level Level
	// Means is one sentence on what is wrong and what the client does. Do is what to do about it.
	Means, Do string
}

// These are the rules besides those of the client's verification and reducer.
const (
	RuleStatus          = "http-status"
	RuleCRLF            = "sse-crlf"
	RuleNotSeparated    = "sse-not-separated"
	RuleFrameTooLarge   = "sse-frame-too-large"
	RuleNotJSON         = agui.RuleNotJSON
	RuleNotObject       = agui.RuleNotObject
	RuleNoType          = agui.RuleNoType
	RuleSchema          = agui.RuleSchema
	RuleChunk           = agui.RuleChunk
	RuleAfterEnd        = "event-after-end"
	ruleStartedTwice    = "run-started-twice"
	RuleNoEvents        = "no-events"
	RuleNotEnded        = "run-not-ended"
	RuleNotUTF8         = "not-utf8"
	RuleLineIgnored     = "sse-line-ignored"
	RuleUnknownType     = agui.RuleUnknownType
	RuleMemberStripped  = "member-stripped"
	RuleMessageStripped = "message-stripped"
	RulePartStripped    = "part-stripped"

	RuleOutcomeStripped   = "outcome-stripped"
	RuleOperationStripped = "operation-stripped"
	RuleTypeAlone         = "encrypted-type-alone"
	RuleThread            = "thread-mismatch"
	RuleRun               = "run-mismatch"
	RuleInterrupt         = "interrupt-repeated"
	RuleVersion           = "protocol-version"
	RuleNumberRounded     = "number-rounded"
	RuleNumberTooLarge    = "number-too-large"
	RuleContentType       = "content-type"
	RuleErrorAfterFinish  = "error-after-finish"
	RuleOlderThinking     = "older-thinking"
	RuleOlderBinary       = "older-binary"
	RuleOlderNull         = "older-null"
	RuleSkeinRefuses      = "skein-refuses"
)

// Rules returns all rules, errors first.
func Rules() []Rule { return slices.Clone(rules) }

// RuleNamed returns the rule with that name, and whether there is one.
func RuleNamed(name string) (Rule, bool) {
	i, ok := ruleIndex[name]
	if !ok {
		return Rule{}, false
	}
	return rules[i], true
}

// accepted are the rules of level Error that the client 1.0.0 does not check.
func accepted(rule string) bool {
	return rule == RuleInterrupt || rule == RuleRun || rule == RuleThread
}

var ruleIndex = func() map[string]int {
	m := make(map[string]int, len(rules))
	for i, r := range rules {
		m[r.Name] = i
	}
	return m
}()

var rules = slices.Concat([]Rule{
	{RuleStatus, Error, "The agent's HTTP status is not 2xx: the client's run fails.",
		"Answer 200 and report errors as RUN_ERROR, or read what the agent says about the request."},
	{RuleCRLF, Error, "Lines end with CR or CR LF: the client looks for two consecutive LF, reads all events as one, and fails or loses them.",
		"End lines with LF."},
	{RuleNotSeparated, Error, "No empty line separates two events: the client reads them as one, and fails.",
		"Send an empty line, without spaces, after each event."},
	{RuleFrameTooLarge, Error, "An event is larger than 10 MiB: it does not fit the client's buffer, and the client's run fails.",
		"Send less at once, for example as deltas."},
	{RuleNotJSON, Error, "The data of an event is not JSON: the client's run fails. [DONE] and empty data count as well.",
		"Send one JSON object per event and nothing after the last one; keep a connection alive with comments (lines that begin with a colon)."},
	{RuleNotObject, Error, "The data of an event is JSON, but not an object: the client's run fails.", "Send one JSON object per event."},
	{RuleNoType, Error, "The event has no type, or one that is not a non-empty string: the client's run fails.",
		"Use a type of AG-UI 1.0."},
	{RuleSchema, Error, "A member that the protocol requires is missing, or a member has the wrong type: the client's run fails.",
		"Send the member as the protocol defines it; omit an optional member that has no value, as null is not accepted."},
	{RuleChunk, Error, "The client cannot tell what a chunk continues: the client's run fails.",
		"Give each chunk its id, or at least the first chunk after any other event; a tool call's first chunk also needs the name."},
	{RuleAfterEnd, Error, "An event follows the end of its run: the client's run fails, although it had ended.",
		"Send RUN_FINISHED or RUN_ERROR last, once, and RUN_STARTED before anything else."},
}, verification, []Rule{
	{RuleInterrupt, Error, "Two interrupts of a run have one id. AG-UI forbids it; the client 1.0.0 does not check it.",
		"Give each interrupt its own id."},
	{RuleRun, Error, "RUN_FINISHED has another runId than RUN_STARTED. AG-UI forbids it; the client 1.0.0 does not check it.",
		"Repeat the runId of RUN_STARTED."},
	{RuleThread, Error, "RUN_STARTED or RUN_FINISHED has another threadId than an earlier one. AG-UI forbids it; " +
		"the client 1.0.0 does not check it.", "Send the threadId of the input in all runs of a stream."},
}, []Rule{
	{RuleNoEvents, Warning, "The client knows none of the events: its run ends without an error, and is empty.",
		"Send events as SSE: a line with data: and JSON, then an empty line."},
	{RuleNotEnded, Warning, "The stream ends before its run: the client treats the run as finished successfully.",
		"End each run with RUN_FINISHED or RUN_ERROR."},
	{RuleNotUTF8, Warning, "The text is not UTF-8: the client replaces what it cannot read with U+FFFD.",
		"Write UTF-8, and split text between characters, not inside one."},
	{RuleLineIgnored, Warning, "A line is neither an SSE field nor a comment: the client ignores it.",
		"Begin event lines with data: and comments with a colon."},
	{RuleUnknownType, Warning, "The protocol does not define the event type: the client drops the event.",
		"Send it as CUSTOM, or as RAW if it belongs to another protocol."},
	{RuleMemberStripped, Warning, "The protocol does not define the member: the client removes it.",
		"Put it into metadata, which accepts any member, or omit it."},
	{RuleMessageStripped, Warning, "The protocol does not define the message's role: the client removes the message from the list.",
		"Use a role of the protocol."},
	{RulePartStripped, Warning, "The protocol does not define the content part's type or source: the client removes the part.",
		"Use text, image, audio, video or document, with data, url or file as the source."},
	{RuleOutcomeStripped, Warning,
		"The protocol does not define the outcome: the client removes it, and treats the run or subagent as successful.",
		"Use an outcome of the protocol."},
	{RuleOperationStripped, Warning, "RFC 6902 does not define the operation: the client removes it, and applies the others.",
		"Use add, remove, replace, move, copy or test."},
	{RuleTypeAlone, Warning, "An encryptedValueType has no encryptedValue beside it: it describes nothing, and the protocol forbids it.",
		"Send both, or neither."},
	{RuleVersion, Warning, "RUN_STARTED declares a protocolVersion newer than " + agui.ProtocolVersion +
		", or one that is not MAJOR.MINOR: the client warns and continues.", "Declare the version that the agent sends."},
}, reducer, []Rule{
	{RuleNumberRounded, Warning, "A number has more digits than a double can hold: the client rounds it.",
		"Send long numbers, such as ids, as strings."},
	{RuleNumberTooLarge, Warning, "A number is too large for a double: the client reads infinity, and writes null.",
		"Send it as a string."},
	{RuleContentType, Note,
		"The Content-Type is not text/event-stream: the client reads the answer as SSE anyway, proxies and browsers may not.",
		"Answer with Content-Type: text/event-stream."},
	{RuleErrorAfterFinish, Note, "RUN_ERROR follows RUN_FINISHED: the run counts as failed, after a client has shown it as finished.", "End each run once."},
	{RuleOlderThinking, Note, "AG-UI 1.0 removed THINKING_*: until 2027-09-17 the client converts it to REASONING_*, with random ids.",
		"Send REASONING_START, REASONING_MESSAGE_START, _CONTENT and _END, and REASONING_END, with ids."},
	{RuleOlderBinary, Note, "AG-UI 1.0 removed content parts of the type binary: the client converts them until 2027-09-17.",
		"Send image, audio, video or document, with a source."},
	{RuleOlderNull, Note, "AG-UI 1.0 removed null for a missing member: the client removes it until 2027-09-17.",
		"Omit the member."},
	{RuleSkeinRefuses, Note, "The client accepts the event, Skein does not.", "Stay within the limits that docs/fold.md declares."},
})

// verification has the rules of the client's verifyEvents; docs/fold.md uses the same names.
var verification = func() []Rule {
	fails := func(name, what, do string) Rule { return Rule{name, Error, what + ": the client's run fails.", do} }
	all := []Rule{
		fails("first-event-not-run-started", "The first event is neither RUN_STARTED nor RUN_ERROR", "Send RUN_STARTED first."),
		fails(ruleStartedTwice, "RUN_STARTED comes while a run is active", "End the run before you start the next one."),
		fails("step-start-while-open", "A step starts that is already open",
			"Finish it first, or use another name; each subagent has its own steps."),
		fails("step-end-not-open", "A step finishes that is not open, or belongs to another subagent",
			"Finish each step once, with its original name and subagentRunId."),
		fails("subagent-start-while-open", "A subagent starts that is already active", "Give each invocation its own subagentRunId."),
		fails("subagent-start-again", "A subagent starts that has already finished in this run",
			"Give each invocation its own subagentRunId."),
		fails("subagent-parent-unknown", "A subagent names a parent that has not started in this run",
			"Start the parent first, or omit parentSubagentRunId."),
		fails("subagent-end-not-open", "A subagent ends that is not active", "Send SUBAGENT_STARTED first, and one end only."),
		fails("subagent-mismatch", "An event has another subagentRunId than what it continues",
			"Repeat the subagentRunId of the start event, or omit it."),
	}
	for _, k := range []struct{ rule, name, start, end, content string }{
		{"text", "text message", "TEXT_MESSAGE_START", "TEXT_MESSAGE_END", "TEXT_MESSAGE_CONTENT"},
		{"tool", "tool call", "TOOL_CALL_START", "TOOL_CALL_END", "TOOL_CALL_ARGS"},
		{"reasoning", "reasoning message", "REASONING_MESSAGE_START", "REASONING_MESSAGE_END", "REASONING_MESSAGE_CONTENT"},
		{"reasoning-span", "reasoning span", "REASONING_START", "REASONING_END", ""},
	} {
		all = append(all,
			fails(k.rule+"-start-while-open", "A "+k.name+" starts that is already open", "Send "+k.end+" first, or use another id."),
			fails(k.rule+"-end-not-open", "A "+k.name+" ends that is not open", "Send "+k.start+" first, and "+k.end+" only once."),
			fails("open-at-end-"+k.rule, "A "+k.name+" is open at RUN_FINISHED",
				"Send "+k.end+" before RUN_FINISHED; only RUN_ERROR may leave it open."))
		if k.content != "" {
			all = append(all, fails(k.rule+"-content-not-open", k.content+" comes for a "+k.name+" that is not open",
				"Send "+k.start+" first, with the same id."))
		}
	}
	all = append(all,
		fails("open-at-end-step", "A step is open at RUN_FINISHED",
			"Send STEP_FINISHED before RUN_FINISHED; only RUN_ERROR may leave it open."),
		fails("open-at-end-subagent", "A subagent is active at RUN_FINISHED",
			"Send SUBAGENT_FINISHED or SUBAGENT_ERROR before RUN_FINISHED; only RUN_ERROR may leave it active."))
	slices.SortFunc(all, func(a, b Rule) int { return strings.Compare(a.Name, b.Name) })
	return all
}()

// reducer has the rules of the client's defaultApplyEvents, which apply to events that have passed its enforcement.
var reducer = []Rule{
	{"activity-delta-on-message", Warning, "The id of an ACTIVITY_DELTA belongs to a message of another kind: the client drops the event.",
		"Use each id once."},
	{"activity-patch-failed", Warning, "An operation of the patch fails: the client drops the whole patch.",
		"Write patches against the activity's last snapshot and the patches since then."},
	{"activity-unknown", Warning, "No activity has that id: the client drops the event.", "Send ACTIVITY_SNAPSHOT first."},
	{"encrypted-value-unknown", Warning, "No message or tool call has that id yet: the client drops the value.",
		"Send the value after the start of its message or tool call."},
	{"message-unknown", Warning, "The message with that id is gone: the client drops the content.",
		"Include open messages in MESSAGES_SNAPSHOT."},
	{"state-patch-failed", Warning, "An operation of the patch fails: the client drops the whole patch.",
		"Write patches against the client's state: the input's state, or {}, and the changes since then."},
	{"text-on-activity", Warning, "The message's id belongs to an activity: the client drops the text.", "Use each id once."},
	{"tool-call-renamed", Warning, "A tool call starts again with another name: the client renames it, and appends to its arguments.",
		"Use each tool call id once."},
	{"tool-call-unknown", Warning, "The tool call with that id is gone: the client drops the event.",
		"Include the message of an open tool call in MESSAGES_SNAPSHOT."},
	{"tool-parent-not-assistant", Warning,
		"A tool call's parent is not an assistant message: the client creates a message for the call, with the call's id.",
		"Name an assistant message, or no parent."},
}
