package lint

import (
	"slices"
	"strings"

	"github.com/skeinhq/skein/pkg/agui"
)

// Level is how bad a finding is, in SARIF's words.
type Level string

const (
	// Error: the client ends the stream there, and its run fails.
	Error Level = "error"
	// Warning: the client goes on, and does something else than the event says, or nothing.
	Warning Level = "warning"
	// Note: the client does as the event says, for now, or others may not.
	Note Level = "note"
)

// Rule is something that Lint looks for.
type Rule struct {
	Name  string
	Level Level
	// Means is one sentence about what the client does, and Do one about what to do.
	Means, Do string
}

// The rules that are not those of the client's verification and reducer.
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
	RuleUnknownType     = "unknown-type"
	RuleMemberStripped  = "member-stripped"
	RuleMessageStripped = "message-stripped"
	RulePartStripped    = "part-stripped"

	RuleOutcomeStripped   = "outcome-stripped"
	RuleOperationStripped = "operation-stripped"
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

// RuleNamed returns a rule, and whether there is one of that name.
func RuleNamed(name string) (Rule, bool) {
	i, ok := ruleIndex[name]
	if !ok {
		return Rule{}, false
	}
	return rules[i], true
}

var ruleIndex = func() map[string]int {
	m := make(map[string]int, len(rules))
	for i, r := range rules {
		m[r.Name] = i
	}
	return m
}()

var rules = slices.Concat([]Rule{
	{RuleStatus, Error, "The agent answers with an HTTP status that is none of success: the client's run fails.",
		"Answer 200 and send what goes wrong as RUN_ERROR, or look at what the agent says about the request."},
	{RuleCRLF, Error, "Lines end with CR LF: the client looks for two LF behind each other, takes all events for one, and fails.",
		"End lines with LF."},
	{RuleNotSeparated, Error, "Events follow each other without an empty line: the client takes them for one, and fails.",
		"Put an empty line behind each event, without spaces."},
	{RuleFrameTooLarge, Error, "An event is larger than 10 MiB: the client's buffer for it is full, and its run fails.",
		"Send less at once, as by deltas."},
	{RuleNotJSON, Error, "The data of an event is not JSON: the client's run fails, also at [DONE] or empty data.",
		"Send one JSON object an event, and nothing behind the last; keep a connection alive by comments (a line that begins with a colon)."},
	{RuleNotObject, Error, "The data of an event is JSON, but no object: the client's run fails.", "Send one JSON object an event."},
	{RuleNoType, Error, "The event has no type that is a string with a character in it: the client's run fails.", "Give it one of the types of AG-UI 1.0."},
	{RuleSchema, Error, "A member that the protocol describes is missing, or is not what it says: the client's run fails.",
		"Send the member as the protocol has it; leave an optional one out where it has no value, as null is not taken for that."},
	{RuleChunk, Error, "The client cannot tell what a chunk continues: its run fails.",
		"Give each chunk its id (and a tool call's first one its name), or at least the first behind any event that is no chunk."},
	{RuleAfterEnd, Error, "An event follows the end of its run: the client's run fails, though it had ended.",
		"Send RUN_FINISHED or RUN_ERROR last, once, and RUN_STARTED before anything else."},
}, verification, []Rule{
	{RuleNoEvents, Warning, "There is no event that the client knows: its run ends as if all were well, and holds nothing.",
		"Answer with events as SSE: a line of data: and JSON, and an empty line."},
	{RuleNotEnded, Warning, "The stream ends before its run does: the client takes that for the end of a run that went well.",
		"End each run with RUN_FINISHED, or with RUN_ERROR."},
	{RuleNotUTF8, Warning, "The text is not UTF-8: the client puts U+FFFD in the place of what it cannot read.", "Write UTF-8; cut text between characters, not in them."},
	{RuleLineIgnored, Warning, "A line is no field of SSE and no comment: the client passes over it.", "Begin lines of events with data:, comments with a colon."},
	{RuleUnknownType, Warning, "The protocol knows no such event: the client drops it.", "Send it as CUSTOM, or as RAW where it is another protocol's."},
	{RuleMemberStripped, Warning, "The protocol knows no such member there: the client takes it out.", "Put it into metadata, whose members are free, or leave it out."},
	{RuleMessageStripped, Warning, "The protocol knows no message of that role: the client takes it out of the list.", "Use one of the protocol's roles."},
	{RulePartStripped, Warning, "The protocol knows no such content part, or no such source of one: the client takes it out.",
		"Use text, image, audio, video or document, with data, url or file as the source."},
	{RuleOutcomeStripped, Warning, "The protocol knows no such outcome: the client takes it out, and the run or subagent for successful.",
		"Use an outcome of the protocol's."},
	{RuleOperationStripped, Warning, "RFC 6902 knows no such operation: the client takes it out, and applies the others.",
		"Use add, remove, replace, move, copy or test."},
}, reducer, []Rule{
	{RuleNumberRounded, Warning, "A number has more digits than a double holds: the client rounds it.", "Send long numbers, as ids, as strings."},
	{RuleNumberTooLarge, Warning, "A number is too large for a double: the client makes it infinite, and null once it writes it.", "Send it as a string."},
	{RuleContentType, Note, "The answer says that it is not text/event-stream: the client reads it as such all the same, proxies and browsers may not.",
		"Answer with Content-Type: text/event-stream."},
	{RuleErrorAfterFinish, Note, "RUN_ERROR follows RUN_FINISHED: the client takes both, Skein the first.", "End a run once."},
	{RuleOlderThinking, Note, "THINKING_* left the protocol with 1.0: the client makes REASONING_* of it until 2027-09-17, with ids that are random.",
		"Send REASONING_START, REASONING_MESSAGE_START, _CONTENT and _END, and REASONING_END, with ids."},
	{RuleOlderBinary, Note, "Content parts of the type binary left the protocol with 1.0: the client converts them until 2027-09-17.",
		"Send image, audio, video or document, with a source."},
	{RuleOlderNull, Note, "Null in the place of a member that is not there left the protocol with 1.0: the client takes it out until 2027-09-17.",
		"Leave the member out."},
	{RuleSkeinRefuses, Note, "The client takes the event, Skein does not.", "Mind the limits that docs/fold.md declares."},
})

// verification are the rules of the client's verifyEvents; docs/fold.md has the same names.
var verification = func() []Rule {
	fails := func(name, what, do string) Rule { return Rule{name, Error, what + ": the client's run fails.", do} }
	all := []Rule{
		fails("first-event-not-run-started", "The first event is neither RUN_STARTED nor RUN_ERROR", "Send RUN_STARTED first."),
		fails(ruleStartedTwice, "RUN_STARTED comes while a run is active", "End the run before the next one starts."),
		fails("step-start-while-open", "A step starts that is open", "Finish it first, or name it otherwise; a subagent's steps are its own."),
		fails("step-end-not-open", "A step finishes that is not open, or is of another subagent", "Finish each step once, with the name and subagentRunId that it started with."),
		fails("subagent-start-while-open", "A subagent starts that is active", "Give each invocation a subagentRunId of its own."),
		fails("subagent-start-again", "A subagent starts that has finished in this run", "Give each invocation a subagentRunId of its own."),
		fails("subagent-parent-unknown", "A subagent names a parent that has not started in this run", "Start the parent first, or leave parentSubagentRunId out."),
		fails("subagent-end-not-open", "A subagent ends that is not active", "Send SUBAGENT_STARTED first, and one end."),
		fails("subagent-mismatch", "An event says another subagentRunId than what it continues", "Repeat the subagentRunId of what opened it, or leave it out."),
	}
	for _, k := range []struct{ rule, name, start, end, content string }{
		{"text", "text message", "TEXT_MESSAGE_START", "TEXT_MESSAGE_END", "TEXT_MESSAGE_CONTENT"},
		{"tool", "tool call", "TOOL_CALL_START", "TOOL_CALL_END", "TOOL_CALL_ARGS"},
		{"reasoning", "reasoning message", "REASONING_MESSAGE_START", "REASONING_MESSAGE_END", "REASONING_MESSAGE_CONTENT"},
		{"reasoning-span", "span of reasoning", "REASONING_START", "REASONING_END", ""},
	} {
		all = append(all,
			fails(k.rule+"-start-while-open", "A "+k.name+" starts that is open", "Send "+k.end+" first, or another id."),
			fails(k.rule+"-end-not-open", "A "+k.name+" ends that is not open", "Send "+k.start+" first, and "+k.end+" once."),
			fails("open-at-end-"+k.rule, "A "+k.name+" is open at RUN_FINISHED", "Send "+k.end+" before; only RUN_ERROR may leave it open."))
		if k.content != "" {
			all = append(all, fails(k.rule+"-content-not-open", k.content+" comes for a "+k.name+" that is not open", "Send "+k.start+" first, with the same id."))
		}
	}
	all = append(all,
		fails("open-at-end-step", "A step is open at RUN_FINISHED", "Send STEP_FINISHED before; only RUN_ERROR may leave it open."),
		fails("open-at-end-subagent", "A subagent is active at RUN_FINISHED", "Send SUBAGENT_FINISHED or SUBAGENT_ERROR before; only RUN_ERROR may leave it active."))
	slices.SortFunc(all, func(a, b Rule) int { return strings.Compare(a.Name, b.Name) })
	return all
}()

// reducer are the rules of the client's defaultApplyEvents, for what passed its enforcement.
var reducer = []Rule{
	{"activity-delta-on-message", Warning, "The id of an ACTIVITY_DELTA is that of a message of another kind: the client drops the event.", "Use ids once."},
	{"activity-patch-failed", Warning, "An operation of the patch fails: the client drops the whole patch.", "Patch the activity as its last snapshot and the patches since have left it."},
	{"activity-unknown", Warning, "There is no activity of that id: the client drops the event.", "Send ACTIVITY_SNAPSHOT first."},
	{"encrypted-value-unknown", Warning, "There is no message or tool call of that id yet: the client drops the value.", "Send it behind the start of what it belongs to."},
	{"message-unknown", Warning, "There is no message of that id any more: the client drops what it was to get.", "Do not leave an open message out of MESSAGES_SNAPSHOT."},
	{"state-patch-failed", Warning, "An operation of the patch fails: the client drops the whole patch.",
		"Patch the state as the client has it: that of the input, or {}, and what came since."},
	{"text-on-activity", Warning, "The id of a message is that of an activity: the client drops the text.", "Use ids once."},
	{"tool-call-renamed", Warning, "A tool call starts again under another name: the client changes its name, and appends to its arguments.", "Use ids of tool calls once."},
	{"tool-call-unknown", Warning, "There is no tool call of that id any more: the client drops the event.", "Do not leave the message of an open call out of MESSAGES_SNAPSHOT."},
	{"tool-parent-not-assistant", Warning, "The parent of a tool call is no assistant's message: the client makes a message for the call, with the call's id.",
		"Name an assistant's message, or none."},
}
