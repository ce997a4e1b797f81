package apache

import (
	"context"
	"errors"
	"io"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/skeinhq/skein/internal/parts"
	"github.com/skeinhq/skein/internal/parts/partstest"
)

// childVariable makes this test binary the process that starts a cluster and is killed.
const childVariable = "SKEIN_TEST_APACHE_CHILD"

// startOne starts one node, or skips the test where this machine cannot.
func startOne(t *testing.T) *Cluster {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 5*time.Minute)
	defer cancel()
	c, err := Start(ctx, Options{Nodes: 1, Heap: "256m"})
	var missing *parts.UnavailableError
	if errors.As(err, &missing) && os.Getenv("CI") != "true" {
		t.Skipf("SKIP: %v", err)
	}
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := c.Close(); err != nil {
			t.Error(err)
		}
	})
	return c
}

func answers(address string) bool {
	conn, err := net.DialTimeout("tcp", address, time.Second)
	if err != nil {
		return false
	}
	_ = conn.Close()
	return true
}

func TestCluster_NodesComeAndGo(t *testing.T) {
	partstest.SkipShort(t, "a real Kafka")
	if os.Getenv(childVariable) != "" {
		t.Skip("this process is for TestCluster_EndsWithItsProcess")
	}
	c := startOne(t)
	address, pid := c.Brokers()[0], c.nodes[0].process.Pid
	if !answers(address) {
		t.Fatal("a node that has started does not answer")
	}
	if err := errors.Join(c.Pause(1), c.Resume(1), c.Kill(1), c.Kill(1)); err != nil {
		t.Fatal(err)
	}
	if answers(address) {
		t.Fatal("a killed node answers")
	}
	if err := c.Up(t.Context(), 1); err != nil {
		t.Fatal(err)
	}
	if !answers(address) || c.nodes[0].process.Pid == pid {
		t.Fatal("a node that was brought up again does not answer at its old address")
	}
	if err := c.Pause(1); err != nil {
		t.Fatal(err)
	}
	if err := c.Stop(1); err != nil {
		t.Fatal(err)
	}
	if c.Kill(2) == nil || c.Up(t.Context(), 0) == nil {
		t.Error("nodes that do not exist can be killed and started")
	}
	if err := c.Up(t.Context(), 1); err != nil {
		t.Fatal(err)
	}
	if !answers(address) {
		t.Fatal("the node is down after Up")
	}
	if err := errors.Join(c.Close(), c.Close()); err != nil {
		t.Fatal(err)
	}
	if _, err := os.Stat(c.dir); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("data is left behind: %v", err)
	}
}

// However the process ends, nothing of the cluster outlives it.
func TestCluster_EndsWithItsProcess(t *testing.T) {
	partstest.SkipShort(t, "a real Kafka")
	if os.Getenv(childVariable) != "" {
		c := startOne(t)
		// The parent reads what comes after the colon.
		if _, err := os.Stdout.WriteString("\nstarted:" + c.dir + ":" + c.Brokers()[0] + "\n"); err != nil {
			t.Fatal(err)
		}
		_, _ = io.Copy(io.Discard, os.Stdin) // until it is killed
		return
	}
	cmd := exec.CommandContext(t.Context(), os.Args[0], "-test.run=^TestCluster_EndsWithItsProcess$", "-test.v")
	cmd.Env = append(os.Environ(), childVariable+"=1")
	in, err := cmd.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = in.Close() }() // nothing is written
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	var said strings.Builder
	var dir, address string
	for buf := make([]byte, 1024); ; {
		n, err := out.Read(buf)
		said.Write(buf[:n])
		if _, rest, ok := strings.Cut(said.String(), "\nstarted:"); ok && strings.Contains(rest, "\n") {
			line, _, _ := strings.Cut(rest, "\n")
			dir, address, _ = strings.Cut(line, ":")
			break
		}
		if err != nil {
			_ = cmd.Wait() // what it has said tells more
			if strings.Contains(said.String(), "SKIP") {
				t.Skip(said.String())
			}
			t.Fatal(said.String())
		}
	}
	if !answers(address) {
		t.Fatal("the cluster does not answer")
	}
	if err := cmd.Process.Kill(); err != nil {
		t.Fatal(err)
	}
	_ = cmd.Wait() // killed
	deadline := time.Now().Add(20 * time.Second)
	tick := time.NewTicker(50 * time.Millisecond)
	defer tick.Stop()
	for {
		_, err := os.Stat(dir)
		if errors.Is(err, os.ErrNotExist) && !answers(address) {
			break
		}
		if time.Now().After(deadline) {
			left, _ := filepath.Glob(filepath.Join(dir, "*"))
			t.Fatalf("20 s after its process was killed the cluster answers: %v; left of it: %v", answers(address), left)
		}
		<-tick.C
	}
}
