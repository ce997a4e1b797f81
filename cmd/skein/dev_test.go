package main_test

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"math/rand/v2"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"reflect"
	"runtime"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/skeinhq/skein/internal/recordings"
	"github.com/skeinhq/skein/pkg/client"
	commands "github.com/skeinhq/skein/test/process"
)

// A start is held to the processor time that it takes, which is the same on a busy machine; what goes by on the
// clock is printed and held to nothing, since whatever else runs there has a share in it.
const (
	maxStart    = time.Second // 0.07 s where this was written
	maxResident = 200         // MB
)

func TestDev_StartsQuicklyAndStaysSmall(t *testing.T) {
	if runtime.GOOS != "linux" {
		t.Skip("processor time and resident memory are read from /proc")
	}
	data := filepath.Join(t.TempDir(), "data")
	defer syscall.Umask(syscall.Umask(0)) // as open as can be
	for _, when := range []string{"on an empty folder", "on a folder with data"} {
		p := start(t, data)
		if _, err := p.client.Get(t.Context(), "/v1/threads", nil); err != nil {
			t.Fatal(err)
		}
		first := time.Since(p.began)
		used, err := p.ProcessorTime()
		if err != nil {
			t.Fatal(err)
		}
		t.Logf("%s: start to first answered request %v (ready line after %v), %v of processor time",
			when, first.Round(time.Millisecond), p.ready.Round(time.Millisecond), used)
		if used > maxStart {
			t.Errorf("%s: the first answer took %v of processor time, want %v or less", when, used, maxStart)
		}
		thread, _ := recordings.Find("ag-ui-langgraph", "long-text-raw")
		publish(t, p.client, "t-"+strings.ReplaceAll(when, " ", "-"), thread.Runs[0], 0, len(thread.Runs[0].Lines()))
		// What the work has taken is given back while nothing happens.
		resident := commands.EventuallyWithin(t, 30*time.Second, when+", it is small", func() (int64, bool) {
			resident, err := p.Memory()
			return resident >> 20, err == nil && resident>>20 <= maxResident
		})
		ownOnly(t, data)
		t.Logf("%s: %d MB resident after %d events", when, resident, len(thread.Runs[0].Lines()))
		stopping := time.Now()
		if code := p.stop(); code != 0 {
			t.Errorf("%s: Ctrl-C ends with exit code %d", when, code)
		}
		t.Logf("%s: stopped %v after Ctrl-C", when, time.Since(stopping).Round(time.Millisecond))
	}
}

// ownOnly checks that nobody else can read what is in a folder.
func ownOnly(t *testing.T, dir string) {
	t.Helper()
	files := 0
	err := filepath.WalkDir(dir, func(path string, d fs.DirEntry, err error) error {
		if errors.Is(err, fs.ErrNotExist) { // a file that was replaced meanwhile
			return nil
		}
		if err != nil {
			return err
		}
		info, err := d.Info()
		if errors.Is(err, fs.ErrNotExist) {
			return nil
		}
		if err == nil && info.Mode().Perm()&0o077 != 0 {
			t.Errorf("%s has mode %v", path, info.Mode())
		}
		files++
		return err
	})
	if err != nil || files < 5 {
		t.Errorf("%d files in %s, %v", files, dir, err)
	}
}

// Agents of --agents and of --agent are called side by side; one of the file has its settings.
func TestDev_CallsTheAgentsOfAFile(t *testing.T) {
	agent := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Content-Type", "text/event-stream")
		fmt.Fprintf(w, "data: {\"type\":\"RUN_STARTED\",\"threadId\":\"t\",\"runId\":%q}\n\n", r.URL.Path[1:]) // the test ends without the rest
		fmt.Fprintf(w, "data: {\"type\":\"CUSTOM\",\"name\":\"heard\",\"value\":%q}\n\n", r.Header.Get("X-Request-Id"))
		fmt.Fprintf(w, "data: {\"type\":\"RUN_FINISHED\",\"threadId\":\"t\",\"runId\":%q}\n\n", r.URL.Path[1:])
	}))
	t.Cleanup(agent.Close)
	file := filepath.Join(t.TempDir(), "agents.yaml")
	text := "agents: [{name: filed, url: '" + agent.URL + "/filed', headers: [X-Request-Id]}]\n"
	if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	p := start(t, t.TempDir(), "--agents", file, "--agent", "named="+agent.URL+"/named")
	for name, heard := range map[string]string{"filed": `"value":"7"`, "named": `"value":""`} {
		body := fmt.Sprintf(`{"threadId":"t","runId":%q,"messages":[],"tools":[],"context":[]}`, name)
		req, err := http.NewRequestWithContext(t.Context(), http.MethodPost, p.url+"/v1/agents/"+name, strings.NewReader(body))
		if err != nil {
			t.Fatal(err)
		}
		req.Header.Set("Content-Type", "application/json")
		req.Header.Set("X-Request-Id", "7")
		resp, err := http.DefaultClient.Do(req)
		if err != nil {
			t.Fatal(err)
		}
		said, err := io.ReadAll(resp.Body)
		if err := errors.Join(err, resp.Body.Close()); err != nil || !strings.Contains(string(said), heard) {
			t.Errorf("%s answers %d, %v: %s; want %s in it", name, resp.StatusCode, err, said, heard)
		}
		sealedHistory(t, p.client, "t", name)
		if !strings.Contains(p.Tail(), "agent "+name+": call "+p.url+"/v1/agents/"+name+" in its place") {
			t.Errorf("it does not say how to call %s: %s", name, p.Tail())
		}
	}
}

// sealedHistory waits until a run is sealed and returns {messages, state}.
func sealedHistory(t *testing.T, c *client.Client, thread, run string) map[string]any {
	t.Helper()
	h := commands.Eventually(t, "the run is sealed", func() (h map[string]any, _ bool) {
		body, err := c.Get(t.Context(), client.RunPath(thread, run)+"/history", nil)
		if err == nil {
			err = json.Unmarshal(body, &h)
		}
		return h, err == nil && h["status"] != "running"
	})
	return map[string]any{"messages": h["messages"], "state": h["state"]}
}

// publish sends the events from..to of a run, numbered, and before the first one its input.
func publish(t *testing.T, c *client.Client, thread string, r recordings.Run, from, to int) {
	t.Helper()
	if from == 0 {
		if _, err := c.PutInput(t.Context(), thread, r.RunID, r.Input); err != nil {
			t.Fatalf("%s: %v", r.File, err)
		}
	}
	var body bytes.Buffer
	for i, event := range r.Lines()[from:to] {
		fmt.Fprintf(&body, "{\"seq\":%d,\"event\":%s}\n", from+i, event)
	}
	ack, err := c.PostEvents(t.Context(), thread, r.RunID, client.TypeSequenced, &body)
	if err != nil {
		t.Fatalf("%s: %v", r.File, err)
	}
	if int(ack.Accepted) != to-from {
		t.Fatalf("%s: %d of %d events accepted", r.File, ack.Accepted, to-from)
	}
}

// A killed server starts again on its folder and goes on as if nothing had happened: what was
// acknowledged is there, what is sent again is dropped, and the last run of each thread ends with
// the history that the official client has.
func TestDev_KillNineInTheMiddleOfRuns(t *testing.T) {
	seed := uint64(time.Now().UnixNano())
	t.Logf("seed %d", seed)
	rnd := rand.New(rand.NewPCG(seed, 0))
	data := t.TempDir()
	threads := []string{"pydantic-ai/multiturn", "ag-ui-langgraph/text-multiturn", "ag-ui-adk/text-multiturn",
		"llama-index/" + first(t, "llama-index")}
	p := start(t, data)
	kills := 0
	for _, name := range threads {
		framework, short, _ := strings.Cut(name, "/")
		thread, ok := recordings.Find(framework, short)
		if !ok {
			t.Fatalf("recording %s is gone", name)
		}
		var got map[string]any
		for _, r := range thread.Runs {
			n := len(r.Lines())
			cut := 1 + rnd.IntN(n-1)
			publish(t, p.client, thread.ThreadID, r, 0, cut)
			if rnd.IntN(2) == 0 {
				// Kill once the open run can be seen, so that it goes on from its record.
				commands.Eventually(t, "the open run can be seen", func() (string, bool) {
					_, err := p.client.Get(t.Context(), client.RunPath(thread.ThreadID, r.RunID), nil)
					return fmt.Sprint(err), err == nil
				})
			}
			p.End(os.Kill)
			kills++
			p = start(t, data)
			// The sender does not know how much arrived and sends a part again.
			again := max(1, cut-rnd.IntN(3))
			publish(t, p.client, thread.ThreadID, r, again, n)
			got = sealedHistory(t, p.client, thread.ThreadID, r.RunID)
			if e := foldedEvents(t, p.client, thread.ThreadID, r.RunID); e != n {
				t.Errorf("%s, cut at event %d: %d events folded, want %d", r.File, cut, e, n)
			}
		}
		var want map[string]any
		if err := json.Unmarshal(thread.Client, &want); err != nil {
			t.Fatal(err)
		}
		delete(want, "pendingInterrupts")
		if !reflect.DeepEqual(got, want) {
			t.Errorf("%s: got\n%v\nthe official client has\n%v", name, got, want)
		}
		body, err := p.client.Get(t.Context(), client.ThreadPath(thread.ThreadID)+"/lineage", nil)
		if err != nil {
			t.Fatal(err)
		}
		var l struct{ Runs, Branches []any }
		if err := json.Unmarshal(body, &l); err != nil {
			t.Fatal(err)
		}
		if len(l.Runs) != len(thread.Runs) || len(l.Branches) != 1 {
			t.Errorf("%s: %d runs on %d branches, want %d on one: %s", name, len(l.Runs), len(l.Branches), len(thread.Runs), body)
		}
	}
	t.Logf("%d kills", kills)
	if code := p.stop(); code != 0 {
		t.Errorf("Ctrl-C ends with exit code %d", code)
	}
	if _, err := os.Stat(filepath.Join(data, "running")); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("a clean stop left the marker of an unclean one: %v", err)
	}
}

// foldedEvents is how many events the run's record says were folded.
func foldedEvents(t *testing.T, c *client.Client, thread, run string) int {
	t.Helper()
	body, err := c.Get(t.Context(), client.RunPath(thread, run), nil)
	if err != nil {
		t.Fatal(err)
	}
	var r struct{ Raw struct{ Events int } }
	if err := json.Unmarshal(body, &r); err != nil {
		t.Fatal(err)
	}
	return r.Raw.Events
}

func first(t *testing.T, framework string) string {
	t.Helper()
	for _, r := range recordings.All() {
		if r.Framework == framework && len(r.Runs[0].Lines()) > 3 {
			return r.Name
		}
	}
	t.Fatalf("no recording of %s", framework)
	return ""
}
