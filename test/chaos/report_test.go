package chaos_test

import (
	"cmp"
	"fmt"
	"maps"
	"os/exec"
	"runtime"
	"slices"
	"strings"
	"time"
)

// report is the outcome for people.
func (o *outcome) report() []byte {
	var b strings.Builder
	commit := "unknown"
	if out, err := exec.Command("git", "describe", "--always", "--dirty").Output(); err == nil {
		commit = strings.TrimSpace(string(out))
	}
	fmt.Fprintf(&b, `# Chaos on a real Kafka

Written by %[1]smake chaos-long%[1]s. What is done, what counts and what is checked: %[1]stest/chaos%[1]s.

- command: %[1]sgo test ./test/chaos -chaos.seed=%[2]d -chaos.faults=%[3]d%[1]s, with %[1]sSKEIN_MUTANTS=1%[1]s for the last section
- build: commit %[4]s, %[5]s, %[6]d processors shared with whatever else ran
- Kafka: %[7]s; replication 3, min.insync.replicas 2
- compactors: %[8]d and those that are added, session timeout 10 s, transaction timeout 8 s, commits every 200 ms
  as in production; checkpoints every 2 s to 10 s
- load: %[9]d events a second in %[10]d threads at a time, up to two runs open in each

`, "`", o.seed, o.wanted, commit, runtime.Version(), runtime.NumCPU(), o.kafka, compactors, rate, slots)

	fmt.Fprintf(&b, `## Result

%d faults in %v, of which %d count: a run was open in the compactor that was struck (in any of them where a broker was),
by its own metric just before, or a transaction was under way, by its coordinator (just after a compactor was struck, just
before a broker was). %d faults cut into a transaction. %d compactors ended as fenced without a double, and were started anew.

`, len(o.faults), o.raged.Round(time.Second), o.counted, o.cut(), o.fenced)
	if f := o.figures; len(o.wrong) == 0 {
		fmt.Fprintf(&b, `%d events of %d runs. %d runs ended, and each is sealed by one record in the whole log of skein.runs (nothing was compacted
away: segments stay open for hours); %d never end and are open. Event counts and hashes are those that the load remembers, and
each run's last record is byte for byte that of a second fold: a plain reader of the raw topic hands each thread, whole, to the
stage's own core, without Kafka, transactions, checkpoints or a restart. (Offset ranges are compared with the raw topic instead.)
And %d of the ended runs have the same record where the reader of %sskein refold%s folds the raw topic, which shares with the stage
how an event is read and folded, and nothing of how it commits or restores.
%d checkpoints were written on the way. %d dead letters: those that were planted, each once. %d pairs of snapshots, each
branch's last one equal to what the records give. Everything was committed %v after the load's end.

`, f.events, f.runs, f.sealed, f.open, f.refolds, "`", "`", f.checkpoints, f.letters, f.snapshots, o.drained.Round(time.Second))
	} else {
		fmt.Fprintf(&b, "**It failed:** %d things are wrong, such as these.\n\n", len(o.wrong))
		for _, p := range o.wrong[:min(len(o.wrong), 20)] {
			fmt.Fprintf(&b, "- %s\n", p)
		}
		b.WriteString("\n")
	}
	o.kinds(&b)
	o.list(&b)
	return []byte(b.String())
}

func (o *outcome) cut() int {
	n := 0
	for _, f := range o.faults {
		if f.transaction != "" {
			n++
		}
	}
	return n
}

// kinds is a table of faults by kind.
func (o *outcome) kinds(b *strings.Builder) {
	kinds := map[string][]*fault{}
	for _, f := range o.faults {
		kinds[f.kind] = append(kinds[f.kind], f)
	}
	b.WriteString("| fault | times | that count | with runs open | inside a transaction | ready again, median | slowest |\n|---|--:|--:|--:|--:|--:|--:|\n")
	for _, kind := range slices.Sorted(maps.Keys(kinds)) {
		var counted, open, cut int
		for _, f := range kinds[kind] {
			if f.counts() {
				counted++
			}
			if f.openRuns > 0 {
				open++
			}
			if f.transaction != "" {
				cut++
			}
		}
		slices.SortFunc(kinds[kind], func(a, b *fault) int { return cmp.Compare(a.recovery, b.recovery) })
		n := len(kinds[kind])
		fmt.Fprintf(b, "| %s | %d | %d | %d | %d | %s | %s |\n", kind, n, counted, open, cut,
			seconds(kinds[kind][n/2].recovery), seconds(kinds[kind][n-1].recovery))
	}
}

// seconds leaves out what was not waited for.
func seconds(d time.Duration) string {
	if d == 0 {
		return ""
	}
	return fmt.Sprintf("%.1f s", d.Seconds())
}

// list is a table of all faults.
func (o *outcome) list(b *strings.Builder) {
	b.WriteString("\n## Faults\n\n| at | fault | of | open runs | transaction | what followed |\n|--:|---|---|--:|---|---|\n")
	for _, f := range o.faults {
		fmt.Fprintf(b, "| %.1f s | %s | %s | %d | %s | %s |\n", f.at.Seconds(), f.kind, f.target, f.openRuns, cmp.Or(f.transaction, "none"), f.aftermath)
	}
}
