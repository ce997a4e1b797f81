package cli

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"slices"
	"strconv"
	"strings"
	"time"
	"unicode"

	"charm.land/bubbles/v2/key"
	tea "charm.land/bubbletea/v2"
	"charm.land/lipgloss/v2"
	"github.com/charmbracelet/x/ansi"

	"github.com/skeinhq/skein/pkg/agui"
	"github.com/skeinhq/skein/pkg/fold"
	"github.com/skeinhq/skein/pkg/timeline"
)

// Colours add nothing to marks and underlines, so that the stepper is usable without them.
var (
	boldStyle    = lipgloss.NewStyle().Bold(true)
	faintStyle   = lipgloss.NewStyle().Faint(true)
	newStyle     = lipgloss.NewStyle().Foreground(lipgloss.Green)
	goneStyle    = lipgloss.NewStyle().Foreground(lipgloss.Red)
	changedStyle = lipgloss.NewStyle().Foreground(lipgloss.Yellow)
	tailStyle    = lipgloss.NewStyle().Foreground(lipgloss.Green).Underline(true)
)

const (
	// headLines is the number of lines above the panes: run and step, event, its JSON, titles.
	headLines = 4
	// besideWidth is the least width for panes side by side.
	besideWidth = 100
)

// layout sizes the panes.
func (m *stepper) layout() {
	m.help.SetWidth(m.width)
	room := max(2, m.height-headLines-lipgloss.Height(m.foot()))
	if m.width >= besideWidth {
		left := m.width * 3 / 5
		m.conversation.SetWidth(left - 1)
		m.state.SetWidth(m.width - left)
		m.conversation.SetHeight(room)
		m.state.SetHeight(room)
	} else {
		m.conversation.SetWidth(m.width)
		m.state.SetWidth(m.width)
		lower := max(1, (room-1)/3)
		m.conversation.SetHeight(max(1, room-1-lower))
		m.state.SetHeight(lower)
	}
	m.draw()
}

// draw fills the panes and scrolls to the change.
func (m *stepper) draw() {
	lines, at := conversationLines(m.moment.Messages, m.moment.Change.Messages, m.conversation.Width())
	m.conversation.SetContentLines(lines)
	if at >= 0 {
		m.conversation.EnsureVisible(at, 0, 0)
	}
	lines, at = stateRows(m.moment.State, m.moment.Change.State, m.state.Width())
	m.state.SetContentLines(lines)
	if at >= 0 {
		m.state.EnsureVisible(at, 0, 0)
	}
}

// View implements tea.Model.
func (m *stepper) View() tea.View {
	width := m.width
	lines := []string{
		boldStyle.Render(oneLine(fmt.Sprintf("step %d of %d · run %s: %s · thread %s", m.moment.N, m.total, m.run, m.status, m.thread), width)),
		oneLine(m.event(), width),
		faintStyle.Render(oneLine(string(m.moment.Event)+string(m.moment.Step.Bytes), width)),
	}
	title := func(name string, scrolls bool, width int) string {
		if scrolls {
			name += " ◂"
		}
		return faintStyle.Render(ansi.Truncate("── "+name+" "+strings.Repeat("─", max(0, width)), width, ""))
	}
	var body string
	if width >= besideWidth {
		left, right := m.conversation.Width(), m.state.Width()
		lines = append(lines, title("conversation", !m.onState, left)+" "+title("state", m.onState, right))
		gap := strings.TrimSuffix(strings.Repeat(" \n", m.conversation.Height()), "\n")
		body = lipgloss.JoinHorizontal(lipgloss.Top, m.conversation.View(), gap, m.state.View())
	} else {
		lines = append(lines, title("conversation", !m.onState, width))
		body = m.conversation.View() + "\n" + title("state", m.onState, width) + "\n" + m.state.View()
	}
	v := tea.NewView(strings.Join(append(lines, body, m.foot()), "\n"))
	v.AltScreen = true
	return v
}

// event renders the record of the step.
func (m *stepper) event() string {
	at := m.moment
	what := string(at.Type)
	switch {
	case at.N == 0:
		what = "the start of the run"
	case what == "":
		what = string(at.Kind)
	}
	if at.N > 0 && at.Outcome != fold.Folded {
		what += " (" + string(at.Outcome) + ")"
	}
	if at.Position != nil {
		what += " · at " + at.Position.String()
	}
	if at.Time != nil && !at.Time.IsZero() {
		what += " · " + at.Time.UTC().Format("2006-01-02T15:04:05.000Z")
		if m.previous != nil && !m.previous.IsZero() {
			what += " · +" + at.Time.Sub(*m.previous).Round(time.Millisecond).String()
		}
	}
	if at.Change.Empty() {
		what += " · changes nothing"
	}
	return what
}

// foot renders the lines below the panes.
func (m *stepper) foot() string {
	switch {
	case m.help.ShowAll:
		return m.help.FullHelpView(m.keys.FullHelp())
	case m.loading:
		return "reading …"
	case m.note != "":
		return boldStyle.Render(oneLine(m.note, m.width))
	case m.playing:
		return "playing; " + m.help.ShortHelpView([]key.Binding{m.keys.play, m.keys.faster, m.keys.slower, m.keys.quit})
	}
	return m.help.ShortHelpView(m.keys.ShortHelp())
}

// messageMark is the mark of one message.
type messageMark struct {
	op   timeline.Op
	path string // of the text that was appended
	text string
}

// marksOf returns the marks of the messages after the changes, and the removed messages.
func marksOf(after int, changes []timeline.MessageChange) (marks []messageMark, gone []agui.Message) {
	before := after
	for _, c := range changes {
		switch c.Op {
		case timeline.Add:
			before--
		case timeline.Remove:
			before++
		}
	}
	marks = make([]messageMark, max(0, before))
	for _, c := range changes {
		switch c.Op {
		case timeline.Add:
			marks = slices.Insert(marks, c.Index, messageMark{op: c.Op})
		case timeline.Remove:
			marks = slices.Delete(marks, c.Index, c.Index+1)
			gone = append(gone, c.Message)
		default:
			text := ""
			if c.Op == timeline.Append {
				text = agui.TextOf(c.Text).String()
			}
			marks[c.Index] = messageMark{c.Op, c.Path, text}
		}
	}
	return marks, gone
}

// conversationLines renders the messages with marks, and returns the line of the last change; -1 if there is none.
func conversationLines(messages []agui.Message, changes []timeline.MessageChange, width int) (lines []string, changed int) {
	changed = -1
	marks, gone := marksOf(len(messages), changes)
	names := toolNames{}
	for _, g := range gone {
		m := decodedMessage(g)
		lines = append(lines, goneStyle.Render(oneLine("- "+names.who(m)+" "+m.ID, width)))
		changed = len(lines) - 1
	}
	for i, raw := range messages {
		m, mark := decodedMessage(raw), marks[i]
		sign, style := "  ", boldStyle
		switch mark.op {
		case timeline.Add:
			sign, style = "+ ", newStyle.Bold(true)
		case timeline.Replace, timeline.Append:
			sign, style = "~ ", changedStyle.Bold(true)
		}
		lines = append(lines, style.Render(oneLine(names.who(m), width-2)))
		lines[len(lines)-1] = style.Render(sign) + lines[len(lines)-1]
		text := strings.Split(strings.TrimSuffix(m.text(sign+"  ", width), "\n"), "\n")
		switch mark.op {
		case timeline.Add:
			for i := range text {
				text[i] = newStyle.Render(text[i])
			}
		case timeline.Append:
			markAppended(text, m, mark)
		}
		for _, line := range text {
			if line != "" {
				lines = append(lines, line)
			}
		}
		if mark.op != "" {
			changed = len(lines) - 1
		}
		lines = append(lines, "")
	}
	return lines, changed
}

func decodedMessage(raw agui.Message) message {
	var m message
	if json.Unmarshal(raw.Raw, &m) != nil {
		return message{ID: raw.ID, Role: raw.Role, Content: raw.Raw} // of an unknown form: its JSON is shown
	}
	return m
}

// markAppended marks the appended text in a message's lines: at the end of its content, or of a tool call's arguments, which
// follow the content.
func markAppended(lines []string, m message, mark messageMark) {
	after := "" // the text that follows the appended one
	for i, call := range m.ToolCalls {
		switch own := call.Function.Name + "(" + call.Function.Arguments + ")"; {
		case mark.path == "/toolCalls/"+strconv.Itoa(i)+"/function/arguments":
			after = ")"
		default:
			after += own
		}
	}
	left, skip := visible(mark.text), visible(after)
	for i := len(lines) - 1; i >= 0 && left > 0; i-- {
		runes := []rune(lines[i])
		margin := min(len(runes), 4)
		if len(m.ToolCalls) > 0 && strings.HasPrefix(string(runes[margin:]), "→ ") {
			margin += 2
		}
		to := len(runes)
		for to > margin && skip > 0 {
			if to--; !unicode.IsSpace(runes[to]) {
				skip--
			}
		}
		from := to
		for from > margin && left > 0 {
			if from--; !unicode.IsSpace(runes[from]) {
				left--
			}
		}
		if from < to {
			lines[i] = string(runes[:from]) + tailStyle.Render(string(runes[from:to])) + string(runes[to:])
		}
	}
}

// visible counts the characters that are not spaces, since lines are broken at spaces.
func visible(s string) (n int) {
	for _, r := range printable(s) {
		if !unicode.IsSpace(r) {
			n++
		}
	}
	return n
}

// stateRows renders a state with marks on the lines that a patch changed, and returns the first of these; -1 if there is none.
func stateRows(state, patch json.RawMessage, width int) (lines []string, changed int) {
	var ops []operation
	if len(patch) > 0 && json.Unmarshal(patch, &ops) != nil {
		ops = nil // the state is shown without marks
	}
	changed = -1
	for _, op := range ops {
		if op.Op == "remove" {
			lines = append(lines, goneStyle.Render(oneLine("- "+op.Path, width)))
			changed = 0
		}
	}
	p := &jsonPrinter{ops: ops}
	if err := p.print(state); err != nil {
		return append(lines, oneLine(string(state), width)), changed
	}
	for _, row := range p.rows {
		sign, style := "  ", lipgloss.NewStyle()
		if row.changed {
			sign, style = "~ ", changedStyle
			if changed < 0 {
				changed = len(lines)
			}
		}
		for part := range strings.SplitSeq(strings.TrimSuffix(indent(row.text, sign+row.margin, width), "\n"), "\n") {
			lines = append(lines, style.Render(part))
		}
	}
	return lines, changed
}

// jsonPrinter formats JSON in rows and marks those that a patch changed.
type jsonPrinter struct {
	ops  []operation
	rows []jsonRow
}

type jsonRow struct {
	margin, text string
	changed      bool
}

func (p *jsonPrinter) print(text json.RawMessage) error {
	d := json.NewDecoder(bytes.NewReader(text))
	d.UseNumber() // as they are written
	if err := p.value(d, "", "", ""); err != nil {
		return err
	}
	if _, err := d.Token(); !errors.Is(err, io.EOF) {
		return errors.New("more than one value")
	}
	return nil
}

// value prints the next value, at a path, after its name.
func (p *jsonPrinter) value(d *json.Decoder, path, margin, name string) error {
	t, err := d.Token()
	if err != nil {
		return err
	}
	var closing string
	switch t {
	case json.Delim('{'):
		closing = "}"
	case json.Delim('['):
		closing = "]"
	default:
		p.row(path, margin, name+scalar(t))
		return nil
	}
	p.row(path, margin, name+fmt.Sprint(t))
	for i := 0; d.More(); i++ {
		at, label := path+"/"+strconv.Itoa(i), ""
		if closing == "}" {
			key, err := d.Token()
			if err != nil {
				return err
			}
			at = path + "/" + pointerPart.Replace(fmt.Sprint(key))
			label = scalar(key) + ": "
		}
		if err := p.value(d, at, margin+"  ", label); err != nil {
			return err
		}
	}
	if _, err := d.Token(); err != nil {
		return err
	}
	p.row(path, margin, closing)
	return nil
}

// pointerPart escapes a part of a JSON Pointer (RFC 6901).
var pointerPart = strings.NewReplacer("~", "~0", "/", "~1")

func scalar(t json.Token) string {
	switch t := t.(type) {
	case nil:
		return "null"
	case string:
		return string(agui.AppendString(nil, t))
	default:
		return fmt.Sprint(t)
	}
}

func (p *jsonPrinter) row(path, margin, text string) {
	changed := slices.ContainsFunc(p.ops, func(op operation) bool {
		return op.Op != "remove" && (op.Path == path || strings.HasPrefix(path, op.Path+"/") || op.Path == "")
	})
	p.rows = append(p.rows, jsonRow{margin, text, changed})
}
