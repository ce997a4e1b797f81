package docs

import (
	"context"
	"encoding/json"
	"io"
	"io/fs"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/skeinhq/skein/internal/app/dev"
	"github.com/skeinhq/skein/internal/app/dev/devtest"
	"github.com/skeinhq/skein/test/parts/partstest"
	"github.com/skeinhq/skein/test/process"
)

const root = "../.."

// defaultURL is what documentation says and "skein dev" listens on; here it becomes the test's server.
const defaultURL = "http://127.0.0.1:8420"

// defaultBroker is the same for its Kafka.
const defaultBroker = "127.0.0.1:8492"

var block = regexp.MustCompile("(?ms)^```sh\n(.*?)^```$")

func TestDocs_CommandsWork(t *testing.T) {
	partstest.SkipShort(t, "skein, curl and bash as processes")
	files := slices.Concat(newcomers, slices.DeleteFunc(markdown(t), func(file string) bool { return slices.Contains(newcomers, file) }))
	server := startSkein(t)
	url := server.URL()
	path, err := process.Commands(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	restore := strings.NewReplacer(url, defaultURL, server.Broker(), defaultBroker)
	home := t.TempDir() // contexts go here
	ran := 0
	for _, file := range files {
		text, err := os.ReadFile(filepath.Join(root, file))
		if err != nil {
			t.Fatal(err)
		}
		for _, found := range block.FindAllStringSubmatch(string(text), -1) {
			script := found[1]
			if checkMake(t, file, script) {
				ran++
				continue
			}
			script = strings.ReplaceAll(script, defaultURL, url)
			script = strings.ReplaceAll(script, defaultBroker, server.Broker())
			script = strings.ReplaceAll(script, "bin/skein ", "skein ")
			t.Run(blockName(file, script), func(t *testing.T) {
				if _, err := exec.LookPath("curl"); err != nil && strings.Contains(script, "curl ") && os.Getenv("CI") != "true" {
					t.Skip("there is no curl here; make check needs none")
				}
				if _, err := os.Stat(filepath.Join(root, "test", "conformance", "node_modules")); err != nil &&
					strings.Contains(script, "[ -d node_modules ]") {
					partstest.Skip(t, "no Node: commands of test/conformance/README.md were not tried; make check fetches what they need with Node 20 or later")
				}
				ctx, cancel := context.WithTimeout(t.Context(), 2*time.Minute)
				defer cancel()
				cmd := exec.CommandContext(ctx, "bash", "-euo", "pipefail", "-c", script)
				cmd.Dir = root
				if strings.HasPrefix(file, "examples/") { // they are tried where they lie
					cmd.Dir = filepath.Join(root, filepath.Dir(file))
				}
				cmd.Env = append(os.Environ(), "SKEIN_URL="+url, "XDG_CONFIG_HOME="+home, "PATH="+path+string(os.PathListSeparator)+os.Getenv("PATH"))
				out, err := cmd.CombinedOutput()
				if err != nil {
					t.Errorf("%v\n%s\n%s", err, script, out)
				}
				if want, ok := expected(file, text, found[0], found[1]); ok {
					if err := differs(restore.Replace(string(out)), want); err != nil {
						t.Errorf("%s: %v", script, err)
					}
				}
				// "skein publish" waits until what it published can be read. Other producers do not: a person
				// takes longer to type the next call than the index to follow.
				if err := server.Settle(ctx); err != nil {
					t.Error(err)
				}
			})
			ran++
		}
	}
	// A pattern that finds nothing would pass for ever.
	if ran < 8 {
		t.Errorf("%d command blocks in %v, want at least the 8 of README, CONTRIBUTING, docs/producing.md, the kit and the example", ran, files)
	}
}

var makeCall = regexp.MustCompile(`^make ([a-z-]+)`)

// checkMake reports whether a block is calls of make, whose targets then have to exist.
func checkMake(t *testing.T, file, script string) bool {
	t.Helper()
	if !makeCall.MatchString(script) {
		return false
	}
	makefile, err := os.ReadFile(filepath.Join(root, "Makefile"))
	if err != nil {
		t.Fatal(err)
	}
	for line := range strings.Lines(script) {
		call := makeCall.FindStringSubmatch(line)
		if call == nil {
			t.Errorf("%s: %q stands in a block of calls of make", file, strings.TrimSpace(line))
			continue
		}
		if !strings.Contains(string(makefile), "\n"+call[1]+":") {
			t.Errorf("%s: there is no make %s", file, call[1])
		}
	}
	return true
}

var (
	link    = regexp.MustCompile(`\]\(([^)#:\s]*)(?:#([^)\s]*))?\)`)
	fenced  = regexp.MustCompile("(?ms)^```.*?^```")
	heading = regexp.MustCompile(`(?m)^#+ (.*)$`)
	linked  = regexp.MustCompile(`\[([^]]*)\]\([^)]*\)`)
	noSlug  = regexp.MustCompile(`[^\p{L}\p{N}_ -]`)
)

// anchors are those of a Markdown file's headings, as GitHub makes them.
func anchors(text string) map[string]bool {
	of := map[string]bool{}
	times := map[string]int{} // a heading that is there again has a number
	for _, h := range heading.FindAllStringSubmatch(fenced.ReplaceAllString(text, ""), -1) {
		plain := linked.ReplaceAllString(h[1], "$1")
		slug := strings.ReplaceAll(noSlug.ReplaceAllString(strings.ToLower(strings.TrimSpace(plain)), ""), " ", "-")
		of[slug] = true
		if n := times[slug]; n > 0 {
			of[slug+"-"+strconv.Itoa(n)] = true
		}
		times[slug]++
	}
	return of
}

func TestDocs_LinksLeadSomewhere(t *testing.T) {
	headings := 0 // that are linked to
	for _, file := range markdown(t) {
		text, err := os.ReadFile(filepath.Join(root, file))
		if err != nil {
			t.Fatal(err)
		}
		for _, found := range link.FindAllStringSubmatch(string(text), -1) {
			to := filepath.Join(filepath.Dir(file), found[1])
			if found[1] == "" {
				to = file
			}
			if _, err := os.Stat(filepath.Join(root, to)); err != nil {
				t.Errorf("%s links to %s, which is not there", file, found[1])
				continue
			}
			if found[2] == "" || filepath.Ext(to) != ".md" {
				continue
			}
			headings++
			if there, err := os.ReadFile(filepath.Join(root, to)); err != nil || !anchors(string(there))[found[2]] {
				t.Errorf("%s links to %s#%s: it has no such heading (%v)", file, to, found[2], err)
			}
		}
	}
	if headings < 40 {
		t.Errorf("%d links to headings were found: the pattern misses them", headings)
	}
}

// A visitor reads README within ten minutes, beside trying it.
func TestREADME_IsShort(t *testing.T) {
	text, err := os.ReadFile(filepath.Join(root, "README.md"))
	if err != nil {
		t.Fatal(err)
	}
	if words := len(strings.Fields(string(text))); words > 700 {
		t.Errorf("README has %d words, more than 700", words)
	}
}

// markdown lists the documentation, README first.
func markdown(t *testing.T) []string {
	t.Helper()
	files := []string{"README.md", "CONTRIBUTING.md", "CHANGELOG.md", "clients/typescript/README.md", "clients/python/README.md",
		"internal/recordings/README.md", "test/conformance/README.md"}
	for _, dir := range []string{"docs", "examples"} {
		err := fs.WalkDir(os.DirFS(root), dir, func(path string, d fs.DirEntry, err error) error {
			if err == nil && (d.Name() == "node_modules" || d.Name() == ".venv") { // of the example app, once it was started
				return fs.SkipDir
			}
			if err == nil && strings.HasSuffix(path, ".md") {
				files = append(files, path)
			}
			return err
		})
		if err != nil {
			t.Fatal(err)
		}
	}
	return files
}

// agent stands for the reader's own: it answers with what examples/hello.jsonl says, under the ids of its input.
func agent(t *testing.T) http.Handler {
	t.Helper()
	text, err := os.ReadFile(filepath.Join(root, "examples", "hello.jsonl"))
	if err != nil {
		t.Fatal(err)
	}
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		var input struct{ ThreadID, RunID string }
		if err := json.NewDecoder(r.Body).Decode(&input); err != nil {
			http.Error(w, err.Error(), http.StatusBadRequest)
			return
		}
		ids := strings.NewReplacer(`"hello"`, strconv.Quote(input.ThreadID), `"hello-1"`, strconv.Quote(input.RunID))
		w.Header().Set("Content-Type", "text/event-stream")
		for line := range strings.Lines(ids.Replace(string(text))) {
			_, _ = io.WriteString(w, "data: "+line+"\n")
		}
	})
}

func startAgent(t *testing.T) string {
	t.Helper()
	server := httptest.NewServer(agent(t))
	t.Cleanup(server.Close)
	return server.URL
}

// startSkein starts a server before the agent.
func startSkein(t *testing.T) *dev.Server {
	t.Helper()
	return devtest.Start(t, devtest.Agents(t, "assistant="+startAgent(t)))
}
