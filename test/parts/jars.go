package parts

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"io"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
)

// Jars describes the jars that a pom names, with all their dependencies.
type Jars struct {
	// Name identifies the jars in the folder's name and in messages, such as "kafka-4.3.1".
	Name string
	// Pom is the content of the Maven file.
	Pom []byte
	// SHA256 has a line "checksum  name.jar" for each jar, as sha256sum writes them.
	SHA256 []byte
}

// copyJars is the Maven goal that copies the jars of a pom into a folder. Its version is pinned like those of the jars.
const copyJars = "org.apache.maven.plugins:maven-dependency-plugin:3.8.1:copy-dependencies"

// Folder returns the folder with the jars. If the cache lacks them, or they have changed, Maven fetches them.
func (j Jars) Folder(ctx context.Context) (string, error) {
	return cached(ctx, j.Name, j.SHA256, j.check, func(dir string) error { return j.fetch(ctx, dir) })
}

// fetch runs Maven to put the jars into a folder.
func (j Jars) fetch(ctx context.Context, dir string) error {
	mvn, err := exec.LookPath("mvn")
	if err != nil {
		return &UnavailableError{Reason: "Maven is not there to fetch " + j.Name, Install: "install mvn, such as with apt-get install maven"}
	}
	tmp, err := os.MkdirTemp("", "skein-pom-") // not in the folder of the jars, which must contain nothing else
	if err != nil {
		return fmt.Errorf("fetching jars: %w", err)
	}
	defer func() { _ = os.RemoveAll(tmp) }() // leftovers in the temporary folder are harmless
	pom := filepath.Join(tmp, "pom.xml")
	if err := os.WriteFile(pom, j.Pom, 0o600); err != nil {
		return fmt.Errorf("fetching jars: %w", err)
	}
	out, err := fetch(ctx, func([]byte) bool { return false }, mvn, "--quiet", "--batch-mode", "--no-transfer-progress",
		"--file", pom, copyJars, "-DincludeScope=runtime", "-DoutputDirectory="+dir)
	if err != nil {
		return &UnavailableError{
			Reason:  fmt.Sprintf("Maven could not fetch %s (%v: %s)", j.Name, err, firstError(out)),
			Install: "see that mvn reaches a Maven repository; what it fetched once is used without a network",
		}
	}
	return nil
}

// firstError returns the first line with an error in Maven's output.
func firstError(out []byte) string {
	for line := range strings.Lines(string(out)) {
		if line = strings.TrimSpace(line); strings.Contains(line, "ERROR") {
			return line
		}
	}
	return strings.TrimSpace(string(out[:min(len(out), 300)]))
}

// pinned returns the checksums by file name.
func (j Jars) pinned() map[string]string {
	sums := make(map[string]string)
	for line := range strings.Lines(string(j.SHA256)) {
		if sum, name, ok := strings.Cut(strings.TrimSpace(line), "  "); ok {
			sums[name] = sum
		}
	}
	return sums
}

// check returns an error unless the folder has exactly the pinned files with the pinned checksums.
func (j Jars) check(dir string) error {
	entries, err := os.ReadDir(dir)
	if err != nil {
		return fmt.Errorf("checking jars: %w", err)
	}
	missing := j.pinned()
	for _, e := range entries {
		want, ok := missing[e.Name()]
		if !ok {
			return fmt.Errorf("checking jars of %s: %s is not pinned: %w", j.Name, e.Name(), ErrChecksum)
		}
		delete(missing, e.Name())
		got, err := checksum(filepath.Join(dir, e.Name()))
		if err != nil {
			return err
		}
		if got != want {
			return fmt.Errorf("checking jars of %s: %s has %s, pinned is %s: %w", j.Name, e.Name(), got, want, ErrChecksum)
		}
	}
	if len(missing) > 0 {
		return fmt.Errorf("checking jars of %s: there is no %s: %w", j.Name, slices.Sorted(maps.Keys(missing))[0], ErrChecksum)
	}
	return nil
}

func checksum(file string) (string, error) {
	f, err := os.Open(file)
	if err != nil {
		return "", fmt.Errorf("checking jars: %w", err)
	}
	defer func() { _ = f.Close() }() // opened for reading only
	h := sha256.New()
	if _, err := io.Copy(h, f); err != nil {
		return "", fmt.Errorf("checking jars: %w", err)
	}
	return hex.EncodeToString(h.Sum(nil)), nil
}
