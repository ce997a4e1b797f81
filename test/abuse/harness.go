package abuse

import (
	"context"
	"encoding/json"
	"flag"
	"fmt"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"go.yaml.in/yaml/v3"

	"github.com/skeinhq/skein/pkg/kafka"
	"github.com/skeinhq/skein/pkg/kafka/kafkatest"
	"github.com/skeinhq/skein/pkg/tenant"
	"github.com/skeinhq/skein/test/process"
)

// Long says that attacks have their full size, on a real Kafka.
var Long = flag.Bool("abuse.long", false, "attack with full force, on a real Kafka")

// The tenants. Limited is hostile as well, and has quotas.
const (
	Hostile = "hostile"
	Limited = "limited"
	Honest  = "honest"
)

// limitedEvents is Limited's quota of events a second; it may use quota.Window's worth at once.
const limitedEvents = 50

var quotas = fmt.Sprintf(`tenants:
  %s:
    requests_per_second: 20
    events_per_second: %d
    bytes_per_second: 100000
    concurrent_streams: 4
    concurrent_reads: 2
    open_runs: 200
`, Limited, limitedEvents)

// Partitions of the topics.
const Partitions = 4

// Site is what the stages of one attack share: a Kafka, a folder, and an API key for each tenant.
type Site struct {
	TB    testing.TB
	Dir   string
	Kafka kafka.Config
	// KeyFile is for --api-keys; Keys has the tenants' secrets.
	KeyFile string
	Keys    map[string]string
	// QuotaFile is for --quotas.
	QuotaFile string
}

// NewSite starts a Kafka, a real one with -abuse.long, and makes the keys.
func NewSite(tb testing.TB) *Site {
	tb.Helper()
	s := &Site{TB: tb, Dir: tb.TempDir(), Keys: map[string]string{}}
	s.KeyFile = filepath.Join(s.Dir, "api-keys.yaml")
	s.QuotaFile = filepath.Join(s.Dir, "quotas.yaml")
	if err := os.WriteFile(s.QuotaFile, []byte(quotas), 0o600); err != nil {
		tb.Fatal(err)
	}
	for _, who := range []string{Hostile, Limited, Honest} {
		s.Keys[who] = tenant.NewKey()
		if err := tenant.AppendKey(s.KeyFile, tenant.Entry(who, who, tenant.Scopes(), s.Keys[who])); err != nil {
			tb.Fatal(err)
		}
	}
	if *Long {
		cluster := kafkatest.Real(tb, 1)
		cluster.MakeTopics(Partitions)
		s.Kafka = cluster.Config
	} else {
		s.Kafka = kafkatest.Start(tb, Partitions)
	}
	return s
}

// Stage is a stage's process.
type Stage struct {
	*process.Process
	// URL is that of its HTTP API, "" for one without.
	URL string
	// Limit is the chart's memory limit, in bytes.
	Limit int64
}

// scratch is where the commands were built, where they were; the test's main clears it away.
var scratch string

var binaries = sync.OnceValues(func() (string, error) {
	if dir := os.Getenv(process.BinVariable); dir != "" {
		return process.Commands(dir)
	}
	var err error
	if scratch, err = os.MkdirTemp("", "skein-abuse-"); err != nil {
		return "", fmt.Errorf("making a folder for the commands: %w", err)
	}
	return process.Commands(scratch)
})

// Start starts a stage under the chart's memory limit and waits until it is ready. Kafka, administration, quotas and, for ingest and query, the
// HTTP listener with its keys need no flags.
func (s *Site) Start(name string, args ...string) *Stage {
	s.TB.Helper()
	bin, err := binaries()
	if err != nil {
		s.TB.Fatal(err)
	}
	all := []string{"--brokers", strings.Join(s.Kafka.Brokers, ","), "--topic-prefix", s.Kafka.TopicPrefix, "--admin-listen", "127.0.0.1:0"}
	web := name == "ingest" || name == "query"
	if web {
		all = append(all, "--listen", "127.0.0.1:0", "--api-keys", s.KeyFile)
	}
	if name != "indexer" {
		all = append(all, "--quotas", s.QuotaFile)
	}
	stage := &Stage{Limit: ChartMemory(s.TB, name)}
	stage.Process, err = process.StartWith(s.TB, []string{fmt.Sprintf("GOMEMLIMIT=%d", stage.Limit)}, s.Dir, filepath.Join(bin, name), append(all, args...)...)
	if err != nil {
		s.TB.Fatal(err)
	}
	stage.AwaitReady()
	if web {
		stage.URL = "http://" + stage.Said("listening", "address")
	}
	return stage
}

// ChartMemory is the memory limit that the Helm chart gives a stage, in bytes.
func ChartMemory(tb testing.TB, stage string) int64 {
	tb.Helper()
	text, err := os.ReadFile(filepath.Join("..", "..", "deploy", "helm", "skein", "values.yaml"))
	if err != nil {
		tb.Fatal(err)
	}
	var values map[string]any
	if err := yaml.Unmarshal(text, &values); err != nil {
		tb.Fatal(err)
	}
	at := any(values)
	for _, key := range []string{stage, "resources", "limits", "memory"} {
		m, _ := at.(map[string]any)
		at = m[key]
	}
	var n int64
	var unit string
	if _, err := fmt.Sscanf(fmt.Sprint(at), "%d%s", &n, &unit); err != nil {
		tb.Fatalf("the chart's memory limit of %s is %v: %v", stage, at, err)
	}
	switch unit {
	case "Mi":
		return n << 20
	case "Gi":
		return n << 30
	}
	tb.Fatalf("the chart's memory limit of %s is %v", stage, at)
	return 0
}

// Request makes a request of a tenant's.
func (s *Site) Request(ctx context.Context, who, method, url string, body any) *http.Request {
	s.TB.Helper()
	var req *http.Request
	var err error
	switch b := body.(type) {
	case nil:
		req, err = http.NewRequestWithContext(ctx, method, url, http.NoBody)
	case string:
		req, err = http.NewRequestWithContext(ctx, method, url, strings.NewReader(b))
	case interface{ Read(p []byte) (int, error) }:
		req, err = http.NewRequestWithContext(ctx, method, url, b)
	default:
		s.TB.Fatalf("a body of %T", body)
	}
	if err != nil {
		s.TB.Fatal(err)
	}
	req.Header.Set("Authorization", "Bearer "+s.Keys[who])
	return req
}

// Web returns a client with as many connections as it takes. It sends what it is given and decompresses nothing.
func (s *Site) Web() *http.Client {
	t := &http.Transport{DisableCompression: true, MaxIdleConnsPerHost: 64, DialContext: (&net.Dialer{Timeout: process.Patience}).DialContext}
	s.TB.Cleanup(t.CloseIdleConnections)
	return &http.Client{Transport: t}
}

// refusal reads what a refusal says. It fails the test where that is nothing, and where 429 names no limit or not when to try again.
func refusal(tb testing.TB, resp *http.Response, body []byte) (detail, limit string) {
	tb.Helper()
	var p struct{ Detail, Limit string }
	if json.Unmarshal(body, &p) != nil || p.Detail == "" || resp.StatusCode == http.StatusTooManyRequests && (resp.Header.Get("Retry-After") == "" || p.Limit == "") {
		tb.Errorf("a refusal without a word: %d %v %s", resp.StatusCode, resp.Header, body)
	}
	return p.Detail, p.Limit
}

// Meter calls something again and again, as an honest tenant, and keeps how long each call took.
type Meter struct {
	stop func()
	over chan struct{}

	mu    sync.Mutex
	took  []time.Duration
	since time.Time // when the first of them could begin
	errs  []error
}

// Measure calls call, which is given the number of the call, every pause until Stop.
func Measure(tb testing.TB, pause time.Duration, call func(ctx context.Context, n int) error) *Meter {
	return MeasureBeside(tb, 1, pause, call)
}

// MeasureBeside is Measure with so many calls at a time.
func MeasureBeside(tb testing.TB, beside int, pause time.Duration, call func(ctx context.Context, n int) error) *Meter {
	ctx, stop := context.WithCancel(tb.Context())
	m := &Meter{stop: stop, over: make(chan struct{}), since: time.Now()}
	var callers sync.WaitGroup
	var calls atomic.Int64
	for range beside {
		callers.Go(func() {
			tick := time.NewTicker(pause)
			defer tick.Stop()
			for ctx.Err() == nil {
				began := time.Now()
				err := call(ctx, int(calls.Add(1)-1))
				if ctx.Err() != nil {
					return
				}
				m.note(time.Since(began), err)
				select {
				case <-ctx.Done():
				case <-tick.C:
				}
			}
		})
	}
	go func() {
		callers.Wait()
		close(m.over)
	}()
	tb.Cleanup(m.Stop)
	return m
}

func (m *Meter) note(took time.Duration, err error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.took = append(m.took, took)
	if err != nil {
		m.errs = append(m.errs, err)
	}
}

// Calls is the number of calls that were answered.
func (m *Meter) Calls() int {
	m.mu.Lock()
	defer m.mu.Unlock()
	return len(m.took)
}

// Await waits until so many more calls were answered.
func (m *Meter) Await(tb testing.TB, more int) {
	tb.Helper()
	want := m.Calls() + more
	process.Eventually(tb, "the honest tenant's calls are answered", func() (int, bool) {
		n := m.Calls()
		return n, n >= want
	})
}

// Take returns the times of the calls since the last Take, in order of length, and fails the test for each that was refused.
func (m *Meter) Take(tb testing.TB) Times {
	tb.Helper()
	m.mu.Lock()
	defer m.mu.Unlock()
	for _, err := range m.errs {
		tb.Errorf("the honest tenant: %v", err)
	}
	now := time.Now()
	t := Times{took: m.took, over: now.Sub(m.since)}
	m.took, m.errs, m.since = nil, nil, now
	slices.Sort(t.took)
	return t
}

// Stop ends the calls.
func (m *Meter) Stop() {
	m.stop()
	<-m.over
}

// Times are what calls took, in order of length, and over which time they were made.
type Times struct {
	took []time.Duration
	over time.Duration
}

// At returns the time that a share of all is within, 0 where there are none.
func (t Times) At(share float64) time.Duration {
	if len(t.took) == 0 {
		return 0
	}
	return t.took[min(len(t.took)-1, int(share*float64(len(t.took))))]
}

// Rate is how many calls there were a second.
func (t Times) Rate() float64 { return float64(len(t.took)) / max(t.over, time.Millisecond).Seconds() }

// Row is what an attack comes to.
type Row struct {
	Attack string
	// Sent is how many bytes the attacker has sent.
	Sent int64
	// Before and During are what calls of the other tenant took without and with the attack, and how many there were a second.
	Before, During Times
	// Answer is what the attacker got.
	Answer string
}

// Report logs the row and holds the stage to its memory limit.
func Report(tb testing.TB, stage *Stage, r Row) {
	tb.Helper()
	peak, err := stage.PeakMemory()
	if err != nil {
		tb.Error(err)
		return
	}
	if peak > stage.Limit {
		tb.Errorf("%s had %d MiB resident, the chart gives it %d", stage.Name, peak>>20, stage.Limit>>20)
	}
	ms := func(d time.Duration) string { return d.Round(100 * time.Microsecond).String() }
	tb.Logf("| %s: %s | %d bytes | %d of %d MiB | median %s (%s before), p99 %s (%s), %.0f calls a second (%.0f) | %s |", stage.Name, r.Attack, r.Sent,
		peak>>20, stage.Limit>>20, ms(r.During.At(.5)), ms(r.Before.At(.5)), ms(r.During.At(.99)), ms(r.Before.At(.99)), r.During.Rate(), r.Before.Rate(), r.Answer)
}
