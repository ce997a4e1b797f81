package e2e_test

import (
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/skeinhq/skein/internal/clickhousetest"
	"github.com/skeinhq/skein/pkg/kafka/kafkatest"
	"github.com/skeinhq/skein/test/parts/partstest"
	"github.com/skeinhq/skein/test/process"
)

// README's block for production runs as it stands, on one host: only the addresses of Kafka and ClickHouse and the folder are
// others. Its stages take their default ports.
func TestREADME_ProductionBlockRuns(t *testing.T) {
	const first = "skein keys new "
	readme, err := os.ReadFile("../../README.md")
	if err != nil {
		t.Fatal(err)
	}
	_, block, ok := strings.Cut(string(readme), "```text\n"+first)
	block, _, ended := strings.Cut(first+block, "```")
	if !ok || !ended {
		t.Fatal("README has no block for production")
	}
	for port := 8420; port <= 8425; port++ {
		l, err := net.Listen("tcp", fmt.Sprintf("127.0.0.1:%d", port))
		if err != nil {
			reason := fmt.Sprintf("README's block for production was not run: it needs the default ports: %v", err)
			if os.Getenv("CI") == "true" {
				t.Fatal(reason)
			}
			partstest.Note(t, reason)
			t.Skip(reason)
		}
		if err := l.Close(); err != nil {
			t.Fatal(err)
		}
	}
	kafka, store := kafkatest.Real(t, 1).Config, clickhousetest.Start(t)
	bin, err := binaries()
	if err != nil {
		t.Fatal(err)
	}
	dir := t.TempDir()
	// What this machine shares between tests comes by variables, so that the lines stay README's.
	environ := []string{"SKEIN_TOPIC_PREFIX=" + kafka.TopicPrefix, "PATH=" + bin + ":" + os.Getenv("PATH"), "HOME=" + dir}
	flags := store.Flags(t)
	for i := 0; i < len(flags); i += 2 {
		environ = append(environ, "SKEIN_"+strings.ToUpper(strings.NewReplacer("--", "", "-", "_").Replace(flags[i]))+"="+flags[i+1])
	}
	run := func(line string) string {
		t.Helper()
		cmd := exec.CommandContext(t.Context(), "bash", "-c", line)
		cmd.Dir, cmd.Env = dir, append(process.Environment(), environ...)
		var stderr strings.Builder
		cmd.Stderr = &stderr
		out, err := cmd.Output()
		if err != nil {
			t.Fatalf("%s: %v\n%s%s", line, err, out, &stderr)
		}
		return string(out)
	}
	here := strings.NewReplacer("kafka-0:9092", strings.Join(kafka.Brokers, ","), "http://clickhouse-0:8123", store.Addr,
		"api-keys.yaml", filepath.Join(dir, "api-keys.yaml"), "/var/lib/skein", filepath.Join(dir, "data"))
	var stages []*process.Process
	var key string
	for line := range strings.Lines(here.Replace(block)) {
		args := strings.Fields(line)
		if args[0] == "skein" {
			if out := run(line); key == "" {
				key = strings.TrimSpace(out)
			}
			continue
		}
		stage, err := process.StartWith(t, environ, dir, filepath.Join(bin, args[0]), args[1:]...)
		if err != nil {
			t.Fatal(err)
		}
		stages = append(stages, stage)
	}
	if len(stages) != 4 {
		t.Fatalf("%d stages in README's block", len(stages))
	}
	for _, stage := range stages {
		stage.AwaitReady()
	}
	environ = append(environ, "SKEIN_API_KEY="+key)
	examples, err := filepath.Abs("../../examples")
	if err != nil {
		t.Fatal(err)
	}
	run("skein context set here --publish-url http://127.0.0.1:8420 --read-url http://127.0.0.1:8422")
	run("skein publish " + filepath.Join(examples, "hello.jsonl") + " --input " + filepath.Join(examples, "hello.input.json"))
	if out := run("skein history hello"); !strings.Contains(out, "12 °C.") {
		t.Errorf("the history is %s", out)
	}
	if out := run("skein context remove here && skein status"); strings.Count(out, "\tok\t") != 4 {
		t.Errorf("the status is\n%s", out)
	}
}
