package process

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"
)

// Patience is how long is waited for anything that must happen; the machine may be busy.
const Patience = 3 * time.Minute

// Process is a running command.
type Process struct {
	// Name is the command's.
	Name string
	// Ended is closed when the process is gone.
	Ended <-chan struct{}

	tb  testing.TB
	cmd *exec.Cmd
	log string
}

// Start starts a command. Its log goes to a file in dir, whose end is shown if the test fails.
func Start(tb testing.TB, dir, path string, args ...string) (*Process, error) {
	tb.Helper()
	return StartWith(tb, nil, dir, path, args...)
}

// StartWith is Start with more variables, NAME=VALUE, in the command's environment.
func StartWith(tb testing.TB, environ []string, dir, path string, args ...string) (*Process, error) {
	name := filepath.Base(path)
	log, err := os.CreateTemp(dir, name+"-*.log")
	if err != nil {
		return nil, fmt.Errorf("starting %s: %w", name, err)
	}
	defer func() { _ = log.Close() }() // the process has its own
	ended := make(chan struct{})
	p := &Process{tb: tb, Name: name, log: log.Name(), Ended: ended}
	p.cmd = exec.Command(path, args...)
	p.cmd.Env = append(Environment(), environ...)
	p.cmd.Stdout, p.cmd.Stderr = log, log
	p.cmd.SysProcAttr = endsWithParent()
	if err := p.cmd.Start(); err != nil {
		return nil, fmt.Errorf("starting %s: %w", name, err)
	}
	go func() {
		defer close(ended)
		_ = p.cmd.Wait() // how it ended is read from its state
	}()
	tb.Cleanup(func() {
		p.End(os.Kill)
		if tb.Failed() {
			tb.Logf("the end of %s's log:\n%s", name, p.Tail())
		}
	})
	return p, nil
}

// Environment is the test's own without settings of Skein, which would be the commands' settings too.
func Environment() []string {
	var out []string
	for _, v := range os.Environ() {
		if !strings.HasPrefix(v, "SKEIN_") {
			out = append(out, v)
		}
	}
	return out
}

// End sends a signal and waits until the process is gone.
func (p *Process) End(sig os.Signal) {
	select {
	case <-p.Ended:
		return
	default:
	}
	_ = p.cmd.Process.Signal(sig) // it may just have ended
	select {
	case <-p.Ended:
	case <-time.After(Patience):
		_ = p.cmd.Process.Kill() // no more can be done
		p.tb.Errorf("%s did not end on %v", p.Name, sig)
	}
}

// Stop ends the process as an orchestrator does, and wants it to say that all is well.
func (p *Process) Stop() {
	p.tb.Helper()
	p.End(syscall.SIGTERM)
	if code := p.ExitCode(); code != 0 {
		p.tb.Errorf("%s ended with exit code %d on SIGTERM", p.Name, code)
	}
}

// ExitCode is that of a process that has ended, -1 if a signal ended it.
func (p *Process) ExitCode() int {
	<-p.Ended
	return p.cmd.ProcessState.ExitCode()
}

// PeakMemory is the most memory that the process has had resident, in bytes, as Linux counts it. The process must be running.
func (p *Process) PeakMemory() (int64, error) { return p.memory("VmHWM:") }

// Memory is what the process has resident now, in bytes.
func (p *Process) Memory() (int64, error) { return p.memory("VmRSS:") }

func (p *Process) memory(of string) (int64, error) {
	n, err := MemoryOf(p.cmd.Process.Pid, of)
	if err != nil {
		return 0, fmt.Errorf("reading the memory of %s: %w", p.Name, err)
	}
	return n, nil
}

// MemoryOf returns a line of what Linux says of a process, such as "VmRSS:", in bytes.
func MemoryOf(pid int, of string) (int64, error) {
	status, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", pid))
	if err != nil {
		return 0, err
	}
	for line := range strings.Lines(string(status)) {
		if value, ok := strings.CutPrefix(line, of); ok {
			kib, err := strconv.ParseInt(strings.TrimSpace(strings.TrimSuffix(strings.TrimSpace(value), "kB")), 10, 64)
			return kib << 10, err
		}
	}
	return 0, fmt.Errorf("process %d has no %s: has it ended?", pid, of)
}

// ProcessorTime is what the process has used of the processors so far, as Linux counts it. The process must be running.
func (p *Process) ProcessorTime() (time.Duration, error) {
	used, err := ProcessorTimeOf(p.cmd.Process.Pid)
	if err != nil {
		return 0, fmt.Errorf("reading the processor time of %s: %w", p.Name, err)
	}
	return used, nil
}

// ProcessorTimeOf is ProcessorTime of any process that is running.
func ProcessorTimeOf(pid int) (used time.Duration, err error) {
	stat, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	if err != nil {
		return 0, err
	}
	// After the name, which may hold anything: utime and stime are fields 14 and 15, in hundredths of a second.
	fields := strings.Fields(string(stat[bytes.LastIndexByte(stat, ')')+1:]))
	for _, ticks := range fields[11:13] {
		n, err := strconv.Atoi(ticks)
		if err != nil {
			return 0, err
		}
		used += time.Duration(n) * 10 * time.Millisecond
	}
	return used, nil
}

// CPU is the processor time of a process that has ended.
func (p *Process) CPU() time.Duration {
	<-p.Ended
	return p.cmd.ProcessState.UserTime() + p.cmd.ProcessState.SystemTime()
}

// PID is the process's id.
func (p *Process) PID() int { return p.cmd.Process.Pid }

// Tail is the end of the process's log.
func (p *Process) Tail() string {
	log, err := os.ReadFile(p.log)
	if err != nil {
		return err.Error()
	}
	return string(log[max(0, len(log)-4<<10):])
}

// Signal sends a signal and does not wait for what it does.
func (p *Process) Signal(sig os.Signal) error {
	if err := p.cmd.Process.Signal(sig); err != nil {
		return fmt.Errorf("sending %v to %s: %w", sig, p.Name, err)
	}
	return nil
}

// Logged looks for the first line of the JSON log with a message and returns one of its values.
func (p *Process) Logged(message, key string) (string, bool) {
	log, err := os.ReadFile(p.log)
	if err != nil {
		return err.Error(), false
	}
	for line := range bytes.Lines(log) {
		var members map[string]any
		if json.Unmarshal(line, &members) != nil || members["msg"] != message {
			continue
		}
		value, _ := members[key].(string)
		return value, true
	}
	return "", false
}

// CountLogged counts the lines of the JSON log with a message.
func (p *Process) CountLogged(message string) int {
	p.tb.Helper()
	log, err := os.ReadFile(p.log)
	if err != nil {
		p.tb.Fatal(err)
	}
	return bytes.Count(log, []byte(`"msg":"`+message+`"`))
}

// Said waits for a line of the JSON log with a message and returns one of its values.
func (p *Process) Said(message, key string) string {
	p.tb.Helper()
	return Eventually(p.tb, p.Name+" logs "+message, func() (string, bool) {
		value, ok := p.Logged(message, key)
		select {
		case <-p.Ended:
			p.tb.Fatalf("%s has ended", p.Name)
		default:
		}
		return value, ok
	})
}

// AwaitReady waits until the stage says that it can take work, and returns the address of its
// administration.
func (p *Process) AwaitReady() string {
	p.tb.Helper()
	admin := "http://" + p.Said("started", "admin")
	Eventually(p.tb, p.Name+" is ready", func() (string, bool) {
		status, body := Get(p.tb, admin+"/readyz")
		return body, status == http.StatusOK
	})
	return admin
}

// Get answers with status 0 where there is no answer.
func Get(tb testing.TB, url string) (int, string) {
	tb.Helper()
	req, err := http.NewRequestWithContext(tb.Context(), http.MethodGet, url, nil)
	if err != nil {
		tb.Fatal(err)
	}
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		return 0, err.Error()
	}
	defer func() { _ = resp.Body.Close() }() // only read
	body, err := io.ReadAll(resp.Body)
	if err != nil {
		return 0, err.Error()
	}
	return resp.StatusCode, string(body)
}

// Eventually asks until it gets a yes.
func Eventually[T any](tb testing.TB, what string, ask func() (T, bool)) T {
	tb.Helper()
	return EventuallyWithin(tb, Patience, what, ask)
}

// EventuallyWithin is Eventually for what may take longer, or must not take as long.
func EventuallyWithin[T any](tb testing.TB, patience time.Duration, what string, ask func() (T, bool)) T {
	tb.Helper()
	deadline := time.NewTimer(patience)
	defer deadline.Stop()
	tick := time.NewTicker(50 * time.Millisecond)
	defer tick.Stop()
	for {
		answer, ok := ask()
		if ok {
			return answer
		}
		select {
		case <-tick.C:
		case <-deadline.C:
			tb.Fatalf("waited %v for this: %s; the last answer: %v", patience, what, answer)
		}
	}
}
