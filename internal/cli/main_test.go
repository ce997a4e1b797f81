package cli

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"testing"

	"go.uber.org/goleak"

	"github.com/skeinhq/skein/internal/app/dev"
	"github.com/skeinhq/skein/pkg/client"
)

// Docker's test containers keep one connection for as long as the process lives.
func TestMain(m *testing.M) {
	// A reader of bubbletea's terminal may be about to hand on a key when the program ends, and then waits for ever: the stepper's process
	// ends there.
	goleak.VerifyTestMain(tests{m}, goleak.IgnoreAnyFunction("github.com/charmbracelet/ultraviolet.(*TerminalReader).sendEvents"),
		goleak.IgnoreAnyFunction("github.com/testcontainers/testcontainers-go.(*Reaper).connect.func1"))
}

// tests are the tests of the package and the server that they share.
type tests struct{ *testing.M }

func (m tests) Run() int {
	code := m.M.Run()
	if err := shared.close(); err != nil {
		fmt.Fprintln(os.Stderr, err)
		code = 1
	}
	return code
}

// shared is a skein dev for the tests that only look at threads of their own. It is started by the first.
var shared sharedServer

type sharedServer struct {
	dir    string
	server *dev.Server
}

func (s *sharedServer) close() error {
	if s.server == nil {
		return nil
	}
	return errors.Join(s.server.Close(), os.RemoveAll(s.dir))
}

// onShared runs a test on the shared server.
func onShared(t *testing.T, f func(*dev.Server, *client.Client)) {
	t.Helper()
	if shared.server == nil {
		var err error
		if shared.dir, err = os.MkdirTemp("", "skein-cli-"); err != nil { //nolint:usetesting // it outlives the test
			t.Fatal(err)
		}
		if shared.server, err = dev.Start(context.Background(), devConfig(shared.dir)); err != nil { // as above
			t.Fatal(err)
		}
	}
	with(t, shared.server, f)
}

// withServer runs a test on a skein dev of its own.
func withServer(t *testing.T, data string, f func(*dev.Server, *client.Client), change ...func(*dev.Config)) {
	t.Helper()
	cfg := devConfig(data)
	for _, c := range change {
		c(&cfg)
	}
	s, err := dev.Start(t.Context(), cfg)
	if err != nil {
		t.Fatal(err)
	}
	defer func() {
		if err := s.Close(); err != nil {
			t.Error(err)
		}
	}()
	with(t, s, f)
}

func devConfig(data string) dev.Config {
	cfg := dev.DefaultConfig()
	cfg.Data, cfg.Listen, cfg.KafkaListen = data, "127.0.0.1:0", "127.0.0.1:0"
	return cfg
}

func with(t *testing.T, s *dev.Server, f func(*dev.Server, *client.Client)) {
	t.Helper()
	c, err := client.New(s.URL())
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	f(s, c)
}

// run executes a command line typed as "skein …".
func run(ctx context.Context, args, environ []string, stdin io.Reader, stdout, stderr io.Writer) error {
	return execute(ctx, newOutput(stdout, stderr, environ), args, stdin)
}
