package abuse

import (
	"bytes"
	"cmp"
	"compress/gzip"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/klauspost/compress/zstd"

	"github.com/skeinhq/skein/test/process"
)

// attack is one of ingest. It ends by itself, or with ctx, and returns the bytes that it has sent and what it was answered.
type attack struct {
	name string
	// who attacks; "" is Hostile.
	who string
	// args are more flags of the stage.
	args func(t *testing.T) []string
	run  func(ctx context.Context, f *force) error
	// want must be among the answers.
	want string
	// long: it has no short form.
	long bool
}

// force is what an attacker has, and what comes of it.
type force struct {
	site *Site
	who  string
	url  string
	web  *http.Client
	sent atomic.Int64
	// want is what must be among the answers.
	want string

	mu      sync.Mutex
	answers map[string]int
}

func (f *force) answered(what string) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.answers[what]++
}

func (f *force) String() string {
	f.mu.Lock()
	defer f.mu.Unlock()
	var out []string
	for _, what := range slices.Sorted(maps.Keys(f.answers)) {
		out = append(out, fmt.Sprintf("%d × %s", f.answers[what], what))
	}
	return strings.Join(out, ", ")
}

// counted counts what is read as sent.
type counted struct {
	io.Reader
	n *atomic.Int64
}

func (c counted) Read(p []byte) (int, error) {
	n, err := c.Reader.Read(p)
	c.n.Add(int64(n))
	return n, err //nolint:wrapcheck // a reader's own error
}

// send sends a request and keeps its answer.
func (f *force) send(ctx context.Context, method, path string, body io.Reader, header ...string) {
	req := f.site.Request(ctx, f.who, method, f.url+path, counted{body, &f.sent})
	for i := 0; i < len(header); i += 2 {
		req.Header.Set(header[i], header[i+1])
	}
	resp, err := f.web.Do(req)
	if err != nil {
		if ctx.Err() == nil {
			f.answered("a cut connection")
		} else {
			f.answered("no answer before the end")
		}
		return
	}
	defer resp.Body.Close()
	text, err := io.ReadAll(io.LimitReader(resp.Body, 4<<10)) // a cut answer has its status
	if resp.StatusCode == http.StatusTooManyRequests && err == nil {
		refusal(f.site.TB, resp, text)
	}
	what := resp.Status
	for _, name := range []string{"limit", "reason"} {
		if _, rest, ok := strings.Cut(string(text), `"`+name+`":"`); ok {
			value, _, _ := strings.Cut(rest, `"`)
			what += " " + value
			break
		}
	}
	f.answered(what)
}

// atOnce does something n times at once.
func atOnce(n int, do func(i int)) {
	var all sync.WaitGroup
	for i := range n {
		all.Go(func() { do(i) })
	}
	all.Wait()
}

// open is a body that stays open behind what it has, until ctx ends.
func open(ctx context.Context, begin []byte) io.Reader {
	return io.MultiReader(bytes.NewReader(begin), readerFunc(func([]byte) (int, error) {
		<-ctx.Done()
		return 0, ctx.Err()
	}))
}

type readerFunc func([]byte) (int, error)

func (r readerFunc) Read(p []byte) (int, error) { return r(p) }

// squeezed is n times a byte as gzip, with no end; for 0 a line that shrinks to a hundredth.
func squeezed(n int, c byte) []byte {
	var b bytes.Buffer
	w := gzip.NewWriter(&b)
	for i := range n >> 10 {
		part := bytes.Repeat([]byte{c}, 1<<10)
		if c == 0 {
			part = append(bytes.Repeat([]byte{'x'}, 1<<10-8), fmt.Sprintf("%08x", uint32(i)*2654435761)...)
		}
		_, _ = w.Write(part) // a buffer
	}
	_ = w.Flush() // a buffer
	return b.Bytes()
}

func zstandard(text []byte, opts ...zstd.EOption) []byte {
	w, err := zstd.NewWriter(nil, opts...)
	if err != nil {
		panic(err) // options of the test
	}
	defer func() { _ = w.Close() }()
	return w.EncodeAll(text, nil)
}

func eventsOf(i int) string { return fmt.Sprintf("/v1/threads/t%d/runs/r/events", i) }

// lasting bounds an attack that would go on for ever: to so many seconds in the long form and, in the short one, to so many or until the
// wanted answer has come, which on a busy machine takes longer.
func (f *force) lasting(ctx context.Context, short, long int) (context.Context, context.CancelFunc) {
	if *Long {
		return context.WithTimeout(ctx, time.Duration(long)*time.Second)
	}
	ctx, cancel := context.WithTimeout(ctx, process.Patience)
	go func() {
		tick := time.NewTicker(time.Duration(short) * time.Second)
		defer tick.Stop()
		for {
			select {
			case <-ctx.Done():
				return
			case <-tick.C:
			}
			if strings.Contains(f.String(), f.want) {
				cancel()
			}
		}
	}()
	return ctx, cancel
}

var ingestAttacks = []attack{
	{name: "24 posts of a line of 16 MiB without an end, 16 KB as gzip", want: "413 Request Entity Too Large inflates-too-much",
		run: func(ctx context.Context, f *force) error {
			body := squeezed(16<<20, 'x')
			ctx, cancel := f.lasting(ctx, 2, 60)
			defer cancel()
			atOnce(24, func(i int) { f.send(ctx, http.MethodPost, eventsOf(i), open(ctx, body), "Content-Encoding", "gzip") })
			return nil
		}},
	{name: "100 of them with less compression, each again when it is refused", want: "request_memory",
		run: func(ctx context.Context, f *force) error {
			body := squeezed(15<<20, 0)
			ctx, cancel := f.lasting(ctx, 2, 60)
			defer cancel()
			atOnce(100, func(i int) {
				for ctx.Err() == nil {
					f.send(ctx, http.MethodPost, eventsOf(i), open(ctx, body), "Content-Encoding", "gzip", "Accept", "application/x-ndjson")
				}
			})
			return nil
		}},
	{name: "200 open bodies of zstd with a window of 8 MiB", want: "429 Too Many Requests request_memory",
		run: func(ctx context.Context, f *force) error {
			body := zstandard(bytes.Repeat([]byte("0123456789abcdef"), 1<<20), zstd.WithWindowSize(8<<20), zstd.WithSingleSegment(false))
			ctx, cancel := f.lasting(ctx, 2, 60)
			defer cancel()
			atOnce(200, func(i int) {
				f.send(ctx, http.MethodPost, eventsOf(i), open(ctx, body[:len(body)-8]), "Content-Encoding", "zstd")
			})
			return nil
		}},
	{name: "zstd of gigabytes of line feeds", want: "413 Request Entity Too Large inflates-too-much",
		run: func(ctx context.Context, f *force) error {
			body := bytes.Repeat(zstandard(bytes.Repeat([]byte{'\n'}, 64<<20)), 16)
			atOnce(16, func(i int) {
				f.send(ctx, http.MethodPost, eventsOf(i), bytes.NewReader(body), "Content-Encoding", "zstd")
			})
			return nil
		}},
	{name: "48 inputs of a million members, as gzip", want: "400 Bad Request too-many",
		run: func(ctx context.Context, f *force) error {
			var input bytes.Buffer
			w := gzip.NewWriter(&input)
			_, _ = fmt.Fprint(w, `{"threadId":"t","runId":"r","messages":[],"state":{`) // a buffer
			for i := range 1 << 20 {
				_, _ = fmt.Fprintf(w, `"%07x":0,`, i*7919%(1<<27)) // a buffer
			}
			_, _ = fmt.Fprint(w, `"end":0},"tools":[],"context":[]}`) // a buffer
			_ = w.Close()                                             // a buffer
			atOnce(48, func(i int) {
				f.send(ctx, http.MethodPut, fmt.Sprintf("/v1/threads/t%d/runs/r/input", i), bytes.NewReader(input.Bytes()), "Content-Encoding", "gzip")
			})
			return nil
		}},
	{name: "24 inputs of 16 MB at once, each as fast as it goes", want: "429 Too Many Requests request_memory",
		run: func(ctx context.Context, f *force) error {
			input := []byte(`{"threadId":"t","runId":"r","messages":[],"tools":[],"context":[],"state":"` + strings.Repeat("x", 15<<20) + `"}`)
			atOnce(24, func(i int) {
				f.send(ctx, http.MethodPut, fmt.Sprintf("/v1/threads/t%d/runs/r/input", i), bytes.NewReader(input))
			})
			return nil
		}},
	{name: "streams that say nothing, as many as are taken", want: "429 Too Many Requests request_memory",
		run: func(ctx context.Context, f *force) error {
			ctx, cancel := f.lasting(ctx, 4, 60)
			defer cancel()
			atOnce(7000, func(i int) {
				f.send(ctx, http.MethodPost, eventsOf(i), open(ctx, []byte("\n")), "Accept", "application/x-ndjson")
			})
			return nil
		}},
	{name: "400 requests to stop runs that nobody holds", want: "429 Too Many Requests waiting_cancels",
		run: func(ctx context.Context, f *force) error {
			atOnce(400, func(i int) {
				f.send(ctx, http.MethodPost, fmt.Sprintf("/v1/threads/t%d/runs/r/cancel", i), strings.NewReader("{}"))
			})
			return nil
		}},
	{name: "requests to stop runs beside events of 14 MB on their partitions", want: "429 Too Many Requests waiting_cancels",
		run: func(ctx context.Context, f *force) error {
			var event bytes.Buffer
			w := gzip.NewWriter(&event)
			_, _ = fmt.Fprint(w, `{"type":"CUSTOM","name":"n","value":"`) // a buffer
			for i := range 14 << 10 {
				_, _ = fmt.Fprintf(w, "%s%08x", strings.Repeat("x", 1<<10-8), uint32(i)*2654435761) // a buffer; it shrinks to a hundredth
			}
			_, _ = fmt.Fprint(w, `"}`) // a buffer
			_ = w.Close()              // a buffer
			ctx, cancel := f.lasting(ctx, 2, 60)
			defer cancel()
			atOnce(404, func(i int) {
				for i < 4 && ctx.Err() == nil {
					f.send(ctx, http.MethodPost, eventsOf(i), bytes.NewReader(event.Bytes()), "Content-Encoding", "gzip")
				}
				if i >= 4 {
					f.send(ctx, http.MethodPost, fmt.Sprintf("/v1/threads/t%d/runs/r/cancel", i), strings.NewReader("{}"))
				}
			})
			return nil
		}},
	{name: "requests as fast as they go, with a quota of 20 a second", want: "429 Too Many Requests requests_per_second", who: Limited,
		run: func(ctx context.Context, f *force) error {
			ctx, cancel := f.lasting(ctx, 2, 30)
			defer cancel()
			atOnce(8, func(i int) {
				for ctx.Err() == nil {
					f.send(ctx, http.MethodPost, eventsOf(i), strings.NewReader(`{"type":"CUSTOM","name":"n","value":1}`))
				}
			})
			return nil
		}},
	{name: "100 proxied runs with an event of 15 MB without an end, and callers that do not read", want: "200 OK",
		args: agentsOf, run: runsThatNobodyReads},
	{name: "answers that nobody reads, on pipelined requests", want: "a connection that was given up", long: true,
		run: neverReads},
	{name: "a body that says no event", want: "400 Bad Request no-event",
		run: func(ctx context.Context, f *force) error {
			f.send(ctx, http.MethodPost, eventsOf(0), strings.NewReader(`{"an":"error page"}`+"\n"), "Content-Type", "text/event-stream")
			return nil
		}},
}

// agentsOf starts an agent that never ends an event and one that never stops, and returns the flags that name them.
func agentsOf(t *testing.T) []string {
	agents := http.NewServeMux()
	agents.HandleFunc("/endless", func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Content-Type", "text/event-stream")
		_, _ = io.WriteString(w, `data: {"type":"CUSTOM","name":"n","value":"`) // the caller is gone
		part := strings.Repeat("x", 1<<20)
		for range 15 {
			if _, err := io.WriteString(w, part); err != nil {
				return
			}
		}
		http.NewResponseController(w).Flush() //nolint:errcheck // as above
		<-r.Context().Done()
	})
	agents.HandleFunc("/talks", func(w http.ResponseWriter, r *http.Request) {
		var in struct{ ThreadID, RunID string }
		if err := json.NewDecoder(r.Body).Decode(&in); err != nil {
			w.WriteHeader(http.StatusBadRequest)
			return
		}
		w.Header().Set("Content-Type", "text/event-stream")
		_, err := fmt.Fprintf(w, "data: {\"type\":\"RUN_STARTED\",\"threadId\":%q,\"runId\":%q}\n\n", in.ThreadID, in.RunID)
		for n := 0; err == nil; n++ { // until the proxy closes the connection
			_, err = fmt.Fprintf(w, "data: {\"type\":\"CUSTOM\",\"name\":\"n\",\"value\":%d}\n\n", n)
		}
	})
	server := httptest.NewServer(agents)
	t.Cleanup(server.Close)
	path := filepath.Join(t.TempDir(), "agents.yaml")
	text := fmt.Sprintf("agents:\n  - name: endless\n    url: %[1]s/endless\n  - name: talks\n    url: %[1]s/talks\n    on_disconnect: cancel\n", server.URL)
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	return []string{"--agents", path}
}

func runsThatNobodyReads(ctx context.Context, f *force) error {
	ctx, cancel := f.lasting(ctx, 3, 60)
	defer cancel()
	atOnce(100, func(i int) {
		req := f.site.Request(ctx, f.who, http.MethodPost, f.url+"/v1/agents/endless", fmt.Sprintf(`{"threadId":"t%d","runId":"r","messages":[],"tools":[],"context":[]}`, i))
		req.Header.Set("Content-Type", "application/json")
		resp, err := f.web.Do(req)
		if err != nil {
			f.answered("no answer before the end")
			return
		}
		defer resp.Body.Close()
		f.answered(resp.Status)
		<-ctx.Done()
	})
	return nil
}

// neverReads sends requests on one connection and reads no answer, until the stage gives up: it takes nothing more.
func neverReads(ctx context.Context, f *force) error {
	c, err := (&net.Dialer{}).DialContext(ctx, "tcp", strings.TrimPrefix(f.url, "http://"))
	if err != nil {
		return fmt.Errorf("connecting: %w", err)
	}
	defer func() { _ = c.Close() }()
	request := []byte("GET /x HTTP/1.1\r\nHost: x\r\n\r\n") // shorter than its answer: the stage waits to write, not to read
	_ = c.SetWriteDeadline(time.Now().Add(3 * time.Minute)) // a TCP connection takes it
	for {
		n, err := c.Write(request)
		f.sent.Add(int64(n))
		switch {
		case errors.Is(err, os.ErrDeadlineExceeded):
			f.answered("a connection that is held for minutes")
			return nil
		case err != nil:
			f.answered("a connection that was given up")
			return nil
		}
	}
}

func TestIngest_NoTenantTakesItFromAnother(t *testing.T) {
	site := NewSite(t)
	for _, a := range ingestAttacks {
		t.Run(a.name, func(t *testing.T) {
			if a.long && !*Long {
				t.Skip("the stage gives up after 30 s: only with -abuse.long")
			}
			of := *site
			of.TB, of.Dir = t, t.TempDir()
			var args []string
			if a.args != nil {
				args = a.args(t)
			}
			stage := of.Start("ingest", args...)
			web := of.Web()
			honest := Measure(t, 20*time.Millisecond, func(ctx context.Context, n int) error {
				req := of.Request(ctx, Honest, http.MethodPost, stage.URL+fmt.Sprintf("/v1/threads/honest%d/runs/r/events", n%32), fmt.Sprintf(`{"type":"CUSTOM","name":"n","value":%d}`, n))
				resp, err := web.Do(req)
				if err != nil {
					return fmt.Errorf("publishing: %w", err)
				}
				defer resp.Body.Close()
				if text, _ := io.ReadAll(resp.Body); resp.StatusCode != http.StatusOK { // it shows in the text
					return fmt.Errorf("publishing is answered %s %s", resp.Status, text)
				}
				return nil
			})
			honest.Await(t, size(100, 30))
			before := honest.Take(t)

			f := &force{site: &of, who: cmp.Or(a.who, Hostile), url: stage.URL, web: of.Web(), want: a.want, answers: map[string]int{}}
			if err := a.run(t.Context(), f); err != nil {
				t.Fatal(err)
			}
			honest.Await(t, 20)
			during := honest.Take(t)
			honest.Stop()
			Report(t, stage, Row{Attack: a.name, Sent: f.sent.Load(), Before: before, During: during, Answer: f.String()})
			if !strings.Contains(f.String(), a.want) {
				t.Errorf("the attacker got %s, want %s among it", f, a.want)
			}
			share, most := held(before, before.At(.99)+time.Second)
			if took := during.At(share); took > most {
				t.Errorf("the other tenant's requests took %v (p%.0f), at most %v are wanted", took, 100*share, most)
			}
			// In the short form the machine has other tests to run: the row tells the rate.
			if *Long && during.Rate() < before.Rate()/2 {
				t.Errorf("the other tenant published %.1f requests a second, %.1f without the attack: at least half are wanted", during.Rate(), before.Rate())
			}
		})
	}
}
