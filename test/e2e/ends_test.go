package e2e_test

import (
	"testing"

	"github.com/skeinhq/skein/internal/clickhousetest"
	"github.com/skeinhq/skein/pkg/kafka"
	"github.com/skeinhq/skein/pkg/kafka/kafkatest"
)

// ends are what the pipeline runs between: a broker and a store.
type ends struct {
	kafka       kafka.Config
	replication int
	// store are the flags of indexer and query that name the store.
	store []string
	// ingest are flags of ingest, compactor those of the compactor.
	ingest, compactor []string
	// environ are more variables of the stages.
	environ []string
	// production keeps the intervals of production.
	production bool
	// killLeader kills the node that leads a partition of skein.events.
	killLeader func(partition int32)
	// versions say what the ends are.
	versions string
}

// realEnds are those of production.
func realEnds(t *testing.T) ends {
	// A dead node keeps its partitions for longer than ingest waits: callers are refused, and come again.
	cluster := kafkatest.Real(t, 3, kafkatest.WithSettings(map[string]string{"broker.session.timeout.ms": "6000"}))
	server := clickhousetest.Start(t)
	return ends{
		kafka:       cluster.Config,
		replication: 3,
		store:       server.Flags(t),
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
