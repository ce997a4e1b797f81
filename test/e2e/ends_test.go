package e2e_test

import (
	"context"
	"maps"
	"sync"
	"testing"

	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/skeinhq/skein/internal/clickhousetest"
	"github.com/skeinhq/skein/pkg/kafka"
	"github.com/skeinhq/skein/pkg/kafka/kafkatest"
	"github.com/skeinhq/skein/pkg/kafka/kafkatest/apache"
)

// ends are what the pipeline runs between: a broker and a store.
type ends struct {
	kafka       kafka.Config
	replication int
	// store are the flags of indexer and query that name the store.
	store []string
	// ingest are flags of ingest, compactor those of the compactor.
	ingest, compactor []string
	// racks are those of the stages.
	racks map[string]string
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
		// Each reads from a node of its own, mostly a follower: whichever node is killed, one of them has to read elsewhere.
		racks:      map[string]string{"compactor": apache.Rack(1), "indexer": apache.Rack(2), "query": apache.Rack(3)},
		killLeader: func(partition int32) { cluster.Kill(leader(t, cluster.Config, partition)) },
		versions:   cluster.Version + "; " + server.Part,
	}
}

// readsNearby shows that a reader with a rack gets its records from the replica there, whichever node leads.
func readsNearby(t *testing.T, cfg kafka.Config) {
	t.Helper()
	cfg.TopicPrefix += "near."
	if _, err := kafka.EnsureTopics(t.Context(), cfg, kafka.TopicSpec{Partitions: 3}); err != nil {
		t.Fatal(err)
	}
	topic := cfg.Topics().Events
	leaders, from := map[int]bool{}, map[int32]int64{}
	for p := range int32(3) {
		kafkatest.Produce(t, cfg, &kgo.Record{Topic: topic, Partition: p, Value: []byte("v")})
		leaders[leader(t, cfg, p)], from[p] = true, kafka.Earliest
	}
	if len(leaders) != 3 {
		t.Fatalf("only %v lead", leaders)
	}
	var seen batches
	cfg.Rack, cfg.Options = apache.Rack(2), func() []kgo.Opt { return []kgo.Opt{kgo.WithHooks(&seen)} }
	reader, err := kafka.NewDirectReader(cfg, topic, from)
	if err != nil {
		t.Fatal(err)
	}
	defer reader.Close()
	ctx, cancel := context.WithTimeout(t.Context(), kafkatest.Timeout)
	defer cancel()
	for read := 0; read < 3; {
		fetches := reader.PollFetches(ctx)
		if err := fetches.Err(); err != nil {
			t.Fatal(err)
		}
		read += fetches.NumRecords()
	}
	seen.Lock()
	defer seen.Unlock()
	if want := map[string]int{apache.Rack(2): 3}; !maps.Equal(seen.of, want) {
		t.Errorf("batches came from %v, want %v", seen.of, want)
	}
}

// batches counts batches that came from each rack.
type batches struct {
	sync.Mutex
	of map[string]int
}

func (b *batches) OnFetchBatchRead(from kgo.BrokerMetadata, _ string, _ int32, _ kgo.FetchBatchMetrics) {
	b.Lock()
	defer b.Unlock()
	if b.of == nil {
		b.of = map[string]int{}
	}
	if from.Rack != nil {
		b.of[*from.Rack]++
	}
}

// leader is the node that leads a partition of skein.events.
func leader(t *testing.T, cfg kafka.Config, partition int32) int {
	t.Helper()
	adm := kafkatest.Admin(t, cfg)
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
