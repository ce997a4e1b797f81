package docs

import (
	"os"
	"os/exec"
	"strings"
	"testing"
)

// README says that Go and a network are all: a C compiler, which the race detector needs, is asked for
// only where every part has to be there.
func TestMake_TestNeedsNoCCompiler(t *testing.T) {
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
			cmd.Env = append(os.Environ(), append(c.environ, "MAKEFLAGS=", "MAKELEVEL=")...)
			out, err := cmd.CombinedOutput()
			if (err != nil) != c.fails || !strings.Contains(string(out), c.want) || c.want == "" && len(out) > 0 {
				t.Errorf("%v: %s", err, out)
			}
		})
	}
}
