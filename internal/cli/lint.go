package cli

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/url"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/skeinhq/skein/internal/app"
	"github.com/skeinhq/skein/pkg/agui"
	"github.com/skeinhq/skein/pkg/lint"
)

type lintOptions struct {
	input        string
	headers, off []string
	timeout      time.Duration
	sarif, all   bool
}

func newLint(out *output) *cobra.Command {
	var o lintOptions
	cmd := &cobra.Command{
		Use:     "lint FILE…|URL|-",
		GroupID: groupWrite,
		Short:   "Check what the official AG-UI client would reject or change",
		Long: `Report at which events of a stream the official AG-UI client (@ag-ui/client 1.0.0) would end the run, and which events it
would strip, drop or misread. Skein does not need to run.

Each FILE (SSE, NDJSON, a JSON array, or JSON that spans lines) is one stream, as one client plays it; it may hold
several runs. SSE is read as the client reads it, with its framing. FILE.input.json beside FILE.jsonl, or --input, is
the RunAgentInput of the first run: the client starts with its messages and its state. - is the standard input.

A URL is an agent's AG-UI endpoint. It gets exactly one POST, with --input or with a message that says hello. The agent may
call its model and its tools, as for any client.

An error means that the client ends the run; a warning, that it does something else than the event says; a note, that the
event works for now. The exit code is 4 if there is an error or a warning. docs/lint.md lists all rules, and what to do.`,
		Example: `  skein lint run.jsonl
  skein lint http://127.0.0.1:8000/agent --header "Authorization: Bearer $TOKEN"
  skein lint --sarif testdata/*.jsonl > lint.sarif`,
		Args: usageArgs(cobra.MinimumNArgs(1)),
		RunE: func(cmd *cobra.Command, args []string) error {
			return runLint(cmd.Context(), out, o, args, cmd.InOrStdin())
		},
	}
	jsonLinesFlags(cmd, out)
	cmd.Flags().BoolVar(&o.sarif, "sarif", false, "print a SARIF 2.1.0 log, for code scanning")
	cmd.Flags().BoolVar(&o.all, "all", false, "print all findings, not the first 10 of each rule")
	cmd.Flags().StringVar(&o.input, "input", "", "`FILE` with the RunAgentInput of the call: the one recorded, or the one to send")
	cmd.Flags().StringArrayVar(&o.headers, "header", nil, "`HEADER` of the request to a URL, as 'Name: value' (repeatable)")
	cmd.Flags().DurationVar(&o.timeout, "timeout", time.Minute, "how long the complete answer of a URL may take")
	cmd.Flags().StringSliceVar(&o.off, "off", nil, "`RULES` to skip")
	return cmd
}

func runLint(ctx context.Context, out *output, o lintOptions, args []string, stdin io.Reader) error {
	if out.asJSON && o.sarif {
		return app.Usagef("--json and --sarif exclude each other")
	}
	if o.input != "" && len(args) > 1 {
		return app.Usagef("--input belongs to one stream, but there are %d", len(args))
	}
	for _, name := range o.off {
		if _, ok := lint.RuleNamed(name); !ok {
			return app.Usagef("there is no rule %q: docs/lint.md lists them", name)
		}
	}
	var total lint.Tally
	var found []lint.Finding // for SARIF
	for _, name := range args {
		tally, err := lintStream(ctx, out, o, name, stdin, func(f lint.Finding) { found = append(found, f) })
		if err != nil {
			return err
		}
		total.Errors, total.Warnings = total.Errors+tally.Errors, total.Warnings+tally.Warnings
	}
	if o.sarif {
		if limit := 25_000; len(found) > limit {
			out.note("the log has the first %d of %d findings, the most that code scanning accepts", limit, len(found))
			found = found[:limit]
		}
		if err := out.json(lint.SARIF(app.BuildInfo().Version, found)); err != nil {
			return err
		}
	}
	if total.Errors+total.Warnings > 0 {
		return app.Differsf("the client would not play all events as they are: %s", tallied(total))
	}
	return nil
}

// lintStream lints one stream. It prints the findings, or with --sarif passes each to keep.
func lintStream(
	ctx context.Context, out *output, o lintOptions, name string, stdin io.Reader, keep func(lint.Finding),
) (lint.Tally, error) {
	source, err := openLinted(name, o, stdin)
	if err != nil {
		return lint.Tally{}, err
	}
	p := findingPrinter{out: out, all: o.all, shown: map[string]int{}}
	var failed error
	l := lint.New(source.name, source.input, func(f lint.Finding) {
		switch {
		case failed != nil:
		case o.sarif:
			if !isURL(name) {
				f.File = (&url.URL{Path: f.File}).String()
			}
			keep(f)
		case out.asJSON:
			failed = out.json(f)
		default:
			failed = p.print(f)
		}
	})
	l.Off(o.off...)
	if err := source.read(ctx, l); err != nil {
		return l.Tally(), err
	}
	if failed == nil && !o.sarif && !out.asJSON {
		failed = p.end(source.name, l.Tally())
	}
	return l.Tally(), failed
}

// findingPrinter prints findings for people.
type findingPrinter struct {
	out   *output
	all   bool
	shown map[string]int // number of findings by rule
	rules []string       // in the order of their first findings
}

// maxOfRule limits how many findings of a rule are printed without --all.
const maxOfRule = 10

func (p *findingPrinter) print(f lint.Finding) error {
	if p.shown[f.Rule]++; p.shown[f.Rule] == 1 {
		p.rules = append(p.rules, f.Rule)
	}
	if !p.all && p.shown[f.Rule] > maxOfRule {
		return nil
	}
	where := f.File
	switch {
	case f.Line > 0:
		where = fmt.Sprintf("%s:%d", f.File, f.Line)
	case f.Event > 0:
		where = fmt.Sprintf("%s: event %d", f.File, f.Event)
	}
	style := map[lint.Level]string{lint.Error: "1;31", lint.Warning: "33", lint.Note: "36"}[f.Level]
	return p.out.text(fmt.Sprintf("%s: %s: %s: %s\n", printable(where), p.out.paint(style, string(f.Level)), f.Rule, oneLine(f.Message, 500)))
}

// end prints the totals of a stream, and what each rule means.
func (p *findingPrinter) end(name string, t lint.Tally) error {
	name = printable(name)
	if len(p.rules) == 0 {
		return p.out.text(name + ": no findings\n")
	}
	var b strings.Builder
	for _, rule := range p.rules {
		if n := p.shown[rule] - maxOfRule; n > 0 && !p.all {
			fmt.Fprintf(&b, "%s: %d more of %s; --all prints them\n", name, n, rule)
		}
	}
	fmt.Fprintf(&b, "%s: %s in %s", name, tallied(t), count(t.Events, "event"))
	switch s := t.Stops; {
	case s == nil:
	case s.Line > 0:
		fmt.Fprintf(&b, "; the client ends the run at line %d", s.Line)
	case s.Event > 0:
		fmt.Fprintf(&b, "; the client ends the run at event %d", s.Event)
	}
	b.WriteByte('\n')
	for _, rule := range p.rules {
		r, _ := lint.RuleNamed(rule)
		b.WriteString("\n" + p.out.bold(rule) + "\n" + indent(r.Means+" "+r.Do, "  ", p.out.width()))
	}
	return p.out.text(b.String())
}

// tallied formats the number of findings by level.
func tallied(t lint.Tally) string {
	var parts []string
	for _, of := range []struct {
		n    int
		noun string
	}{{t.Errors, "error"}, {t.Warnings, "warning"}, {t.Notes, "note"}} {
		if of.n > 0 {
			parts = append(parts, count(of.n, of.noun))
		}
	}
	return strings.Join(parts, ", ")
}

// linted is a stream to lint.
type linted struct {
	// name names the stream in findings.
	name string
	// input is the input of the first run; nil if unknown.
	input *agui.RunAgentInput
	read  func(context.Context, *lint.Linter) error
}

func openLinted(name string, o lintOptions, stdin io.Reader) (linted, error) {
	var input []byte
	var err error
	if o.input != "" {
		if input, err = readInput(o.input); err != nil {
			return linted{}, app.Usagef("reading input: %w", err)
		}
	}
	if isURL(name) {
		return openAgent(name, o, input)
	}
	s := linted{name: name}
	if name == "-" {
		s.name = "stdin"
	}
	s.read = func(_ context.Context, l *lint.Linter) error {
		f, err := openEvents(name, stdin)
		if err != nil {
			return err
		}
		defer func() { _ = f.Close() }() // read only
		return lintEvents(l, f, s.name)
	}
	if input == nil {
		if input, err = inputBeside(name); err != nil {
			return linted{}, err
		}
	}
	if input != nil {
		if s.input, err = agui.DecodeInput(input, ""); err != nil {
			return linted{}, app.Usagef("reading input of %s: %w", name, err)
		}
	}
	return s, nil
}

// lintEvents lints events in any form. It reads SSE as the client does.
func lintEvents(l *lint.Linter, r io.Reader, name string) error {
	events := newEventReader(r)
	if sse, first, err := events.ServerSent(); err != nil {
		return fmt.Errorf("reading %s: %w", name, err)
	} else if sse != nil {
		if err := l.ReadSSE(sse, int(first)); err != nil {
			return fmt.Errorf("reading %s: %w", name, err)
		}
		l.End()
		return nil
	}
	for {
		text, err := events.next()
		if errors.Is(err, io.EOF) {
			l.End()
			return nil
		}
		if err != nil {
			return fmt.Errorf("reading %s: %w", name, err)
		}
		l.Event(text, int(events.Line()))
	}
}
