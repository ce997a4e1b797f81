package cli

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"regexp"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	tea "charm.land/bubbletea/v2"
	"github.com/charmbracelet/x/ansi"
	"github.com/charmbracelet/x/vt"
	"github.com/creack/pty"

	"github.com/skeinhq/skein/internal/app"
	"github.com/skeinhq/skein/internal/app/dev"
	"github.com/skeinhq/skein/internal/client"
	"github.com/skeinhq/skein/internal/steps"
	"github.com/skeinhq/skein/pkg/agui"
	"github.com/skeinhq/skein/pkg/fold"
	"github.com/skeinhq/skein/pkg/record"
	"github.com/skeinhq/skein/pkg/timeline"
)

// screen is a pseudo-terminal in which a command runs, and what a person would see of it.
type screen struct {
	*testing.T
	master *os.File
	mu     sync.Mutex
	vt     *vt.Emulator
	raw    strings.Builder
	ended  chan error
}

func newScreen(ctx context.Context, t *testing.T, width int, environ []string, args ...string) *screen {
	t.Helper()
	const height = 30
	master, tty, err := pty.Open()
	if err != nil {
		t.Fatal(err)
	}
	if err := pty.Setsize(master, &pty.Winsize{Cols: uint16(width), Rows: uint16(height)}); err != nil {
		t.Fatal(err)
	}
	s := &screen{T: t, master: master, vt: vt.NewEmulator(width, height), ended: make(chan error, 1)}
	var readers sync.WaitGroup
	readers.Go(func() {
		b := make([]byte, 4096)
		for {
			n, err := master.Read(b)
			s.mu.Lock()
			s.raw.Write(b[:n])
			_, _ = s.vt.Write(b[:n]) // an emulator takes everything
			s.mu.Unlock()
			if err != nil {
				return
			}
		}
	})
	readers.Go(func() { _, _ = io.Copy(master, s.vt) }) // what a terminal answers, until it is closed
	go func() {
		out := newOutput(tty, tty, environ)
		s.ended <- execute(ctx, out, args, environ, tty)
	}()
	t.Cleanup(func() {
		// The emulator's answers end with their pipe (its own Close races with its Read), the reader once nobody holds the terminal.
		answers, ok := s.vt.InputPipe().(io.Closer)
		if !ok {
			t.Fatal("the emulator's answers cannot be ended")
		}
		if err := errors.Join(answers.Close(), tty.Close(), master.Close()); err != nil {
			t.Error(err)
		}
		readers.Wait()
	})
	return s
}

// lines are what is on the screen.
func (s *screen) lines() []string {
	s.mu.Lock()
	defer s.mu.Unlock()
	lines := strings.Split(s.vt.String(), "\n")
	for i := range lines {
		lines[i] = strings.TrimRight(lines[i], " \r")
	}
	return lines
}

// shows waits until the screen shows all of the texts.
func (s *screen) shows(texts ...string) {
	s.Helper()
	deadline := time.Now().Add(20 * time.Second)
	for {
		all := strings.Join(s.lines(), "\n")
		if !slices.ContainsFunc(texts, func(text string) bool { return !strings.Contains(all, text) }) {
			return
		}
		select {
		case err := <-s.ended:
			s.Fatalf("it has ended (%v), and shows\n%s", err, all)
		case <-time.After(10 * time.Millisecond):
		}
		if time.Now().After(deadline) {
			s.Fatalf("it shows\n%s\nand not %q", all, texts)
		}
	}
}

// wrote waits until the command has written a text, and returns all that it has written by then.
func (s *screen) wrote(text string) string {
	s.Helper()
	for deadline := time.Now().Add(20 * time.Second); ; <-time.After(10 * time.Millisecond) {
		s.mu.Lock()
		raw := s.raw.String()
		s.mu.Unlock()
		if strings.Contains(raw, text) {
			return raw
		}
		if time.Now().After(deadline) {
			s.Fatalf("it has not written %q, but %q", text, raw[max(0, len(raw)-300):])
		}
	}
}

func (s *screen) press(keys string) {
	s.Helper()
	if _, err := s.master.WriteString(keys); err != nil {
		s.Fatal(err)
	}
}

// end waits for the end of the command.
func (s *screen) end() error {
	s.Helper()
	select {
	case err := <-s.ended:
		return err
	case <-time.After(20 * time.Second):
		s.Fatalf("it goes on, and shows\n%s", strings.Join(s.lines(), "\n"))
		return nil
	}
}

// A person walks a run in a terminal.
func TestStepper_InATerminal(t *testing.T) {
	onShared(t, func(s *dev.Server, c *client.Client) {
		events := []string{
			in("stepped", eventStart), // 1
			`{"type":"STATE_SNAPSHOT","snapshot":{"cart":{"items":["a"],"total":3},"user":"ada"}}`,                             // 2
			`{"type":"STEP_STARTED","stepName":"think"}`,                                                                       // 3
			`{"type":"TEXT_MESSAGE_START","messageId":"m","role":"assistant"}`,                                                 // 4
			`{"type":"TEXT_MESSAGE_CONTENT","messageId":"m","delta":"Good morning,"}`,                                          // 5
			`{"type":"TEXT_MESSAGE_CONTENT","messageId":"m","delta":" Ada \u001b[2J."}`,                                        // 6
			`{"type":"TEXT_MESSAGE_END","messageId":"m"}`,                                                                      // 7
			`{"type":"STATE_DELTA","delta":[{"op":"replace","path":"/cart/total","value":42},{"op":"remove","path":"/user"}]}`, // 8
		}
		for i := range 300 { // 9 to 308
			events = append(events, fmt.Sprintf(`{"type":"CUSTOM","name":"n","value":%d}`, i))
		}
		events = append(events, `{"type":"TOOL_CALL_CHUNK","toolCallId":"c","toolCallName":"search","delta":"{\"q\":1}"}`, `{"type":"RUN_ERROR","message":"out of tokens"}`)
		if _, err := c.PostEvents(t.Context(), "stepped", "r", client.TypeNDJSON, strings.NewReader(strings.Join(events, "\n"))); err != nil {
			t.Fatal(err)
		}
		if err := s.Settle(t.Context()); err != nil {
			t.Fatal(err)
		}
		start := func(t *testing.T, width int, environ []string, more ...string) *screen {
			return newScreen(t.Context(), t, width, environ, append([]string{"replay", "stepped", "r", "--step", "--url", s.URL()}, more...)...)
		}
		terminal := []string{"TERM=xterm-256color", "COLORTERM=truecolor"}

		t.Run("keys", func(t *testing.T) {
			w := start(t, 120, terminal)
			w.shows("step 0 of 310 · run r: error · thread stepped", "the start of the run", "n/→ next")
			w.press("n")
			w.shows("step 1 of 310", "RUN_STARTED", "changes nothing")
			w.press("\x1b[C") // →
			w.shows("step 2 of 310", "STATE_SNAPSHOT", `~     "total": 3`, `"user": "ada"`)
			w.press("m")
			w.shows("step 4 of 310", "+ assistant")
			w.press("c")
			w.shows("step 5 of 310", "~   Good morning,")
			w.press("c")
			w.shows("step 6 of 310", "~   Good morning, Ada \uFFFD[2J.")
			w.press("c")
			w.shows("step 8 of 310", `~     "total": 42`, "- /user")
			w.press("p")
			w.shows("step 7 of 310", "changes nothing", `      "total": 3`)
			w.press("e")
			w.shows("step 310 of 310", "RUN_ERROR", "out of tokens", `→ search({"q":1})`)
			w.press("e")
			w.shows("no error after this step")
			w.press("n")
			w.shows("the run ends here")
			w.press("p")
			w.shows("step 309 of 310", "+ assistant", `+   → search({"q":1})`)
			w.press("p")
			w.shows("step 308 of 310")
			w.press("g")
			w.shows("step 0 of 310")
			w.press("?")
			w.shows("to an error", "scroll the other pane", "play faster")
			w.press("?G")
			w.shows("step 310 of 310", "n/→ next")
			w.press("q")
			if err := w.end(); err != nil {
				t.Error(err)
			}
			w.wrote("left at step 310 of 310, at " + position(t, s, "stepped", 309))
		})
		t.Run("play", func(t *testing.T) {
			w := start(t, 120, terminal, "--pace", "1000")
			w.shows("step 0 of 310")
			w.press(" ")
			w.shows("playing")
			w.press(" ")
			w.shows("n/→ next")
			if strings.Contains(w.lines()[0], "step 0 of") {
				t.Error("it has not played")
			}
			w.press("++")
			w.shows("plays 4000 times as fast")
			w.press("\x03") // Ctrl-C
			if err := w.end(); err != nil {
				t.Error(err)
			}
		})
		t.Run("a narrow terminal that grows", func(t *testing.T) {
			w := start(t, 60, terminal, "--until", `state.cart.total == 42`)
			w.shows("step 8 of 310", "── conversation", "── state")
			for _, line := range w.lines() {
				if len([]rune(line)) > 60 {
					t.Errorf("%q leaves the screen", line)
				}
			}
			w.mu.Lock()
			w.vt.Resize(130, 20)
			w.mu.Unlock()
			if err := pty.Setsize(w.master, &pty.Winsize{Cols: 130, Rows: 20}); err != nil {
				t.Fatal(err)
			}
			w.press("q")
			if err := w.end(); err != nil {
				t.Error(err)
			}
		})
		t.Run("from a position", func(t *testing.T) {
			w := start(t, 120, terminal, "-o", position(t, s, "stepped", 4))
			w.shows("step 5 of 310", "Good morning,")
			w.press("q")
			if err := w.end(); err != nil {
				t.Error(err)
			}
		})
		t.Run("without colours", func(t *testing.T) {
			w := start(t, 120, append(terminal, "NO_COLOR=1"), "-o", position(t, s, "stepped", 5))
			w.shows("step 6 of 310", "~   Good morning, Ada")
			w.press("q")
			if err := w.end(); err != nil {
				t.Error(err)
			}
			raw := w.wrote("left at step 6")
			for _, colour := range []string{"\x1b[31", "\x1b[32", "\x1b[33", ";31m", ";32m", ";33m"} {
				if strings.Contains(raw, colour) {
					t.Errorf("with NO_COLOR it writes %q", colour)
				}
			}
		})
		t.Run("a signal", func(t *testing.T) {
			ctx, stop := context.WithCancel(t.Context())
			defer stop()
			w := newScreen(ctx, t, 120, terminal, "replay", "stepped", "r", "--step", "--url", s.URL())
			w.shows("step 0 of 310")
			stop()
			if err := w.end(); !errors.Is(err, context.Canceled) {
				t.Errorf("it ends with %v", err)
			}
		})
		t.Run("no terminal", func(t *testing.T) {
			_, stderr, code := skein(t, "", "replay", "stepped", "r", "--step", "--url", s.URL())
			if code != app.ExitUsage || !strings.Contains(stderr, "--step needs a terminal") {
				t.Errorf("exit %d, %s", code, stderr)
			}
			w := newScreen(t.Context(), t, 120, []string{"TERM=dumb"}, "replay", "stepped", "r", "--step", "--url", s.URL())
			if err := w.end(); app.ExitCode(err) != app.ExitUsage {
				t.Errorf("on a dumb terminal it ends with %v", err)
			}
		})
		t.Run("a run that is not there", func(t *testing.T) {
			w := newScreen(t.Context(), t, 120, terminal, "replay", "stepped", "q", "--step", "--url", s.URL())
			if err := w.end(); app.ExitCode(err) != app.ExitNotFound {
				t.Errorf("it ends with %v", err)
			}
		})
	})
}

// short is a run of which the server gives few steps at a time.
type short struct {
	total, most int
	asked       int
	open        bool
}

func (s *short) Page(_ context.Context, from, limit int) (*steps.Page, error) {
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
		m := newStepper(t.Context(), source, 1)
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
		if len(m.pages) > stepPages {
			t.Errorf("it holds %d pages", len(m.pages))
		}
	}
}

// underlined is text that has an underline.
var underlined = regexp.MustCompile(`\x1b\[(?:[0-9;]*;)?4(?:;[0-9;]*)?m([^\x1b]*)\x1b\[m`)

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
		"appended": {[]agui.Message{text}, []timeline.MessageChange{{Op: timeline.Append, Path: "/content", Text: []byte(`"ee four five six"`)}}, []string{"~ assistant", "~   one two thr<ee four>", "~   <five six>"}, 2},
		"arguments": {[]agui.Message{text, calls}, []timeline.MessageChange{{Op: timeline.Append, Index: 1, Path: "/toolCalls/0/function/arguments", Text: []byte(`":1}"`)}},
			[]string{"  assistant", "    one two three four", "    five six", "", "~ assistant", `~   → f({"a"<:1}>)`, "~   → g({})"}, 6},
		"added behind one that went": {[]agui.Message{text}, []timeline.MessageChange{{Op: timeline.Remove, Message: calls}, {Op: timeline.Add, Message: text}},
			[]string{"- assistant b", "+ assistant", "+   one two three four", "+   five six"}, 3},
	} {
		lines, at := conversationLines(c.messages, c.changes, 22)
		for i, line := range lines {
			line = underlined.ReplaceAllString(line, "<$1>")
			line = strings.ReplaceAll(line, "><", "")
			lines[i] = ansi.Strip(line)
		}
		if got := lines[:len(lines)-1]; !slices.Equal(got, c.want) || at != c.at {
			t.Errorf("%s: line %d of\n%s\nwant line %d of\n%s", name, at, strings.Join(got, "\n"), c.at, strings.Join(c.want, "\n"))
		}
	}
}

func TestStateRows_MarkWhatChanged(t *testing.T) {
	for _, c := range []struct {
		state, patch string
		want         []string
		at           int
	}{
		{`{"a":{"b":[1,{"c":"x"}]},"big":12345678901234567890,"n":1.50}`, `[]`,
			[]string{"  {", `    "a": {`, `      "b": [`, "        1", "        {", `          "c": "x"`, "        }", "      ]", "    }", `    "big": 12345678901234567890`, `    "n": 1.50`, "  }"}, -1},
		{`{"a":{"b/c~":1},"ab":2}`, `[{"op":"replace","path":"/a/b~1c~0","value":1},{"op":"remove","path":"/gone"}]`,
			[]string{"- /gone", "  {", `    "a": {`, `~     "b/c~": 1`, "    }", `    "ab": 2`, "  }"}, 0},
		{`{"a":{"b":1}}`, `[{"op":"add","path":"/a","value":{"b":1}}]`, []string{"  {", `~   "a": {`, `~     "b": 1`, "~   }", "  }"}, 1},
		{`null`, `[{"op":"replace","path":"","value":null}]`, []string{"~ null"}, 0},
		{`"\u001b[2J<b>"`, `[]`, []string{`  "\u001b[2J<b>"`}, -1},
		{``, ``, []string{""}, -1},
	} {
		lines, at := stateRows([]byte(c.state), []byte(c.patch), 60)
		for i := range lines {
			lines[i] = ansi.Strip(lines[i])
		}
		if !slices.Equal(lines, c.want) || at != c.at {
			t.Errorf("%s by %s: line %d of\n%s\nwant line %d of\n%s", c.state, c.patch, at, strings.Join(lines, "\n"), c.at, strings.Join(c.want, "\n"))
		}
	}
}
