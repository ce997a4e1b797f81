package producers

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/skeinhq/skein/test/parts"
	"github.com/skeinhq/skein/test/parts/partstest"
	"github.com/skeinhq/skein/test/process"
)

// fetchTimeout bounds the downloads of a program's parts.
const fetchTimeout = 5 * time.Minute

// sendTimeout bounds a program's run on a busy machine.
const sendTimeout = 2 * time.Minute

// program is an example.
type program struct {
	name string
	// build returns the command that runs it, to which brokers, topic and file are added.
	build func(ctx context.Context, dir string) ([]string, error)

	once    sync.Once
	command []string
	err     error
}

var programs = []*program{{name: "go", build: buildGo}, {name: "python", build: findPython}, {name: "java", build: buildJava}}

func buildGo(_ context.Context, dir string) ([]string, error) {
	return []string{filepath.Join(dir, "go")}, process.Build(dir, nil, "./go")
}

func findPython(ctx context.Context, _ string) ([]string, error) {
	lock, err := os.ReadFile("python/requirements.txt")
	if err != nil {
		return nil, err
	}
	python, err := parts.Python{Name: "python-producer", Requirements: lock}.Interpreter(ctx)
	return []string{python, "python/producer.py"}, err
}

func buildJava(ctx context.Context, dir string) ([]string, error) {
	java, err := parts.Java(ctx)
	if err != nil {
		return nil, err
	}
	javac, err := parts.Javac(ctx)
	if err != nil {
		return nil, err
	}
	pom, err := os.ReadFile("java/pom.xml")
	if err != nil {
		return nil, err
	}
	sums, err := os.ReadFile("java/jars.sha256")
	if err != nil {
		return nil, err
	}
	jars, err := parts.Jars{Name: "java-producer", Pom: pom, SHA256: sums}.Folder(ctx)
	if err != nil {
		return nil, err
	}
	path := dir + string(os.PathListSeparator) + filepath.Join(jars, "*")
	args := []string{"-J-XX:TieredStopAtLevel=1", "-J-XX:+UseSerialGC", "-Xlint:all", "-Werror", "-d", dir, "-cp", path, "java/SendRuns.java"}
	if out, err := exec.CommandContext(ctx, javac, args...).CombinedOutput(); err != nil {
		return nil, fmt.Errorf("compiling: %w\n%s", err, out)
	}
	return []string{java, "-Xmx512m", "-XX:TieredStopAtLevel=1", "-XX:+UseSerialGC", "-cp", path, "SendRuns"}, nil
}

// prepare builds the program once, or skips the test, saying why, where this machine cannot have its parts.
func (p *program) prepare(t *testing.T) {
	t.Helper()
	p.once.Do(func() {
		ctx, cancel := context.WithTimeout(context.Background(), fetchTimeout)
		defer cancel()
		p.command, p.err = p.build(ctx, built)
	})
	if missing := new(parts.UnavailableError); errors.As(p.err, &missing) && os.Getenv("CI") != "true" {
		partstest.Skip(t, p.err.Error())
	}
	if p.err != nil {
		t.Fatal(p.err)
	}
}

// args are the arguments of the program's command.
func (p *program) args(brokers []string, topic, file string) []string {
	return append(slices.Clone(p.command[1:]), strings.Join(brokers, ","), topic, file)
}

// send runs the program.
func (p *program) send(t *testing.T, brokers []string, topic, file string) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), sendTimeout)
	defer cancel()
	if out, err := exec.CommandContext(ctx, p.command[0], p.args(brokers, topic, file)...).CombinedOutput(); err != nil {
		t.Fatalf("%s: %v\n%s", p.command[0], err, out)
	}
}

// What the programs need is fetched here, where a failure is told apart, and says which versions it is.
func TestPrograms_AreThere(t *testing.T) {
	versions := map[string][]string{
		"python": {"-c", "import platform, confluent_kafka as c; print('Python', platform.python_version(), 'confluent-kafka', c.version(), 'librdkafka', c.libversion()[0])"},
		"java":   {"-version"},
	}
	for _, p := range programs {
		t.Run(p.name, func(t *testing.T) {
			p.prepare(t)
			if versions[p.name] == nil {
				return
			}
			out, err := exec.CommandContext(t.Context(), p.command[0], versions[p.name]...).CombinedOutput()
			if err != nil {
				t.Fatalf("%v: %s", err, out)
			}
			t.Logf("%s", bytes.TrimSpace(out))
		})
	}
}
