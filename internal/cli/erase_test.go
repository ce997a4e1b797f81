package cli

import (
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/skeinhq/skein/internal/app"
	"github.com/skeinhq/skein/internal/app/dev"
	"github.com/skeinhq/skein/pkg/client"
)

// An erased thread is found by no command.
func TestErase_LeavesNothingToAnyCommand(t *testing.T) {
	withServer(t, t.TempDir(), func(s *dev.Server, _ *client.Client) {
		at := "--url=" + s.URL()
		done := func(stdin string, args ...string) string {
			t.Helper()
			stdout, stderr, code := skein(t, stdin, append(args, at)...)
			if code != app.ExitDone {
				t.Fatalf("skein %v: exit %d: %s", args, code, stderr)
			}
			return stdout
		}
		input := writeFile(t, "input.json", `{"threadId":"t","runId":"r","messages":[{"id":"u","role":"user","content":"secret"}],"state":{},"tools":[],"context":[]}`)
		first := strings.Join([]string{eventStart, eventText, eventEnd}, "\n")
		done(first, "publish", "--input", input)
		done(strings.ReplaceAll(first, `"t"`, `"other"`), "publish")

		if _, stderr, code := skein(t, "y\n", "erase", "t", at); code != app.ExitUsage || !strings.Contains(stderr, "--yes") {
			t.Errorf("with nobody to ask: exit %d, %s", code, stderr)
		}
		if text := done("", "history", "t"); !strings.Contains(text, "secret") {
			t.Fatalf("history: %s", text)
		}
		var e struct {
			erasure
			ThreadID, Position string
		}
		if err := json.Unmarshal([]byte(done("", "erase", "t", "--yes", "--json")), &e); err != nil {
			t.Fatal(err)
		}
		if !e.done() || e.ThreadID != "t" || e.ErasedAt == nil || e.LocalPurgedBy == nil || e.CompactedBy == nil {
			t.Errorf("erasure is %+v", e)
		}
		for _, args := range [][]string{
			{"lineage", "t"}, {"history", "t"}, {"history", "t", "r"}, {"replay", "t"}, {"replay", "t", "r"}, {"replay", "t", "--all"},
			{"verify", "t"}, {"verify", "t", "r"}, {"export", "t"}, {"export", "t", "r"}, {"checkout", "t"}, {"checkout", "t", "r"},
			{"diff", "t"}, {"diff", "t", "r"},
		} {
			stdout, stderr, code := skein(t, "", append(args, at)...)
			if code != app.ExitNotFound || strings.Contains(stdout+stderr, "secret") {
				t.Errorf("skein %v of an erased thread: exit %d, %s%s", args, code, stdout, stderr)
			}
		}
		if text := done("", "threads", "--json"); strings.Contains(text, `"threadId":"t"`) || !strings.Contains(text, `"threadId":"other"`) {
			t.Errorf("threads are %s", text)
		}

		for _, again := range []string{"t", "never there"} {
			text := done("", "erase", again, "--yes")
			for _, says := range []string{"thread " + again + " is erased", "gone from the compactor's local store by 2",
				"gone from Kafka: run records and snapshots by 2", "no run of it was known"} {
				if !strings.Contains(text, says) {
					t.Errorf("a thread without runs: %s, want %s", text, says)
				}
			}
		}
		if text := done("", "erase", "never there", "--yes", "--no-wait", "--json"); !strings.Contains(text, `"href":"/v1/erasures/`) {
			t.Errorf("without waiting: %s", text)
		}
	})
}

// All threads of the key's tenant go, and what cannot be confirmed is not done.
func TestErase_AllThreads(t *testing.T) {
	withServer(t, t.TempDir(), func(s *dev.Server, _ *client.Client) {
		at := "--url=" + s.URL()
		first := strings.Join([]string{eventStart, eventText, eventEnd}, "\n")
		for _, thread := range []string{"t", "u", "v w"} {
			if _, stderr, code := skein(t, strings.ReplaceAll(first, `"t"`, `"`+thread+`"`), "publish", at); code != app.ExitDone {
				t.Fatalf("publishing: exit %d: %s", code, stderr)
			}
		}
		if stdout, _, code := skein(t, "", "history", "v w", at); code != app.ExitDone || stdout == "" {
			t.Fatalf("history: exit %d", code)
		}
		for _, args := range [][]string{{"erase"}, {"erase", "t", "--all-threads", "--yes"}, {"erase", "--all-threads"},
			{"erase", "--all-threads", "--yes", "--no-wait"}} {
			if _, stderr, code := skein(t, "y\n", append(args, at)...); code != app.ExitUsage {
				t.Errorf("skein %v: exit %d: %s", args, code, stderr)
			}
		}
		stdout, stderr, code := skein(t, "", "erase", "--all-threads", "--yes", "--json", at)
		var done allErased
		if err := json.Unmarshal([]byte(stdout), &done); err != nil || code != app.ExitDone {
			t.Fatalf("exit %d, %v: %s%s", code, err, stdout, stderr)
		}
		if done.Threads != 3 || done.Left != 0 || done.ErasedAt == nil || done.LocalPurgedBy == nil || done.CompactedBy == nil {
			t.Errorf("erased are %+v", done)
		}
		if stdout, _, code := skein(t, "", "history", "v w", at); code != app.ExitNotFound {
			t.Errorf("a history behind it: exit %d: %s", code, stdout)
		}
		if stdout, _, code := skein(t, "", "erase", "--all-threads", "--yes", at); code != app.ExitDone ||
			stdout != "the index has no threads\n" {
			t.Errorf("once more: exit %d: %s", code, stdout)
		}
	})
}

// A refusal for a time is waited for, any other ends it, and threads that are there behind it are said.
func TestErase_AllThreadsWaitsAndTellsWhatIsLeft(t *testing.T) {
	var refused, deletes, follows atomic.Int32
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		switch {
		case r.Method == http.MethodGet && r.URL.Path == "/v1/threads":
			_, _ = io.WriteString(w, `{"threads":[{"threadId":"a"},{"threadId":"b"}]}`)
		case r.Method == http.MethodDelete && refused.Add(1) == 1:
			w.WriteHeader(http.StatusTooManyRequests)
		case r.Method == http.MethodDelete:
			n := deletes.Add(1)
			w.WriteHeader(http.StatusAccepted)
			_, _ = fmt.Fprintf(w, `{"threadId":"a","position":"0:%d","href":"/v1/erasures/0:%d"}`, n, n)
		case r.URL.Path == "/v1/erasures/0:2" && follows.Add(1) == 1:
			w.WriteHeader(http.StatusServiceUnavailable)
		case r.URL.Path == "/v1/erasures/0:2":
			_, _ = io.WriteString(w, `{"state":"done","erasedAt":"2026-11-26T12:00:00Z"}`)
		default:
			t.Errorf("%s %s", r.Method, r.URL)
		}
	}))
	defer server.Close()
	stdout, stderr, code := skein(t, "", "erase", "--all-threads", "--yes", "--url="+server.URL)
	if code != app.ExitFailed || deletes.Load() != 2 || !strings.HasPrefix(stdout, "2 threads are erased") ||
		!strings.Contains(stderr, "2 threads are left") {
		t.Errorf("exit %d after %d requests: %s%s", code, deletes.Load(), stdout, stderr)
	}
}

func TestErase_AsksBeforeItActs(t *testing.T) {
	var reads atomic.Int32
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		reads.Add(1)
		if r.Method != http.MethodGet {
			t.Errorf("%s %s", r.Method, r.URL)
		}
		_, _ = io.WriteString(w, `{"threadId":"t","runs":3}`)
	}))
	defer server.Close()
	api, err := client.New(server.URL)
	if err != nil {
		t.Fatal(err)
	}
	defer api.Close()
	for answer, meant := range map[string]bool{"y\n": true, " YES \n": true, "": false, "\n": false, "n\n": false, "yes, please\n": false} {
		var stderr strings.Builder
		err := confirm(t.Context(), newOutput(io.Discard, &stderr, nil), strings.NewReader(answer),
			erasureQuestion("t\x1b", indexedRuns(t.Context(), api, "t\x1b")), errNotMeant)
		if (err == nil) != meant {
			t.Errorf("%q: %v", answer, err)
		}
		if text := stderr.String(); !strings.Contains(text, "with 3 runs? It cannot be undone.") || strings.Contains(text, "\x1b") {
			t.Errorf("it asks %q", text)
		}
	}
	if n := reads.Load(); n != 6 {
		t.Errorf("%d requests", n)
	}
}
