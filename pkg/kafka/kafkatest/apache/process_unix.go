//go:build unix

package apache

import (
	"fmt"
	"os"
	"syscall"
)

func supported() error { return nil }

// detached protects a process from the terminal's signals. Ctrl-C thus ends only the test, and the watchdog then ends
// the process.
func detached() *syscall.SysProcAttr { return &syscall.SysProcAttr{Setpgid: true} }

// exited reports whether a child process has ended, and reaps it. It does not wait and starts no goroutine, which a
// test for leaked goroutines would find.
func exited(p *os.Process) bool {
	var status syscall.WaitStatus
	pid, err := syscall.Wait4(p.Pid, &status, syscall.WNOHANG, nil)
	if err == syscall.EINTR {
		return exited(p)
	}
	return err != nil || pid == p.Pid
}

func (n *node) stop() error {
	// A process stopped by SIGSTOP would not react to SIGTERM.
	if err := n.resume(); err != nil {
		return err
	}
	return n.end(syscall.SIGTERM)
}

func (n *node) pause() error {
	if n.process == nil {
		return fmt.Errorf("pausing Kafka node %d: it is down", n.id)
	}
	if err := n.process.Signal(syscall.SIGSTOP); err != nil {
		return fmt.Errorf("pausing Kafka node %d: %w", n.id, err)
	}
	n.paused = true
	return nil
}

func (n *node) resume() error {
	if !n.paused {
		return nil
	}
	if err := n.process.Signal(syscall.SIGCONT); err != nil {
		return fmt.Errorf("resuming Kafka node %d: %w", n.id, err)
	}
	n.paused = false
	return nil
}
