package cli

import (
	"fmt"
	"strings"
	"sync"
	"time"
)

// progressEvery is the time between two lines where there is no terminal.
const progressEvery = 10 * time.Second

// progress shows on stderr how far long work is: a bar on a terminal, else a line now and then.
// It is safe for concurrent use.
type progress struct {
	out  *output
	what string
	bar  bool
	now  func() time.Time

	mu          sync.Mutex
	done, total int
	shown       time.Time
}

func newProgress(out *output, what string) *progress {
	return &progress{out: out, what: what, bar: isTerminal(out.stderr), now: time.Now, shown: time.Now()}
}

// step says that done of total parts are ready.
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
	if now := p.now(); now.Sub(p.shown) >= progressEvery {
		p.shown = now
		p.out.note("%s: %d of %d", p.what, done, total)
	}
}

// end takes the bar away.
func (p *progress) end() {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.bar && !p.out.quiet && p.total > 0 {
		_, _ = fmt.Fprint(p.out.stderr, "\r\x1b[K") // cosmetic
	}
}

func (p *progress) draw() {
	const cells = 30
	full := cells
	if p.total > 0 {
		full = cells * p.done / p.total
	}
	_, _ = fmt.Fprintf(p.out.stderr, "\r%s [%s%s] %d/%d\x1b[K", p.what, strings.Repeat("█", full), strings.Repeat("·", cells-full), p.done, p.total) // cosmetic
}
