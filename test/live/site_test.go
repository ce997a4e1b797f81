package live

import (
	"bufio"
	"context"
	"io"
	"net/http"
	"net/http/httptest"
	"net/url"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/skeinhq/skein/pkg/kafka"
	"github.com/skeinhq/skein/pkg/kafka/kafkatest"
	"github.com/skeinhq/skein/pkg/query"
	"github.com/skeinhq/skein/pkg/store"
	"github.com/skeinhq/skein/pkg/store/sqlite"
	"github.com/skeinhq/skein/pkg/tenant"
	"github.com/skeinhq/skein/test/parts/partstest"
	"github.com/skeinhq/skein/test/site"
)

func TestMain(m *testing.M) {
	partstest.ExitShort("all stages together")
	goleak.VerifyTestMain(m, goleak.IgnoreAnyFunction("github.com/testcontainers/testcontainers-go.(*Reaper).connect.func1"))
}

// live is all stages in one process, with as many of query as a test asks for.
type live struct {
	t       *testing.T
	kafka   kafka.Config
	ingest  string
	queries []string // addresses
	client  *http.Client
}

// options vary a site.
type options struct {
	checkpoint, idleLimit time.Duration // as site.Options has them
	production            bool
	queries               int
	// auth tells callers apart; all are acme's where it is not there.
	auth  tenant.Authenticator
	query func(*query.Config)
	// reader stands between query and the store.
	reader func(store.Reader) store.Reader
	// follow is the Kafka of query, where it is another way to the same brokers.
	follow *kafka.Config
}

func start(t *testing.T, k kafka.Config, o options) *live {
	t.Helper()
	s := &live{t: t, kafka: k,
		client: &http.Client{Transport: &http.Transport{DisableCompression: true, MaxIdleConnsPerHost: 100}}}
	st, err := sqlite.Open(t.Context(), filepath.Join(t.TempDir(), "lineage.sqlite"))
	if err != nil {
		t.Fatal(err)
	}
	if o.auth == nil {
		o.auth = tenant.Fixed("acme")
	}
	s.ingest = s.serve(site.Start(t, k, st, site.Options{Auth: o.auth, Checkpoint: o.checkpoint,
		Production: o.production, IdleLimit: o.idleLimit}).Handler())
	var reader store.Reader = st
	if o.reader != nil {
		reader = o.reader(reader)
	}
	if o.follow != nil {
		k = *o.follow
	}
	for range max(o.queries, 1) {
		service := site.Query(t, k, reader, o.auth, func(q *query.Config) {
			if o.query != nil {
				o.query(q)
			}
		})
		s.queries = append(s.queries, s.serve(service.Handler()))
		t.Cleanup(service.Drain) // before its server closes, which waits for streams
	}
	return s
}

func (s *live) serve(h http.Handler) string {
	server := httptest.NewServer(h)
	s.t.Cleanup(server.Close)
	s.t.Cleanup(s.client.CloseIdleConnections)
	return server.URL
}

func runPath(thread, run string) string {
	return "/v1/threads/" + url.PathEscape(thread) + "/runs/" + url.PathEscape(run)
}

// send calls a stage and returns the answer.
func (s *live) send(method, address, contentType, body string) (int, string) {
	s.t.Helper()
	req, err := http.NewRequestWithContext(context.WithoutCancel(s.t.Context()), method, address, strings.NewReader(body))
	if err != nil {
		s.t.Fatal(err)
	}
	if contentType != "" {
		req.Header.Set("Content-Type", contentType)
	}
	resp, err := s.client.Do(req)
	if err != nil {
		s.t.Fatal(err)
	}
	text, err := io.ReadAll(resp.Body)
	_ = resp.Body.Close() // read whole
	if err != nil {
		s.t.Fatal(err)
	}
	return resp.StatusCode, string(text)
}

// input publishes the input of a run.
func (s *live) input(thread, run, input string) {
	s.t.Helper()
	if status, answer := s.send(http.MethodPut, s.ingest+runPath(thread, run)+"/input", "application/json", input); status != http.StatusOK {
		s.t.Fatalf("publishing input: %d %s", status, answer)
	}
}

// publish publishes events of a run, and returns once they are on the topic.
func (s *live) publish(thread, run string, events ...string) {
	s.t.Helper()
	if len(events) == 0 {
		return
	}
	status, answer := s.send(http.MethodPost, s.ingest+runPath(thread, run)+"/events", "application/x-ndjson", strings.Join(events, "\n"))
	if status != http.StatusOK {
		s.t.Fatalf("publishing: %d %s", status, answer)
	}
}

// status waits until the index says that a run has a status.
func (s *live) status(thread, run, status string) {
	s.t.Helper()
	site.Eventually(s.t, run+" of "+thread+" is "+status, func() (string, bool) {
		code, answer := s.send(http.MethodGet, s.queries[0]+runPath(thread, run), "", "")
		return answer, code == http.StatusOK && strings.Contains(answer, `"status":"`+status+`"`)
	})
}

// frame is a block of a stream of server-sent events, as a browser takes it.
type frame struct {
	id, data, comment string
}

// reader is a client of a live stream.
type reader struct {
	t      *testing.T
	resp   *http.Response
	lines  *bufio.Reader
	cancel context.CancelFunc
	// lastID is the id that a browser would come again with.
	lastID string
	// lossy: it may be cut.
	lossy bool
}

// attach opens a stream; lastID may be empty.
func (s *live) attach(query int, path, lastID string) *reader {
	s.t.Helper()
	r := s.try(query, path, lastID)
	if r.resp.StatusCode != http.StatusOK {
		text, _ := io.ReadAll(r.resp.Body)
		s.t.Fatalf("GET %s with %q: %d %s", path, lastID, r.resp.StatusCode, text)
	}
	return r
}

// try is attach, whatever the answer is.
func (s *live) try(query int, path, lastID string) *reader {
	s.t.Helper()
	ctx, cancel := context.WithTimeout(context.WithoutCancel(s.t.Context()), 2*kafkatest.Timeout)
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, s.queries[query]+path, nil)
	if err != nil {
		s.t.Fatal(err)
	}
	if lastID != "" {
		req.Header.Set("Last-Event-ID", lastID)
	}
	resp, err := s.client.Do(req) //nolint:bodyclose // the reader closes it
	if err != nil {
		cancel()
		s.t.Fatal(err)
	}
	r := &reader{t: s.t, resp: resp, lines: bufio.NewReader(resp.Body), cancel: cancel, lastID: lastID}
	s.t.Cleanup(r.close)
	return r
}

func (r *reader) close() {
	r.cancel()
	_ = r.resp.Body.Close() // it was cut
}

// refused checks that the stream was refused, and returns why.
func (r *reader) refused(status int) string {
	r.t.Helper()
	text, err := io.ReadAll(r.resp.Body)
	if err != nil || r.resp.StatusCode != status {
		r.t.Errorf("%d %s (%v), want a refusal of status %d", r.resp.StatusCode, text, err, status)
	}
	return string(text)
}

// next returns the next block; false at the stream's end.
func (r *reader) next() (f frame, ok bool) {
	r.t.Helper()
	for {
		line, err := r.lines.ReadString('\n')
		if err != nil {
			if err != io.EOF && !r.lossy {
				r.t.Fatalf("reading the stream: %v", err)
			}
			return f, false
		}
		name, value, _ := strings.Cut(strings.TrimSuffix(line, "\n"), ": ")
		switch {
		case line == "\n":
			if f.id != "" {
				r.lastID = f.id
			}
			return f, true
		case strings.HasPrefix(line, ":"):
			f.comment = value
		case name == "id":
			f.id = value
		case name == "data":
			f.data = value
		case name == "retry":
		default:
			r.t.Fatalf("the stream has the line %q", line)
		}
	}
}

// event returns the next event; false at the stream's end.
func (r *reader) event() (frame, bool) {
	r.t.Helper()
	for {
		f, ok := r.next()
		if !ok || f.data != "" {
			return f, ok
		}
	}
}

// rest returns all events up to the stream's end.
func (r *reader) rest() []string {
	r.t.Helper()
	var events []string
	for {
		f, ok := r.event()
		if !ok {
			return events
		}
		events = append(events, f.data)
	}
}

// until reads up to the event with an id, and returns the events.
func (r *reader) until(id string) (events []string) {
	r.t.Helper()
	for r.lastID != id {
		f, ok := r.event()
		if !ok {
			r.t.Fatalf("the stream ends before %s, with %s", id, typesOf(events))
		}
		events = append(events, f.data)
	}
	return events
}
