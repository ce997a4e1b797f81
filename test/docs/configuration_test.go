package docs

import (
	"fmt"
	"os"
	"path/filepath"
	"regexp"
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
	text := configurationHead
	for _, c := range []struct{ name, what, golden, from, to string }{
		{"ingest", "takes events over HTTP and writes them to Kafka", "cmd/ingest/testdata/help.golden", "Flags:\n", ""},
		{"compactor", "folds events into run records", "cmd/compactor/testdata/help.golden", "Flags:\n", ""},
		{"indexer", "writes run records into the lineage store", "cmd/indexer/testdata/help.golden", "Flags:\n", ""},
		{"query", "answers over HTTP", "cmd/query/testdata/help.golden", "Flags:\n", ""},
		{"skein dev", "all of them in one process, for trying and developing", "internal/cli/testdata/help.golden", "$ skein dev --help\n",
			"\n$ "},
	} {
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
		text += fmt.Sprintf("\n## %s\n\n`%s` %s.\n\n| flag | variable | default | |\n|---|---|---|---|\n", c.name, c.name, c.what)
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
			text += fmt.Sprintf("| `%s` | `SKEIN_%s` | %s | %s |\n", flag, strings.ToUpper(strings.ReplaceAll(name, "-", "_")), fallback, strings.ReplaceAll(meaning, "|", `\|`))
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
