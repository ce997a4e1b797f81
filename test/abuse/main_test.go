package abuse

import (
	"fmt"
	"os"
	"testing"

	"github.com/skeinhq/skein/test/parts/partstest"
	"github.com/skeinhq/skein/test/process"
)

func TestMain(m *testing.M) {
	partstest.ExitShort("stages as processes")
	os.Exit(func() int {
		dir, err := os.MkdirTemp("", "skein-abuse-")
		if err == nil {
			defer func() { _ = os.RemoveAll(dir) }() // a leftover in the temporary folder
			Bin, err = process.Commands(dir)
		}
		if err != nil {
			fmt.Fprintln(os.Stderr, err)
			return 1
		}
		return m.Run()
	}())
}
