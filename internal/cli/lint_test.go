package cli

import (
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/owenrumney/go-sarif/v3/pkg/report/v210/sarif"

	"github.com/skeinhq/skein/internal/app"
	"github.com/skeinhq/skein/pkg/lint"
)

const (
	lintStarted  = `{"type":"RUN_STARTED","threadId":"t","runId":"r"}`
	lintContent  = `{"type":"TEXT_MESSAGE_CONTENT","messageId":"m1","delta":"x"}`
	lintFinished = `{"type":"RUN_FINISHED","threadId":"t","runId":"r"}`
)

func TestLint_SaysWhereAndWhat(t *testing.T) {
	for name, c := range map[string]struct{ text, where string }{
		"NDJSON":   {lintStarted + "\n" + lintContent + "\n" + lintFinished + "\n", ":2"},
		"SSE":      {"data: " + lintStarted + "\n\ndata: " + lintContent + "\n\ndata: " + lintFinished + "\n\n", ":3"},
		"array":    {"\n[" + lintStarted + ",\n\n" + lintContent + "," + lintFinished + "]", ":4"},
		"laid out": {"[\n  {\n    \"type\": \"RUN_STARTED\",\n    \"threadId\": \"t\", \"runId\": \"r\"\n  },\n  {\"type\": \"TEXT_MESSAGE_CONTENT\",\n    \"messageId\": \"m1\", \"delta\": \"x\"\n  },\n" + lintFinished + "]", ":6"},
		"objects":  {lintStarted + lintContent + lintFinished, ":1"},
	} {
		path := writeFile(t, "run.jsonl", c.text)
		want := path + c.where + `: error: text-content-not-open: TEXT_MESSAGE_CONTENT for message "m1", which is not open` + "\n" + path + ": 1 error in 3 events; the client ends the run at "
		stdout, stderr, code := skein(t, "", "lint", path)
		if code != app.ExitDiffers || !strings.HasPrefix(stdout, want) ||
			!strings.Contains(stdout, "TEXT_MESSAGE_START first, with the same id.") || strings.Count(stderr, "\n") != 1 {
			t.Errorf("%s: exit %d, stdout %q, stderr %q, want %q", name, code, stdout, stderr, want)
		}
	}
}

func TestLint_PrintsJSONAndSARIF(t *testing.T) {
	events := lintStarted + "\n" + lintContent + "\n" + lintFinished + "\n"
	stdout, _, code := skein(t, events, "lint", "--json", "-")
	var f lint.Finding
	if err := json.Unmarshal([]byte(stdout), &f); err != nil {
		t.Fatal(err)
	}
	if want := "text-content-not-open error stdin 2 2 r TEXT_MESSAGE_CONTENT"; code != app.ExitDiffers || fmt.Sprint(f.Rule, " ", f.Level, " ", f.File, " ", f.Line, " ", f.Event, " ", f.Run, " ", f.Type) != want || f.Help == "" {
		t.Errorf("exit %d, %+v", code, f)
	}
	stdout, _, code = skein(t, events, "lint", "--sarif", "-")
	log, err := sarif.FromString(stdout)
	if err != nil {
		t.Fatal(err)
	}
	if err := log.Validate(); err != nil || code != app.ExitDiffers || len(log.Runs[0].Results) != 1 {
		t.Errorf("exit %d, %v: %s", code, err, stdout)
	}
	if stdout, _, _ := skein(t, "", "lint", "--sarif", writeFile(t, "a run#1.jsonl", events)); !strings.Contains(stdout, `/a%20run%231.jsonl"`) {
		t.Errorf("a file's name is no reference: %s", stdout)
	}
	// A clean stream is a log without results, which closes what code scanning has open.
	stdout, stderr, code := skein(t, lintStarted+"\n"+lintFinished, "lint", "--sarif", "-")
	if log, err = sarif.FromString(stdout); err != nil || code != 0 || len(log.Runs[0].Results) != 0 || !strings.Contains(stdout, `"results":[]`) {
		t.Errorf("exit %d, %v: %s%s", code, err, stdout, stderr)
	}
}

// agent answers each request with the next of a few answers, and says what it was asked.
func agent(t *testing.T, answer http.HandlerFunc) (url string, asked func() int) {
	t.Helper()
	n := 0
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		n++
		answer(w, r)
	}))
	t.Cleanup(server.Close)
	return server.URL + "/agent", func() int { return n }
}

func TestLint_AsksAnAgentOnce(t *testing.T) {
	var header http.Header
	var body []byte
	address, asked := agent(t, func(w http.ResponseWriter, r *http.Request) {
		header = r.Header
		body, _ = io.ReadAll(r.Body) // what is not there is missed below
		w.Header().Set("Content-Type", "text/event-stream; charset=utf-8")
		_, _ = fmt.Fprintf(w, "data: %s\n\ndata: %s\n\n", lintStarted, lintFinished)
	})
	stdout, stderr, code := skein(t, "", "lint", address+"?token=secret", "--header", "Authorization: Bearer secret")
	if code != 0 || stdout != address+": no findings\n" || stderr != "" || asked() != 1 {
		t.Errorf("exit %d, %s%s, asked %d times", code, stdout, stderr, asked())
	}
	if header.Get("Accept") != "text/event-stream" || header.Get("Content-Type") != "application/json" ||
		header.Get("Authorization") != "Bearer secret" {
		t.Errorf("asked with %v", header)
	}
	// What is sent has to be an input that the client could send.
	var input struct {
		ThreadID, RunID string
		Messages        []struct{ Role, Content string }
	}
	if err := json.Unmarshal(body, &input); err != nil || input.ThreadID == "" || input.RunID == "" || len(input.Messages) != 1 ||
		input.Messages[0].Role != "user" {
		t.Errorf("asked with %s: %v", body, err)
	}
	const mine = `{"threadId":"mine","runId":"r","messages":[]}`
	if _, _, code := skein(t, "", "lint", address, "--input", writeFile(t, "input.json", mine)); code != 0 || string(body) != mine {
		t.Errorf("exit %d, asked with %s", code, body)
	}
}

// A stream that does not end is left after the timeout.
func TestLint_WaitsNoLongerThanTheTimeout(t *testing.T) {
	address, _ := agent(t, func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Content-Type", "text/event-stream")
		_, _ = fmt.Fprintf(w, "data: %s\n\n", lintStarted)
		_ = http.NewResponseController(w).Flush() // the wait below shows that it came
		<-r.Context().Done()
	})
	began := time.Now()
	_, stderr, code := skein(t, "", "lint", address, "--timeout", "200ms")
	if code != app.ExitFailed || !strings.Contains(stderr, "within --timeout 200ms") || time.Since(began) > 10*time.Second {
		t.Errorf("exit %d, %s after %v", code, stderr, time.Since(began))
	}
}
