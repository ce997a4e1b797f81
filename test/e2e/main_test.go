package e2e_test

import (
	"os"
	"sync"
	"testing"

	"github.com/skeinhq/skein/test/process"
)

// binaries is the folder with the commands, built once for all tests of the process.
var binaries = sync.OnceValues(func() (string, error) {
	dir, err := os.MkdirTemp("", "skein-e2e-")
	if err != nil {
		return "", err
	}
	return dir, process.Build(dir, nil, "../../cmd/...", "./broker")
})

func TestMain(m *testing.M) {
	code := m.Run()
	if dir, _ := binaries(); dir != "" {
		_ = os.RemoveAll(dir) // a leftover in the temporary folder
	}
	os.Exit(code)
}
