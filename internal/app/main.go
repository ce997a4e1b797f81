package app

import (
	"context"
	"io"
	"os"
	"os/signal"
	"syscall"
)

// RunFunc is a whole command: it returns when it is done, or soon after ctx is cancelled.
type RunFunc func(ctx context.Context, args []string, stdin io.Reader, stdout, stderr io.Writer) error

// Main runs a command as this process and exits with its code.
//
// The first SIGINT or SIGTERM cancels the command's context, which drains it; the second quits
// at once, with the code that a shell expects of a process ended by that signal. SIGPIPE does not
// kill: a write to a closed pipe fails with EPIPE, and the command ends quietly (see ExitCode).
func Main(name string, run RunFunc) {
	signal.Ignore(syscall.SIGPIPE)
	signals := make(chan os.Signal, 2)
	signal.Notify(signals, syscall.SIGINT, syscall.SIGTERM)
	ctx, cancel := context.WithCancel(context.Background())
	go func() {
		<-signals
		cancel()
		if sig, ok := (<-signals).(syscall.Signal); ok {
			os.Exit(128 + int(sig))
		}
	}()
	err := run(ctx, os.Args[1:], os.Stdin, os.Stdout, os.Stderr)
	Report(os.Stderr, name, err)
	os.Exit(ExitCode(err))
}
