package abuse

import (
	"cmp"
	"context"
	"encoding/json"
	"flag"
	"fmt"
	"io"
	"maps"
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

// Long gives attacks their full size and a real Kafka.
var Long = flag.Bool("abuse.long", false, "attack with full force, on a real Kafka")

// Bin is the folder with the commands.
var Bin string

// The tenants. Limited attacks too, with a quota of requests.
const (
	Hostile = "hostile"
	Limited = "limited"
	Honest  = "honest"
)

const quotas = "tenants:\n  " + Limited + ":\n    requests_per_second: 20\n"

// Partitions is the partition count of the topics.
const Partitions = 4

// Site is what the stages of a test share: a Kafka, a folder and an API key for each tenant.
type Site struct {
	TB    testing.TB
	Dir   string
	Kafka kafka.Config
	// KeyFile is the value of --api-keys; Keys has the tenants' secrets.
	KeyFile string
	Keys    map[string]string
}

// NewSite starts a Kafka, a real one with -abuse.long, and makes the keys.
func NewSite(tb testing.TB) *Site {
	tb.Helper()
	s := &Site{TB: tb, Dir: tb.TempDir(), Keys: map[string]string{}}
	s.KeyFile = filepath.Join(s.Dir, "api-keys.yaml")
	if err := os.WriteFile(filepath.Join(s.Dir, "quotas.yaml"), []byte(quotas), 0o600); err != nil {
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

// Start starts a stage under the chart's memory limit and waits until it is ready. Kafka, administration, quotas and, for ingest and query,
// the HTTP listener with its keys need no flags.
func (s *Site) Start(name string, args ...string) *Stage {
	s.TB.Helper()
	all := []string{"--brokers", strings.Join(s.Kafka.Brokers, ","), "--topic-prefix", s.Kafka.TopicPrefix, "--admin-listen", "127.0.0.1:0"}
	web := name == "ingest" || name == "query"
	if web {
		all = append(all, "--listen", "127.0.0.1:0", "--api-keys", s.KeyFile)
	}
	if name != "indexer" {
		all = append(all, "--quotas", filepath.Join(s.Dir, "quotas.yaml"))
	}
	stage := &Stage{Limit: chartMemory(s.TB, name)}
	var err error
	stage.Process, err = process.StartWith(s.TB, []string{fmt.Sprintf("GOMEMLIMIT=%d", stage.Limit)}, s.Dir, filepath.Join(Bin, name),
		append(all, args...)...)
	if err != nil {
		s.TB.Fatal(err)
	}
	stage.AwaitReady()
	if web {
		stage.URL = "http://" + stage.Said("listening", "address")
	}
	return stage
}

// chartMemory returns the memory limit that the Helm chart gives a stage, in bytes.
func chartMemory(tb testing.TB, stage string) (n int64) {
	tb.Helper()
	text, err := os.ReadFile(filepath.Join("..", "..", "deploy", "helm", "skein", "values.yaml"))
	if err != nil {
		tb.Fatal(err)
	}
	type of struct {
		Resources struct{ Limits struct{ Memory string } }
	}
	var values struct{ Ingest, Compactor, Indexer, Query of }
	if err := yaml.Unmarshal(text, &values); err != nil {
		tb.Fatal(err)
	}
	memory := map[string]of{"ingest": values.Ingest, "compactor": values.Compactor, "indexer": values.Indexer,
		"query": values.Query}[stage].Resources.Limits.Memory
	var unit string
	_, err = fmt.Sscanf(memory, "%d%s", &n, &unit)
	shift := map[string]int{"Mi": 20, "Gi": 30}[unit]
	if err != nil || shift == 0 {
		tb.Fatalf("the chart's memory limit of %s is %q", stage, memory)
	}
	return n << shift
}

// Request makes a request with a tenant's key.
func (s *Site) Request(ctx context.Context, who, method, url string, body io.Reader) *http.Request {
	s.TB.Helper()
	req, err := http.NewRequestWithContext(ctx, method, url, body)
	if err != nil {
		s.TB.Fatal(err)
	}
	req.Header.Set("Authorization", "Bearer "+s.Keys[who])
	return req
}

// Web returns a client that opens as many connections as it needs and decompresses nothing.
func (s *Site) Web() *http.Client {
	t := &http.Transport{DisableCompression: true, MaxIdleConnsPerHost: 64, DialContext: (&net.Dialer{Timeout: process.Patience}).DialContext}
	s.TB.Cleanup(t.CloseIdleConnections)
	return &http.Client{Transport: t}
}

// Meter repeats a call of the honest tenant and records how long each took.
type Meter struct {
	stop func()
	done chan struct{}

	mu   sync.Mutex
	took []time.Duration
	errs []error
}

// Measure runs four callers, each of which makes a call at most every 20 ms, until Stop. A call gets its number.
func Measure(tb testing.TB, call func(ctx context.Context, n int) error) *Meter {
	ctx, stop := context.WithCancel(tb.Context())
	m := &Meter{stop: stop, done: make(chan struct{})}
	var callers sync.WaitGroup
	var calls atomic.Int64
	for range 4 {
		callers.Go(func() {
			tick := time.NewTicker(20 * time.Millisecond)
			defer tick.Stop()
			for ctx.Err() == nil {
				began := time.Now()
				err := call(ctx, int(calls.Add(1)-1))
				if ctx.Err() != nil {
					return
				}
				m.mu.Lock()
				m.took = append(m.took, time.Since(began))
				if err != nil {
					m.errs = append(m.errs, err)
				}
				m.mu.Unlock()
				select {
				case <-ctx.Done():
				case <-tick.C:
				}
			}
		})
	}
	go func() {
		callers.Wait()
		close(m.done)
	}()
	tb.Cleanup(m.Stop)
	return m
}

// Next waits for n calls since the last Next and returns the durations of all since then, shortest first. It fails the test for each that
// failed.
func (m *Meter) Next(tb testing.TB, n int) (times Times) {
	tb.Helper()
	process.Eventually(tb, "the honest tenant's calls are answered", func() (int, bool) {
		m.mu.Lock()
		defer m.mu.Unlock()
		return len(m.took), len(m.took) >= n
	})
	m.mu.Lock()
	defer m.mu.Unlock()
	for _, err := range m.errs {
		tb.Errorf("the honest tenant: %v", err)
	}
	times, m.took, m.errs = m.took, nil, nil
	slices.Sort(times)
	return times
}

// Stop ends the calls.
func (m *Meter) Stop() {
	m.stop()
	<-m.done
}

// Times are durations of calls, shortest first.
type Times []time.Duration

// At returns a quantile, or 0 without calls.
func (t Times) At(q float64) time.Duration {
	if len(t) == 0 {
		return 0
	}
	return t[min(len(t)-1, int(q*float64(len(t))))].Round(100 * time.Microsecond)
}

// Hold logs an attack's row and checks two promises: each stage's memory, and the honest tenant's delay. In the short form attackers and
// stages share the machine with other tests, so only a median that grows by five seconds fails.
func Hold(tb testing.TB, attack string, before, during Times, got string, stages ...*Stage) {
	tb.Helper()
	for _, stage := range stages {
		peak, err := stage.PeakMemory()
		if err != nil {
			tb.Fatal(err)
		}
		if peak > stage.Limit {
			tb.Errorf("%s had %d MiB resident, the chart gives it %d", stage.Name, peak>>20, stage.Limit>>20)
		}
		tb.Logf("| %s: %s | %d of %d MiB | median %v (%v before), p99 %v (%v) | %s |", stage.Name, attack, peak>>20, stage.Limit>>20,
			during.At(.5), before.At(.5), during.At(.99), before.At(.99), got)
	}
	q, more := .5, 5*time.Second
	if *Long {
		q, more = .99, time.Second
	}
	if d, b := during.At(q), before.At(q); d > b+more {
		tb.Errorf("the honest tenant's calls took %v (p%.0f), %v without the attack", d, 100*q, b)
	}
}

// Attacker sends requests of one tenant and counts the answers.
type Attacker struct {
	Site *Site
	Who  string
	web  *http.Client

	mu      sync.Mutex
	answers map[string]int
}

// Attacker returns one for a tenant.
func (s *Site) Attacker(who string) *Attacker {
	return &Attacker{Site: s, Who: who, web: s.Web(), answers: map[string]int{}}
}

func (a *Attacker) note(answer string) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.answers[answer]++
}

func (a *Attacker) String() string {
	a.mu.Lock()
	defer a.mu.Unlock()
	var out []string
	for _, answer := range slices.Sorted(maps.Keys(a.answers)) {
		out = append(out, fmt.Sprintf("%d × %s", a.answers[answer], answer))
	}
	return strings.Join(out, ", ")
}

// Send sends a request, reads the whole answer and notes it: the status and, of a refusal, its limit or reason. It fails the test if a
// refusal has no detail, or a 429 no limit or no Retry-After.
func (a *Attacker) Send(ctx context.Context, method, url string, body io.Reader, header ...string) {
	req := a.Site.Request(ctx, a.Who, method, url, body)
	for i := 0; i < len(header); i += 2 {
		req.Header.Set(header[i], header[i+1])
	}
	resp, err := a.web.Do(req)
	if err != nil {
		return // the attack is over, or the stage closed the connection
	}
	defer func() { _ = resp.Body.Close() }() // only read
	if resp.StatusCode < 400 {
		a.note(resp.Status)
		_, _ = io.Copy(io.Discard, resp.Body) // it may be cut
		return
	}
	text, err := io.ReadAll(resp.Body)
	if err != nil {
		return // as above
	}
	var p struct{ Detail, Limit, Reason string }
	if json.Unmarshal(text, &p) != nil || p.Detail == "" || resp.StatusCode == http.StatusTooManyRequests && (resp.Header.Get("Retry-After") == "" || p.Limit == "") {
		a.Site.TB.Errorf("a refusal that does not say why: %s %v %s", resp.Status, resp.Header, text)
	}
	a.note(strings.TrimSpace(resp.Status + " " + cmp.Or(p.Limit, p.Reason)))
}

// Against runs an attack on an HTTP stage while the honest tenant makes calls. The attack must end with its context. Each of want must be
// part of an answer that the attacker got.
func (a *Attacker) Against(stage *Stage, name string, honest func(ctx context.Context, n int) error, attack func(ctx context.Context),
	want ...string) {
	tb := a.Site.TB
	tb.Helper()
	meter := Measure(tb, honest)
	calls := size(1_000, 100)
	before := meter.Next(tb, calls)
	ctx, stop := context.WithCancel(tb.Context())
	done := make(chan struct{})
	go func() {
		defer close(done)
		attack(ctx)
	}()
	process.Eventually(tb, "the attacker gets "+strings.Join(want, " and "), func() (string, bool) {
		got := a.String()
		return got, !slices.ContainsFunc(want, func(w string) bool { return !strings.Contains(got, w) })
	})
	during := meter.Next(tb, calls)
	meter.Stop()
	stop()
	<-done
	Hold(tb, name, before, during, a.String(), stage)
}

// atOnce calls do n times at once, and each again until ctx ends.
func atOnce(ctx context.Context, n int, do func(i int)) {
	var all sync.WaitGroup
	for i := range n {
		all.Go(func() {
			for ctx.Err() == nil {
				do(i)
			}
		})
	}
	all.Wait()
}

// size chooses a size for the long or the short form.
func size(long, short int) int { return map[bool]int{true: long, false: short}[*Long] }
