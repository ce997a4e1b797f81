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

	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/skeinhq/skein/internal/app"
	"github.com/skeinhq/skein/internal/app/dev"
	"github.com/skeinhq/skein/pkg/client"
	"github.com/skeinhq/skein/pkg/kafka/kafkatest"
	"github.com/skeinhq/skein/pkg/record"
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
		key, err := record.ThreadKey(dev.Tenant, "ctrl-c")
		if err != nil {
			t.Fatal(err)
		}
		l := publishLive(t, s.URL())
		l.write(in("ctrl-c", eventStart), eventText)
		kafkatest.ConsumeUntil(t, s.Kafka(), s.Kafka().Topics().Events, func(all []*kgo.Record) bool {
			return len(slices.DeleteFunc(all, func(m *kgo.Record) bool { return string(m.Key) != key })) == 2
		})
		l.ctrlC()
		stderr, code := l.result()
		if code != app.ExitFailed || !strings.Contains(stderr, "interrupted: 2 events accepted") || !strings.Contains(stderr, "--from 2") ||
			strings.Count(stderr, "\n") != 1 {
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
		"SSE with CR":  "data: " + eventStart + "\r\rdata: " + eventText + "\r\n\rdata: " + eventEnd + "\n\r",
		"a JSON array": "[" + eventStart + "," + eventText + "," + eventEnd + "]",
	} {
		var got strings.Builder // of all batches
		server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			if _, err := io.Copy(&got, r.Body); err != nil || r.URL.Path != "/v1/threads/t/runs/r/events" ||
				r.Header.Get("Content-Type") != client.TypeSequenced {
				t.Errorf("%s %s, %v", r.URL.Path, r.Header.Get("Content-Type"), err)
			}
			_, _ = io.WriteString(w, `{"accepted":1}`)
		}))
		_, stderr, code := skein(t, events+"\n", "publish", "--no-wait", "--url", server.URL)
		server.Close()
		want := fmt.Sprintf("{\"seq\":0,\"event\":%s}\n{\"seq\":1,\"event\":%s}\n{\"seq\":2,\"event\":%s}\n", eventStart, eventText, eventEnd)
		if code != 0 || got.String() != want {
			t.Errorf("%s: exit %d, %s, sent %q, want %q", name, code, stderr, got.String(), want)
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

// Where nothing has ever answered, nothing is waited for.
func TestPublish_NoticesAServerThatIsNotThere(t *testing.T) {
	l := publishLive(t, ingestServer(t, func(c net.Conn) { _ = c.Close() })) // as a process that is killed does
	l.write(eventStart)
	_ = l.stdin.Close() // always nil
	stderr, code := l.result()
	if code != app.ExitFailed || !strings.Contains(stderr, "no answer from http://127.0.0.1:") ||
		!strings.Contains(stderr, "repeat the same command") || strings.Count(stderr, "\n") != 1 {
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
	if code != app.ExitFailed || !strings.Contains(stderr, "interrupted: how much was accepted is not known") ||
		!strings.Contains(stderr, "repeat the same command") {
		t.Errorf("exit %d, %s", code, stderr)
	}
}

func TestPublish_NamesAgentAndLabels(t *testing.T) {
	onShared(t, func(s *dev.Server, _ *client.Client) {
		at := "--url=" + s.URL()
		events := in("labelled", strings.Join([]string{eventStart, eventText, eventEnd}, "\n"))
		if stdout, stderr, code := skein(t, events, "publish", at, "--agent", "support", "--label", "User=ann", "--label",
			"team=a=b"); code != 0 {
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
	if _, stderr, code := skein(t, eventStart, "publish", "--label", "user=ann", "--label", "User=ben"); code != app.ExitUsage ||
		!strings.Contains(stderr, "another one") {
		t.Errorf("a key twice: exit %d, %s", code, stderr)
	}
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

// What no client can read is sent, and said with the reason; where there is nothing else, the command fails.
func TestPublish_SaysWhichEventsNoClientCanRead(t *testing.T) {
	onShared(t, func(s *dev.Server, _ *client.Client) {
		const snake = `{"type":"RUN_STARTED","thread_id":"t","run_id":"r1"}
{"type":"TEXT_MESSAGE_START","message_id":"m","role":"assistant"}
{"type":"TEXT_MESSAGE_CONTENT","message_id":"m","delta":"hello"}
{"type":"TEXT_MESSAGE_END","message_id":"m"}
{"type":"RUN_FINISHED","thread_id":"t","run_id":"r1"}
`
		for name, c := range map[string]struct {
			events      string
			code, count int
			says        []string
		}{
			"snake case": {snake, app.ExitFailed, 5, []string{
				"no client can read any of 5 events of run r1: event 1: RUN_STARTED: runId is missing; event 2: TEXT_MESSAGE_START: messageId is missing; ",
				"event 3: TEXT_MESSAGE_CONTENT: messageId is missing; and 2 more", "warning: no client can read event 3: "}},
			"wrong types": {`{"type":"STATE_SNAPSHOT"}` + "\n" + `{"type":"TEXT_MESSAGE_CONTENT","messageId":1,"delta":"x"}`, app.ExitFailed, 2,
				[]string{"event 1: STATE_SNAPSHOT: snapshot is missing; event 2: TEXT_MESSAGE_CONTENT: messageId must be a string"}},
			"a large one": {`{"type":"MESSAGES_SNAPSHOT","messages":[{"id":"m","role":"user","text":"` + strings.Repeat("x", 70_000) + `"}]}`,
				app.ExitFailed, 1, []string{"event 1: MESSAGES_SNAPSHOT: "}},
			"unknown types": {`{"type":"X"}` + "\n" + `{"type":"run_started","value":1}`, app.ExitFailed, 2,
				[]string{`of run r1: event 1: no event of AG-UI has the type "X"; event 2: no`}},
			"four of six": {in("no-client-four of six", eventStart) + "\n" + strings.Repeat(`{"type":"STEP_STARTED"}`+"\n", 4) + in("no-client-four of six", eventEnd), 0, 4,
				[]string{"warning: no client can read event 2: STEP_STARTED: stepName is missing (malformed)", "no client can read 4 of 6 events"}},
		} {
			stdout, stderr, code := skein(t, c.events, "publish", "--no-wait", "--thread", "no-client-"+name, "--run", "r1", "--url", s.URL(),
				"--json")
			if code != c.code || c.count > 0 != strings.Contains(stdout, fmt.Sprintf(`"unreadable":%d,`, c.count)) {
				t.Errorf("%s: exit %d, %s%s", name, code, stdout, stderr)
			}
			for _, want := range c.says {
				if !strings.Contains(stderr, want) {
					t.Errorf("%s: it does not say %q: %s", name, want, stderr)
				}
			}
		}
	})
}

// An end that no client can read ends the run for the compactor and for "skein fold", with an error that names its fault.
func TestPublish_AMalformedEndEndsTheRun(t *testing.T) {
	onShared(t, func(s *dev.Server, _ *client.Client) {
		for i, end := range []string{
			`{"type":"RUN_FINISHED","run_id":"r"}`, `{"type":"RUN_ERROR","message":null}`, `{"x":NaN,"type":"RUN_FINISHED"}`,
			`{"type":"RUN_FINISHED",}`, `{"type":"RUN_FINISHED","threadId":"t","runI`, eventText + eventEnd, "[" + eventEnd + "]", "\ufeff" + eventEnd,
			"{\"message\":\"a\ndata: b\",\"type\":\"RUN_ERROR\"}",
		} {
			thread := fmt.Sprintf("malformed-end-%d", i)
			events := "data: " + in(thread, eventStart) + "\n\ndata: " + eventText + "\n\ndata: " + end + "\n\n"
			_, stderr, code := skein(t, events, "publish", "--url", s.URL())
			if code != 0 || !strings.Contains(stderr, "no client can read event 3: ") {
				t.Errorf("%s: exit %d, %s", end, code, stderr)
			}
			folded, _, _ := skein(t, events, "fold", "--records", "-")
			shown, stderr, _ := skein(t, "", "show", thread, "r", "--url", s.URL(), "--json")
			for _, got := range []string{folded, shown} {
				if !strings.Contains(got, `"status":"error"`) || !strings.Contains(got, "agent-no-end") {
					t.Errorf("%s: %s%s", end, got, stderr)
				}
			}
		}
	})
}

func TestPublish_SkipBadGoesOnAndSaysSo(t *testing.T) {
	const bad = "nonsense\n{\"type\":\"CUSTOM\",\"name\":NaN}\n"
	start, end := in("skip-bad", eventStart), in("skip-bad", eventEnd)
	onShared(t, func(s *dev.Server, _ *client.Client) {
		events := bad + start + "\n{\"type\":\"CUSTOM\"\n" + eventText + "\n{\"no\":\"type\"}\n" + end + "\n"
		if _, stderr, code := skein(t, start+"\n"+bad+end, "publish", "--url", s.URL()); code != app.ExitFailed ||
			!strings.Contains(stderr, "line 2: not JSON") || !strings.Contains(stderr, "1 event accepted") ||
			!strings.Contains(stderr, "--skip-bad") {
			t.Errorf("without the flag: exit %d, %s", code, stderr)
		}
		events = strings.ReplaceAll(events, `"runId":"r"`, `"runId":"r2"`)
		stdout, stderr, code := skein(t, events+strings.ReplaceAll(start+"\n"+end, `"r"`, `"r3"`)+"\n[", "publish", "--skip-bad", "--url", s.URL(), "--json")
		if code != app.ExitFailed || strings.Count(stdout, "\n") != 2 || !strings.Contains(stdout, `"accepted":3,`) || !strings.Contains(stdout, `"skipped":4`) ||
			!strings.Contains(stderr, "left out 5 bad lines: line 1: not JSON") || !strings.Contains(stderr, "; line 4: ") ||
			!strings.Contains(stderr, "and 2 more") {
			t.Errorf("exit %d, %s%s", code, stdout, stderr)
		}
		stdout, stderr, code = skein(t, "", "show", "skip-bad", "r2", "--url", s.URL(), "--json")
		if code != 0 || !strings.Contains(stdout, `"status":"finished"`) || !strings.Contains(stdout, `"seq-gap":3`) {
			t.Errorf("the run: exit %d, %s%s", code, stdout, stderr)
		}
		if _, stderr, code := skein(t, bad, "publish", "--skip-bad", "--url", s.URL()); code != app.ExitFailed || !strings.Contains(stderr, "left out 2 bad lines: line 1") {
			t.Errorf("nothing else: exit %d, %s", code, stderr)
		}
	})
}

// A run that is sent again is compared with what is there: Skein keeps the first event of each number.
func TestPublish_SaysWhichRepeatsDiffer(t *testing.T) {
	onShared(t, func(s *dev.Server, _ *client.Client) {
		start, end := in("repeats", eventStart), in("repeats", eventEnd)
		whole := strings.Join([]string{start, eventText, eventText, end}, "\n")
		other := strings.Replace(whole, `"value":1`, `"value":2`, 1)
		for _, c := range []struct {
			name, events string
			args         []string
			code         int
			want         string // of stdout; empty: neither repeated nor different
		}{
			{"first", whole, nil, 0, ""},
			{"the same", whole, nil, 0, `"repeated":4,"different":0`},
			{"other white space", strings.ReplaceAll(whole, `,"value"`, `, "value"`), nil, 0, `"repeated":4,"different":0`},
			{"one differs", other, nil, app.ExitDiffers, `"repeated":3,"different":1`},
			{"only the end, which differs", strings.Join([]string{start, eventText, eventText, strings.Replace(end, "}", `,"result":1}`, 1)}, "\n"),
				[]string{"--from", "3"}, app.ExitDiffers, `"repeated":0,"different":1`},
			{"another run comes after it", other + "\n" + strings.ReplaceAll(whole, `"r"`, `"r2"`), nil, app.ExitDiffers, `"runId":"r2"`},
			{"not waiting", other, []string{"--no-wait"}, app.ExitDiffers, `"repeated":3,"different":1`},
			{"another start begins another run", strings.Replace(whole, `"runId":"r"}`, `"runId":"r","timestamp":1767225600000}`, 1), nil, 0, `"repeated":0,"different":0`},
			{"an open run", strings.ReplaceAll(start+"\n"+eventText, `"r"`, `"open"`), nil, 0, ""},
			{"an open run goes on", strings.ReplaceAll(strings.Replace(whole, `"value":1`, `"value":3`, 1), `"r"`, `"open"`), nil, app.ExitDiffers, `"repeated":1,"different":1`},
		} {
			stdout, stderr, code := skein(t, c.events, append([]string{"publish", "--url", s.URL(), "--json"}, c.args...)...)
			if code != c.code || !strings.Contains(stdout, c.want) || c.want == "" && strings.Contains(stdout, `"repeated"`) {
				t.Errorf("%s: exit %d, %s%s", c.name, code, stdout, stderr)
			}
			if code != 0 && !strings.Contains(stderr, "1 event of run") {
				t.Errorf("%s: %s", c.name, stderr)
			}
		}
	})
}
