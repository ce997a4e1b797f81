package abuse

import (
	"os"
	"testing"
)

func TestMain(m *testing.M) {
	code := m.Run()
	if scratch != "" {
		_ = os.RemoveAll(scratch) // a leftover in the temporary folder
	}
	os.Exit(code)
}
