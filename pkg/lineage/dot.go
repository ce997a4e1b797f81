package lineage

import (
	"bytes"
	"fmt"
	"io"
	"strings"
	"time"

	"github.com/skeinhq/skein/pkg/agui"
)

// DOT writes the picture as a Graphviz digraph: solid edges for parents that were given, dashed
// ones for inferred parents, dotted ones for spawns and parents that came late.
func (p *Picture) DOT(w io.Writer) error {
	var buf bytes.Buffer
	d := dot{w: &buf, p: p, nodes: map[string]int{}}
	d.write()
	return writeOut(w, &buf)
}

type dot struct {
	w *bytes.Buffer
	p *Picture
	// nodes are the rows of runs that have one of their own.
	nodes map[string]int
}

func (d *dot) write() {
	d.line("digraph lineage {")
	d.line("  rankdir=TB;")
	d.line(`  node [shape=box, style=rounded, fontname="sans-serif"];`)
	for n, r := range d.p.Rows {
		d.node(n, r)
		if r.Above >= 0 {
			d.edge(r.Above, n, r)
		}
	}
	d.spawns()
	d.line("}")
}

func (d *dot) node(n int, r Row) {
	switch r.Kind {
	case RowFold:
		d.line(`  n%d [shape=plaintext, label="… %s%s"];`, n, count(r.Runs, "run"), d.badges(r))
		return
	case RowFan, RowBundle:
		d.line(`  n%d [shape=folder, label="%s%s"];`, n, r.contents("…"), d.badges(r))
		return
	}
	d.nodes[r.RunID] = n
	run, _ := d.p.g.Run(r.RunID)
	label := dotText(display(run.ID, false))
	if run.Status != "" {
		label += `\n` + dotText(safe(string(run.Status), false)) + ", " + count(run.MessageCount, "message")
	}
	if !run.StartedAt.IsZero() {
		label += `\n` + run.StartedAt.UTC().Format(time.RFC3339)
	}
	attrs := ""
	if run.Open() {
		attrs += `, style="rounded,dashed"`
	}
	if r.Tip {
		attrs += ", penwidth=2"
	}
	d.line(`  n%d [label="%s%s"%s];`, n, label, d.badges(r), attrs)
}

func (d *dot) badges(r Row) string {
	var texts []string
	for _, b := range r.Badges {
		texts = append(texts, dotText(b.String()))
	}
	if len(texts) == 0 {
		return ""
	}
	return `\n[` + strings.Join(texts, ", ") + "]"
}

func (d *dot) edge(from, to int, r Row) {
	style := ""
	if run, _ := d.p.g.Run(r.RunID); r.Branch >= 0 && run.ParentBy.Inferred() {
		style = " [style=dashed]"
	}
	d.line("  n%d -> n%d%s;", from, to, style)
}

// spawns draws the edges of runs that name no parent of their thread. What they name has a node of
// its own unless it is a run with one.
func (d *dot) spawns() {
	outside := map[agui.String]int{}
	for _, s := range d.p.g.Spawns() {
		to, ok := d.nodes[s.Run]
		if !ok {
			continue // in a bundle
		}
		label := ""
		if s.Late {
			label = `, label="late"`
		}
		if from, ok := d.nodes[s.Known]; ok {
			d.line("  n%d -> n%d [style=dotted, constraint=false%s];", from, to, label)
			continue
		}
		from, ok := outside[s.By]
		if !ok {
			from = len(outside)
			outside[s.By] = from
			d.line(`  s%d [shape=plaintext, label="%s"];`, from, dotText(display(string(s.By), false)))
		}
		d.line("  s%d -> n%d [style=dotted%s];", from, to, label)
	}
}

// dotText escapes text for a label: a backslash would begin an escape of DOT's own.
func dotText(s string) string { return dotEscape.Replace(s) }

var dotEscape = strings.NewReplacer(`\`, `\\`, `"`, `\"`)

func (d *dot) line(format string, args ...any) {
	fmt.Fprintf(d.w, format+"\n", args...)
}
