package docs

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
)

// README says that Go and a network are all: a C compiler, which the race detector needs, is asked for
// only where every part has to be there.
func TestMake_CheckNeedsNoCCompiler(t *testing.T) {
	if _, err := exec.LookPath("make"); err != nil {
		t.Skip("there is no make here")
	}
	for name, c := range map[string]struct {
		environ []string
		want    string
		fails   bool
	}{
		"cgo off":               {[]string{"CGO_ENABLED=0", "CI="}, "without the race detector", false},
		"no such compiler":      {[]string{"CGO_ENABLED=1", "CC=no-such-compiler -m64", "CI="}, "without the race detector", false},
		"cgo off where CI is":   {[]string{"CGO_ENABLED=0", "CI=true"}, "A C compiler is needed with CI=true", true},
		"a compiler with flags": {[]string{"CGO_ENABLED=1", "CC=true -m64", "CI=true"}, "", false},
	} {
		t.Run(name, func(t *testing.T) {
			cmd := exec.CommandContext(t.Context(), "make", "--no-print-directory", "race-setup")
			cmd.Dir = root
			// Not the flags of the make that runs the tests.
			cmd.Env = append(os.Environ(), append(c.environ, "MAKEFLAGS=", "MAKELEVEL=", "SKEIN_TEST_SKIPPED=")...)
			out, err := cmd.CombinedOutput()
			if (err != nil) != c.fails || !strings.Contains(string(out), c.want) || c.want == "" && len(out) > 0 {
				t.Errorf("%v: %s", err, out)
			}
		})
	}
}

// What was skipped stands at the end of make check, each reason once.
func TestMake_CheckEndsWithWhatWasSkipped(t *testing.T) {
	if _, err := exec.LookPath("make"); err != nil {
		t.Skip("there is no make here")
	}
	list := filepath.Join(t.TempDir(), "skipped.txt")
	for text, want := range map[string]string{
		"no nginx here: install nginx\nno Java: install it\nno Java: install it\n": "Passed, but what needs these parts was skipped:\n  no Java: install it\n  no nginx here: install nginx\n",
		"": "Passed, and no part was missing.\n",
	} {
		if err := os.WriteFile(list, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		cmd := exec.CommandContext(t.Context(), "make", "--no-print-directory", "say-skipped")
		cmd.Dir = root
		cmd.Env = append(os.Environ(), "MAKEFLAGS=", "MAKELEVEL=", "SKEIN_TEST_SKIPPED="+list)
		if out, err := cmd.CombinedOutput(); err != nil || string(out) != want {
			t.Errorf("%v: %q, want %q", err, out, want)
		}
	}
}

// README says that Go, make, git and a network are all: targets run where PATH has those and the tools that POSIX demands.
func TestMake_NeedsGoMakeAndGitAlone(t *testing.T) {
	bin := t.TempDir()
	for _, name := range []string{"go", "make", "git", "sh", "mkdir", "rm", "touch", "sed", "grep", "sort", "od", "tr", "cut", "expand", "env"} {
		path, err := exec.LookPath(name)
		if err != nil {
			t.Skipf("there is no %s here", name)
		}
		if err := os.Symlink(path, filepath.Join(bin, name)); err != nil {
			t.Fatal(err)
		}
	}
	for target, want := range map[string]string{
		"help": "start all stages", "race-setup": "No C compiler here", "conformance-setup": "No Node here", "say-skipped": "no part was missing",
		"build -n": "go build -o bin/", "run -n": "bin/skein demo", "test -n": "go test -short",
	} {
		cmd := exec.CommandContext(t.Context(), filepath.Join(bin, "make"), append([]string{"--no-print-directory"}, strings.Fields(target)...)...)
		cmd.Dir = root
		cmd.Env = append(os.Environ(), "PATH="+bin, "CI=", "MAKEFLAGS=", "MAKELEVEL=", "SKEIN_TEST_SKIPPED=")
		if out, err := cmd.CombinedOutput(); err != nil || !strings.Contains(string(out), want) || strings.Contains(string(out), "not found") {
			t.Errorf("make %s: %v, want %q: %s", target, err, want, out)
		}
	}
}
