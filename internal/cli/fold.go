package cli

import (
	"bytes"
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
	"github.com/skeinhq/skein/pkg/eventstream"
	"github.com/skeinhq/skein/pkg/fold"
	"github.com/skeinhq/skein/pkg/record"
)

func newFold(out *output) *cobra.Command {
	var records, events, export bool
	var startedAt string
	var kept agui.Families
	cmd := &cobra.Command{
		Use:     "fold FILE.jsonl…|-",
		GroupID: groupWrite,
		Short:   "Fold event files without a server",
		Long: `Fold event files without a server and print {messages, state} at the end of the last run.

The files (NDJSON, SSE, a JSON array, or JSON that spans lines) are the runs of one thread in order; a file
may hold several runs.
FILE.input.json beside FILE.jsonl is the RunAgentInput of its first run, with the whole conversation. An input
on RUN_STARTED may leave out earlier messages. A run without input continues the parent that it names,
or the previous run. FILE - is standard input, which has no input file.

Lines that are no event, or come after a run's end, are left out and reported on stderr, as the compactor
does. A RUN_ERROR after RUN_FINISHED stays: the run failed. A file without any event is an error.

The output is JSON. Notes on stderr (or with --json, members beside the artifact) say what an artifact (--export)
leaves out and where started_at comes from, as for "skein export".`,
		Example: `  skein fold t1.jsonl t2.jsonl t3.jsonl | jq .messages
  skein fold --records run.jsonl | jq .stats`,
		Args: usageArgs(cobra.MinimumNArgs(1)),
		RunE: func(cmd *cobra.Command, args []string) error {
			if records && events || (records || events) && export {
				return app.Usagef("--records, --events and --export exclude one another")
			}
			began, err := timeFlag("--started-at", startedAt)
			if err != nil {
				return err
			}
			runs, err := readChain(out, args, cmd.InOrStdin())
			if err != nil {
				return err
			}
			if records {
				return printRecords(out, runs, kept)
			}
			if export {
				return printExport(out, runs, began)
			}
			return printFold(out, runs, events, kept)
		},
	}
	cmd.Flags().BoolVar(&records, "records", false, "print the run records, one per line; in them a run without an end stays open")
	cmd.Flags().BoolVar(&events, "events", false, "print the compacted AG-UI events of all runs, one per line")
	cmd.Flags().BoolVar(&export, "export", false, "print the export artifact of the last run")
	app.KeepEventsFlag(cmd.Flags(), &kept)
	startedAtFlag(cmd, &startedAt)
	reportFlag(cmd, out)
	return cmd
}

// chainRun is one run of the files.
type chainRun struct {
	// input is the content of the input file next to the file of events; nil if there is none.
	input []byte
	// started is the run's first event if that is a RUN_STARTED, else nil.
	started *agui.Event
	// thread, run and parent are the first such ids in the run's own events.
	thread, run, parent string
	// begun means that the run has an event, and ended that its last event is terminal.
	begun, ended bool
	events       []fileEvent
}

// add reads the ids of a decoded event. As in the compactor, RUN_STARTED and RUN_FINISHED name the run, and invalid ids are ignored.
func (r *chainRun) add(ev *agui.Event) {
	if r.ended {
		return
	}
	if ev.Type == agui.RunStarted && !r.begun {
		r.started = ev
	}
	r.begun = true
	r.ended = ev.Type.Terminal()
	r.run = cmp.Or(r.run, fold.ClientRunID(ev))
	if record.ValidateID(ev.ThreadID) == nil {
		r.thread = cmp.Or(r.thread, ev.ThreadID)
	}
	if ev.Type == agui.RunStarted {
		r.parent = cmp.Or(r.parent, ev.ParentRunID)
	}
}

// ids returns the ids in the run's events, else those in its input. It ignores errors in the input, which folding the run reports.
func (r chainRun) ids() (thread, run, parent string) {
	in, err := r.startInput()
	if err != nil || in == nil {
		return r.thread, r.run, r.parent
	}
	return cmp.Or(r.thread, in.ThreadID), cmp.Or(r.run, in.RunID), cmp.Or(r.parent, in.ParentRunID)
}

// fileEvent is an event and its file and line.
type fileEvent struct {
	text  []byte
	where string
}

// readChain reads the runs of files, in order. Each file, and each RUN_STARTED within one, begins a run.
func readChain(out *output, paths []string, stdin io.Reader) ([]chainRun, error) {
	var runs []chainRun
	for _, path := range paths {
		of, err := readEventFile(path, stdin)
		if err != nil {
			return nil, err
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

// readEventFile reads the runs of a file, or of stdin for "-".
func readEventFile(path string, stdin io.Reader) ([]chainRun, error) {
	input, err := inputBeside(path)
	if err != nil {
		return nil, err
	}
	f, err := openEvents(path, stdin)
	if err != nil {
		return nil, err
	}
	if path == "-" {
		path = "standard input"
	}
	runs, err := readRuns(f, path, input)
	if err := errors.Join(err, f.Close()); err != nil {
		return nil, fmt.Errorf("reading %s: %w", path, err)
	}
	return runs, nil
}

// inputBeside reads NAME.input.json for NAME.jsonl (or any other extension). It returns nil if there is no such file, as for stdin.
func inputBeside(path string) ([]byte, error) {
	if path == "-" {
		return nil, nil
	}
	name := path
	if i := strings.LastIndexByte(path, '.'); i > strings.LastIndexAny(path, `/\`) {
		name = path[:i]
	}
	input, err := readInput(name + ".input.json")
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, fmt.Errorf("reading input: %w", err)
	}
	return input, nil
}

// readInput reads a file with a RunAgentInput. Like ingest, it removes a byte order mark and white space around the JSON.
func readInput(path string) ([]byte, error) {
	b, err := os.ReadFile(path)
	if err != nil {
		return nil, err
	}
	b = bytes.TrimPrefix(b, []byte(byteOrderMark))
	if input := bytes.Trim(b, eventstream.Space); input != nil {
		return input, nil
	}
	return b, nil // not nil for an empty file, which is a malformed input
}

// readRuns reads the runs of a file. A RUN_STARTED that breaks the schema also begins a run. As in the compactor it is left out
// and names no run, but the events after it belong to the new run.
func readRuns(r io.Reader, path string, input []byte) ([]chainRun, error) {
	var runs []chainRun
	var refused error // the error of the first line that is not an event
	reader := newEventReader(r)
	for {
		text, err := reader.next()
		if errors.Is(err, io.EOF) {
			if len(runs) > 0 && !runs[0].begun {
				return nil, fmt.Errorf("it holds no event: %w", refused)
			}
			return runs, nil
		}
		if err != nil {
			return nil, err
		}
		ev, err := agui.Decode(text)
		if err != nil && refused == nil {
			refused = fmt.Errorf("%s: %w", reader.where(), err)
		}
		if len(runs) == 0 {
			runs = append(runs, chainRun{input: input})
		} else if runs[len(runs)-1].begun && opensRun(text) {
			runs = append(runs, chainRun{})
		}
		last := &runs[len(runs)-1]
		if err == nil {
			last.add(ev)
		}
		last.events = append(last.events, fileEvent{text: text, where: reader.in(path)})
	}
}

// opensRun reports whether an event is a RUN_STARTED, even a malformed one.
func opensRun(text []byte) bool {
	kind, err := agui.Envelope(text)
	return err == nil && kind == agui.RunStarted
}

// foldRuns folds all runs in order. It looks for a run's parent among the earlier runs.
func foldRuns(out *output, runs []chainRun, kept agui.Families) (*fold.Turns, error) {
	s, err := fold.NewTurns(kept)
	if err != nil {
		return nil, err
	}
	for i, run := range runs {
		events := make([][]byte, len(run.events))
		for n, e := range run.events {
			events[n] = e.text
		}
		if err := s.Add(run.id(i), run.input, events, func(n int, why error) {
			out.note("%s: left out: %v", run.events[n].where, why)
		}); err != nil {
			return nil, err
		}
	}
	return s, nil
}

// startInput returns the input from the file beside the events, else the input on RUN_STARTED, else nil.
func (r chainRun) startInput() (*agui.RunAgentInput, error) {
	switch {
	case r.input != nil:
		input, err := agui.DecodeInput(r.input, "")
		if err != nil {
			return nil, fmt.Errorf("reading input: %w", err)
		}
		return input, nil
	case r.started != nil:
		return r.started.Input(""), nil
	}
	return nil, nil
}

// id returns the run's id, or "run-N" for the Nth run if it has none.
func (r chainRun) id(place int) string {
	_, id, _ := r.ids()
	return cmp.Or(id, fmt.Sprintf("run-%d", place+1))
}

// folded is the output of "skein fold".
type folded struct {
	Messages []agui.Message  `json:"messages"`
	State    json.RawMessage `json:"state"`
}

func printFold(out *output, runs []chainRun, asEvents bool, kept agui.Families) error {
	s, err := foldRuns(out, runs, kept)
	if err != nil {
		return err
	}
	if asEvents {
		for _, event := range compact.Compacted(s.Steps()...) {
			if err := out.json(event); err != nil { // not out.document, which would keep line breaks
				return err
			}
		}
		return nil
	}
	last := s.Runs()[len(runs)-1].Fold
	result := folded{Messages: last.Messages(), State: last.State()}
	if result.Messages == nil {
		result.Messages = []agui.Message{}
	}
	return out.json(result)
}
