package cli

import (
	"net/http"
	"slices"
	"strings"
	"testing"

	"github.com/skeinhq/skein/internal/app"
	"github.com/skeinhq/skein/internal/app/dev"
	"github.com/skeinhq/skein/pkg/client"
)

// Why a run failed, what it waits for and what was odd about it stands in show and history, as text and as JSON.
func TestShow_SaysWhyARunEndedAndWhatItWaitsFor(t *testing.T) {
	withServer(t, t.TempDir(), func(s *dev.Server, _ *client.Client) {
		_, ok := against(t, s)
		failed := strings.Join([]string{
			`{"type":"RUN_STARTED","threadId":"t","runId":"failed"}`, `{"type":"STEP_FINISHED","stepName":"never begun"}`,
			`{"type":"RUN_ERROR","message":"the model is overloaded","code":"529"}`,
		}, "\n")
		waits := strings.Join([]string{
			`{"type":"RUN_STARTED","threadId":"t","runId":"waits"}`,
			`{"type":"RUN_FINISHED","threadId":"t","runId":"waits","outcome":{"type":"interrupt","interrupts":[{"id":"i-1","reason":"tool_call","message":"Refund 40 EUR?","toolCallId":"call-1"}]}}`,
		}, "\n")
		ok("publish", writeFile(t, "failed.jsonl", failed))
		ok("publish", writeFile(t, "waits.jsonl", waits))
		const failure, question = "the model is overloaded (529)", "interrupt i-1: tool_call: Refund 40 EUR? (tool call call-1)"
		for _, c := range []struct{ args, want []string }{
			{[]string{"show", "t", "failed"}, []string{
				"run failed in thread t: error\nerror       " + failure + "\n", "step-end-not-open 1\n", "events      3: ", "raw         skein.events ",
				"sha256 ",
			}},
			{[]string{"show", "t"}, []string{"run waits in thread t: interrupted\nwaits for   " + question + "\n"}},
			{[]string{"history", "t", "failed"}, []string{"error: " + failure + "\n"}},
			{[]string{"history", "t", "waits"}, []string{"waits for " + question + "\n"}},
			{[]string{"history", "t", "failed", "--json"}, []string{`"error":{"message":"the model is overloaded","code":"529"}`}},
			{[]string{"history", "t", "waits", "--json"}, []string{`"interrupts":[{"id":"i-1",`}},
			{[]string{"show", "t", "failed", "--json"}, []string{`"terminal":{"type":"RUN_ERROR"`, `"step-end-not-open":1`}},
		} {
			text := ok(c.args...)
			for _, want := range c.want {
				if !strings.Contains(text, want) {
					t.Errorf("skein %s has no %q:\n%s", strings.Join(c.args, " "), want, text)
				}
			}
		}
		for _, args := range [][]string{{"show", "nobody"}, {"show", "t", "nobody"}} {
			if _, stderr, code := skein(t, "", append(args, "--url", s.URL())...); code != app.ExitNotFound || !strings.Contains(stderr, "there is no") {
				t.Errorf("%v: exit %d, %s", args, code, stderr)
			}
		}
		completes(t, s.URL())
		namesMethods(t, s.URL())
		if stdout, stderr, code := skein(t, "", "status", s.URL()); code != 0 || !strings.HasPrefix(stdout, "ingest\tok\t") ||
			!strings.Contains(stdout, "\nquery\tok\t") {
			t.Errorf("status of skein dev at its own address: exit %d, %s%s", code, stdout, stderr)
		}
	})
}

// completes checks what a shell gets for Tab: the server's threads and runs, and the words that a flag takes.
func completes(t *testing.T, url string) {
	for line, want := range map[string]string{
		"show ": "t", "show x": "", "show t ": "failed waits", "lineage t --ancestors ": "failed waits", "erase ": "t", "erase t ": "",
		"lineage t -o ": "text wide name json jsonl mermaid", "threads -o ": "table wide name json jsonl",
		"threads --sort ": "updated started id",
	} {
		words := strings.Split(line, " ")
		stdout, _, code := skein(t, "", append([]string{"__completeNoDesc", words[0], "--url", url}, words[1:]...)...)
		offered, _, _ := strings.Cut(stdout, ":4\n") // no file names
		if got := strings.Fields(offered); code != 0 || !slices.Equal(got, strings.Fields(want)) || !strings.Contains(stdout, ":4\n") {
			t.Errorf("completing %q: exit %d, %q, want %q", line, code, stdout, want)
		}
	}
}

// namesMethods checks that a method that a path does not take is refused with all that it takes, of both stages.
func namesMethods(t *testing.T, url string) {
	defer http.DefaultClient.CloseIdleConnections()
	for path, want := range map[string]string{
		"/v1/threads/t/runs/r/events": "GET, HEAD, POST", "/v1/threads/t": "DELETE, GET, HEAD, PATCH", "/v1/threads": "GET, HEAD",
		"/v1/threads/t/runs/r/input": "PUT", "/v1/connect": "POST",
	} {
		req, err := http.NewRequestWithContext(t.Context(), http.MethodTrace, url+path, nil)
		if err != nil {
			t.Fatal(err)
		}
		resp, err := http.DefaultClient.Do(req)
		if err != nil {
			t.Fatal(err)
		}
		_ = resp.Body.Close() // not read
		if got := resp.Header.Get("Allow"); resp.StatusCode != http.StatusMethodNotAllowed || got != want {
			t.Errorf("TRACE %s: %d, Allow %q, want %q", path, resp.StatusCode, got, want)
		}
	}
}

// diff has the exit codes of diff and git: 1 is a difference only.
func TestDiff_FailsWithAnotherCodeThanADifference(t *testing.T) {
	if _, _, code := skein(t, "", "diff", "t", "--url", "http://127.0.0.1:1"); code != 2 {
		t.Errorf("nobody answers: exit %d, want 2", code)
	}
}
