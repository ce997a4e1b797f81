package agents

import (
	"cmp"
	"fmt"
	"html"
	"net/http"
	"regexp"
	"slices"
	"strings"
	"sync"
	"unicode/utf16"
)

// These are the shortest texts that are hidden, in bytes: a shorter one is in many words.
const (
	leastHidden  = 4 // a whole path or query, or a half of an Authorization header
	leastPart    = 8 // a host, header or query value, or a part of a header
	leastSegment = 16
	// mostHidden is how many characters of a hidden text are compared. What follows a longer one is hidden, too.
	mostHidden = 500
)

// hiding returns a function that replaces in a text of the agent what it quotes of the request: the credential, the agent's address, path
// and query, and the caller's headers, also in the forms that they have in JSON, HTML and URLs, in upper or lower case.
func hiding(req *http.Request, credential string) func(text string) string {
	quoted := sync.OnceValue(func() *regexp.Regexp { return quotedOf(req, credential) })
	return func(text string) string {
		if text == "" || quoted() == nil {
			return ""
		}
		return quoted().ReplaceAllLiteralString(text, "…")
	}
}

// quotedOf returns a pattern of what hiding replaces, or nil if it is too large.
func quotedOf(req *http.Request, credential string) *regexp.Regexp {
	var hidden []string
	add := func(least int, texts ...string) {
		for _, s := range texts {
			if len(s) >= least {
				hidden = append(hidden, s)
			}
		}
	}
	user, password, _ := req.BasicAuth()
	add(leastHidden, req.URL.RequestURI(), req.URL.Path, req.URL.RawQuery, user, password)
	add(leastPart, req.URL.Host, req.URL.Hostname())
	add(leastSegment, strings.Split(req.URL.Path, "/")...)
	for _, values := range req.URL.Query() {
		add(leastPart, values...)
	}
	for name, values := range req.Header {
		if slices.Contains(own, name) {
			continue
		}
		for _, v := range values {
			add(leastPart, v)
			for _, part := range strings.FieldsFunc(v, func(r rune) bool { return strings.ContainsRune(` ;,"`, r) }) {
				_, value, _ := strings.Cut(part, "=")
				if add(leastPart, value); !schemes[strings.ToLower(part)] {
					add(leastPart, part)
				}
			}
		}
	}
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
	hidden = append(hidden, `[^\s\S]`) // no character, in case that nothing is hidden
	quoted, err := regexp.Compile("(?i)" + strings.Join(hidden, "|"))
	if err != nil { // too large
		return nil
	}
	return quoted
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
	pattern := fmt.Sprintf(`(?:\\*%s|%s|%s|&#0*%d;|&#x0*%x;`, regexp.QuoteMeta(text), unit, percent, r, r)
	if named := html.EscapeString(text); named != text {
		pattern += "|" + named
	}
	return pattern + ")"
}
