package cli

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"strings"

	"github.com/spf13/cobra"

	"github.com/skeinhq/skein/internal/app"
	"github.com/skeinhq/skein/pkg/client"
)

func newVerify(out *output) *cobra.Command {
	var all bool
	cmd := &cobra.Command{
		Use:     "verify THREAD [RUN]",
		GroupID: groupRead,
		Short:   "Fold the raw events again and compare with the record",
		Long: `Fold the raw events of a run again and compare the result with the run's record: the hashes over events and
input, their number, every member of the record, and its parent, branch and base. Without RUN it verifies
every run of the thread, with --all every run of every thread.

It reports what it cannot prove: events that Kafka has deleted by age, ends that Skein made, contents that were
cut, and a run's parent if no record says what other open runs had done by then. Verifying several runs together
can prove more of those than verifying one. The exit code is 4 if a record differs, and 1 if a named run is not
proved.`,
		Example: `  skein verify my-thread
  skein verify --all --json | jq -r 'select(.verdict != "proved") | .threadId'`,
		Args: usageArgs(cobra.MaximumNArgs(2)),
	}
	onServer(cmd, out, func(ctx context.Context, c *client.Client, args []string) error {
		switch {
		case all == (len(args) > 0):
			return app.Usagef("name THREAD, or pass --all for every thread")
		case all:
			return verifyMany(ctx, out, c, "/v1/verify", 0)
		case len(args) == 1:
			return verifyThread(ctx, out, c, args[0])
		}
		return verifyRun(ctx, out, c, args[0], args[1])
	})
	jsonLinesFlags(cmd, out)
	cmd.Flags().BoolVar(&all, "all", false, "every run of every thread")
	return cmd
}

// proof has the members of a verification's answer that the command shows.
type proof struct {
	ThreadID, RunID, Verdict, Reason string
	Record                           claim
	Raw                              *claim
	Differences, Unproved            []string
	DiffersFrom                      string
}

type claim struct {
	Events int64
	SHA256 string
}

// The verdicts.
const (
	verdictProved  = "proved"
	verdictDiffers = "differs"
)

// verifyRun verifies the run that the arguments name.
func verifyRun(ctx context.Context, out *output, c *client.Client, thread, run string) error {
	var p proof
	body, err := c.Fetch(ctx, client.RunPath(thread, run)+"/verify", nil, &p)
	if err == nil {
		err = out.result(body, p.text())
	}
	switch {
	case err != nil:
		return err
	case p.Verdict == verdictDiffers:
		return app.Differsf("the record of run %s differs from its raw events", oneLine(run, 80))
	case p.Verdict != verdictProved:
		return errors.New("run " + oneLine(run, 80) + " is not proved")
	}
	return nil
}

// verifyThread verifies all runs of a thread.
func verifyThread(ctx context.Context, out *output, c *client.Client, thread string) error {
	var t struct{ Runs int }
	if _, err := c.Fetch(ctx, client.ThreadPath(thread), nil, &t); err != nil {
		return err
	}
	return verifyMany(ctx, out, c, client.ThreadPath(thread)+"/verify", t.Runs)
}

// line is a line of an answer about many runs: a proof or the server's progress.
type line struct {
	proof
	Progress *struct{ Done, Total int }
}

// verifyMany verifies the runs of an API path. total is the number of runs, or 0 if the server reports progress. The text form shows
// proved runs only as a number.
func verifyMany(ctx context.Context, out *output, c *client.Client, path string, total int) error {
	bar := newProgress(out, "verify")
	defer bar.end()
	counts := map[string]int{}
	runs := 0
	each := func(text []byte) error {
		var p line
		if err := decode(text, "proof", &p); err != nil {
			return err
		}
		if p.Progress != nil {
			bar.step(p.Progress.Done, p.Progress.Total)
			return nil
		}
		counts[p.Verdict]++
		if runs++; total > 0 {
			bar.step(runs, max(runs, total)) // new runs may have been added
		}
		switch {
		case out.asJSON:
			return out.document(text)
		case p.Verdict != verdictProved:
			bar.end()
			return out.text(p.text())
		}
		return nil
	}
	if err := c.Copy(ctx, path, nil, client.TypeNDJSON, &byLine{each: each}); err != nil {
		return err
	}
	bar.end()
	differ := counts[verdictDiffers]
	if !out.asJSON {
		if err := out.text(fmt.Sprintf("%s: %d proved, %d differ, %d not proved\n",
			count(runs, "run"), counts[verdictProved], differ, runs-counts[verdictProved]-differ)); err != nil {
			return err
		}
	}
	if differ > 0 {
		return app.Differsf("%s not matching the raw events", count(differ, "record"))
	}
	return nil
}

// byLine calls each with every line written to it, without the line feed.
type byLine struct {
	each    func(line []byte) error
	partial []byte
}

// Write implements io.Writer.
func (w *byLine) Write(b []byte) (int, error) {
	w.partial = append(w.partial, b...)
	for {
		line, next, whole := bytes.Cut(w.partial, []byte{'\n'})
		if !whole {
			return len(b), nil
		}
		if err := w.each(line); err != nil {
			return 0, err
		}
		w.partial = next
	}
}

// text formats a proof for people.
func (p proof) text() string {
	var b strings.Builder
	fmt.Fprintf(&b, "thread %s, run %s: ", oneLine(p.ThreadID, 80), oneLine(p.RunID, 80))
	switch p.Verdict {
	case verdictProved:
		fmt.Fprintf(&b, "proved\n  %s, sha256 %s\n", count(p.Record.Events, "event"), p.Record.SHA256)
	case verdictDiffers:
		fmt.Fprintf(&b, "differs at %s or later, in %s\n", p.DiffersFrom, strings.Join(p.Differences, ", "))
		fmt.Fprintf(&b, "  record      %s, sha256 %s\n", count(p.Record.Events, "event"), p.Record.SHA256)
		if p.Raw != nil {
			fmt.Fprintf(&b, "  raw events  %s, sha256 %s\n", count(p.Raw.Events, "event"), p.Raw.SHA256)
		}
	default:
		fmt.Fprintf(&b, "not proved: %s\n", oneLine(p.Reason, 200))
	}
	for _, u := range p.Unproved {
		fmt.Fprintf(&b, "  not part of the proof: %s\n", oneLine(u, 200))
	}
	return b.String()
}
