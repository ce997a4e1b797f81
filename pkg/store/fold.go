package store

import (
	"strings"
	"unicode/utf8"

	"golang.org/x/text/cases"
)

// Folded returns a text in the form in which searches compare texts: with Unicode's full case folding, so that "ß" equals "SS" and the
// final sigma the others. "İ" becomes "i", as nobody types the dot of its folded form.
func Folded(text string) string {
	if !strings.ContainsFunc(text, func(r rune) bool { return r >= utf8.RuneSelf }) {
		return strings.ToLower(text)
	}
	return strings.ReplaceAll(cases.Fold().String(text), "i\u0307", "i")
}
