package clickhousetest

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

func TestVerify_RefusesAnotherPackage(t *testing.T) {
	path := filepath.Join(t.TempDir(), "x.tgz")
	if err := os.WriteFile(path, []byte("not the package"), 0o600); err != nil {
		t.Fatal(err)
	}
	if err := verify(path); err == nil || !strings.Contains(err.Error(), "its hash is") {
		t.Errorf("error %v", err)
	}
}

// The library's INSERT ... VALUES makes descriptor 0 non-blocking, reads from it, and makes it what it was. Of two that do so at once, one
// may read when the other has just made it block: from a pipe that nobody writes to, it would wait for ever.
func TestStartChild_HasNothingToWaitForOnStandardInput(t *testing.T) {
	r := StartRestartable(t)
	if at, err := os.Readlink(fmt.Sprintf("/proc/%d/fd/0", r.child.cmd.Process.Pid)); err != nil || at != os.DevNull {
		t.Errorf("the engine's standard input is %q, %v", at, err)
	}
}
