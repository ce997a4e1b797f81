package cli

import (
	"encoding/json"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/skeinhq/skein/internal/app"
	"github.com/skeinhq/skein/internal/app/dev"
	"github.com/skeinhq/skein/internal/client"
)

// An erased thread is found by no command, and one that is published behind it is a new one.
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
			for _, says := range []string{"thread " + again + " is erased", "gone from the compactor's local store by 2", "gone from Kafka: run records and snapshots by 2", "no run of it was known"} {
				if !strings.Contains(text, says) {
					t.Errorf("a thread without runs: %s, want %s", text, says)
				}
			}
		}
		if text := done("", "erase", "never there", "--yes", "--no-wait", "--json"); !strings.Contains(text, `"href":"/v1/erasures/`) {
			t.Errorf("without waiting: %s", text)
		}

		done(first, "publish")
		if text := done("", "history", "t", "--json"); strings.Contains(text, "secret") || !strings.Contains(text, `"messages":[]`) {
			t.Errorf("the new thread's history is %s", text)
		}
		if text := done("", "replay", "t", "--all"); text != first+"\n" {
			t.Errorf("the new thread's events are %s", text)
		}
		done("", "verify", "t")
	})
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
		err := confirmErasure(t.Context(), newOutput(io.Discard, &stderr, nil), "t\x1b", indexedRuns(t.Context(), api, "t\x1b"), strings.NewReader(answer))
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

// What is not done is said to be so, with the place where one can look later.
func TestErase_SaysWhatIsNotDone(t *testing.T) {
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.Method == http.MethodDelete {
			w.WriteHeader(http.StatusAccepted)
			_, _ = io.WriteString(w, `{"threadId":"t","position":"3:7","href":"/v1/erasures/3:7"}`)
			return
		}
		_, _ = io.WriteString(w, `{"state":"pending"}`)
	}))
	defer server.Close()
	api, err := client.New(server.URL)
	if err != nil {
		t.Fatal(err)
	}
	defer api.Close()
	var stdout strings.Builder
	err = erase(t.Context(), newOutput(&stdout, io.Discard, nil), api, eraseOptions{thread: "t", asJSON: true, within: time.Nanosecond})
	if err == nil || !strings.Contains(err.Error(), server.URL+"/v1/erasures/3:7") || stdout.String() != "{\"state\":\"pending\"}\n" {
		t.Errorf("it says %v and %q", err, stdout.String())
	}
}
