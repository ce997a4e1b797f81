package cli

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/url"
	"strconv"
	"strings"

	"github.com/spf13/cobra"

	"github.com/skeinhq/skein/internal/app"
	"github.com/skeinhq/skein/pkg/client"
)

func newDiff(out *output) *cobra.Command {
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
	}
	onServer(cmd, out, func(ctx context.Context, c *client.Client, args []string) error {
		q := url.Values{}
		for i, name := range []string{"from", "to"} {
			if len(args) > i+1 {
				q.Set(name, args[i+1])
			}
		}
		var d difference
		body, err := c.Fetch(ctx, client.ThreadPath(args[0])+"/diff", q, &d)
		if err != nil {
			missing := args[1:]
			for i, run := range missing {
				if answer := new(client.Error); errors.As(err, &answer) && strings.Contains(answer.Detail, strconv.Quote(run)) {
					missing = missing[i : i+1] // the answer names it
					break
				}
			}
			return out.found(err, args[0], strings.Join(missing, " or "))
		}
		if err = out.result(body, d.text(out)); err == nil && !d.Same {
			err = &app.ExitError{Code: app.ExitDiffers} // without a message: the output lists the differences
		}
		return err
	})
	call := cmd.RunE
	cmd.RunE = func(cmd *cobra.Command, args []string) error { return diffCode(call(cmd, args)) }
	jsonFlags(cmd, out)
	return cmd
}

// diffCode returns an error with the exit codes of diff and git: 1 for a difference, 2 for a failure.
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

// difference is the part of a diff answer that the command shows.
type difference struct {
	ThreadID string
	// From and To have neither messages nor state; From is absent for the empty history.
	From             *conversation
	To               conversation
	CommonAncestor   string
	Same, Reordered  bool
	OnlyFrom, OnlyTo []message
	Changed          []struct {
		From, To message
		Patch    []operation
	}
	StatePatch []operation
}

// operation is one operation of a JSON Patch (RFC 6902).
type operation struct {
	Op, Path string
	Value    json.RawMessage
}

// The styles of text, as parameters of ANSI's SGR.
const (
	styleBold    = "1"
	styleFaint   = "2"
	styleGone    = "31"
	styleNew     = "32"
	styleChanged = "33"
)

// text formats the difference as git diff does: - is FROM, + is TO, ~ is in both.
func (d difference) text(out *output) string {
	p := differencePrinter{paint: out.paint, width: out.width()}
	p.head(d)
	names := toolNames{}
	for _, m := range d.OnlyFrom {
		p.message(styleGone, "-", names.who(m), m)
	}
	for _, c := range d.Changed {
		p.line(styleChanged, "~ "+names.who(c.To)+" "+c.To.ID)
		before, after := c.From.text("  - ", p.width), c.To.text("  + ", p.width)
		if c.From.text("", p.width) == c.To.text("", p.width) { // they differ only in members that are not shown
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
		p.line(styleChanged, "~ what both have is in another order")
	}
	if len(d.StatePatch) > 0 {
		p.line(styleBold, "state")
		p.patch("  ", d.StatePatch)
	}
	if d.Same {
		p.b.WriteString("\nnothing differs\n")
	}
	return p.b.String()
}

type differencePrinter struct {
	paint func(style, text string) string
	width int
	b     strings.Builder
}

func (p *differencePrinter) head(d difference) {
	p.b.WriteString(p.paint(styleBold, "thread "+oneLine(d.ThreadID, 80)) + "\n")
	from := "- nothing: the run is a root"
	if d.From != nil {
		from = "- " + sideLine(*d.From)
	}
	p.b.WriteString(p.paint(styleGone, from) + "\n" + p.paint(styleNew, "+ "+sideLine(d.To)) + "\n")
	if d.From == nil {
		return
	}
	switch d.CommonAncestor {
	case "":
		p.b.WriteString("they have no run in common\n")
	case d.From.RunID, d.To.RunID:
	default:
		p.b.WriteString("they part after run " + oneLine(d.CommonAncestor, 80) + "\n")
	}
}

func sideLine(s conversation) string {
	line := "run " + oneLine(s.RunID, 80) + ": " + string(s.Status)
	for _, remark := range s.remarks() {
		line += ", " + remark
	}
	return line
}

// line writes an empty line and a line.
func (p *differencePrinter) line(style, text string) {
	p.b.WriteString("\n" + p.paint(style, oneLine(text, p.width)) + "\n")
}

// block writes lines, each with its own style codes, since a pager may show only some of the lines.
func (p *differencePrinter) block(style, text string) {
	for line := range strings.Lines(text) {
		p.b.WriteString(p.paint(style, strings.TrimSuffix(line, "\n")) + "\n")
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
		style, text := styleChanged, "~ "+path+" = "+string(op.Value)
		switch op.Op {
		case "remove":
			style, text = styleGone, "- "+path
		case "add":
			style, text = styleNew, "+ "+path+" = "+string(op.Value)
		}
		p.block(style, margin+oneLine(text, p.width)+"\n")
	}
}
