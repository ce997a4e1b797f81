package bench

import (
	"bytes"
	"context"
	"flag"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kadm"

	"github.com/skeinhq/skein/pkg/kafka"
	"github.com/skeinhq/skein/pkg/kafka/kafkatest"
	"github.com/skeinhq/skein/test/process"
)

var (
	events   = flag.Int("events", 2_000_000, "events of a backlog")
	seconds  = flag.Int("seconds", 30, "how long the live pace is kept")
	rounds   = flag.Int("rounds", 1, "how often each of them reads the same events, in turn")
	built    = flag.String("compactor", "", "`FILE` of a compactor that is measured instead of this one")
	commands = flag.String("commands", "", "`FOLDER` of commands, built before, that are measured instead of these")
	width    = flag.Int("partitions", 4, "partitions of a topic set")
)

// cost is what a process took for its records.
type cost struct {
	records int
	cpu     float64 // seconds
	rate    float64 // records a second
	written float64 // bytes, as a share of bytes read
	mib     float64 // resident at most
	wall    float64 // seconds, with its start
}

func (c cost) perMillion() float64 { return c.cpu / float64(c.records) * 1e6 }

// BenchmarkDrain reads a backlog with each of the three.
func BenchmarkDrain(b *testing.B) {
	cluster := kafkatest.Real(b, 1)
	l := load{open: 200, deltas: 500, turns: 1}
	l.runs = *events / (l.deltas + around)
	for b.Loop() {
		cfg := topicSet(b, cluster)
		l.send(b, cfg, int32(*width), 0)
		n := l.records()
		warm := runYardstick(b, cfg, "consumer", n) // the brokers' page cache and code, for all alike
		b.Logf("%d events, %s; warm-up %.2f s/M", n, cluster.Version, warm.perMillion())
		var all []comparison
		for round := range *rounds {
			if round > 0 {
				forget(b, cfg)
			}
			one := comparison{consumer: runYardstick(b, cfg, "consumer", n), echo: runYardstick(b, cfg, "echo", n)}
			one.compactor = startCompactor(b, cfg).finish(b, n)
			all = append(all, one)
		}
		report(b, all)
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
		b.Logf("%d events at %d a second, %s", n, rate, cluster.Version)
		var all []comparison
		for range *rounds {
			cfg := topicSet(b, cluster)
			sent := make(chan struct{})
			go func() { defer close(sent); l.send(b, cfg, int32(*width), rate) }()
			one := comparison{echo: runYardstick(b, cfg, "echo", n)}
			<-sent

			cfg = topicSet(b, cluster)
			c := startCompactor(b, cfg)
			l.send(b, cfg, int32(*width), rate)
			one.compactor = c.finish(b, n)
			c.logSizes(b)
			all = append(all, one)
		}
		report(b, all)
	}
}

// comparison is one round of all of them.
type comparison struct{ consumer, echo, compactor cost }

// report prints the costs of each round and their ratios, as metrics the medians.
func report(b *testing.B, all []comparison) {
	b.Helper()
	line := func(name string, c cost) {
		if c.records > 0 {
			b.Logf("%-10s %6.2f CPU s per million events %9.0f events/s", name, c.perMillion(), c.rate)
		}
	}
	for _, one := range all {
		line("consumer", one.consumer)
		line("echo", one.echo)
		line("compactor", one.compactor)
	}
	b.Logf("consumer: %s", consumerOptions)
	b.Logf("echo: %s", echoOptions)
	figure := func(unit string, of func(comparison) float64) {
		var values []float64
		for _, one := range all {
			values = append(values, of(one))
		}
		slices.Sort(values)
		b.Logf("%-13s min %.3f, median %.3f, max %.3f", unit, values[0], values[len(values)/2], values[len(values)-1])
		b.ReportMetric(values[len(values)/2], unit)
	}
	figure("cpu-s/M", func(c comparison) float64 { return c.compactor.perMillion() })
	if all[0].consumer.records > 0 {
		figure("cpu/consumer", func(c comparison) float64 { return c.compactor.perMillion() / c.consumer.perMillion() })
		figure("rate/echo", func(c comparison) float64 { return c.compactor.rate / c.echo.rate })
	}
	figure("cpu/echo", func(c comparison) float64 { return c.compactor.perMillion() / c.echo.perMillion() })
	figure("written/read", func(c comparison) float64 { return c.compactor.written })
}

// forget makes the derived topics of a set and the compactor's group anew, so that a compactor begins
// with the first event.
func forget(tb testing.TB, cfg kafka.Config) {
	tb.Helper()
	ctx, cancel := context.WithTimeout(tb.Context(), time.Minute)
	defer cancel()
	admin, err := kafka.NewAdmin(cfg)
	if err != nil {
		tb.Fatal(err)
	}
	defer admin.Close()
	topics := cfg.Topics()
	derived := []string{topics.Runs, topics.Snapshots, topics.DeadLetters}
	if _, err := admin.DeleteTopics(ctx, derived...); err != nil {
		tb.Fatal(err)
	}
	for _, group := range []string{cfg.CompactorGroup(), echoTopic(cfg)} {
		for { // its last member's session has to end first
			r, err := admin.DeleteGroups(ctx, group)
			if err == nil && r.Error() == nil {
				break
			}
			select {
			case <-ctx.Done():
				tb.Fatalf("deleting group %s: %v %v", group, err, r.Error())
			case <-time.After(200 * time.Millisecond):
			}
		}
	}
	for {
		if _, err = kafka.EnsureTopics(ctx, cfg, kafka.TopicSpec{Partitions: int32(*width)}); err == nil {
			return
		}
		select {
		case <-ctx.Done():
			tb.Fatal(err)
		case <-time.After(200 * time.Millisecond):
		}
	}
}

// topicSet makes a topic set of its own on the cluster, and a topic for the echo.
func topicSet(tb testing.TB, cluster *kafkatest.RealCluster) kafka.Config {
	tb.Helper()
	cfg := cluster.Config
	cfg.TopicPrefix = fmt.Sprintf("%s%d.", cfg.TopicPrefix, time.Now().UnixNano())
	ctx, cancel := context.WithTimeout(tb.Context(), time.Minute)
	defer cancel()
	if _, err := kafka.EnsureTopics(ctx, cfg, kafka.TopicSpec{Partitions: int32(*width)}); err != nil {
		tb.Fatal(err)
	}
	admin, err := kafka.NewAdmin(cfg)
	if err != nil {
		tb.Fatal(err)
	}
	defer admin.Close()
	if _, err := admin.CreateTopic(ctx, int32(*width), 1, nil, echoTopic(cfg)); err != nil {
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
	out, t, err := output(cmd)
	if err != nil {
		tb.Fatalf("%s: %v", kind, err)
	}
	c := cost{cpu: t.cpu, mib: t.mib, wall: t.wall}
	var took float64
	if _, err := fmt.Sscan(string(out), &c.records, &took); err != nil {
		tb.Fatal(err)
	}
	c.rate = float64(c.records) / took
	return c
}

// taken is what a command took: seconds by the clock and of processors, and the most of memory.
type taken struct{ wall, cpu, mib float64 }

func (t taken) String() string {
	return fmt.Sprintf("%7.2f s, %7.2f CPU s, %5.0f MiB resident at most", t.wall, t.cpu, t.mib)
}

// output runs a command and returns what it prints.
func output(cmd *exec.Cmd) (out []byte, t taken, err error) {
	var printed bytes.Buffer
	cmd.Stdout = &printed
	began := time.Now()
	if err := cmd.Start(); err != nil {
		return nil, taken{}, err
	}
	ended := make(chan error, 1)
	go func() { ended <- cmd.Wait() }()
	for {
		select {
		case err := <-ended:
			t.wall, t.cpu = time.Since(began).Seconds(), (cmd.ProcessState.UserTime() + cmd.ProcessState.SystemTime()).Seconds()
			return printed.Bytes(), t, err
		case <-time.After(10 * time.Millisecond): // what the system says of a process that has ended is that of its parent, if that was larger
			if bytes, err := process.MemoryOf(cmd.Process.Pid, "VmHWM:"); err == nil {
				t.mib = max(t.mib, mib(bytes))
			}
		}
	}
}

func mib(bytes int64) float64 { return float64(bytes) / (1 << 20) }

// stage is a process of one.
type stage struct {
	*process.Process
	cfg  kafka.Config
	dir  string // of a compactor's local stores
	from time.Time
	at   int64 // events committed at that time
}

// startCompactor builds and starts cmd/compactor and waits until it is ready.
func startCompactor(tb testing.TB, cfg kafka.Config) *stage {
	tb.Helper()
	return startCompactorIn(tb, cfg, tb.TempDir())
}

// startCompactorIn starts it with the local stores that another one has left in the folder.
func startCompactorIn(tb testing.TB, cfg kafka.Config, dir string) *stage {
	tb.Helper()
	program := *built
	if program == "" {
		program = command(tb, "compactor", dir)
	}
	quotas := filepath.Join(dir, "quotas.yaml") // by default, the fuller ones of four partitions end some of 100,000 open runs
	if err := os.WriteFile(quotas, []byte("default:\n  open_runs: 1000000\n"), 0o600); err != nil {
		tb.Fatal(err)
	}
	p := start(tb, dir, program, cfg, "--instance-id", "bench", "--dir", filepath.Join(dir, "stores"), "--quotas", quotas)
	p.dir = filepath.Join(dir, "stores")
	return p
}

// start starts a stage on a topic set; its log is in the folder.
func start(tb testing.TB, dir, program string, cfg kafka.Config, args ...string) *stage {
	tb.Helper()
	p, err := process.Start(tb, dir, program, append([]string{
		"--brokers", strings.Join(cfg.Brokers, ","), "--topic-prefix", cfg.TopicPrefix, "--admin-listen", "127.0.0.1:0", "--pprof",
	}, args...)...)
	if err != nil {
		tb.Fatal(err)
	}
	tb.Logf("%s: profiles are at http://%s/debug/pprof", p.Name, p.Said("starting", "admin"))
	return &stage{Process: p, cfg: cfg}
}

// command is the program of a command: one that was built before (-commands), else this module's, built into the folder.
func command(tb testing.TB, name, dir string) string {
	tb.Helper()
	if *commands != "" {
		return filepath.Join(*commands, name)
	}
	program := filepath.Join(dir, name)
	if _, err := os.Stat(program); err != nil {
		if err := process.Build(dir, nil, "../cmd/"+name); err != nil {
			tb.Fatal(err)
		}
	}
	return program
}

// finish waits until all events are committed, ends the process and returns what it took.
func (p *stage) finish(tb testing.TB, n int) cost {
	tb.Helper()
	admin, err := kafka.NewAdmin(p.cfg)
	if err != nil {
		tb.Fatal(err)
	}
	defer admin.Close()
	group := p.cfg.CompactorGroup()
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
	metrics := p.Metrics(tb)
	c.written = metrics["skein_compactor_record_bytes_total"] / metrics["skein_compactor_event_bytes_total"]
	p.Stop()
	c.cpu = p.CPU().Seconds()
	return c
}

// logSizes prints what lies on the brokers' disks of each topic, and in the compactor's local stores.
func (p *stage) logSizes(tb testing.TB) {
	tb.Helper()
	admin, err := kafka.NewAdmin(p.cfg)
	if err != nil {
		tb.Fatal(err)
	}
	defer admin.Close()
	all, err := admin.DescribeAllLogDirs(tb.Context(), nil)
	if err != nil {
		tb.Fatal(err)
	}
	bytes := map[string]int64{}
	all.Each(func(d kadm.DescribedLogDir) {
		d.Topics.Each(func(t kadm.DescribedLogDirPartition) {
			if name, ours := strings.CutPrefix(t.Topic, p.cfg.TopicPrefix); ours {
				bytes[name] += t.Size
			}
		})
	})
	err = filepath.Walk(p.dir, func(path string, f os.FileInfo, err error) error {
		if err == nil && f.Mode().IsRegular() {
			bytes["local stores"] += f.Size()
		}
		return err
	})
	if err != nil {
		tb.Fatal(err)
	}
	tb.Logf("bytes on disk: %v", bytes)
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
