package cli

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/url"
	"os"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/skeinhq/skein/internal/app"
	"github.com/skeinhq/skein/pkg/agui"
	"github.com/skeinhq/skein/pkg/artifact"
	"github.com/skeinhq/skein/pkg/client"
	"github.com/skeinhq/skein/pkg/lineage"
)

func newExport(out *output) *cobra.Command {
	var at *server
	var check, capture bool
	var startedAt string
	cmd := &cobra.Command{
		Use:     "export THREAD [RUN]",
		GroupID: groupRead,
		Short:   "Export the plain-text messages of a run as a frozen artifact",
		Long: `Export the plain-text messages of a run as an artifact ` + artifact.Schema + `.
Without RUN it is the tip of the thread with the latest start. Notes on stderr (or with --json, members beside
the artifact, as in the API) say what was left out, where started_at comes from, and whether a parent was guessed.

With --capture, FILE is a captured stream instead. No server is called and nothing is folded: the stream must hold
exactly one RUN_STARTED, one MESSAGES_SNAPSHOT and one terminal event. A line that is no event makes the
command refuse the capture, as it may have been a second snapshot or another end ("skein fold --export" leaves it
out). With --check, the files are artifacts, checked against the contract. A file named - is stdin. A file that
breaks a rule is refused with the rule's name.`,
		Example: `  skein export my-thread run-1 >run-1.json
  skein export --capture stream.sse --started-at 2026-04-14T19:00:00Z
  skein export --check run-1.json`,
		Args: usageArgs(cobra.MinimumNArgs(1)),
		RunE: func(cmd *cobra.Command, args []string) error {
			if check && capture {
				return app.Usagef("--check and --capture exclude one another")
			}
			if check {
				if startedAt != "" || out.asJSON {
					return app.Usagef("--check makes no artifact: leave --started-at and --json out")
				}
				return checkArtifacts(out, cmd.InOrStdin(), args)
			}
			began, err := timeFlag("--started-at", startedAt)
			if err != nil {
				return err
			}
			if capture {
				if len(args) != 1 {
					return app.Usagef("a capture is one file, but %d were named", len(args))
				}
				return exportCapture(out, cmd.InOrStdin(), args[0], began)
			}
			if len(args) > 2 {
				return app.Usagef("name THREAD, or THREAD and RUN; files need --check or --capture")
			}
			path, run := runPath(args)
			q := url.Values{"report": {"true"}}
			set(q, "startedAt", startedAt)
			return at.connect(func(c *client.Client) error {
				var answer exported
				body, err := c.Fetch(cmd.Context(), path+"/export", q, &answer)
				if err != nil {
					return out.found(err, args[0], run)
				}
				if _, err := artifact.Decode(answer.Artifact); err != nil {
					return fmt.Errorf("the server's answer is not an artifact: %w", err)
				}
				if out.asJSON {
					return out.document(body)
				}
				return answer.print(out)
			})
		},
	}
	at = serverFlags(cmd, out)
	cmd.Flags().BoolVar(&check, "check", false, "check files against the contract")
	cmd.Flags().BoolVar(&capture, "capture", false, "read a captured stream from a file")
	startedAtFlag(cmd, &startedAt)
	reportFlag(cmd, out)
	return cmd
}

func startedAtFlag(cmd *cobra.Command, to *string) {
	cmd.Flags().StringVar(to, "started-at", "", "`TIME` at which the run began, if its events do not have it or have it wrong")
}

// checkArtifacts reports for each file whether it is a valid artifact.
func checkArtifacts(out *output, stdin io.Reader, paths []string) error {
	var broken, unread int
	for _, path := range paths {
		var line string
		if b, err := readFile(stdin, path); err != nil {
			unread++
			line = fmt.Sprintf("%s: not read: %v\n", path, err)
		} else if a, err := artifact.Decode(b); err != nil {
			broken++
			line = fmt.Sprintf("%s: malformed: %v\n", path, err)
		} else {
			line = fmt.Sprintf("%s: an artifact of run %s, %s, %s\n", path, oneLine(a.RunIDRef, 80), count(len(a.Messages), "message"),
				a.TerminalEvent)
		}
		if err := out.text(line); err != nil {
			return err
		}
	}
	switch of := count(len(paths), "file"); {
	case unread > 0:
		return fmt.Errorf("malformed: %d, not read: %d of %s", broken, unread, of)
	case broken > 0:
		return fmt.Errorf("malformed: %d of %s", broken, of)
	}
	return nil
}

// readFile reads a whole file. The path - means stdin.
func readFile(stdin io.Reader, path string) ([]byte, error) {
	if path == "-" {
		return io.ReadAll(stdin)
	}
	return os.ReadFile(path)
}

func exportCapture(out *output, stdin io.Reader, path string, began time.Time) error {
	b, err := readFile(stdin, path)
	if err != nil {
		return fmt.Errorf("reading capture: %w", err)
	}
	var events [][]byte
	reader := newEventReader(bytes.NewReader(b))
	reader.Strict = true
	for {
		text, err := reader.next()
		if errors.Is(err, io.EOF) {
			break
		}
		if err != nil { // the bytes are in memory, so only their content can be at fault
			err = &artifact.Error{Rule: artifact.RuleEvent, Where: reader.where(), Detail: strings.TrimPrefix(err.Error(), reader.where()+": ")}
			return printArtifact(out, nil, nil, err)
		}
		events = append(events, text)
	}
	a, report, err := artifact.FromEnvelope(events, began)
	return printArtifact(out, a, report, err)
}

// printExport folds the runs and prints the artifact of the last one.
func printExport(out *output, runs []chainRun, began time.Time) error {
	folded, err := foldRuns(out, runs, 0) // an artifact has no kept events
	if err != nil {
		return err
	}
	turn := folded.Runs()[len(runs)-1]
	last := turn.Fold
	s := last.Summary()
	run := artifact.Run{Messages: last.Messages()}
	run.ThreadID, run.RunID, run.ParentRunID = runs[len(runs)-1].ids()
	if s.Started != nil {
		if run.Started, err = agui.Decode(s.Started); err != nil {
			return fmt.Errorf("exporting run: %w", err)
		}
	}
	if s.Terminal != nil {
		if run.Terminal, err = agui.Decode(s.Terminal); err != nil {
			return fmt.Errorf("exporting run: %w", err)
		}
		run.FinishedAt = run.Terminal.Time()
	}
	if turn.Late != nil {
		if run.Terminal, err = agui.Decode(turn.Late); err != nil {
			return fmt.Errorf("exporting run: %w", err)
		}
	}
	a, report, err := artifact.FromRun(run, began)
	return printArtifact(out, a, report, err)
}

func printArtifact(out *output, a *artifact.Artifact, report *artifact.Report, err error) error {
	if artifact.RuleOf(err) == artifact.RuleNoStart {
		return fmt.Errorf("the run cannot be exported: %w; pass --started-at TIME", err)
	}
	if err != nil {
		return fmt.Errorf("the run cannot be exported: %w", err)
	}
	b, err := a.Encode()
	if err != nil {
		return err
	}
	x := exported{b, report}
	if out.asJSON {
		return out.json(x)
	}
	return x.print(out)
}

// reportFlag adds --json to a command that prints an artifact.
func reportFlag(cmd *cobra.Command, out *output) {
	cmd.Flags().BoolVar(&out.asJSON, "json", false, "print the artifact and its report as members of one document")
}

// exported is an artifact and its report, as the API returns them with ?report=true.
type exported struct {
	Artifact json.RawMessage  `json:"artifact"`
	Report   *artifact.Report `json:"report"`
}

// print writes the artifact to stdout and the report to stderr.
func (x exported) print(out *output) error {
	if err := out.document(x.Artifact); err != nil {
		return err
	}
	if x.Report != nil {
		noteReport(out, x.Report)
	}
	return nil
}

// noteReport prints what the artifact leaves out, and the sources of its start time and history.
func noteReport(out *output, r *artifact.Report) {
	line := fmt.Sprintf("%s: %s", r.Projection, count(r.Messages, "message"))
	for _, part := range [][2]string{
		{"left out", tally(r.LeftOut)}, {"without", tally(r.Stripped)}, {"events passed over", tally(r.Events)},
	} {
		if part[1] != "" {
			line += "; " + part[0] + ": " + part[1]
		}
	}
	if r.StartedAtFrom != "" {
		line += "; started_at from: " + r.StartedAtFrom
	}
	if r.Basis != "" {
		line += "; basis: " + r.Basis
	}
	if r.Basis == string(lineage.BasisInferred) {
		line += " (of a parent that was guessed)"
	}
	out.note("%s", line)
}
