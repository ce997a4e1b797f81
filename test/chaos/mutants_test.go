package chaos_test

import (
	"fmt"
	"os"
	"testing"

	"github.com/skeinhq/skein/test/process"
)

// mutants are compactors without one of the things that keep two owners of a partition apart.
//
// Not among them are commits without member id, generation and instance id: no storm can tell such a
// build. Before it ends a transaction, the client itself asks the group whether it is still a member
// (the forced heartbeat in kgo's GroupTransactSession.End), and the transaction of a process that
// stands still for a session timeout has timed out by then.
var mutants = []struct{ name, file, old, new string }{
	{
		"a partition opens without waiting for its fence", "pkg/compactor/transaction.go",
		"sh.fence = sh.fenceRecord.Offset", "sh.fence = -1",
	},
	{
		"open runs hold no commit", "pkg/compactor/transaction.go",
		"sh.progress.Committed, -1", "sh.progress.Processed, -1",
	},
}

// TestMutants puts each mutant through the beginning of the same storm, which has to break it. It takes
// minutes for each, so it runs where SKEIN_MUTANTS=1 asks for it: make chaos-mutants.
func TestMutants(t *testing.T) {
	if os.Getenv("SKEIN_MUTANTS") != "1" {
		t.Skip("slow: run make chaos-mutants")
	}
	report(t, []byte(mutantsHead), os.O_APPEND)
	for _, m := range mutants {
		t.Run(m.name, func(t *testing.T) {
			bin, overlay := t.TempDir(), process.Overlay(t, "../../"+m.file, m.old, m.new)
			if err := process.Build(bin, []string{"-overlay", overlay}, "../../cmd/compactor"); err != nil {
				t.Fatal(err)
			}
			o := outcome{seed: seed(), wanted: min(*faultsFlag, 20)}
			endure(t, bin, &o)
			first := "none"
			if len(o.wrong) > 0 {
				first = o.wrong[0]
			}
			report(t, fmt.Appendf(nil, "| %s (`%s`: `%s` becomes `%s`) | %d | %d | %s |\n", m.name, m.file, m.old, m.new, o.counted, len(o.wrong), first), os.O_APPEND)
			if len(o.wrong) == 0 {
				t.Fatalf("%d faults did not break it", o.counted)
			}
			t.Logf("%d faults broke it in %d places, such as: %s", o.counted, len(o.wrong), first)
		})
	}
}

const mutantsHead = `
## Without a protection

The same seed with builds that lack one thing each. Not among them: commits without member id, generation and instance id. Such a
build went through 20 of these faults unharmed (seed 7), as the client asks the group by itself before it ends a transaction.

| build | faults that count | wrong | such as |
|---|--:|--:|---|
`
