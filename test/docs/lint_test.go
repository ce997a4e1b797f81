package docs

import (
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/skeinhq/skein/pkg/lint"
)

// docs/lint.md names each rule under its level, and no other.
func TestLint_EveryRuleIsTold(t *testing.T) {
	b, err := os.ReadFile(filepath.Join(root, "docs", "lint.md"))
	if err != nil {
		t.Fatal(err)
	}
	want := map[lint.Level][]string{}
	for _, r := range lint.Rules() {
		want[r.Level] = append(want[r.Level], r.Name)
	}
	for level, title := range map[lint.Level]string{lint.Error: "Errors", lint.Warning: "Warnings", lint.Note: "Notes"} {
		_, section, _ := strings.Cut(string(b), "\n### "+title+"\n")
		section, _, _ = strings.Cut(section, "\n##")
		var told []string
		for line := range strings.Lines(section) {
			if cells := strings.Split(line, " | "); len(cells) > 1 {
				told = append(told, names(cells[0])...)
			}
		}
		slices.Sort(told)
		if slices.Sort(want[level]); !slices.Equal(told, want[level]) {
			t.Errorf("%s tells\n%q\nwant\n%q", title, told, want[level])
		}
	}
}
