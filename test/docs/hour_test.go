package docs

import (
	"context"
	"flag"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/skeinhq/skein/internal/logtest"
)

var (
	hour      = flag.Bool("hour", false, "do a newcomer's first hour: needs a network, ports 8420, 8492 and 8000, and some minutes")
	hourTests = flag.Bool("hour.tests", false, "run make test there as well")
)

// newcomers are the documents of the first hour, in the order in which they name one another.
var newcomers = []string{
	"README.md", "docs/connect.md", "docs/agents.md", "docs/producing.md", "docs/live.md", "docs/stepping.md", "docs/search.md",
	"docs/lint.md", "docs/page.md",
}

// system is what the smallest Unix has beside the Go, make, git and curl that README asks for: no C compiler, Node, Java, Python or diff.
var system = []string{
	"sh", "bash", "env", "cat", "cut", "date", "echo", "expand", "grep", "head", "ls", "mkdir", "mktemp", "mv", "od", "rm", "sed", "sha256sum",
	"sleep", "sort",
	"tail", "touch", "tr", "uname", "wc",
}

// fence is a block of code with its language.
var fence = regexp.MustCompile("(?ms)^```(\\w+)\n(.*?)^```$")

// TestFirstHour does what a newcomer does, on a clean clone with an empty HOME and only Go, make, git and curl in PATH: make run, then
// every shell block of README and the guides, in order, pasted as it stands, and make test with -hour.tests. The transcript is left in
// .cache/first-hour.txt.
func TestFirstHour(t *testing.T) {
	if !*hour {
		t.Skip("make first-hour does it")
	}
	dir := t.TempDir()
	n := &newcomer{clone: filepath.Join(dir, "skein"), transcript: &logtest.Log{}}
	bin, home := filepath.Join(dir, "bin"), filepath.Join(dir, "home")
	for _, folder := range []string{bin, home} {
		if err := os.Mkdir(folder, 0o755); err != nil {
			t.Fatal(err)
		}
	}
	for _, name := range slices.Concat([]string{"go", "make", "git", "curl"}, system) {
		path, err := exec.LookPath(name)
		if err != nil {
			t.Fatal(err)
		}
		if err := os.Symlink(path, filepath.Join(bin, name)); err != nil {
			t.Fatal(err)
		}
	}
	n.environ = []string{"PATH=" + bin, "HOME=" + home, "TMPDIR=" + dir, "TERM=dumb"}
	for _, name := range []string{"GOPROXY", "GOSUMDB", "GOTOOLCHAIN", "GOFLAGS"} { // how this machine reaches modules
		if value, ok := os.LookupEnv(name); ok {
			n.environ = append(n.environ, name+"="+value)
		}
	}
	// Modules in an empty HOME are read-only, which t.TempDir does not remove.
	t.Cleanup(func() {
		if out, err := n.run(context.Background(), dir, "go clean -modcache"); err != nil {
			t.Errorf("%v: %s", err, out)
		}
		if err := os.WriteFile(filepath.Join(root, ".cache", "first-hour.txt"), []byte(n.transcript.String()), 0o600); err != nil {
			t.Error(err)
		}
	})

	began := time.Now()
	if out, err := n.run(t.Context(), dir, "git clone -q "+absolute(t, root)+" skein"); err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	demo := n.start(t, "make run")
	demo.waitFor(t, "Try, in another terminal:", 20*time.Minute)
	t.Logf("%v from the clone to the picture", time.Since(began).Round(time.Second))

	var tried int
	for _, file := range newcomers {
		text, err := os.ReadFile(filepath.Join(n.clone, file))
		if err != nil {
			t.Fatal(err)
		}
		for _, found := range fence.FindAllStringSubmatch(string(text), -1) {
			language, script := found[1], found[2]
			switch {
			case file == "README.md" && strings.HasPrefix(script, "make run "):
				tried++
			case file == "README.md" && language == "text" && strings.HasPrefix(script, "go run ./examples/agents/hello\n"):
				demo.stop(t)
				agent, dev, _ := strings.Cut(strings.TrimSpace(script), "\n") // a terminal each
				n.start(t, agent).waitFor(t, "an agent on", time.Minute)
				demo = n.start(t, dev)
				demo.waitFor(t, "skein is ready", time.Minute)
				tried++
			case language == "sh":
				tried++
				time.Sleep(time.Second) // as a hand takes to paste the next block; the index follows meanwhile
				ctx, cancel := context.WithTimeout(t.Context(), 3*time.Minute)
				out, err := n.run(ctx, n.clone, script)
				cancel()
				if err == nil {
					want, _ := expected(file, text, found[0], script)
					err = differs(string(out), want)
				}
				if err != nil {
					t.Errorf("%s: %s\n%v\n%s", file, script, err, out)
				}
			}
		}
	}
	demo.stop(t)
	if tried < 23 { // README's and the guides' by now
		t.Errorf("%d blocks tried, want 23 and more", tried)
	}
	t.Logf("%d blocks, %v in all", tried, time.Since(began).Round(time.Second))
	if *hourTests {
		n.makeTest(t)
	}
}

// makeTest runs make test, which has to pass without what the newcomer lacks, and to end with what it did not run and what does.
func (n *newcomer) makeTest(t *testing.T) {
	t.Helper()
	began := time.Now()
	out, err := n.run(t.Context(), n.clone, "make test")
	if err != nil || !strings.Contains(string(out), "Not run: the race detector") || !strings.Contains(string(out), `"make check" runs all of it`) {
		t.Fatalf("make test: %v\n%s", err, out)
	}
	t.Logf("make test took %v", time.Since(began).Round(time.Second))
}

// newcomer types commands, as it were, in a clone of the repository.
type newcomer struct {
	clone      string
	environ    []string
	transcript *logtest.Log
}

// run runs a block and returns what it printed.
func (n *newcomer) run(ctx context.Context, dir, script string) ([]byte, error) {
	cmd := exec.CommandContext(ctx, "bash", "-euo", "pipefail", "-c", script)
	cmd.Dir, cmd.Env = dir, n.environ
	out, err := cmd.CombinedOutput()
	fmt.Fprintf(n.transcript, "$ %s\n%s\n", strings.TrimSpace(script), out)
	return out, err
}

// terminal is a command that stays up, in a terminal of its own.
type terminal struct {
	cmd        *exec.Cmd
	command    string
	out        logtest.Log
	transcript *logtest.Log
	ended      chan error
}

func (n *newcomer) start(t *testing.T, command string) *terminal {
	t.Helper()
	term := &terminal{command: command, transcript: n.transcript, ended: make(chan error, 1)}
	term.cmd = exec.Command("bash", "-c", "exec "+command)
	term.cmd.Dir, term.cmd.Env = n.clone, n.environ
	term.cmd.Stdout, term.cmd.Stderr = &term.out, &term.out
	term.cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true} // Ctrl-C reaches all that it started
	if err := term.cmd.Start(); err != nil {
		t.Fatal(err)
	}
	go func() { term.ended <- term.cmd.Wait() }()
	t.Cleanup(func() { _ = syscall.Kill(-term.cmd.Process.Pid, syscall.SIGKILL) })
	return term
}

func (term *terminal) said() string { return term.out.String() }

// waitFor waits until the command has printed something.
func (term *terminal) waitFor(t *testing.T, text string, limit time.Duration) {
	t.Helper()
	deadline := time.After(limit)
	for !strings.Contains(term.said(), text) {
		select {
		case err := <-term.ended:
			t.Fatalf("%s ended: %v\n%s", term.command, err, term.said())
		case <-deadline:
			t.Fatalf("%s has not said %q within %v:\n%s", term.command, text, limit, term.said())
		case <-time.After(100 * time.Millisecond):
		}
	}
}

// stop types Ctrl-C.
func (term *terminal) stop(t *testing.T) {
	t.Helper()
	if err := syscall.Kill(-term.cmd.Process.Pid, syscall.SIGINT); err != nil {
		t.Error(err)
	}
	select {
	case err := <-term.ended:
		fmt.Fprintf(term.transcript, "# ended: %v\n", err)
	case <-time.After(30 * time.Second):
		t.Errorf("%s does not end:\n%s", term.command, term.said())
	}
	fmt.Fprintf(term.transcript, "$ %s\n%s^C\n", term.command, term.said())
}

func absolute(t *testing.T, path string) string {
	t.Helper()
	path, err := filepath.Abs(path)
	if err != nil {
		t.Fatal(err)
	}
	return path
}
