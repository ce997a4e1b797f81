package kafka_test

import (
	"context"
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/skeinhq/skein/pkg/kafka"
	"github.com/skeinhq/skein/pkg/kafka/kafkatest"
)

func TestEnsureTopics_MakesWhatIsMissingWithItsSettings(t *testing.T) {
	c := kafkatest.StartCluster(t, 3, kafkatest.WithoutTopics(), kafkatest.WithBrokers(3))
	cfg := c.Config
	cfg.TopicPrefix = "acme."
	n, err := kafka.EnsureTopics(t.Context(), cfg,
		kafka.TopicSpec{Partitions: 3, Replication: 3, DeadLettersRetention: -1, EventsRetention: time.Hour})
	if err != nil || n != 3 {
		t.Fatalf("count is %d, %v; want 3", n, err)
	}
	for topic, want := range map[string]map[string]string{
		"acme.skein.events": {"cleanup.policy": "delete", "message.timestamp.after.max.ms": "300000", "retention.ms": "3600000",
			"max.message.bytes": "16842752", "compression.type": "zstd", "min.insync.replicas": "2"},
		"acme.skein.runs": {"cleanup.policy": "compact", "max.compaction.lag.ms": "86400000", "segment.ms": "21600000",
			"max.message.bytes": "16842752"},
		"acme.skein.snapshots": {"cleanup.policy": "compact", "max.compaction.lag.ms": "86400000", "segment.ms": "21600000",
			"delete.retention.ms": "604800000"},
		"acme.skein.dead-letters": {"cleanup.policy": "delete", "retention.ms": "-1"},
	} {
		info := c.Fake.TopicInfo(topic)
		if info == nil {
			t.Fatalf("%s does not exist", topic)
		}
		for name, value := range want {
			if got := info.Configs[name]; got == nil || *got != value {
				t.Errorf("%s: %s is %v, want %s", topic, name, got, value)
			}
		}
	}
}

// Brokers before 3.6 do not know the limit on times.
func TestEnsureTopics_MakesTopicsOnBrokersWithoutALimitOnTimes(t *testing.T) {
	c := kafkatest.StartCluster(t, 0, kafkatest.WithoutTopics())
	c.Fake.ControlKey(int16(kmsg.CreateTopics), func(req kmsg.Request) (kmsg.Response, error, bool) {
		c.Fake.KeepControl()
		resp := req.ResponseKind().(*kmsg.CreateTopicsResponse)
		for _, topic := range req.(*kmsg.CreateTopicsRequest).Topics {
			for _, config := range topic.Configs {
				if config.Name == "message.timestamp.after.max.ms" {
					r := kmsg.NewCreateTopicsResponseTopic()
					r.Topic, r.ErrorCode = topic.Topic, kerr.InvalidConfig.Code
					resp.Topics = append(resp.Topics, r)
				}
			}
		}
		return resp, nil, len(resp.Topics) > 0
	})
	if n, err := kafka.EnsureTopics(t.Context(), c.Config, kafka.TopicSpec{Partitions: 2}); err != nil || n != 2 {
		t.Errorf("count is %d, %v; want 2", n, err)
	}
}

// What a producer says of a record's time is believed by five minutes at most.
func TestEnsureTopics_HasBrokersRefuseRecordsFromTheFuture(t *testing.T) {
	cluster := kafkatest.Real(t, 1)
	cluster.MakeTopics(1)
	p, err := kafka.NewProducer(cluster.Config)
	if err != nil {
		t.Fatal(err)
	}
	defer p.Close()
	send := func(ahead time.Duration) error {
		return p.ProduceSync(t.Context(), &kgo.Record{Topic: cluster.Config.Topics().Events, Key: []byte("k"), Value: []byte("v"),
			Timestamp: time.Now().Add(ahead)}).FirstErr()
	}
	if err := send(time.Minute); err != nil {
		t.Errorf("a minute ahead: %v", err)
	}
	if err := send(time.Hour); !errors.Is(err, kerr.InvalidTimestamp) {
		t.Errorf("an hour ahead: %v, want %v", err, kerr.InvalidTimestamp)
	}
}

func TestEnsureTopics_ChoosesReplicas(t *testing.T) {
	for name, c := range map[string]struct {
		brokers     int
		replication int16
		replicas    int
		inSync      string
	}{
		"one broker":            {1, 0, 1, "1"},
		"two brokers":           {2, 0, 2, "1"},
		"three brokers":         {3, 0, 3, "2"},
		"more brokers":          {5, 0, 3, "2"},
		"more brokers, asked":   {5, 4, 4, "3"},
		"three brokers, for 1":  {3, 1, 1, "1"},
		"three brokers, for 2":  {3, 2, 2, "1"},
		"three brokers, as for": {3, 3, 3, "2"},
	} {
		t.Run(name, func(t *testing.T) {
			k := kafkatest.StartCluster(t, 0, kafkatest.WithoutTopics(), kafkatest.WithBrokers(c.brokers))
			if _, err := kafka.EnsureTopics(t.Context(), k.Config, kafka.TopicSpec{Partitions: 2, Replication: c.replication}); err != nil {
				t.Fatal(err)
			}
			reports, err := kafka.CheckTopics(t.Context(), k.Config, kafka.TopicSpec{Replication: c.replication})
			wantDifferences(t, reports, err)
			for _, r := range reports {
				if r.Replication != c.replicas || r.Settings["min.insync.replicas"] != c.inSync {
					t.Errorf("%s has %d replicas, %s in sync; want %d and %s", r.Topic, r.Replication, r.Settings["min.insync.replicas"], c.replicas,
						c.inSync)
				}
			}
		})
	}
}

func TestEnsureTopics_LeavesWhatIsThere(t *testing.T) {
	c := kafkatest.StartCluster(t, 3)
	if err := c.Fake.DeleteTopic("skein.snapshots"); err != nil {
		t.Fatal(err)
	}
	// Another count is asked for than the set has: the set's counts, so the missing one gets it too.
	n, err := kafka.EnsureTopics(t.Context(), c.Config, kafka.TopicSpec{Partitions: 12})
	if err != nil || n != 3 {
		t.Errorf("count is %d, %v; want the 3 that the other topics have", n, err)
	}
}

func TestEnsureTopics_RefusesCountsThatDiffer(t *testing.T) {
	c := kafkatest.StartCluster(t, 3)
	if err := c.Fake.DeleteTopic("skein.runs"); err != nil {
		t.Fatal(err)
	}
	if err := c.Fake.CreateTopic("skein.runs", 4, nil); err != nil {
		t.Fatal(err)
	}
	if _, err := kafka.EnsureTopics(t.Context(), c.Config, kafka.TopicSpec{Partitions: 3}); !errors.Is(err, kafka.ErrPartitionCounts) ||
		!strings.Contains(err.Error(), "skein.events has 3, skein.runs has 4") {
		t.Errorf("error is %v, want ErrPartitionCounts with the counts", err)
	}
	_, err := kafka.PartitionCount(t.Context(), kafkatest.Admin(t, c.Config), c.Config.Topics())
	if !errors.Is(err, kafka.ErrPartitionCounts) {
		t.Errorf("error is %v, want ErrPartitionCounts", err)
	}
}

func TestEnsureTopics_RefusesNoPartitions(t *testing.T) {
	cfg := kafkatest.Start(t, 0, kafkatest.WithoutTopics())
	if _, err := kafka.EnsureTopics(t.Context(), cfg, kafka.TopicSpec{}); err == nil {
		t.Error("topics without partitions were made")
	}
}

func TestEnsureTopics_TwoAtATime(t *testing.T) {
	cfg := kafkatest.Start(t, 0, kafkatest.WithoutTopics())
	errs := make(chan error, 4)
	for range cap(errs) {
		go func() {
			_, err := kafka.EnsureTopics(context.Background(), cfg, kafka.TopicSpec{Partitions: 2})
			errs <- err
		}()
	}
	for range cap(errs) {
		if err := <-errs; err != nil {
			t.Error(err)
		}
	}
}

func TestPartitionCount_NamesEveryMissingTopic(t *testing.T) {
	cfg := kafkatest.Start(t, 0, kafkatest.WithoutTopics())
	_, err := kafka.PartitionCount(t.Context(), kafkatest.Admin(t, cfg), cfg.Topics())
	if all := strings.Join(cfg.Topics().All(), ", "); !errors.Is(err, kafka.ErrNoTopic) || !strings.HasSuffix(err.Error(), ": "+all) {
		t.Errorf("error is %v, want ErrNoTopic and %s", err, all)
	}
}

func TestConfig_ValidateNamesWhatIsWrong(t *testing.T) {
	for name, cfg := range map[string]kafka.Config{
		"no brokers":       {},
		"a password":       {Brokers: []string{"user:secret@127.0.0.1:1"}},
		"a slash in names": {Brokers: []string{"127.0.0.1:1"}, TopicPrefix: "a/"},
	} {
		t.Run(name, func(t *testing.T) {
			if cfg.Validate() == nil {
				t.Error("it is accepted")
			}
			if _, err := kafka.NewProducer(cfg); err == nil {
				t.Error("a client is made of it")
			}
		})
	}
}
