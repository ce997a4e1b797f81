package clickhouse

import (
	"bytes"
	"strings"
	"sync"
	"unicode"
	"unicode/utf8"

	"github.com/skeinhq/skein/pkg/agui"
	"github.com/skeinhq/skein/pkg/store"
)

// foldedText returns the folded text of a message if lowerUTF8 of the database may make something else of the text, and otherwise "",
// as for most messages.
func foldedText(m agui.Message) string {
	if !bytes.ContainsFunc(m.Raw, func(r rune) bool { return r >= utf8.RuneSelf }) && !bytes.Contains(m.Raw, []byte(`\u`)) {
		return ""
	}
	text, odd := store.TextOf(m), oddCase()
	if !strings.ContainsFunc(text, func(r rune) bool { return int(r) < len(odd) && odd[r] }) {
		return ""
	}
	return store.Folded(text)
}

// oddCase reports for each rune whether its folded form is not its lower case, or depends on its neighbours or on the version of the
// database. Versions differ in letters whose lower case has another length.
var oddCase = sync.OnceValue(func() []bool {
	odd := make([]bool, 0x20000) // no rune beyond has a case
	for i := rune(utf8.RuneSelf); int(i) < len(odd); i++ {
		lower := unicode.ToLower(i)
		odd[i] = store.Folded(string(i)) != string(lower) || utf8.RuneLen(i) != utf8.RuneLen(lower)
	}
	odd['Σ'], odd['\u0307'] = true, true
	return odd
})
