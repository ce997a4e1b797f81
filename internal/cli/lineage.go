package cli

import (
	"context"
	"net/url"
	"strings"

	"github.com/spf13/cobra"

	"github.com/skeinhq/skein/internal/app"
	"github.com/skeinhq/skein/pkg/client"
	"github.com/skeinhq/skein/pkg/lineage"
	"github.com/skeinhq/skein/pkg/lineage/draw"
	"github.com/skeinhq/skein/pkg/record"
)

func newLineage(out *output) *cobra.Command {
	var ascii, watches bool
	var ancestors, descendants, siblings string
	cmd := &cobra.Command{
		Use:     "lineage THREAD",
		GroupID: groupRead,
		Short:   "Draw the runs of a thread and its branches",
		Long: `Draw the runs of a thread and its branches, oldest first, like git log --graph.

Marks show what is inferred or unusual: a parent that Skein found (~content: the run's input continues that
run's messages; ~latest: there was no input), an end that Skein made, a run that is open, and an input
that does not continue the parent's history: trimmed, summarised, edited, rewound and so on.`,
		Example: `  skein lineage my-thread
  skein lineage my-thread --ancestors run-7 -o name
  skein lineage my-thread -o mermaid > my-thread.mmd`,
		Args: usageArgs(cobra.ExactArgs(1)),
	}
	at := onServer(cmd, out, func(ctx context.Context, c *client.Client, args []string) error {
		q := url.Values{}
		set(q, "ancestorsOf", ancestors)
		set(q, "descendantsOf", descendants)
		set(q, "siblingsOf", siblings)
		if len(q) > 1 {
			return app.Usagef("--ancestors, --descendants and --siblings exclude one another")
		}
		part := len(q) == 1
		if out.form == formMermaid {
			q.Set("format", formMermaid)
		} else {
			q.Set("words", "true")
		}
		show := func(ctx context.Context, out *output) error {
			body, err := c.Fetch(ctx, client.ThreadPath(args[0])+"/lineage", q, nil)
			if err != nil {
				return out.found(err, args[0], ancestors+descendants+siblings)
			}
			width := out.drawingWidth()
			switch out.form {
			case formJSON, formMermaid:
				return out.document(body)
			case formJSONL:
				return out.lines(body, "runs")
			case formName:
				return listIDs(out, body)
			case formWide:
				width = 0
			}
			picture, err := drawLineage(body, part, draw.TextOptions{Width: width, ASCII: ascii, Color: out.colour()})
			if err != nil {
				return err
			}
			return out.text(picture)
		}
		if watches {
			return out.watch(ctx, show)
		}
		return show(ctx, out)
	})
	formFlags(cmd, out,
		"`FORM` of the answer: text (a picture), wide (a picture of any width), name (run ids), json (one document), "+
			"jsonl (a line for each run) or mermaid",
		formJSON, formText, formWide, formName, formJSON, formJSONL, formMermaid)
	watchFlag(cmd, &watches)
	cmd.Flags().StringVar(&ancestors, "ancestors", "", "only `RUN` and its ancestors")
	cmd.Flags().StringVar(&descendants, "descendants", "", "only the descendants of `RUN`")
	cmd.Flags().StringVar(&siblings, "siblings", "", "only the other children of the parent of `RUN`")
	for _, flag := range []string{"ancestors", "descendants", "siblings"} {
		complete(cmd, flag, completeIDs(at, true))
	}
	cmd.Flags().BoolVar(&ascii, "ascii", false, "draw the text with ASCII characters only")
	return cmd
}

// formMermaid is a form that only lineages have.
const formMermaid = "mermaid"

// listIDs prints the ids of the runs of a lineage answer, one per line.
func listIDs(out *output, answer []byte) error {
	var a client.Lineage
	if err := decode(answer, "lineage", &a); err != nil {
		return err
	}
	for _, r := range a.Runs {
		if err := out.text(field(r.RunID) + "\n"); err != nil {
			return err
		}
	}
	return nil
}

// drawLineage draws the answer of a lineage, or of a part of a thread. The client draws it, not the server, so that it fits the terminal.
func drawLineage(answer []byte, part bool, o draw.TextOptions) (string, error) {
	var a struct {
		Tips     []string
		TipRunID string
		Runs     []struct {
			lineage.Run
			First    record.Position
			Question string
			// Resolution describes how the run answers an interrupt.
			Resolution string
		}
	}
	if err := decode(answer, "lineage", &a); err != nil {
		return "", err
	}
	runs := make([]lineage.Run, len(a.Runs))
	for i, r := range a.Runs {
		runs[i] = r.Run
		runs[i].Start, runs[i].End = r.First.Offset, r.First.Offset
		if r.Status == lineage.StatusRunning {
			runs[i].End = -1
		}
		runs[i].Sealed = r.Status != lineage.StatusRunning && r.Status != lineage.StatusAbandoned
	}
	labels := make(map[string]string, len(a.Runs))
	for _, r := range a.Runs {
		if labels[r.ID] = r.Question; r.Resolution != "" {
			labels[r.ID] = "Answer: " + r.Resolution
		}
	}
	o.Label = func(r lineage.Run) string { return labels[r.ID] }
	var b strings.Builder
	graph := lineage.NewGraph(runs)
	if part {
		graph = lineage.NewPart(runs, a.Tips, a.TipRunID)
	}
	if err := draw.New(graph, draw.Options{MaxLanes: draw.LanesFor(o.Width)}).Text(&b, o); err != nil {
		return "", err
	}
	return b.String(), nil
}
