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

// CacheVariable names a folder to keep downloads in, in place of the user's cache folder.
const CacheVariable = "SKEIN_CACHE"

// ErrChecksum says that a file is not the one whose checksum was checked in. It is never a reason to skip a test.
var ErrChecksum = errors.New("checksum differs")

// UnavailableError says that this machine has no such part, and what would change that.
type UnavailableError struct {
	Reason  string
	Install string
}

// Error implements error.
func (e *UnavailableError) Error() string { return e.Reason + ": " + e.Install }

// CacheDir returns the folder that downloads stay in. It may not be there yet.
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

// cached returns a folder of the cache, named after what makes its contents: other contents are another folder. Fill makes
// the folder where good does not accept it. Any number of processes may call it at a time; they wait for one another.
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
	defer func() { _ = lock.Unlock() }() // the lock ends with the process at the latest
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

// fetchTries is how often a registry is asked: they answer 429 and 503 now and then.
const fetchTries = 3

// fetch runs a package manager until it succeeds, or says what no other try changes, and returns the error and the output of its
// last try.
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
