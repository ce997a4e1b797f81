package docs

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/skeinhq/skein/pkg/lint"
)

// docs/lint.md has a row for each rule, with its words, under its level.
func TestLint_EveryRuleIsTold(t *testing.T) {
	b, err := os.ReadFile(filepath.Join(root, "docs", "lint.md"))
	if err != nil {
		t.Fatal(err)
	}
	_, sections, _ := strings.Cut(string(b), "\n## Rules\n")
	sections, _, _ = strings.Cut(sections, "\n## ")
	want := map[lint.Level]string{}
	for _, r := range lint.Rules() {
		want[r.Level] += "| `" + r.Name + "` | " + r.Means + " | " + r.Do + " |\n"
	}
	for level, title := range map[lint.Level]string{lint.Error: "Errors", lint.Warning: "Warnings", lint.Note: "Notes"} {
		_, section, _ := strings.Cut(sections, "\n### "+title+"\n")
		section, _, _ = strings.Cut(section, "\n### ")
		_, rows, _ := strings.Cut(section, "\n|---|---|---|\n")
		if rows = strings.TrimSpace(rows) + "\n"; rows != want[level] {
			t.Errorf("the table of %s is\n%swant\n%s", title, rows, want[level])
		}
	}
}
