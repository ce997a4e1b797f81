package app

import (
	"context"
	"io"
	"math"
	"os"
	"os/signal"
	"runtime/debug"
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
	debug.SetMemoryLimit(heapLimit(debug.SetMemoryLimit(-1)))
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

// LimitMemory sets Go's memory limit to n bytes; a lower GOMEMLIMIT stays.
func LimitMemory(n int64) { debug.SetMemoryLimit(min(n, debug.SetMemoryLimit(-1))) }

// heapLimit is the memory limit for Go where the environment (GOMEMLIMIT) sets one to the container's limit, as the chart does: 15 % less. Go may
// exceed its limit for a moment, and does not count the program itself; where garbage grows up to the container's limit, the kernel kills the process.
func heapLimit(environment int64) int64 {
	if environment == math.MaxInt64 {
		return environment
	}
	return environment / 20 * 17
}
