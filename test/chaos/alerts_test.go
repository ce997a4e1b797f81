package chaos_test

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"maps"
	"math"
	"math/rand/v2"
	"net/netip"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/skeinhq/skein/internal/clickhousetest"
	"github.com/skeinhq/skein/pkg/client"
	"github.com/skeinhq/skein/pkg/kafka/kafkatest"
	"github.com/skeinhq/skein/test/process"
)

var alertsFlag = flag.String("chaos.alerts", "", "file to record what the alerts look at to")

const (
	// scale is how much faster than a clock the recording is: a second is written as half a minute.
	scale = 30
	// calm is an hour of it.
	calm = 2 * time.Minute
)

// TestAlerts_AreRecorded records what the rules of deploy/helm/skein/alerts.yaml look at, from real stages, first through a calm
// hour and then under each fault: deploy/alerts_test.go has the rules judge the recording. Scrapes a second apart are written as
// 30 s apart, and lags are multiplied by that, so that an outage of 10 s is one of five minutes. The broker is that of "skein dev":
// a real cluster rides over the loss of a node, and what is recorded here is that of all.
func TestAlerts_AreRecorded(t *testing.T) {
	if *alertsFlag == "" {
		t.Skip("slow: run make alerts-recorded")
	}
	dir, port := t.TempDir(), int(netip.MustParseAddrPort(process.FreeAddress(t)).Port())
	up := func() *kafkatest.Cluster {
		return kafkatest.StartCluster(t, partitions, kafkatest.WithDataDir(dir), kafkatest.WithPort(port))
	}
	cluster := up()
	cfg := cluster.Config
	admin := kafkatest.Admin(t, cfg)
	server := clickhousetest.Start(t)
	gate := clickhousetest.NewGate(t, server.Addr)
	server.Addr = gate.Addr
	bin, err := process.Commands(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	store := server.Flags(t)
	migrate := exec.CommandContext(t.Context(), filepath.Join(bin, "skein"), append([]string{"migrate"}, store...)...)
	migrate.Env = process.Environment()
	if out, err := migrate.CombinedOutput(); err != nil {
		t.Fatalf("%v: %s", err, out)
	}

	r := newRecorder(t)
	f := newFleet(t, bin, cfg, admin)
	f.started = func(m *member) {
		if !slices.Contains(f.members, m) {
			r.watch("compactor-added", m.process)
			return
		}
		r.watch(m.name, m.process)
	}
	for range compactors {
		if err := f.addMember(t.Context()); err != nil {
			t.Fatal(err)
		}
	}
	stages := map[string]*process.Process{}
	for name, more := range map[string][]string{
		"ingest": {"--listen", "127.0.0.1:0", "--tenant", tenant}, "indexer": store,
		"query": append([]string{"--listen", "127.0.0.1:0", "--tenant", tenant}, store...),
	} {
		args := append([]string{"--brokers", strings.Join(cfg.Brokers, ","), "--admin-listen", "127.0.0.1:0"}, more...)
		if stages[name], err = process.Start(t, f.dir, filepath.Join(bin, name), args...); err != nil {
			t.Fatal(err)
		}
		r.watch(name, stages[name])
		stages[name].AwaitReady()
	}
	use(t, stages["ingest"], stages["query"])
	background(t, r.run)
	lasts := func(d time.Duration) { pause(t.Context(), d) }
	lasts(calm)
	r.say(0, "a calm hour")

	s, rng := &storm{fleet: f, admin: admin, began: time.Now(), log: t.Logf}, rand.New(rand.NewPCG(seed(), 0))
	for i, one := range []struct {
		what  string
		times int
		do    act
	}{
		{"compactor killed", 5, killed}, {"compactor restarted", 5, restarted}, {"compactor frozen and doubled", 5, doubled},
		{"compactor frozen", 1, frozen}, {"compactor killed for long", 1, killedForLong},
		{"compactor added, compactor removed", 6, addedAndRemoved},
	} {
		f.free = []*member{f.members[i%compactors]}
		r.fault(one.what, func() {
			for range one.times {
				if err := one.do(t.Context(), s, rng); err != nil {
					t.Fatal(err)
				}
				lasts(4 * time.Second) // so that each process is scraped
			}
		})
	}
	r.fault("ClickHouse away", func() {
		gate.Close()
		lasts(25 * time.Second)
		gate.Open()
	})
	r.fault("malformed events", func() {
		kafkatest.Produce(t, cfg, &kgo.Record{Topic: cfg.Topics().Events, Key: []byte("no key"), Value: []byte("no event")})
		lasts(5 * time.Second)
	})
	r.fault("all compactors killed", func() {
		for _, m := range f.members {
			if err := m.process.Signal(syscall.SIGKILL); err != nil {
				t.Fatal(err)
			}
		}
		lasts(55 * time.Second)
	})
	for _, m := range f.members {
		if err := errors.Join(f.start(m), f.await(t.Context(), m)); err != nil {
			t.Fatal(err)
		}
	}
	r.fault("broker killed", func() {
		cluster.Stop()
		lasts(25 * time.Second)
		cluster = up()
	})
	lasts(20 * time.Second)
	r.fault("broker frozen", func() {
		thaw := make(chan struct{})
		cluster.Fake.Control(func(kmsg.Request) (kmsg.Response, error, bool) {
			<-thaw // so nothing else is answered
			return nil, nil, false
		})
		lasts(30 * time.Second)
		close(thaw)
	})
	lasts(20 * time.Second)
	r.fault("broker restarted", func() {
		for range 4 {
			cluster.Stop()
			cluster = up()
			lasts(6 * time.Second)
		}
	})
}

// background runs something until the test ends.
func background(t *testing.T, do func(context.Context)) {
	ctx, cancel := context.WithCancel(context.Background())
	var done sync.WaitGroup
	done.Go(func() { do(ctx) })
	t.Cleanup(func() {
		cancel()
		done.Wait()
	})
}

// use has people talk to agents: runs of a second come through ingest, and query is asked for threads. The metrics count what is refused.
func use(t *testing.T, ingest, query *process.Process) {
	t.Helper()
	everySecond := func(p *process.Process, do func(ctx context.Context, c *client.Client, n int)) {
		c, err := client.New("http://" + p.Said("listening", "address"))
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(c.Close)
		background(t, func(ctx context.Context) {
			for n := 0; ctx.Err() == nil; n++ {
				do(ctx, c, n)
				pause(ctx, time.Second)
			}
		})
	}
	for i := range 8 {
		everySecond(ingest, func(ctx context.Context, c *client.Client, n int) {
			thread, run := fmt.Sprintf("t%d-%d", i, n), fmt.Sprintf("r%d-%d", i, n)
			events := fmt.Sprintf(`{"type":"RUN_STARTED","threadId":%[1]q,"runId":%[2]q}
{"type":"TEXT_MESSAGE_CHUNK","messageId":"m","role":"assistant","delta":"It rains."}
{"type":"RUN_FINISHED","threadId":%[1]q,"runId":%[2]q}
`, thread, run)
			_, _ = c.PostEvents(ctx, thread, run, client.TypeNDJSON, strings.NewReader(events))
		})
	}
	everySecond(query, func(ctx context.Context, c *client.Client, _ int) { _, _ = c.Get(ctx, "/v1/threads", nil) })
}

// recorder scrapes processes each second and keeps the series that the rules name.
type recorder struct {
	t     *testing.T
	named *regexp.Regexp

	mu sync.Mutex
	// processes are by instance. One that was frozen may go on beside its double: both are scraped.
	processes map[string][]*process.Process
	// series have a word a tick, as promtool writes them: a value, "_" or "stale".
	series map[string][]string
	ticks  int
	said   []string
}

func newRecorder(t *testing.T) *recorder {
	t.Helper()
	rules, err := os.ReadFile("../../deploy/helm/skein/alerts.yaml")
	if err != nil {
		t.Fatal(err)
	}
	names := regexp.MustCompile(`\b(skein|process)_[a-z0-9_]+`).FindAllString(string(rules), -1)
	return &recorder{t: t, named: regexp.MustCompile(`^(` + strings.Join(names, "|") + `)(\{|$)`),
		processes: map[string][]*process.Process{}, series: map[string][]string{}}
}

// watch scrapes a process as an instance from now on.
func (r *recorder) watch(instance string, p *process.Process) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.processes[instance] = append(r.processes[instance], p)
}

// run scrapes. As for Prometheus, a process that has not answered in time, here before the next scrape, is down.
func (r *recorder) run(ctx context.Context) {
	tick := time.NewTicker(time.Second)
	defer tick.Stop()
	for {
		answers := map[string]chan map[string]float64{}
		r.mu.Lock()
		for instance, all := range r.processes {
			answered := make(chan map[string]float64, len(all))
			answers[instance] = answered
			for _, p := range all {
				select {
				case <-p.Ended: // another process may have its port
				default:
					go func() {
						if metrics, err := p.ReadMetrics(); err == nil {
							answered <- metrics
						}
					}()
				}
			}
		}
		r.mu.Unlock()
		select {
		case <-tick.C:
		case <-ctx.Done():
			return
		}
		r.mu.Lock()
		for instance, answered := range answers {
			select {
			case metrics := <-answered:
				r.note(instance, metrics)
				r.add("up", "", instance, 1)
			default:
				r.add("up", "", instance, 0)
			}
			for series, words := range r.series { // as Prometheus marks series that a scrape does not have
				if strings.HasSuffix(series, fmt.Sprintf("instance=%q}", instance)) && len(words) == r.ticks && words[len(words)-1] != "stale" {
					r.series[series] = append(words, "stale")
				}
			}
		}
		r.ticks++
		r.mu.Unlock()
	}
}

// unasked is what no rule asks for, of metrics that one names; and a disk, which says more of the machine than of Skein.
var unasked = regexp.MustCompile(`kind="(progress|fence|snapshot)"|outcome="committed"|^skein_compactor_disk_`)

// note notes what a process shows.
func (r *recorder) note(instance string, metrics map[string]float64) {
	for series, value := range metrics {
		metric, labels, labelled := strings.Cut(strings.TrimSuffix(series, "}"), "{")
		sum := func(other string) bool { return !labelled && strings.HasPrefix(other, series+"{") }
		if !r.named.MatchString(series) || unasked.MatchString(series) || slices.ContainsFunc(slices.Collect(maps.Keys(metrics)), sum) {
			continue
		}
		if strings.HasSuffix(metric, "_lag_seconds") {
			value *= scale
		}
		if labelled {
			labels += ","
		}
		r.add(metric, labels, instance, math.Floor(value)) // for a shorter recording
	}
}

func (r *recorder) add(metric, labels, instance string, value float64) {
	series := fmt.Sprintf("%s{%sinstance=%q}", metric, labels, instance)
	for len(r.series[series]) < r.ticks {
		r.series[series] = append(r.series[series], "_")
	}
	r.series[series] = append(r.series[series], strconv.FormatFloat(value, 'f', -1, 64))
}

// fault does one, and says when that was.
func (r *recorder) fault(what string, do func()) {
	r.mu.Lock()
	from := r.ticks
	r.mu.Unlock()
	do()
	r.say(from, what)
	pause(r.t.Context(), 3*time.Second)
}

// say writes the recording until now, a series a line; those of which nothing happened only where a rule asks whether they are there.
func (r *recorder) say(from int, what string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.said = append(r.said, fmt.Sprintf("# %d to %d: %s", from, r.ticks, what))
	r.t.Logf("%s", r.said[len(r.said)-1])
	out := "# Metrics of real stages, and what was done to them: make alerts-recorded. A scrape stands for 30 s.\n" + strings.Join(r.said, "\n") + "\n"
	for _, name := range slices.Sorted(maps.Keys(r.series)) {
		happened := slices.ContainsFunc(r.series[name], func(word string) bool { return word != "0" && word != "_" && word != "stale" })
		if happened || strings.Contains(name, `"kafka"`) || strings.Contains(name, "skein_query_streams") {
			out += name + " " + shortened(r.series[name]) + "\n"
		}
	}
	if err := os.WriteFile(*alertsFlag, []byte(out), 0o644); err != nil {
		r.t.Error(err)
	}
}

// shortened writes equal words as promtool does: "_x3" are three of them, "1x3" is a value and three more.
func shortened(words []string) (out string) {
	for len(words) > 0 {
		word, n := words[0], 1
		for n < len(words) && words[n] == word {
			n++
		}
		words = words[n:]
		switch {
		case n > 1 && word == "_":
			word += "x" + strconv.Itoa(n)
		case n > 1:
			word += "x" + strconv.Itoa(n-1)
		}
		out += word + " "
	}
	return strings.TrimSpace(out)
}
