package cli

import (
	"context"
	"fmt"
	"io"
	"slices"
	"time"

	"charm.land/bubbles/v2/help"
	"charm.land/bubbles/v2/key"
	"charm.land/bubbles/v2/viewport"
	tea "charm.land/bubbletea/v2"

	"github.com/skeinhq/skein/internal/steps"
	"github.com/skeinhq/skein/pkg/agui"
	"github.com/skeinhq/skein/pkg/fold"
	"github.com/skeinhq/skein/pkg/record"
	"github.com/skeinhq/skein/pkg/replay"
	"github.com/skeinhq/skein/pkg/timeline"
)

const (
	// stepsPage is the number of steps in one request.
	stepsPage = 200
	// These bound the pause between two steps during a play.
	minPlayPause = 30 * time.Millisecond
	maxPlayPause = 2 * time.Second
)

// stepThrough runs the stepper in the terminal, starting at the step numbered from.
func stepThrough(ctx context.Context, out *output, in io.Reader, source steps.Source, from int, pace replay.Pace) error {
	m := newStepper(ctx, source, pace)
	loaded := m.load(from)()
	if err := loaded.(pageLoaded).err; err != nil {
		return err
	}
	m.Update(loaded)
	m.goTo(from)
	p := tea.NewProgram(m, tea.WithInput(in), tea.WithOutput(out.terminal()), tea.WithEnvironment(out.environ), tea.WithoutSignalHandler())
	stop := context.AfterFunc(ctx, p.Quit) // tea.WithContext would leave its goroutine reading the terminal
	defer stop()
	if _, err := p.Run(); err != nil {
		return fmt.Errorf("drawing on the terminal: %w", err)
	}
	if err := ctx.Err(); err != nil {
		return err
	}
	if m.moment.Position != nil {
		out.note("left at step %d of %d, at %s", m.moment.N, m.total, m.moment.Position)
	}
	return nil
}

// stepKeys are the keys of the stepper.
type stepKeys struct {
	next, previous, change, message, failure, play, first, last, faster, slower, up, down, pane, help, quit key.Binding
}

func newStepKeys() stepKeys {
	bind := func(help, what string, keys ...string) key.Binding {
		return key.NewBinding(key.WithKeys(keys...), key.WithHelp(help, what))
	}
	return stepKeys{
		next:     bind("n/→", "next", "n", "right", "l"),
		previous: bind("p/←", "previous", "p", "left", "h"),
		change:   bind("c", "next change", "c"),
		message:  bind("m", "next message", "m"),
		failure:  bind("e", "to an error", "e"),
		play:     bind("space", "play/pause", "space"),
		faster:   bind("+", "play faster", "+", "="),
		slower:   bind("-", "play slower", "-"),
		first:    bind("g", "start", "g", "home"),
		last:     bind("G", "end", "G", "end"),
		up:       bind("k/↑", "scroll up", "k", "up", "pgup"),
		down:     bind("j/↓", "scroll down", "j", "down", "pgdown"),
		pane:     bind("tab", "scroll the other pane", "tab"),
		help:     bind("?", "help", "?"),
		quit:     bind("q", "quit", "q", "esc", "ctrl+c"),
	}
}

// ShortHelp implements help.KeyMap.
func (k stepKeys) ShortHelp() []key.Binding {
	return []key.Binding{k.next, k.previous, k.change, k.message, k.failure, k.play, k.help, k.quit}
}

// FullHelp implements help.KeyMap.
func (k stepKeys) FullHelp() [][]key.Binding {
	return [][]key.Binding{
		{k.next, k.previous, k.first, k.last}, {k.change, k.message, k.failure}, {k.play, k.faster, k.slower},
		{k.up, k.down, k.pane}, {k.help, k.quit},
	}
}

// stepper is the tea.Model that shows a run step by step. It holds one page of steps and loads another one when necessary.
type stepper struct {
	ctx    context.Context
	source steps.Source
	keys   stepKeys
	help   help.Model

	page         []steps.Moment
	thread, run  string
	status       record.Status
	total        int
	late         *record.LateError
	moment       steps.Moment // on the screen
	previous     *time.Time   // the time of the step before it
	loading      bool
	seek         *seek // the search that waits for a page; nil if none
	playing      bool
	played       int // counts plays, so that ticks of earlier ones are ignored
	pace         replay.Pace
	note         string
	conversation viewport.Model
	state        viewport.Model
	onState      bool // keys scroll the state, not the conversation
	width        int
	height       int
}

// pageLoaded is sent when a page was loaded.
type pageLoaded struct {
	page    *steps.Page
	moments []steps.Moment
	err     error
}

// playTick is sent when the next step of a play is due.
type playTick int

// seek is a search for the first step, at or after the step numbered next, for which accepts returns true.
type seek struct {
	what    string
	next    int
	accepts func(steps.Moment) bool
}

func newStepper(ctx context.Context, source steps.Source, pace replay.Pace) *stepper {
	m := &stepper{
		ctx: ctx, source: source, keys: newStepKeys(), help: help.New(), pace: pace,
		conversation: viewport.New(), state: viewport.New(), width: defaultWidth, height: 30,
	}
	m.layout()
	return m
}

// Init implements tea.Model.
func (m *stepper) Init() tea.Cmd { return nil }

// Update implements tea.Model.
func (m *stepper) Update(msg tea.Msg) (tea.Model, tea.Cmd) {
	switch msg := msg.(type) {
	case tea.WindowSizeMsg:
		m.width, m.height = msg.Width, msg.Height
		m.layout()
		return m, nil
	case pageLoaded:
		return m, m.loaded(msg)
	case playTick:
		if !m.playing || int(msg) != m.played {
			return m, nil
		}
		return m, m.step()
	case tea.KeyPressMsg:
		return m, m.press(msg)
	}
	return m, nil
}

func (m *stepper) press(msg tea.KeyPressMsg) tea.Cmd {
	k := m.keys
	if key.Matches(msg, k.quit) {
		return tea.Quit
	}
	if !key.Matches(msg, k.faster, k.slower, k.help, k.up, k.down, k.pane, k.play) {
		m.playing = false
	}
	m.note, m.seek = "", nil
	switch {
	case key.Matches(msg, k.next):
		return m.step()
	case key.Matches(msg, k.previous):
		return m.goTo(m.moment.N - 1)
	case key.Matches(msg, k.first):
		return m.goTo(0)
	case key.Matches(msg, k.last):
		return m.goTo(m.total)
	case key.Matches(msg, k.change):
		return m.find("change", func(at steps.Moment) bool { return !at.Change.Empty() })
	case key.Matches(msg, k.message):
		return m.find("message", func(at steps.Moment) bool {
			return slices.ContainsFunc(at.Change.Messages, func(c timeline.MessageChange) bool { return c.Op == timeline.Add })
		})
	case key.Matches(msg, k.failure):
		return m.find("error", isError)
	case key.Matches(msg, k.play):
		return m.play()
	case key.Matches(msg, k.faster):
		m.speed(2)
	case key.Matches(msg, k.slower):
		m.speed(0.5)
	case key.Matches(msg, k.pane):
		m.onState = !m.onState
	case key.Matches(msg, k.help):
		m.help.ShowAll = !m.help.ShowAll
		m.layout()
	case key.Matches(msg, k.up, k.down):
		pane := &m.conversation
		if m.onState {
			pane = &m.state
		}
		*pane, _ = pane.Update(msg)
	}
	return nil
}

// isError reports whether a step is a RUN_ERROR or a malformed event.
func isError(at steps.Moment) bool {
	return at.Type == agui.RunError || at.Outcome == fold.Malformed
}

// step moves to the next step.
func (m *stepper) step() tea.Cmd {
	if m.moment.N < m.total {
		return m.goTo(m.moment.N + 1)
	}
	m.playing = false
	if m.status != record.StatusRunning {
		m.note = "the run ends here"
		return nil
	}
	// The run may have new events by now.
	m.note = "the run is still open; this is its last event so far"
	m.page = nil
	m.seek = &seek{next: m.moment.N + 1, accepts: func(steps.Moment) bool { return true }}
	return m.load(m.moment.N)
}

// goTo searches for a step by its number.
func (m *stepper) goTo(n int) tea.Cmd {
	n = min(max(n, 0), m.total)
	m.seek = &seek{next: n, accepts: func(steps.Moment) bool { return true }}
	return m.advance()
}

// find goes to the next step for which accepts returns true.
func (m *stepper) find(what string, accepts func(steps.Moment) bool) tea.Cmd {
	m.seek = &seek{what: what, next: m.moment.N + 1, accepts: accepts}
	return m.advance()
}

// holds reports whether the step numbered n is in the page.
func (m *stepper) holds(n int) bool {
	return len(m.page) > 0 && m.page[0].N <= n && n <= m.page[len(m.page)-1].N
}

// advance continues the search in the page. If the search leaves the page, advance loads another one.
func (m *stepper) advance() tea.Cmd {
	for s := m.seek; s.next <= m.total; {
		if !m.holds(s.next) {
			from := s.next
			if s.next < m.moment.N && s.what == "" { // moving backwards
				from = max(0, s.next-stepsPage+1)
			}
			return m.load(from)
		}
		for _, at := range m.page[s.next-m.page[0].N:] {
			if s.accepts(at) {
				m.seek = nil
				m.show(at)
				return m.due()
			}
			s.next++
		}
	}
	if m.seek.what != "" {
		m.note = "no " + m.seek.what + " after this step"
	}
	m.seek = nil
	return nil
}

// load requests the page that starts at the step numbered from.
func (m *stepper) load(from int) tea.Cmd {
	m.loading = true
	return func() tea.Msg {
		p, err := m.source(m.ctx, from, stepsPage)
		if err != nil {
			return pageLoaded{err: err}
		}
		moments, err := p.Moments()
		return pageLoaded{p, moments, err}
	}
}

// loaded stores a page and continues the pending search.
func (m *stepper) loaded(msg pageLoaded) tea.Cmd {
	m.loading = false
	if msg.err != nil {
		m.playing, m.seek, m.note = false, nil, oneLine(msg.err.Error(), 300)
		return nil
	}
	p := msg.page
	m.thread, m.run, m.status, m.total, m.late = p.ThreadID, p.RunID, p.Status, p.Total, p.LateError
	m.page = msg.moments
	if m.seek == nil {
		return nil
	}
	if n := m.seek.next; n <= m.total && !m.holds(n) && m.seek.what == "" {
		return m.load(n) // the page ended early because its steps are large
	}
	return m.advance()
}

// show puts a moment of the page on the screen.
func (m *stepper) show(at steps.Moment) {
	m.moment, m.previous = at, nil
	if i := at.N - m.page[0].N; i > 0 {
		m.previous = m.page[i-1].Time
	}
	m.draw()
}

// play starts or stops playing.
func (m *stepper) play() tea.Cmd {
	m.playing = !m.playing
	m.played++
	if !m.playing {
		return nil
	}
	return m.step()
}

// speed changes the pace of a play by a factor.
func (m *stepper) speed(factor replay.Pace) {
	m.pace *= factor
	m.note = fmt.Sprintf("plays %g times as fast as recorded", float64(m.pace))
}

// due schedules the next step of a play.
func (m *stepper) due() tea.Cmd {
	if !m.playing {
		return nil
	}
	pause := minPlayPause
	if m.previous != nil && m.moment.Time != nil {
		pause = min(max(m.pace.Pause(m.moment.Time.Sub(*m.previous)), minPlayPause), maxPlayPause)
	}
	play := m.played
	return tea.Tick(pause, func(time.Time) tea.Msg { return playTick(play) })
}
