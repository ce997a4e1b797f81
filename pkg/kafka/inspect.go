package kafka

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"time"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kerr"
)

// TopicReport compares a topic with a specification.
type TopicReport struct {
	Topic string `json:"topic"`
	// Partitions and Replication are 0 if the topic does not exist.
	Partitions  int32 `json:"partitions"`
	Replication int   `json:"replication"`
	// Settings maps the names of the settings that Skein compares to the topic's values.
	Settings    map[string]string `json:"settings"`
	Differences []TopicDifference `json:"differences"`
}

// TopicDifference is a difference between a topic and a specification.
type TopicDifference struct {
	// What is "topic", "partitions", "replication" or the name of a setting.
	What string `json:"what"`
	Is   string `json:"is"`
	Want string `json:"want"`
	// Setting is true if AlterTopics can change it.
	Setting bool `json:"setting"`
}

// CheckTopics compares the topics of a set with a specification, events first. It does not compare a count or retention of 0. For a
// replication of 0, it wants at least the one that EnsureTopics would choose. Stricter settings are no difference.
func CheckTopics(ctx context.Context, cfg Config, spec TopicSpec) ([]TopicReport, error) {
	adm, err := NewAdmin(cfg)
	if err != nil {
		return nil, err
	}
	defer adm.Close()
	return checkTopics(ctx, adm, cfg.Topics(), spec)
}

// AlterTopics changes the settings of existing topics to those of a specification and returns the remaining differences. It changes
// neither partition counts (see ErrPartitionCounts) nor the replication, for which Kafka has tools. It repeats the comparison for
// up to 5 s, because brokers may still return old settings.
func AlterTopics(ctx context.Context, cfg Config, spec TopicSpec) ([]TopicReport, error) {
	adm, err := NewAdmin(cfg)
	if err != nil {
		return nil, err
	}
	defer adm.Close()
	reports, err := checkTopics(ctx, adm, cfg.Topics(), spec)
	if err != nil {
		return nil, err
	}
	for _, r := range reports {
		var alter []kadm.AlterConfig
		for _, d := range r.Differences {
			if d.Setting {
				alter = append(alter, kadm.AlterConfig{Op: kadm.SetConfig, Name: d.What, Value: &d.Want})
			}
		}
		if len(alter) == 0 {
			continue
		}
		done, err := adm.AlterTopicConfigs(ctx, alter, r.Topic)
		if err != nil {
			return nil, fmt.Errorf("altering topic %s: %w", r.Topic, explain(err))
		}
		for _, d := range done {
			if d.Err != nil {
				return nil, fmt.Errorf("altering topic %s: %w (%s)", r.Topic, explain(d.Err), d.ErrMessage)
			}
		}
	}
	wait, cancel := context.WithTimeout(ctx, settingsWait)
	defer cancel()
	repeat(wait, func() bool {
		reports, err = checkTopics(ctx, adm, cfg.Topics(), spec)
		return err != nil || !slices.ContainsFunc(reports, func(r TopicReport) bool {
			return slices.ContainsFunc(r.Differences, func(d TopicDifference) bool { return d.Setting })
		})
	})
	return reports, err
}

func checkTopics(ctx context.Context, adm *kadm.Client, topics Topics, spec TopicSpec) ([]TopicReport, error) {
	there, err := listTopics(ctx, adm, topics)
	if err != nil {
		return nil, fmt.Errorf("checking topics: %w", err)
	}
	replication, err := chooseReplication(ctx, adm)
	if err != nil {
		return nil, fmt.Errorf("checking topics: %w", err)
	}
	var existing []string
	count := spec.Partitions
	for _, t := range topics.All() {
		if d, ok := there[t]; ok {
			existing = append(existing, t)
			count = cmp.Or(count, int32(len(d.Partitions))) // the other topics must have as many partitions as the first one
		}
	}
	settings := make(map[string]map[string]string)
	if len(existing) > 0 {
		if settings, err = TopicSettings(ctx, adm, existing...); err != nil {
			return nil, err
		}
	}
	reports := make([]TopicReport, 0, len(topics.All()))
	for _, t := range topics.All() {
		reports = append(reports, checkTopic(t, there[t], settings[t], count, int(replication), topics, spec))
	}
	return reports, nil
}

// settingsWait is how long brokers may take to learn of new topics and settings. Calls are repeated every settingsTick until then.
const (
	settingsWait = 5 * time.Second
	settingsTick = 50 * time.Millisecond
)

// repeat calls f every settingsTick until it returns true or ctx ends.
func repeat(ctx context.Context, f func() bool) {
	for !f() {
		select {
		case <-ctx.Done():
			return
		case <-time.After(settingsTick):
		}
	}
}

// TopicSettings returns the settings of topics, by topic and key. It waits up to 5 s until the brokers know the topics.
func TopicSettings(ctx context.Context, adm *kadm.Client, topics ...string) (settings map[string]map[string]string, err error) {
	ctx, cancel := context.WithTimeout(ctx, settingsWait)
	defer cancel()
	repeat(ctx, func() bool {
		settings, err = topicSettings(ctx, adm, topics)
		return !errors.Is(err, kerr.UnknownTopicOrPartition)
	})
	return settings, err
}

func topicSettings(ctx context.Context, adm *kadm.Client, topics []string) (map[string]map[string]string, error) {
	configs, err := adm.DescribeTopicConfigs(ctx, topics...)
	if err != nil {
		return nil, fmt.Errorf("reading settings of topics: %w", explain(err))
	}
	settings := make(map[string]map[string]string, len(configs))
	for _, c := range configs {
		if c.Err != nil {
			return nil, fmt.Errorf("reading settings of topic %s: %w", c.Name, c.Err)
		}
		settings[c.Name] = make(map[string]string, len(c.Configs))
		for _, kv := range c.Configs {
			settings[c.Name][kv.Key] = kv.MaybeValue()
		}
	}
	return settings, nil
}

func checkTopic(
	topic string, d kadm.TopicDetail, settings map[string]string, count int32, minReplicas int, topics Topics, spec TopicSpec,
) TopicReport {
	r := TopicReport{
		Topic: topic, Partitions: int32(len(d.Partitions)), Replication: d.Partitions.NumReplicas(),
		Settings: map[string]string{}, Differences: []TopicDifference{},
	}
	if r.Partitions == 0 {
		r.Differences = append(r.Differences, TopicDifference{What: "topic", Is: "missing", Want: "there"})
		return r
	}
	differs := func(what string, is, want int) {
		if is != want {
			r.Differences = append(r.Differences, TopicDifference{What: what, Is: strconv.Itoa(is), Want: strconv.Itoa(want)})
		}
	}
	differs("partitions", int(r.Partitions), int(count))
	if spec.Replication > 0 {
		differs("replication", r.Replication, int(spec.Replication))
	} else if r.Replication < minReplicas {
		differs("replication", r.Replication, minReplicas)
	}
	// The wanted min.insync.replicas depends on the topic's actual number of replicas.
	spec.Replication = int16(r.Replication)
	anyRetention := topic == topics.Events && spec.EventsRetention == 0 || topic == topics.DeadLetters && spec.DeadLettersRetention == 0
	for key, want := range topicConfigs(topics, spec)[topic] {
		if _, known := settings[key]; !known && key == timestampLimit {
			continue
		}
		r.Settings[key] = settings[key]
		if anyRetention && (key == "retention.ms" || key == "retention.bytes") {
			continue
		}
		if is := settings[key]; !suits(key, is, *want) || key == minInsync && exceeds(is, r.Replication) {
			r.Differences = append(r.Differences, TopicDifference{What: key, Is: is, Want: *want, Setting: true})
		}
	}
	slices.SortFunc(r.Differences, func(a, b TopicDifference) int { return cmp.Compare(a.What, b.What) })
	return r
}

// minInsync is the setting for how many in-sync replicas a write needs.
const minInsync = "min.insync.replicas"

// exceeds reports whether min.insync.replicas exceeds the number of replicas, so that nothing can be written.
func exceeds(minInsync string, replicas int) bool {
	n, err := strconv.Atoi(minInsync)
	return err == nil && n > replicas
}

// suits reports whether a setting has the wanted value or a stricter one.
func suits(key, is, want string) bool {
	if is == want {
		return true
	}
	i, err := strconv.ParseInt(is, 10, 64)
	w, werr := strconv.ParseInt(want, 10, 64)
	if err != nil || werr != nil {
		return false
	}
	switch key {
	case "max.message.bytes", minInsync, "delete.retention.ms":
		return i > w
	case "max.compaction.lag.ms", "segment.ms", timestampLimit:
		return i < w
	}
	return false
}
