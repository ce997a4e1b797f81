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
// aborts it. It goes on without knowing, and what it then commits is what was not committed. Where the brokers
// say that it is fenced, which depends on the request that comes first, it ends and is started anew.
func TestService_PausedInsideATransaction(t *testing.T) {
	kafkatest.OnBoth(t, 1, pausedInsideATransaction)
}

func pausedInsideATransaction(t *testing.T, k kafka.Config) {
	t.Parallel() // it waits for a transaction timeout
	admin := kafkatest.Admin(t, k)
	// A broker that has just started may not say.
	state := func() string {
		ctx, cancel := context.WithTimeout(context.Background(), kafkatest.Timeout)
		defer cancel()
		id := k.CompactorGroup() + "-a"
		all, err := admin.DescribeTransactions(ctx, id)
		if err != nil {
			return "unknown: " + err.Error()
		}
		return all[id].State
	}
	l := startTalk(t, k, 1, 12)
	dir := t.TempDir()
	p := startProcess(t, k, dir, "a")
	signal := func(sig syscall.Signal) {
		t.Helper()
		if err := p.cmd.Process.Signal(sig); err != nil {
			t.Fatal(err)
		}
	}
	// A request to commit may be on its way when it is stopped, for as long as the broker is busy: then it is
	// let go on, and stopped again.
	stops := 0
	l.say(t, "it is stopped inside a transaction, and the broker has aborted that", func() bool {
		stops++
		signal(syscall.SIGSTOP)
		defer signal(syscall.SIGCONT)
		s := state()
		if s != "Ongoing" {
			return false
		}
		began := time.Now()
		for deadline := began.Add(kafkatest.Timeout); s != "Empty" && !strings.HasPrefix(s, "Complete"); s = state() {
			if time.Now().After(deadline) {
				t.Fatalf("the transaction of a process that is stopped stays %s", s)
			}
			time.Sleep(25 * time.Millisecond)
		}
		// kfake calls what was committed empty, too; but a commit that was on its way takes no seconds.
		return s == "CompleteAbort" || s == "Empty" && time.Since(began) > 2*time.Second
	})
	decided := func() string {
		offsets, err := admin.FetchOffsets(t.Context(), k.CompactorGroup())
		if err != nil {
			t.Fatal(err)
		}
		o, _ := offsets.Lookup(k.Topics().Events, 0)
		return o.Metadata
	}
	before, starts := decided(), 1
	l.say(t, "it has gone on", func() bool {
		select {
		case <-p.ended:
			p = startProcess(t, k, dir, "a")
			starts++
		default:
		}
		return decided() != before
	})
	t.Logf("stopped %d times, started %d times", stops, starts)
	l.end(t)
}
