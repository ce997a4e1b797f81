package draw

import (
	"crypto/sha256"
	"encoding/hex"
	"slices"
	"strconv"
	"strings"
	"unicode/utf8"
)

// An id longer than maxShown columns is shown as its first headShown and last tailShown columns and a piece of its hash, so that two
// ids do not look the same. A UUID (36 columns) always fits.
const (
	maxShown  = 48
	headShown = 24
	tailShown = 12
)

// display returns an id as text that is safe anywhere on a screen. It escapes unprintable characters (control characters, direction
// marks, broken UTF-8), quotes an id if needed, and shortens a long one. With ascii, it escapes everything beyond ASCII.
func display(id string, ascii bool) string {
	parts, quoted := characters(id, ascii)
	if TextWidth(strings.Join(parts, "")) > maxShown {
		sum := sha256.Sum256([]byte(id))
		parts = append(shorten(parts, ascii), "#"+hex.EncodeToString(sum[:4]))
	}
	text := strings.Join(parts, "")
	if quoted {
		return `"` + text + `"`
	}
	return text
}

// characters splits text into characters, which are never cut, with an escape for each that is not printable. It reports whether the
// text has to be quoted to be read as one id.
func characters(s string, ascii bool) (list []string, quoted bool) {
	quoted = s == ""
	for len(s) > 0 {
		r, n := utf8.DecodeRuneInString(s)
		text := s[:n]
		printable := strconv.IsPrint(r) && !(r == utf8.RuneError && n == 1) && r != '\\' && r != '"'
		if !printable || ascii && r >= utf8.RuneSelf {
			if ascii {
				text = strconv.QuoteToASCII(text)
			} else {
				text = strconv.Quote(text)
			}
			text = text[1 : len(text)-1]
			quoted = true
		}
		quoted = quoted || r == ' '
		list = append(list, text)
		s = s[n:]
	}
	return list, quoted
}

// shorten returns the characters of the first headShown and the last tailShown columns, with an ellipsis between.
func shorten(parts []string, ascii bool) []string {
	head, tail := 0, len(parts)
	for width := 0; head < tail; head++ {
		if width += TextWidth(parts[head]); width > headShown {
			break
		}
	}
	for width := 0; tail > head; tail-- {
		if width += TextWidth(parts[tail-1]); width > tailShown {
			break
		}
	}
	return slices.Concat(parts[:head], []string{ellipsis(ascii)}, parts[tail:])
}

func ellipsis(ascii bool) string {
	if ascii {
		return "..."
	}
	return "…"
}

// TextWidth returns how many columns of a terminal printable text takes at most: characters that a
// terminal may draw two columns wide count as two, and combining marks, which take none, as one.
func TextWidth(s string) int {
	n := 0
	for _, r := range s {
		n += runeWidth(r)
	}
	return n
}

// wide are the ranges of characters that take two columns: East Asian Wide and Fullwidth (Unicode
// UAX 11), and whatever may be drawn as an emoji.
var wide = [][2]rune{
	{0x1100, 0x115F}, {0x231A, 0x231B}, {0x2329, 0x232A}, {0x23E9, 0x23F3}, {0x25FD, 0x25FE}, {0x2600, 0x27BF},
	{0x2B00, 0x2BFF}, {0x2E80, 0x303E}, {0x3041, 0xA4CF}, {0xA960, 0xA97C}, {0xAC00, 0xD7A3}, {0xF900, 0xFAFF},
	{0xFE10, 0xFE19}, {0xFE30, 0xFE6F}, {0xFF00, 0xFF60}, {0xFFE0, 0xFFE6}, {0x16FE0, 0x18DFF}, {0x1AFF0, 0x1B2FF},
	{0x1F000, 0x1FAFF}, {0x20000, 0x3FFFD},
}

func runeWidth(r rune) int {
	if r < wide[0][0] {
		return 1
	}
	for _, w := range wide {
		if r >= w[0] && r <= w[1] {
			return 2
		}
	}
	return 1
}
