package agents

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"net/http"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"reflect"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/skeinhq/skein/internal/app/dev"
	"github.com/skeinhq/skein/internal/app/dev/devtest"
	"github.com/skeinhq/skein/pkg/client"
	"github.com/skeinhq/skein/test/parts"
	"github.com/skeinhq/skein/test/parts/partstest"
	"github.com/skeinhq/skein/test/process"
)

const (
	examples = "../../examples/agents"
	official = "../conformance/node_modules/@ag-ui/client/package.json"
)

var frameworks = []string{"pydantic_ai", "langgraph"}

// conversation is what client.mjs prints.
type conversation struct {
	Runs []struct {
		RunID  string
		Events []map[string]any
	}
	Messages []any
	State    any
}

func TestAgents_StockClientsSeeTheSameAndRunsAreKept(t *testing.T) {
	partstest.SkipShort(t, "agents in Python, and Node")
	python := needed(t)
	urls := map[string]string{}
	var pairs []string
	for _, name := range frameworks {
		urls[name] = startAgent(t, python, name)
		pairs = append(pairs, name+"="+urls[name])
	}
	server := devtest.Start(t, devtest.Agents(t, pairs...))
	c := devtest.Client(t, server.URL())
	for _, name := range frameworks {
		proxied := server.URL() + "/v1/agents/" + name
		t.Run(name, func(t *testing.T) {
			thread := name + "-1"
			direct := converse(t, urls[name], name+"-0", "2")
			seen := converse(t, proxied, thread, "2")
			if got, want := inShort(seen), inShort(direct); !reflect.DeepEqual(got, want) {
				t.Errorf("through Skein the client has\n%q, without\n%q", got, want)
			}
			settle(t, server)
			for i, run := range seen.Runs {
				var kept []map[string]any
				for line := range bytes.Lines(get(t, c, client.RunPath(thread, run.RunID)+"/events")) {
					var event map[string]any
					decode(t, line, &event)
					kept = append(kept, event)
				}
				if !reflect.DeepEqual(kept, run.Events) {
					t.Errorf("run %d: the client saw\n%v, Skein has\n%v", i+1, run.Events, kept)
				}
				var r struct{ Status, ParentRunID, Agent string }
				decode(t, get(t, c, client.RunPath(thread, run.RunID)), &r)
				parent := ""
				if i > 0 {
					parent = seen.Runs[i-1].RunID
				}
				if r.Status != "finished" || r.ParentRunID != parent || r.Agent != name {
					t.Errorf("run %d is %+v, want it finished, of agent %s behind %q", i+1, r, name, parent)
				}
			}
			var history struct {
				Messages []any
				State    any
			}
			decode(t, get(t, c, client.ThreadPath(thread)+"/history"), &history)
			if !reflect.DeepEqual(history.Messages, seen.Messages) || !reflect.DeepEqual(history.State, seen.State) {
				t.Errorf("the client holds\n%v, %v, Skein\n%v, %v", seen.Messages, seen.State, history.Messages, history.State)
			}
		})
		if name == "pydantic_ai" { // the example of LangGraph remembers threads by itself, and answers with all that it has of one
			t.Run(name+", from an old run", func(t *testing.T) { goOnFrom(t, server, c, name, name+"-1") })
		}
		t.Run(name+", the client leaves", func(t *testing.T) {
			thread := name + "-2"
			left := converse(t, proxied, thread, "2", "leave")
			if n := len(left.Runs[1].Events); n != 1 {
				t.Fatalf("the client left behind event %d", n)
			}
			run := left.Runs[1].RunID
			status := ""
			for deadline := time.Now().Add(process.Patience); status != "finished"; time.Sleep(50 * time.Millisecond) {
				var r struct{ Status string }
				settle(t, server)
				decode(t, get(t, c, client.RunPath(thread, run)), &r)
				if status = r.Status; time.Now().After(deadline) {
					t.Fatalf("the run is %s", status)
				}
			}
			var history struct{ Messages []map[string]any }
			decode(t, get(t, c, client.RunPath(thread, run)+"/history"), &history)
			if n := len(history.Messages); n != 4 || history.Messages[3]["content"] != history.Messages[1]["content"] {
				t.Errorf("the history is %v, want two questions and two equal answers", history.Messages)
			}
		})
	}
}

// Uvicorn closes a connection that was idle for 5 s: no run may be lost to a request that it meets on the way.
func TestAgents_NoRunIsLostToAConnectionThatTheServerCloses(t *testing.T) {
	partstest.SkipShort(t, "uvicorn")
	python := pythonOfAgents(t)
	address := process.FreeAddress(t)
	p, err := process.Start(t, t.TempDir(), python, "-m", "uvicorn", "--app-dir", absolute(t, "."), "uvicorn_app:app",
		"--port", portOf(address))
	if err != nil {
		t.Fatal(err)
	}
	p.AwaitListening(address)
	server := devtest.Start(t, devtest.Agents(t, "uv=http://"+address+"/"))
	const callers, runs = 40, 4
	var failed atomic.Int32
	var all sync.WaitGroup
	for i := range callers {
		all.Go(func() {
			for n := range runs {
				if n > 0 {
					time.Sleep(5*time.Second + time.Duration(rand.IntN(80)-50)*time.Millisecond)
				}
				said := callAgent(t, server.URL()+"/v1/agents/uv",
					fmt.Sprintf(`{"threadId":"uv-%d","runId":"r%d","messages":[],"state":{},"tools":[],"context":[],"forwardedProps":{}}`, i, n))
				if !bytes.Contains(said, []byte("RUN_FINISHED")) {
					failed.Add(1)
					t.Errorf("caller %d, run %d: %s", i, n, said)
				}
			}
		})
	}
	all.Wait()
	t.Logf("%d of %d runs failed", failed.Load(), callers*runs)
}

func absolute(t *testing.T, path string) string {
	t.Helper()
	abs, err := filepath.Abs(path)
	if err != nil {
		t.Fatal(err)
	}
	return abs
}

// goOnFrom checks out the first run of a thread that has a second one, has the agent answer another question from there, and expects a
// branch.
func goOnFrom(t *testing.T, server *dev.Server, c *client.Client, name, thread string) {
	t.Helper()
	old, second, run := thread+"-run-1", thread+"-run-2", thread+"-other"
	var input map[string]any
	body, err := c.Get(t.Context(), client.RunPath(thread, old)+"/checkout", url.Values{"runId": {run}})
	if err != nil {
		t.Fatal(err)
	}
	decode(t, body, &input)
	before, _ := input["messages"].([]any)
	if len(before) != 2 || input["parentRunId"] != old {
		t.Fatalf("checked out %s", body)
	}
	input["messages"] = append(before, map[string]any{"id": thread + "-other-user", "role": "user", "content": "And if I had asked this?"})
	if body, err = json.Marshal(input); err != nil {
		t.Fatal(err)
	}
	said := callAgent(t, server.URL()+"/v1/agents/"+name, string(body))
	if !bytes.Contains(said, []byte(`"RUN_FINISHED"`)) {
		t.Fatalf("the agent says %s", said)
	}
	settle(t, server)
	var lineage struct {
		Runs     []struct{ RunID, ParentRunID, ParentBy, BranchID, Status string }
		Branches []struct{ BranchID string }
	}
	decode(t, get(t, c, client.ThreadPath(thread)+"/lineage"), &lineage)
	branches := map[string]string{}
	for _, r := range lineage.Runs {
		branches[r.RunID] = r.BranchID
		if r.RunID == run && (r.ParentRunID != old || r.ParentBy != "explicit" || r.Status != "finished") {
			t.Errorf("the run is %+v, want it behind %s", r, old)
		}
	}
	if len(lineage.Branches) != 2 || branches[run] != run || branches[second] != branches[old] {
		t.Errorf("the lineage is %+v, want %s on a branch of its own", lineage, run)
	}
	var history struct{ Messages []map[string]any }
	decode(t, get(t, c, client.RunPath(thread, run)+"/history"), &history)
	if n := len(history.Messages); n != 4 || history.Messages[2]["content"] != "And if I had asked this?" ||
		!reflect.DeepEqual(history.Messages[1], before[1]) {
		t.Errorf("the history is %v", history.Messages)
	}
	// A client that restores the thread holds the new branch: its run was started last.
	restored := callAgent(t, server.URL()+"/v1/connect", fmt.Sprintf(`{"threadId":%q,"runId":"restore","state":{},"messages":[],"tools":[],"context":[],"forwardedProps":{}}`, thread))
	if !bytes.Contains(restored, []byte("And if I had asked this?")) {
		t.Errorf("connect gives %s", restored)
	}
}

// callAgent posts a RunAgentInput and returns the whole answer.
func callAgent(t *testing.T, address, input string) []byte {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), process.Patience)
	defer cancel()
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, address, strings.NewReader(input))
	if err != nil {
		t.Fatal(err)
	}
	req.Header.Set("Content-Type", "application/json")
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		t.Fatal(err)
	}
	body, err := io.ReadAll(resp.Body)
	if err := errors.Join(err, resp.Body.Close()); err != nil || resp.StatusCode != http.StatusOK {
		t.Fatalf("%s %v: %s", resp.Status, err, body)
	}
	return body
}

// inShort is what runs of an agent have in common: ids and times differ, and what RAW events carry.
func inShort(c conversation) (out []string) {
	for _, run := range c.Runs {
		for _, event := range run.Events {
			out = append(out, fmt.Sprint(event["type"], " ", event["delta"], event["stepName"], event["role"]))
		}
	}
	for _, m := range c.Messages {
		message, _ := m.(map[string]any)
		out = append(out, fmt.Sprint(message["role"], " ", message["content"]))
	}
	return out
}

// needed returns the Python of the agents. The test is skipped where it or the official client is not there; with CI=true
// it fails.
func needed(t *testing.T) string {
	t.Helper()
	_, err := exec.LookPath("node")
	if err == nil {
		_, err = os.Stat(official)
	}
	if err != nil && os.Getenv("CI") == "true" {
		t.Fatal(err)
	}
	if err != nil {
		partstest.Skip(t, fmt.Sprintf("no official client (make conformance-setup): %v", err))
	}
	return pythonOfAgents(t)
}

// pythonOfAgents returns the Python of the agents, or skips as needed does.
func pythonOfAgents(t *testing.T) string {
	t.Helper()
	lock, err := os.ReadFile(filepath.Join(examples, "requirements.txt"))
	if err != nil {
		t.Fatal(err)
	}
	python, err := parts.Python{Name: "agents", Requirements: lock}.Interpreter(t.Context())
	if errors.Is(err, parts.ErrChecksum) || err != nil && os.Getenv("CI") == "true" {
		t.Fatal(err)
	}
	if err != nil {
		partstest.Skip(t, fmt.Sprintf("no Python: %v", err))
	}
	return python
}

// startAgent starts an example and returns its URL.
func startAgent(t *testing.T, python, name string) string {
	t.Helper()
	address := process.FreeAddress(t)
	p, err := process.Start(t, t.TempDir(), python, filepath.Join(examples, name+"_agent.py"), portOf(address))
	if err != nil {
		t.Fatal(err)
	}
	p.AwaitListening(address)
	return "http://" + address + "/"
}

func portOf(address string) string {
	_, port, _ := strings.Cut(address, ":")
	return port
}

// converse runs the stock client.
func converse(t *testing.T, args ...string) conversation {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), process.Patience)
	defer cancel()
	cmd := exec.CommandContext(ctx, "node", append([]string{"client.mjs"}, args...)...)
	var stderr strings.Builder
	cmd.Stderr = &stderr
	out, err := cmd.Output()
	if err != nil {
		t.Fatalf("the client: %v\n%s", err, stderr.String())
	}
	var c conversation
	decode(t, out, &c)
	if len(c.Runs) == 0 || len(c.Runs[0].Events) < 5 {
		t.Fatalf("the client saw %s", out)
	}
	return c
}

func settle(t *testing.T, server *dev.Server) {
	t.Helper()
	if err := server.Settle(t.Context()); err != nil {
		t.Fatal(err)
	}
}

func get(t *testing.T, c *client.Client, path string) []byte {
	t.Helper()
	body, err := c.Get(t.Context(), path, nil)
	if err != nil {
		t.Fatal(err)
	}
	return body
}

func decode(t *testing.T, text []byte, into any) {
	t.Helper()
	if err := json.Unmarshal(text, into); err != nil {
		t.Fatalf("%.300s: %v", text, err)
	}
}

// TestCopilotKit_RunsThroughTheProxy puts an unchanged CopilotKit runtime before the proxy. Its packages are 300 MB: they are there
// where "make copilotkit" has installed them, which says so.
func TestCopilotKit_RunsThroughTheProxy(t *testing.T) {
	if os.Getenv("SKEIN_COPILOTKIT") == "" {
		t.Skip("make copilotkit runs it")
	}
	python := needed(t)
	server := devtest.Start(t, devtest.Agents(t, "helper="+startAgent(t, python, "pydantic_ai")))
	address := process.FreeAddress(t)
	runtime, err := process.Start(t, t.TempDir(), "node", "copilotkit/runtime.mjs", portOf(address), server.URL()+"/v1/agents/helper")
	if err != nil {
		t.Fatal(err)
	}
	runtime.AwaitListening(address)
	ask := `{"method":"agent/run","params":{"agentId":"assistant"},"body":{"threadId":"copilot","runId":"copilot-1","state":{},` +
		`"messages":[{"id":"u1","role":"user","content":"Hello"}],"tools":[],"context":[],"forwardedProps":{}}}`
	said := callAgent(t, "http://"+address+"/api/copilotkit", ask)
	settle(t, server)
	c := devtest.Client(t, server.URL())
	// What came through, less the input that the runtime puts on RUN_STARTED, is what was kept.
	var seen, kept []map[string]any
	for line := range bytes.Lines(said) {
		if data, ok := bytes.CutPrefix(line, []byte("data: ")); ok {
			var event map[string]any
			decode(t, data, &event)
			delete(event, "input")
			seen = append(seen, event)
		}
	}
	for line := range bytes.Lines(get(t, c, client.RunPath("copilot", "copilot-1")+"/events")) {
		var event map[string]any
		decode(t, line, &event)
		kept = append(kept, event)
	}
	if len(kept) < 5 || !reflect.DeepEqual(seen, kept) {
		t.Errorf("the runtime gave\n%v, Skein has\n%v", seen, kept)
	}
	var history struct{ Messages []map[string]any }
	decode(t, get(t, c, client.ThreadPath("copilot")+"/history"), &history)
	if n := len(history.Messages); n != 2 {
		t.Errorf("the history is %v", history.Messages)
	}
}
