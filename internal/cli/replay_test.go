package cli

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"net/url"
	"strings"
	"testing"
	"time"

	"github.com/skeinhq/skein/internal/app"
	"github.com/skeinhq/skein/internal/app/dev"
	"github.com/skeinhq/skein/pkg/client"
	"github.com/skeinhq/skein/pkg/record"
)

// A producer that repeats what it had sent, and then uses the id again.
func TestReplay_LeavesRepeatsOut(t *testing.T) {
	onShared(t, func(s *dev.Server, c *client.Client) {
		const thread = "replayed-repeats"
		start, end := in(thread, eventStart), in(thread, eventEnd)
		numbered := func(n int, event string) string { return fmt.Sprintf(`{"seq":%d,"event":%s}`, n, event) }
		again := `{"type":"RUN_STARTED","threadId":"replayed-repeats","runId":"r","again":true}`
		for _, events := range [][]string{
			{numbered(0, start), numbered(1, eventText)},
			{numbered(0, start), numbered(1, eventText), numbered(2, end)},
			{numbered(0, start), numbered(1, eventText), numbered(2, end)}, // nobody heard the yes
			{numbered(0, again), numbered(1, end)},
		} {
			if _, err := c.PostEvents(t.Context(), thread, "r", client.TypeSequenced, strings.NewReader(strings.Join(events, "\n"))); err != nil {
				t.Fatal(err)
			}
		}
		if _, err := c.Get(t.Context(), client.RunPath(thread, "r~2"), url.Values{"atLeast": {position(t, s, thread, 9)}}); err != nil {
			t.Fatal(err)
		}
		for run, want := range map[string][]string{"r": {start, eventText, end}, "r~2": {again, end}} {
			stdout, stderr, code := skein(t, "", "replay", thread, run, "--url", s.URL())
			if code != 0 || stdout != strings.Join(want, "\n")+"\n" {
				t.Errorf("%s: exit %d, %s%s", run, code, stdout, stderr)
			}
		}
		for between, want := range map[string]string{
			position(t, s, thread, 1) + ":":                             eventText + "\n" + end + "\n",
			position(t, s, thread, 1) + ":" + position(t, s, thread, 2): eventText + "\n",
			"start:" + position(t, s, thread, 1):                        start + "\n",
			"end:":                                                      "",
			"@2026-09-17T12:00:00Z:@" + time.Now().Add(time.Minute).Format(time.RFC3339): start + "\n" + eventText + "\n" + end + "\n",
		} {
			stdout, stderr, code := skein(t, "", "replay", thread, "r", "--range", between, "--url", s.URL())
			if code != 0 || stdout != want {
				t.Errorf("--range %s: exit %d, %s%s", between, code, stdout, stderr)
			}
		}
		stdout, _, code := skein(t, "", "replay", thread, "--all", "--json", "--url", s.URL())
		if code != 0 || strings.Count(stdout, "\n") != 10 || strings.Count(stdout, `"outcome":"repeat"`) != 2 || strings.Count(stdout, `"outcome":"late"`) != 3 {
			t.Errorf("exit %d, %s", code, stdout)
		}
		if stdout, stderr, code := skein(t, "", "verify", thread, "--url", s.URL()); code != 0 ||
			stdout != "2 runs: 2 proved, 0 differ, 0 not proved\n" {
			t.Errorf("exit %d, %s%s", code, stdout, stderr)
		}
		if stdout, stderr, code := skein(t, "", "verify", thread, "r", "--url", s.URL()); code != 0 ||
			!strings.Contains(stdout, "proved\n  3 events, sha256 ") {
			t.Errorf("exit %d, %s%s", code, stdout, stderr)
		}
		for _, args := range [][]string{{"replay", thread, "nobody"}, {"replay", "nowhere"}, {"verify", thread, "nobody"},
			{"verify", "nowhere"}} {
			if _, stderr, code := skein(t, "", append(args, "--url", s.URL())...); code != app.ExitNotFound || strings.Count(stderr, "\n") != 1 {
				t.Errorf("%v: exit %d, %s", args, code, stderr)
			}
		}

		// Ctrl-C in the middle of a slow replay, whose next event is due in a minute, the longest pause: a
		// millisecond of the record is a second.
		ctx, ctrlC := context.WithCancel(t.Context())
		defer ctrlC()
		first := &cutter{after: ctrlC}
		var errs bytes.Buffer
		ended := make(chan error, 1)
		go func() {
			ended <- run(ctx, []string{"replay", thread, "r", "--pace", "0.001", "--url", s.URL()}, nil, strings.NewReader(""), first, &errs)
		}()
		select {
		case err := <-ended:
			if !errors.Is(err, context.Canceled) || !strings.HasPrefix(first.String(), start+"\n") || strings.Contains(first.String(), end) {
				t.Errorf("%v, %q", err, first.String())
			}
		case <-time.After(time.Minute):
			t.Error("it goes on after Ctrl-C")
		}
	})
}

// cutter calls after once something was written.
type cutter struct {
	bytes.Buffer
	after func()
}

func (c *cutter) Write(b []byte) (int, error) {
	defer c.after()
	return c.Buffer.Write(b)
}

// position is that of a thread's event n, from 0, where no other thread was written to since its first.
func position(t *testing.T, s *dev.Server, thread string, n int64) string {
	t.Helper()
	c, err := client.New(s.URL())
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	deadline := time.Now().Add(30 * time.Second)
	for {
		var all struct{ Runs []struct{ RunID string } }
		var first struct{ Raw record.Raw }
		body, err := c.Get(t.Context(), client.ThreadPath(thread)+"/lineage", nil)
		if err == nil && json.Unmarshal(body, &all) == nil && len(all.Runs) > 0 {
			body, err = c.Get(t.Context(), client.RunPath(thread, all.Runs[0].RunID), nil)
		}
		if err == nil {
			if err := json.Unmarshal(body, &first); err != nil {
				t.Fatal(err)
			}
			return fmt.Sprintf("%d:%d", first.Raw.Partition, first.Raw.First+n)
		}
		if !client.IsNotFound(err) || time.Now().After(deadline) {
			t.Fatal(err)
		}
	}
}

func TestVerify_SaysWhatDiffers(t *testing.T) {
	for _, c := range []struct {
		verdict, want string
		code          int
	}{
		{`{"threadId":"t","runId":"r","verdict":"differs","record":{"events":2,"sha256":"aa"},"raw":{"events":3,"sha256":"bb"},"differences":["messages","raw.sha256"],"differsFrom":"3:12","unproved":["lineage: x"]}`,
			"thread t, run r: differs at 3:12 or later, in messages, raw.sha256\n  record      2 events, sha256 aa\n  raw events  3 events, sha256 bb\n  not part of the proof: lineage: x\n", app.ExitDiffers},
		{`{"threadId":"t","runId":"r","verdict":"unproved","reason":"the raw events are gone","record":{"events":2,"sha256":"aa"},"differences":[],"unproved":[]}`,
			"thread t, run r: not proved: the raw events are gone\n", app.ExitFailed},
	} {
		server := answering(t, c.verdict)
		if stdout, stderr, code := skein(t, "", "verify", "t", "r", "--url", server); code != c.code || stdout != c.want || strings.Count(stderr, "\n") != 1 {
			t.Errorf("exit %d, %s%s; want %d", code, stdout, stderr, c.code)
		}
	}
}

// answering is a server that gives one answer.
func answering(t *testing.T, body string) string {
	t.Helper()
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		_, _ = io.WriteString(w, body) // the test sees what is missing
	}))
	t.Cleanup(s.Close)
	return s.URL
}
