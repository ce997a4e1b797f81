package e2e_test

import (
	"bufio"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/skeinhq/skein/internal/clickhousetest"
	"github.com/skeinhq/skein/pkg/kafka"
	"github.com/skeinhq/skein/pkg/kafka/kafkatest"
	"github.com/skeinhq/skein/test/process"
)

// ends are what the pipeline runs between: a broker and a store.
type ends struct {
	kafka       kafka.Config
	replication int
	// store are the flags of indexer and query that name the store.
	store []string
	// ingest are flags of ingest, compactor those of the compactor.
	ingest, compactor []string
	// killLeader, where the broker may be lost, kills the node that leads a partition of skein.events.
	killLeader func(partition int32)
	// versions say what the ends are.
	versions string
}

// embeddedEnds are those of "skein dev", the broker as a process of its own.
func embeddedEnds(t *testing.T) ends {
	return ends{
		replication: 1,
		kafka:       kafka.Config{Brokers: []string{embeddedBroker(t)}, ClientID: "test"},
		store:       []string{"--sqlite", filepath.Join(t.TempDir(), "lineage.sqlite")},
		versions:    "kfake and SQLite",
	}
}

// realEnds are those of production.
func realEnds(t *testing.T) ends {
	// A dead node keeps its partitions for longer than ingest waits: callers are refused, and come again.
	cluster := kafkatest.Real(t, 3, kafkatest.WithSettings(map[string]string{"broker.session.timeout.ms": "6000"}))
	server := clickhousetest.Start(t)
	return ends{
		kafka:       cluster.Config,
		replication: 3,
		store:       storeFlags(t, server),
		ingest:      []string{"--ack-timeout", "3s"},
		killLeader:  func(partition int32) { cluster.Kill(leader(t, cluster.Config, partition)) },
		versions:    cluster.Version + "; " + server.Part,
	}
}

// leader is the node that leads a partition of skein.events.
func leader(t *testing.T, cfg kafka.Config, partition int32) int {
	t.Helper()
	adm, err := kafka.NewAdmin(cfg)
	if err != nil {
		t.Fatal(err)
	}
	defer adm.Close()
	events := cfg.Topics().Events
	topics, err := adm.ListTopics(t.Context(), events)
	if err != nil {
		t.Fatal(err)
	}
	p, ok := topics[events].Partitions[partition]
	if !ok || p.Err != nil {
		t.Fatalf("partition %d of %s: %+v", partition, events, p)
	}
	return int(p.Leader)
}

// storeFlags are the flags that name a ClickHouse.
func storeFlags(t *testing.T, server clickhousetest.Server) []string {
	t.Helper()
	flags := []string{"--clickhouse", server.Addr, "--clickhouse-database", server.Database, "--clickhouse-user", server.Username}
	if server.Password == "" { // an empty file is refused
		return flags
	}
	password := filepath.Join(t.TempDir(), "password")
	if err := os.WriteFile(password, []byte(server.Password+"\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	return append(flags, "--clickhouse-password-file", password)
}

// embeddedBroker starts the broker and returns its address.
func embeddedBroker(t *testing.T) string {
	t.Helper()
	if err := process.Build(scratch, nil, "./broker"); err != nil {
		t.Fatal(err)
	}
	cmd := exec.Command(filepath.Join(scratch, "broker"), t.TempDir())
	cmd.Stderr = os.Stderr
	in, err := cmd.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	line, err := bufio.NewReader(out).ReadString('\n')
	t.Cleanup(func() {
		cut := time.AfterFunc(process.Patience, func() { _ = cmd.Process.Kill() })
		defer cut.Stop()
		if err := in.Close(); err != nil {
			t.Error(err)
		}
		if err := cmd.Wait(); err != nil {
			t.Errorf("the embedded broker: %v", err)
		}
	})
	if err != nil {
		t.Fatalf("starting the embedded broker: %v", err)
	}
	return strings.TrimSpace(line)
}
