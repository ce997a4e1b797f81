package draw

import (
	"bytes"
	"fmt"
	"io"
	"slices"
	"strings"
	"time"

	"github.com/skeinhq/skein/pkg/lineage"
)

// TextOptions choose how a picture is written as text.
type TextOptions struct {
	// Width is the number of columns that no line exceeds; 0 is no limit.
	Width int
	// ASCII limits the output to ASCII.
	ASCII bool
	// Color writes ANSI escape codes.
	Color bool
	// Label returns text for a run's line, such as the first words of its question; it may be nil. Text makes it safe to
	// print, and cuts it to fit.
	Label func(lineage.Run) string
}

// glyphs are the parts of a graph.
type glyphs struct {
	run, open, fold, branches         string
	pass, blank, across, cross        string
	right, left, below, cut, dot, tip string
}

var (
	unicodeGlyphs = glyphs{
		run: "●", open: "○", fold: "┆", branches: "◆",
		pass: "│", blank: " ", across: "─", cross: "┼", right: "╮", left: "╭", below: "┬",
		cut: "…", dot: " · ", tip: "◄ tip",
	}
	asciiGlyphs = glyphs{
		run: "*", open: "o", fold: ":", branches: "#",
		pass: "|", blank: " ", across: "-", cross: "+", right: ".", left: ".", below: ".",
		cut: ">", dot: ", ", tip: "<- tip",
	}
)

// style is an ANSI style, empty for none.
type style string

const (
	bold   style = "1"
	dim    style = "2"
	red    style = "31"
	yellow style = "33"
)

var branchStyles = []style{"36", "32", "35", "34", "33", "31"}

func branchStyle(branch int) style {
	if branch < 0 {
		return dim
	}
	return branchStyles[branch%len(branchStyles)]
}

// Text writes the picture like git log --graph: one line per row, the words of all rows in one column. A run's line shows
// the lanes that begin at the run. Above each root but the first is a line with lanes only; without it the root would seem
// to continue the row above.
func (p *Picture) Text(w io.Writer, o TextOptions) error {
	var buf bytes.Buffer
	for n, r := range p.Rows {
		l := &line{o: o, g: unicodeGlyphs}
		if o.ASCII {
			l.g = asciiGlyphs
		}
		if r.Above < 0 && n > 0 {
			gap := &line{o: o, g: l.g}
			gap.lanes(p, r, "")
			gap.write(&buf)
		}
		node := l.g.run
		switch run, _ := p.g.Run(r.RunID); {
		case r.Kind == RowFold:
			node = l.g.fold
		case r.Kind == RowFan, r.Kind == RowBundle:
			node = l.g.branches
		case run.Open():
			node = l.g.open
		}
		l.lanes(p, r, node)
		l.words(p, r)
		l.write(&buf)
	}
	return writeOut(w, &buf)
}

func writeOut(w io.Writer, buf *bytes.Buffer) error {
	if _, err := buf.WriteTo(w); err != nil {
		return fmt.Errorf("writing the picture: %w", err)
	}
	return nil
}

// line is one line of text: parts of one style each.
type line struct {
	o     TextOptions
	g     glyphs
	parts []styled
	width int
}

type styled struct {
	text  string
	style style
}

func (l *line) add(text string, s style) {
	l.parts = append(l.parts, styled{text, s})
	l.width += TextWidth(text)
}

// lanes draws the row's node, the lanes that pass it and those that begin at it; without a node only the lanes that pass.
func (l *line) lanes(p *Picture, r Row, node string) {
	from, to := r.Lane, r.Lane
	if node != "" && len(r.Forks) > 0 {
		from, to = min(from, r.Forks[0]), max(to, r.Forks[len(r.Forks)-1])
	}
	own := branchStyle(r.Branch)
	lanes := p.Lanes
	if node == "" {
		lanes = 0
		if len(r.Through) > 0 {
			lanes = r.Through[len(r.Through)-1] + 1
		}
	}
	for n := range lanes {
		at, passes := slices.BinarySearch(r.Through, n)
		_, begins := slices.BinarySearch(r.Forks, n)
		across := n > from && n < to
		switch {
		case n == r.Lane && node != "":
			l.add(node, own)
		case begins && node != "" && across:
			l.add(l.g.below, own)
		case begins && node != "" && n > r.Lane:
			l.add(l.g.right, own)
		case begins && node != "":
			l.add(l.g.left, own)
		case passes && across:
			l.add(l.g.cross, branchStyle(r.passing[at]))
		case passes:
			l.add(l.g.pass, branchStyle(r.passing[at]))
		case across:
			l.add(l.g.across, own)
		default:
			l.add(l.g.blank, "")
		}
		if n >= from && n < to {
			l.add(l.g.across, own)
		} else {
			l.add(l.g.blank, "")
		}
	}
}

// words writes the row's text, the most important first, as a narrow screen cuts the end.
func (l *line) words(p *Picture, r Row) {
	run, _ := p.g.Run(r.RunID)
	switch r.Kind {
	case RowFold:
		l.add(ellipsis(l.o.ASCII)+" "+count(r.Runs, "run"), dim)
	case RowFan, RowBundle:
		l.add(r.contents(ellipsis(l.o.ASCII)), dim)
	default:
		l.add(display(run.ID, l.o.ASCII), bold)
		if run.Status != "" {
			l.add("  "+safe(string(run.Status), l.o.ASCII), statusStyle(run.Status))
		}
	}
	if len(r.Badges) > 0 {
		texts := make([]string, len(r.Badges))
		for i, b := range r.Badges {
			texts[i] = b.text(l.o.ASCII)
		}
		l.add("  ["+strings.Join(texts, ", ")+"]", yellow)
	}
	if r.Tip {
		l.add("  "+l.g.tip, bold)
	}
	if r.Kind != RowRun {
		return
	}
	if l.o.Label != nil {
		if label := safe(l.o.Label(run), l.o.ASCII); label != "" {
			l.add("  "+label, "")
		}
	}
	// A fact that does not fit is left out, because a cut number or time would be wrong.
	facts := []string{"  " + count(run.MessageCount, "message")}
	if !run.StartedAt.IsZero() {
		facts = append(facts, l.g.dot+run.StartedAt.UTC().Format(time.RFC3339))
	}
	for _, fact := range facts {
		if l.o.Width > 0 && l.width+TextWidth(fact) > l.o.Width {
			return
		}
		l.add(fact, dim)
	}
}

// contents describes the runs of a fan or a bundle.
func (r *Row) contents(ellipsis string) string {
	noun := "branch"
	if r.Kind == RowBundle {
		noun = "more branch"
	}
	text := fmt.Sprintf("%s %s, %s", ellipsis, count(r.Branches, noun), count(r.Runs, "run"))
	for _, part := range []struct {
		n    int
		what string
	}{{r.Running, "running"}, {r.Waiting, "waiting"}, {r.Failed, "failed"}} {
		if part.n > 0 {
			text += fmt.Sprintf(", %d %s", part.n, part.what)
		}
	}
	return text
}

func statusStyle(s lineage.Status) style {
	switch s {
	case lineage.StatusError, lineage.StatusAbandoned:
		return red
	case lineage.StatusRunning, lineage.StatusInterrupted, lineage.StatusCancelled:
		return yellow
	default:
		return dim
	}
}

// safe makes text from outside safe to print on one line.
func safe(s string, ascii bool) string {
	var b strings.Builder
	for _, word := range strings.Fields(s) {
		if b.Len() > 0 {
			b.WriteByte(' ')
		}
		parts, _ := characters(word, ascii)
		for _, c := range parts {
			if c == `\"` || c == `\\` {
				c = c[1:] // outside of quotes these need no escape
			}
			b.WriteString(c)
		}
	}
	return b.String()
}

// count writes a number with its noun.
func count(n int, noun string) string {
	if n == 1 {
		return "1 " + noun
	}
	if strings.HasSuffix(noun, "ch") {
		return fmt.Sprintf("%d %ses", n, noun)
	}
	return fmt.Sprintf("%d %ss", n, noun)
}

// write writes the line, cut to the width with a mark at its end.
func (l *line) write(w *bytes.Buffer) {
	left, mark := l.width, ""
	if l.o.Width > 0 && l.width > l.o.Width {
		left, mark = l.o.Width-1, l.g.cut
	}
	for _, s := range l.parts {
		text := fit(s.text, left)
		left -= TextWidth(text)
		if l.o.Color && s.style != "" && text != "" {
			text = "\x1b[" + string(s.style) + "m" + text + "\x1b[0m"
		}
		w.WriteString(text)
		if left <= 0 || len(text) == 0 && s.text != "" {
			break
		}
	}
	w.WriteString(mark + "\n")
}

// fit returns the longest prefix of the text that is no wider than width.
func fit(s string, width int) string {
	for i, r := range s {
		if width -= runeWidth(r); width < 0 {
			return s[:i]
		}
	}
	return s
}
