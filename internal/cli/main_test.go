package cli

import (
	"context"
	"io"
	"testing"

	"go.uber.org/goleak"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// run executes a command line typed as "skein …".
func run(ctx context.Context, args, environ []string, stdin io.Reader, stdout, stderr io.Writer) error {
	return execute(ctx, newOutput(stdout, stderr, environ), args, environ, stdin)
}
