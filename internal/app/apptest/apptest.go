// Package apptest tests the command line of a stage's binary.
package apptest

import (
	"bytes"
	"flag"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/skeinhq/skein/internal/app"
)

var update = flag.Bool("update", false, "rewrite golden files")

// Run executes one command line of a stage's binary.
func Run(t *testing.T, s app.Stage, args ...string) (stdout, stderr string, code int) {
	t.Helper()
	var out, errs bytes.Buffer
	err := app.StageCommand(s)(t.Context(), args, strings.NewReader(""), &out, &errs)
	app.Report(&errs, s.Name, err)
	return out.String(), errs.String(), app.ExitCode(err)
}

// Help compares the stage's help with testdata/help.golden, and the flags in it with the list of settings;
// -update rewrites both.
func Help(t *testing.T, s app.Stage) {
	t.Helper()
	stdout, stderr, code := Run(t, s, "--help")
	if code != app.ExitDone || stderr != "" {
		t.Errorf("exit %d, stderr %q", code, stderr)
	}
	Settings(t, s.Name, stdout)
	Golden(t, "help.golden", stdout)
}

// Golden compares a text with a file of testdata; -update rewrites it.
func Golden(t *testing.T, file, text string) {
	t.Helper()
	path := filepath.Join("testdata", file)
	if *update {
		if err := os.MkdirAll("testdata", 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	want, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	if text != string(want) {
		t.Errorf("%s has changed; go test -update rewrites it. It is now:\n%s", path, text)
	}
}

// Refuses checks that a command line fails with a one-line usage error that contains want.
func Refuses(t *testing.T, s app.Stage, want, args string) {
	t.Helper()
	stdout, stderr, code := Run(t, s, strings.Fields(args)...)
	if code != app.ExitUsage || !strings.Contains(stderr, want) || strings.Count(stderr, "\n") != 1 || stdout != "" {
		t.Errorf("%s: exit %d, stdout %q, stderr %q; want exit %d and one line with %q", args, code, stdout, stderr, app.ExitUsage, want)
	}
}
