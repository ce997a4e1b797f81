package bench

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kadm"

	"github.com/skeinhq/skein/pkg/kafka"
	"github.com/skeinhq/skein/pkg/kafka/kafkatest"
	"github.com/skeinhq/skein/pkg/migrate"
)

// BenchmarkMigrate copies a topic set of 3 partitions, with the records of a compactor, to 5. A run is of 20 events,
// and a thread of 10 runs.
func BenchmarkMigrate(b *testing.B) {
	cluster := kafkatest.Real(b, 1)
	l := load{open: 200, deltas: 15, turns: 10}
	l.runs = *events / (l.deltas + around)
	program := filepath.Join(b.TempDir(), "skein")
	build(b, "skein", program)
	for b.Loop() {
		cfg := cluster.Config
		cfg.TopicPrefix = fmt.Sprintf("%s%d.", cfg.TopicPrefix, time.Now().UnixNano())
		if _, err := kafka.EnsureTopics(b.Context(), cfg, kafka.TopicSpec{Partitions: 3}); err != nil {
			b.Fatal(err)
		}
		l.send(b, cfg, 3, 0)
		startCompactor(b, cfg).finish(b, l.records())
		leave(b, cfg)

		cmd := exec.CommandContext(b.Context(), program, "topics", "migrate", "--brokers", strings.Join(cfg.Brokers, ","),
			"--topic-prefix", cfg.TopicPrefix, "--to-prefix", cfg.TopicPrefix+"v2.", "--partitions", "5", "--json")
		var said bytes.Buffer
		cmd.Stderr = &said
		out, t, err := output(cmd)
		var r migrate.Report
		if err != nil || json.Unmarshal(out, &r) != nil || !r.Done {
			b.Fatalf("it says %s%s: %v", out, &said, err)
		}
		b.Logf("%d events, %d runs, %d snapshots of %d threads copied and compared in %s: %.0f events/s, %.2f CPU s per million events, %.0f MiB resident at most; %s\n%s",
			r.Copied["events"], r.Copied["runs"], r.Copied["snapshots"], r.Proof.Threads, time.Duration(t.wall*1e9).Round(100*time.Millisecond), float64(l.records())/t.wall,
			t.cpu/float64(l.records())*1e6, t.mib, cluster.Version, &said)
		b.ReportMetric(float64(l.records())/t.wall, "events/s")
		b.ReportMetric(t.mib, "MiB-peak")
	}
}

// leave takes the compactor, which has ended, out of its group, as its session's timeout would.
func leave(tb testing.TB, cfg kafka.Config) {
	tb.Helper()
	ctx, cancel := context.WithTimeout(tb.Context(), time.Minute)
	defer cancel()
	admin, err := kafka.NewAdmin(cfg)
	if err != nil {
		tb.Fatal(err)
	}
	defer admin.Close()
	group := cfg.CompactorGroup()
	if _, err := admin.LeaveGroup(ctx, kadm.LeaveGroup(group).InstanceIDs(group+"-bench")); err != nil {
		tb.Fatal(err)
	}
}
