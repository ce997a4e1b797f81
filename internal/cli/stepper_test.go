package cli

import (
	"context"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"
	"testing"

	tea "charm.land/bubbletea/v2"
	"github.com/charmbracelet/x/ansi"
	"github.com/creack/pty"

	"github.com/skeinhq/skein/internal/app"
	"github.com/skeinhq/skein/internal/app/dev"
	"github.com/skeinhq/skein/internal/steps"
	"github.com/skeinhq/skein/pkg/agui"
	"github.com/skeinhq/skein/pkg/client"
	"github.com/skeinhq/skein/pkg/fold"
	"github.com/skeinhq/skein/pkg/record"
	"github.com/skeinhq/skein/pkg/timeline"
)

// short is a run of which the server gives few steps at a time.
type short struct {
	total, most int
	asked       int
	open        bool
}

func (s *short) page(_ context.Context, from, limit int) (*steps.Page, error) {
	s.asked++
	if from < 0 || from > s.total {
		return nil, fmt.Errorf("there is no step %d", from)
	}
	p := &steps.Page{ThreadID: "t", RunID: "r", Status: record.StatusFinished, Total: s.total, State: fmt.Appendf(nil, `{"n":%d}`, max(0, from-1))}
	if s.open {
		p.Status = record.StatusRunning
	}
	for n := from; n <= s.total && n < from+min(limit, s.most); n++ {
		p.Steps = append(p.Steps, steps.Step{N: n, Kind: record.KindEvent, Type: "CUSTOM", Outcome: fold.Folded,
			Change: timeline.Change{State: fmt.Appendf(nil, `[{"op":"replace","path":"/n","value":%d}]`, n)}})
	}
	return p, nil
}

// drive gives a stepper keys, and what comes of them, as a program would.
func drive(m *stepper, keys ...string) {
	for _, k := range keys {
		msg := tea.KeyPressMsg(tea.Key{Code: []rune(k)[0], Text: k})
		for cmd := m.press(msg); cmd != nil; {
			_, cmd = m.Update(cmd())
		}
	}
}

func TestStepper_GoesThroughShortPages(t *testing.T) {
	for _, most := range []int{1, 3, 250, 1000} {
		source := &short{total: 700, most: most}
		m := newStepper(t.Context(), source.page, 1)
		m.Update(m.load(0)())
		m.goTo(0)
		at := func(n int) {
			t.Helper()
			if m.moment.N != n || string(m.moment.State) != fmt.Sprintf(`{"n":%d}`, n) {
				t.Fatalf("with %d a page it is at %d, with the state %s, want %d", most, m.moment.N, m.moment.State, n)
			}
		}
		at(0)
		for n := range 300 {
			drive(m, "n")
			at(n + 1)
		}
		for n := 300; n > 0; n-- {
			drive(m, "p")
			at(n - 1)
		}
		drive(m, "p")
		at(0)
		drive(m, "G")
		at(700)
		drive(m, "p", "p")
		at(698)
		drive(m, "c")
		at(699)
		drive(m, "e")
		at(699)
		if m.note != "no error after this step" {
			t.Errorf("it says %q", m.note)
		}
		drive(m, "n", "n")
		at(700)
		source.open = true
		m.status = record.StatusRunning
		source.total = 702
		drive(m, "n", "n", "n")
		at(702)
		if m.note == "" {
			t.Error("it does not say that the run goes on")
		}
		if most == 1000 && source.asked > 40 {
			t.Errorf("it has asked %d times", source.asked)
		}
	}
}

func TestConversationLines_MarkWhatChanged(t *testing.T) {
	raw := func(id, role, rest string) agui.Message {
		return agui.Message{ID: id, Role: role, Raw: fmt.Appendf(nil, `{"id":%q,"role":%q,%s}`, id, role, rest)}
	}
	text := raw("a", "assistant", `"content":"one two three four five six"`)
	calls := raw("b", "assistant", `"toolCalls":[{"id":"1","function":{"name":"f","arguments":"{\"a\":1}"}},{"id":"2","function":{"name":"g","arguments":"{}"}}]`)
	for name, c := range map[string]struct {
		messages []agui.Message
		changes  []timeline.MessageChange
		want     []string
		at       int
	}{
		"nothing":  {[]agui.Message{text}, nil, []string{"  assistant", "    one two three four", "    five six"}, -1},
		"appended": {[]agui.Message{text}, []timeline.MessageChange{{Op: timeline.Append, Path: "/content", Text: []byte(`"ee four five six"`)}}, []string{"~ assistant", "~   one two three four", "~   five six"}, 2},
		"added behind one that went": {[]agui.Message{text},
			[]timeline.MessageChange{{Op: timeline.Remove, Message: calls}, {Op: timeline.Add, Message: text}},
			[]string{"- assistant b", "+ assistant", "+   one two three four", "+   five six"}, 3},
	} {
		lines, at := conversationLines(c.messages, c.changes, 22)
		for i, line := range lines {
			lines[i] = ansi.Strip(line)
		}
		if got := lines[:len(lines)-1]; !slices.Equal(got, c.want) || at != c.at {
			t.Errorf("%s: line %d of\n%s\nwant line %d of\n%s", name, at, strings.Join(got, "\n"), c.at, strings.Join(c.want, "\n"))
		}
	}
}

func TestChangedState_ListsTheChangesFirst(t *testing.T) {
	for _, c := range []struct{ state, patch, want string }{
		{`{"big":12345678901234567890,"n":1.50}`, `[]`, "  {\n    \"big\": 12345678901234567890,\n    \"n\": 1.50\n  }\n"},
		{`{}`, `[{"op":"replace","path":"/a","value":1},{"op":"remove","path":"/gone"}]`, "~ /a = 1\n- /gone\n  {}\n"},
		{`"\u001b[2J<b>"`, ``, `  "\u001b[2J<b>"` + "\n"},
		{``, ``, "\n"},
	} {
		if got := ansi.Strip(changedState([]byte(c.state), []byte(c.patch), 60)); got != c.want {
			t.Errorf("%s by %s:\n%s\nwant\n%s", c.state, c.patch, got, c.want)
		}
	}
}

// A person walks a run in a terminal, and leaves with the line that says at which step.
func TestStepper_InATerminal(t *testing.T) {
	onShared(t, func(s *dev.Server, c *client.Client) {
		if _, err := c.PostEvents(t.Context(), "stepped", "r", client.TypeNDJSON,
			strings.NewReader(in("stepped", eventStart+"\n"+eventText+"\n"+eventEnd))); err != nil {
			t.Fatal(err)
		}
		if err := s.Settle(t.Context()); err != nil {
			t.Fatal(err)
		}
		step := []string{"replay", "stepped", "r", "--step", "--url", s.URL()}
		if _, stderr, code := skein(t, "", step...); code != app.ExitUsage || !strings.Contains(stderr, "--step needs a terminal") {
			t.Errorf("without a terminal: exit %d, %s", code, stderr)
		}
		master, tty, err := pty.Open()
		if err != nil {
			t.Fatal(err)
		}
		ended := make(chan error, 1)
		go func() {
			err := execute(t.Context(), newOutput(tty, tty, []string{"TERM=xterm-256color"}), step, tty)
			ended <- errors.Join(err, tty.Close())
		}()
		if _, err := master.WriteString("nnq"); err != nil {
			t.Fatal(err)
		}
		said, _ := io.ReadAll(master) // up to the error of a terminal that nobody holds
		if err := <-ended; err != nil || !strings.Contains(string(said), "left at step 2 of 3, at ") {
			t.Errorf("%v: it has written %q", err, said)
		}
		if err := master.Close(); err != nil {
			t.Error(err)
		}
	})
}

// A RUN_ERROR after the end is no step: the last one names it.
func TestStepTitle_SaysThatTheRunFailedLater(t *testing.T) {
	late := &record.LateError{Event: []byte(`{"type":"RUN_ERROR","message":"flush failed","code":"FLUSH"}`)}
	at := func(n int) string {
		return stepTitle(steps.Step{N: n, Type: agui.RunFinished, Outcome: fold.Folded}, 2, late)
	}
	if got := at(2); got != "step 2 of 2: RUN_FINISHED; later the run failed: flush failed (FLUSH)" {
		t.Error(got)
	}
	if got := at(1); strings.Contains(got, "failed") {
		t.Error(got)
	}
}
