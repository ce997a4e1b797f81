package parts

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

func TestJars_RefuseWhatIsNotPinned(t *testing.T) {
	sum := strings.Repeat("0", 64)
	j := Jars{Name: "test", SHA256: []byte(sum + "  a.jar\n" + sum + "  b.jar\n")}
	dir := t.TempDir()
	if err := j.check(dir); !errors.Is(err, ErrChecksum) {
		t.Errorf("an empty folder: %v", err)
	}
	write := func(name, text string) {
		t.Helper()
		if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	write("a.jar", "another")
	write("b.jar", "another")
	if err := j.check(dir); !errors.Is(err, ErrChecksum) {
		t.Errorf("changed files: %v", err)
	}
	// sha256sum of "another"
	j.SHA256 = []byte(strings.ReplaceAll(string(j.SHA256), sum, "ae448ac86c4e8e4dec645729708ef41873ae79c6dff84eff73360989487f08e5"))
	if err := j.check(dir); err != nil {
		t.Errorf("the pinned files: %v", err)
	}
	write("c.jar", "")
	if err := j.check(dir); !errors.Is(err, ErrChecksum) {
		t.Errorf("a file too many: %v", err)
	}
}
