package cli

import (
	"bufio"
	"bytes"
	"context"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/skeinhq/skein/internal/app"
	"github.com/skeinhq/skein/internal/app/dev"
	"github.com/skeinhq/skein/internal/client"
	"github.com/skeinhq/skein/pkg/kafka/kafkatest"
)

const (
	eventStart = `{"type":"RUN_STARTED","threadId":"t","runId":"r"}`
	eventText  = `{"type":"CUSTOM","name":"x","value":1}`
	eventEnd   = `{"type":"RUN_FINISHED","threadId":"t","runId":"r"}`
)

// in makes events those of another thread.
func in(thread, events string) string {
	return strings.ReplaceAll(events, `"threadId":"t"`, `"threadId":"`+thread+`"`)
}

// live is "skein publish" with a stdin that stays open.
type live struct {
	t      *testing.T
	stdin  *io.PipeWriter
	ctrlC  context.CancelFunc
	ended  chan error
	stdout bytes.Buffer
	stderr bytes.Buffer
}

func publishLive(t *testing.T, url string) *live {
	t.Helper()
	ctx, cancel := context.WithCancel(t.Context())
	r, w := io.Pipe()
	l := &live{t: t, stdin: w, ctrlC: cancel, ended: make(chan error, 1)}
	go func() { l.ended <- run(ctx, []string{"publish", "--url", url}, nil, r, &l.stdout, &l.stderr) }()
	t.Cleanup(func() {
		cancel()
		_ = w.Close() // the last read of stdin ends, and with it the goroutine that reads
	})
	return l
}

func (l *live) write(events ...string) {
	l.t.Helper()
	if _, err := io.WriteString(l.stdin, strings.Join(events, "\n")+"\n"); err != nil {
		l.t.Fatal(err)
	}
}

// result waits for the end, which must not need anything more from stdin.
func (l *live) result() (stderr string, code int) {
	l.t.Helper()
	select {
	case err := <-l.ended:
		app.Report(&l.stderr, "skein", err)
		return l.stderr.String(), app.ExitCode(err)
	case <-time.After(30 * time.Second):
		l.t.Fatal("it has not ended after 30 s")
		return "", 0
	}
}

func TestPublish_CtrlCEndsItAndSaysWhatIsThere(t *testing.T) {
	onShared(t, func(s *dev.Server, _ *client.Client) {
		before, err := s.EventsEnd(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		l := publishLive(t, s.URL())
		l.write(in("ctrl-c", eventStart), eventText)
		awaitEvents(t, s, before+2)
		l.ctrlC()
		stderr, code := l.result()
		if code != app.ExitFailed || !strings.Contains(stderr, "interrupted: 2 events accepted") || !strings.Contains(stderr, "--from 2") || strings.Count(stderr, "\n") != 1 {
			t.Errorf("exit %d, %s", code, stderr)
		}
		l = publishLive(t, s.URL())
		l.ctrlC()
		if stderr, code := l.result(); code != app.ExitFailed || stderr != "skein: interrupted\n" {
			t.Errorf("before the first event: exit %d, %s", code, stderr)
		}
	})
}

// Whatever form events have on the way in, ingest gets them numbered from 0 in each run, so that it drops repeats.
func TestPublish_NumbersEventsOfEveryForm(t *testing.T) {
	for name, events := range map[string]string{
		"NDJSON":       eventStart + "\n" + eventText + "\n" + eventEnd + "\n",
		"SSE":          "data: " + eventStart + "\n\ndata: " + eventText + "\n\ndata: " + eventEnd + "\n\n",
		"a JSON array": "[" + eventStart + "," + eventText + "," + eventEnd + "]",
	} {
		var got []string
		server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			body, err := io.ReadAll(r.Body)
			if err != nil {
				t.Error(err)
			}
			got = append(got, r.URL.Path+" "+r.Header.Get("Content-Type")+"\n"+string(body))
			_, _ = io.WriteString(w, `{"accepted":3}`)
		}))
		_, stderr, code := skein(t, events+"\n", "publish", "--no-wait", "--url", server.URL)
		server.Close()
		want := []string{fmt.Sprintf("/v1/threads/t/runs/r/events application/vnd.skein.events+ndjson\n{\"seq\":0,\"event\":%s}\n{\"seq\":1,\"event\":%s}\n{\"seq\":2,\"event\":%s}\n", eventStart, eventText, eventEnd)}
		if code != 0 || !slices.Equal(got, want) {
			t.Errorf("%s: exit %d, %s, sent %q, want %q", name, code, stderr, got, want)
		}
	}
}

func awaitEvents(t *testing.T, s *dev.Server, want int64) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 30*time.Second)
	defer cancel()
	for {
		n, err := s.EventsEnd(ctx)
		if err != nil {
			t.Fatal(err)
		}
		if n == want {
			return
		}
	}
}

// ingestServer is a server that takes the first event and then does as it is told.
func ingestServer(t *testing.T, then func(net.Conn)) string {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = l.Close() }) // only frees the port
	go func() {
		conn, err := l.Accept()
		if err != nil {
			return
		}
		for lines := bufio.NewScanner(conn); lines.Scan(); {
			if strings.Contains(lines.Text(), "RUN_STARTED") {
				break
			}
		}
		then(conn)
	}()
	return "http://" + l.Addr().String()
}

// The server goes away while the agent has nothing to say.
func TestPublish_NoticesADeadServerWhileStdinIsQuiet(t *testing.T) {
	l := publishLive(t, ingestServer(t, func(c net.Conn) { _ = c.Close() })) // as a process that is killed does
	l.write(eventStart)
	stderr, code := l.result()
	if code != app.ExitFailed || !strings.Contains(stderr, "no answer from http://127.0.0.1:") || !strings.Contains(stderr, "repeat the same command") || strings.Count(stderr, "\n") != 1 {
		t.Errorf("exit %d, %s", code, stderr)
	}
}

// A server that hangs holds nobody who has pressed Ctrl-C.
func TestPublish_CtrlCEndsItWhereTheServerHangs(t *testing.T) {
	reached, end := make(chan struct{}), make(chan struct{})
	defer close(end)
	l := publishLive(t, ingestServer(t, func(c net.Conn) {
		close(reached)
		<-end
		_ = c.Close() // nobody is there any more
	}))
	l.write(eventStart)
	<-reached
	l.ctrlC()
	stderr, code := l.result()
	if code != app.ExitFailed || !strings.Contains(stderr, "interrupted: how much was accepted is not known") || !strings.Contains(stderr, "repeat the same command") {
		t.Errorf("exit %d, %s", code, stderr)
	}
}

func TestPublish_NamesAgentAndLabels(t *testing.T) {
	onShared(t, func(s *dev.Server, _ *client.Client) {
		at := "--url=" + s.URL()
		events := in("labelled", strings.Join([]string{eventStart, eventText, eventEnd}, "\n"))
		if stdout, stderr, code := skein(t, events, "publish", at, "--agent", "support", "--label", "User=ann", "--label", "team=a=b"); code != 0 {
			t.Fatalf("exit %d, %s%s", code, stdout, stderr)
		}
		stdout, stderr, code := skein(t, "", "runs", at, "--agent", "support", "--label", "user=ann", "--label", "team=a=b", "-o", "json")
		if code != 0 || !strings.Contains(stdout, `"runId":"r"`) {
			t.Errorf("exit %d, %s%s", code, stdout, stderr)
		}
	})
	for _, label := range []string{"user", "=ann", "a b=c", "user=a\nb", "user= ann"} {
		if stdout, stderr, code := skein(t, eventStart, "publish", "--label", label); code != app.ExitUsage || !strings.Contains(stderr, "label") {
			t.Errorf("label %q: exit %d, %s%s", label, code, stdout, stderr)
		}
	}
	if _, stderr, code := skein(t, eventStart, "publish", "--label", "user=ann", "--label", "User=ben"); code != app.ExitUsage || !strings.Contains(stderr, "another one") {
		t.Errorf("a key twice: exit %d, %s", code, stderr)
	}
}

// Whatever comes of the wait, the events are published: exit code 0, and one line.
func TestPublish_SaysWhatTheIndexDoesNotShow(t *testing.T) {
	for name, c := range map[string]struct {
		status int
		body   string
		events string
		want   string
	}{
		"may not read":    {http.StatusForbidden, `{"status":403,"detail":"these credentials do not allow to read"}`, eventEnd, "unknown whether the index has them: these credentials"},
		"no such call":    {http.StatusNotFound, `{"status":404,"detail":"there is no such call"}`, eventEnd, "unknown whether the index has them: there is no such call"},
		"open":            {http.StatusTooEarly, `{"threadId":"t","runId":"r","status":"running"}`, eventText, "run r is open"},
		"ended before":    {http.StatusOK, `{"threadId":"t","runId":"r","status":"finished","raw":{"next":1}}`, eventText, "run r had ended before"},
		"late":            {http.StatusTooEarly, `{"status":425,"detail":"the index has not got to 0:1 yet"}`, eventEnd, "did not reach 0:1 within 100ms"},
		"late to the end": {http.StatusTooEarly, `{"threadId":"t","runId":"r","status":"running"}`, eventEnd, "did not reach 0:1 within 100ms"},
		"there":           {http.StatusOK, `{"threadId":"t","runId":"r","status":"finished","raw":{"next":2}}`, eventEnd, ""},
	} {
		t.Run(name, func(t *testing.T) {
			s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
				if got := r.URL.Query().Get("atLeast"); got != "0:1" {
					t.Errorf("it asks for %q", got)
				}
				w.Header().Set("Content-Type", "application/problem+json")
				if strings.Contains(c.body, "threadId") {
					w.Header().Set("Content-Type", "application/json")
				}
				w.WriteHeader(c.status)
				_, _ = io.WriteString(w, c.body) // a test's answer
			}))
			defer s.Close()
			api, err := client.New(s.URL)
			if err != nil {
				t.Fatal(err)
			}
			defer api.Close()
			var stderr bytes.Buffer
			p := published{ThreadID: "t", RunID: "r", Ack: client.Ack{Accepted: 2, LastOffset: 1}}
			patience := kafkatest.Timeout
			if strings.HasPrefix(name, "late") {
				patience = 100 * time.Millisecond
			}
			awaitIndexed(t.Context(), newOutput(io.Discard, &stderr, nil), api, p, isTerminalEvent([]byte(c.events)), patience)
			if got := stderr.String(); !strings.Contains(got, c.want) || (c.want == "") != (got == "") || strings.Count(got, "\n") > 1 {
				t.Errorf("it says %q, want one line with %q", got, c.want)
			}
		})
	}
}

// What is no event is told with its line, before ingest has to.
func TestPublish_SaysWhichLineIsNoEvent(t *testing.T) {
	onShared(t, func(s *dev.Server, _ *client.Client) {
		for name, c := range map[string]struct{ text, want string }{
			"the first line":  {"\nnonsense\n" + eventStart, "It begins with:\n  nonsense\n  {\"type\":\"RUN_STARTED\",\"threadId\":\"t\",\"runId\":\"r\"}\nskein: line 2: not JSON: unexpected character at byte 1; if an agent sends it"},
			"a refusal":       {`{"detail":[{"type":"missing","loc":["body"],"msg":"Field required"}]}`, "  {\"detail\":[{\"type\":\"missing\",\"loc\":[\"body\"],\"msg\":\"Field required\"}]}\nskein: line 1: no type: an event needs a member \"type\" that is a string with a character in it; if an agent sends it, check its URL and that the request has the header Content-Type: application/json\n"},
			"an error page":   {"<html>\n<h1>502 Bad Gateway</h1>\n</html>\n", "  <html>\n  <h1>502 Bad Gateway</h1>\n  </html>\n"},
			"other names":     {`{"TYPE":"RUN_STARTED","threadId":"t","runId":"r"}`, "skein: line 1: no type"},
			"a later line":    {eventStart + "\n\n" + `{"Type":"CUSTOM"}`, "line 3: no type: an event needs a member \"type\" that is a string with a character in it; 1 event accepted: correct the rest and continue with --from 1\n"},
			"cut":             {"{\n" + eventStart[1:] + "\n{\n\"type\":", "line 3: not JSON: the text ends before the value does; 1 event accepted"},
			"no data":         {": ping\n\n", "line 1 looks like SSE, but no line has data"},
			"nothing":         {byteOrderMark + "\n", "there are none"},
			"malformed input": {eventStart, "reading input: threadId must be a string, not a number"},
		} {
			args := []string{"publish", "--url", s.URL()}
			if name == "malformed input" {
				args = append(args, "--input", writeFile(t, "input.json", `{"threadId":7,"messages":[]}`))
			}
			stdout, stderr, code := skein(t, c.text, args...)
			if want := map[bool]int{true: app.ExitUsage, false: app.ExitFailed}[name == "nothing"]; code != want || stdout != "" || !strings.Contains(stderr, c.want) || strings.HasPrefix(stderr, "This is not") == (strings.Count(stderr, "\n") == 1) {
				t.Errorf("%s: exit %d, %s%s, want %q", name, code, stdout, stderr, c.want)
			}
		}
	})
}

// Ids that contradict --thread and --run are said, as they were sent.
func TestPublish_PrintsWarnings(t *testing.T) {
	onShared(t, func(s *dev.Server, _ *client.Client) {
		input := writeFile(t, "input.json", `{"threadId":"x","runId":"r","messages":[]}`)
		events := eventStart + "\n" + eventEnd
		stdout, stderr, code := skein(t, events, "publish", "--thread", "other", "--run", "r", "--input", input, "--url", s.URL(), "--json")
		for _, want := range []string{
			`warning: the input names thread "x"; it is published to thread "other", as the path says; the run counts it as an anomaly (thread-mismatch)`,
			`warning: event 1: RUN_STARTED names thread "t"`, `warning: event 2: RUN_FINISHED names thread "t"`,
		} {
			if !strings.Contains(stderr, want) {
				t.Errorf("it does not say %s: %s", want, stderr)
			}
		}
		if code != 0 || strings.Count(stdout, `"anomaly":"thread-mismatch"`) != 3 {
			t.Errorf("exit %d, %s", code, stdout)
		}
	})
}

// Thread and run are those that the stages would read.
func TestPublish_ReadsIDsAsTheStagesDo(t *testing.T) {
	const none = "pass --thread ID --run ID"
	for name, c := range map[string]struct{ input, first, want string }{
		"a start":             {"", eventStart, "t r"},
		"an end":              {"", eventEnd, "t r"},
		"other case":          {"", `{"type":"RUN_STARTED","threadId":"t","runId":"r","ThreadID":"T","RunID":"R"}`, "t r"},
		"other case only":     {"", `{"type":"RUN_STARTED","threadId":"t","runId":"r","threadid":"T"}`, "t r"},
		"repeated":            {"", `{"type":"RUN_STARTED","threadId":7,"runId":"R","threadId":"t","runId":"r"}`, "t r"},
		"escaped":             {"", `{"typ\u0065":"RUN_STARTED","thread\u0049d":"t","runId":"\u0072"}`, "t r"},
		"another event":       {"", `{"type":"CUSTOM","name":"x","value":1,"threadId":"t","runId":"r"}`, none},
		"malformed":           {"", `{"type":"RUN_STARTED","threadId":"t","runId":7}`, "RUN_STARTED: runId must be a string, not a number; " + none},
		"an input":            {`{"threadId":"t","runId":"r","messages":[]}`, eventText, "t r"},
		"an input, then both": {`{"threadId":"ti","messages":[]}`, eventStart, "ti r"},
		"an input, repeated":  {`{"threadId":"T","threadId":"ti","ThreadID":"T","run\u0049d":"ri","messages":[]}`, eventStart, "ti ri"},
	} {
		t.Run(name, func(t *testing.T) {
			var o publishOptions
			var input []byte
			if c.input != "" {
				input = []byte(c.input)
			}
			err := o.takeIDs(input, []byte(c.first))
			got := o.thread + " " + o.run
			if err != nil {
				got = err.Error()
			}
			if !strings.HasSuffix(got, c.want) {
				t.Errorf("got %q, want %q", got, c.want)
			}
		})
	}
}

// The wait for the index goes by the end that the compactor sees.
func TestIsTerminalEvent_ReadsAsTheStagesDo(t *testing.T) {
	for event, want := range map[string]bool{
		eventEnd:                                                    true,
		`{"type":"RUN_ERROR","message":"x"}`:                        true,
		`{"typ\u0065":"RUN_ERROR","message":"x"}`:                   true,
		`{"type":"CUSTOM","type":"RUN_ERROR","message":"x"}`:        true,
		`{"type":"CUSTOM","name":"x","value":1,"TYPE":"RUN_ERROR"}`: false,
		`{"type":"RUN_FINISHED","threadId":"t"}`:                    false,
		eventText:                                                   false,
	} {
		if got := isTerminalEvent([]byte(event)); got != want {
			t.Errorf("%s: %v", event, got)
		}
	}
}
