package app

import (
	"bytes"
	"log/slog"
	"strings"
	"testing"
	"testing/synctest"
	"time"
)

func TestClientLogger_SaysTheSameOnceAMinute(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		for level, want := range map[slog.Level]int{slog.LevelWarn: 4, slog.LevelDebug: 1202} {
			var out bytes.Buffer
			l := ClientLogger(slog.New(slog.NewTextHandler(&out, &slog.HandlerOptions{Level: level})))
			for range 600 { // two minutes
				l.Warn("unable to open connection to broker", "addr", "127.0.0.1:1")
				l.Info("flushing")
				time.Sleep(200 * time.Millisecond)
			}
			l.With("a", 1).Warn("unable to open connection to broker")
			l.Error("another one")
			got := out.String()
			if n := strings.Count(got, "\n"); n != want {
				t.Errorf("at %v it writes %d lines, want %d", level, n, want)
			}
			if n := strings.Count(got, "left_out=299"); level == slog.LevelWarn && n != 2 {
				t.Errorf("%d lines tell how many were left out, want 2:\n%s", n, got)
			}
		}
	})
}
