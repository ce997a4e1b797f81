package bench

import (
	"context"
	"flag"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/prometheus/common/expfmt"
	"github.com/prometheus/common/model"
	"github.com/twmb/franz-go/pkg/kadm"

	"github.com/skeinhq/skein/pkg/kafka"
	"github.com/skeinhq/skein/pkg/kafka/kafkatest"
)

var (
	events  = flag.Int("events", 2_000_000, "events of a backlog")
	seconds = flag.Int("seconds", 30, "how long the live pace is kept")
	profile = flag.String("compactor-profile", "", "`FILE` for a CPU profile of the compactor while it drains")
)

const partitions = 4

// cost is what a process took for its records.
type cost struct {
	records int
	cpu     float64 // seconds
	rate    float64 // records a second
	written float64 // bytes, as a share of bytes read
}

func (c cost) perMillion() float64 { return c.cpu / float64(c.records) * 1e6 }

// BenchmarkDrain reads a backlog with each of the three.
func BenchmarkDrain(b *testing.B) {
	cluster := kafkatest.Real(b, 1)
	l := load{open: 200, deltas: 500, turns: 1}
	l.runs = *events / (l.deltas + around)
	for b.Loop() {
		ctx, cfg := b.Context(), topicSet(b, cluster)
		l.send(ctx, b, cfg, partitions, 0)
		n := l.records()
		warm := runYardstick(b, cfg, "consumer", n) // the brokers' page cache and code, for all alike
		consumer := runYardstick(b, cfg, "consumer", n)
		echo := runYardstick(b, cfg, "echo", n)
		c := startCompactor(b, cfg)
		compactor := c.finish(b, n)
		b.Logf("%d events, %s; warm-up %.2f s/M", n, cluster.Version, warm.perMillion())
		report(b, consumer, echo, compactor)
	}
}

// BenchmarkLive sends 20,000 events a second, 200 runs of 5 s at a time, to one after the other.
func BenchmarkLive(b *testing.B) {
	cluster := kafkatest.Real(b, 1)
	const rate = 20_000
	l := load{open: 200, deltas: 500 - around, turns: 1}
	l.runs = *seconds / 5 * l.open
	for b.Loop() {
		n := l.records()
		cfg := topicSet(b, cluster)
		sent := make(chan struct{})
		go func() { defer close(sent); l.send(b.Context(), b, cfg, partitions, rate) }()
		echo := runYardstick(b, cfg, "echo", n)
		<-sent

		cfg = topicSet(b, cluster)
		c := startCompactor(b, cfg)
		l.send(b.Context(), b, cfg, partitions, rate)
		compactor := c.finish(b, n)
		b.Logf("%d events at %d a second, %s", n, rate, cluster.Version)
		report(b, cost{}, echo, compactor)
	}
}

// report prints the costs and their ratios.
func report(b *testing.B, consumer, echo, compactor cost) {
	b.Helper()
	line := func(name string, c cost) {
		if c.records > 0 {
			b.Logf("%-10s %6.2f CPU s per million events %9.0f events/s", name, c.perMillion(), c.rate)
		}
	}
	line("consumer", consumer)
	line("echo", echo)
	line("compactor", compactor)
	b.Logf("consumer: %s", consumerOptions)
	b.Logf("echo: %s", echoOptions)
	b.ReportMetric(compactor.perMillion(), "cpu-s/M")
	if consumer.records > 0 {
		b.ReportMetric(compactor.perMillion()/consumer.perMillion(), "cpu/consumer")
	}
	b.ReportMetric(compactor.perMillion()/echo.perMillion(), "cpu/echo")
	b.ReportMetric(compactor.rate/echo.rate, "rate/echo")
	b.ReportMetric(compactor.written, "written/read")
}

// topicSet makes a topic set of its own on the cluster, and a topic for the echo.
func topicSet(tb testing.TB, cluster *kafkatest.RealCluster) kafka.Config {
	tb.Helper()
	cfg := cluster.Config
	cfg.TopicPrefix = fmt.Sprintf("%s%d.", cfg.TopicPrefix, time.Now().UnixNano())
	ctx, cancel := context.WithTimeout(tb.Context(), time.Minute)
	defer cancel()
	if _, err := kafka.EnsureTopics(ctx, cfg, kafka.TopicSpec{Partitions: partitions}); err != nil {
		tb.Fatal(err)
	}
	admin, err := kafka.NewAdmin(cfg)
	if err != nil {
		tb.Fatal(err)
	}
	defer admin.Close()
	if _, err := admin.CreateTopic(ctx, partitions, 1, nil, echoTopic(cfg)); err != nil {
		tb.Fatal(err)
	}
	return cfg
}

func echoTopic(cfg kafka.Config) string { return cfg.TopicPrefix + "echo" }

// runYardstick runs one to its end.
func runYardstick(tb testing.TB, cfg kafka.Config, kind string, n int) cost {
	tb.Helper()
	program, err := os.Executable()
	if err != nil {
		tb.Fatal(err)
	}
	cmd := exec.CommandContext(tb.Context(), program)
	cmd.Env = append(os.Environ(), fmt.Sprintf("%s=%s %s %s %s %d", yardstickVariable, kind,
		strings.Join(cfg.Brokers, ","), cfg.Topics().Events, echoTopic(cfg), n))
	cmd.Stderr = os.Stderr
	out, err := cmd.Output()
	if err != nil {
		tb.Fatalf("%s: %v", kind, err)
	}
	c := cost{cpu: cpuSeconds(cmd)}
	var took float64
	if _, err := fmt.Sscan(string(out), &c.records, &took); err != nil {
		tb.Fatal(err)
	}
	c.rate = float64(c.records) / took
	return c
}

func cpuSeconds(cmd *exec.Cmd) float64 {
	return (cmd.ProcessState.UserTime() + cmd.ProcessState.SystemTime()).Seconds()
}

// process is the compactor's.
type process struct {
	cmd   *exec.Cmd
	cfg   kafka.Config
	admin string
	from  time.Time
	at    int64 // events committed at that time
}

// startCompactor builds and starts cmd/compactor and waits until it is ready.
func startCompactor(tb testing.TB, cfg kafka.Config) *process {
	tb.Helper()
	dir := tb.TempDir()
	program := filepath.Join(dir, "compactor")
	if out, err := exec.CommandContext(tb.Context(), "go", "build", "-o", program, "../cmd/compactor").CombinedOutput(); err != nil {
		tb.Fatalf("building: %v\n%s", err, out)
	}
	p := &process{cfg: cfg, admin: freeAddress(tb)}
	p.cmd = exec.Command(program, "--brokers", strings.Join(cfg.Brokers, ","), "--topic-prefix", cfg.TopicPrefix,
		"--instance-id", "bench", "--dir", filepath.Join(dir, "stores"), "--admin-listen", p.admin, "--pprof")
	log, err := os.Create(filepath.Join(dir, "log"))
	if err != nil {
		tb.Fatal(err)
	}
	defer func() { _ = log.Close() }() // the process has it
	p.cmd.Stderr, p.cmd.Stdout = log, log
	if err := p.cmd.Start(); err != nil {
		tb.Fatal(err)
	}
	tb.Cleanup(func() {
		if p.cmd.ProcessState == nil {
			_ = p.cmd.Process.Kill()
			_ = p.cmd.Wait()
		}
		if tb.Failed() {
			text, _ := os.ReadFile(log.Name())
			tb.Logf("compactor:\n%s", text)
		}
	})
	if *profile != "" {
		go p.takeProfile(tb, *profile)
	}
	return p
}

// finish waits until all events are committed, ends the process and returns what it took.
func (p *process) finish(tb testing.TB, n int) cost {
	tb.Helper()
	admin, err := kafka.NewAdmin(p.cfg)
	if err != nil {
		tb.Fatal(err)
	}
	defer admin.Close()
	group := p.cfg.TopicPrefix + "skein-compactor"
	deadline := time.Now().Add(10 * time.Minute)
	var c cost
	for {
		at := committed(tb.Context(), admin, group)
		now := time.Now()
		if p.from.IsZero() && at > 0 {
			p.from, p.at = now, at
		}
		if at >= int64(n) {
			c = cost{records: n, rate: float64(at-p.at) / now.Sub(p.from).Seconds()}
			break
		}
		if now.After(deadline) {
			tb.Fatalf("the compactor has committed %d of %d events", at, n)
		}
		time.Sleep(20 * time.Millisecond)
	}
	metrics := p.metrics(tb)
	c.written = metrics["skein_compactor_record_bytes_total"] / metrics["skein_compactor_event_bytes_total"]
	if err := p.cmd.Process.Signal(syscall.SIGTERM); err != nil {
		tb.Fatal(err)
	}
	if err := p.cmd.Wait(); err != nil {
		tb.Fatalf("the compactor ended with %v", err)
	}
	c.cpu = cpuSeconds(p.cmd)
	return c
}

// committed is the sum of the group's offsets. All runs end, so nothing is held back at the end.
func committed(ctx context.Context, admin *kadm.Client, group string) int64 {
	offsets, err := admin.FetchOffsets(ctx, group)
	if err != nil { // the coordinator is not there yet
		return 0
	}
	var sum int64
	offsets.Each(func(o kadm.OffsetResponse) { sum += max(0, o.At) })
	return sum
}

// metrics are the values of the process's plain counters and gauges.
func (p *process) metrics(tb testing.TB) map[string]float64 {
	tb.Helper()
	resp, err := http.Get("http://" + p.admin + "/metrics")
	if err != nil {
		tb.Fatal(err)
	}
	defer resp.Body.Close()
	parser := expfmt.NewTextParser(model.UTF8Validation)
	families, err := parser.TextToMetricFamilies(resp.Body)
	if err != nil {
		tb.Fatal(err)
	}
	out := map[string]float64{}
	for name, f := range families {
		for _, m := range f.GetMetric() {
			out[name] += m.GetCounter().GetValue() + m.GetGauge().GetValue()
		}
	}
	return out
}

// takeProfile writes a CPU profile of 12 s.
func (p *process) takeProfile(tb testing.TB, file string) {
	for {
		resp, err := http.Get("http://" + p.admin + "/debug/pprof/profile?seconds=12")
		if err != nil {
			time.Sleep(50 * time.Millisecond)
			continue
		}
		defer resp.Body.Close()
		f, err := os.Create(file)
		if err != nil {
			tb.Error(err)
			return
		}
		if _, err := io.Copy(f, resp.Body); err != nil {
			tb.Log(err)
		}
		if err := f.Close(); err != nil {
			tb.Log(err)
		}
		return
	}
}

// freeAddress is an address on which nothing listens.
func freeAddress(tb testing.TB) string {
	tb.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		tb.Fatal(err)
	}
	addr := l.Addr().String()
	if err := l.Close(); err != nil {
		tb.Fatal(err)
	}
	return addr
}
