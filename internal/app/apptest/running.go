package apptest

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"io"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/skeinhq/skein/internal/app"
	"github.com/skeinhq/skein/internal/clickhousetest"
	"github.com/skeinhq/skein/internal/logtest"
	"github.com/skeinhq/skein/pkg/kafka"
	"github.com/skeinhq/skein/pkg/kafka/kafkatest"
	"github.com/skeinhq/skein/pkg/store/clickhouse"
	"github.com/skeinhq/skein/pkg/store/sqlite"
)

// patience bounds each wait of a test. It is long because the machine may be busy.
const patience = time.Minute

// Running is a stage's whole process, which runs inside the test.
type Running struct {
	t     *testing.T
	log   logtest.Log
	ended chan struct{}
	admin string
}

// Start runs one command line of a stage's binary until the test ends. The test fails if the command then returns an error.
func Start(t *testing.T, s app.Stage, args ...string) *Running {
	t.Helper()
	r := &Running{t: t, ended: make(chan struct{})}
	ctx, cancel := context.WithCancel(context.Background())
	var err error
	go func() {
		defer close(r.ended)
		err = app.StageCommand(s)(ctx, append(args, "--admin-listen", "127.0.0.1:0"), strings.NewReader(""), io.Discard, &r.log)
	}()
	t.Cleanup(func() {
		cancel()
		<-r.ended
		if err != nil {
			t.Errorf("%s ended with %v", s.Name, err)
		}
		if t.Failed() {
			t.Logf("log of %s:\n%s", s.Name, r.log.String())
		}
	})
	r.admin = r.Said("starting", "admin")
	return r
}

// Said waits until the log has a line with the message, and returns that line's value of key.
func (r *Running) Said(message, key string) string {
	r.t.Helper()
	var value string
	r.await("it logs "+message, func() (string, bool) {
		for lines := bufio.NewScanner(strings.NewReader(r.log.String())); lines.Scan(); {
			var line map[string]any
			if json.Unmarshal(lines.Bytes(), &line) == nil && line["msg"] == message {
				value, _ = line[key].(string)
				return "", true
			}
		}
		return "nothing yet", false
	})
	return value
}

// Ready waits until readiness answers 200 with all texts in its body.
func (r *Running) Ready(texts ...string) { r.answers("it is ready", http.StatusOK, texts) }

// NotReady waits until readiness answers 503 with all texts in its body. Liveness must still answer 200.
func (r *Running) NotReady(texts ...string) {
	r.t.Helper()
	r.answers("it is not ready", http.StatusServiceUnavailable, texts)
	if status, body := r.get("/healthz"); status != http.StatusOK {
		r.t.Errorf("it is not alive: %d %s", status, body)
	}
}

// answers waits until readiness answers with the status want and all texts in its body.
func (r *Running) answers(what string, want int, texts []string) {
	r.t.Helper()
	r.await(what+", with "+strings.Join(texts, ", "), func() (string, bool) {
		status, body := r.get("/readyz")
		has := status == want
		for _, text := range texts {
			has = has && strings.Contains(body, text)
		}
		return body, has
	})
}

func (r *Running) get(path string) (int, string) {
	r.t.Helper()
	req, err := http.NewRequestWithContext(r.t.Context(), http.MethodGet, "http://"+r.admin+path, nil)
	if err != nil {
		r.t.Fatal(err)
	}
	resp, err := (&http.Client{Transport: &http.Transport{DisableKeepAlives: true}}).Do(req)
	if err != nil {
		return 0, err.Error()
	}
	defer func() { _ = resp.Body.Close() }() // only read
	body, err := io.ReadAll(resp.Body)
	if err != nil {
		return 0, err.Error()
	}
	return resp.StatusCode, string(body)
}

func (r *Running) await(what string, ask func() (string, bool)) {
	r.t.Helper()
	deadline := time.NewTimer(patience)
	defer deadline.Stop()
	tick := time.NewTicker(20 * time.Millisecond)
	defer tick.Stop()
	for {
		answer, ok := ask()
		if ok {
			return
		}
		select {
		case <-r.ended:
			r.t.Fatalf("the process has ended, waiting for this: %s", what)
		case <-deadline.C:
			r.t.Fatalf("waited %v for this: %s; the last answer: %s", patience, what, answer)
		case <-tick.C:
		}
	}
}

// KafkaComesAndGoes starts a stage before any broker answers, then starts, stops and restarts Kafka. The process must
// survive and its readiness must follow Kafka's state. args is the command line without --brokers.
func KafkaComesAndGoes(t *testing.T, s app.Stage, args ...string) {
	t.Helper()
	t.Parallel() // it waits most of the time
	dir := t.TempDir()
	port := freePort(t)
	r := Start(t, s, append(args, "--brokers", "127.0.0.1:"+strconv.Itoa(port))...)
	r.NotReady(`"status":"starting"`, `"kafka":"asking brokers from 127.0.0.1:`)
	r.Said("waiting for what is missing", "error")
	start := func() *kafkatest.Cluster {
		return kafkatest.StartCluster(t, 2, kafkatest.WithDataDir(dir), kafkatest.WithPort(port))
	}
	c := start()
	r.Ready()
	c.Stop()
	r.NotReady(`"status":"not ready"`, `"kafka":"asking brokers from 127.0.0.1:`)
	r.Said("check fails", "error")
	start()
	r.Ready()
	r.Said("check passes again", "after")
}

// CredentialsAreMended runs a stage on a real Kafka with a wrong password, corrects the password, changes it at the
// brokers, which restart, and corrects it again. The process must survive and its readiness must follow. args is the
// command line without the flags of the Kafka connection.
func CredentialsAreMended(t *testing.T, s app.Stage, args ...string) {
	t.Helper()
	t.Parallel() // it waits most of the time
	c := kafkatest.Secured(t)
	c.MakeTopics(1)
	security := c.Config.Security
	good, err := os.ReadFile(security.PasswordFile)
	if err != nil {
		t.Fatal(err)
	}
	put := func(password string) {
		t.Helper()
		if err := os.WriteFile(security.PasswordFile, []byte(password), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	put("a wrong one")
	r := Start(t, s, append(args, "--brokers", strings.Join(c.Config.Brokers, ","), "--kafka-tls", "--kafka-ca-file", security.CAFile,
		"--kafka-sasl", security.SASL, "--kafka-user", security.User, "--kafka-password-file", security.PasswordFile)...)
	const refused = `Kafka refuses the credentials: SASL_AUTHENTICATION_FAILED`
	r.NotReady(`"status":"starting"`, refused)
	put(string(good))
	r.Ready()
	c.SetPassword("another one")
	c.Kill(1)
	c.Up(1)
	r.NotReady(`"status":"not ready"`, refused)
	put("another one")
	r.Ready()
	if log := r.log.String(); strings.Contains(log, "a wrong one") || strings.Contains(log, "another one") ||
		strings.Contains(log, string(good)) {
		t.Error("a password is in the log")
	}
}

// Migrated makes the schema of a SQLite store, as "skein migrate" does, and returns path, the store's file.
func Migrated(t *testing.T, path string) string {
	t.Helper()
	st, err := sqlite.Open(t.Context(), path)
	if err != nil {
		t.Fatal(err)
	}
	if err := errors.Join(st.Migrate(t.Context()), st.Close()); err != nil {
		t.Fatal(err)
	}
	return path
}

// StoreCredentialsAreMended runs a stage with a wrong ClickHouse password, at the start and after a change at the
// server. args is the command line without the flags of ClickHouse.
func StoreCredentialsAreMended(t *testing.T, s app.Stage, args ...string) {
	t.Helper()
	g := clickhousetest.StartGuarded(t)
	st, err := clickhouse.New(clickhouse.Options{Addrs: []string{g.Addr}, Database: g.Database, Username: g.Username, Password: g.Password})
	if err != nil {
		t.Fatal(err)
	}
	// Stages do not make the schema themselves.
	if err := errors.Join(st.Migrate(t.Context()), st.Close()); err != nil {
		t.Fatal(err)
	}
	file := filepath.Join(t.TempDir(), "password")
	put := func(password string) {
		t.Helper()
		if err := os.WriteFile(file, []byte(password), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	put("a wrong one")
	r := Start(t, s, append(args, "--clickhouse", g.Addr, "--clickhouse-database", g.Database,
		"--clickhouse-user", g.Username, "--clickhouse-password-file", file)...)
	const refused = `asking ClickHouse for its schema: ClickHouse refuses the credentials`
	r.NotReady(refused)
	put(g.Password)
	r.Ready()
	g.SetPassword("another one")
	r.NotReady(refused)
	put("another one")
	r.Ready()
	if log := r.log.String(); strings.Contains(log, "a wrong one") || strings.Contains(log, "another one") ||
		strings.Contains(log, g.Password) {
		t.Error("a password is in the log")
	}
}

// TopicsAreWaitedFor starts a stage without its topics. The stage must create none, must report the missing ones with
// the command that creates them, and must continue by itself once they exist. args is the command line without
// brokers and prefix.
func TopicsAreWaitedFor(t *testing.T, s app.Stage, args ...string) {
	t.Helper()
	t.Parallel()
	c := kafkatest.StartCluster(t, 0, kafkatest.WithoutTopics())
	cfg := c.Config
	cfg.TopicPrefix = "acme."
	r := Start(t, s, append(args, "--brokers", cfg.Brokers[0], "--topic-prefix", cfg.TopicPrefix)...)
	r.NotReady(`"status":"starting"`, `"kafka":"ok"`, "acme.skein.events, acme.skein.runs, acme.skein.snapshots, acme.skein.dead-letters",
		"skein topics create --brokers "+cfg.Brokers[0]+" --topic-prefix acme.")
	for _, topic := range cfg.Topics().All() {
		if c.Fake.TopicInfo(topic) != nil {
			t.Errorf("it has made %s", topic)
		}
	}
	if _, err := kafka.EnsureTopics(t.Context(), cfg, kafka.TopicSpec{Partitions: 2}); err != nil {
		t.Fatal(err)
	}
	r.Ready()
	if n := r.logged("waiting for what is missing"); n != 1 {
		t.Errorf("it has said %d times that topics are missing, want once", n)
	}
	// A stage keeps checking the topics while it runs.
	snapshots := cfg.Topics().Snapshots
	if err := c.Fake.DeleteTopic(snapshots); err != nil {
		t.Fatal(err)
	}
	r.NotReady(`"topics":"reading partition counts: there is no topic of that name: acme.skein.snapshots: create them with: skein topics create`)
	if err := c.Fake.CreateTopic(snapshots, 2, nil); err != nil {
		t.Fatal(err)
	}
	r.Ready()
}

// OpenTransactionIsTold leaves a transaction open on the topic that a stage reads, on a real Kafka. Kafka then
// returns no record after its start, and the stage must report it in readiness, log and lag until it ends. args is
// the command line without brokers and prefix.
func OpenTransactionIsTold(t *testing.T, s app.Stage, topic func(kafka.Topics) string, args ...string) {
	t.Helper()
	t.Parallel() // it waits most of the time
	c := kafkatest.Real(t, 1)
	c.MakeTopics(1)
	cfg := c.Config
	r := Start(t, s, append(args, "--brokers", strings.Join(cfg.Brokers, ","), "--topic-prefix", cfg.TopicPrefix)...)
	r.Ready(`"status":"ok"`, `"reading":"ok"`)
	if lag := r.metric("skein_" + s.Name + "_lag_seconds"); lag != 0 {
		t.Errorf("the lag is %v before anything came", lag)
	}
	// The transaction must not time out before the stage has detected it.
	cfg.Options = func() []kgo.Opt { return []kgo.Opt{kgo.TransactionTimeout(10 * time.Minute)} }
	somebody, err := kafka.NewTransactor(t.Context(), cfg, cfg.TopicPrefix+"somebody")
	if err != nil {
		t.Fatal(err)
	}
	defer somebody.Close()
	if err := somebody.BeginTransaction(); err != nil {
		t.Fatal(err)
	}
	began := time.Now()
	if err := somebody.ProduceSync(t.Context(),
		&kgo.Record{Topic: topic(cfg.Topics()), Key: []byte("x"), Value: []byte("x")}).FirstErr(); err != nil {
		t.Fatal(err)
	}
	r.Ready(`"status":"degraded"`, "a transaction is open there;", "kafka-transactions.sh abort --topic "+topic(cfg.Topics()))
	if lag, most := r.metric("skein_"+s.Name+"_lag_seconds"), time.Since(began).Seconds(); lag <= 0 || lag > most {
		t.Errorf("the lag is %v, want more than 0 and at most %v", lag, most)
	}
	if n := r.metric(`skein_` + s.Name + `_stalled_partitions{cause="open-transaction"}`); n != 1 {
		t.Errorf("%v partitions are said to be stalled, want 1", n)
	}
	r.Said("check fails", "error")
	if err := somebody.EndTransaction(t.Context(), kgo.TryAbort); err != nil {
		t.Fatal(err)
	}
	r.Ready(`"status":"ok"`)
	if lag := r.metric("skein_" + s.Name + "_lag_seconds"); lag != 0 {
		t.Errorf("the lag is %v once the transaction has ended", lag)
	}
}

// metric returns the value of a metric of the process. The argument name includes the labels.
func (r *Running) metric(name string) float64 {
	r.t.Helper()
	_, body := r.get("/metrics")
	for line := range strings.Lines(body) {
		if value, ok := strings.CutPrefix(strings.TrimSpace(line), name+" "); ok {
			v, err := strconv.ParseFloat(value, 64)
			if err != nil {
				r.t.Fatal(err)
			}
			return v
		}
	}
	r.t.Fatalf("there is no metric %s", name)
	return 0
}

// logged counts the lines of the log that have a message.
func (r *Running) logged(message string) int {
	return strings.Count(r.log.String(), `"msg":"`+message+`"`)
}

// freePort returns a port that was free a moment ago.
func freePort(t *testing.T) int {
	t.Helper()
	l, err := (&net.ListenConfig{}).Listen(t.Context(), "tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = l.Close() }() // frees the port
	return l.Addr().(*net.TCPAddr).Port
}
