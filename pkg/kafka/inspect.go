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

// TopicReport is how one topic of a set stands against a specification.
type TopicReport struct {
	Topic string `json:"topic"`
	// Partitions and Replication are 0 where the topic does not exist.
	Partitions  int32 `json:"partitions"`
	Replication int   `json:"replication"`
	// Settings are those of the topic's that Skein has a say in, by Kafka's names.
	Settings map[string]string `json:"settings"`
	// Differences are empty where all is as it should be.
	Differences []TopicDifference `json:"differences"`
}

// TopicDifference is one thing about a topic that is not as it should be.
type TopicDifference struct {
	// What is "topic", "partitions", "replication" or the name of a setting.
	What string `json:"what"`
	Is   string `json:"is"`
	Want string `json:"want"`
	// Setting is true where AlterTopics can mend it.
	Setting bool `json:"setting"`
}

// CheckTopics compares the topics of a set with a specification, events first. Of the specification,
// what is 0 is not compared: any count, any retention; a replication of 0 is what EnsureTopics would
// choose, or more. Settings that are stricter than Skein's are no difference.
func CheckTopics(ctx context.Context, cfg Config, spec TopicSpec) ([]TopicReport, error) {
	adm, err := NewAdmin(cfg)
	if err != nil {
		return nil, err
	}
	defer adm.Close()
	return checkTopics(ctx, adm, cfg.Topics(), spec)
}

// AlterTopics gives the topics of a set the settings of a specification and reports what then still
// differs. It makes no topic and changes neither partition counts nor replication: a partition count
// belongs to the set (see ErrPartitionCounts), and replicas are moved with Kafka's own tools. A setting that a
// broker tells as before is asked for again for 5 s.
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
	// The controller has the new settings; the broker that answers may hear of them a moment later.
	for deadline := time.Now().Add(settingsWait); ; {
		reports, err := checkTopics(ctx, adm, cfg.Topics(), spec)
		differs := slices.ContainsFunc(reports, func(r TopicReport) bool {
			return slices.ContainsFunc(r.Differences, func(d TopicDifference) bool { return d.Setting })
		})
		if err != nil || !differs || time.Now().After(deadline) {
			return reports, err
		}
		select {
		case <-ctx.Done():
			return reports, nil
		case <-time.After(settingsTick):
		}
	}
}

func checkTopics(ctx context.Context, adm *kadm.Client, topics Topics, spec TopicSpec) ([]TopicReport, error) {
	details, err := adm.ListTopics(ctx, topics.All()...)
	if err != nil {
		return nil, fmt.Errorf("checking topics: %w", explain(err))
	}
	least, err := chooseReplication(ctx, adm)
	if err != nil {
		return nil, fmt.Errorf("checking topics: %w", err)
	}
	var there []string
	count := spec.Partitions
	for _, t := range topics.All() {
		d := details[t]
		if d.Err != nil && !errors.Is(d.Err, kerr.UnknownTopicOrPartition) {
			return nil, fmt.Errorf("checking topic %s: %w", t, explain(d.Err))
		}
		if n := int32(len(d.Partitions)); n > 0 {
			there = append(there, t)
			// The first one that there is says what the others must have: events, as a rule.
			if count == 0 {
				count = n
			}
		}
	}
	settings := make(map[string]map[string]string)
	if len(there) > 0 {
		if settings, err = TopicSettings(ctx, adm, there...); err != nil {
			return nil, err
		}
	}
	reports := make([]TopicReport, 0, len(topics.All()))
	for _, t := range topics.All() {
		reports = append(reports, checkTopic(t, details[t], settings[t], count, int(least), topics, spec))
	}
	return reports, nil
}

// A broker may take settingsWait to hear of a topic or a setting that another one has told of; it is asked
// again every settingsTick.
const (
	settingsWait = 5 * time.Second
	settingsTick = 50 * time.Millisecond
)

// TopicSettings returns the settings of topics, by topic and key. Any broker may answer, also one that
// has not heard of a new topic yet: it is asked again for 5 s. After that a topic that is missing is an error.
func TopicSettings(ctx context.Context, adm *kadm.Client, topics ...string) (map[string]map[string]string, error) {
	ctx, cancel := context.WithTimeout(ctx, settingsWait)
	defer cancel()
	tick := time.NewTicker(settingsTick)
	defer tick.Stop()
	for {
		settings, err := topicSettings(ctx, adm, topics)
		if !errors.Is(err, kerr.UnknownTopicOrPartition) {
			return settings, err
		}
		select {
		case <-ctx.Done():
			return nil, err
		case <-tick.C:
		}
	}
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

func checkTopic(topic string, d kadm.TopicDetail, settings map[string]string, count int32, leastReplicas int, topics Topics, spec TopicSpec) TopicReport {
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
	} else if r.Replication < leastReplicas {
		differs("replication", r.Replication, leastReplicas)
	}
	// Of replicas that are not there none can be in sync, so the other settings are held to those that are.
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

// minInsync is how many replicas must have a record before it is acknowledged.
const minInsync = "min.insync.replicas"

// exceeds reports whether more replicas have to be in sync than there are: nothing can be written then.
func exceeds(minInsync string, replicas int) bool {
	n, err := strconv.Atoi(minInsync)
	return err == nil && n > replicas
}

// suits reports whether a setting is as it should be, or stricter.
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
