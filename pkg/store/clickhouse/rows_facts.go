package clickhouse

import (
	"time"

	"github.com/skeinhq/skein/pkg/store"
)

// toolCallRow is a row of tool_calls.
type toolCallRow struct {
	Tenant        string     `ch:"tenant"`
	ThreadID      string     `ch:"thread_id"`
	RunID         string     `ch:"run_id"`
	Idx           uint32     `ch:"idx"`
	Version       uint64     `ch:"version"`
	ToolCallID    string     `ch:"tool_call_id"`
	Name          string     `ch:"name"`
	MessageID     string     `ch:"message_id"`
	Made          bool       `ch:"made"`
	Agent         string     `ch:"agent"`
	Model         string     `ch:"model"`
	StartedAt     time.Time  `ch:"started_at"`
	ArgumentBytes uint32     `ch:"argument_bytes"`
	Answered      bool       `ch:"answered"`
	ResultBytes   uint32     `ch:"result_bytes"`
	Failed        bool       `ch:"failed"`
	Error         string     `ch:"error"`
	Pending       bool       `ch:"pending"`
	CalledAt      *time.Time `ch:"called_at"`
	Duration      *int64     `ch:"duration_ms"`
}

// interruptRow is a row of interrupts.
type interruptRow struct {
	Tenant      string     `ch:"tenant"`
	ThreadID    string     `ch:"thread_id"`
	RunID       string     `ch:"run_id"`
	Idx         uint32     `ch:"idx"`
	Version     uint64     `ch:"version"`
	InterruptID string     `ch:"interrupt_id"`
	Reason      string     `ch:"reason"`
	Message     string     `ch:"message"`
	ToolCallID  string     `ch:"tool_call_id"`
	Agent       string     `ch:"agent"`
	OpenedAt    time.Time  `ch:"opened_at"`
	ExpiresAt   *time.Time `ch:"expires_at"`
}

// answerRow is a row of answers.
type answerRow struct {
	Tenant      string    `ch:"tenant"`
	ThreadID    string    `ch:"thread_id"`
	RunID       string    `ch:"run_id"`
	Idx         uint32    `ch:"idx"`
	Version     uint64    `ch:"version"`
	InterruptID string    `ch:"interrupt_id"`
	Status      string    `ch:"status"`
	Payload     string    `ch:"payload"`
	AnsweredAt  time.Time `ch:"answered_at"`
}

// addFacts appends the rows of a run's tool calls, interrupts and answers.
func (b *batch) addFacts(e store.Entry) {
	startedAt, updatedAt := timesOf(e.Run)
	c := store.ContentFactsOf(e.Run)
	for i, t := range c.ToolCalls {
		row := &toolCallRow{
			Tenant: e.Tenant, ThreadID: e.ThreadID, RunID: e.RunID, Idx: uint32(i), Version: uint64(e.Version),
			ToolCallID: t.ID, Name: t.Name, MessageID: t.MessageID, Made: t.Made, Agent: e.Run.Agent, Model: c.Model, StartedAt: startedAt,
			ArgumentBytes: uint32(t.ArgumentBytes), Answered: t.Answered, ResultBytes: uint32(t.ResultBytes),
			Failed: t.Failed, Error: t.Error, Pending: t.Pending, Duration: t.DurationMs,
		}
		if t.CalledAt != nil {
			at := clamp(*t.CalledAt)
			row.CalledAt = &at
		}
		b.toolCalls = append(b.toolCalls, row)
	}
	for i, n := range c.Interrupts {
		row := &interruptRow{
			Tenant: e.Tenant, ThreadID: e.ThreadID, RunID: e.RunID, Idx: uint32(i), Version: uint64(e.Version),
			InterruptID: n.ID, Reason: n.Reason, Message: n.Message, ToolCallID: n.ToolCallID, Agent: e.Run.Agent, OpenedAt: updatedAt,
		}
		if n.ExpiresAt != nil {
			at := clamp(*n.ExpiresAt)
			row.ExpiresAt = &at
		}
		b.interrupts = append(b.interrupts, row)
	}
	for i, a := range c.Answers {
		b.answers = append(b.answers, &answerRow{
			Tenant: e.Tenant, ThreadID: e.ThreadID, RunID: e.RunID, Idx: uint32(i), Version: uint64(e.Version),
			InterruptID: a.InterruptID, Status: a.Status, Payload: a.Payload, AnsweredAt: startedAt,
		})
	}
}
