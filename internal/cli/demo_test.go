package cli

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"os"
	"regexp"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/skeinhq/skein/internal/app"
	"github.com/skeinhq/skein/internal/app/dev"
	"github.com/skeinhq/skein/internal/demo"
	"github.com/skeinhq/skein/pkg/client"
)

// ports lets the system choose.
var ports = []string{"--listen", "127.0.0.1:0", "--kafka-listen", "127.0.0.1:0"}

// What the first demo shows a second one on the same folder shows again, playing nothing; without --exit it stays up until Ctrl-C.
func TestDemo_ShowsBranchesAndASecondOneAddsNothing(t *testing.T) {
	data := t.TempDir()
	args := append([]string{"demo", "--data", data}, ports...)
	first, stderr, code := skein(t, "", append(args, "--exit")...)
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
	readme, err := os.ReadFile("../../README.md")
	if err != nil {
		t.Fatal(err)
	}
	_, block, found := strings.Cut(string(readme), "```text\n●")
	block, _, _ = strings.Cut("●"+block, "```")
	for line := range strings.Lines(block) { // as on a terminal of 80 columns
		if line = strings.TrimRight(line, "…\n"); !found || !strings.Contains(first, line) {
			t.Errorf("README shows %q, which is not printed", line)
		}
	}
	if !strings.Contains(stderr, "HTTP API on http://127.0.0.1:") {
		t.Errorf("it does not say where the API listens: %s", stderr)
	}
	if picture := strings.Index(first, demo.Branched+": "); picture < 0 || strings.Contains(first[picture:], "THREAD") ||
		strings.HasSuffix(first, "state\n  {}\n") {
		t.Errorf("the picture is not what is printed last:\n%s", first)
	}

	ctx, ctrlC := context.WithCancel(t.Context())
	defer ctrlC()
	var second bytes.Buffer
	log := &stopAt{text: "Ctrl-C stops it"}
	var once sync.Once
	log.stop = func() {
		once.Do(func() {
			said := log.all.String()
			go func() { // what is logged meanwhile waits for this call
				defer ctrlC()
				stopsRollout(t, said)
			}()
		})
	}
	err = run(ctx, args, nil, strings.NewReader(""), &second, log)
	if app.ExitCode(err) != app.ExitDone || second.String() != first {
		t.Errorf("%v; the second demo prints\n%s\n%s", err, second.String(), log.all.String())
	}
	if text := log.all.String(); !strings.Contains(text, " already there\n") || strings.Contains(text, "through the HTTP API") ||
		!strings.Contains(text, log.text) {
		t.Errorf("the second demo says: %s", text)
	}
}

// stopsRollout follows the run that a demo streams, and stops it, by the address and the command that the demo has printed.
func stopsRollout(t *testing.T, said string) {
	t.Helper()
	at := regexp.MustCompile(`(http://\S+)/\?thread=(\S+)\n.* cancel \S+ (\S+)`).FindStringSubmatch(said)
	if at == nil {
		t.Errorf("the demo says %s", said)
		return
	}
	url, thread, run := at[1], at[2], at[3]
	for s := (struct {
		Status string
		Total  int
	}{}); s.Total < 4; {
		body, _, _ := skein(t, "", "state", thread, run, "--json", "--url", url)
		if err := json.Unmarshal([]byte(body), &s); err == nil && s.Status != "running" {
			t.Errorf("after %d events its run is %s", s.Total, s.Status)
			return
		}
	}
	if text, stderr, code := skein(t, "", "cancel", thread, run, "--url", url); code != 0 || !strings.Contains(text, "is cancelled") {
		t.Errorf("exit %d: %s%s", code, text, stderr)
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
	conversations, err := demo.Conversations(time.Now())
	if err != nil {
		t.Fatal(err)
	}
	onShared(t, func(s *dev.Server, c *client.Client) {
		for cuts := 0; ; cuts++ {
			ctx, cancel := context.WithCancel(t.Context())
			var begun atomic.Int64
			player := demo.Player{Client: c, Settle: s.Settle, Progress: func(int, int) {
				if begun.Add(1) > int64(1+5*cuts) {
					cancel()
				}
			}}
			_, err := player.Play(ctx, conversations)
			cancel()
			if err == nil {
				break
			}
			if !errors.Is(err, context.Canceled) {
				t.Fatal(err)
			}
		}
		lineages := map[string]string{}
		for _, conv := range conversations {
			body, err := c.Get(t.Context(), client.ThreadPath(conv.ThreadID)+"/lineage", nil)
			if err != nil {
				t.Fatal(err)
			}
			lineages[conv.ThreadID] = string(body)
		}
		tellsItsStory(t, lineages)
	})
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
