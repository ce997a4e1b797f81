package e2e_test

import (
	"fmt"
	"os"
	"testing"

	"github.com/skeinhq/skein/test/process"
)

// killer kills a stage once, with SIGKILL, at the first moment after so many events at which the stage's
// own metrics show what must be there to be lost.
type killer struct {
	t     *testing.T
	after int
	// find reports whether it is there, and says what was seen.
	find func() (string, bool)
	done bool
}

// kill kills the stage if it is time, and reports that.
func (k *killer) kill(pub *publisher, stage *process.Process) bool {
	if k.done || pub.sent < k.after {
		return false
	}
	seen, ok := k.find()
	if !ok {
		return false
	}
	stage.End(os.Kill)
	k.done = true
	k.t.Logf("killed the %s after %d events, with %d runs begun and not ended: %s", stage.Name, pub.sent, pub.open, seen)
	return true
}

// openRuns finds runs that are open in the compactor, of which records are written already.
func openRuns(t *testing.T, p *pipeline) func() (string, bool) {
	return func() (string, bool) {
		m := p.compactor.Metrics(t)
		open, checkpoints := m["skein_compactor_open_runs"], m[`skein_compactor_records_total{kind="checkpoint"}`]
		return fmt.Sprintf("%v runs were open in it, and it had written %v records of open runs", open, checkpoints), open > 0 && checkpoints > 0
	}
}

// heldRows finds records of runs that the indexer has read since it last wrote: between two looks it
// has read some and written nothing, so their rows are not acknowledged.
func heldRows(t *testing.T, p *pipeline) func() (string, bool) {
	var read, writes float64
	looked := false
	return func() (string, bool) {
		m := p.indexer.Metrics(t)
		wasRead, wereWrites, first := read, writes, !looked
		read, writes, looked = m[`skein_indexer_records_total{outcome="run"}`], m["skein_indexer_write_duration_seconds_count"], true
		held := read - wasRead
		return fmt.Sprintf("it had written %v times, and read %v records of runs since", writes, held),
			!first && writes > 0 && writes == wereWrites && held > 0
	}
}
