package cli

import (
	"strings"
	"testing"
	"testing/synctest"
	"time"
)

// On a terminal there is a bar, drawn in place and taken away at the end.
func TestProgress_DrawsABarOnATerminal(t *testing.T) {
	var screen strings.Builder
	p := newProgress(&output{stderr: &screen}, "verify")
	if p.bar {
		t.Error("what is no terminal has a bar")
	}
	p.bar = true
	for _, c := range []struct{ done, total, cells int }{{0, 4, 0}, {1, 4, 7}, {4, 4, 30}} {
		screen.Reset()
		p.step(c.done, c.total)
		want := "\rverify [" + strings.Repeat("█", c.cells) + strings.Repeat("·", 30-c.cells) + "] "
		if got := screen.String(); !strings.HasPrefix(got, want) || !strings.HasSuffix(got, "\x1b[K") {
			t.Errorf("%d of %d: %q", c.done, c.total, got)
		}
	}
	screen.Reset()
	p.end()
	if got := screen.String(); got != "\r\x1b[K" {
		t.Errorf("at the end: %q", got)
	}
}

// Elsewhere it is a line now and then; with --quiet nothing.
func TestProgress_WritesALineNowAndThenWhereThereIsNoTerminal(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var text, none strings.Builder
		p, quiet := newProgress(&output{stderr: &text}, "verify"), newProgress(&output{stderr: &none, quiet: true}, "verify")
		p.step(1, 4)
		time.Sleep(progressEvery)
		p.step(2, 4)
		p.step(3, 4)
		time.Sleep(progressEvery)
		p.step(4, 4)
		time.Sleep(progressEvery)
		p.step(5, 0)
		time.Sleep(70 * time.Second)
		p.step(1, 50)
		p.end()
		if got, want := text.String(), "verify: 2 of 4, about 10s left\nverify: 4 of 4\nverify: 5\nverify: 1 of 50, about 1h22m left\n"; got != want {
			t.Errorf("got %q, want %q", got, want)
		}
		for _, quiet.bar = range []bool{true, false} {
			quiet.step(1, 4)
			quiet.end()
		}
		if none.Len() > 0 {
			t.Errorf("with --quiet: %q", none.String())
		}
	})
}
