package query

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/twmb/franz-go/pkg/kgo"
	"go.uber.org/goleak"

	"github.com/skeinhq/skein/internal/front"
	"github.com/skeinhq/skein/internal/share"
	"github.com/skeinhq/skein/pkg/agui"
	"github.com/skeinhq/skein/pkg/kafka"
	"github.com/skeinhq/skein/pkg/kafka/kafkatest"
	"github.com/skeinhq/skein/pkg/record"
	"github.com/skeinhq/skein/pkg/store"
	"github.com/skeinhq/skein/pkg/store/sqlite"
	"github.com/skeinhq/skein/pkg/tenant"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// byHeader takes the tenant from a header, as a proxy in front might set it.
type byHeader struct{}

func (byHeader) Authenticate(r *http.Request) (tenant.Identity, error) {
	switch name := r.Header.Get("Tenant"); name {
	case "":
		return tenant.Identity{}, tenant.ErrUnauthenticated
	case "reader":
		return tenant.Identity{Tenant: "acme", Scopes: []tenant.Scope{tenant.ScopeRead}}, nil
	case "writer":
		return tenant.Identity{Tenant: name, Scopes: []tenant.Scope{tenant.ScopePublish}}, nil
	default:
		return tenant.Identity{Tenant: name, Scopes: []tenant.Scope{tenant.ScopeRead, tenant.ScopeErase}}, nil
	}
}

// fakeRecords are the records of open runs.
type fakeRecords struct {
	mu     sync.Mutex
	values map[record.Position][]byte
	// asked is closed at the first call.
	asked chan struct{}
	once  sync.Once
}

func (f *fakeRecords) Read(_ context.Context, partition int32, offset int64) (*kgo.Record, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.once.Do(func() { close(f.asked) })
	v, ok := f.values[record.Position{Partition: partition, Offset: offset}]
	if !ok {
		return nil, kafka.ErrNoRecord
	}
	return &kgo.Record{Partition: partition, Offset: offset, Value: v}, nil
}

func (*fakeRecords) Close() {}

// emptyStore returns the file of a migrated store. To migrate one for each test would take most of the tests' time.
var emptyStore = sync.OnceValues(func() ([]byte, error) {
	dir, err := os.MkdirTemp("", "skein-query")
	if err != nil {
		return nil, err
	}
	defer func() { _ = os.RemoveAll(dir) }() // it is temporary
	path := filepath.Join(dir, "store.db")
	st, err := sqlite.Open(context.Background(), path)
	if err != nil {
		return nil, err
	}
	if err := errors.Join(st.Migrate(context.Background()), st.Close()); err != nil {
		return nil, err
	}
	return os.ReadFile(path)
})

// fixture is the stage over a real store.
type fixture struct {
	t       testing.TB
	store   *sqlite.Store
	records *fakeRecords
	raw     *rawLog
	reg     *prometheus.Registry
	log     *strings.Builder
	server  *httptest.Server
	service *Service
	version int64
}

// shortWait is how long requests of a test wait for an index that does not get there.
const shortWait = 50 * time.Millisecond

// newFixture starts the stage over an empty store; wrap may put something between the two. It does
// not wait long for the index.
func newFixture(t testing.TB, wrap ...func(store.Reader) store.Reader) *fixture {
	t.Helper()
	return startFixture(t, shortWait, wrap...)
}

// newPatientFixture is for tests in which the index gets there, however slow the machine is.
func newPatientFixture(t *testing.T, wrap ...func(store.Reader) store.Reader) *fixture {
	t.Helper()
	return startFixture(t, time.Minute, wrap...)
}

func startFixture(t testing.TB, wait time.Duration, wrap ...func(store.Reader) store.Reader) *fixture {
	t.Helper()
	f := startFixtureOver(t, wait, kafka.Config{Brokers: []string{"127.0.0.1:1"}}, wrap...)
	f.server.Config.Handler = http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) { // without Kafka, reads take the index alone
		if strings.HasPrefix(r.URL.Path, "/v1/threads/") && !strings.HasSuffix(r.URL.Path, "/stream") {
			r.URL.RawQuery = strings.TrimPrefix(r.URL.RawQuery+"&fresh=no", "&")
		}
		f.service.Handler().ServeHTTP(w, r)
	})
	return f
}

// startFixtureOver starts the stage over raw events.
func startFixtureOver(t testing.TB, wait time.Duration, k kafka.Config, wrap ...func(store.Reader) store.Reader) *fixture {
	t.Helper()
	path := filepath.Join(t.TempDir(), "store.db")
	empty, err := emptyStore()
	if err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(path, empty, 0o600); err != nil {
		t.Fatal(err)
	}
	st, err := sqlite.Open(t.Context(), path)
	if err != nil {
		t.Fatal(err)
	}
	f := &fixture{
		t: t, store: st, reg: prometheus.NewRegistry(), log: &strings.Builder{},
		records: &fakeRecords{values: map[record.Position][]byte{}, asked: make(chan struct{})},
	}
	cfg := DefaultConfig()
	cfg.Wait, cfg.Poll, cfg.TenantMetrics = wait, 2*time.Millisecond, 1
	cfg.Tail.Kafka, cfg.Registerer, cfg.Logger = k, f.reg, slog.New(slog.NewTextHandler(f.log, nil))
	reader := store.Reader(st)
	for _, w := range wrap {
		reader = w(reader)
	}
	s, err := New(cfg, reader, byHeader{})
	if err != nil {
		t.Fatal(err)
	}
	s.records.Close()
	s.records = f.records
	f.service, f.raw, f.server = s, s.raw, httptest.NewUnstartedServer(s.Handler())
	f.server.Config.ConnContext = func(ctx context.Context, c net.Conn) context.Context {
		_ = c.(*net.TCPConn).SetWriteBuffer(64 << 10) // so that little fills it; without it tests only take longer
		return ctx
	}
	f.server.Start()
	t.Cleanup(func() {
		s.Drain()
		f.server.Close()
		s.Close()
		if err := st.Close(); err != nil {
			t.Error(err)
		}
	})
	return f
}

// put indexes records as the next ones of partition 3. An open run's contents are in its record only.
func (f *fixture) put(runs ...*record.Run) {
	f.t.Helper()
	entries := make([]store.Entry, len(runs))
	for i, r := range runs {
		f.version++
		r.Raw.Partition = 3
		if r.Raw.Ranges == nil {
			r.Raw.Ranges = [][2]int64{{r.Raw.First, r.Raw.Next}}
		}
		text, err := record.EncodeRun(r)
		if err != nil {
			f.t.Fatal(err)
		}
		f.records.mu.Lock()
		f.records.values[record.Position{Partition: 3, Offset: f.version}] = text
		f.records.mu.Unlock()
		entries[i] = store.Entry{Partition: 3, Version: f.version, Tenant: r.Tenant, ThreadID: r.ThreadID, RunID: r.RunID, Run: r}
	}
	if err := f.store.Write(context.Background(), entries); err != nil {
		f.t.Fatal(err)
	}
}

var epoch = time.Date(2026, 9, 17, 12, 0, 0, 0, time.UTC)

// run is a finished root of tenant acme; its events are at 10*n to 10*n+9.
func run(thread, id string, n int64, messages ...agui.Message) *record.Run {
	end := epoch.Add(time.Duration(n)*time.Minute + 2*time.Second)
	return &record.Run{
		Tenant: "acme", ThreadID: thread, RunID: id, Lineage: record.Lineage{ParentBy: record.ParentNone, BranchID: id, RootRunID: id},
		Status:   record.StatusFinished,
		Started:  jsonf(`{"type":"RUN_STARTED","threadId":%s,"runId":%s}`, thread, id),
		Terminal: jsonf(`{"type":"RUN_FINISHED","threadId":%s,"runId":%s}`, thread, id),
		Messages: messages, MessageCount: len(messages),
		StartedAt: epoch.Add(time.Duration(n) * time.Minute), EndedAt: &end,
		Stats:       record.Stats{Events: map[string]int64{"RUN_STARTED": 1}, EventBytes: map[string]int64{"RUN_STARTED": 50}},
		Raw:         record.Raw{First: 10 * n, Next: 10*n + 10, Events: 5, NextSeq: -1},
		FoldVersion: 1,
	}
}

// child is a run that continues parent, encoded relative to it.
func child(parent *record.Run, id string, n int64, by record.ParentBy, messages ...agui.Message) *record.Run {
	r := run(parent.ThreadID, id, n, messages...)
	r.Tenant = parent.Tenant
	r.ParentRunID, r.ParentBy, r.Base = parent.RunID, by, parent.RunID
	r.BranchID, r.RootRunID, r.Depth = parent.BranchID, parent.RootRunID, parent.Depth+1
	r.MessageCount = parent.MessageCount + len(messages)
	return r
}

// opened makes a run an open one.
func opened(r *record.Run) *record.Run {
	r.Status, r.Terminal, r.EndedAt = record.StatusRunning, nil, nil
	r.Open = &record.Open{Fold: json.RawMessage(`{}`)}
	return r
}

func msg(id, role, content string) agui.Message {
	return agui.Message{ID: id, Role: role, Raw: jsonf(`{"id":%s,"role":%s,"content":%s}`, id, role, content)}
}

// acmes returns a call of acme about a thread, outside of a server.
func (f *fixture) acmes(thread string) *call {
	return &call{Service: f.service, threadID: thread, load: f.service.room.load("acme"), Call: &front.Call{
		W: httptest.NewRecorder(), R: httptest.NewRequestWithContext(f.t.Context(), http.MethodGet, "/", nil), Tenant: "acme",
	}}
}

// oneSlot leaves one slot to all requests together.
func (f *fixture) oneSlot() {
	f.service.room.slots, f.service.room.patience = share.NewPool(1), 10*time.Second
}

// leavesTheSlot starts a request and checks that another one gets the slot once waits reports that the first one waits.
func (f *fixture) leavesTheSlot(path string, waits func() bool) <-chan reply {
	f.t.Helper()
	came := make(chan reply, 1)
	go func() { came <- f.get("acme", path) }()
	for deadline := time.Now().Add(kafkatest.Timeout); !waits(); runtime.Gosched() {
		if time.Now().After(deadline) {
			f.t.Error("it does not wait")
			break
		}
	}
	if r := f.get("acme", "/v1/threads/chat/lineage"); r.status != http.StatusOK {
		f.t.Errorf("meanwhile another request gets %d %s", r.status, r.body)
	}
	return came
}

// jsonf puts texts, as JSON strings, into a format.
func jsonf(format string, texts ...string) json.RawMessage {
	args := make([]any, len(texts))
	for i, text := range texts {
		b, err := json.Marshal(text)
		if err != nil {
			panic(err) // a string
		}
		args[i] = b
	}
	return fmt.Appendf(nil, format, args...)
}

// reply is an answer, read whole.
type reply struct {
	status int
	header http.Header
	body   string
}

// get calls the stage for a tenant; more is name and value of headers.
func (f *fixture) get(tenant, path string, more ...string) reply {
	f.t.Helper()
	return f.call(http.MethodGet, tenant, path, more...)
}

func (f *fixture) call(method, tenant, path string, more ...string) reply {
	f.t.Helper()
	resp, err := f.open(f.t.Context(), method, tenant, path, more...)
	if err != nil {
		f.t.Fatal(err)
	}
	defer func() { _ = resp.Body.Close() }()
	body, err := io.ReadAll(resp.Body)
	if err != nil {
		f.t.Fatal(err)
	}
	return reply{resp.StatusCode, resp.Header, string(body)}
}

// open calls the stage and returns the answer once it begins.
func (f *fixture) open(ctx context.Context, method, tenant, path string, more ...string) (*http.Response, error) {
	req, err := http.NewRequestWithContext(ctx, method, f.server.URL+path, nil)
	if err != nil {
		return nil, err
	}
	if tenant != "" {
		req.Header.Set("Tenant", tenant)
	}
	for i := 0; i+1 < len(more); i += 2 {
		req.Header.Set(more[i], more[i+1])
	}
	client := &http.Client{
		Transport:     &http.Transport{DisableKeepAlives: true, DisableCompression: true},
		CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
	}
	return client.Do(req)
}

// json decodes an answer that must be a success.
func (f *fixture) json(path string, into any, more ...string) reply {
	f.t.Helper()
	r := f.get("acme", path, more...)
	if r.status != http.StatusOK {
		f.t.Fatalf("GET %s: %d %s", path, r.status, r.body)
	}
	if err := json.Unmarshal([]byte(r.body), into); err != nil {
		f.t.Fatalf("GET %s: %v in %s", path, err, r.body)
	}
	return r
}

// problem checks that an answer is a problem document and returns its detail.
func (r reply) problem(t testing.TB, status int) string {
	t.Helper()
	var p struct {
		Status int    `json:"status"`
		Title  string `json:"title"`
		Detail string `json:"detail"`
	}
	err := json.Unmarshal([]byte(r.body), &p)
	if r.status != status || err != nil || p.Status != status || p.Title == "" || p.Detail == "" ||
		r.header.Get("Content-Type") != "application/problem+json" {
		t.Errorf("answer %d %s (%v): %s; want a problem of status %d", r.status, r.header.Get("Content-Type"), err, r.body, status)
	}
	return p.Detail
}
