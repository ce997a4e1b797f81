package main_test

import (
	"io"
	"os"
	"os/exec"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/skeinhq/skein/pkg/client"
)

// startPublishing runs "skein publish" as a process whose stdin stays open and quiet.
func startPublishing(t *testing.T, p *process) {
	t.Helper()
	path, err := binary()
	if err != nil {
		t.Fatal(err)
	}
	cmd := exec.Command(path, "publish", "--url", p.url)
	cmd.Env = []string{"PATH=" + os.Getenv("PATH")}
	stdin, err := cmd.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		_ = cmd.Process.Kill() // it may have ended with its server
		_ = cmd.Wait()
		_ = stdin.Close() // nobody reads it any more
	})
	if _, err := io.WriteString(stdin, `{"type":"RUN_STARTED","threadId":"t","runId":"r"}`+"\n"); err != nil {
		t.Fatal(err)
	}
	poll := time.NewTicker(20 * time.Millisecond)
	defer poll.Stop()
	for deadline := time.Now().Add(30 * time.Second); ; <-poll.C { // the request is under way once its event can be read
		if _, err := p.client.Get(t.Context(), client.RunPath("t", "r"), nil); err == nil {
			return
		} else if time.Now().After(deadline) {
			t.Fatal(err)
		}
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
	for deadline := time.Now().Add(30 * time.Second); !strings.Contains(p.stderr.String(),
		"waiting for 1 request; Ctrl-C again quits now\n"); <-poll.C {
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
