package bench

import (
	"bytes"
	"context"
	"flag"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kadm"

	"github.com/skeinhq/skein/pkg/kafka"
	"github.com/skeinhq/skein/pkg/kafka/kafkatest"
	"github.com/skeinhq/skein/test/process"
)

var (
	seconds  = flag.Int("seconds", 30, "how long a pace is kept")
	rounds   = flag.Int("rounds", 1, "how often each of them is measured, in turn")
	built    = flag.String("compactor", "", "`FILE` of a compactor that is measured instead of this one")
	commands = flag.String("commands", "", "`FOLDER` of commands, built before, that are measured instead of these")
	width    = flag.Int("partitions", 4, "partitions of a topic set")
)

// topicSet makes a topic set of its own on the cluster.
func topicSet(tb testing.TB, cluster *kafkatest.RealCluster) kafka.Config {
	tb.Helper()
	cfg := cluster.Config
	cfg.TopicPrefix = fmt.Sprintf("%s%d.", cfg.TopicPrefix, time.Now().UnixNano())
	ctx, cancel := context.WithTimeout(tb.Context(), time.Minute)
	defer cancel()
	if _, err := kafka.EnsureTopics(ctx, cfg, kafka.TopicSpec{Partitions: int32(*width)}); err != nil {
		tb.Fatal(err)
	}
	return cfg
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
	cfg kafka.Config
	dir string // of a compactor's local stores
}

// startCompactorIn starts cmd/compactor with the local stores that another one has left in the folder.
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
