package cli

import (
	"bytes"
	"context"
	"crypto/sha256"
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
	"github.com/skeinhq/skein/internal/client"
	"github.com/skeinhq/skein/internal/demo"
	"github.com/skeinhq/skein/internal/recordings"
	"github.com/skeinhq/skein/pkg/agui"
)

// Every run that was recorded from real agents gives back the bytes that its record hashes, and
// is proved.
func TestReplay_AndVerifyOverTheRecordings(t *testing.T) {
	withServer(t, t.TempDir(), func(s *dev.Server, c *client.Client) {
		var recorded []demo.Conversation
		for _, thread := range recordings.All() {
			conv := demo.Conversation{ThreadID: thread.ThreadID}
			for _, r := range thread.Runs {
				conv.Runs = append(conv.Runs, demo.Run{ID: r.RunID, Input: r.Input, Events: r.Lines()})
			}
			recorded = append(recorded, conv)
		}
		if _, err := (demo.Player{Client: c}).Play(t.Context(), recorded); err != nil {
			t.Fatal(err)
		}
		stdout, stderr, code := skein(t, "", "verify", "--all", "--url", s.URL())
		if code != app.ExitDone || !strings.Contains(stdout, " proved, 0 differ, 0 not proved\n") {
			t.Errorf("exit %d, %s%s", code, stdout, stderr)
		}
		t.Log(strings.TrimSpace(stdout))
		stdout, stderr, code = skein(t, "", "refold", "--all", "--brokers", s.Broker())
		if code != app.ExitDone || !strings.Contains(stdout, " 0 would change; left: 0 whose raw events are gone, 0 open\n") {
			t.Errorf("refold: exit %d, %s%s", code, stdout, stderr)
		}
		runs := 0
		if err := eachThread(t.Context(), c, url.Values{}, 0, func(raw json.RawMessage) error {
			var thread struct{ ThreadID string }
			if err := json.Unmarshal(raw, &thread); err != nil {
				return err
			}
			body, err := c.Get(t.Context(), client.ThreadPath(thread.ThreadID)+"/lineage", nil)
			if err != nil {
				return err
			}
			var lineage struct{ Runs []struct{ RunID string } }
			if err := json.Unmarshal(body, &lineage); err != nil {
				return err
			}
			for _, r := range lineage.Runs {
				runs++
				body, err := c.Get(t.Context(), client.RunPath(thread.ThreadID, r.RunID), nil)
				if err != nil {
					return err
				}
				var run struct {
					Raw struct{ SHA256 string }
				}
				if err := json.Unmarshal(body, &run); err != nil {
					return err
				}
				stdout, stderr, code := skein(t, "", "replay", thread.ThreadID, r.RunID, "--url", s.URL())
				if sum := fmt.Sprintf("%x", sha256.Sum256([]byte(stdout))); code != 0 || stderr != "" || sum != run.Raw.SHA256 {
					t.Errorf("%s %s: exit %d, %s, hash %s, record %s", thread.ThreadID, r.RunID, code, stderr, sum, run.Raw.SHA256)
				}
			}
			return nil
		}); err != nil {
			t.Fatal(err)
		}
		if runs < 69 {
			t.Errorf("%d runs", runs)
		}
	})
}

// A producer that repeats what it had sent, and then uses the id again.
func TestReplay_LeavesRepeatsOut(t *testing.T) {
	withServer(t, t.TempDir(), func(s *dev.Server, c *client.Client) {
		numbered := func(n int, event string) string { return fmt.Sprintf(`{"seq":%d,"event":%s}`, n, event) }
		again := `{"type":"RUN_STARTED","threadId":"t","runId":"r","again":true}`
		for _, events := range [][]string{
			{numbered(0, eventStart), numbered(1, eventText)},
			{numbered(0, eventStart), numbered(1, eventText), numbered(2, eventEnd)},
			{numbered(0, eventStart), numbered(1, eventText), numbered(2, eventEnd)}, // nobody heard the yes
			{numbered(0, again), numbered(1, eventEnd)},
		} {
			if _, err := c.PostEvents(t.Context(), "t", "r", client.TypeSequenced, strings.NewReader(strings.Join(events, "\n"))); err != nil {
				t.Fatal(err)
			}
		}
		if _, err := c.Get(t.Context(), client.RunPath("t", "r~2"), url.Values{"atLeast": {position(t, s, "t", 9)}}); err != nil {
			t.Fatal(err)
		}
		for run, want := range map[string][]string{"r": {eventStart, eventText, eventEnd}, "r~2": {again, eventEnd}} {
			stdout, stderr, code := skein(t, "", "replay", "t", run, "--url", s.URL())
			if code != 0 || stdout != strings.Join(want, "\n")+"\n" {
				t.Errorf("%s: exit %d, %s%s", run, code, stdout, stderr)
			}
		}
		for between, want := range map[string]string{
			position(t, s, "t", 1) + ":":                          eventText + "\n" + eventEnd + "\n",
			position(t, s, "t", 1) + ":" + position(t, s, "t", 2): eventText + "\n",
			"start:" + position(t, s, "t", 1):                     eventStart + "\n",
			"end:":                                                "",
			"@2026-09-17T12:00:00Z:@" + time.Now().Add(time.Minute).Format(time.RFC3339): eventStart + "\n" + eventText + "\n" + eventEnd + "\n",
		} {
			stdout, stderr, code := skein(t, "", "replay", "t", "r", "-o", between, "--url", s.URL())
			if code != 0 || stdout != want {
				t.Errorf("-o %s: exit %d, %s%s", between, code, stdout, stderr)
			}
		}
		stdout, _, code := skein(t, "", "replay", "t", "--all", "--json", "--url", s.URL())
		if code != 0 || strings.Count(stdout, "\n") != 10 || strings.Count(stdout, `"outcome":"repeat"`) != 2 || strings.Count(stdout, `"outcome":"late"`) != 3 {
			t.Errorf("exit %d, %s", code, stdout)
		}
		if stdout, stderr, code := skein(t, "", "verify", "t", "--url", s.URL()); code != 0 || stdout != "2 runs: 2 proved, 0 differ, 0 not proved\n" {
			t.Errorf("exit %d, %s%s", code, stdout, stderr)
		}
		if stdout, stderr, code := skein(t, "", "verify", "t", "r", "--url", s.URL()); code != 0 || !strings.Contains(stdout, "proved\n  3 events, sha256 ") {
			t.Errorf("exit %d, %s%s", code, stdout, stderr)
		}
		for _, args := range [][]string{{"replay", "t", "nobody"}, {"replay", "nowhere"}, {"verify", "t", "nobody"}, {"verify", "nowhere"}} {
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
			ended <- run(ctx, []string{"replay", "t", "r", "--pace", "0.001", "--url", s.URL()}, nil, strings.NewReader(""), first, &errs)
		}()
		select {
		case err := <-ended:
			if !errors.Is(err, context.Canceled) || !strings.HasPrefix(first.String(), eventStart+"\n") || strings.Contains(first.String(), eventEnd) {
				t.Errorf("%v, %q", err, first.String())
			}
		case <-time.After(time.Minute):
			t.Error("it goes on after Ctrl-C")
		}
	})
}

// Runs of one thread that go on at the same time, with parents that had not ended when their children
// started, inputs, events that cannot be folded, and one run that stays open.
func TestVerify_ProvesRunsThatOverlap(t *testing.T) {
	withServer(t, t.TempDir(), func(s *dev.Server, c *client.Client) {
		start := func(run, parent string) string {
			return fmt.Sprintf(`{"type":"RUN_STARTED","threadId":"t","runId":%q,"parentRunId":%q}`, run, parent)
		}
		end := func(run string) string { return fmt.Sprintf(`{"type":"RUN_FINISHED","threadId":"t","runId":%q}`, run) }
		state := func(n int) string { return fmt.Sprintf(`{"type":"STATE_SNAPSHOT","snapshot":{ "n" : %d }}`, n) }
		text := func(id string) []string {
			return []string{
				fmt.Sprintf(`{"type":"TEXT_MESSAGE_CHUNK","messageId":%q,"role":"assistant","delta":"a"}`, id),
				`{"type":"TEXT_MESSAGE_CHUNK","delta":"b"}`,
			}
		}
		activity := `{"type":"ACTIVITY_SNAPSHOT","messageId":"act","activityType":"plan","content":{"step":1}}`
		nothing := `{"type":"TEXT_MESSAGE_CHUNK","delta":"of no message"}`
		last := client.Ack{}
		post := func(run string, events ...string) {
			t.Helper()
			var err error
			if last, err = c.PostEvents(t.Context(), "t", run, client.TypeNDJSON, strings.NewReader(strings.Join(events, "\n"))); err != nil {
				t.Fatal(err)
			}
		}
		post("a", start("a", ""), nothing, state(1), activity)
		post("a", text("m1")...)
		post("b", start("b", "a"), nothing)
		post("a", state(2))
		post("a", text("m2")...)
		if _, err := c.PutInput(t.Context(), "t", "c", []byte(`{"threadId":"t","runId":"c","parentRunId":"b","messages":[{"role":"assistant","id":"m1","content":"ab"},{"id":"u","role":"user","content":"and?"}],"tools":[],"context":[],"forwardedProps":{}}`)); err != nil {
			t.Fatal(err)
		}
		post("b", append(text("m3"), `{"type":"STATE_DELTA","delta":[{"op":"add","path":"/k","value":1}]}`)...)
		post("c", start("c", "b"), `{"type":"STATE_DELTA","delta":[{"op":"add","path":"/l","value":1}]}`)
		post("b", `{"type":"TEXT_MESSAGE_CONTENT","messageId":"m3"}`, state(3), end("b"))
		post("c", append(text("m4"), end("c"))...)
		post("a", end("a"))
		post("d", start("d", "c"), `{"type":"STATE_DELTA","delta":[{"op":"remove","path":"/l"}]}`, end("d"))
		post("a", start("a", "d"), activity, end("a"))
		post("e", start("e", ""), state(9))
		at := fmt.Sprintf("%d:%d", last.Partition, last.LastOffset)
		deadline := time.Now().Add(30 * time.Second)
		for {
			_, err := c.Get(t.Context(), client.RunPath("t", "e"), url.Values{"atLeast": {at}})
			if err == nil {
				break
			}
			if time.Now().After(deadline) {
				t.Fatal(err)
			}
		}
		if stdout, stderr, code := skein(t, "", "verify", "t", "--url", s.URL()); code != 0 || stdout != "6 runs: 6 proved, 0 differ, 0 not proved\n" {
			t.Errorf("exit %d, %s%s", code, stdout, stderr)
		}
		if stdout, stderr, code := skein(t, "", "refold", "t", "--tenant", dev.Tenant, "--brokers", s.Broker()); code != 0 ||
			stdout != "6 runs by version 2 of the rules: 5 as they are, 0 would change; left: 0 whose raw events are gone, 1 open\n" {
			t.Errorf("refold: exit %d, %s%s", code, stdout, stderr)
		}
		if stdout, _, _ := skein(t, "", "verify", "t", "e", "--url", s.URL()); !strings.Contains(stdout, "the run is open") {
			t.Errorf("the open run: %s", stdout)
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

// position is that of an offset in a thread's partition.
func position(t *testing.T, s *dev.Server, thread string, offset int64) string {
	t.Helper()
	c, err := client.New(s.URL())
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	deadline := time.Now().Add(30 * time.Second)
	for {
		body, err := c.Get(t.Context(), client.ThreadPath(thread), nil)
		var at struct{ IndexedTo string }
		if err == nil {
			if err := json.Unmarshal(body, &at); err != nil {
				t.Fatal(err)
			}
			partition, _, _ := strings.Cut(at.IndexedTo, ":")
			return fmt.Sprintf("%s:%d", partition, offset)
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
			"thread t, run r: differs at 3:12 or behind, in messages, raw.sha256\n  record      2 events, sha256 aa\n  raw events  3 events, sha256 bb\n  not part of the proof: lineage: x\n", app.ExitDiffers},
		{`{"threadId":"t","runId":"r","verdict":"unproved","reason":"the raw events are gone","record":{"events":2,"sha256":"aa"},"differences":[],"unproved":[]}`,
			"thread t, run r: not proved: the raw events are gone\n", app.ExitFailed},
	} {
		var p proof
		if err := json.Unmarshal([]byte(c.verdict), &p); err != nil {
			t.Fatal(err)
		}
		if got := p.text(); got != c.want {
			t.Errorf("text\n%swant\n%s", got, c.want)
		}
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

// A setting that changes makes no record wrong: each run is folded again by the families it was begun with.
func TestVerify_ProvesRunsOfEverySettingOfKeptEvents(t *testing.T) {
	data := t.TempDir()
	for i, names := range [][]string{{"raw"}, {"custom"}, {}, agui.FamilyNames()} {
		kept, err := agui.FamiliesOf(names...)
		if err != nil {
			t.Fatal(err)
		}
		withServer(t, data, func(s *dev.Server, c *client.Client) {
			run := fmt.Sprintf("r%d", i)
			events := fmt.Sprintf(`{"type":"RUN_STARTED","threadId":"t","runId":%[1]q}
{"type":"RAW","event":1}
{"type":"CUSTOM","name":"n","value":1}
{"type":"RUN_FINISHED","threadId":"t","runId":%[1]q}`, run)
			if _, err := c.PostEvents(t.Context(), "t", run, client.TypeNDJSON, strings.NewReader(events)); err != nil {
				t.Fatal(err)
			}
			if err := s.Settle(t.Context()); err != nil {
				t.Fatal(err)
			}
			want := fmt.Sprintf(": %d proved, 0 differ, 0 not proved\n", i+1)
			if stdout, stderr, code := skein(t, "", "verify", "t", "--url", s.URL()); code != 0 || !strings.HasSuffix(stdout, want) {
				t.Errorf("verify: exit %d, stdout %q, stderr %q", code, stdout, stderr)
			}
			if stdout, stderr, code := skein(t, "", "refold", "--all", "--brokers", s.Broker()); code != 0 {
				t.Errorf("refold: exit %d, stdout %q, stderr %q", code, stdout, stderr)
			}
			body, err := c.Get(t.Context(), client.RunPath("t", run), nil)
			var a struct{ Events []json.RawMessage }
			if err != nil || json.Unmarshal(body, &a) != nil || len(a.Events) != min(len(names), 2) {
				t.Errorf("with %v the run keeps %s (%v)", names, a.Events, err)
			}
		}, func(cfg *dev.Config) { cfg.KeepEvents = kept })
	}
}
