package page_test

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"os"
	"testing"
	"time"

	"github.com/skeinhq/skein/internal/app/dev"
	"github.com/skeinhq/skein/internal/app/dev/devtest"
	"github.com/skeinhq/skein/test/parts/partstest"
	"github.com/skeinhq/skein/web"
)

var long = flag.Bool("page.long", false, "long threads, and bounds without slack: for a machine that does nothing else")

func TestMain(m *testing.M) {
	partstest.ExitShort("a browser")
	flag.Parse()
	if *long {
		slack, patience = 1, 5*time.Minute
	}
	code := m.Run()
	if chromium.stop != nil {
		chromium.stop()
	}
	if err := errors.Join(toured.close(), written.close()); err != nil {
		fmt.Fprintln(os.Stderr, err)
		code = 1
	}
	os.Exit(code)
}

// fixture is a server that several tests share.
type fixture struct {
	server *dev.Server
	folder string
}

// toured has the tour's thread and the demo's conversations, for tests that only read; written is for those that write threads of their own.
var toured, written fixture

// address starts the server where no test has yet.
func (f *fixture) address(t *testing.T) string {
	t.Helper()
	if f.server == nil {
		folder, err := os.MkdirTemp("", "skein-page-") //nolint:usetesting // it outlives the test that makes it
		if err != nil {
			t.Fatal(err)
		}
		f.folder = folder
		cfg := devtest.Config(folder)
		cfg.Links, err = web.ParseLinks([]string{"traces=https://traces.example/{label.trace}?thread={thread}&trace={trace}",
			"tickets=https://tickets.example/{label.ticket}"})
		if err != nil {
			t.Fatal(err)
		}
		if f.server, err = dev.Start(context.Background(), cfg); err != nil { // it outlives the test that starts it
			t.Fatal(err)
		}
		if f == &toured {
			play(t, f.server.URL())
			tour(t, f.server.URL())
		}
	}
	return f.server.URL()
}

func (f *fixture) close() error {
	if f.server == nil {
		return nil
	}
	return errors.Join(f.server.Close(), os.RemoveAll(f.folder))
}
