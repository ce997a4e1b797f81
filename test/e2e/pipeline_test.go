package e2e_test

import (
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/skeinhq/skein/internal/client"
)

const (
	tenantID   = "e2e"
	partitions = 4
)

// pipeline is the four stages.
type pipeline struct {
	t    *testing.T
	ends ends
	dir  string

	ingest, compactor, indexer, query *process
	// door and api are clients of ingest and query.
	door, api *client.Client
}

func startPipeline(t *testing.T, e ends) *pipeline {
	t.Helper()
	p := &pipeline{t: t, ends: e, dir: t.TempDir()}
	p.topics("create", "--partitions", strconv.Itoa(partitions), "--replication", strconv.Itoa(e.replication))
	p.ingest = p.launch("ingest", "--listen", "127.0.0.1:0", "--tenant", tenantID)
	p.ingest.awaitReady()
	p.startIndexer()
	p.startCompactor()
	p.indexer.awaitReady()
	p.compactor.awaitReady()
	p.query = p.launch("query", append([]string{"--listen", "127.0.0.1:0", "--tenant", tenantID}, e.store...)...)
	p.query.awaitReady()
	p.door, p.api = p.connect(p.ingest), p.connect(p.query)
	return p
}

func (p *pipeline) launch(name string, more ...string) *process {
	p.t.Helper()
	args := append(p.kafkaFlags(), "--admin-listen", "127.0.0.1:0")
	return launch(p.t, p.dir, name, append(args, more...)...)
}

func (p *pipeline) kafkaFlags() []string {
	return []string{"--brokers", strings.Join(p.ends.kafka.Brokers, ","), "--topic-prefix", p.ends.kafka.TopicPrefix}
}

// startCompactor starts a compactor on the folder and under the name of the one before it.
func (p *pipeline) startCompactor() {
	p.t.Helper()
	p.compactor = p.launch("compactor",
		"--dir", filepath.Join(p.dir, "compactor"), "--instance-id", "one",
		// Often, so that runs which are open when it is killed have been written as such.
		"--checkpoint-interval", "1s")
}

func (p *pipeline) startIndexer() {
	p.t.Helper()
	p.indexer = p.launch("indexer", p.ends.store...)
}

// topics runs "skein topics", which must be content with what it finds or makes.
func (p *pipeline) topics(args ...string) {
	p.t.Helper()
	bin, err := binaries()
	if err != nil {
		p.t.Fatal(err)
	}
	args = append(append([]string{"topics"}, args...), p.kafkaFlags()...)
	cmd := exec.CommandContext(p.t.Context(), filepath.Join(bin, "skein"), args...)
	cmd.Env = environment()
	if out, err := cmd.CombinedOutput(); err != nil {
		p.t.Fatalf("skein %s: %v\n%s", strings.Join(args, " "), err, out)
	}
}

func (p *pipeline) connect(stage *process) *client.Client {
	p.t.Helper()
	c, err := client.New("http://" + stage.said("listening", "address"))
	if err != nil {
		p.t.Fatal(err)
	}
	p.t.Cleanup(c.Close)
	return c
}

// stop ends the stages in the order of the stream, so that each one has all that came before it.
func (p *pipeline) stop() {
	p.t.Helper()
	for _, stage := range []*process{p.ingest, p.compactor, p.indexer, p.query} {
		began := time.Now()
		stage.stop()
		p.t.Logf("%s took %v to stop", stage.name, time.Since(began).Round(100*time.Millisecond))
	}
}
