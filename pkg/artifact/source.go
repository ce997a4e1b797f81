package artifact

import (
	"errors"
	"time"

	"github.com/skeinhq/skein/pkg/agui"
)

// Projection is the name of the only projection of version 1: of a list of messages those with role
// developer, system, assistant, user or tool and text as content, with id, role, content and name.
const Projection = "text-messages-v1"

// Report says what a projection has left out. It goes beside an artifact, never into it.
type Report struct {
	Projection string `json:"projection"`
	// Messages are those in the artifact.
	Messages int `json:"messages"`
	// LeftOut counts messages by reason: no-text (such as an assistant's that only calls tools),
	// content-parts, or the role, such as activity.
	LeftOut map[string]int `json:"leftOut"`
	// Stripped counts members of kept messages by name, such as toolCalls.
	Stripped map[string]int `json:"stripped"`
	// Events counts the events of a capture that are not part of the envelope, by type.
	Events map[agui.Type]int `json:"events,omitempty"`
	// StartedAtFrom says where the time comes from: option, event or record.
	StartedAtFrom string `json:"startedAtFrom"`
}

// The values of Report.StartedAtFrom.
const (
	FromOption = "option"
	FromEvent  = "event"
	FromRecord = "record"
)

// Captured is one event of a capture.
type Captured struct {
	Raw []byte
	// At is the time of the Kafka record, zero where the capture has none.
	At time.Time
}

// FromEnvelope projects a captured envelope: the events of one run, among them exactly one RUN_STARTED,
// one MESSAGES_SNAPSHOT and one terminal event, in whatever order. All others are dropped and counted.
// startedAt is used where it is not zero. The error is an *Error.
func FromEnvelope(events []Captured, startedAt time.Time) (*Artifact, *Report, error) {
	report := &Report{Events: map[agui.Type]int{}}
	var start, snapshot, end envelopeEvent
	for i, c := range events {
		ev, err := agui.Decode(c.Raw)
		if err != nil {
			return nil, nil, refuse(RuleEvent, at("events", i), "%v", err)
		}
		switch ev.Type {
		case agui.RunStarted:
			start.take(ev, c.At)
		case agui.MessagesSnapshot:
			snapshot.take(ev, c.At)
		case agui.RunFinished, agui.RunError:
			end.take(ev, c.At)
		default:
			report.Events[ev.Type]++
		}
	}
	for _, e := range []struct {
		envelopeEvent
		rule Rule
		what string
	}{
		{start, RuleStarted, "RUN_STARTED"}, {snapshot, RuleSnapshot, "MESSAGES_SNAPSHOT"},
		{end, RuleTerminals, "RUN_FINISHED or RUN_ERROR"},
	} {
		if e.n != 1 {
			return nil, nil, refuse(e.rule, "events", "there are %d %s, an envelope has one", e.n, e.what)
		}
	}
	if end.ev.Type == agui.RunFinished && end.ev.RunID != start.ev.RunID {
		return nil, nil, refuse(RuleRunMismatch, "events", "RUN_STARTED names run %.80q, RUN_FINISHED run %.80q", start.ev.RunID, end.ev.RunID)
	}
	r := Run{
		ThreadID: start.ev.ThreadID, RunID: start.ev.RunID, ParentRunID: start.ev.ParentRunID,
		Messages: snapshot.ev.Messages(), Terminal: end.ev, FinishedAt: end.time(),
	}
	r.StartedAt, report.StartedAtFrom = start.time(), FromEvent
	if !start.ev.HasTimestamp {
		report.StartedAtFrom = FromRecord
	}
	return project(r, startedAt, report)
}

type envelopeEvent struct {
	ev *agui.Event
	at time.Time
	n  int
}

func (e *envelopeEvent) take(ev *agui.Event, at time.Time) { e.ev, e.at, e.n = ev, at, e.n+1 }

// time is the event's timestamp, else the Kafka record's.
func (e *envelopeEvent) time() time.Time {
	if e.ev.HasTimestamp {
		return time.UnixMilli(e.ev.Timestamp)
	}
	return e.at
}

// Run is a folded run as its record tells it.
type Run struct {
	ThreadID, RunID, ParentRunID string
	// StartedAt and FinishedAt are zero where they are not known.
	StartedAt, FinishedAt time.Time
	// Messages are its history, whole.
	Messages []agui.Message
	// Terminal is its terminal event; nil for a run that has none, or one that Skein has made up.
	Terminal *agui.Event
	// Truncated says that the record lacks content.
	Truncated bool
}

// FromRun projects a folded run's history. startedAt is used where it is not zero. The error is an *Error.
func FromRun(r Run, startedAt time.Time) (*Artifact, *Report, error) {
	return project(r, startedAt, &Report{StartedAtFrom: FromRecord})
}

func project(r Run, startedAt time.Time, report *Report) (*Artifact, *Report, error) {
	if r.Terminal == nil {
		return nil, nil, refuse(RuleOpen, "run", "it has not ended by an event of its agent")
	}
	if r.Truncated {
		return nil, nil, refuse(RuleTruncated, "run", "its record has not all of its content")
	}
	report.Projection, report.LeftOut, report.Stripped = Projection, map[string]int{}, map[string]int{}
	a := &Artifact{
		ThreadIDRef: r.ThreadID, RunIDRef: r.RunID, ParentRunIDRef: r.ParentRunID,
		StartedAt: r.StartedAt, FinishedAt: r.FinishedAt, TerminalEvent: r.Terminal.Type, Messages: []Message{},
	}
	if !startedAt.IsZero() {
		a.StartedAt, report.StartedAtFrom = startedAt, FromOption
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

// keep returns what an artifact has of a message, or why it has nothing.
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
	if out.Content == "" && agui.IsArray(m.Get("toolCalls")) {
		return Message{}, "no-text"
	}
	if name := m.Get("name"); agui.IsString(name) {
		out.Name = agui.TextOf(name).String()
	}
	for name := range agui.Members(m.Raw) {
		switch name {
		case "id", "role", "content", "name":
		default:
			r.Stripped[name]++
		}
	}
	return out, ""
}

// selfCheck reads the artifact back as a consumer would.
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
