package parts

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"time"

	"github.com/gofrs/flock"
)

// CacheVariable names the folder for downloads; unset means the user's cache folder.
const CacheVariable = "SKEIN_CACHE"

// ErrChecksum means that a file does not have the checksum that was checked in. It is never a reason to skip a test.
var ErrChecksum = errors.New("checksum differs")

// UnavailableError means that this machine lacks a part. It names the reason and what to install.
type UnavailableError struct {
	Reason  string
	Install string
}

// Error implements error.
func (e *UnavailableError) Error() string { return e.Reason + ": " + e.Install }

// CacheDir returns the folder for downloads. The folder may not exist yet.
func CacheDir() (string, error) {
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
	return dir, nil
}

// cached returns a folder of the cache. Its name includes a hash of contents, so other contents get another folder. If
// good does not accept the folder, fill makes it. Processes may call it concurrently; they wait for each other.
func cached(ctx context.Context, name string, contents []byte, good func(dir string) error, fill func(dir string) error) (string, error) {
	cache, err := CacheDir()
	if err != nil {
		return "", err
	}
	if err := os.MkdirAll(cache, 0o755); err != nil {
		return "", fmt.Errorf("making cache folder: %w", err)
	}
	sum := sha256.Sum256(contents)
	dir := filepath.Join(cache, name+"-"+hex.EncodeToString(sum[:6]))
	lock := flock.New(dir + ".lock")
	if _, err := lock.TryLockContext(ctx, 100*time.Millisecond); err != nil {
		return "", fmt.Errorf("locking %s: %w", lock.Path(), err)
	}
	defer func() { _ = lock.Unlock() }() // the system releases it at the latest when the process ends
	if good(dir) == nil {
		return dir, nil
	}
	if err := os.RemoveAll(dir); err != nil {
		return "", fmt.Errorf("replacing %s: %w", dir, err)
	}
	if err := fill(dir); err != nil {
		return "", errors.Join(err, os.RemoveAll(dir))
	}
	if err := good(dir); err != nil {
		return "", errors.Join(err, os.RemoveAll(dir))
	}
	return dir, nil
}

// fetchTries is how often a fetch is tried, because registries sometimes answer 429 or 503.
const fetchTries = 3

// fetch runs a package manager until it succeeds, fetchTries are used up, or final reports that a retry cannot help. It
// returns the output and the error of the last try.
func fetch(ctx context.Context, final func(out []byte) bool, command string, args ...string) (out []byte, err error) {
	for try := 1; ; try++ {
		cmd := exec.CommandContext(ctx, command, args...)
		cmd.WaitDelay = 5 * time.Second
		if out, err = cmd.CombinedOutput(); err == nil || try == fetchTries || ctx.Err() != nil || final(out) {
			return out, err
		}
		select {
		case <-time.After(time.Duration(try) * 3 * time.Second):
		case <-ctx.Done():
		}
	}
}
