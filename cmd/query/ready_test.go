package main

import (
	"net"
	"path/filepath"
	"testing"

	"github.com/skeinhq/skein/internal/app/apptest"
	"github.com/skeinhq/skein/internal/clickhousetest"
	"github.com/skeinhq/skein/pkg/kafka/kafkatest"
	"github.com/skeinhq/skein/test/site"
)

// Query needs the store. Of Kafka's it needs open runs and raw events only, and answers the rest without:
// it says so, and stays ready.
func TestQuery_ReadinessFollowsTheStore(t *testing.T) {
	path := filepath.Join(t.TempDir(), "lineage.sqlite")
	r := apptest.Start(t, stage(), "--brokers", "127.0.0.1:1", "--listen", "127.0.0.1:0", "--tenant", "t", "--sqlite", path)
	r.NotReady(`"store":"asking store: the schema is not there yet`)
	apptest.Migrated(t, path)
	r.Ready(`"status":"degraded"`, `"store":"ok"`, `"kafka":"asking brokers from 127.0.0.1:1`, `"topics":"asking 127.0.0.1:1`)
}

// Orchestrators wait seconds for readiness, and the Kafka client, for the first answer of a broker, longer.
func TestQuery_IsReadyWhileABrokerNeverAnswers(t *testing.T) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = l.Close() }) // only listened
	path := apptest.Migrated(t, filepath.Join(t.TempDir(), "lineage.sqlite"))
	r := apptest.Start(t, stage(), "--brokers", l.Addr().String(), "--listen", "127.0.0.1:0", "--tenant", "t", "--sqlite", path)
	r.Ready(`"status":"degraded"`, `"store":"ok"`, `"kafka":"no answer within 900ms"`, `"topics":"no answer within 900ms"`)
}

func TestQuery_SaysWhatIsWrongWithKafka(t *testing.T) {
	path := apptest.Migrated(t, filepath.Join(t.TempDir(), "lineage.sqlite"))
	c := kafkatest.StartCluster(t, 2)
	r := apptest.Start(t, stage(), "--brokers", c.Config.Brokers[0], "--listen", "127.0.0.1:0", "--tenant", "t", "--sqlite", path)
	r.Ready(`"status":"ok"`, `"kafka":"ok"`, `"topics":"ok"`)
	events := c.Config.Topics().Events
	if err := c.Fake.DeleteTopic(events); err != nil {
		t.Fatal(err)
	}
	r.Ready(`"status":"degraded"`, `"kafka":"ok"`, "there is no topic of that name: skein.events")
	if err := c.Fake.CreateTopic(events, 2, nil); err != nil {
		t.Fatal(err)
	}
	r.Ready(`"status":"ok"`)
}

func TestQuery_IsNotReadyWhileTheStoreDoesNotAnswer(t *testing.T) {
	r := apptest.Start(t, stage(), "--brokers", "127.0.0.1:1", "--listen", "127.0.0.1:0", "--tenant", "t", "--clickhouse",
		"http://127.0.0.1:1")
	r.NotReady(`"store":"asking ClickHouse`)
}

func TestQuery_IsReadyOnceClickHouseHasItsSchema(t *testing.T) {
	server := clickhousetest.StartGuarded(t)
	args := []string{"--brokers", "127.0.0.1:1", "--listen", "127.0.0.1:0", "--tenant", "t"}
	r := apptest.Start(t, stage(), append(args, server.Flags(t)...)...)
	r.NotReady("the ClickHouse schema does not fit this binary: where it is older, run `skein migrate`")
	site.ClickHouse(t, server.Server)
	r.Ready()
}
