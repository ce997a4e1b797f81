package partstest

import (
	"os"
	"path/filepath"
	"testing"
)

func TestSkip_NotesWhatWouldBringThePartIn(t *testing.T) {
	path := filepath.Join(t.TempDir(), "skipped")
	t.Setenv("CI", "")
	t.Setenv(skippedVariable, path)
	for range 2 {
		t.Run("skipped", func(t *testing.T) { Skip(t, "no Kafka here:\n install Java") })
	}
	text, err := os.ReadFile(path)
	if want := "no Kafka here: install Java\n"; err != nil || string(text) != want+want {
		t.Errorf("noted %q, %v", text, err)
	}
}
