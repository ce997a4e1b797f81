package indexer

import "log/slog"

// said are the errors that were logged since something last succeeded: while a broker or the store is away, each try
// fails like the one before. It belongs to one goroutine.
type said map[string]bool

// level is the level for an error that is tried again: a warning the first time, then debug.
func (s said) level(err error) slog.Level {
	if text := err.Error(); !s[text] {
		s[text] = true
		return slog.LevelWarn
	}
	return slog.LevelDebug
}
