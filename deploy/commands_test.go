package deploy

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"sync"
	"testing"
)

// helps are the help texts of the commands by their command line.
var helps = sync.OnceValues(func() (map[string]string, error) {
	dir, err := os.MkdirTemp("", "skein-deploy-")
	if err != nil {
		return nil, err
	}
	defer func() { _ = os.RemoveAll(dir) }() // a leftover in the temporary folder
	build := exec.Command("go", "build", "-o", dir+string(filepath.Separator), "./cmd/...")
	// As in the Dockerfile: what needs C does not build.
	build.Dir, build.Env = "..", append(os.Environ(), "CGO_ENABLED=0")
	if out, err := build.CombinedOutput(); err != nil {
		return nil, fmt.Errorf("building the commands: %w: %s", err, out)
	}
	texts := make(map[string]string)
	for _, line := range []string{"ingest", "compactor", "indexer", "query", "skein health", "skein topics create", "skein migrate"} {
		words := strings.Fields(line)
		out, err := exec.Command(filepath.Join(dir, words[0]), append(words[1:], "--help")...).Output()
		if err != nil {
			return nil, fmt.Errorf("asking %s for help: %w", line, err)
		}
		texts[line] = string(out)
	}
	return texts, nil
})

// checkSettings holds settings of a command, as variables or YAML keys, to the flags that it has.
func checkSettings(t *testing.T, where, command string, names []string) {
	t.Helper()
	texts, err := helps()
	if err != nil {
		t.Fatal(err)
	}
	text, ok := texts[command]
	if !ok {
		t.Errorf("%s runs %q, which is no command of Skein", where, command)
		return
	}
	for _, name := range names {
		variable := name
		if !strings.HasPrefix(name, "SKEIN_") {
			variable = "SKEIN_" + strings.ToUpper(name)
		}
		flag := "--" + strings.ReplaceAll(strings.ToLower(strings.TrimPrefix(variable, "SKEIN_")), "_", "-")
		if !regexp.MustCompile(`(?m)^\s+(-\w, )?` + flag + `\b[^-]`).MatchString(text) {
			t.Errorf("%s sets %s, and %s has no flag %s", where, name, command, flag)
		}
	}
}
