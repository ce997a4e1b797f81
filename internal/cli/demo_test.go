package cli

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"net/url"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/skeinhq/skein/internal/app"
	"github.com/skeinhq/skein/internal/app/dev"
	"github.com/skeinhq/skein/internal/client"
	"github.com/skeinhq/skein/internal/demo"
)

// ports lets the system choose.
var ports = []string{"--listen", "127.0.0.1:0", "--kafka-listen", "127.0.0.1:0"}

// content is all that the API says about the threads of a data folder.
func content(t *testing.T, data string) (lineages map[string]string, events int64) {
	t.Helper()
	withServer(t, data, func(s *dev.Server, c *client.Client) {
		lineages = make(map[string]string)
		if err := eachThread(t.Context(), c, url.Values{}, 0, func(raw json.RawMessage) error {
			var id struct{ ThreadID string }
			if err := json.Unmarshal(raw, &id); err != nil {
				return err
			}
			body, err := c.Get(t.Context(), client.ThreadPath(id.ThreadID)+"/lineage", nil)
			lineages[id.ThreadID] = string(body)
			return err
		}); err != nil {
			t.Fatal(err)
		}
		var err error
		if events, err = s.EventsEnd(t.Context()); err != nil {
			t.Fatal(err)
		}
	})
	return lineages, events
}

func withServer(t *testing.T, data string, f func(*dev.Server, *client.Client), change ...func(*dev.Config)) {
	t.Helper()
	cfg := dev.DefaultConfig()
	cfg.Data, cfg.Listen, cfg.KafkaListen = data, "127.0.0.1:0", "127.0.0.1:0"
	for _, c := range change {
		c(&cfg)
	}
	s, err := dev.Start(t.Context(), cfg)
	if err != nil {
		t.Fatal(err)
	}
	defer func() {
		if err := s.Close(); err != nil {
			t.Error(err)
		}
	}()
	c, err := client.New(s.URL())
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	f(s, c)
}

func TestDemo_ShowsBranchesAndASecondOneAddsNothing(t *testing.T) {
	data := t.TempDir()
	args := append([]string{"demo", "--exit", "--data", data}, ports...)
	first, stderr, code := skein(t, "", args...)
	if code != 0 {
		t.Fatalf("exit %d: %s", code, stderr)
	}
	t.Logf("the demo prints\n%s\nand on stderr\n%s", first, stderr)
	for _, want := range []string{
		"support-4711         finished        3  a refund that a person approves\n", "research-heat-pumps", "incident-2214",
		"\ntrip-to-lisbon: branches, and a booking that waits\n", "hotel-again  finished  [~content]",
	} {
		if !strings.Contains(first, want) {
			t.Errorf("%q is not shown", want)
		}
	}
	if !strings.Contains(stderr, "HTTP API on http://127.0.0.1:") {
		t.Errorf("it does not say where the API listens: %s", stderr)
	}
	if picture := strings.Index(first, demo.Branched+": "); picture < 0 || strings.Contains(first[picture:], "THREAD") || strings.HasSuffix(first, "state\n  {}\n") {
		t.Errorf("the picture is not what is printed last:\n%s", first)
	}
	lineages, events := content(t, data)
	if len(lineages) != 4 {
		t.Errorf("%d threads, want 4", len(lineages))
	}
	tellsItsStory(t, lineages)

	second, stderr, code := skein(t, "", args...)
	if code != 0 || second != first {
		t.Errorf("exit %d; the second demo prints\n%s\n%s", code, second, stderr)
	}
	if !strings.Contains(stderr, " already there\n") || strings.Contains(stderr, "through the HTTP API") {
		t.Errorf("the second demo played again: %s", stderr)
	}
	after, eventsAfter := content(t, data)
	if eventsAfter != events {
		t.Errorf("%d events lie in skein.events after the second demo, %d before", eventsAfter, events)
	}
	for thread, was := range lineages {
		if after[thread] != was {
			t.Errorf("%s is not what it was:\n%s\n%s", thread, was, after[thread])
		}
	}
}

// tellsItsStory checks that runs hang together and end as they were written to.
func tellsItsStory(t *testing.T, lineages map[string]string) {
	t.Helper()
	want := map[string]string{
		"support-4711":        "question<-:finished refund<-question:interrupted approved<-refund:finished",
		"research-heat-pumps": "report<-:finished follow-up<-report:finished",
		"incident-2214":       "first-try<-:error second-try<-:finished",
		demo.Branched: "plan<-:finished hotel<-plan:finished hotel-again<-plan:finished porto<-plan:finished porto-train<-porto:finished " +
			"book<-hotel-again:interrupted",
	}
	for thread, want := range want {
		var l struct {
			Runs []struct {
				RunID, ParentRunID, Status string
				Rewrote                    []string
			}
		}
		if err := json.Unmarshal([]byte(lineages[thread]), &l); err != nil {
			t.Fatal(err)
		}
		var got []string
		for _, r := range l.Runs {
			got = append(got, r.RunID+"<-"+r.ParentRunID+":"+r.Status)
			if len(r.Rewrote) > 0 {
				t.Errorf("%s: the input of %s is not what its parent's history ends with: %v", thread, r.RunID, r.Rewrote)
			}
		}
		if strings.Join(got, " ") != want {
			t.Errorf("%s: %s, want %s", thread, strings.Join(got, " "), want)
		}
	}
}

// A demo that was cut off anywhere is finished by the next one, and nothing is there twice.
func TestDemo_ACutOneIsFinished(t *testing.T) {
	data := t.TempDir()
	conversations, err := demo.Conversations()
	if err != nil {
		t.Fatal(err)
	}
	cuts := 0
	for {
		done := false
		withServer(t, data, func(s *dev.Server, c *client.Client) {
			ctx, cancel := context.WithCancel(t.Context())
			defer cancel()
			var begun atomic.Int64
			player := demo.Player{Client: c, Settle: s.Settle, Progress: func(int, int) {
				if begun.Add(1) > int64(1+2*cuts) {
					cancel()
				}
			}}
			_, err := player.Play(ctx, conversations)
			if err != nil && !errors.Is(err, context.Canceled) {
				t.Fatal(err)
			}
			done = err == nil
		})
		if done {
			break
		}
		cuts++
	}
	t.Logf("cut %d times", cuts)
	lineages, _ := content(t, data)
	for _, conv := range conversations {
		var l struct {
			Runs []struct{ RunID, Status string }
		}
		if err := json.Unmarshal([]byte(lineages[conv.ThreadID]), &l); err != nil {
			t.Fatalf("%s: %v", conv.ThreadID, err)
		}
		if len(l.Runs) != len(conv.Runs) {
			t.Errorf("%s has %d runs, want %d: %s", conv.ThreadID, len(l.Runs), len(conv.Runs), lineages[conv.ThreadID])
		}
		for _, r := range l.Runs {
			if r.Status == "running" {
				t.Errorf("%s: run %s is still running", conv.ThreadID, r.RunID)
			}
		}
	}
}

// Ctrl-C while the demo stays up is how it is meant to end.
func TestDemo_StaysUpUntilItIsStopped(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	var stdout bytes.Buffer
	stderr := &stopAt{text: "Ctrl-C stops it", stop: cancel}
	err := run(ctx, append([]string{"demo", "--data", t.TempDir()}, ports...), nil, strings.NewReader(""), &stdout, stderr)
	if app.ExitCode(err) != app.ExitDone {
		t.Errorf("got %v\n%s", err, stderr.all.String())
	}
	if !strings.Contains(stderr.all.String(), stderr.text) {
		t.Errorf("it did not stay up: %s", stderr.all.String())
	}
}

// stopAt calls stop once a text has been written.
type stopAt struct {
	text string
	stop func()
	all  bytes.Buffer
}

func (s *stopAt) Write(p []byte) (int, error) {
	s.all.Write(p)
	if strings.Contains(s.all.String(), s.text) {
		s.stop()
	}
	return len(p), nil
}
