package ingest

import (
	"slices"

	"github.com/skeinhq/skein/pkg/agui"
)

// Limits per run on the open events that the proxy remembers.
const (
	maxUnfinished      = 100
	maxUnfinishedBytes = 1 << 10 // of the ids of one event
)

// pairs lists the events that must end before RUN_FINISHED, with the events that end them and the member that
// identifies them. The official client ends a run with an error if such an end is missing (docs/lint.md). RUN_ERROR
// needs no such ends.
var pairs = []struct {
	begin agui.Type
	ends  []agui.Type // any of them; the proxy writes the first
	named agui.Field
}{
	{agui.TextMessageStart, []agui.Type{agui.TextMessageEnd}, agui.FieldMessageID},
	{agui.ToolCallStart, []agui.Type{agui.ToolCallEnd}, agui.FieldToolCallID},
	{agui.ReasoningStart, []agui.Type{agui.ReasoningEnd}, agui.FieldMessageID},
	{agui.ReasoningMessageStart, []agui.Type{agui.ReasoningMessageEnd}, agui.FieldMessageID},
	{agui.ThinkingStart, []agui.Type{agui.ThinkingEnd}, agui.FieldMessageID},                       // has no id
	{agui.ThinkingTextMessageStart, []agui.Type{agui.ThinkingTextMessageEnd}, agui.FieldMessageID}, // has no id
	{agui.StepStarted, []agui.Type{agui.StepFinished}, agui.FieldStepName},
	{agui.SubagentStarted, []agui.Type{agui.SubagentFinished, agui.SubagentError}, agui.FieldSubagentRunID},
}

// unfinished tracks the messages, calls and steps that a run's agent has begun and not ended.
type unfinished struct {
	begun bool // the agent has sent an event
	open  []unended
}

type unended struct {
	pair int
	// name has the identifying members (nameOf).
	name string
}

// see updates the open events for an event of type t.
func (u *unfinished) see(t agui.Type, event []byte) {
	u.begun = true
	for i, p := range pairs {
		begins, ends := t == p.begin, slices.Contains(p.ends, t)
		if !begins && !ends {
			continue
		}
		ev, err := agui.Decode(event)
		if err != nil {
			return // the client refuses this event too
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

// nameOf returns the identifying members of an event as JSON without braces. A message or a call is identified by its
// id alone, a step also by its subagent.
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

// ends returns the events that end all open ones, the most recently begun first.
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
