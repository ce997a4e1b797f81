package apptest

import (
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
)

var flagInHelp = regexp.MustCompile(`(?m)^ +(?:-\w, )?--([a-z][a-z0-9-]*)`)

// Settings compares the binary's lines in the list of settings with the flags in its help; -update rewrites them.
// Every binary reads the list, so that one file or environment can serve all binaries.
func Settings(t *testing.T, binary, help string) {
	t.Helper()
	path := filepath.Join(moduleRoot(t), "internal", "app", "settings.txt")
	text, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	var want, got, others []string
	for _, found := range flagInHelp.FindAllStringSubmatch(help, -1) {
		if setting := strings.ReplaceAll(found[1], "-", "_"); setting != "help" && setting != "version" {
			want = append(want, binary+" "+setting)
		}
	}
	slices.Sort(want)
	want = slices.Compact(want)
	for line := range strings.Lines(string(text)) {
		line = strings.TrimSpace(line)
		if strings.HasPrefix(line, binary+" ") {
			got = append(got, line)
		} else {
			others = append(others, line)
		}
	}
	if *update {
		all := append(others, want...)
		slices.Sort(all)
		if err := os.WriteFile(path, []byte(strings.Join(all, "\n")+"\n"), 0o644); err != nil {
			t.Fatal(err)
		}
		return
	}
	if !slices.Equal(got, want) {
		t.Errorf("internal/app/settings.txt has %q, the help %q; go test -run Help -update rewrites it", got, want)
	}
}

// moduleRoot returns the closest parent folder of the test that has a go.mod.
func moduleRoot(t *testing.T) string {
	t.Helper()
	dir, err := os.Getwd()
	if err != nil {
		t.Fatal(err)
	}
	for {
		if _, err := os.Stat(filepath.Join(dir, "go.mod")); err == nil {
			return dir
		}
		if filepath.Dir(dir) == dir {
			t.Fatal("there is no go.mod above the test")
		}
		dir = filepath.Dir(dir)
	}
}
