package app

import (
	"context"
	"io"
	"log/slog"
	"strings"
	"sync"
	"time"
)

// NewLogger returns the process's logger. Format is "text" or "json", level one of debug, info, warn and error. Times are in UTC.
func NewLogger(w io.Writer, format, level string) (*slog.Logger, error) {
	lowest, ok := map[string]slog.Level{
		"debug": slog.LevelDebug, "info": slog.LevelInfo, "warn": slog.LevelWarn, "error": slog.LevelError,
	}[strings.ToLower(level)]
	if !ok {
		return nil, Usagef("log level %q is not one of debug, info, warn, error", level)
	}
	opts := &slog.HandlerOptions{Level: lowest, ReplaceAttr: utc}
	switch format {
	case "text":
		return slog.New(slog.NewTextHandler(w, opts)), nil
	case "json":
		return slog.New(slog.NewJSONHandler(w, opts)), nil
	default:
		return nil, Usagef("log format %q is not one of text, json", format)
	}
}

func utc(_ []string, a slog.Attr) slog.Attr {
	if a.Key == slog.TimeKey && a.Value.Kind() == slog.KindTime {
		a.Value = slog.TimeValue(a.Value.Time().UTC())
	}
	return a
}

// ClientLogger returns a logger for Kafka clients. Their info lines, one for each flush and transaction, appear only at debug
// level. Equal warnings, such as those of every retry while brokers are away, appear once a minute with the number of omitted
// ones; at debug level all appear.
func ClientLogger(l *slog.Logger) *slog.Logger {
	return slog.New(clientHandler{l.Handler(), &repeats{last: make(map[string]*repeat)}})
}

type clientHandler struct {
	slog.Handler
	repeats *repeats
}

// Enabled implements slog.Handler.
func (h clientHandler) Enabled(ctx context.Context, level slog.Level) bool {
	if level == slog.LevelInfo {
		level = slog.LevelDebug
	}
	return h.Handler.Enabled(ctx, level)
}

// Handle implements slog.Handler.
func (h clientHandler) Handle(ctx context.Context, r slog.Record) error {
	if r.Level >= slog.LevelWarn && !h.Handler.Enabled(ctx, slog.LevelDebug) {
		left, show := h.repeats.show(r.Message, r.Time)
		if !show {
			return nil
		}
		if left > 0 {
			r = r.Clone()
			r.AddAttrs(slog.Int("left_out", left))
		}
	}
	return h.Handler.Handle(ctx, r)
}

// WithAttrs implements slog.Handler.
func (h clientHandler) WithAttrs(attrs []slog.Attr) slog.Handler {
	return clientHandler{h.Handler.WithAttrs(attrs), h.repeats}
}

// WithGroup implements slog.Handler.
func (h clientHandler) WithGroup(name string) slog.Handler {
	return clientHandler{h.Handler.WithGroup(name), h.repeats}
}

// repeatAfter is the minimum time between two equal warnings.
const repeatAfter = time.Minute

// repeats has when each message was logged. There are few messages: they are constants of the client.
type repeats struct {
	mu   sync.Mutex
	last map[string]*repeat
}

type repeat struct {
	shown time.Time
	left  int // number of omitted ones since
}

// show returns whether to log a message now, and how many equal ones were omitted.
func (r *repeats) show(message string, now time.Time) (left int, show bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	last := r.last[message]
	switch {
	case last == nil:
		r.last[message] = &repeat{shown: now}
		return 0, true
	case now.Sub(last.shown) < repeatAfter:
		last.left++
		return 0, false
	}
	left = last.left
	*last = repeat{shown: now}
	return left, true
}
