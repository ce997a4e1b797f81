package e2e_test

import (
	"bufio"
	"bytes"
	"encoding/json"
	"io"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"
	"time"
)

// patience is how long the test waits for anything that must happen; the machine may be busy.
const patience = 3 * time.Minute

// process is a running stage.
type process struct {
	t    *testing.T
	name string
	cmd  *exec.Cmd
	log  string
	// ended is closed when the process is gone.
	ended chan struct{}
	// expected is true once the test has ended it.
	expected atomic.Bool
}

// launch starts a command. Its log goes to a file, whose end is shown if the test fails.
func launch(t *testing.T, dir, name string, args ...string) *process {
	t.Helper()
	bin, err := binaries()
	if err != nil {
		t.Fatal(err)
	}
	log, err := os.CreateTemp(dir, name+"-*.log")
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = log.Close() }() // the process has its own
	p := &process{t: t, name: name, log: log.Name(), ended: make(chan struct{})}
	p.cmd = exec.Command(filepath.Join(bin, name), args...)
	p.cmd.Env = environment()
	p.cmd.Stdout, p.cmd.Stderr = log, log
	p.cmd.SysProcAttr = endsWithParent()
	if err := p.cmd.Start(); err != nil {
		t.Fatal(err)
	}
	go func() {
		defer close(p.ended)
		_ = p.cmd.Wait() // how it ended is read from its state
	}()
	t.Cleanup(func() {
		p.end(os.Kill)
		if t.Failed() {
			t.Logf("the end of %s's log:\n%s", name, p.tail())
		}
	})
	return p
}

// environment is the test's own without settings of Skein, which would be the stages' settings too.
func environment() []string {
	var out []string
	for _, v := range os.Environ() {
		if !strings.HasPrefix(v, "SKEIN_") {
			out = append(out, v)
		}
	}
	return out
}

// end sends a signal and waits until the process is gone.
func (p *process) end(sig os.Signal) {
	p.expected.Store(true)
	select {
	case <-p.ended:
		return
	default:
	}
	_ = p.cmd.Process.Signal(sig) // it may just have ended
	select {
	case <-p.ended:
	case <-time.After(patience):
		_ = p.cmd.Process.Kill() // no more can be done
		p.t.Errorf("%s did not end on %v", p.name, sig)
	}
}

// stop ends the process as an orchestrator does, and wants it to say that all is well.
func (p *process) stop() {
	p.t.Helper()
	p.end(syscall.SIGTERM)
	if code := p.cmd.ProcessState.ExitCode(); code != 0 {
		p.t.Errorf("%s ended with exit code %d on SIGTERM", p.name, code)
	}
}

func (p *process) tail() string {
	log, err := os.ReadFile(p.log)
	if err != nil {
		return err.Error()
	}
	return string(log[max(0, len(log)-4<<10):])
}

// said waits for a line of the JSON log with a message and returns one of its values.
func (p *process) said(message, key string) string {
	p.t.Helper()
	return eventually(p.t, p.name+" logs "+message, func() (string, bool) {
		log, err := os.ReadFile(p.log)
		if err != nil {
			p.t.Fatal(err)
		}
		for lines := bufio.NewScanner(bytes.NewReader(log)); lines.Scan(); {
			var line map[string]any
			if json.Unmarshal(lines.Bytes(), &line) != nil || line["msg"] != message {
				continue
			}
			value, _ := line[key].(string)
			return value, true
		}
		select {
		case <-p.ended:
			p.t.Fatalf("%s has ended", p.name)
		default:
		}
		return "", false
	})
}

// awaitReady waits until the stage says that it can take work, and returns the address of its
// administration.
func (p *process) awaitReady() string {
	p.t.Helper()
	admin := "http://" + p.said("started", "admin")
	eventually(p.t, p.name+" is ready", func() (string, bool) {
		status, body := get(p.t, admin+"/readyz")
		return body, status == http.StatusOK
	})
	return admin
}

// get answers with status 0 where there is no answer.
func get(t *testing.T, url string) (int, string) {
	t.Helper()
	req, err := http.NewRequestWithContext(t.Context(), http.MethodGet, url, nil)
	if err != nil {
		t.Fatal(err)
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

// eventually asks until it gets a yes.
func eventually[T any](t *testing.T, what string, ask func() (T, bool)) T {
	t.Helper()
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
			t.Fatalf("waited %v for this: %s; the last answer: %v", patience, what, answer)
		}
	}
}
