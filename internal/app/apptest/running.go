package apptest

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"io"
	"net"
	"net/http"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/skeinhq/skein/internal/app"
	"github.com/skeinhq/skein/pkg/kafka/kafkatest"
)

// patience is how long a test waits for what must happen; the machine may be busy.
const patience = time.Minute

// Running is a stage's whole process, inside the test.
type Running struct {
	t     *testing.T
	log   lockedBuffer
	ended chan struct{}
	admin string
}

// Start runs one command line of a stage's binary until the test ends, which must be a clean end.
func Start(t *testing.T, s app.Stage, args ...string) *Running {
	t.Helper()
	r := &Running{t: t, ended: make(chan struct{})}
	ctx, cancel := context.WithCancel(context.Background())
	var err error
	go func() {
		defer close(r.ended)
		err = app.StageCommand(s)(ctx, append(args, "--admin-listen", "127.0.0.1:0"), strings.NewReader(""), io.Discard, &r.log)
	}()
	t.Cleanup(func() {
		cancel()
		<-r.ended
		if err != nil {
			t.Errorf("%s ended with %v", s.Name, err)
		}
		if t.Failed() {
			t.Logf("log of %s:\n%s", s.Name, r.log.String())
		}
	})
	r.admin = r.Said("starting", "admin")
	return r
}

// Said waits for a line of the log with a message and returns one of its values.
func (r *Running) Said(message, key string) string {
	r.t.Helper()
	var value string
	r.await("it logs "+message, func() (string, bool) {
		for lines := bufio.NewScanner(strings.NewReader(r.log.String())); lines.Scan(); {
			var line map[string]any
			if json.Unmarshal(lines.Bytes(), &line) == nil && line["msg"] == message {
				value, _ = line[key].(string)
				return "", true
			}
		}
		return "nothing yet", false
	})
	return value
}

// Ready waits until the process says that it can take work.
func (r *Running) Ready() {
	r.t.Helper()
	r.await("it is ready", func() (string, bool) {
		status, body := r.get("/readyz")
		return body, status == http.StatusOK
	})
}

// NotReady waits until the process says that it cannot take work, with all of the texts in its reason.
// It must be alive all the same.
func (r *Running) NotReady(texts ...string) {
	r.t.Helper()
	r.await("it is not ready for "+strings.Join(texts, ", "), func() (string, bool) {
		status, body := r.get("/readyz")
		has := status == http.StatusServiceUnavailable
		for _, text := range texts {
			has = has && strings.Contains(body, text)
		}
		return body, has
	})
	if status, body := r.get("/healthz"); status != http.StatusOK {
		r.t.Errorf("it is not alive: %d %s", status, body)
	}
}

func (r *Running) get(path string) (int, string) {
	r.t.Helper()
	req, err := http.NewRequestWithContext(r.t.Context(), http.MethodGet, "http://"+r.admin+path, nil)
	if err != nil {
		r.t.Fatal(err)
	}
	resp, err := (&http.Client{Transport: &http.Transport{DisableKeepAlives: true}}).Do(req)
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

func (r *Running) await(what string, ask func() (string, bool)) {
	r.t.Helper()
	deadline := time.NewTimer(patience)
	defer deadline.Stop()
	tick := time.NewTicker(20 * time.Millisecond)
	defer tick.Stop()
	for {
		answer, ok := ask()
		if ok {
			return
		}
		select {
		case <-r.ended:
			r.t.Fatalf("the process has ended, waiting for this: %s", what)
		case <-deadline.C:
			r.t.Fatalf("waited %v for this: %s; the last answer: %s", patience, what, answer)
		case <-tick.C:
		}
	}
}

// KafkaComesAndGoes takes a stage through bad weather: it starts while no broker answers, Kafka comes,
// goes and comes again, and all the while the process lives and its readiness tells the truth. args
// are the command line beside the brokers.
func KafkaComesAndGoes(t *testing.T, s app.Stage, args ...string) {
	t.Helper()
	dir := t.TempDir()
	port := freePort(t)
	r := Start(t, s, append(args, "--brokers", "127.0.0.1:"+strconv.Itoa(port))...)
	r.NotReady(`"status":"starting"`, `"kafka":"asking brokers from 127.0.0.1:`)
	start := func() *kafkatest.Cluster {
		return kafkatest.StartCluster(t, 2, kafkatest.WithDataDir(dir), kafkatest.WithPort(port))
	}
	c := start()
	r.Ready()
	c.Stop()
	r.NotReady(`"status":"not ready"`, `"kafka":"asking brokers from 127.0.0.1:`)
	start()
	r.Ready()
}

// freePort returns a port that was free a moment ago.
func freePort(t *testing.T) int {
	t.Helper()
	l, err := (&net.ListenConfig{}).Listen(t.Context(), "tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = l.Close() }() // it held the port
	return l.Addr().(*net.TCPAddr).Port
}

// lockedBuffer is written by a process and read by its test.
type lockedBuffer struct {
	mu sync.Mutex
	b  bytes.Buffer
}

// Write implements io.Writer.
func (l *lockedBuffer) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.b.Write(p)
}

// String returns what was written so far.
func (l *lockedBuffer) String() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.b.String()
}
