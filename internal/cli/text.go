package cli

import (
	"fmt"
	"strings"
	"unicode"
	"unicode/utf8"

	"github.com/charmbracelet/x/ansi"
)

// printable returns s with U+FFFD in place of control characters, except line feeds and tabs, and of marks that change the
// direction of text. Such characters could control a terminal or hide text.
func printable(s string) string {
	return strings.Map(func(r rune) rune {
		switch {
		case r == '\n' || r == '\t':
			return r
		case unicode.IsControl(r), turnsDirection(r):
			return utf8.RuneError
		default:
			return r
		}
	}, s)
}

// turnsDirection reports whether a character changes the direction of the text around it.
func turnsDirection(r rune) bool {
	return r >= 0x202A && r <= 0x202E || r >= 0x2066 && r <= 0x2069 || r == 0x200E || r == 0x200F || r == 0x061C
}

// oneLine returns s as printable text on one line of at most max characters.
func oneLine(s string, max int) string {
	s = strings.Join(strings.Fields(printable(s)), " ")
	if utf8.RuneCountInString(s) <= max {
		return s
	}
	runes := []rune(s)
	return string(runes[:max-1]) + "…"
}

// count formats a number with its noun, in the plural unless n is 1.
func count[N int | int64](n N, noun string) string {
	if n == 1 {
		return "1 " + noun
	}
	return fmt.Sprintf("%d %ss", n, noun)
}

// texts returns names as strings.
func texts[S ~string](names []S) []string {
	list := make([]string, len(names))
	for i, name := range names {
		list[i] = string(name)
	}
	return list
}

// indent wraps text to width. Each line begins with the margin.
func indent(text, margin string, width int) string {
	room := max(width-ansi.StringWidth(margin), 20)
	var b strings.Builder
	for line := range strings.SplitSeq(strings.TrimRight(printable(text), "\n"), "\n") {
		for part := range strings.SplitSeq(ansi.Wrap(line, room, ""), "\n") {
			b.WriteString(strings.TrimRight(margin+part, " "))
			b.WriteByte('\n')
		}
	}
	return b.String()
}

// labelled wraps text to width. Each line begins with the margin, then the label in the first line and as many spaces in the others.
func labelled(margin, label, text string, width int) string {
	space := strings.Repeat(" ", utf8.RuneCountInString(label))
	return margin + label + strings.TrimPrefix(indent(text, margin+space, width), margin+space)
}
