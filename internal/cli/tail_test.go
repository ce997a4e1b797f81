package cli

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/skeinhq/skein/internal/app/dev"
	"github.com/skeinhq/skein/pkg/client"
)

// growing is what a command writes while it goes on.
type growing struct {
	mu sync.Mutex
	b  bytes.Buffer
}

func (g *growing) Write(p []byte) (int, error) {
	g.mu.Lock()
	defer g.mu.Unlock()
	return g.b.Write(p)
}

func (g *growing) String() string {
	g.mu.Lock()
	defer g.mu.Unlock()
	return g.b.String()
}

// becomes waits until a command has written what it is to.
func (g *growing) becomes(t *testing.T, want string) {
	t.Helper()
	for deadline := time.Now().Add(20 * time.Second); ; <-time.After(10 * time.Millisecond) {
		got := g.String()
		if got == want {
			return
		}
		if time.Now().After(deadline) {
			t.Fatalf("it says\n%s\nwant\n%s", got, want)
		}
	}
}

// started runs a command until stop.
func started(t *testing.T, args ...string) (out *growing, stop func() error) {
	ctx, cancel := context.WithCancel(t.Context())
	out = &growing{}
	ended := make(chan error, 1)
	go func() { ended <- run(ctx, args, nil, strings.NewReader(""), out, out) }()
	return out, func() error {
		t.Helper()
		cancel()
		select {
		case err := <-ended:
			return err
		case <-time.After(20 * time.Second):
			t.Fatal("it goes on after Ctrl-C")
			return nil
		}
	}
}

func TestTail_ShowsAThreadAsItComes(t *testing.T) {
	onShared(t, func(s *dev.Server, c *client.Client) {
		post := func(run string, events ...string) {
			t.Helper()
			if _, err := c.PostEvents(t.Context(), "tailed", run, client.TypeNDJSON, strings.NewReader(strings.Join(events, "\n"))); err != nil {
				t.Fatal(err)
			}
		}
		waits, stopWaiting := started(t, "tail", "tailed", "--url", s.URL())
		waits.becomes(t, "waiting for thread tailed\n")
		begin := func(run string) string {
			return fmt.Sprintf(`{"type":"RUN_STARTED","threadId":"tailed","runId":%q}`, run)
		}
		post("r", begin("r"),
			`{"type":"TEXT_MESSAGE_START","messageId":"m","role":"assistant"}`,
			`{"type":"TEXT_MESSAGE_CONTENT","messageId":"m","delta":"Good\nmor"}`)
		const first = "── run r ──\nassistant\n  Good\n  mor"
		waits.becomes(t, "waiting for thread tailed\n"+first)

		// One that comes in the middle of a message.
		joins, stopJoining := started(t, "history", "tailed", "--follow", "--url", s.URL())
		const joined = first
		joins.becomes(t, joined)
		post("r",
			`{"type":"TEXT_MESSAGE_CONTENT","messageId":"m","delta":"ning\u001b[2J"}`,
			`{"type":"TEXT_MESSAGE_END","messageId":"m"}`,
			`{"type":"TOOL_CALL_START","toolCallId":"c","toolCallName":"search"}`,
			`{"type":"TOOL_CALL_ARGS","toolCallId":"c","delta":"{\"q\":1}"}`,
			`{"type":"TOOL_CALL_END","toolCallId":"c"}`,
			`{"type":"TOOL_CALL_RESULT","messageId":"u","toolCallId":"c","content":"found"}`,
			`{"type":"RUN_ERROR","message":"out of tokens"}`)
		const rest = "ning\uFFFD[2J\n→ search\n  {\"q\":1}\ntool search\n  found\n── error: out of tokens ──\n"
		waits.becomes(t, "waiting for thread tailed\n"+first+rest)
		joins.becomes(t, joined+rest)
		post("s", begin("s"), `{"type":"TEXT_MESSAGE_CHUNK","messageId":"n","role":"assistant","delta":"again"}`, `{"type":"RUN_FINISHED","threadId":"tailed","runId":"s"}`)
		const next = "── run s ──\nassistant\n  again\n── finished ──\n"
		waits.becomes(t, "waiting for thread tailed\n"+first+rest+next)
		joins.becomes(t, joined+rest+next)
		for _, stop := range []func() error{stopWaiting, stopJoining} {
			if err := stop(); err != nil {
				t.Errorf("it ends with %v", err)
			}
		}

		// A run that is over ends by itself.
		if err := s.Settle(t.Context()); err != nil {
			t.Fatal(err)
		}
		stdout, stderr, code := skein(t, "", "tail", "tailed", "r", "--events", "--url", s.URL())
		if code != 0 || !strings.HasPrefix(stdout, begin("r")+"\n") ||
			!strings.HasSuffix(stdout, "{\"type\":\"RUN_ERROR\",\"message\":\"out of tokens\"}\n") {
			t.Errorf("exit %d, %s%s", code, stdout, stderr)
		}
		stdout, _, code = skein(t, "", "tail", "tailed", "s", "--json", "--url", s.URL())
		lines := strings.Split(strings.TrimSpace(stdout), "\n")
		var last struct {
			Position string
			Event    struct{ Type string }
		}
		if err := json.Unmarshal([]byte(lines[len(lines)-1]), &last); err != nil || code != 0 || last.Event.Type != "RUN_FINISHED" ||
			last.Position != position(t, s, "tailed", 12) {
			t.Errorf("exit %d, %s (%v)", code, stdout, err)
		}
	})
}

func TestTail_SaysWhatHoldsTheServerUp(t *testing.T) {
	answers := 0
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if !strings.HasSuffix(r.URL.Path, "/v1/threads/t/stream") {
			http.NotFound(w, r)
			return
		}
		if answers++; answers > 1 {
			w.WriteHeader(http.StatusNoContent)
			return
		}
		w.Header().Set("Content-Type", "text/event-stream")
		_, _ = io.WriteString(w, "id: 0:1\ndata: {\"type\":\"TEXT_MESSAGE_CHUNK\",\"messageId\":\"m\",\"role\":\"assistant\",\"delta\":\"Hel\"}\n\n"+
			": Kafka does not answer; the stream continues once it does\n\n: \n\n: this process is stopping; resume from the last id\n\n")
	}))
	defer server.Close()
	stdout, stderr, code := skein(t, "", "tail", "t", "--url", server.URL)
	if want := "server: Kafka does not answer; the stream continues once it does\n"; code != 0 || stderr != want || stdout != "assistant\n  Hel\n" {
		t.Errorf("exit %d, standard output %q, standard error %q, want %q", code, stdout, stderr, want)
	}
}

func TestChat_ShowsTheLastMessagesOfASnapshot(t *testing.T) {
	var screen strings.Builder
	c := newChat(&output{stdout: &screen, stderr: &screen, noColor: true}, 2)
	for _, event := range []string{
		`{"type":"MESSAGES_SNAPSHOT","messages":[{"id":"1","role":"user","content":"a"},{"id":"2","role":"assistant","toolCalls":[{"id":"c","function":{"name":"f","arguments":"{}"}}]},{"id":"3","role":"tool","toolCallId":"c","content":"b"},{"id":"4","role":"user","content":"d"}]}`,
		`{"type":"TEXT_MESSAGE_CHUNK","messageId":"5","role":"assistant","delta":"one"}`,
		`{"type":"TOOL_CALL_CHUNK","toolCallId":"x","toolCallName":"g","delta":"{"}`,
		`{"type":"TEXT_MESSAGE_CHUNK","messageId":"5","delta":" two"}`,
		`{"type":"STATE_SNAPSHOT","snapshot":{}}`,
		`{"type":"MESSAGES_SNAPSHOT","messages":[{"id":"1","role":"user","content":"a"},{"id":"5","role":"assistant","content":"one two"},{"id":"6","role":"user","content":"e"}]}`,
		`{"type":"CUSTOM","name":7,"content":"of another form"}`,
		`{"type":"RUN_FINISHED","runId":"r","outcome":{"type":"interrupt"}}`,
		`{"type":"RUN_FINISHED","outcome":"interrupt"}`,
	} {
		if err := c.event(client.LiveEvent{Data: []byte(event)}); err != nil {
			t.Fatal(err)
		}
	}
	want := "… 2 messages before\ntool f\n  b\nuser\n  d\nassistant\n  one\n→ g\n  {\nassistant …\n   two\nuser\n  e\n── interrupted: it waits for an answer ──\n── interrupted: it waits for an answer ──\n"
	if err := c.event(client.LiveEvent{Data: []byte("no JSON")}); err == nil {
		t.Error("what is no JSON is no error")
	}
	if got := screen.String(); got != want {
		t.Errorf("it shows\n%s\nwant\n%s", got, want)
	}
}
