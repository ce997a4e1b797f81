package main_test

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/skeinhq/skein/internal/logtest"
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
	cmd    *exec.Cmd
	url    string
	client *client.Client
	// began is when it was started, ready how long its ready line took.
	began time.Time
	ready time.Duration
	// stderr is read until the process ends.
	stderr *logtest.Log
	// ended is closed once the process has ended; exit is why, from then on.
	ended chan struct{}
	exit  error
}

var readyLine = regexp.MustCompile(`skein is ready: HTTP API on (http://[^,]+), Kafka on`)

// start runs "skein dev" on a folder and waits for its ready line.
func start(t *testing.T, data string, more ...string) *process {
	t.Helper()
	path, err := binary()
	if err != nil {
		t.Fatal(err)
	}
	args := append([]string{"dev", "--data", data, "--listen", "127.0.0.1:0", "--kafka-listen", "127.0.0.1:0"}, more...)
	p := &process{cmd: exec.Command(path, args...), stderr: &logtest.Log{}, ended: make(chan struct{})}
	p.cmd.Env = []string{"HOME=" + t.TempDir(), "PATH=" + os.Getenv("PATH")}
	pipe, err := p.cmd.StderrPipe()
	if err != nil {
		t.Fatal(err)
	}
	p.began = time.Now()
	if err := p.cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { p.kill(t) })

	found := make(chan string, 1)
	go func() {
		lines := bufio.NewReader(io.TeeReader(pipe, p.stderr))
		for {
			line, err := lines.ReadString('\n')
			if m := readyLine.FindStringSubmatch(line); m != nil {
				found <- m[1]
			}
			if err != nil {
				p.exit = p.cmd.Wait()
				close(p.ended)
				return
			}
		}
	}()
	select {
	case p.url = <-found:
	case <-p.ended:
		t.Fatalf("skein dev ended before it was ready: %v\n%s", p.exit, p.stderr)
	case <-time.After(30 * time.Second):
		t.Fatalf("skein dev is not ready after 30 s\n%s", p.stderr)
	}
	p.ready = time.Since(p.began)
	if p.client, err = client.New(p.url); err != nil {
		t.Fatal(err)
	}
	return p
}

// kill is kill -9.
func (p *process) kill(t *testing.T) {
	t.Helper()
	if p.client != nil {
		p.client.Close()
	}
	if err := p.cmd.Process.Kill(); err != nil && !errors.Is(err, os.ErrProcessDone) {
		t.Errorf("killing skein dev: %v", err)
	}
	<-p.ended
}

// stop is Ctrl-C. It returns the exit code.
func (p *process) stop(t *testing.T) int {
	t.Helper()
	p.client.Close()
	if err := p.cmd.Process.Signal(syscall.SIGINT); err != nil {
		t.Fatal(err)
	}
	select {
	case <-p.ended:
	case <-time.After(30 * time.Second):
		t.Fatalf("skein dev does not stop\n%s", p.stderr)
	}
	return p.cmd.ProcessState.ExitCode()
}

// processorTime is what the process has used of the processors so far.
func (p *process) processorTime(t *testing.T) time.Duration {
	t.Helper()
	b, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", p.cmd.Process.Pid))
	if err != nil {
		t.Fatal(err)
	}
	// Behind the name, which may hold anything: utime and stime are fields 14 and 15, in hundredths of a second.
	f := strings.Fields(string(b[bytes.LastIndexByte(b, ')')+1:]))
	var used time.Duration
	for _, ticks := range f[11:13] {
		n, err := strconv.Atoi(ticks)
		if err != nil {
			t.Fatal(err)
		}
		used += time.Duration(n) * 10 * time.Millisecond
	}
	return used
}

// residentMB is the process's resident memory.
func (p *process) residentMB(t *testing.T) int {
	t.Helper()
	b, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", p.cmd.Process.Pid))
	if err != nil {
		t.Fatal(err)
	}
	for _, line := range strings.Split(string(b), "\n") {
		if f := strings.Fields(line); len(f) == 3 && f[0] == "VmRSS:" {
			kb, err := strconv.Atoi(f[1])
			if err != nil {
				t.Fatal(err)
			}
			return kb / 1024
		}
	}
	t.Fatal("no VmRSS")
	return 0
}

// eventually calls f until it returns "" or the time is over; what it returns says what is missing.
func eventually(t *testing.T, within time.Duration, f func(ctx context.Context) string) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), within)
	defer cancel()
	tick := time.NewTicker(20 * time.Millisecond)
	defer tick.Stop()
	for {
		missing := f(ctx)
		if missing == "" {
			return
		}
		select {
		case <-ctx.Done():
			t.Fatalf("after %v: %s", within, missing)
		case <-tick.C:
		}
	}
}
