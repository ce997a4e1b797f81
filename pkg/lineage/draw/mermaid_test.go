package draw

import (
	"fmt"
	"strconv"
	"strings"
	"testing"

	"pgregory.net/rapid"

	"github.com/skeinhq/skein/pkg/agui"
	"github.com/skeinhq/skein/pkg/lineage"
)

// oddThread draws a forest whose ids are words of Mermaid, or anything.
func oddThread(t *rapid.T) []lineage.Run {
	words := rapid.OneOf(rapid.StringN(1, 20, 512), rapid.SampledFrom([]string{
		`"`, `"q"`, `\`, `\n`, `\N`, "a\nb", "x\x00y", "\u202eabc", "\u2028", "b/c", "it's", "<b>", "&amp;", "#35;", "#quot;", "a;b", "%%{init}%%", "%%", "{}",
		"`x`", "[x]", "main", "checkout", "commit", "branch", "merge", "cherry-pick", "order", "end", "-->", "tip", "--", "-x", ".x", "a.", "1", "  ",
		"type: REVERSE", `" tag: "x`, "🦊", strings.Repeat("🦊", 128), "\xff",
	}))
	var runs []lineage.Run
	for i := range rapid.IntRange(1, 14).Draw(t, "runs") {
		r := lineage.Run{ID: words.Draw(t, "id"), Start: int64(i), End: int64(i), Sealed: true, Status: lineage.StatusFinished,
			ParentBy: lineage.ParentNone}
		if i > 0 && rapid.IntRange(0, 4).Draw(t, "root") > 0 {
			r.Parent, r.ParentBy = rapid.SampledFrom(runs).Draw(t, "parent").ID, lineage.ParentContent
		}
		if rapid.IntRange(0, 6).Draw(t, "spawned") == 0 {
			r.SpawnedBy = agui.String(words.Draw(t, "by"))
		}
		if rapid.IntRange(0, 6).Draw(t, "open") == 0 {
			r.End, r.Sealed, r.Status = -1, false, lineage.StatusRunning
		}
		runs = append(runs, r)
	}
	return runs
}

// Law: a gitGraph keeps Mermaid's rules, which its parser enforces: a branch is made once and from a
// commit, what is checked out is there and is not checked out already, no two commits have one id, and
// within quotes there is nothing that ends them or begins a directive.
func TestPicture_MermaidKeepsItsRules(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		p := New(lineage.NewGraph(oddThread(t)), Options{MaxLanes: 4})
		var b strings.Builder
		if err := p.Mermaid(&b); err != nil {
			t.Fatal(err)
		}
		if err := checkGitGraph(b.String(), len(p.Rows)); err != nil {
			t.Fatalf("%v in\n%s", err, b.String())
		}
	})
}

func checkGitGraph(text string, rows int) error {
	lines := strings.Split(strings.TrimSuffix(text, "\n"), "\n")
	if len(lines) < 2 || !strings.HasPrefix(lines[0], `%%{init: {"gitGraph": {"mainBranchName": "`) || lines[1] != "gitGraph TB:" {
		return fmt.Errorf("the head is %q", lines[:min(2, len(lines))])
	}
	current := strings.TrimSuffix(strings.TrimPrefix(lines[0], `%%{init: {"gitGraph": {"mainBranchName": "`), `"}}}%%`)
	branches, commits := map[string]bool{current: true}, map[string]bool{}
	for _, line := range lines[2:] {
		verb, rest, _ := strings.Cut(strings.TrimPrefix(line, "  "), " ")
		if verb == "commit" {
			rest = strings.TrimPrefix(rest, "id: ")
		}
		quoted, tail, ok := strings.Cut(strings.TrimPrefix(rest, `"`), `"`)
		if !ok || strings.ContainsAny(quoted, "\\%{}<>`") {
			return fmt.Errorf("line %q", line)
		}
		switch verb {
		case "branch":
			if branches[quoted] || tail != "" {
				return fmt.Errorf("branch %s is made twice", quoted)
			}
			branches[quoted], current = true, quoted
		case "checkout":
			if !branches[quoted] || quoted == current || tail != "" {
				return fmt.Errorf("%s cannot be checked out", quoted)
			}
			current = quoted
		case "commit":
			if commits[quoted] {
				return fmt.Errorf("two commits %s", quoted)
			}
			commits[quoted] = true
			tail = strings.TrimPrefix(strings.TrimPrefix(tail, " type: REVERSE"), " type: HIGHLIGHT")
			if tag, ok := strings.CutPrefix(tail, " tag: "); ok {
				if n := strings.Count(tag, `"`); n != 2 || !strings.HasPrefix(tag, `"`) || !strings.HasSuffix(tag, `"`) {
					return fmt.Errorf("tag %s", strconv.Quote(tag))
				}
			} else if tail != "" {
				return fmt.Errorf("line %q", line)
			}
		default:
			return fmt.Errorf("line %q", line)
		}
	}
	if len(commits) != rows {
		return fmt.Errorf("%d commits, want %d", len(commits), rows)
	}
	return nil
}
