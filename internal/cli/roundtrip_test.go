package cli

import (
	"encoding/json"
	"os"
	"path/filepath"
	"reflect"
	"strings"
	"testing"

	"github.com/skeinhq/skein/internal/app/dev"
	"github.com/skeinhq/skein/internal/client"
	"github.com/skeinhq/skein/internal/recordings"
)

// What "skein fold --events" prints of a thread is taken in by "skein publish": each run then has the history that
// "skein fold" shows for it, and the parent. The last run is an edit that drops reasoning and activities.
func TestPublish_TakesInWhatFoldPrintsOfAThread(t *testing.T) {
	var threads [][]string // each thread's files
	for _, thread := range recordings.All() {
		if thread.String() != legacy && len(thread.Runs) > 1 {
			threads = append(threads, files(t, thread, false))
		}
	}
	branched := filepath.Join(t.TempDir(), "branched.jsonl")
	threads = append(threads, []string{branched})
	if err := os.WriteFile(branched, []byte(`{"type":"RUN_STARTED","threadId":"branched","runId":"r1","input":{"messages":[{"id":"u1","role":"user","content":"one"}]}}
{"type":"REASONING_MESSAGE_START","messageId":"z1","role":"reasoning"}
{"type":"REASONING_MESSAGE_CONTENT","messageId":"z1","delta":"hm"}
{"type":"REASONING_MESSAGE_END","messageId":"z1"}
{"type":"ACTIVITY_SNAPSHOT","messageId":"p1","activityType":"plan","content":{"step":1}}
{"type":"TEXT_MESSAGE_CHUNK","messageId":"a1","delta":"1"}
{"type":"STATE_SNAPSHOT","snapshot":{"n":1}}
{"type":"RUN_FINISHED","threadId":"branched","runId":"r1"}
{"type":"RUN_STARTED","threadId":"branched","runId":"r2","input":{"messages":["two"]}}
{"type":"TEXT_MESSAGE_CHUNK","messageId":"a2","delta":"2"}
{"type":"RUN_ERROR","message":"no"}
{"type":"RUN_STARTED","threadId":"branched","runId":"r3","parentRunId":"r1","input":{"messages":[{"id":"u3","role":"user","content":"three"}]}}
{"type":"TEXT_MESSAGE_CHUNK","messageId":"a3","delta":"3"}
{"type":"RUN_FINISHED","threadId":"branched","runId":"r3"}
{"type":"RUN_STARTED","threadId":"branched","runId":"r4","parentRunId":"r1"}
{"type":"MESSAGES_SNAPSHOT","messages":[{"id":"z9","role":"reasoning","content":"other"},{"id":"u1","role":"user","content":"edited"}],"metadata":{"@ag-ui/client":{"authoritativeActivityTypes":null}}}
{"type":"RUN_FINISHED","threadId":"branched","runId":"r4"}
{"type":"RUN_STARTED","threadId":"branched","runId":"r5","parentRunId":"r1","input":{"messages":[{"id":"u1","role":"user","content":"edited"},{"id":"u5","role":"user","content":"five"}]}}
{"type":"RUN_FINISHED","threadId":"branched","runId":"r5"}
`), 0o600); err != nil {
		t.Fatal(err)
	}
	onShared(t, func(s *dev.Server, c *client.Client) {
		for _, paths := range threads {
			records, _, code := skein(t, "", append([]string{"fold", "--records"}, paths...)...)
			if code != 0 {
				t.Fatal(records)
			}
			events, stderr, code := skein(t, "", append([]string{"fold", "--events"}, paths...)...)
			if code != 0 {
				t.Fatal(stderr)
			}
			path := filepath.Join(t.TempDir(), "events.jsonl")
			if err := os.WriteFile(path, []byte(events), 0o600); err != nil {
				t.Fatal(err)
			}
			if _, stderr, code := skein(t, "", "publish", "--url", s.URL(), path); code != 0 {
				t.Fatal(stderr)
			}
			for i, line := range strings.Split(strings.TrimSpace(records), "\n") {
				var want struct{ ThreadID, RunID, ParentRunID string }
				if err := json.Unmarshal([]byte(line), &want); err != nil {
					t.Fatal(err)
				}
				body, err := c.Get(t.Context(), client.RunPath(want.ThreadID, want.RunID)+"/history", nil)
				if err != nil {
					t.Fatal(err)
				}
				var got, told struct{ Messages, State any }
				if err := json.Unmarshal(body, &got); err != nil {
					t.Fatal(err)
				}
				if err := json.Unmarshal([]byte(upTo(t, paths, i)), &told); err != nil {
					t.Fatal(err)
				}
				if !reflect.DeepEqual(got, told) {
					t.Errorf("%s, %s: got\n%v\nwant\n%v\nof\n%s", want.ThreadID, want.RunID, got, told, events)
				}
				run, err := c.Get(t.Context(), client.RunPath(want.ThreadID, want.RunID), nil)
				if err != nil {
					t.Fatal(err)
				}
				var is struct{ ParentRunID string }
				if err := json.Unmarshal(run, &is); err != nil || is.ParentRunID != want.ParentRunID {
					t.Errorf("%s, %s: its parent is %q, want %q (%v)", want.ThreadID, want.RunID, is.ParentRunID, want.ParentRunID, err)
				}
			}
		}
	})
}

// upTo is what fold prints of the first runs of a thread, up to and with run i.
func upTo(t *testing.T, paths []string, i int) string {
	t.Helper()
	if len(paths) > 1 {
		out, _, _ := skein(t, "", append([]string{"fold"}, paths[:i+1]...)...)
		return out
	}
	b, err := os.ReadFile(paths[0])
	if err != nil {
		t.Fatal(err)
	}
	runs := strings.SplitAfterN(string(b), "{\"type\":\"RUN_STARTED\"", i+3)
	if len(runs) > i+2 {
		runs = runs[:i+2]
		runs[i+1] = strings.TrimSuffix(runs[i+1], "{\"type\":\"RUN_STARTED\"")
	}
	path := filepath.Join(t.TempDir(), "part.jsonl")
	if err := os.WriteFile(path, []byte(strings.Join(runs, "")), 0o600); err != nil {
		t.Fatal(err)
	}
	out, stderr, code := skein(t, "", "fold", path)
	if code != 0 {
		t.Fatal(stderr)
	}
	return out
}
