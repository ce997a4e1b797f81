package docs

import (
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"testing"

	"github.com/skeinhq/skein/pkg/compact"
	"github.com/skeinhq/skein/pkg/fold"
	"github.com/skeinhq/skein/pkg/lineage"
)

// The first table of docs/fold.md with rules has those of the client's verification, the second those
// of its reducer, the third those of the protocol, the fourth those of placing a run, the last those of how its records came.
func TestFold_EveryRuleIsTold(t *testing.T) {
	b, err := os.ReadFile(filepath.Join(root, "docs", "fold.md"))
	if err != nil {
		t.Fatal(err)
	}
	tables := regexp.MustCompile(`(?m)^\| rule \|.*\n\|[-|]*\n((?:\|.*\n)+)`).FindAllSubmatch(b, -1)
	if len(tables) != 5 {
		t.Fatalf("%d tables of rules, want 5", len(tables))
	}
	for i, rules := range [][]string{compact.VerificationRules(), compact.ReducerRules(), compact.ProtocolRules(),
		{lineage.AnomalySelfParent, lineage.AnomalyParentCycle, lineage.AnomalyPlacedAlone}, fold.Rules()} {
		var told []string
		for _, row := range regexp.MustCompile(`(?m)^\| ([^|]*) \|`).FindAllSubmatch(tables[i][1], -1) {
			for _, name := range regexp.MustCompile("`([^`]*)`").FindAllSubmatch(row[1], -1) {
				told = append(told, string(name[1]))
			}
		}
		slices.Sort(told)
		slices.Sort(rules)
		if !slices.Equal(told, rules) {
			t.Errorf("table %d tells\n%q\ncounted are\n%q", i+1, told, rules)
		}
	}
}
