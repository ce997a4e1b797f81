package apache

import (
	"path/filepath"
	"strings"
	"testing"
)

func TestChecksums_NameEveryJarOnce(t *testing.T) {
	files, err := checksums.ReadDir(".")
	if err != nil {
		t.Fatal(err)
	}
	for _, file := range files {
		text, err := checksums.ReadFile(file.Name())
		if err != nil {
			t.Fatal(err)
		}
		broker := strings.NewReplacer("jars-", "kafka_2.13-", ".sha256", ".jar").Replace(file.Name())
		seen := map[string]bool{}
		for line := range strings.Lines(string(text)) {
			sum, name, _ := strings.Cut(strings.TrimSpace(line), "  ")
			if len(sum) != 64 || filepath.Ext(name) != ".jar" || seen[name] {
				t.Errorf("%s: %q has checksum %q", file.Name(), name, sum)
			}
			seen[name] = true
		}
		if !seen[broker] {
			t.Errorf("%s does not name the broker, %s", file.Name(), broker)
		}
	}
}
