package artifact

import (
	"errors"
	"time"

	"github.com/skeinhq/skein/pkg/agui"
)

// Projection is the name of the only projection of version 1: it keeps messages with role developer, system, assistant, user or
// tool whose content is text, each with id, role, content and name.
const Projection = "text-messages-v1"

// Report lists what a projection left out. It accompanies an artifact and is never part of it.
type Report struct {
	Projection string `json:"projection"`
	// Messages is the number of messages in the artifact.
	Messages int `json:"messages"`
	// LeftOut counts messages by reason: no-text (the content is not a text, or is empty while tools are called), content-parts, or
	// the role, such as activity.
	LeftOut agui.StringMap[int] `json:"leftOut"`
	// Stripped counts removed members of kept messages by name, such as toolCalls, or name if it was empty.
	Stripped agui.StringMap[int] `json:"stripped"`
	// Events counts the events of a capture that are not part of the envelope, by type.
	Events map[agui.Type]int `json:"events,omitempty"`
	// StartedAtFrom is the source of started_at: FromOption, FromEvent or FromRecord.
	StartedAtFrom string `json:"startedAtFrom"`
	// Basis is the lineage.Basis of a run record's messages: if it is inferred, some may come from an inferred parent. It is empty for
	// a capture.
	Basis string `json:"basis,omitempty"`
}

// The values of Report.StartedAtFrom.
const (
	FromOption = "option" // the caller's
	FromEvent  = "event"  // RUN_STARTED's own timestamp
	FromRecord = "record" // the run record's, if RUN_STARTED has none: the time of its first event or of that event's Kafka record
)

// FromEnvelope projects a captured envelope: the events of one run, among them exactly one RUN_STARTED, one MESSAGES_SNAPSHOT and
// one terminal event, in any order, except that a RUN_ERROR, which names no run, must follow RUN_STARTED. It counts and drops all
// other events. Unlike a fold, it refuses a capture with a line that is not an event, because that line could have been a second
// snapshot or end. A startedAt that is not zero replaces the observed one. Errors are of type *Error.
func FromEnvelope(events [][]byte, startedAt time.Time) (*Artifact, *Report, error) {
	report := &Report{Events: map[agui.Type]int{}}
	var started, snapshots, ends []*agui.Event
	foreign := false // a RUN_ERROR precedes RUN_STARTED
	for i, raw := range events {
		ev, err := agui.Decode(raw)
		if err != nil {
			return nil, nil, refuse(RuleEvent, at("events", i), "%v", err)
		}
		switch ev.Type {
		case agui.RunStarted:
			started = append(started, ev)
		case agui.MessagesSnapshot:
			if _, stripped := ev.Messages(); stripped > 0 {
				return nil, nil, refuse(RuleEvent, at("events", i), "%d of its messages have no role, or an unknown one and no id", stripped)
			}
			snapshots = append(snapshots, ev)
		case agui.RunFinished, agui.RunError:
			ends = append(ends, ev)
			foreign = foreign || ev.Type == agui.RunError && len(started) == 0
		default:
			report.Events[ev.Type]++
		}
	}
	for _, of := range []struct {
		n             int
		none, several Rule
		what          string
	}{
		{len(started), RuleNoStarted, RuleSeveralStarted, "RUN_STARTED"},
		{len(snapshots), RuleNoSnapshot, RuleSeveralSnapshots, "MESSAGES_SNAPSHOT"},
		{len(ends), RuleNoTerminal, RuleSeveralTerminals, "RUN_FINISHED or RUN_ERROR"},
	} {
		switch {
		case of.n == 0:
			return nil, nil, refuse(of.none, "events", "there is no %s, an envelope has one", of.what)
		case of.n > 1:
			return nil, nil, refuse(of.several, "events", "there are %d %s, an envelope has one", of.n, of.what)
		}
	}
	if foreign {
		return nil, nil, refuse(RuleRunMismatch, "events", "RUN_ERROR comes before RUN_STARTED: it is the end of another run")
	}
	start, end := started[0], ends[0]
	parent := start.ParentRunID
	if given := agui.Lookup(start.JSON(agui.FieldInput), "parentRunId"); parent == "" && agui.IsString(given) {
		parent = agui.TextOf(given).String()
	}
	messages, _ := snapshots[0].Messages()
	return project(Run{
		ThreadID: start.ThreadID, RunID: start.RunID, ParentRunID: parent,
		Started: start, FinishedAt: end.Time(), Messages: messages, Terminal: end,
	}, startedAt, report)
}

// Run is a folded run, as in its record.
type Run struct {
	ThreadID, RunID, ParentRunID string
	// StartedAt and FinishedAt are the record's, zero if unknown. StartedAt is the time of the run's first event; the timestamp of
	// Started, if it has one, takes precedence.
	StartedAt, FinishedAt time.Time
	// Started is its RUN_STARTED, or nil.
	Started *agui.Event
	// Basis is a lineage.Basis; empty if unknown.
	Basis string
	// Messages is its whole history.
	Messages []agui.Message
	// Terminal is its terminal event; nil if it has none, or only a synthetic one.
	Terminal *agui.Event
	// Truncated reports whether the record lacks content.
	Truncated bool
}

// FromRun projects a folded run's history. A startedAt that is not zero replaces the run's. Errors are of type *Error.
func FromRun(r Run, startedAt time.Time) (*Artifact, *Report, error) {
	return project(r, startedAt, &Report{})
}

func project(r Run, startedAt time.Time, report *Report) (*Artifact, *Report, error) {
	if r.Terminal == nil {
		return nil, nil, refuse(RuleOpen, "run", "it has not ended by an event of its agent")
	}
	if r.Truncated {
		return nil, nil, refuse(RuleTruncated, "run", "its record has not all of its content")
	}
	if err := r.checkEnd(); err != nil {
		return nil, nil, err
	}
	report.Projection, report.Basis = Projection, r.Basis
	report.LeftOut, report.Stripped = map[string]int{}, map[string]int{}
	a := &Artifact{
		ThreadIDRef: r.ThreadID, RunIDRef: r.RunID, ParentRunIDRef: r.ParentRunID,
		StartedAt: r.StartedAt, FinishedAt: r.FinishedAt, TerminalEvent: r.Terminal.Type, Messages: []Message{},
	}
	switch {
	case !startedAt.IsZero():
		a.StartedAt, report.StartedAtFrom = startedAt, FromOption
	case r.Started != nil && !r.Started.Time().IsZero():
		a.StartedAt, report.StartedAtFrom = r.Started.Time(), FromEvent
	default:
		report.StartedAtFrom = FromRecord
	}
	if r.Terminal.Type == agui.RunError {
		a.ErrorMessage, _ = r.Terminal.String(agui.FieldMessage)
		a.ErrorCode, _ = r.Terminal.String(agui.FieldCode)
	}
	for _, m := range r.Messages {
		kept, reason := report.keep(m)
		if reason != "" {
			report.LeftOut[reason]++
			continue
		}
		a.Messages = append(a.Messages, kept)
	}
	report.Messages = len(a.Messages)
	if err := a.selfCheck(); err != nil {
		return nil, nil, err
	}
	return a, report, nil
}

// checkEnd checks that RUN_FINISHED names the run of RUN_STARTED. RUN_ERROR names no run, and RUN_STARTED of older agents names no
// thread.
func (r *Run) checkEnd() error {
	if r.Started == nil || r.Terminal.Type != agui.RunFinished {
		return nil
	}
	for _, id := range []struct{ what, begun, ended string }{
		{"thread", r.Started.ThreadID, r.Terminal.ThreadID}, {"run", r.Started.RunID, r.Terminal.RunID},
	} {
		if id.begun != id.ended && id.begun != "" {
			return refuse(RuleRunMismatch, "events", "RUN_STARTED names %s %.80q, RUN_FINISHED %[1]s %.80[3]q", id.what, id.begun, id.ended)
		}
	}
	return nil
}

// keep returns what an artifact keeps of a message, or the reason why it keeps nothing.
func (r *Report) keep(m agui.Message) (Message, string) {
	if !isRole(m.Role) {
		return Message{}, m.Role
	}
	content := m.Get("content")
	switch {
	case agui.IsArray(content):
		return Message{}, "content-parts"
	case !agui.IsString(content):
		return Message{}, "no-text"
	}
	out := Message{ID: m.ID, Role: m.Role, Content: agui.TextOf(content).String()}
	if out.Content == "" && callsTools(m) {
		return Message{}, "no-text"
	}
	if name := m.Get("name"); agui.IsString(name) {
		out.Name = agui.TextOf(name).String()
	}
	for name := range agui.Members(m.Raw) {
		switch name {
		case "id", "role", "content":
		case "name":
			if out.Name == "" {
				r.Stripped[name]++
			}
		default:
			r.Stripped[name]++
		}
	}
	return out, ""
}

func callsTools(m agui.Message) bool {
	for range agui.Elements(m.Get("toolCalls")) {
		return true
	}
	return false
}

// selfCheck encodes the artifact and reads it back as a consumer does.
func (a *Artifact) selfCheck() error {
	b, err := a.Encode()
	if err != nil {
		return err
	}
	_, err = Decode(b)
	return err
}

// RuleOf returns the rule that an error of this package names, or "".
func RuleOf(err error) Rule {
	var e *Error
	if errors.As(err, &e) {
		return e.Rule
	}
	return ""
}
