package client_test

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"iter"
	"net/http"
	"net/http/httptest"
	"net/http/httputil"
	"net/url"
	"os"
	"reflect"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/skeinhq/skein/internal/app/dev"
	"github.com/skeinhq/skein/internal/app/dev/devtest"
	"github.com/skeinhq/skein/internal/demo"
	"github.com/skeinhq/skein/pkg/client"
	"github.com/skeinhq/skein/schemas"
)

// address is that of a server for all tests and examples of the package.
var address = "http://127.0.0.1:8420"

func TestMain(m *testing.M) {
	goleak.VerifyTestMain(tests{m})
}

type tests struct{ *testing.M }

func (m tests) Run() int {
	folder, err := os.MkdirTemp("", "skein-client-")
	if err != nil {
		panic(err)
	}
	server, err := dev.Start(context.Background(), devtest.Config(folder))
	if err != nil {
		panic(err)
	}
	address = server.URL()
	code := m.M.Run()
	if err := errors.Join(server.Close(), os.RemoveAll(folder)); err != nil {
		fmt.Fprintln(os.Stderr, err)
		code = 1
	}
	return code
}

// fault answers a request in the server's place, or lets it through.
type fault func(w http.ResponseWriter, r *http.Request, through http.Handler)

func through(w http.ResponseWriter, r *http.Request, through http.Handler) { through.ServeHTTP(w, r) }

// refuse answers with a status and, if after is not "", Retry-After.
func refuse(status int, after string) fault {
	return func(w http.ResponseWriter, _ *http.Request, _ http.Handler) {
		if after != "" {
			w.Header().Set("Retry-After", after)
		}
		w.WriteHeader(status)
	}
}

// cut closes the connection: the request is lost.
func cut(http.ResponseWriter, *http.Request, http.Handler) { panic(http.ErrAbortHandler) }

// cutAnswer lets the request through, and closes the connection after so many bytes of the answer.
func cutAnswer(after int) fault {
	return func(w http.ResponseWriter, r *http.Request, through http.Handler) {
		ctx, stop := context.WithCancel(r.Context())
		defer stop()
		through.ServeHTTP(&short{ResponseWriter: w, left: after, stop: stop}, r.WithContext(ctx))
		panic(http.ErrAbortHandler)
	}
}

// short writes the first bytes of an answer.
type short struct {
	http.ResponseWriter
	left int
	stop func()
}

func (s *short) Write(p []byte) (int, error) {
	n, err := s.ResponseWriter.Write(p[:min(len(p), s.left)])
	if s.left -= n; s.left == 0 {
		_ = http.NewResponseController(s.ResponseWriter).Flush() // the connection is closed next
		s.stop()
		return n, io.ErrShortWrite
	}
	return n, err
}

func (s *short) Unwrap() http.ResponseWriter { return s.ResponseWriter }

// faulty is a proxy before the server. Requests whose path ends with a suffix meet the faults in turn, then none.
type faulty struct {
	url string

	mu     sync.Mutex
	faults []fault
	bodies [][]byte // of those requests
}

func (f *faulty) requests() int {
	f.mu.Lock()
	defer f.mu.Unlock()
	return len(f.bodies)
}

func before(t *testing.T, suffix string, faults ...fault) *faulty {
	t.Helper()
	to, err := url.Parse(address)
	if err != nil {
		t.Fatal(err)
	}
	proxy := httputil.NewSingleHostReverseProxy(to)
	proxy.FlushInterval = -1
	f := &faulty{faults: faults}
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if !strings.HasSuffix(r.URL.Path, suffix) {
			proxy.ServeHTTP(w, r)
			return
		}
		body, err := io.ReadAll(r.Body)
		if err != nil {
			cut(w, r, proxy)
		}
		r.Body = io.NopCloser(bytes.NewReader(body))
		f.mu.Lock()
		next := fault(through)
		if f.bodies = append(f.bodies, body); len(f.faults) > 0 {
			next, f.faults = f.faults[0], f.faults[1:]
		}
		f.mu.Unlock()
		next(w, r, proxy)
	}))
	server.Config.ErrorLog = nil
	t.Cleanup(server.Close)
	f.url = server.URL
	return f
}

// run returns the events of a run with so many messages.
func run(thread, run string, messages int) [][]byte {
	list := []string{fmt.Sprintf(`{"type":"RUN_STARTED","threadId":%q,"runId":%q}`, thread, run)}
	for i := range messages {
		list = append(list, fmt.Sprintf(`{"type":"TEXT_MESSAGE_CHUNK","messageId":"%s-%d","role":"assistant","delta":"%d"}`, run, i, i))
	}
	list = append(list, fmt.Sprintf(`{"type":"RUN_FINISHED","threadId":%q,"runId":%q}`, thread, run))
	out := make([][]byte, len(list))
	for i, e := range list {
		out[i] = []byte(e)
	}
	return out
}

// each gives the events, and calls before ahead of each.
func each(events [][]byte, before func(i int)) iter.Seq2[[]byte, error] {
	return func(yield func([]byte, error) bool) {
		for i, e := range events {
			if before != nil {
				before(i)
			}
			if !yield(e, nil) {
				return
			}
		}
	}
}

// holds compares what Skein has of a run, each event once, with its events.
func holds(t *testing.T, c *client.Client, thread, run string, events [][]byte) {
	t.Helper()
	h, err := c.History(t.Context(), thread, run)
	if err != nil {
		t.Fatal(err)
	}
	if h.Status != "finished" || len(h.Messages) != len(events)-2 {
		t.Errorf("the run is %s, with %d messages; want %d", h.Status, len(h.Messages), len(events)-2)
	}
	var got [][]byte
	for e, err := range c.Stream(t.Context(), thread, run) {
		if err != nil {
			t.Fatal(err)
		}
		if e.Position != "" {
			got = append(got, e.Data)
		}
	}
	if n := len(got); n == 0 || !bytes.Equal(got[n-1], events[len(events)-1]) {
		t.Errorf("its stream ends with %s", got)
	}
}

func TestPublish_IsRepeatedUntilAllIsThere(t *testing.T) {
	for name, faults := range map[string][]fault{
		"refused for now":         {refuse(429, "1"), refuse(503, "")},
		"cut before and after":    {through, cut, cutAnswer(10), through, cutAnswer(0)},
		"a gateway without Skein": {refuse(502, ""), refuse(504, "1")},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			proxy := before(t, "/events", faults...)
			c := devtest.Client(t, proxy.url)
			events := run(name, "r", 40)
			began := time.Now()
			sent, err := c.Publish(t.Context(), name, "r", []byte(`{"threadId":"`+name+`","runId":"r","messages":[]}`),
				each(events, func(i int) { time.Sleep(time.Duration(i%7) * time.Millisecond) }))
			if err != nil || sent.Accepted != 42 || sent.Next != 42 || sent.InputPosition == "" || sent.Repeated+sent.Different != 0 {
				t.Fatalf("sent %+v, %v", sent, err)
			}
			if strings.HasPrefix(name, "refused") && time.Since(began) < time.Second {
				t.Error("it did not wait for as long as Retry-After says")
			}
			holds(t, c, name, "r", events)
		})
	}
}

func TestPublish_BatchesAreBounded(t *testing.T) {
	proxy := before(t, "/events")
	c := devtest.Client(t, proxy.url)
	large := []byte(`{"type":"CUSTOM","name":"x","value":"` + strings.Repeat("x", 100_000) + `"}`)
	events := slices.Insert(run("large", "r", 0), 1, slices.Repeat([][]byte{large}, 60)...)
	sent, err := c.Publish(t.Context(), "large", "r", nil, each(events, nil))
	if err != nil || sent.Accepted != 62 {
		t.Fatalf("sent %+v, %v", sent, err)
	}
	most := 0
	for _, body := range proxy.bodies {
		most = max(most, len(body))
	}
	if n := len(proxy.bodies); n < 6 || n > 62 || most > 1<<20+100_100 || most < 200_000 {
		t.Errorf("%d requests, the largest of %d bytes", n, most)
	}
}

func TestPublish_OutlivesARestart(t *testing.T) {
	cfg := devtest.Config(t.TempDir())
	server, err := dev.Start(t.Context(), cfg)
	if err != nil {
		t.Fatal(err)
	}
	cfg.Listen = strings.TrimPrefix(server.URL(), "http://")
	var notes []string
	c := devtest.Client(t, server.URL()).Noting(func(text string) { notes = append(notes, text) })
	again := make(chan error, 1)
	events := run("restarted", "r", 10)
	sent, err := c.Publish(t.Context(), "restarted", "r", nil, each(events, func(i int) {
		if i != 5 {
			return
		}
		time.Sleep(200 * time.Millisecond) // those before are acknowledged
		if err := server.Close(); err != nil {
			t.Error(err)
		}
		time.AfterFunc(time.Second, func() {
			var err error
			server, err = dev.Start(context.WithoutCancel(t.Context()), cfg)
			again <- err
		})
	}))
	if err := <-again; err != nil {
		t.Fatal(err)
	}
	defer func() {
		if err := server.Close(); err != nil {
			t.Error(err)
		}
	}()
	if err != nil || sent.Accepted != 12 || len(notes) == 0 || !strings.Contains(notes[0], "trying again") {
		t.Fatalf("sent %+v, %v; it said %q", sent, err, notes)
	}
	holds(t, c, "restarted", "r", events)
}

func TestPublish_SaysHowFarItGot(t *testing.T) {
	c := devtest.Client(t, address)
	broken := errors.New("the agent is gone")
	for name, test := range map[string]struct {
		events         func(yield func([]byte, error) bool)
		accepted, next int64
		says           string
	}{
		"an event that is none": {func(yield func([]byte, error) bool) {
			_ = yield([]byte(`{"type":"CUSTOM","name":"x","value":1}`), nil) && yield(nil, nil) && yield([]byte(`{"no":"type"}`), nil) &&
				yield([]byte(`{"type":"CUSTOM","name":"x","value":2}`), nil)
		}, 1, 2, "sending events: event 3: "},
		"an error of the agent": {func(yield func([]byte, error) bool) {
			_ = yield([]byte(`{"type":"CUSTOM","name":"x","value":1}`), nil) && yield(nil, broken)
		}, 1, 1, broken.Error()},
		"not JSON": {client.Events(strings.NewReader("{\"type\":\"CUSTOM\",\"name\":\"x\",\"value\":1}\nno JSON\n")), 1, 1, "event 2: "},
	} {
		sent, err := c.Publish(t.Context(), "how far", name, nil, test.events)
		if err == nil || !strings.Contains(err.Error(), test.says) ||
			sent.Accepted != test.accepted || sent.Next != test.next {
			t.Errorf("%s: sent %+v, %v", name, sent, err)
		}
		var refused *client.Error
		if is := errors.As(err, &refused); is == errors.Is(err, broken) || is && (refused.Status != 400 || refused.Line != test.next+1) {
			t.Errorf("%s: %+v", name, refused)
		}
	}
	ctx, stop := context.WithCancel(t.Context())
	defer stop()
	events := run("how far", "cancelled", 10)
	sent, err := c.Publish(ctx, "how far", "cancelled", nil, each(events, func(i int) {
		if i == 5 {
			time.Sleep(200 * time.Millisecond) // those before are acknowledged
			stop()
		}
	}))
	if !errors.Is(err, context.Canceled) || sent.Accepted != 5 || sent.Next != 5 {
		t.Fatalf("cancelled: sent %+v, %v", sent, err)
	}
	for i := range sent.Next {
		events[i] = nil
	}
	sent, err = c.Publish(t.Context(), "how far", "cancelled", nil, each(events, nil))
	if err != nil || sent.Accepted != 7 || sent.Next != 12 {
		t.Errorf("gone on with: sent %+v, %v", sent, err)
	}
	holds(t, c, "how far", "cancelled", run("how far", "cancelled", 10))
	nowhere, err := client.New("http://127.0.0.1:1")
	if err != nil {
		t.Fatal(err)
	}
	if _, err := nowhere.Publish(t.Context(), "t", "r", nil, each(events, nil)); !errors.Is(err, client.ErrUnreachable) {
		t.Errorf("where nothing ever answered: %v", err)
	}
}

// Each number is kept once, whoever came first.
func TestPublish_TwoPublishersOfOneRun(t *testing.T) {
	c := devtest.Client(t, address)
	events := run("two", "r", 50)
	var all sync.WaitGroup
	var sent [2]client.Published
	for i := range sent {
		all.Go(func() {
			var err error
			sent[i], err = c.Publish(t.Context(), "two", "r", nil, each(events, func(int) { time.Sleep(time.Millisecond) }))
			if err != nil {
				t.Error(err)
			}
		})
	}
	all.Wait()
	if n := sent[0].Repeated + sent[1].Repeated; n != 52 || sent[0].Different+sent[1].Different != 0 {
		t.Errorf("%d events are repeated: %+v", n, sent)
	}
	holds(t, c, "two", "r", events)
	other, err := c.Publish(t.Context(), "two", "r", nil, each(slices.Concat(events[:1], run("two", "other", 50)[1:]), nil))
	if err != nil || other.Different != 51 || other.Repeated != 1 {
		t.Errorf("another run of the same id: %+v, %v", other, err)
	}
}

func TestStopRequested_TellsAnAgentThatPublishes(t *testing.T) {
	c := devtest.Client(t, address)
	events := run("stopped", "r", 1)
	publish := func(events ...[]byte) {
		t.Helper()
		if _, err := c.Publish(t.Context(), "stopped", "r", nil, each(events, nil)); err != nil {
			t.Fatal(err)
		}
	}
	publish(events[0])
	var last []byte
	stopped := make(chan error, 1)
	go func() {
		_, err := c.CancelRun(t.Context(), "stopped", "r", "enough")
		stopped <- err
	}()
	if asked, err := c.StopRequested(t.Context(), "stopped", "r"); !asked || err != nil {
		t.Fatal(asked, err)
	}
	publish(events[0], []byte(`{"type":"RUN_FINISHED","threadId":"stopped","runId":"r","outcome":{"type":"cancelled"}}`))
	if err := <-stopped; err != nil {
		t.Error(err)
	}
	for event, err := range c.Stream(t.Context(), "stopped", "r") {
		if err != nil {
			t.Error(err)
		}
		last = event.Data
	}
	if !bytes.Contains(last, []byte("cancelled")) {
		t.Errorf("the run ends with %s", last)
	}
}

func TestStream_GoesOnOverCuts(t *testing.T) {
	cuts := []fault{cutAnswer(1000)} // behind what was there when it joined
	for i := range 5 {               // in the second event of a connection, here and there
		cuts = append(cuts, cutAnswer(270+7*i))
	}
	cuts = append(cuts, refuse(503, "1"), cut)
	proxy := before(t, "/stream", cuts...)
	c := devtest.Client(t, proxy.url)
	events := run("cut", "r", 60)
	var got [][]byte
	var all sync.WaitGroup
	all.Go(func() {
		for e, err := range c.Stream(t.Context(), "cut", "r") {
			if err != nil {
				t.Error(err)
			}
			if !bytes.Contains(e.Data, []byte("RUN_STARTED")) { // it comes with each join
				got = append(got, e.Data)
			}
		}
	})
	_, err := c.Publish(t.Context(), "cut", "r", nil, each(events, func(i int) {
		for i == 0 && proxy.requests() == 0 {
			time.Sleep(10 * time.Millisecond)
		}
		time.Sleep(100 * time.Millisecond)
	}))
	all.Wait()
	if err != nil {
		t.Fatal(err)
	}
	from := -1 // the first event that came after it had joined
	for len(got) > 0 {
		if from = slices.IndexFunc(events, func(e []byte) bool { return bytes.Equal(e, got[0]) }); from >= 0 {
			break
		}
		got = got[1:]
	}
	if len(got) < 20 || !slices.EqualFunc(got, events[from:], bytes.Equal) {
		t.Errorf("it gives\n%s\nwant\n%s", bytes.Join(got, []byte("\n")), bytes.Join(events, []byte("\n")))
	}
	if n := proxy.requests(); n < len(cuts) {
		t.Errorf("only %d connections were cut", n)
	}
}

func TestReads_WaitWhileTheServerRefuses(t *testing.T) {
	if _, err := devtest.Client(t, address).Publish(t.Context(), "waits", "r", nil, each(run("waits", "r", 1), nil)); err != nil {
		t.Fatal(err)
	}
	began := time.Now()
	c := devtest.Client(t, before(t, "/history", refuse(429, "1"), refuse(425, ""), refuse(503, "1")).url)
	if h, err := c.History(t.Context(), "waits", ""); err != nil || len(h.Messages) != 1 || time.Since(began) < 2*time.Second {
		t.Errorf("after %v: %+v, %v", time.Since(began), h, err)
	}
	var refused *client.Error
	c = devtest.Client(t, before(t, "/history", refuse(429, "600")).url)
	if _, err := c.History(t.Context(), "waits", ""); !errors.As(err, &refused) || refused.RetryAfter != 10*time.Minute {
		t.Errorf("told to come in ten minutes: %v", err)
	}
	impatient, err := client.New(before(t, "/history", refuse(429, "1")).url, client.WithPatience(0))
	if err != nil {
		t.Fatal(err)
	}
	defer impatient.Close()
	if _, err := impatient.History(t.Context(), "waits", ""); !errors.As(err, &refused) || refused.RetryAfter != time.Second {
		t.Errorf("without patience: %v", err)
	}
	ctx, stop := context.WithTimeout(t.Context(), 100*time.Millisecond)
	defer stop()
	c = devtest.Client(t, before(t, "/history", refuse(429, "30")).url)
	if _, err := c.History(ctx, "waits", ""); !errors.Is(err, context.DeadlineExceeded) || time.Since(began) > 20*time.Second {
		t.Errorf("with a deadline: %v", err)
	}
	if _, err := c.History(t.Context(), "nowhere", ""); !client.IsNotFound(err) {
		t.Errorf("of no thread: %v", err)
	}
}

// Decoded and encoded again, an answer has all that it had.
func TestReads_KeepAllOfAnAnswer(t *testing.T) {
	c := devtest.Client(t, address)
	ctx := t.Context()
	conversations, err := demo.Conversations(time.Now())
	if err != nil {
		t.Fatal(err)
	}
	if _, err := (demo.Player{Client: c}).Play(ctx, conversations); err != nil {
		t.Fatal(err)
	}
	same := func(path string, query url.Values, v any, err error) {
		t.Helper()
		body, failed := c.Get(ctx, path, query)
		if err = errors.Join(err, failed); err != nil {
			t.Fatal(err)
		}
		encoded, err := json.Marshal(v)
		if err != nil {
			t.Fatal(err)
		}
		var got, want any
		if err := errors.Join(json.Unmarshal(encoded, &got), json.Unmarshal(body, &want)); err != nil {
			t.Fatal(err)
		}
		if !reflect.DeepEqual(got, want) {
			t.Errorf("%s: %.2000s, want %.2000s", path, fmt.Sprint(got), fmt.Sprint(want))
		}
	}
	threads := map[string]int{}
	for thread, err := range c.Threads(ctx, url.Values{"limit": {"1"}}) {
		if err != nil {
			t.Fatal(err)
		}
		threads[thread.ThreadID] = thread.Runs
	}
	for _, conv := range conversations {
		if threads[conv.ThreadID] != len(conv.Runs) {
			t.Errorf("thread %s has %d runs, want %d", conv.ThreadID, threads[conv.ThreadID], len(conv.Runs))
		}
		at := client.ThreadPath(conv.ThreadID)
		l, err := c.Lineage(ctx, conv.ThreadID)
		same(at+"/lineage", url.Values{"words": {"true"}}, l, err)
		h, err := c.History(ctx, conv.ThreadID, "")
		same(at+"/history", nil, h, err)
		for _, r := range l.Runs {
			h, err := c.History(ctx, conv.ThreadID, r.RunID)
			same(at+"/runs/"+r.RunID+"/history", nil, h, err)
			next, err := c.Checkout(ctx, conv.ThreadID, r.RunID, "3")
			same(at+"/runs/"+r.RunID+"/checkout", url.Values{"at": {"3"}, "runId": {next.RunID}}, next, err)
		}
	}
	var runs []string
	for r, err := range c.Runs(ctx, url.Values{"agent": {"travel"}, "limit": {"2"}, "order": {"asc"}}) {
		if err != nil {
			t.Fatal(err)
		}
		runs = append(runs, r.RunID)
	}
	if want := threads[demo.Branched]; len(runs) != want || want < 3 {
		t.Errorf("the agent's runs are %v, want %d", runs, want)
	}
}

// The types have the members of the API's description.
func TestTypes_HaveTheMembersOfTheDescription(t *testing.T) {
	var doc struct {
		Components struct {
			Schemas map[string]struct{ Properties map[string]any }
		}
	}
	if err := json.Unmarshal(schemas.OpenAPI, &doc); err != nil {
		t.Fatal(err)
	}
	var members func(reflect.Type) []string
	members = func(of reflect.Type) (names []string) {
		for f := range of.Fields() {
			name, _, _ := strings.Cut(f.Tag.Get("json"), ",")
			if f.Anonymous {
				names = append(names, members(f.Type)...)
			} else if f.IsExported() {
				names = append(names, name)
			}
		}
		slices.Sort(names)
		return names
	}
	for name, v := range map[string]any{
		"Thread": client.Thread{}, "FoundRun": client.Run{}, "History": client.History{}, "Fork": client.Fork{},
		"Alternative": client.Alternative{}, "Lineage": client.Lineage{}, "LineageRun": client.LineageRun{}, "RunAgentInput": client.Input{},
	} {
		var want []string
		for member := range doc.Components.Schemas[name].Properties {
			want = append(want, member)
		}
		slices.Sort(want)
		if got := members(reflect.TypeOf(v)); !slices.Equal(got, want) {
			t.Errorf("%s has %v, described are %v", name, got, want)
		}
	}
}
