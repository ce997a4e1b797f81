package main_test

import (
	"fmt"
	"io"
	"strings"
	"syscall"
	"testing"

	"github.com/skeinhq/skein/pkg/client"
	commands "github.com/skeinhq/skein/test/process"
)

// startPublishing begins a request whose body stays open and quiet.
func startPublishing(t *testing.T, p *process) {
	t.Helper()
	body, events := io.Pipe()
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		_, _ = p.client.PostEvents(t.Context(), "t", "r", client.TypeNDJSON, body) // it may have ended with its server
	}()
	t.Cleanup(func() {
		_ = events.Close() // always nil
		<-ended
	})
	if _, err := io.WriteString(events, `{"type":"RUN_STARTED","threadId":"t","runId":"r"}`+"\n"); err != nil {
		t.Fatal(err)
	}
	commands.Eventually(t, "the request is under way: its event can be read", func() (string, bool) {
		_, err := p.client.Get(t.Context(), client.RunPath("t", "r"), nil)
		return fmt.Sprint(err), err == nil
	})
}

// An agent that is still talking holds the server for a while, which says so; a second Ctrl-C does not wait.
func TestDev_SaysWhatItWaitsForAndASecondCtrlCQuits(t *testing.T) {
	p := start(t, t.TempDir())
	startPublishing(t, p)
	if err := p.Signal(syscall.SIGINT); err != nil {
		t.Fatal(err)
	}
	commands.Eventually(t, "it says what it waits for", func() (string, bool) {
		return p.Tail(), strings.Contains(p.Tail(), "waiting for 1 request; Ctrl-C again quits now\n")
	})
	p.End(syscall.SIGINT)
	if code := p.ExitCode(); code != 130 {
		t.Errorf("exit code %d, want 130", code)
	}
}
