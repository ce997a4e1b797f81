package compactor

import (
	"fmt"
	"os"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/cockroachdb/pebble/v2/vfs"

	"github.com/skeinhq/skein/pkg/compactor/runstore"
	"github.com/skeinhq/skein/pkg/compactor/runstore/runstoretest"
	"github.com/skeinhq/skein/pkg/kafka/kafkatest"
	"github.com/skeinhq/skein/test/parts/partstest"
)

// fsOfProcess is what the compactor process of a test stores on.
func fsOfProcess() vfs.FS {
	bytes, suffix, ok := strings.Cut(os.Getenv("COMPACTOR_DISK"), " ")
	if !ok {
		return vfs.Default
	}
	n, err := strconv.Atoi(bytes)
	if err != nil {
		panic(err)
	}
	d := &runstoretest.FaultyDisk{FS: vfs.Default, Suffix: suffix, Err: syscall.ENOSPC}
	d.Left.Store(int64(n))
	return d
}

// whatFillsIt are runs that a local store of some MiB has no room for, each of a thread of its own, whose snapshots stay small.
func whatFillsIt(t *testing.T) *sim {
	s := newSim(t, nil)
	for i := range 40 {
		thread, run := fmt.Sprint("t", i), fmt.Sprint("r", i)
		s.Send(thread, run, started(run))
		s.Send(thread, run, text("m"+run, strings.Repeat(run, 40<<10)))
		s.Send(thread, run, finished(run))
	}
	return s
}

// The disk is full: for tables, where Pebble would try again for ever and the next write would wait for it, or for the list of
// tables, where it would panic with its locks held. The process ends, says once what to do, and the next one on an emptied
// folder goes on.
func TestService_EndsWhereItsDiskIsFull(t *testing.T) {
	partstest.SkipShort(t, "a process with a full disk")
	for name, disk := range map[string]string{
		"from the start": "0 ", "for tables": "10000 .sst", "for what lists them": "0 MANIFEST-000001",
	} {
		t.Run(name, func(t *testing.T) {
			k := kafkatest.Start(t, 1)
			s := whatFillsIt(t)
			produce(t, k, 1, s.Events...)
			dir := t.TempDir()
			p := startProcess(t, k, dir, "a", "COMPACTOR_DISK="+disk)
			waitEnded(t, p)
			log := p.log.String()
			for _, want := range []string{runstore.ErrFailed.Error() + ", in " + dir + " (", "no space left on device",
				"the folder can be deleted"} {
				if !strings.Contains(log, want) {
					t.Errorf("its log does not say %q", want)
				}
			}
			if n := strings.Count(log, "local store reported an error"); n > 1 {
				t.Errorf("it has passed on %d lines of Pebble's", n)
			}
			if strings.Contains(log, "goroutine ") || !strings.Contains(log, "ready=\""+runstore.ErrFailed.Error()) {
				t.Error("it has panicked, or calls itself ready")
			}
			if err := os.RemoveAll(dir); err != nil {
				t.Fatal(err)
			}
			runService(t, k, testConfig(dir, "a"))
			s.Turn("last", "m")
			produce(t, k, 1, s.Events[len(s.Events)-3:]...)
			waitSealed(t, k, 41)
			waitDecided(t, k, 1)
			isTheFold(t, k)
		})
	}
}

// waitEnded waits until a process has ended by itself.
func waitEnded(t *testing.T, p *process) {
	t.Helper()
	select {
	case <-p.ended:
	case <-time.After(4 * kafkatest.Timeout):
		p.kill()
		t.Fatal("the process has not ended")
	}
}
