package ingest

import (
	"context"
	"encoding/json"
	"io"
	"net/http"
	"net/http/httptest"
	"net/url"
	"slices"
	"strings"
	"testing"

	"github.com/twmb/franz-go/pkg/kgo"
	"go.uber.org/goleak"

	"github.com/skeinhq/skein/pkg/kafka"
	"github.com/skeinhq/skein/pkg/kafka/kafkatest"
	"github.com/skeinhq/skein/pkg/record"
	"github.com/skeinhq/skein/pkg/tenant"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// stage is a running stage before a cluster.
type stage struct {
	t   testing.TB
	svc *Service
	srv *httptest.Server
	cfg kafka.Config
	// client does not follow redirects: ingest must not send any.
	client *http.Client
	// thread is where post and written look; in is the same stage with another one.
	thread string
}

// in is ingest for a thread of its own, so that tests can share one cluster.
func (d *stage) in(t testing.TB, thread string) *stage {
	c := *d
	c.t, c.thread = t, thread
	return &c
}

func (d *stage) path(call string) string {
	return "/v1/threads/" + url.PathEscape(d.thread) + "/runs/r1/" + call
}

func open(t testing.TB, cfg Config) *stage {
	t.Helper()
	d := start(t, cfg)
	d.eventually("the stage is ready", func() bool { return d.svc.Ready() == nil })
	return d
}

func (d *stage) eventually(what string, is func() bool) {
	d.t.Helper()
	kafkatest.Eventually(d.t, what, is)
}

// start is open without waiting for ingest.
func start(t testing.TB, cfg Config) *stage {
	t.Helper()
	svc, err := New(cfg, tenant.Fixed("dev"))
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan error, 1)
	go func() { done <- svc.Run(ctx) }()
	srv := httptest.NewServer(svc.Handler())
	client := &http.Client{
		Transport:     srv.Client().Transport,
		CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
	}
	t.Cleanup(func() {
		client.CloseIdleConnections()
		srv.Close()
		cancel()
		if err := <-done; err != nil {
			t.Error(err)
		}
		if err := svc.Close(); err != nil {
			t.Log(err) // the tests that take Kafka away leave records that cannot be flushed
		}
	})
	return &stage{t: t, svc: svc, srv: srv, cfg: cfg.Kafka, client: client, thread: "t1"}
}

func testConfig(k kafka.Config) Config {
	c := DefaultConfig(k)
	c.MaxEventBytes = 4 << 10
	c.RequestWindow = 16 << 10
	c.Memory = 8 << 20
	return c
}

func newStage(t testing.TB) *stage {
	t.Helper()
	return open(t, testConfig(kafkatest.Start(t, 3)))
}

// answer is what ingest says, yes or no.
type answer struct {
	status      int
	header      http.Header
	body        string
	Accepted    int64  `json:"accepted"`
	Partition   int32  `json:"partition"`
	FirstOffset int64  `json:"firstOffset"`
	LastOffset  int64  `json:"lastOffset"`
	Offset      int64  `json:"offset"`
	Line        int64  `json:"line"`
	Reason      string `json:"reason"`
	Detail      string `json:"detail"`
}

func (d *stage) do(method, path string, body io.Reader, header ...string) answer {
	d.t.Helper()
	req, err := http.NewRequest(method, d.srv.URL+path, body)
	if err != nil {
		d.t.Fatal(err)
	}
	for i := 0; i < len(header); i += 2 {
		req.Header.Set(header[i], header[i+1])
	}
	resp, err := d.client.Do(req)
	if err != nil {
		d.t.Fatalf("%s %s: %v", method, path, err)
	}
	return d.read(resp)
}

func (d *stage) read(resp *http.Response) answer {
	d.t.Helper()
	b, err := io.ReadAll(resp.Body)
	if err != nil {
		d.t.Fatal(err)
	}
	if err := resp.Body.Close(); err != nil {
		d.t.Fatal(err)
	}
	a := answer{status: resp.StatusCode, header: resp.Header, body: string(b)}
	if err := json.Unmarshal(b, &a); err != nil {
		d.t.Fatalf("answer %d is not JSON: %q", a.status, b)
	}
	want := "application/json"
	if a.status/100 != 2 {
		want = "application/problem+json"
	}
	if got := a.header.Get("Content-Type"); got != want {
		d.t.Errorf("answer %d is %q, want %q", a.status, got, want)
	}
	return a
}

func (d *stage) post(contentType, body string) answer {
	d.t.Helper()
	return d.do(http.MethodPost, d.path("events"), strings.NewReader(body), "Content-Type", contentType)
}

// written are the values on skein.events, in order.
func (d *stage) written() []string {
	d.t.Helper()
	var out []string
	for _, r := range d.records() {
		out = append(out, string(r.Value))
	}
	return out
}

// records are those of the thread.
func (d *stage) records() []*kgo.Record {
	d.t.Helper()
	key, err := record.ThreadKey("dev", d.thread)
	if err != nil {
		d.t.Fatal(err)
	}
	return slices.DeleteFunc(kafkatest.Consume(d.t, d.cfg, d.cfg.Topics().Events), func(r *kgo.Record) bool {
		return string(r.Key) != key
	})
}
