package embedded

import (
	"context"
	"fmt"
	"log/slog"

	"github.com/twmb/franz-go/pkg/kfake"
)

// logger forwards kfake's warnings and errors, but not its lower levels, which log every request.
type logger struct{ l *slog.Logger }

func (g logger) Logf(level kfake.LogLevel, msg string, args ...any) {
	var to slog.Level
	switch level {
	case kfake.LogLevelError:
		to = slog.LevelError
	case kfake.LogLevelWarn: // such as a commit that took 6 ms, which needs no action
		to = slog.LevelInfo
	default:
		return
	}
	if g.l.Enabled(context.Background(), to) {
		g.l.Log(context.Background(), to, "embedded broker", "detail", fmt.Sprintf(msg, args...))
	}
}
