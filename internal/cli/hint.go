package cli

import "strings"

// hint returns a command line to type next, as the current one was typed: the same binary, the same
// server.
func (o *output) hint(at server, args ...string) string {
	words := append([]string{o.self}, args...)
	if at.url != defaultURL {
		words = append(words, "--url", at.url)
	}
	if at.keyFile != "" {
		words = append(words, "--api-key-file", at.keyFile)
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
