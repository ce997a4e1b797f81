package chaos_test

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"maps"
	"math"
	"net"
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
	"github.com/skeinhq/skein/pkg/kafka"
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
	dir := t.TempDir()
	up := func(more ...kafkatest.Option) *kafkatest.Cluster {
		return kafkatest.StartCluster(t, partitions, append(more, kafkatest.WithDataDir(dir))...)
	}
	cluster := up()
	_, port, err := net.SplitHostPort(cluster.Config.Brokers[0])
	if err != nil {
		t.Fatal(err)
	}
	number, err := strconv.Atoi(port)
	if err != nil {
		t.Fatal(err)
	}
	again := kafkatest.WithPort(number)
	server := clickhousetest.Start(t)
	gate := clickhousetest.NewGate(t, server.Addr)
	server.Addr = gate.Addr
	bin, err := process.Commands(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	r := newRecorder(t)
	f := newFleet(t, bin, cluster.Config, nil)
	var members []*member
	for range compactors {
		if err := f.addMember(t.Context()); err != nil {
			t.Fatal(err)
		}
		m := f.members[len(f.members)-1]
		members = append(members, m)
		r.watch(m.name, m.process)
	}
	store, keys := server.Flags(t), filepath.Join(f.dir, "api-keys.yaml")
	skein := func(args ...string) string {
		t.Helper()
		cmd := exec.CommandContext(t.Context(), filepath.Join(bin, "skein"), args...)
		cmd.Env = process.Environment()
		out, err := cmd.Output()
		if err != nil {
			t.Fatalf("skein %s: %v", strings.Join(args, " "), err)
		}
		return strings.TrimSpace(string(out))
	}
	skein(append([]string{"migrate"}, store...)...)
	key := skein("keys", "new", "--tenant", tenant, "--scope", "publish,read", "--file", keys)
	common := []string{"--brokers", strings.Join(cluster.Config.Brokers, ","), "--admin-listen", "127.0.0.1:0"}
	stages := map[string]*process.Process{}
	for name, more := range map[string][]string{
		"ingest": {"--listen", "127.0.0.1:0", "--api-keys", keys}, "indexer": store,
		"query": append([]string{"--listen", "127.0.0.1:0", "--api-keys", keys}, store...),
	} {
		p, err := process.Start(t, f.dir, filepath.Join(bin, name), append(slices.Clone(common), more...)...)
		if err != nil {
			t.Fatal(err)
		}
		stages[name] = p
		r.watch(name, p)
	}
	for _, name := range []string{"ingest", "indexer", "query"} {
		stages[name].AwaitReady()
	}
	use(t, stages["ingest"], stages["query"], key)

	r.run()
	pause(t.Context(), calm)
	r.say(0, "a calm hour")

	start := func(m *member) {
		t.Helper()
		if err := f.start(m); err != nil {
			t.Fatal(err)
		}
		r.watch(m.name, m.process)
	}
	ready := func(m *member) {
		t.Helper()
		if err := f.await(t.Context(), m); err != nil {
			t.Fatal(err)
		}
		r.watch(m.name, m.process)
	}
	signal := func(m *member, sig syscall.Signal) {
		t.Helper()
		if err := m.process.Signal(sig); err != nil && !errors.Is(err, os.ErrProcessDone) { // as fenced
			t.Fatal(err)
		}
	}
	lasts := func(d time.Duration) { pause(t.Context(), d) }
	repeat := func(times int, do func()) func() {
		return func() {
			for range times {
				do()
			}
		}
	}
	a, b, c := members[0], members[1], members[2]
	crashes := func(m *member, sig syscall.Signal) func() {
		return repeat(5, func() {
			signal(m, sig)
			<-m.process.Ended
			start(m)
			lasts(5 * time.Second)
		})
	}
	r.fault("compactor killed", crashes(a, syscall.SIGKILL))
	ready(a)
	r.fault("compactor restarted", crashes(b, syscall.SIGTERM))
	ready(b)
	r.fault("compactor frozen and doubled", repeat(5, func() {
		old := c.process
		signal(c, syscall.SIGSTOP)
		c.dir += "-twin" // the frozen process has the lock of its folder
		start(c)
		pause(t.Context(), 2*time.Second)
		if err := old.Signal(syscall.SIGCONT); err != nil {
			t.Fatal(err)
		}
		select {
		case <-old.Ended:
		case <-c.process.Ended: // the brokers took it for the older one
			c.process = old
			r.watch(c.name, old)
		}
		lasts(3 * time.Second)
	}))
	ready(c)
	r.fault("compactor frozen", func() {
		signal(a, syscall.SIGSTOP)
		lasts(15 * time.Second)
		signal(a, syscall.SIGCONT)
	})
	lasts(3 * time.Second)
	select {
	case <-a.process.Ended:
		start(a)
	default:
	}
	ready(a)
	r.fault("compactor killed for long", func() {
		signal(b, syscall.SIGKILL)
		lasts(15 * time.Second)
		start(b)
		ready(b)
	})
	r.fault("compactor added, compactor removed", repeat(6, func() {
		m := f.newMember()
		start(m)
		ready(m)
		signal(m, syscall.SIGTERM)
		<-m.process.Ended
		r.watch(m.name, nil)
	}))
	r.fault("ClickHouse away", func() {
		gate.Close()
		lasts(25 * time.Second)
		gate.Open()
	})
	r.fault("the file of keys is none", func() {
		text, err := os.ReadFile(keys)
		if err := errors.Join(err, os.WriteFile(keys, []byte("keys: ["), 0o600)); err != nil {
			t.Fatal(err)
		}
		lasts(30 * time.Second)
		if err := os.WriteFile(keys, text, 0o600); err != nil {
			t.Fatal(err)
		}
	})
	r.fault("malformed events", func() {
		p, err := kafka.NewProducer(cluster.Config)
		if err != nil {
			t.Fatal(err)
		}
		defer p.Close()
		record := &kgo.Record{Topic: cluster.Config.Topics().Events, Key: []byte("no key"), Value: []byte("no event")}
		if err := p.ProduceSync(t.Context(), record).FirstErr(); err != nil {
			t.Fatal(err)
		}
		lasts(5 * time.Second)
	})
	r.fault("a transaction of others is left open", func() {
		cfg := cluster.Config
		cfg.Options = func() []kgo.Opt { return []kgo.Opt{kgo.TransactionTimeout(10 * time.Minute)} }
		somebody, err := kafka.NewTransactor(t.Context(), cfg, cfg.TopicPrefix+"somebody")
		if err != nil {
			t.Fatal(err)
		}
		defer somebody.Close()
		if err := somebody.BeginTransaction(); err != nil {
			t.Fatal(err)
		}
		record := &kgo.Record{Topic: cfg.Topics().Events, Key: []byte("x"), Value: []byte("x")}
		if err := somebody.ProduceSync(t.Context(), record).FirstErr(); err != nil {
			t.Fatal(err)
		}
		lasts(40 * time.Second)
		if err := somebody.EndTransaction(t.Context(), kgo.TryAbort); err != nil {
			t.Fatal(err)
		}
	})
	r.fault("all compactors killed", func() {
		for _, m := range members {
			signal(m, syscall.SIGKILL)
		}
		lasts(55 * time.Second)
	})
	for _, m := range members {
		start(m)
		ready(m)
	}
	r.fault("broker killed", func() {
		cluster.Stop()
		lasts(25 * time.Second)
		cluster = up(again)
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
	r.fault("broker restarted", repeat(4, func() {
		cluster.Stop()
		cluster = up(again)
		lasts(6 * time.Second)
	}))
}

// use has people talk to agents: runs of a second come through ingest, and query is asked for threads.
func use(t *testing.T, ingest, query *process.Process, key string) {
	t.Helper()
	connect := func(p *process.Process) *client.Client {
		c, err := client.New("http://"+p.Said("listening", "address"), client.WithAPIKey(key))
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(c.Close)
		return c
	}
	in, out := connect(ingest), connect(query)
	ctx, cancel := context.WithCancel(context.Background())
	var all sync.WaitGroup
	for i := range 8 {
		all.Go(func() {
			for n := 0; ctx.Err() == nil; n++ {
				thread, run := fmt.Sprintf("t%d-%d", i, n), fmt.Sprintf("r%d-%d", i, n)
				events := fmt.Sprintf(`{"type":"RUN_STARTED","threadId":%[1]q,"runId":%[2]q}
{"type":"TEXT_MESSAGE_CHUNK","messageId":"m","role":"assistant","delta":"It rains."}
{"type":"RUN_FINISHED","threadId":%[1]q,"runId":%[2]q}
`, thread, run)
				_, _ = in.PostEvents(ctx, thread, run, client.TypeNDJSON, strings.NewReader(events)) // the metrics count what is refused
				pause(ctx, time.Second)
			}
		})
	}
	all.Go(func() {
		for ctx.Err() == nil {
			_, _ = out.Get(ctx, "/v1/threads", nil) // as above
			pause(ctx, time.Second)
		}
	})
	t.Cleanup(func() {
		cancel()
		all.Wait()
	})
}

// recorder scrapes processes each second and keeps the series that the rules name.
type recorder struct {
	t     *testing.T
	named *regexp.Regexp

	mu      sync.Mutex
	targets map[string]*process.Process // by instance
	series  map[string][]sample
	ticks   int
	said    []string
}

// sample is the value at a tick; gone says that the series ended before it.
type sample struct {
	tick  int
	value float64
	gone  bool
}

func newRecorder(t *testing.T) *recorder {
	t.Helper()
	rules, err := os.ReadFile("../../deploy/helm/skein/alerts.yaml")
	if err != nil {
		t.Fatal(err)
	}
	names := regexp.MustCompile(`\b(skein|process)_[a-z0-9_]+`).FindAllString(string(rules), -1)
	return &recorder{t: t, named: regexp.MustCompile(`^(` + strings.Join(names, "|") + `)(\{|$)`),
		targets: map[string]*process.Process{}, series: map[string][]sample{}}
}

// watch scrapes a process as an instance from now on; nil: nobody has that name any more.
func (r *recorder) watch(instance string, p *process.Process) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.targets[instance] = p; p == nil {
		delete(r.targets, instance)
		r.end(instance, true)
	}
}

// run scrapes until the test ends.
func (r *recorder) run() {
	ctx, cancel := context.WithCancel(context.Background())
	var all sync.WaitGroup
	all.Go(func() {
		tick := time.NewTicker(time.Second)
		defer tick.Stop()
		for ctx.Err() == nil {
			r.mu.Lock()
			now, targets := r.ticks, maps.Clone(r.targets)
			r.mu.Unlock()
			for instance, p := range targets {
				all.Go(func() { r.scrape(now, instance, p) })
			}
			select {
			case <-tick.C:
			case <-ctx.Done():
			}
			r.mu.Lock()
			r.ticks++
			r.mu.Unlock()
		}
	})
	r.t.Cleanup(func() {
		cancel()
		all.Wait()
	})
}

// scrape notes what a process shows. As Prometheus does, it takes one that has not answered in time, here before the next scrape, for down.
func (r *recorder) scrape(tick int, instance string, p *process.Process) {
	metrics, err := p.ReadMetrics()
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.targets[instance] != p {
		return
	}
	up := fmt.Sprintf(`up{instance=%q}`, instance)
	if err != nil || tick != r.ticks {
		r.add(up, sample{tick: tick})
		r.end(instance, false)
		return
	}
	r.add(up, sample{tick: tick, value: 1})
	for name, value := range metrics {
		labelled := func(other string) bool { return strings.HasPrefix(other, name+"{") }
		if !r.named.MatchString(name) || slices.ContainsFunc(slices.Collect(maps.Keys(metrics)), labelled) { // its series are there
			continue
		}
		metric, labels, _ := strings.Cut(strings.TrimSuffix(name, "}"), "{")
		if labels != "" {
			labels += ","
		}
		switch {
		case math.IsNaN(value): // the folder is not there yet
			continue
		case strings.HasSuffix(metric, "_lag_seconds"):
			value *= scale
		case strings.HasPrefix(metric, "skein_compactor_disk_"):
			value = math.Round(value/1e9) * 1e9
		}
		value = math.Floor(value) // for a shorter recording
		r.add(fmt.Sprintf(`%s{%sinstance=%q}`, metric, labels, instance), sample{tick: tick, value: value})
	}
}

func (r *recorder) add(series string, s sample) {
	all := r.series[series]
	if n := len(all); n > 0 && all[n-1].tick >= s.tick {
		return // an answer that came too late
	}
	r.series[series] = append(all, s)
}

// end marks the series of an instance as ended, as Prometheus does where a scrape fails, or its target is gone.
func (r *recorder) end(instance string, gone bool) {
	for name, all := range r.series {
		if strings.HasSuffix(name, fmt.Sprintf(`instance=%q}`, instance)) && (gone || !strings.HasPrefix(name, "up{")) && !all[len(all)-1].gone {
			r.add(name, sample{tick: max(r.ticks, all[len(all)-1].tick+1), gone: true})
		}
	}
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

func (r *recorder) say(from int, what string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.said = append(r.said, fmt.Sprintf("# %d to %d: %s", from, r.ticks, what))
	r.t.Logf("%s", r.said[len(r.said)-1])
	r.write()
}

// write writes the recording in the notation of promtool, a series a line.
func (r *recorder) write() {
	var out strings.Builder
	out.WriteString("# Metrics of real stages, and what was done to them: make alerts-recorded. A scrape stands for 30 s.\n")
	out.WriteString(strings.Join(r.said, "\n") + "\n")
	for _, name := range slices.Sorted(maps.Keys(r.series)) {
		if strings.Contains(name, "_total{") || strings.Contains(name, "_failing{") && !strings.Contains(name, `"kafka"`) {
			if !slices.ContainsFunc(r.series[name], func(s sample) bool { return s.value > 0 }) {
				continue // nothing happened
			}
		}
		fmt.Fprintf(&out, "%s %s\n", name, r.values(r.series[name]))
	}
	if err := os.WriteFile(*alertsFlag, []byte(out.String()), 0o644); err != nil {
		r.t.Fatal(err)
	}
}

// values writes samples: equal ones, and none, in one word.
func (r *recorder) values(all []sample) string {
	var words []string
	last, times := "", 0
	word := func(w string) {
		if w == last {
			times++
			return
		}
		switch {
		case last == "_": // counts all of them, a value those after the first
			words[len(words)-1] += "x" + strconv.Itoa(times+1)
		case times > 0:
			words[len(words)-1] += "x" + strconv.Itoa(times)
		}
		words, last, times = append(words, w), w, 0
	}
	tick := 0
	for _, s := range all {
		for ; tick < s.tick; tick++ {
			word("_")
		}
		tick++
		if s.gone {
			word("stale")
		} else {
			word(strconv.FormatFloat(s.value, 'f', -1, 64))
		}
	}
	word("")
	return strings.Join(words[:len(words)-1], " ")
}
