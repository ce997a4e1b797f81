package apache

import (
	"errors"
	"os"
	"path/filepath"
	"testing"
)

func TestPinned_NamesEveryJarOnce(t *testing.T) {
	sums := pinned()
	if _, ok := sums["kafka_2.13-"+Version+".jar"]; !ok {
		t.Errorf("jars.sha256 does not name the broker of version %s", Version)
	}
	for name, sum := range sums {
		if len(sum) != 64 || filepath.Ext(name) != ".jar" {
			t.Errorf("%q has checksum %q", name, sum)
		}
	}
}

func TestCheckJars_RefusesWhatIsNotPinned(t *testing.T) {
	dir := t.TempDir()
	if err := checkJars(dir); !errors.Is(err, ErrChecksum) {
		t.Errorf("an empty folder: %v", err)
	}
	for name := range pinned() {
		if err := os.WriteFile(filepath.Join(dir, name), []byte("another"), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	if err := checkJars(dir); !errors.Is(err, ErrChecksum) {
		t.Errorf("changed files: %v", err)
	}
	if err := os.WriteFile(filepath.Join(dir, "a.jar"), nil, 0o600); err != nil {
		t.Fatal(err)
	}
	if err := checkJars(dir); !errors.Is(err, ErrChecksum) {
		t.Errorf("a file too many: %v", err)
	}
}

func TestJavaMajor(t *testing.T) {
	for out, want := range map[string]int{
		`openjdk version "17.0.15" 2025-04-15`: 17,
		`java version "1.8.0_401"`:             1,
		`openjdk version "21" 2023-09-19`:      21,
		`sh: no java`:                          0,
	} {
		if got := javaMajor([]byte(out)); got != want {
			t.Errorf("%q is Java %d, want %d", out, got, want)
		}
	}
}
