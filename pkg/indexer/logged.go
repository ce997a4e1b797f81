package indexer

import "log/slog"

// logged holds the errors that were logged since something last succeeded: while a broker or the store is away, each try
// fails like the one before. It belongs to one goroutine.
type logged map[string]bool

// level is the level for an error that is tried again: a warning the first time, then debug.
func (l logged) level(err error) slog.Level {
	if text := err.Error(); !l[text] {
		l[text] = true
		return slog.LevelWarn
	}
	return slog.LevelDebug
}
