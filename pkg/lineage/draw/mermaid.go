package draw

import (
	"bytes"
	"fmt"
	"io"
	"strings"
)

// Mermaid writes the picture as a Mermaid gitGraph. Runs are commits. Names of branches have plain
// characters only, since Mermaid accepts few others; ids of runs are shown as in text.
func (p *Picture) Mermaid(w io.Writer) error {
	var buf bytes.Buffer
	m := mermaid{w: &buf, p: p, commits: map[string]bool{}, names: map[string]bool{}, branches: map[int]string{}}
	m.write()
	return writeOut(w, &buf)
}

type mermaid struct {
	w *bytes.Buffer
	p *Picture
	// commits and names are those in use: Mermaid requires both to be unique.
	commits, names map[string]bool
	// branches are the names of the branches by Row.Branch; current is the one that is checked out.
	branches map[int]string
	current  string
}

func (m *mermaid) write() {
	rows := m.p.Rows
	if len(rows) == 0 {
		m.line("gitGraph TB:")
		return
	}
	// A branch that is opened after a commit starts from that commit. So the first branches of all
	// trees are opened before the first commit.
	var roots []string
	for _, r := range rows {
		if r.Above < 0 {
			roots = append(roots, m.branchName(r.RunID))
		}
	}
	fmt.Fprintf(m.w, "%%%%{init: {\"gitGraph\": {\"mainBranchName\": %q}}}%%%%\n", roots[0])
	m.line("gitGraph TB:")
	for _, name := range roots[1:] {
		m.line("  branch %q", name)
		m.current = name
	}
	if m.current == "" {
		m.current = roots[0]
	}
	for _, r := range rows {
		name, begun := m.branches[r.Branch]
		switch {
		case r.Above < 0:
			m.branches[r.Branch] = roots[0]
			m.checkout(roots[0])
			roots = roots[1:]
		case begun:
			m.checkout(name)
		default:
			m.checkout(m.branches[rows[r.Above].Branch])
			m.branches[r.Branch] = m.branchName(r.RunID)
			m.line("  branch %q", m.branches[r.Branch])
			m.current = m.branches[r.Branch]
		}
		m.commit(r)
	}
}

func (m *mermaid) checkout(name string) {
	if m.current != name {
		m.line("  checkout %q", name)
		m.current = name
	}
}

func (m *mermaid) commit(r Row) {
	var label, kind, tag string
	var tags []string
	switch r.Kind {
	case RowFold:
		label = fmt.Sprintf("… %s from %s", count(r.Runs, "run"), display(r.RunID, false))
		kind = " type: REVERSE"
	case RowFan, RowBundle:
		label = r.contents("…") + " from " + display(r.RunID, false)
		kind = " type: REVERSE"
	default:
		label = display(r.RunID, false)
		if run, _ := m.p.g.Run(r.RunID); run.Open() {
			kind = " type: HIGHLIGHT"
		}
	}
	for _, b := range r.Badges {
		tags = append(tags, b.String())
	}
	if r.Tip {
		tags = append(tags, "tip")
	}
	if len(tags) > 0 {
		tag = fmt.Sprintf(` tag: "%s"`, mermaidText(strings.Join(tags, ", ")))
	}
	m.line(`  commit id: "%s"%s%s`, mermaidText(m.unique(m.commits, label)), kind, tag)
}

// branchName makes a name for the branch that starts with the run: letters, digits and dashes.
func (m *mermaid) branchName(run string) string {
	name := strings.Map(func(r rune) rune {
		switch {
		case r >= 'a' && r <= 'z', r >= 'A' && r <= 'Z', r >= '0' && r <= '9', r == '-', r == '_', r == '.':
			return r
		default:
			return '_'
		}
	}, display(run, true))
	return m.unique(m.names, strings.Trim(name, "_"))
}

// unique returns the name, followed by a number if the name is taken.
func (m *mermaid) unique(taken map[string]bool, name string) string {
	try := name
	for n := 2; taken[try] || try == ""; n++ {
		try = fmt.Sprintf("%s-%d", name, n)
	}
	taken[try] = true
	return try
}

// mermaidText escapes what ends a Mermaid string or begins an entity or a comment.
func mermaidText(s string) string { return mermaidEscape.Replace(s) }

var mermaidEscape = strings.NewReplacer(`"`, "#quot;", `\`, "#92;", "#", "#35;", ";", "#59;", "%", "#37;", "<", "#lt;", ">", "#gt;", "`", "#96;", "{", "#123;", "}", "#125;")

func (m *mermaid) line(format string, args ...any) {
	fmt.Fprintf(m.w, format+"\n", args...)
}
