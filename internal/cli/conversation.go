package cli

import (
	"bytes"
	"cmp"
	"encoding/json"
	"fmt"
	"strings"

	"github.com/skeinhq/skein/pkg/client"
)

// conversation is a history with its messages as commands show them.
type conversation struct {
	client.History
	Messages []message `json:"messages"`
	// moment is the step that is shown, if it is not the run's last.
	moment string
}

type message struct {
	ID, Role, Name           string
	Content                  json.RawMessage
	ActivityType, ToolCallID string
	ToolCalls                []struct {
		ID       string
		Function struct{ Name, Arguments string }
	}
}

// stateLines limits how many lines of a state the text form prints; --json prints all of it.
const stateLines = 40

// text formats each message as a line with its author and its indented text, then the state.
func (c conversation) text(out *output) string {
	var b strings.Builder
	width := out.width()
	head := fmt.Sprintf("thread %s, run %s: %s", oneLine(c.ThreadID, 80), oneLine(c.RunID, 80), cmp.Or(c.moment, string(c.Status)))
	for _, remark := range c.remarks() {
		head += ", " + remark
	}
	fmt.Fprintf(&b, "%s\n", out.bold(head))

	if c.Error != nil {
		b.WriteString(labelled("", "error: ", c.Error.String(), width))
	}
	for _, line := range interruptLines(c.Interrupts) {
		b.WriteString(labelled("", "waits for ", line, width))
	}

	names := toolNames{}
	for _, m := range c.Messages {
		fmt.Fprintf(&b, "\n%s\n%s", out.bold(oneLine(names.who(m), width)), m.text("  ", width))
	}
	fmt.Fprintf(&b, "\n%s\n%s", out.bold("state"), stateText(c.State, width))
	return b.String()
}

// toolNames are the names of tools by the ids of their calls.
type toolNames map[string]string

// who returns the author of a message. Call it for all messages in order, since a tool's name comes from the message that called the tool.
func (t toolNames) who(m message) string {
	for _, call := range m.ToolCalls {
		t[call.ID] = call.Function.Name
	}
	switch {
	case m.Role == "tool" && t[m.ToolCallID] != "":
		return "tool " + t[m.ToolCallID]
	case m.Role == "activity":
		return "activity " + m.ActivityType
	case m.Name != "" && m.Name != m.Role:
		return m.Role + " " + m.Name
	default:
		return m.Role
	}
}

// text returns a message's text and tool calls. Each line begins with the margin.
func (m message) text(margin string, width int) string {
	var b strings.Builder
	if text := contentText(m.Content); text != "" {
		b.WriteString(indent(text, margin, width))
	}
	for _, call := range m.ToolCalls {
		b.WriteString(labelled(margin, "→ ", call.Function.Name+"("+call.Function.Arguments+")", width))
	}
	return b.String()
}

// remarks lists the ways in which the conversation is not exact or complete.
func (c conversation) remarks() []string {
	var out []string
	if c.Basis == "inferred" {
		out = append(out, "starts from a parent that was guessed (no input was given)")
	}
	if c.Status == "running" {
		out = append(out, "still going on")
	}
	if c.Truncated {
		out = append(out, "contents above the record limit were replaced by references")
	}
	if c.RawLost {
		out = append(out, "some events were lost before they were folded")
	}
	return out
}

// contentText returns a message's content as text. For a part that is not text it returns the part's type, with URL or size.
func contentText(content json.RawMessage) string {
	var text string
	if json.Unmarshal(content, &text) == nil {
		return text
	}
	var parts []struct {
		Type, Text string
		Source     struct{ Type, URL, Value, MimeType string }
	}
	if json.Unmarshal(content, &parts) == nil {
		var lines []string
		for _, p := range parts {
			switch {
			case p.Type == "text":
				lines = append(lines, p.Text)
			case p.Source.Type == "url":
				lines = append(lines, fmt.Sprintf("[%s %s]", p.Type, p.Source.Value+p.Source.URL))
			default:
				lines = append(lines, fmt.Sprintf("[%s %s, %d bytes]", p.Type, p.Source.MimeType, len(p.Source.Value)))
			}
		}
		return strings.Join(lines, "\n")
	}
	return string(content)
}

func stateText(state json.RawMessage, width int) string {
	lines := strings.Split(indent(indentedJSON(state), "  ", width), "\n")
	if left := len(lines) - 1 - stateLines; left > 0 {
		lines = append(lines[:stateLines], fmt.Sprintf("  … %d more lines; --json prints all", left), "")
	}
	return strings.Join(lines, "\n")
}

// indentedJSON returns JSON with one line for each member. It returns text that is not JSON unchanged.
func indentedJSON(text json.RawMessage) string {
	var b bytes.Buffer
	if json.Indent(&b, text, "", "  ") != nil {
		return string(text)
	}
	return b.String()
}
