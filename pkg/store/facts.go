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

// The limits of texts in facts. The record and the messages have the whole texts.
const (
	maxPreview      = 200  // characters of Question, Reply and Resumed
	maxErrorCode    = 128  // bytes
	maxErrorMessage = 1024 // bytes
)

// The values of Facts.CancelledBy.
const (
	CancelledByAgent  = "agent"  // by the agent's RUN_FINISHED
	CancelledBySkein  = "skein"  // by Skein's proxy, on request
	CancelledByCaller = "caller" // by Skein's proxy, after its caller had left
)

// Facts are derived from a run record. They depend on the record only, so that two rebuilds of a store have the same bytes.
type Facts struct {
	// ErrorCode and ErrorMessage are those of the run's RUN_ERROR, cut to 128 and 1,024 bytes.
	ErrorCode    string `json:"errorCode,omitempty"`
	ErrorMessage string `json:"errorMessage,omitempty"`
	// CancelledBy is one of the values above; empty if the run was not cancelled.
	CancelledBy string `json:"cancelledBy,omitempty"`
	// Asked is a hash over the new messages of the input: of those that the run's base lacks, the ones after an agent's last message. It
	// is empty if there are none. A sibling with an equal Asked is a regeneration, one with another Asked an edit.
	Asked string `json:"asked,omitempty"`
	// Question is the beginning of the last user message among the new ones, Reply that of the run's last assistant text.
	Question string `json:"question,omitempty"`
	Reply    string `json:"reply,omitempty"`
	// Resumed is the beginning of the first resume entry's payload, or that entry's status if it has no payload.
	Resumed string `json:"resumed,omitempty"`
}

// ToolCall is a tool call of a run, or a result of an earlier run's call that is in the run or its input.
type ToolCall struct {
	ID        string // the tool call's id
	Name      string // empty for a result
	MessageID string
	// Made is true for a call of this run, false for a result of an earlier run's call.
	Made bool
	// CalledAt is when the call began. DurationMs is the time from then to the result in the same run, in milliseconds. Each is nil if
	// the record lacks it.
	CalledAt      *time.Time
	DurationMs    *int64
	ArgumentBytes int
	// Answered means that the run has the result.
	Answered    bool
	ResultBytes int
	// Failed means that the result has an error (ToolMessage.error). Error is the beginning of that error.
	Failed bool
	Error  string
	// Pending means that the run ended before the client had answered the call.
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

// Contents are the tool calls, interrupts and answers of a record, in order.
type Contents struct {
	// Model is the run's model if its usage names exactly one.
	Model      string
	ToolCalls  []ToolCall
	Interrupts []Interrupt
	Answers    []Answer
}

// FactsOf returns the facts of a whole record.
func FactsOf(r *record.Run) Facts {
	var f Facts
	if end := r.LastEnd(); member(end, "type") == string(agui.RunError) {
		f.ErrorCode = cut(member(end, "code"), maxErrorCode)
		f.ErrorMessage = cutError(member(end, "message"))
	}
	if r.Status == record.StatusCancelled {
		switch f.CancelledBy = CancelledByAgent; {
		case r.Stopped():
			f.CancelledBy = CancelledBySkein
		case r.Synthetic:
			f.CancelledBy = CancelledByCaller
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

// newMessages returns the input's messages after the last one of an agent.
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

// contentOf returns a message's content as JSON in a canonical form.
func contentOf(m agui.Message) []byte {
	content := m.Get("content")
	if text, ok := stringOf(content); ok {
		return agui.AppendString(nil, text)
	}
	return record.Compacted(content)
}

// TextOf returns the text of a message: its content, or its text parts joined by line feeds.
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

// ErrorTexts returns the message of the RUN_ERROR that ended a run, and the errors of its tool messages, as messages; stores write them for
// searches.
func ErrorTexts(r *record.Run) []agui.Message {
	var all []agui.Message
	add := func(text string) {
		raw := append(agui.AppendString([]byte(`{"id":"error","role":"error","content":`), text), '}')
		all = append(all, agui.Message{ID: "error", Role: "error", Raw: raw})
	}
	if end := r.LastEnd(); member(end, "type") == string(agui.RunError) {
		add(member(end, "message"))
	}
	for _, messages := range [][]agui.Message{r.Messages, r.InputMessages} {
		for _, m := range messages {
			if m.Role != agui.RoleTool {
				continue
			}
			if text := member(m.Raw, "error"); text != "" {
				add(text)
			}
		}
	}
	return all
}

// ContentFactsOf returns the tool calls, interrupts and answers of a record.
func ContentFactsOf(r *record.Run) Contents {
	var c Contents
	if models := modelsOf(r); len(models) == 1 {
		c.Model = models[0]
	}
	at := map[string]int{} // index in c.ToolCalls of each call made, by id
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
	ofInput := map[string]bool{} // ids of the input's messages; new ones are also among the run's own
	for _, m := range r.InputMessages {
		ofInput[m.ID] = true
	}
	var later []ToolCall // results for calls of earlier runs
	for _, m := range r.Messages {
		if m.Role != agui.RoleTool {
			continue
		}
		if i, ok := at[member(m.Raw, "toolCallId")]; ok {
			c.ToolCalls[i].answer(m)
		} else if !ofInput[m.ID] { // for example of an approved call, whose result is in the run that resumes
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

// time sets the call's times from the record.
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

// resultOf returns a tool message as a result of an earlier run's call.
func resultOf(m agui.Message) ToolCall {
	result := ToolCall{ID: member(m.Raw, "toolCallId"), MessageID: m.ID}
	result.answer(m)
	return result
}

// answer sets the result from a tool message.
func (t *ToolCall) answer(m agui.Message) {
	t.Answered, t.ResultBytes = true, len(TextOf(m))
	if e := m.Get("error"); e != nil {
		t.Failed, t.Error = true, cutError(member(m.Raw, "error"))
	}
}

// member returns a string member, decoded; "" for another type.
func member(raw json.RawMessage, name string) string {
	text, _ := stringOf(agui.Lookup(raw, name))
	return text
}

// stringOf decodes a JSON string. null is empty.
func stringOf(v json.RawMessage) (text string, ok bool) {
	if len(v) >= 2 && v[0] == '"' && bytes.IndexByte(v, '\\') < 0 && utf8.Valid(v) { // json.Unmarshal scans the text three times
		return string(v[1 : len(v)-1]), true
	}
	if json.Unmarshal(v, &text) != nil {
		return "", false
	}
	return text, true
}

// cut shortens a text to at most n bytes, at the end of a character.
func cut(s string, n int) string {
	if len(s) <= n {
		return s
	}
	for n > 0 && !utf8.RuneStart(s[n]) {
		n--
	}
	return s[:n]
}

// cutError shortens an error's text. Of several lines it keeps both ends: a Python traceback says at its end what went wrong, stacks of
// other languages at their beginning.
func cutError(s string) string {
	if len(s) <= maxErrorMessage || !strings.Contains(s, "\n") {
		return cut(s, maxErrorMessage)
	}
	const gap = "\n…\n"
	from := len(s) - (maxErrorMessage-len(gap))/2
	for !utf8.RuneStart(s[from]) {
		from++
	}
	return cut(s, (maxErrorMessage-len(gap))/2) + gap + s[from:]
}

// preview returns the first maxPreview characters of a text.
func preview(s string) string {
	n := 0
	for i := range s {
		if n++; n > maxPreview {
			return s[:i]
		}
	}
	return s
}
