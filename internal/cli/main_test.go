package cli

import (
	"context"
	"io"
	"testing"

	"go.uber.org/goleak"
)

// Docker's test containers keep one connection for as long as the process lives.
func TestMain(m *testing.M) {
	// A reader of bubbletea's terminal may be about to hand on a key when the program ends, and then waits for ever: the stepper's process ends there.
	goleak.VerifyTestMain(m, goleak.IgnoreAnyFunction("github.com/charmbracelet/ultraviolet.(*TerminalReader).sendEvents"),
		goleak.IgnoreAnyFunction("github.com/testcontainers/testcontainers-go.(*Reaper).connect.func1"))
}

// run executes a command line typed as "skein …".
func run(ctx context.Context, args, environ []string, stdin io.Reader, stdout, stderr io.Writer) error {
	return execute(ctx, newOutput(stdout, stderr, environ), args, environ, stdin)
}
