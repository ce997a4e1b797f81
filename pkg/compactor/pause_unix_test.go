//go:build unix

package compactor

import (
	"context"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/skeinhq/skein/pkg/kafka"
	"github.com/skeinhq/skein/pkg/kafka/kafkatest"
)

// A process is stopped inside a transaction, as a machine that hangs is, for so long that the broker
// aborts it. It goes on without knowing, and what it then commits is what was not committed.
func TestService_PausedInsideATransaction(t *testing.T) {
	kafkatest.OnBoth(t, 1, pausedInsideATransaction)
}

func pausedInsideATransaction(t *testing.T, k kafka.Config) {
	t.Parallel() // it waits for a transaction timeout
	admin, err := kafka.NewAdmin(k)
	if err != nil {
		t.Fatal(err)
	}
	defer admin.Close()
	// A broker that has just started may not say.
	state := func() string {
		ctx, cancel := context.WithTimeout(context.Background(), kafkatest.Timeout)
		defer cancel()
		id := groupOf(k) + "-a"
		all, err := admin.DescribeTransactions(ctx, id)
		if err != nil {
			return "unknown: " + err.Error()
		}
		return all[id].State
	}
	l := startTalk(t, k, 1, 12)
	p := startProcess(t, k, t.TempDir(), "a")
	signal := func(sig syscall.Signal) {
		t.Helper()
		if err := p.cmd.Process.Signal(sig); err != nil {
			t.Fatal(err)
		}
	}
	stops := 0
	l.say(t, "it is stopped inside a transaction", func() bool {
		stops++
		signal(syscall.SIGSTOP)
		for range 20 { // half a second: a request to commit may have been on its way
			if state() != "Ongoing" {
				signal(syscall.SIGCONT)
				return false
			}
			time.Sleep(25 * time.Millisecond)
		}
		return true
	})
	began := time.Now()
	ended := func() bool { s := state(); return s == "Empty" || strings.HasPrefix(s, "Complete") }
	waitFor(t, "the broker has ended the transaction", ended)
	t.Logf("stopped %d times until a transaction was open; it is %s after %v", stops, state(), time.Since(began).Round(100*time.Millisecond))
	if s := state(); s == "CompleteCommit" {
		t.Errorf("the transaction is %s, and nobody was there to commit it", s)
	}
	signal(syscall.SIGCONT)
	l.end(t)
}
