package containers

import (
	"archive/tar"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/chromedp/chromedp"
	"github.com/chromedp/chromedp/kb"

	"github.com/skeinhq/skein/test/process"
)

var stages = []string{"ingest", "compactor", "indexer", "query"}

// The short form: the image of the shipped Dockerfile, but with commands that this machine has compiled, comes up by the Compose file,
// takes a run and gives it back.
func TestCompose_ComesUpAndAnswers(t *testing.T) {
	if *long {
		t.Skip("the long form does the same and more")
	}
	needEngine(t)
	needPorts(t)
	s := newSite(t, root, "short")
	s.down("--volumes")
	needImages(t, s.images()...)
	build := t.TempDir()
	step("commands compiled here", func() {
		t.Setenv("CGO_ENABLED", "0")
		out := filepath.Join(build, "out")
		if err := errors.Join(os.Mkdir(out, 0o755), os.Mkdir(filepath.Join(build, "data"), 0o755)); err != nil {
			t.Fatal(err)
		}
		if err := process.Build(out, nil, root+"/cmd/..."); err != nil {
			t.Fatal(err)
		}
		copyFile(t, "/etc/ssl/certs/ca-certificates.crt", filepath.Join(build, "etc/ssl/certs/ca-certificates.crt"))
	})
	step("image built of them", func() {
		run(t, "docker", "buildx", "build", "--quiet", "--load", "--tag", "skein:short", "--build-context", "build="+build, root)
	})
	step("docker compose up --wait", func() { s.up() })
	step("a run published and read", func() { newCaller(s).mustPublish("thread", "run") })
}

// The long form, step by step.
func TestCompose_KeepsWhatItTookOverKillsRestartsAndAnUpgrade(t *testing.T) {
	if !*long {
		t.Skip("make test-containers runs this")
	}
	needEngine(t)
	version := run(t, "git", "-C", root, "describe", "--always", "--dirty", "--tags") + "-test" // it is removed at the end
	s := newSite(t, root, version)
	s.down("--volumes")
	needImages(t, append(s.images("metrics"), buildImage(t))...)
	step("docker compose build, from the Dockerfile", func() { s.compose("build") })
	image := "skein:" + version
	checkVersion(t, image, version)
	checkImage(t, image)

	anonymous := volumes(t)
	step("docker compose up --wait, from nothing", func() { s.up() })
	var c *caller
	var kept []published
	step("the key taken; a run published and read", func() {
		c = newCaller(s)
		kept = append(kept, c.mustPublish("thread", "first"))
	})
	step("a second tenant, as docs/install.md has it; each reads only its own", func() {
		s.guide("install.md", "docker run ")
		key, err := os.ReadFile(filepath.Join(s.folder, "globex.key"))
		if err != nil {
			t.Fatal(err)
		}
		other := callerWith(s, strings.TrimSpace(string(key)))
		c.mustNotFind(other.mustPublish("thread", "of globex"))
		other.mustNotFind(kept[0])
	})
	step("the page in Chromium shows the run", func() { lookAtThePage(t, c.key, "thread", kept[0].text()) })
	step("docker compose --profile metrics up --wait; Prometheus has all stages", func() {
		s.up("metrics")
		awaitScrapes(t)
	})
	for _, service := range append([]string{"kafka", "clickhouse"}, stages...) {
		step("kill -9 of "+service+"; a run published and read", func() {
			kill(t, s, service)
			kept = append(kept, c.mustPublish("thread", "after-"+service))
		})
	}
	step("docker compose run --rm migrate --rebuild; all runs read", func() {
		s.compose("run", "--rm", "--no-deps", "migrate", "--rebuild")
		c.mustRead(kept...)
	})
	step("docker compose down", func() { s.down() })
	if n := volumes(t) - anonymous; n != len(strings.Fields(s.compose("--profile", "*", "config", "--volumes"))) {
		t.Errorf("%d volumes are left, want those with names: %s", n, run(t, "docker", "volume", "ls"))
	}
	step("docker compose up --wait, on the data", func() { s.up() })
	step("all runs read, one more published", func() {
		c.mustRead(kept...)
		kept = append(kept, c.mustPublish("thread", "second life"))
	})
	step("saved, as docs/backup.md has it", func() { s.guide("backup.md", "docker compose stop\n") })
	lost := c.mustPublish("thread", "after the backup")
	step("restored, as docs/backup.md has it", func() { s.guide("backup.md", "docker compose down\n") })
	step("what was saved is read by the same key, the later run is not there", func() {
		c.mustRead(kept...)
		c.mustNotFind(lost)
		list := run(t, "docker", "run", "--rm", "--network", "none", "--user", "65532:65532", "-v", project+"_secrets:/secrets",
			image, "skein", "keys", "list", "--file", "/secrets/api-keys.yaml")
		if !strings.Contains(list, "globex") || !strings.Contains(list, "demo") {
			t.Errorf("of the keys are left: %s", list)
		}
		c.mustPublish("thread", "third life")
	})
	step("docker compose down --volumes", func() { s.down("--volumes") })
	if n := volumes(t); n != anonymous {
		t.Errorf("there are %d volumes, before it were %d", n, anonymous)
	}
	upgrade(t, s)
}

// upgrade starts the site of the commit before, and brings up this one's over it while runs are published.
func upgrade(t *testing.T, s site) {
	commit := run(t, "git", "-C", root, "rev-parse", *before)
	old := newSite(t, filepath.Join(t.TempDir(), "before"), "before")
	run(t, "git", "clone", "--quiet", "--shared", "--no-checkout", root, old.tree)
	run(t, "git", "-C", old.tree, "checkout", "--quiet", commit)
	step("image of "+*before+" built", func() {
		run(t, "docker", "buildx", "build", "--quiet", "--load", "--tag", "skein:before", old.tree)
	})
	checkVersion(t, "skein:before", commit[:12]) // without VERSION
	step("docker compose up --wait of "+*before, func() { old.up() })
	c := newCaller(old)
	l := c.load(4)
	l.await(t, 20)
	step("docker compose up --wait of this commit, under load", func() { s.up() })
	l.await(t, 20)
	all := l.end()
	for _, stage := range stages {
		if got := run(t, "docker", "inspect", "--format", "{{.Config.Image}}", s.compose("ps", "--quiet", stage)); got != "skein:"+s.version {
			t.Errorf("%s runs %s", stage, got)
		}
	}
	events := 0
	for _, p := range all {
		events += p.parts + 4
	}
	step(fmt.Sprintf("read: %d runs, %d events, each there once; %d requests were sent again", len(all), events, c.refused.Load()), func() {
		c.mustRead(all...)
	})
	if c.refused.Load() == 0 {
		t.Error("no request was refused: nothing was under load while stages were replaced")
	}
}

// buildImage returns the image that the Dockerfile builds in.
func buildImage(t *testing.T) string {
	t.Helper()
	text, err := os.ReadFile(filepath.Join(root, "Dockerfile"))
	if err != nil {
		t.Fatal(err)
	}
	for line := range strings.Lines(string(text)) {
		if words := strings.Fields(line); len(words) > 1 && words[0] == "FROM" {
			return words[1]
		}
	}
	t.Fatal("the Dockerfile begins with no image")
	return ""
}

// checkVersion sees that an image says which version it is.
func checkVersion(t *testing.T, image, version string) {
	t.Helper()
	said := run(t, "docker", "run", "--rm", "--network", "none", image, "/usr/local/bin/skein", "version")
	if !strings.Contains(said, version) {
		t.Errorf("%s says it is %q, want %s", image, said, version)
	}
}

// checkImage looks at the files of an image: all are root's but the data folder.
func checkImage(t *testing.T, image string) {
	t.Helper()
	id := run(t, "docker", "create", image)
	defer run(t, "docker", "rm", id)
	files := filepath.Join(t.TempDir(), "image.tar")
	run(t, "docker", "export", "--output", files, id)
	f, err := os.Open(files)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = f.Close() }() // only read
	owned := map[string]int{}
	for r := tar.NewReader(f); ; {
		h, err := r.Next()
		if errors.Is(err, io.EOF) {
			break
		}
		if err != nil {
			t.Fatal(err)
		}
		if h.Uid != 0 || h.Gid != 0 {
			owned[h.Name] = h.Uid
		}
	}
	if want := map[string]int{"var/lib/skein/": 65532}; !maps.Equal(owned, want) {
		t.Errorf("of the image's files these are not root's: %v, want %v", owned, want)
	}
}

// kill ends a service's process with SIGKILL from the engine's machine: after "docker kill" the engine would not start it again.
func kill(t *testing.T, s site, service string) {
	t.Helper()
	inspect := []string{"inspect", "--format", "{{.State.Pid}}", s.compose("ps", "--quiet", service)}
	pid := run(t, "docker", inspect...)
	run(t, "docker", "run", "--rm", "--pid", "host", "--privileged", "--network", "none", "busybox:1.37.0", "kill", "-9", pid)
	for deadline := time.Now().Add(patience); ; time.Sleep(50 * time.Millisecond) {
		if now := run(t, "docker", inspect...); now != pid && now != "0" {
			return
		}
		if time.Now().After(deadline) {
			t.Fatalf("%s is not started again", service)
		}
	}
}

// lookAtThePage gives the page the key and waits until it shows a text of a thread.
func lookAtThePage(t *testing.T, key, thread, text string) {
	t.Helper()
	path := ""
	for _, name := range []string{"chromium", "chromium-browser", "google-chrome"} {
		if found, err := exec.LookPath(name); err == nil && path == "" {
			path = found
		}
	}
	options := append(slices.Clone(chromedp.DefaultExecAllocatorOptions[:]), chromedp.ExecPath(path), chromedp.NoSandbox,
		chromedp.WSURLReadTimeout(patience))
	all, stop := chromedp.NewExecAllocator(t.Context(), options...)
	defer stop()
	ctx, cancel := chromedp.NewContext(all, chromedp.WithErrorf(func(string, ...any) {})) // Chromium has newer events than chromedp
	defer cancel()
	shows := fmt.Sprintf("document.body.innerText.includes(%q)", strings.TrimSpace(text))
	err := chromedp.Run(ctx, chromedp.Navigate("http://127.0.0.1:8422/?thread="+thread), chromedp.WaitVisible("#key"),
		chromedp.SendKeys("#key", key+kb.Enter), chromedp.Poll(shows, nil, chromedp.WithPollingTimeout(time.Minute)))
	if err != nil {
		var shown string
		t.Fatalf("%v; the page shows (%v): %s", err, chromedp.Run(ctx, chromedp.Evaluate("document.body.innerText", &shown)), shown)
	}
}

// awaitScrapes waits until Prometheus has scraped each stage.
func awaitScrapes(t *testing.T) {
	t.Helper()
	process.EventuallyWithin(t, patience, "Prometheus to have scraped four stages", func() (string, bool) {
		_, body := process.Get(t, "http://127.0.0.1:9090/api/v1/targets")
		var answer struct {
			Data struct {
				ActiveTargets []struct {
					Labels map[string]string
					Health string
				}
			}
		}
		if err := json.Unmarshal([]byte(body), &answer); err != nil {
			t.Fatalf("%v: %s", err, body)
		}
		up := map[string]bool{}
		for _, target := range answer.Data.ActiveTargets {
			if target.Health == "up" {
				up[target.Labels["instance"]] = true
			}
		}
		for _, stage := range stages {
			if !up[stage+":8421"] {
				return body, false
			}
		}
		return body, len(up) == len(stages)
	})
}
