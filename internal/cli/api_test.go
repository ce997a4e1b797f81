package cli

import (
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"reflect"
	"strings"
	"testing"
	"time"

	"github.com/skeinhq/skein/internal/app"
	"github.com/skeinhq/skein/internal/app/dev"
	"github.com/skeinhq/skein/internal/recordings"
	"github.com/skeinhq/skein/pkg/artifact"
	"github.com/skeinhq/skein/pkg/client"
)

// against gives the flag that sends a command to a server, and what runs a command there that has to succeed and
// returns its output.
func against(t *testing.T, s *dev.Server) (at string, run func(args ...string) string) {
	at = "--url=" + s.URL()
	return at, func(args ...string) string {
		t.Helper()
		stdout, stderr, code := skein(t, "", append(args, at)...)
		if code != 0 {
			t.Fatalf("skein %v: exit %d: %s", args, code, stderr)
		}
		return stdout
	}
}

// TestCommands_OverHTTP goes the way of a user: publish the runs of a thread, then look at them.
func TestCommands_OverHTTP(t *testing.T) {
	withServer(t, t.TempDir(), func(s *dev.Server, _ *client.Client) {
		thread, ok := recordings.Find("ag-ui-adk", "tools")
		if !ok {
			t.Fatal("the recording is gone")
		}
		at, ok0 := against(t, s)
		if stdout, stderr, code := skein(t, "", "threads", at); code != 0 || stdout != "" || !strings.Contains(stderr, "no threads") {
			t.Errorf("an empty server: exit %d, %q, %q", code, stdout, stderr)
		}
		for i, path := range files(t, thread, true) {
			var p published
			input := strings.TrimSuffix(path, ".jsonl") + ".input.json"
			if err := json.Unmarshal([]byte(ok0("publish", path, "--input", input, "--json")), &p); err != nil {
				t.Fatal(err)
			}
			if p.RunID != thread.Runs[i].RunID || p.ThreadID != thread.ThreadID || int(p.Accepted) != len(thread.Runs[i].Lines()) ||
				p.InputPosition == "" {
				t.Errorf("published %+v", p)
			}
		}
		var listed struct {
			ThreadID string
			Runs     int
		}
		if err := json.Unmarshal([]byte(ok0("threads", "--json")), &listed); err != nil || listed.ThreadID != thread.ThreadID ||
			listed.Runs != len(thread.Runs) {
			t.Errorf("threads --json: %+v, %v", listed, err)
		}
		if text := ok0("threads"); !strings.Contains(text, thread.ThreadID) || strings.Count(text, "\n") != 1 || !strings.HasPrefix(text, thread.ThreadID+"\t") {
			t.Errorf("threads: %s", text)
		}
		if text := ok0("runs"); strings.Count(text, "\n") != len(thread.Runs) || !strings.Contains(text, thread.ThreadID+"\t"+thread.Runs[0].RunID+"\t") {
			t.Errorf("runs: %s", text)
		}
		if text := ok0("runs", "-o", "name", "--order", "asc", "--limit", "0"); !strings.HasPrefix(text,
			thread.ThreadID+"\t"+thread.Runs[0].RunID+"\n") {
			t.Errorf("runs -o name: %s", text)
		}
		var array []struct{ RunID string }
		if text := ok0("runs", "-o", "json"); json.Unmarshal([]byte(text), &array) != nil || len(array) != len(thread.Runs) {
			t.Errorf("runs -o json: %s", text)
		}
		if stdout, stderr, code := skein(t, "", "runs", "--limit", "1", "--order", "asc", "--json", at); code != 0 ||
			strings.Count(stdout, "\n") != 1 ||
			!strings.Contains(stdout, `"runId":"`+thread.Runs[0].RunID+`"`) || !strings.Contains(stderr, "there are more runs") {
			t.Errorf("runs --json: exit %d, %s %s", code, stdout, stderr)
		}
		if text := ok0("runs", "--limit", "0", "--label", "none", "--label", "other=x"); text != "" {
			t.Errorf("runs with labels that none has: %s", text)
		}
		if text := ok0("stats", "--by", "status", "--measure", "runs,toolFailures"); text != fmt.Sprintf("finished\t%d\t0\n", len(thread.Runs)) {
			t.Errorf("stats: %s", text)
		}
		if text := ok0("stats", "--json"); !strings.HasPrefix(text, `{"by":[],"measures":["runs"],"groups":[`) {
			t.Errorf("stats --json: %s", text)
		}
		for format, want := range map[string]string{"text": "◄ tip", "wide": "◄ tip", "json": `"branches"`, "mermaid": "gitGraph"} {
			if text := ok0("lineage", thread.ThreadID, "-o", format); !strings.Contains(text, want) ||
				!strings.Contains(text, thread.Runs[0].RunID) {
				t.Errorf("lineage -o %s: %s", format, text)
			}
		}
		var ids string
		for line := range strings.Lines(ok0("lineage", thread.ThreadID, "-o", "jsonl")) {
			var r struct{ RunID, Status string }
			if err := json.Unmarshal([]byte(line), &r); err != nil || r.Status == "" {
				t.Errorf("lineage -o jsonl: %s (%v)", line, err)
			}
			ids += r.RunID + "\n"
		}
		if text := ok0("lineage", thread.ThreadID, "-o", "name"); text != ids || strings.Count(text, "\n") != len(thread.Runs) {
			t.Errorf("lineage -o name: %s, -o jsonl has %s", text, ids)
		}
		if text := ok0("lineage", thread.ThreadID, "--ascii"); !strings.Contains(text, "<- tip") || strings.Contains(text, "●") {
			t.Errorf("lineage --ascii: %s", text)
		}

		var tip, last, client, first struct{ Messages, State any }
		decode := func(v any, text string) {
			t.Helper()
			if err := json.Unmarshal([]byte(text), v); err != nil {
				t.Fatal(err)
			}
		}
		decode(&tip, ok0("history", thread.ThreadID, "--json"))
		decode(&last, ok0("history", thread.ThreadID, thread.Runs[len(thread.Runs)-1].RunID, "--json"))
		decode(&first, ok0("history", thread.ThreadID, thread.Runs[0].RunID, "--json"))
		decode(&client, string(thread.Client))
		if g, w := canonical(t, tip), canonical(t, client); g != w {
			t.Errorf("the tip's history is\n%s\nthe official client has\n%s", g, w)
		}
		if canonical(t, tip) != canonical(t, last) || canonical(t, tip) == canonical(t, first) {
			t.Error("the run's own history is not given")
		}
		if text := ok0("history", thread.ThreadID); !strings.Contains(text, "→ ") || !strings.Contains(text, "\nstate\n") {
			t.Errorf("history for people: %s", text)
		}

		first0, last0 := thread.Runs[0].RunID, thread.Runs[len(thread.Runs)-1].RunID
		if text := ok0("lineage", thread.ThreadID, "--ancestors", last0); !strings.Contains(text, first0) || !strings.Contains(text, last0) || !strings.Contains(text, "◄ tip") {
			t.Errorf("lineage --ancestors: %s", text)
		}
		if text := ok0("lineage", thread.ThreadID, "--ancestors", first0); !strings.Contains(text, first0) || strings.Contains(text, "◄ tip") {
			t.Errorf("lineage --ancestors marks the cut as a tip: %s", text)
		}
		if text := ok0("lineage", thread.ThreadID, "--descendants", first0); !strings.Contains(text, last0) || strings.Contains(text, first0) {
			t.Errorf("lineage --descendants draws what its runs hang from: %s", text)
		}
		if _, stderr, code := skein(t, "", "lineage", thread.ThreadID, "--ancestors", last0, "--siblings", last0, at); code != app.ExitUsage {
			t.Errorf("two parts at once: exit %d, %s", code, stderr)
		}
		stdout, stderr, code := skein(t, "", "diff", thread.ThreadID, first0, last0, at)
		if code != 1 || stderr != "" || !strings.Contains(stdout, "\n+ run "+last0) || !strings.Contains(stdout, "\n+ assistant ") {
			t.Errorf("diff: exit %d, %s %s", code, stdout, stderr)
		}
		if stdout, stderr, code := skein(t, "", "diff", thread.ThreadID, "--json", at); code != 1 || stderr != "" || !strings.Contains(stdout, `"statePatch":`) || strings.Count(stdout, "\n") != 1 {
			t.Errorf("diff --json: exit %d, %s %s", code, stdout, stderr)
		}
		if text := ok0("diff", thread.ThreadID, first0, first0); !strings.Contains(text, "\nnothing differs\n") {
			t.Errorf("diff of a run with itself: %s", text)
		}

		exported := func(args ...string) *artifact.Artifact {
			t.Helper()
			stdout, stderr, code := skein(t, "", args...)
			a, err := artifact.Decode([]byte(stdout))
			if code != 0 || err != nil || !strings.Contains(stderr, artifact.Projection+": ") {
				t.Fatalf("skein %v: exit %d, %s, %v in %s", args, code, stderr, err, stdout)
			}
			a.FinishedAt = time.Time{} // by Kafka's clock, which the files know nothing of
			return a
		}
		const began = "--started-at=2026-09-17T12:00:00Z"
		ofTip := exported("export", thread.ThreadID, began, at)
		if ofRun := exported("export", thread.ThreadID, last0, began, at); !reflect.DeepEqual(ofRun, ofTip) || ofRun.RunIDRef != last0 {
			t.Errorf("of the run %+v, of the tip %+v", ofRun, ofTip)
		}
		if ofFiles := exported(append([]string{"fold", "--export", began}, files(t, thread, true)...)...); !reflect.DeepEqual(ofFiles, ofTip) ||
			ofFiles.ParentRunIDRef != first0 {
			t.Errorf("of the files %+v, of the server %+v", ofFiles, ofTip)
		}

		for _, c := range []struct {
			args []string
			want string
		}{
			{[]string{"export", thread.ThreadID, "no-such-run"}, "there is no run no-such-run in thread"},
			{[]string{"diff", thread.ThreadID, "no-such-run"}, "there is no run no-such-run in thread"},
			{[]string{"diff", thread.ThreadID, first0, "no-such-run"}, "there is no run no-such-run in thread"},
			{[]string{"lineage", thread.ThreadID, "--siblings", "no-such-run"}, "there is no run no-such-run in thread"},
			{[]string{"checkout", thread.ThreadID, "no-such-run"}, "its runs: skein lineage " + thread.ThreadID},
			{[]string{"history", "no-such-thread"}, "all threads: skein threads --url " + s.URL()},
			{[]string{"lineage", "no/such/thread"}, "all threads: skein threads"},
			{[]string{"history", thread.ThreadID, "no-such-run"}, "its runs: skein lineage " + thread.ThreadID + " --url " + s.URL()},
		} {
			if stdout, stderr, code := skein(t, "", append(c.args, at)...); code != app.ExitNotFound || stdout != "" || !strings.Contains(stderr, c.want) {
				t.Errorf("%v: exit %d, %q, %q", c.args, code, stdout, stderr)
			}
		}
		stateStops(t, at, thread, ok0)
		comesBack(t, thread, ok0)
	})
}

// comesBack checks that whatever was checked out goes on where it says: as a child of the run, or as its sibling.
func comesBack(t *testing.T, thread recordings.Thread, ok0 func(...string) string) {
	first, second := thread.Runs[0].RunID, thread.Runs[1].RunID
	for run, args := range map[string][]string{"mine": {first}, "again": {second, "--at=start"}, "amid": {first, "--at=2"}} {
		args = append([]string{"checkout", thread.ThreadID, "--run-id", run}, args...)
		input := writeFile(t, "input.json", ok0(args...))
		text := `{"type":"RUN_STARTED","threadId":"` + thread.ThreadID + `","runId":"` + run + `"}` + "\n" + `{"type":"RUN_FINISHED","threadId":"` + thread.ThreadID + `","runId":"` + run + `"}`
		ok0("publish", writeFile(t, "run.jsonl", text), "--input", input)
		var all struct {
			Runs []struct{ RunID, ParentRunID, ParentBy string }
		}
		if err := json.Unmarshal([]byte(ok0("lineage", thread.ThreadID, "--json")), &all); err != nil {
			t.Fatal(err)
		}
		if last := all.Runs[len(all.Runs)-1]; last.RunID != run || last.ParentRunID != first || last.ParentBy != "explicit" {
			t.Errorf("checked out as %s: %+v", run, last)
		}
	}
	ok0("checkout", thread.ThreadID, first, "--at=00") // another form of the start; the first run has no parent
	// What the second run was started with is given back whole.
	var was, is struct{ Messages, State, Tools any }
	if err := json.Unmarshal(thread.Runs[1].Input, &was); err != nil {
		t.Fatal(err)
	}
	if err := json.Unmarshal([]byte(ok0("checkout", thread.ThreadID, second, "--at=0")), &is); err != nil {
		t.Fatal(err)
	}
	if g, w := canonical(t, is), canonical(t, was); g != w {
		t.Errorf("checked out\n%s\nthe run was started with\n%s", g, w)
	}
}

// A publish that was stopped by a bad line says with which number to go on, and repeating the
// whole of it doubles nothing.
func TestPublish_GoesOnAfterABadLine(t *testing.T) {
	onShared(t, func(s *dev.Server, _ *client.Client) {
		at := "--url=" + s.URL()
		path := filepath.Join(t.TempDir(), "run.jsonl")
		write := func(third string) {
			t.Helper()
			lines := []string{
				`{"type":"RUN_STARTED","threadId":"bad-line","runId":"r"}`,
				`{"type":"TEXT_MESSAGE_START","messageId":"m"}`,
				third,
				`{"type":"TEXT_MESSAGE_END","messageId":"m"}`,
				`{"type":"RUN_FINISHED","threadId":"bad-line","runId":"r"}`,
			}
			if err := os.WriteFile(path, []byte(strings.Join(lines, "\n")), 0o600); err != nil {
				t.Fatal(err)
			}
		}
		for _, bad := range []string{`{"type":"TEXT_MESSAGE_CONTENT",`, `{"messageId":"m","delta":"no type"}`} {
			write(bad)
			_, stderr, code := skein(t, "", "publish", path, at)
			if code != app.ExitFailed || !strings.Contains(stderr, "line 3") || !strings.Contains(stderr, "--from 2") {
				t.Errorf("%s: exit %d, %s", bad, code, stderr)
			}
		}
		write(`{"type":"TEXT_MESSAGE_CONTENT","messageId":"m","delta":"hello"}`)
		stdout, stderr, code := skein(t, "", "publish", path, "--from", "2", at)
		if code != 0 || !strings.HasPrefix(stdout, "3 events of run r in thread bad-line at ") {
			t.Errorf("exit %d, %s %s", code, stdout, stderr)
		}
		// Again, whole, from stdin: every event is known and dropped.
		text, err := os.ReadFile(path)
		if err != nil {
			t.Fatal(err)
		}
		if _, stderr, code := skein(t, string(text), "publish", at); code != 0 || !strings.Contains(stderr, "run r had ended before") {
			t.Errorf("exit %d, %s", code, stderr)
		}
		stdout, stderr, code = skein(t, "", "history", "bad-line", "--json", at)
		if code != 0 || !strings.Contains(stdout, `"content":"hello"`) || strings.Count(stdout, `"role"`) != 1 {
			t.Errorf("exit %d, %s %s", code, stdout, stderr)
		}
		stdout, _, _ = skein(t, "", "lineage", "bad-line", "--json", at)
		if strings.Contains(stdout, "r~2") {
			t.Errorf("the repeat made a run of its own: %s", stdout)
		}
	})
}

// stateStops asks for the state of a published thread at each event.
func stateStops(t *testing.T, at string, thread recordings.Thread, ok0 func(...string) string) {
	last := thread.Runs[len(thread.Runs)-1]
	total := len(last.Lines())
	var end, history struct {
		RunID           string
		N, Total        int
		Messages, State any
	}
	if err := json.Unmarshal([]byte(ok0("state", thread.ThreadID, "--json")), &end); err != nil {
		t.Fatal(err)
	}
	if err := json.Unmarshal([]byte(ok0("history", thread.ThreadID, "--json")), &history); err != nil {
		t.Fatal(err)
	}
	if canonical(t, end.Messages) != canonical(t, history.Messages) || canonical(t, end.State) != canonical(t, history.State) ||
		end.RunID != last.RunID || end.N != total || end.Total != total {
		t.Errorf("at its end the run is %+v, its history %+v", end, history)
	}
	begin := fmt.Sprintf("step 0 of %d: the start, by the run's input, at ", total)
	if text := ok0("state", thread.ThreadID, last.RunID, "--at", "0"); !strings.HasPrefix(text, begin) || !strings.Contains(text, "\n+ user ") || !strings.Contains(text, "\nstate\n") {
		t.Errorf("at its start, for people: %s", text)
	}
	grown := false
	for n := range total {
		text := ok0("state", thread.ThreadID, last.RunID, "--at", fmt.Sprint(n+1))
		if !strings.HasPrefix(text, fmt.Sprintf("step %d of %d: ", n+1, total)) {
			t.Errorf("step %d: %s", n+1, text)
		}
		grown = grown || strings.Contains(text, "\n~ message ") && strings.Contains(text, "\n  + ")
	}
	if !grown {
		t.Error("no step shows a message that grew")
	}
	for _, c := range []struct {
		args []string
		code int
		want string
	}{
		{[]string{"state", thread.ThreadID, last.RunID, "--at", fmt.Sprint(total + 1)}, app.ExitNotFound, fmt.Sprintf("to %d", total)},
		{[]string{"state", thread.ThreadID, "nobody"}, app.ExitNotFound, "there is no run nobody in thread"},
		{[]string{"state", "nowhere"}, app.ExitNotFound, "there is no thread nowhere"},
		{[]string{"state", thread.ThreadID, "--at", "soon"}, app.ExitUsage, "--at must be the number of a step"},
		{[]string{"state"}, app.ExitUsage, "usage: skein state THREAD [RUN]"},
	} {
		if stdout, stderr, code := skein(t, "", append(c.args, at)...); code != c.code || stdout != "" || !strings.Contains(stderr, c.want) {
			t.Errorf("skein %v: exit %d, %s%s", c.args, code, stdout, stderr)
		}
	}
}

// Commands say the same tokens: of two providers, with a total that the agent wrote, a zero, and a count that is absent.
func TestCommands_SayTheSameTokens(t *testing.T) {
	withServer(t, t.TempDir(), func(s *dev.Server, _ *client.Client) {
		_, run := against(t, s)
		for name, usage := range map[string]string{
			"whole": `{"provider":"anthropic","model":"m1","inputTokens":100,"outputTokens":20,"cachedInputTokens":90},` +
				`{"provider":"openai","model":"m1","inputTokens":10,"outputTokens":2,"totalTokens":99}`,
			"part": `{"model":"m1","outputTokens":0,"totalTokens":99}`,
		} {
			path := filepath.Join(t.TempDir(), name+".jsonl")
			const events = `{"type":"RUN_STARTED","threadId":%[1]q,"runId":"r"}` + "\n" + `{"type":"RUN_FINISHED","threadId":%[1]q,"runId":"r","usage":[%[2]s]}` + "\n" +
				`{"type":"RUN_STARTED","threadId":%[1]q,"runId":"child","parentRunId":"r"}` + "\n" + // which counts for itself
				`{"type":"RUN_FINISHED","threadId":%[1]q,"runId":"child","usage":[{"model":"m2","inputTokens":1,"outputTokens":1}]}` + "\n"
			text := fmt.Sprintf(events, name, usage)
			if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
				t.Fatal(err)
			}
			run("publish", path)
		}
		for _, c := range []struct {
			args []string
			want string
		}{
			{[]string{"show", "whole", "r"}, "m1 (anthropic): 100 in, 20 out"},
			{[]string{"show", "whole", "r"}, "m1 (openai): 10 in, 2 out"},
			{[]string{"show", "part", "r"}, "m1: - in, 0 out"},
			{[]string{"runs", "--sort", "tokens", "--limit", "1", "--json"}, `"models":["m1"],"inputTokens":110,"outputTokens":22,"tokens":132`},
			{[]string{"runs", "--sort", "tokens", "--order", "asc", "--limit", "1", "--json"}, `"models":["m1"],"outputTokens":0,`},
			{[]string{"stats", "--by", "model", "--measure", "inputTokens,outputTokens,tokens,runs"}, "m1\t110\t22\t132\t2\nm2\t2\t2\t4\t2"},
		} {
			if got := run(c.args...); !strings.Contains(got, c.want) {
				t.Errorf("skein %v:\n%s\nhas not %s", c.args, got, c.want)
			}
		}
	})
}
