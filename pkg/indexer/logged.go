package indexer

import "log/slog"

// logged has the errors that were logged since the last success, so that retries do not repeat a warning. It belongs to one goroutine.
type logged map[string]bool

// level returns the level for logging an error before a retry: a warning the first time, then debug.
func (l logged) level(err error) slog.Level {
	if text := err.Error(); !l[text] {
		l[text] = true
		return slog.LevelWarn
	}
	return slog.LevelDebug
}
