package docs

import (
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
)

const configurationHead = `# Settings

Every setting is a flag, a variable and a key of a YAML file; they say the same. A flag wins over a variable, and a variable over the file that
` + "`--config FILE` (or `SKEIN_CONFIG`)" + ` names. The flag ` + "`--kafka-tls`" + ` is the variable ` + "`SKEIN_KAFKA_TLS`" + ` and the key ` + "`kafka_tls`" + `. Lists are
separated by commas, or are YAML lists. One file or one environment may hold the settings of all stages: each takes its own, and a
key that no stage knows is an error. Secrets are never settings: a setting names the file that holds one.

This page is made from the help of the commands by ` + "`make configuration`" + `, and a test holds it to that.
`

// A flag in a help text: its name, the word for its value, what it means and its default.
var helpFlag = regexp.MustCompile(`(?m)^ +(?:-\w, )?--([a-z0-9-]+)(?: ([^ ]+))?   *(.*?)(?: \(default (.*)\))?$`)

// TestConfiguration_IsMadeFromTheFlags holds docs/configuration.md to the help of the stages and of skein dev.
func TestConfiguration_IsMadeFromTheFlags(t *testing.T) {
	stages := []struct{ name, what, golden, from, to string }{
		{"ingest", "takes events over HTTP and writes them to Kafka", "cmd/ingest/testdata/help.golden", "Flags:\n", ""},
		{"compactor", "folds events into run records", "cmd/compactor/testdata/help.golden", "Flags:\n", ""},
		{"indexer", "writes run records into the lineage store", "cmd/indexer/testdata/help.golden", "Flags:\n", ""},
		{"query", "answers over HTTP", "cmd/query/testdata/help.golden", "Flags:\n", ""},
		{"skein dev", "all of them in one process, for trying and developing", "internal/cli/testdata/help.golden", "$ skein dev --help\n",
			"\n$ "},
	}
	rows, takers := make([][]string, len(stages)), map[string][]string{}
	for i, c := range stages {
		help, err := os.ReadFile(filepath.Join(root, c.golden))
		if err != nil {
			t.Fatal(err)
		}
		_, part, found := strings.Cut(string(help), c.from)
		if c.to != "" {
			part, _, _ = strings.Cut(part, c.to)
		}
		flags := helpFlag.FindAllStringSubmatch(part, -1)
		if !found || len(flags) < 5 {
			t.Fatalf("%s: %d flags in %s", c.name, len(flags), c.golden)
		}
		for _, f := range flags {
			name, value, meaning, fallback := f[1], f[2], f[3], f[4]
			if name == "help" || name == "version" {
				continue
			}
			flag := "--" + name
			if value != "" {
				flag += " " + value
			}
			if fallback != "" {
				fallback = "`" + strings.Trim(fallback, `"`) + "`"
			}
			row := fmt.Sprintf("| `%s` | `SKEIN_%s` | %s | %s |", flag, strings.ToUpper(strings.ReplaceAll(name, "-", "_")), fallback, strings.ReplaceAll(meaning, "|", `\|`))
			rows[i], takers[row] = append(rows[i], row), append(takers[row], c.name)
		}
	}
	var shared []string
	for row, names := range takers {
		if len(names) > 1 {
			shared = append(shared, row+" "+strings.Join(names, ", ")+" |\n")
		}
	}
	slices.Sort(shared)
	text := configurationHead + "\n## Several stages\n\n| flag | variable | default | | stages |\n|---|---|---|---|---|\n" + strings.Join(shared, "")
	for i, c := range stages {
		text += fmt.Sprintf("\n## %s\n\n`%s` %s. Beside those of several stages:\n\n| flag | variable | default | |\n|---|---|---|---|\n", c.name, c.name, c.what)
		for _, row := range rows[i] {
			if len(takers[row]) == 1 {
				text += row + "\n"
			}
		}
	}
	path := filepath.Join(root, "docs", "configuration.md")
	if *update {
		if err := os.WriteFile(path, []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	if have, err := os.ReadFile(path); err != nil || string(have) != text {
		t.Errorf("docs/configuration.md is not what the help of the commands says (%v): make configuration writes it anew", err)
	}
}
