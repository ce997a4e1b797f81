package apache

import (
	_ "embed"
	"fmt"
	"os"
	"os/exec"
)

// watchdog is a process that ends the nodes and removes their data when its parent process ends, whether by return,
// panic, timeout or kill -9. It detects this by the end of its standard input.
type watchdog struct {
	cmd   *exec.Cmd
	alive *os.File
}

//go:embed watchdog.sh
var watchdogScript string

func startWatchdog(dir string) (*watchdog, error) {
	// The write end of an os.Pipe is closed on exec, so no other process that the test starts keeps it open.
	read, write, err := os.Pipe()
	if err != nil {
		return nil, fmt.Errorf("starting watchdog: %w", err)
	}
	defer func() { _ = read.Close() }() // the process has its own descriptor
	cmd := exec.Command("sh", "-c", watchdogScript, dir)
	cmd.Stdin = read
	cmd.SysProcAttr = detached()
	if err := cmd.Start(); err != nil {
		_ = write.Close() // nothing was written
		return nil, fmt.Errorf("starting watchdog: %w", err)
	}
	return &watchdog{cmd: cmd, alive: write}, nil
}

// close makes the watchdog clean up now and waits until it has ended.
func (w *watchdog) close() error {
	if err := w.alive.Close(); err != nil {
		return fmt.Errorf("ending watchdog: %w", err)
	}
	if err := w.cmd.Wait(); err != nil {
		return fmt.Errorf("ending watchdog: %w", err)
	}
	return nil
}
