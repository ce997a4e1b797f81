package cli

import (
	"slices"
	"strings"
)

// hint returns a command line to type next, as the current one was typed: the same binary, the same
// server. An id that looks like a flag stands behind "--": agents choose ids, and a flag could name another server.
func (o *output) hint(at server, command string, ids ...string) string {
	var flags []string
	if at.url != defaultURL {
		flags = append(flags, "--url", at.url)
	}
	if at.keyFile != "" {
		flags = append(flags, "--api-key-file", at.keyFile)
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

// shellWord returns s as one word of a POSIX shell.
func shellWord(s string) string {
	plain := func(r rune) bool {
		return r >= 'a' && r <= 'z' || r >= 'A' && r <= 'Z' || r >= '0' && r <= '9' || strings.ContainsRune("-_./:@%+=,", r)
	}
	if s != "" && strings.IndexFunc(s, func(r rune) bool { return !plain(r) }) < 0 {
		return s
	}
	return "'" + strings.ReplaceAll(s, "'", `'\''`) + "'"
}
