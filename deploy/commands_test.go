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

// scratch is a folder of this process's own.
var scratch string

func TestMain(m *testing.M) {
	var err error
	if scratch, err = os.MkdirTemp("", "skein-deploy-"); err != nil {
		panic(err)
	}
	code := m.Run()
	_ = os.RemoveAll(scratch) // a leftover in the temporary folder
	os.Exit(code)
}

// commands is the folder with the commands: the one that SKEIN_TEST_BIN names, else one which they are built into.
var commands = sync.OnceValues(func() (string, error) {
	if dir := os.Getenv("SKEIN_TEST_BIN"); dir != "" {
		return dir, nil
	}
	build := exec.Command("go", "build", "-o", scratch+string(filepath.Separator), "./cmd/...")
	build.Dir = ".."
	if out, err := build.CombinedOutput(); err != nil {
		return "", fmt.Errorf("building the commands: %w: %s", err, out)
	}
	return scratch, nil
})

// The Dockerfile builds without C, and so does whoever has no compiler.
func TestCommands_NeedNoC(t *testing.T) {
	list := exec.Command("go", "list", "-deps", "./cmd/...")
	list.Dir, list.Env = "..", append(os.Environ(), "CGO_ENABLED=0")
	if out, err := list.CombinedOutput(); err != nil {
		t.Errorf("%v\n%s", err, out)
	}
}

// helps are the help texts of the commands by their command line.
var helps = sync.OnceValues(func() (map[string]string, error) {
	dir, err := commands()
	if err != nil {
		return nil, err
	}
	texts := make(map[string]string)
	for _, line := range []string{"ingest", "compactor", "indexer", "query", "skein status", "skein topics create", "skein migrate"} {
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
