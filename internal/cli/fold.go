package cli

import (
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"strings"

	"github.com/spf13/cobra"

	"github.com/skeinhq/skein/internal/app"
	"github.com/skeinhq/skein/pkg/agui"
	"github.com/skeinhq/skein/pkg/compact"
	"github.com/skeinhq/skein/pkg/lineage"
)

func newFold(out *output) *cobra.Command {
	var records, events, export, asJSON bool
	var startedAt string
	var kept agui.Families
	cmd := &cobra.Command{
		Use:     "fold FILE.jsonl…",
		GroupID: groupWrite,
		Short:   "Fold event files without a server",
		Long: `Fold event files without a server and print {messages, state} at the end of the last run.

The files (NDJSON or SSE) are the runs of one chain in order; a file may hold several runs.
FILE.input.json beside FILE.jsonl is the RunAgentInput of its first run. A run that has an input
starts from its messages, any other from what the run before left.

What is no event, or comes after a run's end, is left out and told on stderr, as the compactor would.

All that is printed is JSON. What an artifact (--export) has not, and whose time started_at is, is told on
stderr, or with --json beside the artifact, as "skein export" does.`,
		Example: `  skein fold t1.jsonl t2.jsonl t3.jsonl | jq .messages
  skein fold --records run.jsonl | jq .stats`,
		Args: usageArgs(cobra.MinimumNArgs(1)),
		RunE: func(_ *cobra.Command, args []string) error {
			if records && events || records && export || events && export {
				return app.Usagef("--records, --events and --export exclude one another")
			}
			began, err := startTime(startedAt)
			if err != nil {
				return err
			}
			runs, err := readChain(out, args)
			if err != nil {
				return err
			}
			if records {
				return printRecords(out, runs, kept)
			}
			if export {
				return printExport(out, runs, began, asJSON)
			}
			return printFold(out, runs, events, kept)
		},
	}
	cmd.Flags().BoolVar(&records, "records", false, "print the run records, one a line")
	cmd.Flags().BoolVar(&events, "events", false, "print the compacted AG-UI events of the runs, one a line")
	cmd.Flags().BoolVar(&export, "export", false, "print the export artifact of the last run")
	app.KeepEventsFlag(cmd.Flags(), &kept)
	startedAtFlag(cmd, &startedAt)
	jsonFlag(cmd, &asJSON)
	return cmd
}

// chainRun is one run as it stands in the files.
type chainRun struct {
	input  []byte
	events []fileEvent
}

// ids are what the run's first event names, else its input. What is wrong with either is told when it
// is folded.
func (r chainRun) ids() (thread, run, parent string) {
	type ids struct{ ThreadID, RunID, ParentRunID string }
	var first struct {
		ids
		Input json.RawMessage
	}
	_ = json.Unmarshal(r.events[0].text, &first)
	input := r.input
	if input == nil {
		input = first.Input
	}
	var given ids
	_ = json.Unmarshal(input, &given)
	return cmp.Or(first.ThreadID, given.ThreadID), cmp.Or(first.RunID, given.RunID), cmp.Or(first.ParentRunID, given.ParentRunID)
}

// fileEvent is a line of a file and where it stands, for messages about it.
type fileEvent struct {
	text  []byte
	where string
}

// readChain reads files as the runs of a chain. A RUN_STARTED opens the next run, except as the
// first event of a file, where the file has opened it.
func readChain(out *output, paths []string) ([]chainRun, error) {
	var runs []chainRun
	for _, path := range paths {
		input, err := inputBeside(path)
		if err != nil {
			return nil, err
		}
		f, err := os.Open(path)
		if err != nil {
			return nil, app.Usagef("opening events: %w", err)
		}
		of, err := readRuns(f, path, input)
		if err := errors.Join(err, f.Close()); err != nil {
			return nil, fmt.Errorf("reading %s: %w", path, err)
		}
		if len(of) == 0 {
			out.note("%s: no events", path)
		}
		runs = append(runs, of...)
	}
	if len(runs) == 0 {
		return nil, errors.New("folding: there are no events")
	}
	return runs, nil
}

// inputBeside reads NAME.input.json for NAME.jsonl (or any other extension); nil where there is none.
func inputBeside(path string) ([]byte, error) {
	name := path
	if i := strings.LastIndexByte(path, '.'); i > strings.LastIndexAny(path, `/\`) {
		name = path[:i]
	}
	input, err := os.ReadFile(name + ".input.json")
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, fmt.Errorf("reading input: %w", err)
	}
	return input, nil
}

func readRuns(r io.Reader, path string, input []byte) ([]chainRun, error) {
	var runs []chainRun
	reader := newEventReader(r)
	for {
		text, err := reader.next()
		if errors.Is(err, io.EOF) {
			return runs, nil
		}
		if err != nil {
			return nil, err
		}
		var head struct{ Type agui.Type }
		starts := json.Unmarshal(text, &head) == nil && head.Type == agui.RunStarted
		if len(runs) == 0 || starts && len(runs[len(runs)-1].events) > 0 {
			runs = append(runs, chainRun{})
			if len(runs) == 1 {
				runs[0].input = input
			}
		}
		last := &runs[len(runs)-1]
		last.events = append(last.events, fileEvent{text: text, where: fmt.Sprintf("%s:%d", path, reader.line)})
	}
}

// foldChain folds all runs, each from what the one before left.
func foldChain(out *output, runs []chainRun, kept agui.Families) ([]*compact.Run, error) {
	var history lineage.History
	var folds []*compact.Run
	for _, run := range runs {
		input, err := run.startInput(out)
		if err != nil {
			return nil, err
		}
		start := lineage.StartHistory(lineage.ParentExplicit, history, input)
		fold := compact.New(start.Messages, start.State)
		fold.Keep(kept)
		for _, e := range run.events {
			ev, err := agui.Decode(e.text)
			if err == nil {
				err = fold.Apply(ev)
			}
			if err != nil && !agui.IsMalformed(err) && !errors.Is(err, compact.ErrEnded) {
				return nil, fmt.Errorf("folding %s: %w", e.where, err)
			}
			if err != nil {
				out.note("%s: left out: %v", e.where, err)
			}
		}
		history = lineage.History{Messages: fold.Messages(), State: fold.State()}
		folds = append(folds, fold)
	}
	return folds, nil
}

// startInput is the input beside the file, else the one on RUN_STARTED, else nil.
func (r chainRun) startInput(out *output) (*agui.RunAgentInput, error) {
	if r.input != nil {
		input, err := agui.DecodeInput(r.input, "")
		if err != nil {
			return nil, fmt.Errorf("reading input: %w", err)
		}
		return input, nil
	}
	var started struct {
		Type  agui.Type
		Input json.RawMessage
	}
	first := r.events[0]
	if json.Unmarshal(first.text, &started) != nil {
		started.Input = nil // the fold says what is wrong with it
	}
	if started.Type != agui.RunStarted || len(started.Input) == 0 || string(started.Input) == "null" {
		return nil, nil
	}
	input, err := agui.DecodeInput(started.Input, "")
	if err != nil {
		out.note("%s: its input is left out: %v", first.where, err)
		return nil, nil
	}
	return input, nil
}

// folded is what "skein fold" prints.
type folded struct {
	Messages []agui.Message  `json:"messages"`
	State    json.RawMessage `json:"state"`
}

func printFold(out *output, runs []chainRun, asEvents bool, kept agui.Families) error {
	folds, err := foldChain(out, runs, kept)
	if err != nil {
		return err
	}
	if asEvents {
		for _, event := range compact.Compacted(steps(folds)...) {
			if err := out.json(event); err != nil { // which puts it on one line
				return err
			}
		}
		return nil
	}
	last := folds[len(folds)-1]
	result := folded{Messages: last.Messages(), State: last.State()}
	if result.Messages == nil {
		result.Messages = []agui.Message{}
	}
	return out.json(result)
}

func steps(folds []*compact.Run) []compact.Step {
	out := make([]compact.Step, len(folds))
	for i, r := range folds {
		out[i].Run = r
		if i > 0 {
			out[i].Parent = folds[i-1]
		}
	}
	return out
}
