package e2e_test

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"sync"
	"testing"
)

// binaries is the folder with the commands, built once for all tests of the process.
var binaries = sync.OnceValues(func() (string, error) {
	dir, err := os.MkdirTemp("", "skein-e2e-")
	if err != nil {
		return "", err
	}
	cmd := exec.Command("go", "build", "-o", dir+string(filepath.Separator), "../../cmd/...", "./broker")
	if out, err := cmd.CombinedOutput(); err != nil {
		return dir, fmt.Errorf("building the commands: %w: %s", err, out)
	}
	return dir, nil
})

func TestMain(m *testing.M) {
	code := m.Run()
	if dir, _ := binaries(); dir != "" {
		_ = os.RemoveAll(dir) // a leftover in the temporary folder
	}
	os.Exit(code)
}
