package lint

import (
	"bytes"
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"math/big"
	"slices"
	"strconv"
	"strings"

	"github.com/skeinhq/skein/pkg/agui"
	"github.com/skeinhq/skein/pkg/compact"
)

// Finding is one thing that the client would refuse or change.
type Finding struct {
	Rule  string `json:"rule"`
	Level Level  `json:"level"`
	// File is the name of the stream. Line is the event's line, counted from 1; 0 if unknown. Event is its number in the file, counted
	// from 1; 0 if the finding is not about an event.
	File  string `json:"file"`
	Line  int    `json:"line,omitempty"`
	Event int    `json:"event,omitempty"`
	// Run is the run id on the last RUN_STARTED, and Type is the event's type.
	Run  agui.String `json:"runId,omitempty"`
	Type agui.String `json:"type,omitempty"`
	// Path is the path of the member in the event: names and indexes, each after a slash, not escaped.
	Path agui.String `json:"path,omitempty"`
	// Message describes the finding for a person; Help describes what to do.
	Message string `json:"message"`
	Help    string `json:"help"`
}

// Tally counts what a Linter has read and found.
type Tally struct {
	Events, Runs            int
	Errors, Warnings, Notes int
	// Stops is the first finding at which the client ends the stream; nil if there is none.
	Stops *Finding
}

// Linter checks the events of one stream, in order, as a client that plays the stream does.
type Linter struct {
	file  string
	found func(Finding)
	off   map[string]bool
	tally Tally

	run       *compact.Run
	runID     string
	started   bool             // the run has RUN_STARTED
	thread    string           // the thread of the first run
	counted   map[string]int64 // the run's anomalies before the event
	messages  []agui.Message   // what the run started from, and state
	state     json.RawMessage
	end       agui.Type // the type that ended the last run; "" while it is open
	open      map[opened]place
	line      int
	eventType agui.Type
}

// opened is an open entity: its kind, as in the names of rules, and its id.
type opened struct{ kind, id string }

type place struct{ event, line int }

// New returns a Linter for a stream of the given name. The Linter calls found with each finding. input is the agent's input, whose
// messages and state the client holds when the stream begins. A nil input means no messages and the state {}.
func New(file string, input *agui.RunAgentInput, found func(Finding)) *Linter {
	l := &Linter{file: file, found: found, open: map[opened]place{}}
	if input != nil {
		l.messages, l.state = input.Messages, input.State
	}
	return l
}

// Off disables these rules.
func (l *Linter) Off(rules ...string) {
	l.off = map[string]bool{}
	for _, name := range rules {
		l.off[name] = true
	}
}

// Tally returns the counts so far.
func (l *Linter) Tally() Tally { return l.tally }

// Event checks the next event. line is its line number, or 0 if unknown.
func (l *Linter) Event(data []byte, line int) {
	l.tally.Events++
	l.line, l.eventType = line, ""
	data = bytes.TrimSpace(data)
	utf8 := bytes.ToValidUTF8(data, []byte("\ufffd"))
	broken := !bytes.Equal(utf8, data)
	t, ok := l.envelope(utf8)
	if broken {
		l.find(RuleNotUTF8, "", "the text is not UTF-8")
	}
	if !ok {
		return
	}
	l.eventType = t
	as, v, forms := upgrade(t, utf8)
	for _, o := range forms {
		l.find(o.rule, "", o.what+", which the client converts to "+o.instead)
	}
	schema := events[as]
	if schema == nil {
		l.find(RuleUnknownType, "", fmt.Sprintf("the protocol does not define the event type %s", strconv.Quote(string(t))))
		return
	}
	var e enforcement
	left, _ := e.walk(v, schema, "")
	for _, s := range e.stripped {
		l.find(s.rule, s.path, s.path+" on "+string(t)+": "+s.what)
	}
	for _, r := range e.refused {
		l.find(RuleSchema, r.path, fmt.Sprintf("%s %s on %s%s", r.path, r.what, t, l.skeinTakes(utf8, len(e.refused))))
	}
	if len(e.refused) > 0 {
		return
	}
	if as != t {
		left = utf8 // the fold makes ids of its own
	}
	l.fold(t, left)
	l.numbers(utf8)
}

// deepest is how deep an event may be nested. Of a deeper one, lint reports that Skein refuses it, and checks no more.
const deepest = 10_000

// envelope returns the type of an event, and whether the client accepts it as one.
func (l *Linter) envelope(data []byte) (agui.Type, bool) {
	if err := agui.CheckDepth(data, deepest); err != nil {
		var m *agui.MalformedError
		if errors.As(err, &m) && m.Rule == agui.RuleTooDeep {
			l.find(RuleSkeinRefuses, "", m.Detail)
			return "", false
		}
		message := fmt.Sprintf("%s: %s", strings.TrimPrefix(err.Error(), "not JSON: "), quoted(data))
		if len(data) == 0 {
			message = "there is no data"
		}
		l.find(RuleNotJSON, "", message)
		return "", false
	}
	if !agui.IsObject(data) {
		l.find(RuleNotObject, "", quoted(data)+" is no JSON object")
		return "", false
	}
	kind := agui.Lookup(data, "type")
	if !agui.IsString(kind) || len(kind) == len(`""`) {
		l.find(RuleNoType, "/type", "the event has no type: "+quoted(data))
		return "", false
	}
	return agui.Type(agui.TextOf(kind).String()), true
}

// skeinTakes returns a remark if Skein accepts the event and the client refused only one value.
func (l *Linter) skeinTakes(data []byte, refused int) string {
	if _, err := agui.Decode(data); err != nil || refused > 1 {
		return ""
	}
	return " (an older or lenient form: Skein accepts it, the client does not)"
}

// fold folds an event that has passed the client's enforcement.
func (l *Linter) fold(t agui.Type, data []byte) {
	ev, err := agui.Decode(data)
	if err != nil {
		l.find(RuleSkeinRefuses, "", err.Error())
		return
	}
	if l.end != "" && t != agui.RunStarted {
		switch {
		case t == agui.RunError && l.end == agui.RunFinished:
			l.end = t
			l.find(RuleErrorAfterFinish, "", "RUN_ERROR follows RUN_FINISHED")
		default:
			l.find(RuleAfterEnd, "", fmt.Sprintf("%s follows %s", l.subject(ev), l.end))
		}
		return
	}
	if t == agui.RunStarted {
		if l.end == "" && l.run != nil && l.run.Summary().Started != nil {
			if l.run.Apply(ev) == nil { // the event first ends the streams that chunks opened
				l.anomalies(ev)
			}
			l.begin()
		}
		l.runID = ev.RunID
	}
	if l.run == nil || l.end != "" {
		l.begin()
	}
	if err := l.run.Apply(ev); err != nil {
		var m *agui.MalformedError
		if errors.As(err, &m) && m.Rule == agui.RuleChunk {
			l.find(RuleChunk, "", l.subject(ev)+": "+m.Detail)
		} else {
			l.find(RuleSkeinRefuses, "", err.Error())
		}
		return
	}
	l.anomalies(ev)
	l.identify(ev)
	l.follow(ev)
	if t.Terminal() {
		l.end = t
		clear(l.open)
	}
}

// identify checks the ids of RUN_STARTED and RUN_FINISHED.
func (l *Linter) identify(ev *agui.Event) {
	l.thread = cmp.Or(l.thread, ev.ThreadID)
	if ev.ThreadID != "" && ev.ThreadID != l.thread {
		l.find(RuleThread, "/threadId", fmt.Sprintf("%s of thread %q in a stream of thread %q", ev.Type, ev.ThreadID, l.thread))
	}
	switch {
	case ev.Type == agui.RunStarted:
		l.started = true
	case ev.Type == agui.RunFinished && l.started && ev.RunID != l.runID:
		l.find(RuleRun, "/runId", fmt.Sprintf("RUN_FINISHED of run %q ends run %q", ev.RunID, l.runID))
	}
}

// begin starts the next run from what the client holds.
func (l *Linter) begin() {
	if l.run != nil {
		l.messages, l.state = l.run.Messages(), l.run.State()
	}
	l.tally.Runs++
	l.run = compact.New(l.messages, l.state)
	l.run.Name(strconv.Itoa(l.tally.Runs)) // the client makes different ids in each run, even if the run's id repeats
	l.counted = map[string]int64{}
	l.end, l.started = "", false
	clear(l.open)
}

// anomalies makes findings of what the fold has counted for an event. If the client refuses the event, it makes only those of level Error.
func (l *Linter) anomalies(ev *agui.Event) {
	var names []string
	refused := false
	for name, n := range l.run.Summary().Anomalies {
		if n == l.counted[name] {
			continue
		}
		l.counted[name] = n
		names = append(names, name)
		refused = refused || rules[ruleIndex[name]].Level == Error
	}
	// In the client, an event first ends the streams that chunks have opened.
	own := entities[cmp.Or(thinking[ev.Type], ev.Type)]
	closes := func(name string) bool {
		return strings.HasSuffix(name, "-end-not-open") && (!own.end || name != own.kind+"-end-not-open")
	}
	slices.SortFunc(names, func(a, b string) int {
		if closes(a) != closes(b) {
			if closes(a) {
				return -1
			}
			return 1
		}
		return cmp.Compare(a, b)
	})
	for _, name := range names {
		if refused && rules[ruleIndex[name]].Level != Error {
			continue
		}
		l.find(name, "", l.explain(name, ev))
	}
}

// explain returns the message of a rule for an event.
func (l *Linter) explain(rule string, ev *agui.Event) string {
	subject := l.subject(ev)
	if rule == ruleStartedTwice {
		return fmt.Sprintf("RUN_STARTED of run %s while run %s is active", strconv.Quote(ev.RunID), strconv.Quote(l.runID))
	}
	if kind, ok := strings.CutPrefix(rule, "open-at-end-"); ok {
		return subject + l.whatIsOpen(kind)
	}
	for _, r := range remarks {
		if strings.HasSuffix(rule, r.rule) {
			return subject + r.text
		}
	}
	return subject
}

// remarks complete messages that begin with the subject. Each applies to rules whose names end with the field rule.
var remarks = []struct{ rule, text string }{
	{"-content-not-open", ", which is not open"},
	{"-end-not-open", ", which is not open"},
	{"-start-while-open", ", which is already open"},
	{"-unknown", ", which the client does not know"},
	{"-patch-failed", ": the patch does not apply, and the client drops all of it"},
	{"first-event-not-run-started", " is the first event"},
	{"subagent-mismatch", " has another subagentRunId than what it continues"},
	{"subagent-start-again", ", which has ended in this run"},
	{"text-on-activity", ", which is an activity"},
	{"activity-delta-on-message", ", which is not an activity"},
	{"tool-call-renamed", ", which has another name"},
	{"tool-parent-not-assistant", ", whose parent is not an assistant message"},
	{RuleInterrupt, " repeats the id of an interrupt"},
	{RuleVersion, " declares a newer protocolVersion than " + agui.ProtocolVersion + ", or one that is not MAJOR.MINOR"},
}

// subject describes an event by its type and the id that it contains.
func (l *Linter) subject(ev *agui.Event) string {
	t := string(l.eventType)
	for _, of := range []struct {
		field agui.Field
		what  string
	}{
		{agui.FieldToolCallID, "tool call"}, {agui.FieldMessageID, "message"}, {agui.FieldStepName, "step"}, {agui.FieldEntityID, "entity"},
	} {
		if id, ok := ev.String(of.field); ok {
			return fmt.Sprintf("%s for %s %s", t, of.what, strconv.Quote(id))
		}
	}
	if sub, ok := ev.String(agui.FieldSubagentRunID); ok && strings.HasPrefix(t, "SUBAGENT_") {
		return fmt.Sprintf("%s for subagent %s", t, strconv.Quote(sub))
	}
	return t
}

// entities has the kind of entity that an event opens or ends, as in the names of rules.
var entities = map[agui.Type]struct {
	kind string
	id   agui.Field
	end  bool
}{
	agui.TextMessageStart: {"text", agui.FieldMessageID, false}, agui.TextMessageEnd: {"text", agui.FieldMessageID, true},
	agui.ToolCallStart: {"tool", agui.FieldToolCallID, false}, agui.ToolCallEnd: {"tool", agui.FieldToolCallID, true},
	agui.ReasoningMessageStart: {"reasoning", agui.FieldMessageID, false}, agui.ReasoningMessageEnd: {"reasoning", agui.FieldMessageID, true},
	agui.ReasoningStart: {"reasoning-span", agui.FieldMessageID, false}, agui.ReasoningEnd: {"reasoning-span", agui.FieldMessageID, true},
	agui.StepStarted: {"step", agui.FieldStepName, false}, agui.StepFinished: {"step", agui.FieldStepName, true},
	agui.SubagentStarted: {"subagent", agui.FieldSubagentRunID, false}, agui.SubagentFinished: {"subagent", agui.FieldSubagentRunID, true},
	agui.SubagentError: {"subagent", agui.FieldSubagentRunID, true},
}

// follow records where entities were opened. Only the text of findings uses this; the fold decides what is open.
func (l *Linter) follow(ev *agui.Event) {
	e, ok := entities[cmp.Or(thinking[ev.Type], ev.Type)]
	if !ok {
		return
	}
	id, _ := ev.String(e.id)
	key := opened{e.kind, id}
	if e.end {
		delete(l.open, key)
	} else if _, there := l.open[key]; !there {
		l.open[key] = place{l.tally.Events, l.line}
	}
}

// whatIsOpen lists the open entities of a kind, oldest first.
func (l *Linter) whatIsOpen(kind string) string {
	var ids []string
	const limit = 3
	keys := make([]opened, 0, len(l.open))
	for k := range l.open {
		if k.kind == kind {
			keys = append(keys, k)
		}
	}
	slices.SortFunc(keys, func(a, b opened) int { return cmp.Compare(l.open[a].event, l.open[b].event) })
	for i, k := range keys {
		if i == limit {
			ids = append(ids, fmt.Sprintf("%d more", len(keys)-limit))
			break
		}
		where := fmt.Sprintf("event %d", l.open[k].event)
		if line := l.open[k].line; line > 0 {
			where = fmt.Sprintf("line %d", line)
		}
		ids = append(ids, strings.TrimSpace(fmt.Sprintf("%s %s", name(k.id), "of "+where)))
	}
	what := map[string]string{
		"text": "text message", "tool": "tool call", "reasoning": "reasoning message", "reasoning-span": "reasoning span",
	}[kind]
	return " while a " + cmp.Or(what, kind) + " is open: " + strings.Join(ids, ", ")
}

func name(id string) string {
	if id == "" {
		return "that"
	}
	return strconv.Quote(id)
}

// End ends the stream. Call it once, after the last event.
func (l *Linter) End() {
	l.eventType = ""
	switch {
	case l.run == nil:
		what := "there are no events"
		if l.tally.Events > 0 {
			what = "the client knows none of the events"
		}
		if l.tally.Errors == 0 {
			l.about(RuleNoEvents, what)
		}
	case l.end == "":
		l.find(RuleNotEnded, "", fmt.Sprintf("the stream ends after this event, but run %s has not ended", strconv.Quote(l.runID)))
	}
}

// numbers reports numbers that no double represents exactly.
func (l *Linter) numbers(data []byte) {
	rounded, large := "", ""
	d := json.NewDecoder(bytes.NewReader(data))
	d.UseNumber()
	for t, err := d.Token(); err == nil; t, err = d.Token() {
		n, is := t.(json.Number)
		if !is {
			continue
		}
		number := n.String()
		f, _ := n.Float64() // infinity if it is too large
		switch {
		case math.IsInf(f, 0):
			large = cmp.Or(large, number)
		case !exact(number, f):
			rounded = cmp.Or(rounded, number)
		}
	}
	if rounded != "" {
		f, _ := strconv.ParseFloat(rounded, 64)
		l.find(RuleNumberRounded, "", fmt.Sprintf("%s becomes %s", shorten(json.RawMessage(rounded)), javaScript(f)))
	}
	if large != "" {
		l.find(RuleNumberTooLarge, "", fmt.Sprintf("%s is too large for a double", shorten(json.RawMessage(large))))
	}
}

// exact reports whether number equals the shortest text of f, the double that was read from number.
func exact(number string, f float64) bool {
	const (
		safe = 15  // digits that every double holds
		long = 400 // characters; more than any double written in full without trailing zeros
	)
	if len(number) <= safe && !strings.ContainsAny(number, "eE") {
		return true
	}
	if f == 0 || len(number) > long {
		return f == 0 && strings.Trim(strings.SplitN(strings.ToLower(number), "e", 2)[0], "-0.") == ""
	}
	given, ok := new(big.Rat).SetString(number)
	shortest, _ := new(big.Rat).SetString(strconv.FormatFloat(f, 'g', -1, 64))
	return ok && given.Cmp(shortest) == 0
}

// javaScript formats a number as JavaScript does: with the fewest digits that give the same double.
func javaScript(f float64) string {
	shortest := strconv.FormatFloat(f, 'g', -1, 64)
	if r, ok := new(big.Rat).SetString(shortest); ok && r.IsInt() && math.Abs(f) < 1e21 {
		return r.Num().String()
	}
	return shortest
}

// find makes a finding about the current event.
func (l *Linter) find(rule, path, message string) {
	l.add(Finding{
		Rule: rule, Line: l.line, Event: l.tally.Events, Run: agui.String(l.runID), Type: agui.String(l.eventType),
		Path: agui.String(path), Message: message,
	})
}

// about makes a finding about the stream.
func (l *Linter) about(rule, message string) { l.add(Finding{Rule: rule, Message: message}) }

// Status reports an HTTP status of the agent that is not 2xx.
func (l *Linter) Status(status, body string) {
	l.about(RuleStatus, strings.TrimSpace("HTTP "+status+" "+quoted([]byte(body))))
}

// ContentType reports a content type of the agent that is not that of SSE.
func (l *Linter) ContentType(t string) {
	l.about(RuleContentType, fmt.Sprintf("the answer's Content-Type is %s", strconv.Quote(t)))
}

func (l *Linter) add(f Finding) {
	if l.off[f.Rule] {
		return
	}
	r := rules[ruleIndex[f.Rule]]
	f.Level, f.Help, f.File = r.Level, r.Do, l.file
	switch r.Level {
	case Error:
		l.tally.Errors++
		if l.tally.Stops == nil && !accepted(f.Rule) {
			l.tally.Stops = &f
		}
	case Warning:
		l.tally.Warnings++
	default:
		l.tally.Notes++
	}
	l.found(f)
}

// quoted returns the start of a text in quotes, for use in a message.
func quoted(b []byte) string {
	const limit = 80
	if len(b) == 0 {
		return ""
	}
	if len(b) > limit {
		return strconv.Quote(strings.ToValidUTF8(string(b[:limit]), "")) + "…"
	}
	return strconv.Quote(string(b))
}
