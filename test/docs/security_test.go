package docs

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/skeinhq/skein/pkg/kafka"
)

func TestSecurity_NamesTheRules(t *testing.T) {
	text, err := os.ReadFile(filepath.Join(root, "docs", "security.md"))
	if err != nil {
		t.Fatal(err)
	}
	var documented, coded []string
	for _, row := range rows(t, string(text), "user") {
		documented = append(documented, strings.Join(row, " | "))
	}
	for _, r := range (kafka.Config{}).Rules() {
		user, name := r.Stage, "`"+r.Name+"`"
		if r.ClickHouse {
			user += " with ClickHouse"
		}
		if r.Resource == "transactional id" {
			name += "…"
		}
		coded = append(coded, fmt.Sprintf("%s | %s | %s | %s", user, r.Resource, name, strings.Join(r.Operations, ", ")))
	}
	if !slices.Equal(documented, coded) {
		t.Errorf("docs/security.md has the rules\n%s\nand pkg/kafka/rules.go\n%s", strings.Join(documented, "\n"), strings.Join(coded, "\n"))
	}
}
