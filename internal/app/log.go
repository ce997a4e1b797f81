package app

import (
	"context"
	"fmt"
	"io"
	"log/slog"
	"strings"
)

// NewLogger returns the process's logger. Format is "text" or "json", level one of debug, info,
// warn and error. Times are UTC, as everywhere in Skein.
func NewLogger(w io.Writer, format, level string) (*slog.Logger, error) {
	var min slog.Level
	switch strings.ToLower(level) {
	case "debug", "info", "warn", "error":
		if err := min.UnmarshalText([]byte(level)); err != nil {
			return nil, fmt.Errorf("reading log level: %w", err)
		}
	default:
		return nil, Usagef("log level %q is not one of debug, info, warn, error", level)
	}
	opts := &slog.HandlerOptions{Level: min, ReplaceAttr: utc}
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

// ClientLogger is the logger for Kafka clients. They tell every flush and every transaction as
// information, which is detail to whoever runs Skein: it is shown at debug level only.
func ClientLogger(l *slog.Logger) *slog.Logger { return slog.New(clientHandler{l.Handler()}) }

type clientHandler struct{ slog.Handler }

// Enabled implements slog.Handler.
func (h clientHandler) Enabled(ctx context.Context, level slog.Level) bool {
	if level == slog.LevelInfo {
		level = slog.LevelDebug
	}
	return h.Handler.Enabled(ctx, level)
}

// WithAttrs implements slog.Handler.
func (h clientHandler) WithAttrs(attrs []slog.Attr) slog.Handler {
	return clientHandler{h.Handler.WithAttrs(attrs)}
}

// WithGroup implements slog.Handler.
func (h clientHandler) WithGroup(name string) slog.Handler {
	return clientHandler{h.Handler.WithGroup(name)}
}
