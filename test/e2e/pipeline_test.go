package e2e_test

import (
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/skeinhq/skein/pkg/client"
	"github.com/skeinhq/skein/test/process"
)

// partitions of the topics.
const partitions = 4

// The tenants. Both have an API key that publishes and reads.
const (
	tenantA = "acme"
	tenantB = "umbrella"
)

// pipeline is the four stages.
type pipeline struct {
	t    *testing.T
	ends ends
	dir  string

	ingest, compactor, indexer, query *process.Process
	// ingestAPI and api are each tenant's clients of ingest and query.
	ingestAPI, api map[string]*client.Client
	// secrets are the tenants' API keys.
	secrets map[string]string
}

func startPipeline(t *testing.T, e ends) *pipeline {
	t.Helper()
	p := &pipeline{t: t, ends: e, dir: t.TempDir(), secrets: map[string]string{}}
	keys := filepath.Join(p.dir, "api-keys.yaml")
	for _, tenant := range []string{tenantA, tenantB} {
		p.secrets[tenant] = strings.TrimSpace(p.skein("keys", "new", "--tenant", tenant, "--scope", "publish,read,erase", "--file", keys))
	}
	http := []string{"--listen", "127.0.0.1:0", "--api-keys", keys}
	// Before what they wait for is there: they have to go on by themselves.
	p.ingest = p.launch("ingest", append(e.ingest, http...)...)
	p.startIndexer()
	p.startCompactor()
	p.topics("create", "--partitions", strconv.Itoa(partitions), "--replication", strconv.Itoa(e.replication))
	p.skein(append([]string{"migrate"}, e.store...)...)
	p.ingest.AwaitReady()
	p.indexer.AwaitReady()
	p.compactor.AwaitReady()
	p.query = p.launch("query", append(http, e.store...)...)
	p.query.AwaitReady()
	p.ingestAPI, p.api = p.connect(p.ingest), p.connect(p.query)
	return p
}

func (p *pipeline) launch(name string, more ...string) *process.Process {
	p.t.Helper()
	bin, err := binaries()
	if err != nil {
		p.t.Fatal(err)
	}
	args := append(p.kafkaFlags(), "--admin-listen", "127.0.0.1:0")
	if rack := p.ends.racks[name]; rack != "" {
		args = append(args, "--kafka-rack", rack)
	}
	stage, err := process.StartWith(p.t, p.ends.environ, p.dir, filepath.Join(bin, name), append(args, more...)...)
	if err != nil {
		p.t.Fatal(err)
	}
	return stage
}

func (p *pipeline) kafkaFlags() []string {
	return []string{"--brokers", strings.Join(p.ends.kafka.Brokers, ","), "--topic-prefix", p.ends.kafka.TopicPrefix}
}

// startCompactor starts a compactor on the folder and under the name of the one before it.
func (p *pipeline) startCompactor() {
	p.t.Helper()
	flags := append(p.ends.compactor, "--dir", filepath.Join(p.dir, "compactor"), "--instance-id", "one")
	if !p.ends.production { // checkpoints are often, so that runs which are open when it is killed have been written as such
		flags = append(flags, "--checkpoint-interval", "10ms")
	}
	p.compactor = p.launch("compactor", flags...)
}

func (p *pipeline) startIndexer() {
	p.t.Helper()
	flags := p.ends.store
	if !p.ends.production { // it writes seldom, so that it is seen to hold what it has not written
		flags = append(flags, "--max-delay", "1s")
	}
	p.indexer = p.launch("indexer", flags...)
}

// topics runs "skein topics", which must be content with what it finds or makes.
func (p *pipeline) topics(args ...string) {
	p.t.Helper()
	p.skein(append(append([]string{"topics"}, args...), p.kafkaFlags()...)...)
}

// skein runs a command that must succeed, and returns what it prints.
func (p *pipeline) skein(args ...string) string {
	p.t.Helper()
	bin, err := binaries()
	if err != nil {
		p.t.Fatal(err)
	}
	var stderr strings.Builder
	cmd := exec.CommandContext(p.t.Context(), filepath.Join(bin, "skein"), args...)
	cmd.Env, cmd.Stderr = process.Environment(), &stderr
	out, err := cmd.Output()
	if err != nil {
		p.t.Fatalf("skein %s: %v\n%s%s", strings.Join(args, " "), err, out, &stderr)
	}
	return string(out)
}

// connect returns a client of a stage for each tenant.
func (p *pipeline) connect(stage *process.Process) map[string]*client.Client {
	p.t.Helper()
	out := make(map[string]*client.Client, len(p.secrets))
	for tenant, key := range p.secrets {
		c, err := client.New("http://"+stage.Said("listening", "address"), client.WithAPIKey(key))
		if err != nil {
			p.t.Fatal(err)
		}
		p.t.Cleanup(c.Close)
		out[tenant] = c
	}
	return out
}

// stop ends the stages in the order of the stream, so that each one has all that came before it.
func (p *pipeline) stop() {
	p.t.Helper()
	for _, stage := range []*process.Process{p.ingest, p.compactor, p.indexer, p.query} {
		began := time.Now()
		stage.Stop()
		p.t.Logf("%s took %v to stop", stage.Name, time.Since(began).Round(100*time.Millisecond))
	}
}
