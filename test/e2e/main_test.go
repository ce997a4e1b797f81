package e2e_test

import (
	"os"
	"sync"
	"testing"

	"github.com/skeinhq/skein/test/parts/partstest"
	"github.com/skeinhq/skein/test/process"
)

// scratch is a folder of this process's own.
var scratch string

// binaries is the folder with the commands.
var binaries = sync.OnceValues(func() (string, error) { return process.Commands(scratch) })

func TestMain(m *testing.M) {
	partstest.ExitShort("stages as processes")
	var err error
	if scratch, err = os.MkdirTemp("", "skein-e2e-"); err != nil {
		panic(err)
	}
	code := m.Run()
	_ = os.RemoveAll(scratch) // a leftover in the temporary folder
	os.Exit(code)
}
