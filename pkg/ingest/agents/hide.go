package agents

import (
	"cmp"
	"fmt"
	"html"
	"net/http"
	"regexp"
	"slices"
	"strings"
	"unicode/utf16"
)

const (
	// leastHidden is the shortest part of a URL or header that is hidden, in bytes: a shorter one is in many words.
	leastHidden = 4
	// mostHidden is how many characters of a hidden text are compared. What follows a longer one is hidden, too.
	mostHidden = 500
)

// hide replaces in a text of the agent what it quotes of the request: the credential, the agent's address, path and query, and the
// caller's headers, also in the forms that they have in JSON, HTML and URLs.
func hide(req *http.Request, credential, text string) string {
	hidden := append([]string{req.URL.Host, req.URL.RequestURI(), req.URL.Path, req.URL.RawQuery}, strings.Split(req.URL.Path, "/")...)
	for _, values := range req.URL.Query() {
		hidden = append(hidden, values...)
	}
	for name, values := range req.Header {
		if slices.Contains(own, name) {
			continue
		}
		for _, v := range values {
			hidden = append(hidden, v)
			for _, part := range strings.FieldsFunc(v, func(r rune) bool { return strings.ContainsRune(` ;,"`, r) }) {
				_, value, _ := strings.Cut(part, "=")
				if hidden = append(hidden, value); !schemes[strings.ToLower(part)] {
					hidden = append(hidden, part)
				}
			}
		}
	}
	hidden = slices.DeleteFunc(hidden, func(s string) bool { return len(s) < leastHidden })
	if secret := strings.TrimPrefix(credential, "Bearer "); secret != "" {
		hidden = append(hidden, secret)
	}
	slices.SortFunc(hidden, func(a, b string) int { return cmp.Or(cmp.Compare(len(b), len(a)), strings.Compare(a, b)) }) // the longest match
	hidden = slices.Compact(hidden)
	for i, s := range hidden {
		hidden[i] = ""
		n := 0
		for _, r := range s {
			if n++; n > mostHidden {
				hidden[i] += `(?s:.*)`
				break
			}
			hidden[i] += quotedAs(r)
		}
	}
	quoted, err := regexp.Compile(strings.Join(hidden, "|"))
	if err != nil { // too large
		return ""
	}
	return quoted.ReplaceAllLiteralString(text, "…")
}

// schemes are the words of an Authorization header that are no secret.
var schemes = map[string]bool{"basic": true, "bearer": true, "digest": true, "negotiate": true}

// quotedAs returns a pattern of the forms that a character has in JSON, also within a JSON string, in HTML and in URLs.
func quotedAs(r rune) string {
	text, unit := string(r), fmt.Sprintf(`\\+u%04x`, r)
	if high, low := utf16.EncodeRune(r); high != '\uFFFD' {
		unit = fmt.Sprintf(`\\+u%04x\\+u%04x`, high, low)
	}
	percent := ""
	for _, b := range []byte(text) {
		percent += fmt.Sprintf("%%%02x", b)
	}
	pattern := fmt.Sprintf(`(?:\\*%s|(?i:%s|%s|&#0*%d;|&#x0*%x;)`, regexp.QuoteMeta(text), unit, percent, r, r)
	if named := html.EscapeString(text); named != text {
		pattern += "|" + named
	}
	return pattern + ")"
}
