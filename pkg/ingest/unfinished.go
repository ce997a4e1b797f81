package ingest

import (
	"slices"

	"github.com/skeinhq/skein/pkg/agui"
)

// The bounds on what is remembered of an agent that begins and does not end.
const (
	maxUnfinished      = 100
	maxUnfinishedBytes = 1 << 10 // of the names of one
)

// pairs are the events that begin something which RUN_FINISHED must not leave open, with those that end it and the member that names
// it. The official client ends a run with an error where one is missing (docs/lint.md); RUN_ERROR may leave them open.
var pairs = []struct {
	begin agui.Type
	ends  []agui.Type // any of them; the first is the one to write
	named agui.Field
}{
	{agui.TextMessageStart, []agui.Type{agui.TextMessageEnd}, agui.FieldMessageID},
	{agui.ToolCallStart, []agui.Type{agui.ToolCallEnd}, agui.FieldToolCallID},
	{agui.ReasoningStart, []agui.Type{agui.ReasoningEnd}, agui.FieldMessageID},
	{agui.ReasoningMessageStart, []agui.Type{agui.ReasoningMessageEnd}, agui.FieldMessageID},
	{agui.ThinkingStart, []agui.Type{agui.ThinkingEnd}, agui.FieldMessageID},                       // names nothing
	{agui.ThinkingTextMessageStart, []agui.Type{agui.ThinkingTextMessageEnd}, agui.FieldMessageID}, // names nothing
	{agui.StepStarted, []agui.Type{agui.StepFinished}, agui.FieldStepName},
	{agui.SubagentStarted, []agui.Type{agui.SubagentFinished, agui.SubagentError}, agui.FieldSubagentRunID},
}

// unfinished is what an agent has begun in its run and not ended.
type unfinished struct {
	begun bool // an event came
	open  []unended
}

type unended struct {
	pair int
	// name is the named member and, where that is another one, the subagent's, as JSON without its braces.
	name string
}

// see takes in an event of the agent, of that type.
func (u *unfinished) see(t agui.Type, event []byte) {
	u.begun = true
	for i, p := range pairs {
		begins, ends := t == p.begin, slices.Contains(p.ends, t)
		if !begins && !ends {
			continue
		}
		ev, err := agui.Decode(event)
		if err != nil {
			return // the client refuses it too
		}
		one := unended{i, nameOf(ev, p.named)}
		at := slices.Index(u.open, one)
		switch {
		case ends && at >= 0:
			u.open = slices.Delete(u.open, at, at+1)
		case begins && at < 0 && len(u.open) < maxUnfinished && len(one.name) <= maxUnfinishedBytes:
			u.open = append(u.open, one)
		}
		return
	}
}

// nameOf identifies the subject of an event among others of its kind. The id alone identifies a message or a call.
func nameOf(ev *agui.Event, named agui.Field) string {
	var b []byte
	add := func(f agui.Field) {
		s, ok := ev.String(f)
		if !ok {
			return
		}
		b = append(b, `,"`+f.String()+`":`...)
		b = agui.AppendString(b, s)
	}
	add(named)
	if named == agui.FieldStepName {
		add(agui.FieldSubagentRunID)
	}
	return string(b)
}

// ends are the events that end what is open, what was begun last first.
func (u *unfinished) ends() [][]byte {
	var out [][]byte
	for _, o := range slices.Backward(u.open) {
		event := append([]byte(`{"type":"`), pairs[o.pair].ends[0]...)
		event = append(event, '"')
		event = append(event, o.name...)
		out = append(out, append(event, '}'))
	}
	return out
}
