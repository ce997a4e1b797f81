package cli

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"net/url"
	"os"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/skeinhq/skein/internal/app"
	"github.com/skeinhq/skein/internal/client"
	"github.com/skeinhq/skein/pkg/agui"
	"github.com/skeinhq/skein/pkg/artifact"
)

func newExport(out *output, environ []string) *cobra.Command {
	at := server{environ: environ}
	var check, capture bool
	var startedAt string
	cmd := &cobra.Command{
		Use:     "export THREAD [RUN]",
		GroupID: groupRead,
		Short:   "Export the plain-text messages of a run as a frozen artifact",
		Long: `Export the plain-text messages of a run as an artifact ` + artifact.Schema + `.
Without RUN it is the tip of the thread with the latest start. What is left out is told on stderr.

With --capture FILE is a captured stream instead, no server is asked, and nothing is folded: it must hold
exactly one RUN_STARTED, one MESSAGES_SNAPSHOT and one terminal event. A line in it that is no event
refuses the capture ("skein fold --export" leaves it out): it may have been a second snapshot or another
end. With --check the files are artifacts, held to the contract. What breaks a rule is refused with the
rule's name.`,
		Example: `  skein export my-thread run-1 >run-1.json
  skein export --capture stream.sse --started-at 2026-04-14T19:00:00Z
  skein export --check run-1.json`,
		Args: usageArgs(cobra.MinimumNArgs(1)),
		RunE: func(cmd *cobra.Command, args []string) error {
			if check && capture {
				return app.Usagef("--check and --capture exclude one another")
			}
			if check {
				return checkArtifacts(out, args)
			}
			began, err := startTime(startedAt)
			if err != nil {
				return err
			}
			if capture {
				if len(args) != 1 {
					return app.Usagef("a capture is one file, %d were named", len(args))
				}
				return exportCapture(out, args[0], began)
			}
			if len(args) > 2 {
				return app.Usagef("say THREAD, or THREAD and RUN; files need --check or --capture")
			}
			path, run := client.ThreadPath(args[0]), ""
			if len(args) == 2 {
				run = args[1]
				path = client.RunPath(args[0], run)
			}
			q := url.Values{"report": {"true"}}
			set(q, "startedAt", startedAt)
			return at.connect(func(c *client.Client) error {
				body, err := c.Get(cmd.Context(), path+"/export", q)
				if err != nil {
					return found(err, out, at, args[0], run)
				}
				var answer struct {
					Artifact json.RawMessage
					Report   artifact.Report
				}
				if err := json.Unmarshal(body, &answer); err != nil {
					return fmt.Errorf("decoding export: %w", err)
				}
				if _, err := artifact.Decode(answer.Artifact); err != nil {
					return fmt.Errorf("the server's answer is no artifact: %w", err)
				}
				if err := out.document(answer.Artifact); err != nil {
					return err
				}
				noteReport(out, &answer.Report)
				return nil
			})
		},
	}
	serverFlags(cmd, &at)
	cmd.Flags().BoolVar(&check, "check", false, "hold files to the contract")
	cmd.Flags().BoolVar(&capture, "capture", false, "read a captured stream out of a file")
	startedAtFlag(cmd, &startedAt)
	return cmd
}

func startedAtFlag(cmd *cobra.Command, to *string) {
	cmd.Flags().StringVar(to, "started-at", "", "`TIME` at which the run began, where its events do not say it or say it wrong")
}

func startTime(s string) (time.Time, error) {
	if s == "" {
		return time.Time{}, nil
	}
	t, err := time.Parse(time.RFC3339, s)
	if err != nil {
		return t, app.Usagef("--started-at must be a time such as 2026-04-14T19:00:00Z, not %q", s)
	}
	return t, nil
}

// checkArtifacts tells of each file whether it keeps the contract.
func checkArtifacts(out *output, paths []string) error {
	broken := 0
	for _, path := range paths {
		b, err := os.ReadFile(path)
		if err != nil {
			return fmt.Errorf("reading artifact: %w", err)
		}
		a, err := artifact.Decode(b)
		line := fmt.Sprintf("%s: malformed: %v\n", path, err)
		if err == nil {
			line = fmt.Sprintf("%s: an artifact of run %s, %s, %s\n", path, oneLine(a.RunIDRef, 80), count(len(a.Messages), "message"), a.TerminalEvent)
		} else {
			broken++
		}
		if err := out.text(line); err != nil {
			return err
		}
	}
	if broken > 0 {
		return fmt.Errorf("malformed: %d of %s", broken, count(len(paths), "file"))
	}
	return nil
}

func exportCapture(out *output, path string, began time.Time) error {
	f, err := os.Open(path)
	if err != nil {
		return fmt.Errorf("reading capture: %w", err)
	}
	defer func() { _ = f.Close() }() // it was only read
	var events [][]byte
	reader := newEventReader(f)
	for {
		text, err := reader.next()
		if errors.Is(err, io.EOF) {
			break
		}
		if err != nil {
			return fmt.Errorf("reading %s, %s: %w", path, reader.where(), err)
		}
		events = append(events, slices.Clone(text))
	}
	a, report, err := artifact.FromEnvelope(events, began)
	return printArtifact(out, a, report, err)
}

// printExport prints the artifact of the last run, which was folded here.
func printExport(out *output, runs []chainRun, began time.Time) error {
	folds, err := foldChain(out, runs)
	if err != nil {
		return err
	}
	last := folds[len(folds)-1]
	s := last.Summary()
	run := artifact.Run{Messages: last.Messages()}
	run.ThreadID, run.RunID, run.ParentRunID = runs[len(runs)-1].ids()
	if s.Started != nil {
		if run.Started, err = agui.Decode(s.Started); err != nil {
			return fmt.Errorf("exporting run: %w", err)
		}
		run.StartedAt = artifact.TimeOf(run.Started)
	}
	if s.Terminal != nil {
		if run.Terminal, err = agui.Decode(s.Terminal); err != nil {
			return fmt.Errorf("exporting run: %w", err)
		}
		run.FinishedAt = artifact.TimeOf(run.Terminal)
	}
	a, report, err := artifact.FromRun(run, began)
	return printArtifact(out, a, report, err)
}

func printArtifact(out *output, a *artifact.Artifact, report *artifact.Report, err error) error {
	if artifact.RuleOf(err) == artifact.RuleNoStart {
		return fmt.Errorf("the run cannot be exported: %w; say --started-at TIME", err)
	}
	if err != nil {
		return fmt.Errorf("the run cannot be exported: %w", err)
	}
	b, err := a.Encode()
	if err != nil {
		return err
	}
	if err := out.document(b); err != nil {
		return err
	}
	noteReport(out, report)
	return nil
}

// noteReport tells a person what the artifact has not.
func noteReport(out *output, r *artifact.Report) {
	line := fmt.Sprintf("%s: %s", r.Projection, count(r.Messages, "message"))
	for _, part := range []struct {
		what   string
		counts map[string]int
	}{{"left out", r.LeftOut}, {"without", r.Stripped}, {"events passed over", typeCounts(r.Events)}} {
		if len(part.counts) == 0 {
			continue
		}
		var list []string
		for _, name := range slices.Sorted(maps.Keys(part.counts)) {
			list = append(list, fmt.Sprintf("%d %s", part.counts[name], oneLine(name, 40)))
		}
		line += "; " + part.what + ": " + strings.Join(list, ", ")
	}
	out.note("%s", line)
}

func typeCounts(events map[agui.Type]int) map[string]int {
	out := make(map[string]int, len(events))
	for t, n := range events {
		out[string(t)] = n
	}
	return out
}
