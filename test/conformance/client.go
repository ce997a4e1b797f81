package conformance

import (
	"bufio"
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strconv"
	"strings"
	"sync"
	"testing"

	"pgregory.net/rapid"

	"github.com/skeinhq/skein/test/parts/partstest"
)

// minNode is the oldest Node release line that the client's packages run on.
const minNode = 20

// ErrNoClient says that the official client cannot be run here, and why.
var ErrNoClient = errors.New("the official AG-UI client is not at hand")

// Client is the official client in a Node process of its own. Its methods may be called by several
// goroutines; jobs are answered one after another.
type Client struct {
	mu   sync.Mutex
	in   io.WriteCloser
	out  *bufio.Reader
	next int
}

// Live returns the official client, one for all tests of a process. With -short, or where it is not at hand, it
// says so in the test's log and returns false; the test then goes by checked-in results. With CI=true, where it
// has to be at hand, the test fails.
func Live(tb testing.TB) (*Client, bool) {
	tb.Helper()
	if testing.Short() {
		partstest.Note(tb, "the official client")
		tb.Log("compared with: checked-in results (-short is set)")
		return nil, false
	}
	c, err := shared()
	switch {
	case err == nil:
		tb.Log("compared with: the official client, running")
		return c, true
	case errors.Is(err, ErrNoClient) && os.Getenv("CI") != "true":
		tb.Logf("compared with: checked-in results (%v)", err)
		return nil, false
	default:
		tb.Fatal(err)
		return nil, false
	}
}

// Need is Live for a test that has nothing to compare with where the client does not run: it skips the test then.
func Need(tb testing.TB) *Client {
	tb.Helper()
	c, ok := Live(tb)
	if !ok {
		tb.Skip("needs the running client; install Node 20 and run: make conformance-setup")
	}
	return c
}

// Play is Reduce for a test, which an error ends.
func (c *Client) Play(tb rapid.TB, jobs ...Job) []Result {
	tb.Helper()
	results, err := c.Reduce(jobs...)
	if err != nil {
		tb.Fatal(err)
	}
	return results
}

// shared is the client of this process. It ends with the process, which holds its input open.
var shared = sync.OnceValues(start)

// start starts the official client. The error is ErrNoClient where Node or the kit's packages are missing.
func start() (*Client, error) {
	dir, err := kitDir()
	if err != nil {
		return nil, err
	}
	node, err := findNode()
	if err != nil {
		return nil, err
	}
	if _, err := os.Stat(filepath.Join(dir, "node_modules", "@ag-ui", "client", "package.json")); err != nil {
		return nil, fmt.Errorf("%w: its packages are not installed; run: make conformance-setup", ErrNoClient)
	}
	c := &Client{}
	cmd := exec.Command(node, "reduce.mjs")
	cmd.Dir, cmd.Stderr = dir, os.Stderr
	if c.in, err = cmd.StdinPipe(); err != nil {
		return nil, fmt.Errorf("starting the official client: %w", err)
	}
	out, err := cmd.StdoutPipe()
	if err != nil {
		return nil, fmt.Errorf("starting the official client: %w", err)
	}
	c.out = bufio.NewReaderSize(out, 1<<20)
	if err := cmd.Start(); err != nil {
		return nil, fmt.Errorf("starting the official client: %w", err)
	}
	return c, nil
}

// Reduce has the client fold every job, and returns the results in the order of the jobs.
func (c *Client) Reduce(jobs ...Job) ([]Result, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	first := c.next
	lines, err := encodeJobs(first, jobs) // before anything is sent, or the answers would be waited for in vain
	if err != nil {
		return nil, err
	}
	c.next += len(jobs)

	// The pipes are small: jobs are written while results are read, or both sides would wait.
	written := make(chan error, 1)
	go func() {
		_, err := c.in.Write(lines)
		if err != nil {
			err = fmt.Errorf("sending streams to the client: %w", err)
		}
		written <- err
	}()
	results := make([]Result, len(jobs))
	for i := range jobs {
		if err := c.receive(first+i, &results[i]); err != nil {
			return nil, fmt.Errorf("folding stream %d of %d: %w", i+1, len(jobs), err)
		}
	}
	return results, <-written
}

func encodeJobs(first int, jobs []Job) ([]byte, error) {
	var lines bytes.Buffer
	enc := json.NewEncoder(&lines) // compacts, so that a job is one line
	enc.SetEscapeHTML(false)
	for i, j := range jobs {
		if j.Events == nil {
			j.Events = []json.RawMessage{}
		}
		err := enc.Encode(struct {
			ID int `json:"id"`
			Job
		}{first + i, j})
		if err != nil {
			return nil, fmt.Errorf("encoding stream %d of %d: %w", i+1, len(jobs), err)
		}
	}
	return lines.Bytes(), nil
}

func (c *Client) receive(id int, r *Result) error {
	line, err := c.out.ReadBytes('\n')
	if err != nil {
		return fmt.Errorf("reading the client's answer: %w", err)
	}
	answer := struct {
		ID      int    `json:"id"`
		Failure string `json:"failure"`
		*Result
	}{Result: r}
	if err := json.Unmarshal(line, &answer); err != nil {
		return fmt.Errorf("decoding the client's answer: %w", err)
	}
	if answer.Failure != "" {
		return fmt.Errorf("the kit failed: %s", answer.Failure)
	}
	if answer.ID != id {
		return fmt.Errorf("the client answered job %d, not %d", answer.ID, id)
	}
	return nil
}

func findNode() (string, error) {
	node, err := exec.LookPath("node")
	if err != nil {
		return "", fmt.Errorf("%w: there is no node on the path", ErrNoClient)
	}
	out, err := exec.Command(node, "--version").Output()
	if err != nil {
		return "", fmt.Errorf("asking node for its version: %w", err)
	}
	version := strings.TrimSpace(string(out))
	major, _, _ := strings.Cut(strings.TrimPrefix(version, "v"), ".")
	if n, err := strconv.Atoi(major); err != nil || n < minNode {
		return "", fmt.Errorf("%w: node is %s, and %d or later is needed", ErrNoClient, version, minNode)
	}
	return node, nil
}

// kitDir is the folder of this file: the kit is run from the source tree that the test was built from.
func kitDir() (string, error) {
	_, file, _, ok := runtime.Caller(0)
	if !ok {
		return "", errors.New("finding the conformance kit: the binary has no file names")
	}
	return filepath.Dir(file), nil
}
