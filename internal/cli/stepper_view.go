package cli

import (
	"cmp"
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"time"

	"charm.land/bubbles/v2/key"
	"charm.land/bubbles/v2/viewport"
	tea "charm.land/bubbletea/v2"
	"charm.land/lipgloss/v2"
	"github.com/charmbracelet/x/ansi"

	"github.com/skeinhq/skein/pkg/agui"
	"github.com/skeinhq/skein/pkg/timeline"
)

const (
	// headLines is the number of lines above the panes: run and step, event, its JSON, titles.
	headLines = 4
	// besideWidth is the minimum width for showing the panes side by side.
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
	m.state.SetContent(changedState(m.moment.State, m.moment.Change.State, m.state.Width()))
	if len(m.moment.Change.State) > 0 {
		m.state.GotoTop()
	}
}

// View implements tea.Model. Colours only repeat what marks show, so that the stepper is usable without colours.
func (m *stepper) View() tea.View {
	pane := func(name string, scrolls bool, v viewport.Model) string {
		if scrolls {
			name += " ◂"
		}
		title := ansi.Truncate("── "+name+" "+strings.Repeat("─", v.Width()), v.Width(), "")
		return paint(styleFaint, title) + "\n" + v.View()
	}
	conversation, state := pane("conversation", !m.onState, m.conversation), pane("state", m.onState, m.state)
	body := conversation + "\n" + state
	if m.width >= besideWidth {
		gap := strings.TrimSuffix(strings.Repeat(" \n", m.conversation.Height()+1), "\n")
		body = lipgloss.JoinHorizontal(lipgloss.Top, conversation, gap, state)
	}
	v := tea.NewView(strings.Join([]string{
		paint(styleBold, oneLine(fmt.Sprintf("thread %s, run %s: %s", m.thread, m.run, m.status), m.width)),
		oneLine(m.event(), m.width),
		paint(styleFaint, oneLine(string(m.moment.Event)+string(m.moment.Step.Bytes), m.width)),
		body, m.foot(),
	}, "\n"))
	v.AltScreen = true
	return v
}

// event describes the step.
func (m *stepper) event() string {
	line := stepTitle(m.moment.Step, m.total, m.late)
	if m.previous != nil && m.moment.Time != nil {
		line += ", +" + m.moment.Time.Sub(*m.previous).Round(time.Millisecond).String()
	}
	if m.moment.Change.Empty() {
		line += ", changes nothing"
	}
	return line
}

// foot renders the lines below the panes.
func (m *stepper) foot() string {
	switch {
	case m.help.ShowAll:
		return m.help.FullHelpView(m.keys.FullHelp())
	case m.loading:
		return "reading …"
	case m.note != "":
		return paint(styleBold, oneLine(m.note, m.width))
	case m.playing:
		return "playing; " + m.help.ShortHelpView([]key.Binding{m.keys.play, m.keys.faster, m.keys.slower, m.keys.quit})
	}
	return m.help.ShortHelpView(m.keys.ShortHelp())
}

// marksOf returns, for each message after the changes, how it changed ("" if it did not), and the removed messages.
func marksOf(after int, changes []timeline.MessageChange) (marks []timeline.Op, gone []agui.Message) {
	before := after
	for _, c := range changes {
		switch c.Op {
		case timeline.Add:
			before--
		case timeline.Remove:
			before++
		}
	}
	marks = make([]timeline.Op, max(0, before))
	for _, c := range changes {
		switch c.Op {
		case timeline.Add:
			marks = slices.Insert(marks, c.Index, c.Op)
		case timeline.Remove:
			marks = slices.Delete(marks, c.Index, c.Index+1)
			gone = append(gone, c.Message)
		default:
			marks[c.Index] = c.Op
		}
	}
	return marks, gone
}

// conversationLines renders the messages with marks, and returns the line of the last change, or -1 if there is none.
func conversationLines(messages []agui.Message, changes []timeline.MessageChange, width int) (lines []string, changed int) {
	p := differencePrinter{paint: paint, width: width}
	marks, gone := marksOf(len(messages), changes)
	names := toolNames{}
	for _, g := range gone {
		m := decodedMessage(g)
		p.block(styleGone, oneLine("- "+names.who(m)+" "+m.ID, width))
	}
	changed = strings.Count(p.b.String(), "\n") - 1
	for i, raw := range messages {
		m, sign, style := decodedMessage(raw), "  ", ""
		switch marks[i] {
		case timeline.Add:
			sign, style = "+ ", styleNew
		case timeline.Replace, timeline.Append:
			sign, style = "~ ", styleChanged
		}
		p.block(cmp.Or(style, styleBold), sign+oneLine(names.who(m), width-2))
		p.block(style, m.text(sign+"  ", width))
		if marks[i] != "" {
			changed = strings.Count(p.b.String(), "\n") - 1
		}
		p.b.WriteString("\n")
	}
	return strings.Split(strings.TrimSuffix(p.b.String(), "\n"), "\n"), changed
}

func decodedMessage(raw agui.Message) message {
	var m message
	if json.Unmarshal(raw.Raw, &m) != nil {
		return message{ID: raw.ID, Role: raw.Role, Content: raw.Raw} // the form is unknown, so its JSON is shown
	}
	return m
}

// changedState renders the operations of a patch, and the state after it.
func changedState(state, patch json.RawMessage, width int) string {
	p := differencePrinter{paint: paint, width: width}
	var ops []operation
	if json.Unmarshal(patch, &ops) == nil { // otherwise only the state is shown
		p.patch("", ops)
	}
	return p.b.String() + indent(indentedJSON(state), "  ", width)
}
