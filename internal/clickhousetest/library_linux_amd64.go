package clickhousetest

import (
	"archive/tar"
	"compress/gzip"
	"context"
	"crypto/sha512"
	"encoding/base64"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"time"

	"github.com/gofrs/flock"

	"github.com/skeinhq/skein/test/parts"
)

// The engine's package, and the hash of it as package managers write it; libraryVersion is beside Version.
const (
	libraryPackage   = "@chdb/lib-linux-x64-gnu"
	libraryIntegrity = "sha512-XP97mMqnc5tZpKQywR8N7cLTsHNiTmHr30pC5mzo3jWmukjKn2IBa60c2B/gWUNcuFjOMjWoorQICCqBVj5wpw=="
	libraryFile      = "package/libchdb.so"
	librarySize      = 566330096
)

// downloadTimeout bounds the download of some 180 MB, the wait for another process's included.
const downloadTimeout = 8 * time.Minute

// Library returns the path of the engine's library, downloading it where it is not there yet. Test
// processes that run at the same time wait for the one that downloads.
func Library(ctx context.Context) (string, error) {
	cache, err := parts.CacheDir()
	if err != nil {
		return "", err
	}
	dir := filepath.Join(cache, "chdb-"+libraryVersion)
	path := filepath.Join(dir, "libchdb.so")
	if complete(path) {
		return path, nil
	}
	npm, err := exec.LookPath("npm")
	if err != nil {
		return "", none("npm is not installed, which brings the ClickHouse engine (%s)", libraryPackage)
	}
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return "", fmt.Errorf("making the cache folder: %w", err)
	}
	ctx, cancel := context.WithTimeout(ctx, downloadTimeout)
	defer cancel()
	lock := flock.New(filepath.Join(dir, "lock"))
	if _, err := lock.TryLockContext(ctx, 100*time.Millisecond); err != nil {
		return "", fmt.Errorf("waiting for another download of %s: %w", libraryPackage, err)
	}
	defer func() { _ = lock.Close() }() // the lock ends with the file
	if complete(path) {
		return path, nil
	}
	if err := download(ctx, npm, dir, path); err != nil {
		return "", err
	}
	return path, nil
}

// complete reports whether the library is there. It gets its name only when it is whole; the size is
// a check against a full disk at that moment.
func complete(path string) bool {
	st, err := os.Stat(path)
	return err == nil && st.Size() == librarySize
}

func download(ctx context.Context, npm, dir, path string) (err error) {
	tmp, err := os.MkdirTemp(dir, "download-")
	if err != nil {
		return fmt.Errorf("making a download folder: %w", err)
	}
	defer func() { err = errors.Join(err, os.RemoveAll(tmp)) }()
	// A cache of its own: the user's would keep 180 MB that are never asked for again.
	cmd := exec.CommandContext(ctx, npm, "pack", libraryPackage+"@"+libraryVersion, "--silent",
		"--pack-destination", tmp, "--cache", filepath.Join(tmp, "cache"))
	cmd.Dir = tmp
	if out, err := cmd.CombinedOutput(); err != nil {
		return none("npm pack %s@%s did not work (%v: %s)", libraryPackage, libraryVersion, err, strings.TrimSpace(string(out)))
	}
	packages, err := filepath.Glob(filepath.Join(tmp, "*.tgz"))
	if err != nil || len(packages) != 1 {
		return fmt.Errorf("looking for what npm packed: found %d files, error %w", len(packages), err)
	}
	if err := verify(packages[0]); err != nil {
		return err
	}
	part := filepath.Join(tmp, "libchdb.so")
	if err := extract(packages[0], part); err != nil {
		return fmt.Errorf("extracting %s: %w", libraryFile, err)
	}
	return os.Rename(part, path)
}

// verify compares a package with the pinned hash.
func verify(path string) error {
	f, err := os.Open(path)
	if err != nil {
		return fmt.Errorf("verifying the download: %w", err)
	}
	defer func() { _ = f.Close() }() // only read
	h := sha512.New()
	if _, err := io.Copy(h, f); err != nil {
		return fmt.Errorf("verifying the download: %w", err)
	}
	if got := "sha512-" + base64.StdEncoding.EncodeToString(h.Sum(nil)); got != libraryIntegrity {
		return fmt.Errorf("verifying %s@%s: its hash is %s, want %s", libraryPackage, libraryVersion, got, libraryIntegrity)
	}
	return nil
}

// extract writes the library out of the package.
func extract(from, to string) (err error) {
	f, err := os.Open(from)
	if err != nil {
		return err
	}
	defer func() { _ = f.Close() }() // only read
	gz, err := gzip.NewReader(f)
	if err != nil {
		return err
	}
	t := tar.NewReader(gz)
	for {
		h, err := t.Next()
		if err != nil {
			return err // io.EOF: it is not in the package
		}
		if h.Name == libraryFile {
			break
		}
	}
	out, err := os.Create(to)
	if err != nil {
		return err
	}
	_, err = io.Copy(out, t)
	return errors.Join(err, out.Sync(), out.Close())
}
