package cli

import (
	"regexp"
	"slices"
	"strings"
)

// hint returns a command line to type next, for the same binary and the server that the current command calls. Ids that look like
// flags follow "--", since agents choose ids and a flag could name another server.
func (o *output) hint(command string, ids ...string) string {
	var flags []string
	at := o.at
	if at.url != defaultURL {
		flags = append(flags, "--url", at.url)
	}
	for _, flag := range [][2]string{{"--context", at.context}, {"--publish-url", at.publishURL}, {"--read-url", at.readURL},
		{"--api-key-file", at.keyFile},
		{"--server-ca-file", at.caFile}, {"--client-cert-file", at.certFile}, {"--client-key-file", at.ownFile}} {
		if flag[1] != "" {
			flags = append(flags, flag[:]...)
		}
	}
	words := slices.Concat([]string{o.self, command}, ids, flags)
	if slices.ContainsFunc(ids, func(id string) bool { return strings.HasPrefix(id, "-") }) {
		words = slices.Concat([]string{o.self, command}, flags, []string{"--"}, ids)
	}
	for i, w := range words {
		words[i] = shellWord(oneLine(w, 200))
	}
	return strings.Join(words, " ")
}

// plainWord matches words that a POSIX shell does not interpret.
var plainWord = regexp.MustCompile(`^[-a-zA-Z0-9_./:@%+=,]+$`)

// shellWord returns s as one word of a POSIX shell.
func shellWord(s string) string {
	if plainWord.MatchString(s) {
		return s
	}
	return "'" + strings.ReplaceAll(s, "'", `'\''`) + "'"
}
