package live

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"net/url"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"go.uber.org/goleak"

	"github.com/skeinhq/skein/internal/parts/partstest"
	"github.com/skeinhq/skein/pkg/compactor"
	"github.com/skeinhq/skein/pkg/indexer"
	"github.com/skeinhq/skein/pkg/ingest"
	"github.com/skeinhq/skein/pkg/ingest/agents"
	"github.com/skeinhq/skein/pkg/kafka"
	"github.com/skeinhq/skein/pkg/kafka/kafkatest"
	"github.com/skeinhq/skein/pkg/query"
	"github.com/skeinhq/skein/pkg/store"
	"github.com/skeinhq/skein/pkg/store/sqlite"
	"github.com/skeinhq/skein/pkg/tail"
	"github.com/skeinhq/skein/pkg/tenant"
)

func TestMain(m *testing.M) {
	partstest.ExitShort("all stages together")
	goleak.VerifyTestMain(m, goleak.IgnoreAnyFunction("github.com/testcontainers/testcontainers-go.(*Reaper).connect.func1"))
}

// site is all stages in one process, with as many of query as a test asks for.
type site struct {
	t      *testing.T
	kafka  kafka.Config
	store  *sqlite.Store
	ingest string
	// queries are the addresses of the query processes, and services the processes themselves.
	queries  []string
	services []*query.Service
	servers  map[string]*httptest.Server // by URL
	client   *http.Client
}

// options vary a site.
type options struct {
	// checkpoint is how often open runs are written; an hour where it is not said, so that a run has no record before it ends.
	checkpoint time.Duration
	idleLimit  time.Duration
	queries    int
	agents     agents.Config
	// auth tells callers apart; all are acme's where it is not there.
	auth  tenant.Authenticator
	query func(*query.Config)
	tail  func(*tail.Config)
	// reader stands between query and the store.
	reader func(store.Reader) store.Reader
	// follow is the Kafka of query, where it is another way to the same brokers.
	follow *kafka.Config
}

func start(t *testing.T, k kafka.Config, o options) *site {
	t.Helper()
	s := &site{t: t, kafka: k, servers: map[string]*httptest.Server{}, client: &http.Client{Transport: &http.Transport{DisableCompression: true, MaxIdleConnsPerHost: 100}}}
	logger := slog.New(slog.DiscardHandler)
	st, err := sqlite.Open(t.Context(), filepath.Join(t.TempDir(), "lineage.sqlite"))
	if err != nil {
		t.Fatal(err)
	}
	s.store = st
	t.Cleanup(func() {
		if err := st.Close(); err != nil {
			t.Error(err)
		}
	})
	if err := st.Migrate(t.Context()); err != nil {
		t.Fatal(err)
	}
	if o.auth == nil {
		o.auth = tenant.Fixed("acme")
	}
	front := ingest.DefaultConfig(k)
	front.Agents = o.agents
	door, err := ingest.New(front, o.auth)
	if err != nil {
		t.Fatal(err)
	}
	s.run(func(ctx context.Context) error {
		err := door.Run(ctx)
		if closed := door.Close(); err == nil {
			err = closed
		}
		return err
	})
	c := compactor.DefaultConfig()
	c.Dir, c.InstanceID, c.CommitInterval = t.TempDir(), "one", 20*time.Millisecond
	c.CheckpointInterval, c.CheckpointMax, c.CheckpointFactor = time.Hour, time.Hour, 1000
	if o.checkpoint > 0 {
		c.CheckpointInterval, c.CheckpointMax, c.CheckpointFactor = o.checkpoint, o.checkpoint, 0
	}
	if o.idleLimit > 0 {
		c.IdleLimit = o.idleLimit
	}
	folding, err := compactor.New(c, k, logger)
	if err != nil {
		t.Fatal(err)
	}
	s.run(folding.Run)
	i := indexer.DefaultConfig(k)
	i.MaxDelay, i.Logger, i.Registerer = 10*time.Millisecond, logger, prometheus.NewRegistry()
	indexing, err := indexer.New(i, st)
	if err != nil {
		t.Fatal(err)
	}
	s.run(indexing.Run)
	s.ingest = s.serve(door.Handler())
	if o.follow != nil {
		k = *o.follow
	}
	for range max(o.queries, 1) {
		s.addQuery(k, o)
	}
	s.eventually("the stages are ready", func() (string, bool) {
		err := fmt.Errorf("ingest: %w; compactor: %w; indexer: %w", door.Ready(), folding.Ready(), indexing.Ready())
		return err.Error(), door.Ready() == nil && folding.Ready() == nil && indexing.Ready() == nil
	})
	return s
}

// addQuery starts a process of query.
func (s *site) addQuery(k kafka.Config, o options) {
	s.t.Helper()
	logger := slog.New(slog.DiscardHandler)
	f := tail.DefaultConfig(k)
	f.Logger, f.Registerer = logger, prometheus.NewRegistry()
	if o.tail != nil {
		o.tail(&f)
	}
	follow, err := tail.New(f)
	if err != nil {
		s.t.Fatal(err)
	}
	s.t.Cleanup(follow.Close)
	q := query.DefaultConfig()
	q.Logger, q.Registerer = logger, prometheus.NewRegistry()
	if o.query != nil {
		o.query(&q)
	}
	records, raw := query.NewKafkaRecords(k), query.NewRawLog(k)
	s.t.Cleanup(records.Close)
	s.t.Cleanup(raw.Close)
	var reader store.Reader = s.store
	if o.reader != nil {
		reader = o.reader(reader)
	}
	service, err := query.New(q, reader, records, raw, follow, o.auth)
	if err != nil {
		s.t.Fatal(err)
	}
	s.services = append(s.services, service)
	s.queries = append(s.queries, s.serve(service.Handler()))
	s.t.Cleanup(service.Drain) // before its server closes, which waits for streams
}

// run runs a part until the test ends.
func (s *site) run(part func(context.Context) error) {
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan error, 1)
	go func() { done <- part(ctx) }()
	s.t.Cleanup(func() {
		cancel()
		if err := <-done; err != nil {
			s.t.Error(err)
		}
	})
}

func (s *site) serve(h http.Handler) string {
	server := httptest.NewServer(h)
	s.servers[server.URL] = server
	s.t.Cleanup(server.Close)
	s.t.Cleanup(s.client.CloseIdleConnections)
	return server.URL
}

func (s *site) eventually(what string, ask func() (string, bool)) {
	s.t.Helper()
	deadline := time.NewTimer(kafkatest.Timeout)
	defer deadline.Stop()
	tick := time.NewTicker(10 * time.Millisecond)
	defer tick.Stop()
	for {
		answer, ok := ask()
		if ok {
			return
		}
		select {
		case <-tick.C:
		case <-deadline.C:
			s.t.Fatalf("waited for this: %s; the last answer: %s", what, answer)
		}
	}
}

func runPath(thread, run string) string {
	return "/v1/threads/" + url.PathEscape(thread) + "/runs/" + url.PathEscape(run)
}

// send calls a stage and returns the answer.
func (s *site) send(method, address, contentType, body string) (int, string) {
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
func (s *site) input(thread, run, input string) {
	s.t.Helper()
	if status, answer := s.send(http.MethodPut, s.ingest+runPath(thread, run)+"/input", "application/json", input); status != http.StatusOK {
		s.t.Fatalf("publishing input: %d %s", status, answer)
	}
}

// publish publishes events of a run, and returns once they are on the topic.
func (s *site) publish(thread, run string, events ...string) {
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
func (s *site) status(thread, run, status string) {
	s.t.Helper()
	s.eventually(run+" of "+thread+" is "+status, func() (string, bool) {
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
func (s *site) attach(query int, path, lastID string) *reader {
	s.t.Helper()
	r := s.try(query, path, lastID)
	if r.resp.StatusCode != http.StatusOK {
		text, _ := io.ReadAll(r.resp.Body)
		s.t.Fatalf("GET %s with %q: %d %s", path, lastID, r.resp.StatusCode, text)
	}
	return r
}

// try is attach, whatever the answer is.
func (s *site) try(query int, path, lastID string) *reader {
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
