package cli

import (
	"encoding/json"
	"fmt"
	"net/url"
	"strings"

	"github.com/spf13/cobra"

	"github.com/skeinhq/skein/internal/app"
	"github.com/skeinhq/skein/internal/client"
)

func newDiff(out *output, environ []string) *cobra.Command {
	at := server{environ: environ}
	var asJSON bool
	cmd := &cobra.Command{
		Use:     "diff THREAD [FROM [TO]]",
		GroupID: groupRead,
		Short:   "Compare the conversations at the ends of two runs",
		Long: `Compare the conversations at the ends of two runs of a thread: the run where they part, the messages that
only one of them has, those that both have with different content, and the state.

Without TO it is the tip of the thread with the latest start; without FROM too, the tip is compared
with its parent: what the last run changed.

The exit code is that of diff and git: 0 if nothing differs, 1 if something differs, 2 and above for errors.`,
		Example: `  skein diff my-thread
  skein diff my-thread run-1 run-2 --json | jq .statePatch`,
		Args: usageArgs(cobra.RangeArgs(1, 3)),
		RunE: func(cmd *cobra.Command, args []string) error {
			q := url.Values{}
			var runs []string
			for i, name := range []string{"from", "to"} {
				if len(args) > i+1 {
					q.Set(name, args[i+1])
					runs = append(runs, args[i+1])
				}
			}
			return diffCode(at.connect(func(c *client.Client) error {
				body, err := c.Get(cmd.Context(), client.ThreadPath(args[0])+"/diff", q)
				if err != nil {
					return found(err, out, at, args[0], strings.Join(runs, " or "))
				}
				var d difference
				if err := json.Unmarshal(body, &d); err != nil {
					return fmt.Errorf("decoding difference: %w", err)
				}
				if asJSON {
					err = out.document(body)
				} else {
					err = printDifference(out, d)
				}
				if err == nil && !d.Same {
					err = &app.ExitError{Code: app.ExitDiffers} // the output says in what
				}
				return err
			}))
		},
	}
	serverFlags(cmd, &at)
	jsonFlags(cmd, &asJSON)
	return cmd
}

// diffCode gives an error the exit code that diff and git have for it: 1 is a difference, so what failed is 2.
func diffCode(err error) error {
	switch app.ExitCode(err) {
	case app.ExitDiffers:
		return &app.ExitError{Code: 1, Err: err}
	case app.ExitFailed:
		return &app.ExitError{Code: 2, Err: err}
	default:
		return err
	}
}

// difference is what a diff answer holds, as far as a person is shown it.
type difference struct {
	ThreadID string `json:"threadId"`
	// From and To come without messages and state; From is absent for the empty history.
	From           *conversation `json:"from"`
	To             conversation  `json:"to"`
	CommonAncestor string        `json:"commonAncestor"`
	Same           bool          `json:"same"`
	OnlyFrom       []message     `json:"onlyFrom"`
	OnlyTo         []message     `json:"onlyTo"`
	Changed        []struct {
		From  message     `json:"from"`
		To    message     `json:"to"`
		Patch []operation `json:"patch"`
	} `json:"changed"`
	Reordered  bool        `json:"reordered"`
	StatePatch []operation `json:"statePatch"`
}

// operation is one of a JSON Patch.
type operation struct {
	Op    string          `json:"op"`
	Path  string          `json:"path"`
	Value json.RawMessage `json:"value"`
}

const (
	styleGone    = "31"
	styleNew     = "32"
	styleChanged = "33"
)

// printDifference shows a difference in the manner of git diff: - is FROM, + is TO, ~ is in both.
func printDifference(out *output, d difference) error {
	p := differencePrinter{out: out, width: out.width()}
	p.head(d)
	names := toolNames{}
	for _, m := range d.OnlyFrom {
		p.message(styleGone, "-", names.who(m), m)
	}
	for _, c := range d.Changed {
		p.line(styleChanged, "~ "+names.who(c.To)+" "+c.To.ID)
		before, after := c.From.text("  - ", p.width), c.To.text("  + ", p.width)
		if c.From.text("", p.width) == c.To.text("", p.width) { // what a person is not shown
			p.patch("  ", c.Patch)
			continue
		}
		p.block(styleGone, before)
		p.block(styleNew, after)
	}
	for _, m := range d.OnlyTo {
		p.message(styleNew, "+", names.who(m), m)
	}
	if d.Reordered {
		p.line(styleChanged, "~ what both have stands in another order")
	}
	if len(d.StatePatch) > 0 {
		p.line("1", "state")
		p.patch("  ", d.StatePatch)
	}
	if d.Same {
		p.b.WriteString("\nnothing differs\n")
	}
	return out.text(p.b.String())
}

type differencePrinter struct {
	out   *output
	width int
	b     strings.Builder
}

func (p *differencePrinter) head(d difference) {
	p.b.WriteString(p.out.bold("thread "+oneLine(d.ThreadID, 80)) + "\n")
	from := "- nothing: the run is a root"
	if d.From != nil {
		from = "- " + sideLine(*d.From)
	}
	p.b.WriteString(p.out.paint(styleGone, from) + "\n" + p.out.paint(styleNew, "+ "+sideLine(d.To)) + "\n")
	if d.From == nil {
		return
	}
	switch d.CommonAncestor {
	case "":
		p.b.WriteString("they have no run in common\n")
	case d.From.RunID, d.To.RunID:
	default:
		p.b.WriteString("they part behind run " + oneLine(d.CommonAncestor, 80) + "\n")
	}
}

func sideLine(s conversation) string {
	line := "run " + oneLine(s.RunID, 80) + ": " + s.Status
	for _, remark := range s.remarks() {
		line += ", " + remark
	}
	return line
}

// line writes a line behind an empty one.
func (p *differencePrinter) line(style, text string) {
	p.b.WriteString("\n" + p.out.paint(style, oneLine(text, p.width)) + "\n")
}

// block writes lines in one style each, so that a pager that shows some of them shows it too.
func (p *differencePrinter) block(style, text string) {
	for line := range strings.Lines(text) {
		p.b.WriteString(p.out.paint(style, strings.TrimSuffix(line, "\n")) + "\n")
	}
}

func (p *differencePrinter) message(style, mark, who string, m message) {
	p.line(style, mark+" "+who+" "+m.ID)
	p.block(style, m.text(mark+"   ", p.width))
}

func (p *differencePrinter) patch(margin string, ops []operation) {
	for i, op := range ops {
		if i == stateLines {
			fmt.Fprintf(&p.b, "%s… %d more operations; --json prints all\n", margin, len(ops)-i)
			return
		}
		path := op.Path
		if path == "" {
			path = "all of it"
		}
		switch op.Op {
		case "remove":
			p.block(styleGone, margin+oneLine("- "+path, p.width)+"\n")
		case "add":
			p.block(styleNew, margin+oneLine("+ "+path+" = "+string(op.Value), p.width)+"\n")
		default:
			p.block(styleChanged, margin+oneLine("~ "+path+" = "+string(op.Value), p.width)+"\n")
		}
	}
}
