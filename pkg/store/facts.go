package store

import (
	"bytes"
	"crypto/sha256"
	"encoding/binary"
	"encoding/hex"
	"encoding/json"
	"slices"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/skeinhq/skein/pkg/agui"
	"github.com/skeinhq/skein/pkg/record"
)

// The limits of texts in facts; the record and the messages hold the whole text.
const (
	maxPreview      = 200  // characters of Question, Reply and Resumed
	maxErrorCode    = 128  // bytes
	maxErrorMessage = 1024 // bytes
)

// The values of Facts.CancelledBy.
const (
	CancelledByAgent = "agent" // the agent's own RUN_FINISHED says so
	CancelledBySkein = "skein" // Skein's proxy ended the run, as somebody asked for
)

// Facts are what a run record implies and its members do not say directly. They depend on the record alone, so that two
// rebuilds of a store hold the same bytes.
type Facts struct {
	// ErrorCode and ErrorMessage are those of the terminal RUN_ERROR, cut to 128 and 1,024 bytes.
	ErrorCode    string `json:"errorCode,omitempty"`
	ErrorMessage string `json:"errorMessage,omitempty"`
	// CancelledBy is CancelledByAgent, CancelledBySkein, or empty where the run was not cancelled.
	CancelledBy string `json:"cancelledBy,omitempty"`
	// Asked is a hash of the messages at the input's end that the run's base does not have, behind the last one of an
	// assistant: of their roles and contents, not their ids. Empty where there is none. A sibling of a run with an equal
	// Asked is a regeneration, one with another an edit.
	Asked string `json:"asked,omitempty"`
	// Question is the beginning of the last of these messages that a user wrote, Reply of the run's last text.
	Question string `json:"question,omitempty"`
	Reply    string `json:"reply,omitempty"`
	// Resumed is the beginning of the payload that the input's first resume entry has, else that entry's status.
	Resumed string `json:"resumed,omitempty"`
}

// ToolCall is a tool call that a run made, or a result that the run or its input brought for a call of an earlier run.
type ToolCall struct {
	ID        string // the tool call's id
	Name      string // empty of a result
	MessageID string
	// Made: the run made the call. Else it is a result for a call of an earlier run.
	Made bool
	// CalledAt is when the call began on the stream, DurationMs from there to its result on the run's stream, in milliseconds; nil where the record
	// does not say it.
	CalledAt      *time.Time
	DurationMs    *int64
	ArgumentBytes int
	// Answered: the run itself has the result.
	Answered    bool
	ResultBytes int
	// Failed: the result has an error (ToolMessage.error), whose beginning is Error.
	Failed bool
	Error  string
	// Pending: the run ended and named the call as one to be answered by the client.
	Pending bool
}

// Interrupt is an interrupt that a run ended with.
type Interrupt struct {
	ID, Reason, Message, ToolCallID string
	ExpiresAt                       *time.Time
}

// Answer is a resume entry of a run's input.
type Answer struct {
	InterruptID, Status, Payload string
}

// Contents are the rows that a record yields beside its run: in order, each list numbered from 0.
type Contents struct {
	// Model is the model of the run, where its usage names exactly one.
	Model      string
	ToolCalls  []ToolCall
	Interrupts []Interrupt
	Answers    []Answer
}

// FactsOf returns the facts of a whole record.
func FactsOf(r *record.Run) Facts {
	var f Facts
	if member(r.Terminal, "type") == string(agui.RunError) {
		f.ErrorCode = cut(member(r.Terminal, "code"), maxErrorCode)
		f.ErrorMessage = cut(member(r.Terminal, "message"), maxErrorMessage)
	}
	if r.Status == record.StatusCancelled {
		f.CancelledBy = CancelledByAgent
		if r.Synthetic {
			f.CancelledBy = CancelledBySkein
		}
	}
	asked := newMessages(r.InputMessages)
	f.Asked = hashOf(asked)
	for _, m := range slices.Backward(asked) {
		if m.Role == agui.RoleUser {
			f.Question = preview(TextOf(m))
			break
		}
	}
	for _, m := range slices.Backward(r.Messages) {
		if m.Role != agui.RoleAssistant {
			continue
		}
		if text := TextOf(m); text != "" {
			f.Reply = preview(text)
			break
		}
	}
	if len(r.Resumes) > 0 {
		first := r.Resumes[0]
		if f.Resumed = preview(string(agui.Lookup(first, "payload"))); f.Resumed == "" {
			f.Resumed = preview(member(first, "status"))
		}
	}
	return f
}

// newMessages returns what the input brings behind the last message of an agent.
func newMessages(input []agui.Message) []agui.Message {
	from := 0
	for i, m := range input {
		switch m.Role {
		case agui.RoleAssistant, agui.RoleReasoning, agui.RoleActivity:
			from = i + 1
		}
	}
	return input[from:]
}

// hashOf returns 16 hexadecimal digits over roles and contents.
func hashOf(messages []agui.Message) string {
	if len(messages) == 0 {
		return ""
	}
	h := sha256.New()
	part := func(b []byte) {
		var size [4]byte
		binary.BigEndian.PutUint32(size[:], uint32(len(b)))
		_, _ = h.Write(size[:]) // a hash takes everything
		_, _ = h.Write(b)
	}
	for _, m := range messages {
		part([]byte(m.Role))
		part(contentOf(m))
		part([]byte(member(m.Raw, "error")))
	}
	return hex.EncodeToString(h.Sum(nil)[:8])
}

// contentOf returns a message's content, independent of how its JSON was spelled where it is a string.
func contentOf(m agui.Message) []byte {
	content := m.Get("content")
	if text, ok := stringOf(content); ok {
		return agui.AppendString(nil, text)
	}
	return record.Compacted(content)
}

// TextOf returns the text of a message: its content, or the text parts of it by lines.
func TextOf(m agui.Message) string {
	content := m.Get("content")
	if text, ok := stringOf(content); ok {
		return text
	}
	if !agui.IsArray(content) {
		return ""
	}
	var parts []string
	for p := range agui.Elements(content) {
		if member(p, "type") == "text" {
			parts = append(parts, member(p, "text"))
		}
	}
	return strings.Join(parts, "\n")
}

// ContentFactsOf returns the tool calls, interrupts and answers of a record.
func ContentFactsOf(r *record.Run) Contents {
	var c Contents
	if len(r.Stats.Usage) == 1 {
		for model := range r.Stats.Usage {
			c.Model = model
		}
	}
	at := map[string]int{} // of calls made, by id
	for _, m := range r.Messages {
		if m.Role != agui.RoleAssistant || !agui.IsArray(m.Get("toolCalls")) {
			continue
		}
		for call := range agui.Elements(m.Get("toolCalls")) {
			fn := agui.Lookup(call, "function")
			made := ToolCall{
				ID: member(call, "id"), Name: member(fn, "name"), MessageID: m.ID, Made: true, ArgumentBytes: len(member(fn, "arguments")),
			}
			if _, again := at[made.ID]; !again {
				at[made.ID] = len(c.ToolCalls)
				made.time(r)
			}
			c.ToolCalls = append(c.ToolCalls, made)
		}
	}
	brought := map[string]bool{} // ids of messages of the input: those that are new are among the run's own, too
	for _, m := range r.InputMessages {
		brought[m.ID] = true
	}
	var later []ToolCall // results for calls of earlier runs
	for _, m := range r.Messages {
		if m.Role != agui.RoleTool {
			continue
		}
		if i, ok := at[member(m.Raw, "toolCallId")]; ok {
			c.ToolCalls[i].answer(m)
		} else if !brought[m.ID] { // such as of a call that was approved: the run that resumes has its result
			later = append(later, resultOf(m))
		}
	}
	for _, id := range r.PendingToolCalls {
		if i, ok := at[id]; ok {
			c.ToolCalls[i].Pending = true
		}
	}
	for _, m := range newMessages(r.InputMessages) {
		if m.Role == agui.RoleTool {
			later = append(later, resultOf(m))
		}
	}
	c.ToolCalls = append(c.ToolCalls, later...)
	for _, raw := range r.Interrupts {
		i := Interrupt{
			ID: member(raw, "id"), Reason: member(raw, "reason"), Message: cut(member(raw, "message"), maxErrorMessage),
			ToolCallID: member(raw, "toolCallId"),
		}
		if t, err := time.Parse(time.RFC3339, member(raw, "expiresAt")); err == nil {
			t = t.UTC().Truncate(time.Millisecond)
			i.ExpiresAt = &t
		}
		c.Interrupts = append(c.Interrupts, i)
	}
	for _, raw := range r.Resumes {
		c.Answers = append(c.Answers, Answer{
			InterruptID: member(raw, "interruptId"), Status: member(raw, "status"), Payload: string(agui.Lookup(raw, "payload")),
		})
	}
	return c
}

// time notes the times that the record has of the call.
func (t *ToolCall) time(r *record.Run) {
	times := r.Stats.ToolCallTimes[t.ID]
	if len(times) == 0 {
		return
	}
	at := r.StartedAt.Add(time.Duration(times[0]) * time.Millisecond)
	t.CalledAt = &at
	if len(times) > 1 {
		took := times[1] - times[0]
		t.DurationMs = &took
	}
}

// resultOf returns what a tool message says of a call that an earlier run made.
func resultOf(m agui.Message) ToolCall {
	result := ToolCall{ID: member(m.Raw, "toolCallId"), MessageID: m.ID}
	result.answer(m)
	return result
}

// answer notes the result that a tool message is.
func (t *ToolCall) answer(m agui.Message) {
	t.Answered, t.ResultBytes = true, len(TextOf(m))
	if e := m.Get("error"); e != nil {
		t.Failed, t.Error = true, cut(member(m.Raw, "error"), maxErrorMessage)
	}
}

// member returns a member that is a string, decoded, and "" for all else.
func member(raw json.RawMessage, name string) string {
	text, _ := stringOf(agui.Lookup(raw, name))
	return text
}

// stringOf decodes a JSON string, or null, which is empty.
func stringOf(v json.RawMessage) (text string, ok bool) {
	if len(v) >= 2 && v[0] == '"' && bytes.IndexByte(v, '\\') < 0 && utf8.Valid(v) { // most are: encoding/json reads them three times
		return string(v[1 : len(v)-1]), true
	}
	if json.Unmarshal(v, &text) != nil {
		return "", false
	}
	return text, true
}

// cut shortens a text to a number of bytes, at the end of a character.
func cut(s string, most int) string {
	if len(s) <= most {
		return s
	}
	for most > 0 && !utf8.RuneStart(s[most]) {
		most--
	}
	return s[:most]
}

// preview returns the first characters of a text.
func preview(s string) string {
	n := 0
	for i := range s {
		if n++; n > maxPreview {
			return s[:i]
		}
	}
	return s
}
