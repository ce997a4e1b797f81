package abuse

import (
	"context"
	"flag"
	"fmt"
	"math/rand/v2"
	"net/http"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"go.yaml.in/yaml/v3"

	"github.com/skeinhq/skein/internal/clickhousetest"
	"github.com/skeinhq/skein/pkg/tenant"
	"github.com/skeinhq/skein/test/process"
)

var (
	manyTenants = flag.Int("abuse.tenants", 200, "how many tenants load the stages in TestSite_ManyTenants")
	manyFor     = flag.Duration("abuse.tenants-for", 3*time.Second, "how long they do so: at first, alone, beside a flood")
	manyRuns    = flag.Int("abuse.tenants-runs", 40, "how many runs they begin a second")
)

// addTenants gives n tenants a key and a quota each and returns their names, the largest first.
func (s *Site) addTenants(n int) []string {
	s.TB.Helper()
	type limits map[string]int
	names, keys, quotas := make([]string, n), make([]tenant.Key, n), make(map[string]limits, n)
	for i := range names {
		name := fmt.Sprintf("tenant-%05d", i)
		s.Keys[name] = tenant.NewKey()
		names[i], keys[i] = name, tenant.Entry(name, name, tenant.Scopes(), s.Keys[name])
		quotas[name] = limits{"events_per_second": 2000, "requests_per_second": 1000, "open_runs": 1000}
	}
	for file, content := range map[string]any{
		s.KeyFile: map[string]any{"keys": keys}, filepath.Join(s.Dir, "quotas.yaml"): map[string]any{"tenants": quotas},
	} {
		text, err := yaml.Marshal(content)
		if err == nil {
			err = os.WriteFile(file, text, 0o600)
		}
		if err != nil {
			s.TB.Fatal(err)
		}
	}
	return names
}

// class is a part of the tenants; its times are those until an acknowledgement, and from there until the index shows the run.
type class struct {
	mu           sync.Mutex
	acked, shown Times
}

func (c *class) add(to *Times, took time.Duration) {
	c.mu.Lock()
	defer c.mu.Unlock()
	*to = append(*to, took)
}

// crowd are tenants whose loads follow Zipf's law with exponent 1.1.
type crowd struct {
	*pipeline
	names   []string
	ingest  *Stage
	web     *http.Client
	runs    atomic.Int64
	classes [3]class
}

// The classes: the largest tenant, the others of the largest tenth, and the rest.
const (
	largest = iota
	middle
	small
)

func (c *crowd) class(rank int) *class {
	switch {
	case rank == 0:
		return &c.classes[largest]
	case rank < len(c.names)/10:
		return &c.classes[middle]
	default:
		return &c.classes[small]
	}
}

// publish publishes a run of n text events of a tenant in one request.
func (c *crowd) publish(ctx context.Context, who string, n int) (thread, run string, err error) {
	number := c.runs.Add(1)
	thread, run = fmt.Sprintf("thread-%d", number%10), fmt.Sprintf("run-%d", number)
	ids := fmt.Sprintf(`"threadId":%q,"runId":%q}`, thread, run)
	events := []string{`{"type":"RUN_STARTED",` + ids}
	for range n {
		events = append(events, fmt.Sprintf(`{"type":"TEXT_MESSAGE_CHUNK","messageId":"m%d","role":"assistant","delta":" a word or two"}`, number))
	}
	events = append(events, `{"type":"RUN_FINISHED",`+ids)
	url := c.ingest.URL + "/v1/threads/" + thread + "/runs/" + run + "/events"
	req := c.Request(ctx, who, http.MethodPost, url, strings.NewReader(strings.Join(events, "\n")))
	req.Header.Set("Content-Type", "application/x-ndjson")
	return thread, run, ask(c.web, req)
}

// one publishes a run of a tenant of a rank, waits until the index shows it if watched, and takes the times.
func (c *crowd) one(ctx context.Context, rank int, watched bool) error {
	began, who, in := time.Now(), c.names[rank], c.class(rank)
	thread, run, err := c.publish(ctx, who, 18)
	if err != nil {
		return err
	}
	acked := time.Now()
	in.add(&in.acked, acked.Sub(began))
	for watched && ctx.Err() == nil {
		url := c.query.URL + "/v1/threads/" + thread + "/runs/" + run + "?fresh=no"
		resp, err := c.web.Do(c.Request(ctx, who, http.MethodGet, url, nil))
		if err != nil {
			return err
		}
		_ = resp.Body.Close() // only read
		if resp.StatusCode == http.StatusOK {
			in.add(&in.shown, time.Since(acked))
			return nil
		}
		time.Sleep(100 * time.Millisecond)
	}
	return ctx.Err()
}

// load has tenants begin runs at the rate of the flag for the time of the flag, each fourth run watched, and returns the stages' lag in
// seconds at every half second. A run that finds no caller free waits, and its time begins when it finds one.
func (c *crowd) load() (lags map[string][]float64) {
	c.TB.Helper()
	var callers sync.WaitGroup
	free := make(chan struct{}, 256)
	rng := rand.New(rand.NewPCG(1, uint64(c.runs.Load())))
	zipf := rand.NewZipf(rng, 1.1, 1, uint64(len(c.names)-1))
	tick := time.NewTicker(time.Second / time.Duration(*manyRuns))
	defer tick.Stop()
	lags = map[string][]float64{}
	for n, end, next := 0, time.Now().Add(*manyFor), time.Now(); time.Now().Before(end); n++ {
		<-tick.C
		rank := int(zipf.Uint64())
		free <- struct{}{}
		callers.Go(func() {
			defer func() { <-free }()
			if err := c.one(c.TB.Context(), rank, n%4 == 0); err != nil {
				c.TB.Errorf("%s: %v", c.names[rank], err)
			}
		})
		if time.Now().After(next) {
			next = next.Add(time.Second / 2)
			for _, stage := range []*Stage{c.compactor, c.indexer} {
				lags[stage.Name] = append(lags[stage.Name], stage.Metrics(c.TB)["skein_"+stage.Name+"_lag_seconds"])
			}
		}
	}
	callers.Wait()
	return lags
}

// flood has the largest tenant publish runs of 1,000 events as fast as its quota lets it, until ctx ends.
func (c *crowd) flood(ctx context.Context) {
	atOnce(ctx, 4, func(int) {
		if _, _, err := c.publish(ctx, c.names[0], 1000); err != nil && ctx.Err() == nil && !strings.Contains(err.Error(), "429") {
			c.TB.Errorf("the largest tenant: %v", err)
		}
	})
}

// report logs the rows of docs/bench/tenants.md and returns the small tenants' times until an acknowledgement.
func (c *crowd) report(phase string, lags map[string][]float64) Times {
	c.TB.Helper()
	for i, name := range []string{"the largest tenant", "the largest tenth", "the others"} {
		of := &c.classes[i]
		slices.Sort(of.acked)
		slices.Sort(of.shown)
		c.TB.Logf("| %s: %s, %d runs | %v | %v | %v | %v |", phase, name, len(of.acked), of.acked.At(.5), of.acked.At(.99), of.shown.At(.5),
			of.shown.At(.99))
	}
	for _, stage := range []string{"compactor", "indexer"} {
		all := slices.Sorted(slices.Values(lags[stage]))
		at := func(q float64) float64 { return all[min(len(all)-1, int(q*float64(len(all))))] }
		c.TB.Logf("| %s: lag of the %s | %.1f s | %.1f s |", phase, stage, at(.5), at(.99))
	}
	acked := c.classes[small].acked
	c.classes = [3]class{}
	return acked
}

var tenantLabel = regexp.MustCompile(`^(\w+)\{tenant="`)

// Tenants with a key and a quota each load all stages by Zipf's law: at first, once more, and beside the largest one, which takes all
// that its quota grants. Each stage stays within the chart's memory and names --tenant-metrics tenants; no event is lost, and nobody waits
// a second longer.
func TestSite_ManyTenants(t *testing.T) {
	s := NewSite(t)
	names := s.addTenants(*manyTenants)
	var store []string // SQLite
	if *Long {
		store = clickhousetest.Start(t).Flags(t)
	}
	p := pipelineOf(t, s, store...)
	began := time.Now()
	c := &crowd{pipeline: p, names: names, ingest: s.Start("ingest"), web: s.Web()}
	t.Logf("%d tenants; ingest was ready after %v", len(names), time.Since(began).Round(time.Millisecond))

	c.report("at first", c.load())
	alone := c.report("alone", c.load())
	ctx, stop := context.WithCancel(t.Context())
	flooded := make(chan struct{})
	go func() {
		defer close(flooded)
		c.flood(ctx)
	}()
	lags := c.load()
	stop()
	<-flooded
	beside := c.report("beside a flood", lags)

	process.Eventually(t, "every acknowledged event is folded", func() (string, bool) {
		acked := c.ingest.Metrics(t)[`skein_ingest_events_total{kind="event"}`]
		folded := p.compactor.Metrics(t)[`skein_compactor_events_total{outcome="folded"}`]
		return fmt.Sprintf("%.0f of %.0f", folded, acked), folded == acked
	})
	if n := p.compactor.Metrics(t)["skein_compactor_dead_letters_total"]; n != 0 {
		t.Errorf("there are %v dead letters", n)
	}
	for _, stage := range []*Stage{c.ingest, p.compactor, p.indexer, p.query} {
		_, text := process.Get(t, "http://"+stage.Said("started", "admin")+"/metrics")
		series, tenants := 0, map[string]int{} // by metric, each of which names the largest by what it measures
		for line := range strings.Lines(text) {
			if !strings.HasPrefix(line, "#") {
				series++
			}
			if label := tenantLabel.FindStringSubmatch(line); label != nil {
				tenants[label[1]]++
			}
		}
		named := 0
		for metric, n := range tenants {
			if named = max(named, n); n > 21 { // and "other"
				t.Errorf("%s names %d tenants in %s", stage.Name, n, metric)
			}
		}
		peak, err := stage.PeakMemory()
		if err != nil || peak > stage.Limit {
			t.Errorf("%s had %d of %d MiB resident, %v", stage.Name, peak>>20, stage.Limit>>20, err)
		}
		now, _ := stage.Memory() // as PeakMemory, which has succeeded
		t.Logf("| %s | %d | %d of %d MiB | %d | %d |", stage.Name, now>>20, peak>>20, stage.Limit>>20, series, named)
	}
	if d, b := beside.At(.99), alone.At(.99); *Long && d > b+time.Second {
		t.Errorf("the small tenants' requests took %v (p99) beside the largest, %v without it", d, b)
	}
}
