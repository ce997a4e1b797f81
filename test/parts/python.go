package parts

import (
	"bytes"
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
)

// Python describes a virtual environment with the packages of a lock file.
type Python struct {
	// Name identifies the environment in the folder's name and in messages.
	Name string
	// Requirements is the lock file: each package with its version and the hashes of its wheels.
	Requirements []byte
}

// pythonMarker is a file that is written into an environment when it is complete.
const pythonMarker = "complete"

// Interpreter returns the Python of the environment. If the cache lacks the environment, Interpreter makes it, and pip
// installs the packages: only wheels, each with one of the pinned hashes.
func (p Python) Interpreter(ctx context.Context) (string, error) {
	python, err := exec.LookPath("python3")
	if err != nil {
		return "", &UnavailableError{Reason: "python3 is not there to run " + p.Name, Install: "install it, such as with apt-get install python3 python3-venv"}
	}
	// An environment depends on its interpreter and cannot be moved.
	version, err := exec.CommandContext(ctx, python, "-c", "import sys; print(sys.version, sys.prefix)").Output()
	if err != nil {
		return "", &UnavailableError{Reason: fmt.Sprintf("%s does not run (%v)", python, err), Install: "install python3"}
	}
	dir, err := cached(ctx, p.Name, append(version, p.Requirements...), func(dir string) error {
		if _, err := os.Stat(filepath.Join(dir, pythonMarker)); err != nil {
			return err
		}
		return exec.CommandContext(ctx, interpreter(dir), "-c", "").Run() // fails if the interpreter that made it was removed
	}, func(dir string) error { return p.install(ctx, python, dir) })
	if err != nil {
		return "", err
	}
	return interpreter(dir), nil
}

func interpreter(dir string) string { return filepath.Join(dir, "bin", "python") }

func (p Python) install(ctx context.Context, python, dir string) error {
	if out, err := exec.CommandContext(ctx, python, "-m", "venv", dir).CombinedOutput(); err != nil {
		return &UnavailableError{
			Reason:  fmt.Sprintf("%s makes no virtual environment (%v: %s)", python, err, lastLine(out)),
			Install: "install what it lacks, such as with apt-get install python3-venv",
		}
	}
	lock := filepath.Join(dir, "requirements.txt")
	if err := os.WriteFile(lock, p.Requirements, 0o600); err != nil {
		return fmt.Errorf("installing %s: %w", p.Name, err)
	}
	differs := func(out []byte) bool { return bytes.Contains(out, []byte("DO NOT MATCH THE HASHES")) }
	out, err := fetch(ctx, differs, interpreter(dir), "-m", "pip", "install", "--quiet", "--disable-pip-version-check", "--no-input",
		"--require-hashes", "--only-binary", ":all:", "--requirement", lock)
	if err != nil && differs(out) {
		return fmt.Errorf("installing %s: %w: %s", p.Name, ErrChecksum, out)
	}
	if err != nil {
		return &UnavailableError{
			Reason:  fmt.Sprintf("pip could not install %s (%v: %s)", p.Name, err, lastLine(out)),
			Install: "see that pip reaches PyPI, and that there are wheels for this machine; what it installed once is used without a network",
		}
	}
	return os.WriteFile(filepath.Join(dir, pythonMarker), nil, 0o600)
}

// lastLine returns the last line of the output, in which Python names the error.
func lastLine(out []byte) string {
	lines := strings.Split(strings.TrimSpace(string(out)), "\n")
	return lines[len(lines)-1]
}
