package conformance_test

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/skeinhq/skein/test/conformance"
)

// The kit for others: check.mjs finds nothing against Skein's own fold, finds what is wrong with
// another, and says so where there was nothing to compare.
func TestCheck_ComparesAnyCommand(t *testing.T) {
	conformance.Need(t)
	example := filepath.Join(t.TempDir(), "example")
	if out, err := exec.CommandContext(t.Context(), "go", "build", "-o", example, "./example").CombinedOutput(); err != nil {
		t.Fatalf("building the example: %v\n%s", err, out)
	}
	const nothing = "168 streams, 4829 events: no difference"
	if readme, err := os.ReadFile("README.md"); err != nil || !strings.Contains(string(readme), "\n"+nothing+"\n") {
		t.Errorf("README.md does not say %q (%v)", nothing, err)
	}
	for name, tt := range map[string]struct {
		command []string
		code    int
		says    string
	}{
		"Skein's own fold":         {[]string{example}, 0, nothing},
		"a client that is not old": {[]string{"node", "reduce.mjs"}, 1, "168 streams, 4829 events: 15 differ"},
		"a command that says nothing": {[]string{"node", "--eval", "process.exit(0)"}, 2,
			"stopped after 0 streams: case activity_delta_of_unknown_operations.txtar: no answer; the command ended"},
		"a command that is not there": {[]string{"./no-such-command"}, 2, "it could not be started"},
		"no command":                  {nil, 2, "usage: node check.mjs"},
	} {
		t.Run(name, func(t *testing.T) {
			cmd := exec.CommandContext(t.Context(), "node", append([]string{"check.mjs", "--"}, tt.command...)...)
			out, err := cmd.CombinedOutput()
			if code := cmd.ProcessState.ExitCode(); code != tt.code || !strings.Contains(string(out), tt.says) {
				t.Errorf("exit %d (%v), want %d and %q, got\n%s", code, err, tt.code, tt.says, out)
			}
		})
	}
}
