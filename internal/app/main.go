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

// RunFunc runs a command. It returns when the command is done, or soon after ctx is cancelled.
type RunFunc func(ctx context.Context, args []string, stdin io.Reader, stdout, stderr io.Writer) error

// Main runs a command as this process and exits with its code.
//
// The first SIGINT or SIGTERM cancels the command's context, so that the command drains. The second one exits at once, with the
// code of a process killed by that signal. SIGPIPE is ignored: a write to a closed pipe fails with EPIPE, and the command ends
// quietly (see ExitCode).
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

// heapLimit returns Go's memory limit: 15 % below GOMEMLIMIT, which the chart sets to the container's limit. Go may exceed its
// limit briefly and does not count the binary, and at the container's limit the kernel kills the process.
func heapLimit(environment int64) int64 {
	if environment == math.MaxInt64 {
		return environment
	}
	return environment / 20 * 17
}
