package kafka_test

import (
	"context"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/skeinhq/skein/pkg/kafka"
	"github.com/skeinhq/skein/pkg/kafka/kafkatest"
)

// differences returns what differs, as topic: what is, want.
func differences(reports []kafka.TopicReport) []string {
	var out []string
	for _, r := range reports {
		for _, d := range r.Differences {
			out = append(out, r.Topic+": "+d.What+" "+d.Is+", want "+d.Want)
		}
	}
	return out
}

func wantDifferences(t *testing.T, reports []kafka.TopicReport, err error, want ...string) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
	got := differences(reports)
	if len(got) != len(want) {
		t.Fatalf("differences are %q, want %q", got, want)
	}
	for i := range got {
		if got[i] != want[i] {
			t.Errorf("difference %d is %q, want %q", i, got[i], want[i])
		}
	}
}

func TestCheckTopics_SaysWhatIsMissingAndWhatDiffers(t *testing.T) {
	c := kafkatest.StartCluster(t, 0, kafkatest.WithoutTopics())
	all := c.Config.Topics()
	reports, err := kafka.CheckTopics(t.Context(), c.Config, kafka.TopicSpec{})
	wantDifferences(t, reports, err, all.Events+": topic missing, want there", all.Runs+": topic missing, want there",
		all.Snapshots+": topic missing, want there", all.DeadLetters+": topic missing, want there")

	if _, err := kafka.EnsureTopics(t.Context(), c.Config, kafka.TopicSpec{Partitions: 2}); err != nil {
		t.Fatal(err)
	}
	adm := kafkatest.Admin(t, c.Config)
	set(t, adm, all.Runs, "cleanup.policy", "delete")
	// Stricter than needed, and so as good.
	set(t, adm, all.Runs, "max.compaction.lag.ms", "3600000")
	set(t, adm, all.Events, "max.message.bytes", "99999999")
	if _, err := adm.CreatePartitions(t.Context(), 1, all.DeadLetters); err != nil {
		t.Fatal(err)
	}
	reports, err = kafka.CheckTopics(t.Context(), c.Config, kafka.TopicSpec{})
	wantDifferences(t, reports, err, all.Runs+": cleanup.policy delete, want compact", all.DeadLetters+": partitions 3, want 2")
}

func TestCheckTopics_SaysWhereABrokerCannotBeLost(t *testing.T) {
	c := kafkatest.StartCluster(t, 0, kafkatest.WithoutTopics(), kafkatest.WithBrokers(3))
	if _, err := kafka.EnsureTopics(t.Context(), c.Config, kafka.TopicSpec{Partitions: 2, Replication: 1}); err != nil {
		t.Fatal(err)
	}
	all := c.Config.Topics()
	adm := kafkatest.Admin(t, c.Config)
	set(t, adm, all.Snapshots, "min.insync.replicas", "2")
	set(t, adm, all.Runs, "max.message.bytes", "1048588")
	reports, err := kafka.CheckTopics(t.Context(), c.Config, kafka.TopicSpec{})
	wantDifferences(t, reports, err, all.Events+": replication 1, want 3",
		all.Runs+": max.message.bytes 1048588, want 16842752", all.Runs+": replication 1, want 3",
		// With more in sync than there are, nothing could be written.
		all.Snapshots+": min.insync.replicas 2, want 1", all.Snapshots+": replication 1, want 3",
		all.DeadLetters+": replication 1, want 3")
}

func TestAlterTopics_MendsSettingsAndLeavesTheRest(t *testing.T) {
	cfg := kafkatest.Start(t, 2)
	all := cfg.Topics()
	adm := kafkatest.Admin(t, cfg)
	set(t, adm, all.Runs, "cleanup.policy", "delete")
	reports, err := kafka.AlterTopics(t.Context(), cfg, kafka.TopicSpec{Partitions: 5, EventsRetention: 24 * time.Hour})
	wantDifferences(t, reports, err, all.Events+": partitions 2, want 5", all.Runs+": partitions 2, want 5",
		all.Snapshots+": partitions 2, want 5", all.DeadLetters+": partitions 2, want 5")
	reports, err = kafka.CheckTopics(t.Context(), cfg, kafka.TopicSpec{EventsRetention: 48 * time.Hour, DeadLettersRetention: -1})
	wantDifferences(t, reports, err, all.Events+": retention.ms 86400000, want 172800000",
		all.DeadLetters+": retention.ms 2592000000, want -1")
}

// What the controller has accepted, a broker may hear of a moment later.
func TestAlterTopics_WaitsForABrokerThatTellsTheOldSettings(t *testing.T) {
	c := kafkatest.StartCluster(t, 2)
	adm := kafkatest.Admin(t, c.Config)
	accepted := false
	c.Fake.ControlKey(int16(kmsg.IncrementalAlterConfigs), func(r kmsg.Request) (kmsg.Response, error, bool) {
		if accepted {
			return nil, nil, false
		}
		accepted = true
		c.Fake.KeepControl()
		answer := kmsg.NewPtrIncrementalAlterConfigsResponse()
		answer.Version = r.GetVersion()
		for _, resource := range r.(*kmsg.IncrementalAlterConfigsRequest).Resources {
			done := kmsg.NewIncrementalAlterConfigsResponseResource()
			done.ResourceType, done.ResourceName = resource.ResourceType, resource.ResourceName
			answer.Resources = append(answer.Resources, done)
		}
		return answer, nil, true
	})
	asked := 0
	c.Fake.ControlKey(int16(kmsg.DescribeConfigs), func(kmsg.Request) (kmsg.Response, error, bool) {
		c.Fake.KeepControl()
		// The first look is before anything is altered.
		if asked++; asked == 3 {
			go func() {
				day := "86400000"
				if _, err := adm.AlterTopicConfigs(context.Background(), []kadm.AlterConfig{{Op: kadm.SetConfig, Name: "retention.ms", Value: &day}},
					c.Config.Topics().Events); err != nil {
					t.Error(err)
				}
			}()
		}
		return nil, nil, false
	})
	reports, err := kafka.AlterTopics(t.Context(), c.Config, kafka.TopicSpec{EventsRetention: 24 * time.Hour})
	wantDifferences(t, reports, err)
}

func set(t *testing.T, adm *kadm.Client, topic, key, value string) {
	t.Helper()
	done, err := adm.AlterTopicConfigs(context.Background(), []kadm.AlterConfig{{Op: kadm.SetConfig, Name: key, Value: &value}}, topic)
	if err != nil {
		t.Fatal(err)
	}
	for _, d := range done {
		if d.Err != nil {
			t.Fatalf("setting %s of %s: %v", key, topic, d.Err)
		}
	}
}
