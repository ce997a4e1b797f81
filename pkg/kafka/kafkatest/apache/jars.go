package apache

import (
	"bytes"
	"context"
	"crypto/sha256"
	_ "embed"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/gofrs/flock"
)

// Version is the version of Apache Kafka that is run.
const Version = "4.3.1"

// CacheVariable names a folder to keep downloads in, in place of the user's cache folder.
const CacheVariable = "SKEIN_CACHE"

// ErrChecksum says that a jar is not the one that was checked in. It is never a reason to skip a test.
var ErrChecksum = errors.New("checksum differs")

// UnavailableError says that this machine cannot run Kafka from jars, and what would change that.
type UnavailableError struct {
	Reason  string
	Install string
}

// Error implements error.
func (e *UnavailableError) Error() string { return e.Reason + ": " + e.Install }

var (
	//go:embed pom.xml
	pom []byte
	//go:embed jars.sha256
	checksums []byte
)

// copyJars is the goal of Maven that puts the jars of a pom into a folder, pinned like the jars.
const copyJars = "org.apache.maven.plugins:maven-dependency-plugin:3.8.1:copy-dependencies"

// fetchTries is how often Maven is asked: registries answer 429 and 503 now and then.
const fetchTries = 3

// Jars returns the folder with the broker's jars. Where the cache does not have them, or has them
// changed, Maven fetches them. Any number of processes may call it at a time.
func Jars(ctx context.Context) (string, error) {
	cache, err := cacheDir()
	if err != nil {
		return "", err
	}
	// Named after the checksums, so that two versions of this package can share a cache.
	sum := sha256.Sum256(checksums)
	dir := filepath.Join(cache, "kafka-"+Version+"-"+hex.EncodeToString(sum[:6]))
	lock := flock.New(dir + ".lock")
	if _, err := lock.TryLockContext(ctx, 100*time.Millisecond); err != nil {
		return "", fmt.Errorf("locking %s: %w", lock.Path(), err)
	}
	defer func() { _ = lock.Unlock() }() // the lock ends with the process at the latest
	if checkJars(dir) == nil {
		return dir, nil
	}
	tmp, err := os.MkdirTemp(cache, "fetching-*")
	if err != nil {
		return "", fmt.Errorf("fetching jars: %w", err)
	}
	defer func() { _ = os.RemoveAll(tmp) }() // a rest in a cache harms nobody
	jars := filepath.Join(tmp, "jars")
	if err := fetchJars(ctx, tmp, jars); err != nil {
		return "", err
	}
	if err := checkJars(jars); err != nil {
		return "", fmt.Errorf("fetching jars: %w", err)
	}
	if err := os.RemoveAll(dir); err != nil {
		return "", fmt.Errorf("replacing jars: %w", err)
	}
	if err := os.Rename(jars, dir); err != nil {
		return "", fmt.Errorf("keeping jars: %w", err)
	}
	return dir, nil
}

func cacheDir() (string, error) {
	dir := os.Getenv(CacheVariable)
	if dir == "" {
		user, err := os.UserCacheDir()
		if err != nil {
			return "", fmt.Errorf("looking for a cache folder (%s can name one): %w", CacheVariable, err)
		}
		dir = filepath.Join(user, "skein")
	}
	dir, err := filepath.Abs(dir)
	if err != nil {
		return "", fmt.Errorf("looking for a cache folder: %w", err)
	}
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return "", fmt.Errorf("making cache folder: %w", err)
	}
	return dir, nil
}

// fetchJars has Maven put the jars into a folder.
func fetchJars(ctx context.Context, tmp, jars string) error {
	mvn, err := exec.LookPath("mvn")
	if err != nil {
		return &UnavailableError{Reason: "Maven is not there to fetch Apache Kafka " + Version, Install: "install mvn, such as with apt-get install maven"}
	}
	file := filepath.Join(tmp, "pom.xml")
	if err := os.WriteFile(file, pom, 0o600); err != nil {
		return fmt.Errorf("fetching jars: %w", err)
	}
	var out []byte
	for try := 1; ; try++ {
		cmd := exec.CommandContext(ctx, mvn, "--quiet", "--batch-mode", "--no-transfer-progress",
			"--file", file, copyJars, "-DincludeScope=runtime", "-DoutputDirectory="+jars)
		cmd.WaitDelay = 5 * time.Second
		out, err = cmd.CombinedOutput()
		if err == nil {
			return nil
		}
		if try == fetchTries || ctx.Err() != nil {
			return &UnavailableError{
				Reason:  fmt.Sprintf("Maven could not fetch Apache Kafka %s (%v: %s)", Version, err, firstError(out)),
				Install: "see that mvn reaches a Maven repository; what it fetched once is used without a network",
			}
		}
		select {
		case <-time.After(time.Duration(try) * 3 * time.Second):
		case <-ctx.Done():
		}
	}
}

// firstError is the line of Maven's output that says what went wrong.
func firstError(out []byte) string {
	for line := range strings.Lines(string(out)) {
		if line = strings.TrimSpace(line); strings.Contains(line, "ERROR") {
			return line
		}
	}
	return strings.TrimSpace(string(out[:min(len(out), 300)]))
}

// pinned returns the checked-in checksums by file name.
func pinned() map[string]string {
	sums := make(map[string]string)
	for line := range strings.Lines(string(checksums)) {
		if sum, name, ok := strings.Cut(strings.TrimSpace(line), "  "); ok {
			sums[name] = sum
		}
	}
	return sums
}

// checkJars holds a folder to the checked-in list: the same files with the same bytes, and no other.
func checkJars(dir string) error {
	entries, err := os.ReadDir(dir)
	if err != nil {
		return fmt.Errorf("checking jars: %w", err)
	}
	missing := pinned()
	for _, e := range entries {
		want, ok := missing[e.Name()]
		if !ok {
			return fmt.Errorf("checking jars: %s is not in jars.sha256: %w", e.Name(), ErrChecksum)
		}
		delete(missing, e.Name())
		got, err := checksum(filepath.Join(dir, e.Name()))
		if err != nil {
			return err
		}
		if got != want {
			return fmt.Errorf("checking jars: %s has %s, jars.sha256 says %s: %w", e.Name(), got, want, ErrChecksum)
		}
	}
	if len(missing) > 0 {
		return fmt.Errorf("checking jars: there is no %s: %w", slices.Sorted(maps.Keys(missing))[0], ErrChecksum)
	}
	return nil
}

func checksum(file string) (string, error) {
	f, err := os.Open(file)
	if err != nil {
		return "", fmt.Errorf("checking jars: %w", err)
	}
	defer func() { _ = f.Close() }() // only read
	h := sha256.New()
	if _, err := io.Copy(h, f); err != nil {
		return "", fmt.Errorf("checking jars: %w", err)
	}
	return hex.EncodeToString(h.Sum(nil)), nil
}

// Java returns the Java to run the broker with.
func Java(ctx context.Context) (string, error) {
	install := "install Java 17 or later, such as with apt-get install openjdk-17-jre-headless"
	java := "java"
	if home := os.Getenv("JAVA_HOME"); home != "" {
		java = filepath.Join(home, "bin", "java")
	}
	path, err := exec.LookPath(java)
	if err != nil {
		return "", &UnavailableError{Reason: "Java is not there to run Apache Kafka", Install: install}
	}
	ctx, cancel := context.WithTimeout(ctx, 30*time.Second)
	defer cancel()
	out, err := exec.CommandContext(ctx, path, "-version").CombinedOutput()
	if err != nil {
		return "", &UnavailableError{Reason: fmt.Sprintf("%s does not run (%v)", path, err), Install: install}
	}
	if major := javaMajor(out); major < 17 {
		line, _, _ := bytes.Cut(out, []byte("\n"))
		return "", &UnavailableError{Reason: fmt.Sprintf("%s is too old for Apache Kafka %s (%s)", path, Version, line), Install: install}
	}
	return path, nil
}

// javaMajor reads "17" out of `openjdk version "17.0.15" 2025-04-15`; 0 if it is not there.
func javaMajor(out []byte) int {
	_, rest, ok := bytes.Cut(out, []byte(`version "`))
	if !ok {
		return 0
	}
	major := 0
	for _, c := range rest {
		if c < '0' || c > '9' {
			break
		}
		major = major*10 + int(c-'0')
	}
	return major
}
