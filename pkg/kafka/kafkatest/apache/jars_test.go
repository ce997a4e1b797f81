package apache

import (
	"path/filepath"
	"strings"
	"testing"
)

func TestChecksums_NameEveryJarOnce(t *testing.T) {
	broker := false
	seen := map[string]bool{}
	for line := range strings.Lines(string(checksums)) {
		sum, name, _ := strings.Cut(strings.TrimSpace(line), "  ")
		if len(sum) != 64 || filepath.Ext(name) != ".jar" || seen[name] {
			t.Errorf("%q has checksum %q", name, sum)
		}
		seen[name] = true
		broker = broker || name == "kafka_2.13-"+Version+".jar"
	}
	if !broker {
		t.Errorf("jars.sha256 does not name the broker of version %s", Version)
	}
}
