package containers

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/skeinhq/skein/internal/clickhousetest"
	"github.com/skeinhq/skein/pkg/kafka/kafkatest/apache"
	"github.com/skeinhq/skein/test/parts/partstest"
	"github.com/skeinhq/skein/test/process"
)

// needImages sees that the engine has some images: those at hand, else those of their registries. Where one cannot be pulled, a stand-in is
// built and removed at the end; without the flag for it the test is skipped. A stand-in that a killed run left counts for nothing.
func needImages(t *testing.T, names ...string) {
	t.Helper()
	var s *standins
	for _, name := range names {
		standIn, err := try(nil, "docker", "image", "inspect", "--format", `{{index .Config.Labels "skein.stand-in"}}`, name)
		if err == nil && strings.TrimSpace(standIn) == "" {
			continue
		}
		_, err = try(nil, "docker", "pull", "--quiet", name)
		switch {
		case err == nil:
			fmt.Println(name, "pulled")
			continue
		case *standIns:
		case *long:
			t.Fatal(err)
		default:
			reason := name + " cannot be pulled: image and Compose file were not run; make test-containers builds a stand-in"
			partstest.Note(t, reason)
			t.Skip(reason)
		}
		if s == nil {
			s = gather(t)
		}
		step(name+": a stand-in", func() { s.build(name) })
	}
}

// images returns the images that the Compose file names for some profiles, but Skein's own.
func (s site) images(profiles ...string) (out []string) {
	s.t.Helper()
	for _, name := range strings.Fields(s.compose(append(profileFlags(profiles), "config", "--images")...)) {
		if !strings.HasPrefix(name, "skein:") {
			out = append(out, name)
		}
	}
	return out
}

// standins are folders with what stand-ins are made of.
type standins struct {
	t    *testing.T
	args []string // of docker build
}

// gather collects what the machine has: busybox, bash, Java, Kafka's jars, ClickHouse's engine, Go with its modules.
func gather(t *testing.T) *standins {
	t.Helper()
	s := &standins{t: t}
	dir := t.TempDir()
	programs, libraries := filepath.Join(dir, "programs"), filepath.Join(dir, "libraries")
	if err := errors.Join(os.Mkdir(programs, 0o755), os.Mkdir(libraries, 0o755)); err != nil {
		t.Fatal(err)
	}
	if err := process.Build(programs, nil, "./standins/clickhouse"); err != nil {
		t.Fatal(err)
	}
	java, err := filepath.EvalSymlinks(find(t, "java"))
	if err != nil {
		t.Fatal(err)
	}
	java = filepath.Dir(filepath.Dir(java))
	jars, err := apache.Jars(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	library, err := clickhousetest.Library(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	linked := []string{library, filepath.Join(programs, "clickhouse")}
	for _, name := range []string{"busybox", "bash", "prometheus"} {
		path := find(t, name)
		copyFile(t, path, filepath.Join(programs, name))
		linked = append(linked, path)
	}
	err = filepath.WalkDir(java, func(path string, d fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		if d.Type()&fs.ModeSymlink != 0 {
			// Debian's Java has its settings in /etc.
			if target, err := os.Readlink(path); err == nil && strings.HasPrefix(target, "/etc/") {
				copyFile(t, target, filepath.Join(libraries, target))
			}
		} else if strings.HasSuffix(path, ".so") || filepath.Base(filepath.Dir(path)) == "bin" {
			linked = append(linked, path)
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	for _, path := range linked {
		// What is static has none.
		out, _ := try(nil, "ldd", path)
		for _, word := range strings.Fields(out) {
			if strings.HasPrefix(word, "/") && !strings.HasPrefix(word, java) && !strings.HasSuffix(word, ":") {
				copyFile(t, word, filepath.Join(libraries, word))
			}
		}
	}
	for name, folder := range map[string]string{
		"programs": programs, "libraries": libraries, "java": java, "jars": jars, "chdb": filepath.Dir(library), "certificates": "/etc/ssl/certs",
		"go": run(t, "go", "env", "GOROOT"), "modules": filepath.Join(run(t, "go", "env", "GOMODCACHE"), "cache", "download"),
	} {
		s.args = append(s.args, "--build-context", name+"="+folder)
	}
	s.args = append(s.args, "--build-arg", "JAVA="+java)
	return s
}

// build builds the stand-in for an image. The Dockerfile's target is the last word of the image's name, of ClickHouse the first.
func (s *standins) build(name string) {
	s.t.Helper()
	target, _, _ := strings.Cut(filepath.Base(name), ":")
	target = strings.TrimSuffix(target, "-server")
	args := append([]string{"buildx", "build", "--quiet", "--load", "--target", target, "--tag", name}, s.args...)
	run(s.t, "docker", append(args, "standins")...)
	s.t.Cleanup(func() { run(s.t, "docker", "image", "rm", "--force", name) })
}

func find(t *testing.T, name string) string {
	t.Helper()
	path, err := exec.LookPath(name)
	if err != nil {
		t.Fatalf("looking for what stand-ins for images are made of: %v", err)
	}
	return path
}

// copyFile copies a file, or what a link leads to, unless it was.
func copyFile(t *testing.T, from, to string) {
	t.Helper()
	if _, err := os.Stat(to); err == nil {
		return
	}
	b, err := os.ReadFile(from)
	if err == nil {
		err = os.MkdirAll(filepath.Dir(to), 0o755)
	}
	if err == nil {
		err = os.WriteFile(to, b, 0o755)
	}
	if err != nil {
		t.Fatal(err)
	}
}
