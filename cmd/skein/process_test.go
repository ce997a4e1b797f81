package main_test

import (
	"os"
	"path/filepath"
	"regexp"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/skeinhq/skein/pkg/client"
	"github.com/skeinhq/skein/test/parts/partstest"
	commands "github.com/skeinhq/skein/test/process"
)

// scratch is a folder of this process's own.
var scratch string

// binary is the skein that the tests of this package run.
var binary = sync.OnceValues(func() (string, error) {
	dir, err := commands.Commands(scratch)
	return filepath.Join(dir, "skein"), err
})

func TestMain(m *testing.M) {
	partstest.ExitShort("skein dev as a process")
	var err error
	if scratch, err = os.MkdirTemp("", "skein-test-"); err != nil {
		panic(err)
	}
	code := m.Run()
	_ = os.RemoveAll(scratch) // a leftover in the temporary folder
	os.Exit(code)
}

// process is a running "skein dev".
type process struct {
	*commands.Process
	url    string
	client *client.Client
	// began is when it was started, ready how long its ready line took.
	began time.Time
	ready time.Duration
}

var readyLine = regexp.MustCompile(`skein is ready: HTTP API on (http://[^,]+), Kafka on`)

// start runs "skein dev" on a folder, with more flags, and waits for its ready line.
func start(t *testing.T, data string, flags ...string) *process {
	t.Helper()
	path, err := binary()
	if err != nil {
		t.Fatal(err)
	}
	p := &process{began: time.Now()}
	p.Process, err = commands.StartWith(t, []string{"HOME=" + t.TempDir()}, t.TempDir(), path,
		append([]string{"dev", "--data", data, "--listen", "127.0.0.1:0", "--kafka-listen", "127.0.0.1:0"}, flags...)...)
	if err != nil {
		t.Fatal(err)
	}
	p.url = commands.Eventually(t, "skein dev is ready", func() (string, bool) {
		if m := readyLine.FindStringSubmatch(p.Tail()); m != nil {
			return m[1], true
		}
		select {
		case <-p.Ended:
			t.Fatal("skein dev ended before it was ready")
		default:
		}
		return "not yet", false
	})
	p.ready = time.Since(p.began)
	if p.client, err = client.New(p.url); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(p.client.Close)
	return p
}

// stop is Ctrl-C. It returns the exit code.
func (p *process) stop() int {
	p.client.Close()
	p.End(syscall.SIGINT)
	return p.ExitCode()
}
