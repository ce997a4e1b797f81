package cli

import (
	"context"
	"fmt"
	"strconv"
	"strings"
	"sync"
	"time"
)

// pause waits for some time. It returns errInterrupted if ctx ends before.
func pause(ctx context.Context, d time.Duration) error {
	select {
	case <-time.After(d):
		return nil
	case <-ctx.Done():
		return errInterrupted
	}
}

// progressEvery is the time between two lines of progress if stderr is not a terminal.
const progressEvery = 10 * time.Second

// progress prints the progress of a long task on stderr: as a bar on a terminal, else as a line every progressEvery. It is
// safe for concurrent use.
type progress struct {
	out  *output
	what string
	bar  bool

	mu             sync.Mutex
	drawn          bool
	done, total    int
	shown, started time.Time
}

func newProgress(out *output, what string) *progress {
	now := time.Now()
	return &progress{out: out, what: what, bar: isTerminal(out.stderr), shown: now, started: now}
}

// step reports that done of total parts are ready. A total of 0 means that it is unknown.
func (p *progress) step(done, total int) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.done, p.total = done, total
	if p.out.quiet {
		return
	}
	if p.bar {
		p.draw()
		return
	}
	if time.Since(p.shown) >= progressEvery {
		p.shown = time.Now()
		p.out.note("%s: %s%s", p.what, p.count(" of "), p.left())
	}
}

// stepOf is step for a part of the task that has a name of its own.
func (p *progress) stepOf(what string, done, total int) {
	p.mu.Lock()
	p.what = what
	p.mu.Unlock()
	p.step(done, total)
}

// count formats how many parts are ready and how many there are. The argument of separates the two numbers.
func (p *progress) count(of string) string {
	if p.total == 0 {
		return strconv.Itoa(p.done)
	}
	return fmt.Sprintf("%d%s%d", p.done, of, p.total)
}

// leftAfter is how long a task must run before its remaining time is shown.
const leftAfter = 3 * time.Second

// left estimates the remaining time from the average speed so far.
func (p *progress) left() string {
	took := time.Since(p.started)
	if p.done <= 0 || p.done >= p.total || took < leftAfter {
		return ""
	}
	rest := time.Duration(float64(took) * float64(p.total-p.done) / float64(p.done))
	unit := time.Second
	if rest >= 10*time.Minute {
		unit = time.Minute
	}
	text := max(rest.Round(unit), time.Second).String()
	if unit == time.Minute {
		text = strings.TrimSuffix(text, "0s")
	}
	return ", about " + text + " left"
}

// end erases the bar.
func (p *progress) end() {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.drawn {
		_, _ = fmt.Fprint(p.out.stderr, "\r\x1b[K") // an error only affects the display
	}
}

func (p *progress) draw() {
	p.drawn = true
	const cells = 30
	bar := ""
	if p.total > 0 {
		full := cells * p.done / p.total
		bar = fmt.Sprintf("[%s%s] ", strings.Repeat("█", full), strings.Repeat("·", cells-full))
	}
	_, _ = fmt.Fprintf(p.out.stderr, "\r%s %s%s%s\x1b[K", p.what, bar, p.count("/"), p.left()) // an error only affects the display
}
