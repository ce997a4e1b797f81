package abuse

import (
	"os"
	"testing"

	"github.com/skeinhq/skein/internal/parts/partstest"
)

func TestMain(m *testing.M) {
	partstest.ExitShort("stages as processes")
	code := m.Run()
	if scratch != "" {
		_ = os.RemoveAll(scratch) // a leftover in the temporary folder
	}
	os.Exit(code)
}
