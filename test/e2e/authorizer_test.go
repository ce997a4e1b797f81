package e2e_test

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"math/rand/v2"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/skeinhq/skein/pkg/kafka"
	"github.com/skeinhq/skein/pkg/kafka/kafkatest"
	"github.com/skeinhq/skein/test/process"
)

var eachRule = flag.Bool("acls.each", false, "take each of the documented rules away, not two of them")

// allow returns the entry of a rule with one of its operations.
func allow(t *testing.T, r kafka.Rule) *kadm.ACLBuilder {
	t.Helper()
	operation, err := kmsg.ParseACLOperation(r.Operations[0])
	if err != nil {
		t.Fatal(err)
	}
	b := kadm.NewACLs().Operations(operation).ResourcePatternType(kadm.ACLPatternLiteral)
	switch r.Resource {
	case "topic":
		return b.Topics(r.Name)
	case "group":
		return b.Groups(r.Name)
	case "transactional id":
		return b.TransactionalIDs(r.Name).ResourcePatternType(kadm.ACLPatternPrefixed)
	}
	t.Fatalf("%v: no such resource", r)
	return nil
}

// rulesWithSQLite returns the rules that stages need here, each with one operation.
func rulesWithSQLite() (rules []kafka.Rule) {
	for _, r := range (kafka.Config{}).Rules() {
		if r.ClickHouse {
			continue
		}
		for _, operation := range r.Operations {
			r.Operations = []string{operation}
			rules = append(rules, r)
		}
	}
	return rules
}

// guarded are the four stages before a Kafka that asks its authorizer, each with a user of its own.
type guarded struct {
	t      *testing.T
	dir    string
	users  map[string]kafka.Config
	args   map[string][]string
	stages map[string]*process.Process
	n      int
}

// Each stage works with the rules that docs/security.md names for its user (TestSecurity_NamesTheRules), and with none of them fewer.
func TestAuthorizer_StagesNeedWhatIsDocumented(t *testing.T) {
	t.Parallel()
	rules := rulesWithSQLite()
	cluster := kafkatest.Authorized(t)
	if _, err := kafka.EnsureTopics(t.Context(), cluster.Keeper(), kafka.TopicSpec{Partitions: 2}); err != nil {
		t.Fatal(err)
	}
	agent := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Content-Type", "text/event-stream")
		_, _ = io.WriteString(w, "data: {\"type\":\"RUN_STARTED\",\"threadId\":\"held\",\"runId\":\"held\"}\n\n")
		_ = http.NewResponseController(w).Flush()
		<-r.Context().Done()
	}))
	t.Cleanup(agent.Close)
	g := &guarded{t: t, dir: t.TempDir(), users: map[string]kafka.Config{}, stages: map[string]*process.Process{}}
	store := []string{"--sqlite", filepath.Join(g.dir, "lineage.sqlite")}
	local := []string{"--listen", "127.0.0.1:0", "--tenant", "dev"}
	g.args = map[string][]string{
		"ingest":    append([]string{"--agents", agentsFile(t, agent.URL), "--ack-timeout", "2s"}, local...),
		"compactor": {"--dir", filepath.Join(g.dir, "compactor"), "--instance-id", "one", "--checkpoint-interval", "10ms"},
		"indexer":   append([]string{"--max-delay", "50ms"}, store...),
		"query":     append(local, store...),
	}
	bin, err := binaries()
	if err != nil {
		t.Fatal(err)
	}
	if out, err := exec.CommandContext(t.Context(), filepath.Join(bin, "skein"),
		append([]string{"migrate"}, store...)...).CombinedOutput(); err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	for stage := range g.args {
		g.users[stage] = cluster.User(stage)
	}
	for _, r := range rules {
		cluster.Allow(r.Stage, allow(t, r))
	}
	for stage := range g.args {
		g.start(stage)
	}
	if err := g.works(time.Minute); err != nil {
		t.Fatalf("with all %d rules: %v", len(rules), err)
	}

	if !*eachRule {
		rand.Shuffle(len(rules), func(i, j int) { rules[i], rules[j] = rules[j], rules[i] })
		rules = rules[:2]
	}
	for _, r := range rules {
		cluster.Forbid(r.Stage, allow(t, r))
		g.start(r.Stage)
		err := g.works(8 * time.Second)
		if err == nil {
			t.Errorf("%v: all works without it", r)
		}
		t.Logf("without %v: %v", r, err)
		cluster.Allow(r.Stage, allow(t, r))
		g.start(r.Stage)
		if err := g.works(time.Minute); err != nil {
			t.Fatalf("once %v is back: %v", r, err)
		}
	}
}

// start starts a stage, or starts it again.
func (g *guarded) start(stage string) {
	g.t.Helper()
	if old := g.stages[stage]; old != nil {
		old.End(os.Interrupt)
	}
	bin, err := binaries()
	if err != nil {
		g.t.Fatal(err)
	}
	cfg := g.users[stage]
	g.stages[stage], err = process.Start(g.t, g.dir, filepath.Join(bin, stage), append([]string{
		"--admin-listen", "127.0.0.1:0", "--brokers", strings.Join(cfg.Brokers, ","), "--kafka-tls", "--kafka-ca-file", cfg.Security.CAFile,
		"--kafka-sasl", cfg.Security.SASL, "--kafka-user", cfg.Security.User, "--kafka-password-file", cfg.Security.PasswordFile,
	}, g.args[stage]...)...)
	if err != nil {
		g.t.Fatal(err)
	}
}

// works does what each stage is for, once, each step within a limit.
func (g *guarded) works(limit time.Duration) error {
	g.n++
	thread := "t" + strconv.Itoa(g.n)
	run := "/v1/threads/" + thread + "/runs/r"
	events := func(seqs ...int) string {
		all := []string{`{"type":"RUN_STARTED","threadId":"` + thread + `","runId":"r"}`, `{"type":"CUSTOM","name":"n","value":1}`, `{"type":"RUN_FINISHED","threadId":"` + thread + `","runId":"r"}`, `{"type":"CUSTOM","name":"late","value":1}`}
		text := ""
		for _, n := range seqs {
			text += fmt.Sprintf(`{"seq":%d,"event":%s}`+"\n", n, all[n])
		}
		return text
	}
	for _, step := range []struct {
		name, stage, method, path, body string
		want                            string
	}{
		{"publishing a run's beginning", "ingest", "POST", run + "/events", events(0), `"accepted":1`},
		{"following an open run", "query", "GET", run + "/stream", "", `"CUSTOM"`},
		{"reading an open run", "query", "GET", run + "/history", "", `"running"`},
		{"publishing its end, and more", "ingest", "POST", run + "/events", events(2, 3), `"accepted":2`},
		{"reading its history", "query", "GET", run + "/history", "", `"finished"`},
		{"reading its raw events", "query", "GET", run + "/events", "", `"CUSTOM"`},
		{"listing dead letters", "query", "GET", "/v1/dead-letters?thread=" + thread, "", "after-terminal"},
		{"cancelling a run of the proxy", "ingest", "POST", "/v1/threads/held/runs/" + thread + "/cancel", "", "cancelled"},
		{"erasing it", "ingest", "DELETE", "/v1/threads/" + thread, "", "position"},
		{"seeing it erased", "query", "GET", run + "/history", "", "the thread was erased"},
	} {
		ctx, cancel := context.WithTimeout(g.t.Context(), limit)
		line := func(string) {}
		switch {
		case strings.HasPrefix(step.name, "following"):
			// An event that comes before the snapshots is in them. If it is refused, the step does not get it.
			line = func(text string) {
				if strings.Contains(text, "STATE_SNAPSHOT") {
					go func() { _, _ = g.once(ctx, "ingest", "POST", run+"/events", events(1), "accepted", func(string) {}) }()
				}
			}
		case strings.HasPrefix(step.name, "cancelling"):
			g.holdRun(ctx, thread)
		}
		err := g.until(ctx, step.stage, step.method, step.path, step.body, step.want, line)
		cancel()
		if err != nil {
			return fmt.Errorf("%s: %w", step.name, err)
		}
	}
	for name, stage := range g.stages {
		if _, ready := process.Get(g.t, "http://"+stage.Said("starting", "admin")+"/readyz"); !strings.Contains(ready, `"status":"ready"`) && !strings.Contains(ready, `"status":"ok"`) {
			return fmt.Errorf("%s: %s", name, ready)
		}
	}
	return nil
}

// holdRun calls the agent, which answers until the context ends.
func (g *guarded) holdRun(ctx context.Context, run string) {
	go func() {
		body := `{"threadId":"held","runId":"` + run + `","messages":[],"tools":[],"context":[],"state":{},"forwardedProps":{}}`
		_, _ = g.once(ctx, "ingest", "POST", "/v1/agents/helper", body, "RUN_FINISHED", func(string) {}) // the step that cancels it tells
	}()
}

// until asks again until the answer has a text.
func (g *guarded) until(ctx context.Context, stage, method, path, body, want string, line func(string)) error {
	for {
		answer, err := g.once(ctx, stage, method, path, body, want, line)
		if err == nil && strings.Contains(answer, want) {
			return nil
		}
		select {
		case <-ctx.Done():
			return errors.Join(err, fmt.Errorf("%s %s answers %.300q", method, path, answer))
		case <-time.After(100 * time.Millisecond):
		}
	}
}

// once asks, and reads the answer up to the line with a text. It calls line with each.
func (g *guarded) once(ctx context.Context, stage, method, path, body, want string, line func(string)) (string, error) {
	address, ok := g.stages[stage].Logged("listening", "address")
	if !ok {
		return "", errors.New(stage + " does not listen")
	}
	req, err := http.NewRequestWithContext(ctx, method, "http://"+address+path, strings.NewReader(body))
	if err != nil {
		return "", err
	}
	req.Header.Set("Content-Type", "application/json")
	if strings.HasSuffix(path, "/events") && method == "POST" {
		req.Header.Set("Content-Type", "application/vnd.skein.events+ndjson")
	}
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		return "", err
	}
	defer func() { _ = resp.Body.Close() }()
	var answer bytes.Buffer
	lines := bufio.NewScanner(resp.Body)
	lines.Buffer(nil, 1<<20)
	for lines.Scan() {
		answer.Write(lines.Bytes())
		line(lines.Text())
		if bytes.Contains(lines.Bytes(), []byte(want)) {
			break
		}
	}
	return answer.String(), lines.Err()
}

// agentsFile configures one agent.
func agentsFile(t *testing.T, url string) string {
	t.Helper()
	file := filepath.Join(t.TempDir(), "agents.yaml")
	if err := os.WriteFile(file, []byte("agents:\n  - name: helper\n    url: "+url+"\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	return file
}
