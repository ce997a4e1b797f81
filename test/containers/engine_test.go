package containers

import (
	"bytes"
	"context"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/skeinhq/skein/test/parts/partstest"
)

const (
	// root is the source tree, from the folder of this package.
	root = "../.."
	// project is the name under which the tests run the Compose file, so that they touch no other installation. Ports are the file's.
	project = "skein-test"
)

// commandTimeout bounds one command: the longest compiles Skein on a busy machine. The short form ends within "make check"'s 15 minutes.
func commandTimeout() time.Duration {
	if *long {
		return 40 * time.Minute
	}
	return 10 * time.Minute
}

// try runs a command with more variables and returns its standard output. The error has all that it said.
func try(environ []string, name string, args ...string) (string, error) {
	ctx, cancel := context.WithTimeout(context.Background(), commandTimeout()) // also while a test is cleaned up
	defer cancel()
	cmd := exec.CommandContext(ctx, name, args...)
	var out, errs bytes.Buffer
	cmd.Stdout, cmd.Stderr, cmd.Env = &out, &errs, append(os.Environ(), environ...)
	if err := cmd.Run(); err != nil {
		said := errs.String() + out.String()
		return "", fmt.Errorf("%s %s: %w: %s", name, strings.Join(args, " "), err, said[max(0, len(said)-4000):])
	}
	return out.String(), nil
}

// run runs a command that must succeed.
func run(t *testing.T, name string, args ...string) string {
	t.Helper()
	out, err := try(nil, name, args...)
	if err != nil {
		t.Fatal(err)
	}
	return strings.TrimSpace(out)
}

// needEngine skips the test where no engine is at hand. That is no failure with CI=true: CI's machines need none.
func needEngine(t *testing.T) {
	t.Helper()
	var err error
	for _, args := range [][]string{{"version"}, {"compose", "version"}, {"buildx", "version"}} {
		if err == nil {
			_, err = try(nil, "docker", args...)
		}
	}
	if err != nil {
		const reason = "no container engine: image and Compose file were not run; make test-containers brings one"
		if *long {
			t.Fatalf("%s: %v", reason, err)
		}
		partstest.Note(t, reason)
		t.Skip(reason)
	}
	fmt.Println(run(t, "docker", "version", "--format", "engine {{.Server.Version}}, API {{.Server.APIVersion}}"))
	fmt.Println(run(t, "docker", "compose", "version"))
}

// needPorts skips the test where something listens on the ports that the Compose file publishes, such as "make run".
func needPorts(t *testing.T) {
	t.Helper()
	for _, address := range []string{"127.0.0.1:8420", "127.0.0.1:8422"} {
		l, err := net.Listen("tcp", address)
		if err != nil {
			reason := "image and Compose file were not run: " + err.Error()
			partstest.Note(t, reason)
			t.Skip(reason)
		}
		if err := l.Close(); err != nil {
			t.Fatal(err)
		}
	}
}

// step runs a part of a test, and prints what it is and how long it took.
func step(name string, f func()) {
	began := time.Now()
	f()
	fmt.Printf("%7.1f s  %s\n", time.Since(began).Seconds(), name)
}

// site is the Compose file of a source tree with an image of one version.
type site struct {
	t             *testing.T
	tree, version string
	folder        string // an operator's own
}

func (s site) try(args ...string) (string, error) {
	file := filepath.Join(s.tree, "docker-compose.yml")
	args = append([]string{"compose", "--ansi", "never", "--project-name", project, "--file", file}, args...)
	return try([]string{"SKEIN_VERSION=" + s.version}, "docker", args...)
}

// compose runs docker compose, which must succeed.
func (s site) compose(args ...string) string {
	s.t.Helper()
	out, err := s.try(args...)
	if err != nil {
		s.t.Fatal(err)
	}
	return strings.TrimSpace(out)
}

func profileFlags(profiles []string) (flags []string) {
	for _, p := range profiles {
		flags = append(flags, "--profile", p)
	}
	return flags
}

// up starts all services of some profiles and waits for them.
func (s site) up(profiles ...string) {
	s.t.Helper()
	if _, err := s.try(append(profileFlags(profiles), "up", "--wait", "--no-build", "--pull", "never")...); err != nil {
		s.t.Fatalf("%v\n%s\n%s", err, s.compose("ps", "--all"), s.compose("logs", "--tail", "20"))
	}
}

// down ends all, with the data if asked for.
func (s site) down(options ...string) {
	s.t.Helper()
	s.compose(append([]string{"--profile", "*", "down", "--remove-orphans"}, options...)...)
}

// newSite returns the Compose file of a tree. At the end nothing is left of it, nor of its image.
func newSite(t *testing.T, tree, version string) site {
	t.Helper()
	s := site{t, tree, version, t.TempDir()}
	t.Cleanup(func() {
		s.down("--volumes", "--timeout", "10")
		run(t, "docker", "image", "rm", "--force", "skein:"+version)
	})
	return s
}

// guide runs the block of a guide that begins with some words, as it stands but for the names of the project and of the image.
func (s site) guide(file, begins string) string {
	s.t.Helper()
	text, err := os.ReadFile(filepath.Join(s.tree, "docs", file))
	if err != nil {
		s.t.Fatal(err)
	}
	_, block, found := strings.Cut(string(text), "```text\n"+begins)
	block, _, ended := strings.Cut(block, "```")
	if !found || !ended {
		s.t.Fatalf("docs/%s has no block that begins with %q", file, begins)
	}
	block = strings.NewReplacer("skein_", project+"_", "skein:dev", "skein:"+s.version).Replace(begins + block)
	tree, err := filepath.Abs(s.tree)
	if err != nil {
		s.t.Fatal(err)
	}
	environ := []string{"SKEIN_VERSION=" + s.version, "COMPOSE_PROJECT_NAME=" + project,
		"COMPOSE_FILE=" + filepath.Join(tree, "docker-compose.yml")}
	out, err := try(environ, "sh", "-euc", "cd "+s.folder+"\n"+block)
	if err != nil {
		s.t.Fatal(err)
	}
	return out
}

// volumes returns how many volumes the engine has.
func volumes(t *testing.T) int {
	t.Helper()
	return len(strings.Fields(run(t, "docker", "volume", "ls", "--quiet")))
}
