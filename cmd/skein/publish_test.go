package main_test

import (
	"io"
	"os"
	"os/exec"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/skeinhq/skein/internal/client"
	"github.com/skeinhq/skein/internal/logtest"
)

// publishing is "skein publish" as a process whose stdin stays open and quiet.
type publishing struct {
	cmd    *exec.Cmd
	stderr logtest.Log
	ended  chan struct{}
}

func startPublishing(t *testing.T, p *process) *publishing {
	t.Helper()
	path, err := binary()
	if err != nil {
		t.Fatal(err)
	}
	l := &publishing{cmd: exec.Command(path, "publish", "--url", p.url), ended: make(chan struct{})}
	l.cmd.Env = []string{"PATH=" + os.Getenv("PATH")}
	l.cmd.Stderr = &l.stderr
	stdin, err := l.cmd.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := l.cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		_ = l.cmd.Process.Kill() // it has ended, or the test has failed
		<-l.ended
		_ = stdin.Close() // nobody reads it any more
	})
	go func() {
		_ = l.cmd.Wait() // its exit code is looked at by the test
		close(l.ended)
	}()
	if _, err := io.WriteString(stdin, `{"type":"RUN_STARTED","threadId":"t","runId":"r"}`+"\n"); err != nil {
		t.Fatal(err)
	}
	poll := time.NewTicker(20 * time.Millisecond)
	defer poll.Stop()
	for deadline := time.Now().Add(30 * time.Second); ; <-poll.C { // the request is under way once its event can be read
		if _, err := p.client.Get(t.Context(), client.RunPath("t", "r"), nil); err == nil {
			return l
		} else if time.Now().After(deadline) {
			t.Fatal(err)
		}
	}
}

func (l *publishing) wait(t *testing.T, within time.Duration) (stderr string, code int) {
	t.Helper()
	select {
	case <-l.ended:
	case <-time.After(within):
		t.Fatalf("skein publish has not ended after %v: %s", within, &l.stderr)
	}
	return l.stderr.String(), l.cmd.ProcessState.ExitCode()
}

func TestPublish_EndsWithCtrlC(t *testing.T) {
	p := start(t, t.TempDir())
	l := startPublishing(t, p)
	if err := l.cmd.Process.Signal(syscall.SIGINT); err != nil {
		t.Fatal(err)
	}
	if stderr, code := l.wait(t, 30*time.Second); code != 1 || !strings.Contains(stderr, "interrupted: 1 event accepted") {
		t.Errorf("exit code %d, %s", code, stderr)
	}
}

func TestPublish_EndsWithTheServer(t *testing.T) {
	p := start(t, t.TempDir())
	l := startPublishing(t, p)
	p.kill(t)
	if stderr, code := l.wait(t, 30*time.Second); code != 1 || !strings.Contains(stderr, "no answer from") || !strings.Contains(stderr, "repeat the same command") {
		t.Errorf("exit code %d, %s", code, stderr)
	}
}

// An agent that is still talking holds the server for a while, which says so; a second Ctrl-C does not wait.
func TestDev_SaysWhatItWaitsForAndASecondCtrlCQuits(t *testing.T) {
	p := start(t, t.TempDir())
	startPublishing(t, p)
	if err := p.cmd.Process.Signal(syscall.SIGINT); err != nil {
		t.Fatal(err)
	}
	poll := time.NewTicker(20 * time.Millisecond)
	defer poll.Stop()
	for deadline := time.Now().Add(30 * time.Second); !strings.Contains(p.stderr.String(), "waiting for 1 request; Ctrl-C again quits now\n"); <-poll.C {
		if time.Now().After(deadline) {
			t.Fatalf("it does not say what it waits for: %s", p.stderr)
		}
	}
	if err := p.cmd.Process.Signal(syscall.SIGINT); err != nil {
		t.Fatal(err)
	}
	select {
	case <-p.ended:
	case <-time.After(30 * time.Second):
		t.Fatal("the second Ctrl-C does not quit")
	}
	if code := p.cmd.ProcessState.ExitCode(); code != 130 {
		t.Errorf("exit code %d, want 130", code)
	}
}
