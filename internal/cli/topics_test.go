package cli

import (
	"encoding/json"
	"strings"
	"testing"

	"github.com/skeinhq/skein/internal/app"
	"github.com/skeinhq/skein/pkg/kafka"
	"github.com/skeinhq/skein/pkg/kafka/kafkatest"
)

func TestTopics_CreateCheckAndAlter(t *testing.T) { kafkatest.OnBoth(t, 0, createCheckAndAlter) }

func createCheckAndAlter(t *testing.T, k kafka.Config) {
	prefix := k.TopicPrefix + "acme."
	at := []string{"--brokers", strings.Join(k.Brokers, ","), "--topic-prefix", prefix}
	run := func(want int, args ...string) (string, string) {
		t.Helper()
		stdout, stderr, code := skein(t, "", append(append([]string{"topics"}, args...), at...)...)
		if code != want {
			t.Fatalf("topics %v: exit %d, want %d; stdout %q, stderr %q", args, code, want, stdout, stderr)
		}
		return stdout, stderr
	}
	if out, errs := run(app.ExitDiffers, "check"); strings.Count(out, "missing") != 4 || strings.Count(errs, "\n") != 1 {
		t.Errorf("no topic exists, and it says %q, %q", out, errs)
	}
	made, _ := run(app.ExitDone, "create", "--partitions", "5")
	var table strings.Builder
	for line := range strings.Lines(made) { // how wide the columns are depends on the prefix
		table.WriteString(strings.Join(strings.Fields(strings.ReplaceAll(line, prefix, "")), " ") + "\n")
	}
	if table.String() != `TOPIC PARTITIONS REPLICAS IN SYNC KEPT STATE
skein.events 5 1 ≥ 1 30d ok
skein.runs 5 1 ≥ 1 compacted ok
skein.snapshots 5 1 ≥ 1 compacted ok
skein.dead-letters 5 1 ≥ 1 30d ok
` {
		t.Errorf("topics were made, and it says %s", made)
	}
	out, _ := run(app.ExitDone, "check", "--json")
	lines := strings.Split(strings.TrimSpace(out), "\n")
	var first kafka.TopicReport
	if err := json.Unmarshal([]byte(lines[0]), &first); err != nil {
		t.Fatal(err)
	}
	if len(lines) != 4 || first.Topic != prefix+"skein.events" || first.Partitions != 5 || first.Differences == nil {
		t.Errorf("--json says %s", out)
	}
	if out, _ := run(app.ExitDiffers, "check", "--events-retention", "24h"); !strings.Contains(out,
		prefix+"skein.events: retention.ms is 2592000000, want 86400000\n") {
		t.Errorf("retention differs, and it says %q", out)
	}
	run(app.ExitDone, "alter", "--events-retention", "24h")
	run(app.ExitDone, "check", "--events-retention", "24h")
	if out, _ := run(app.ExitDiffers, "alter", "--partitions", "7"); strings.Count(out, "partitions is 5, want 7") != 4 {
		t.Errorf("a count cannot be altered, and it says %q", out)
	}
}
