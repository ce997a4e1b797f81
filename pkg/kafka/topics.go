package kafka

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"strconv"
	"strings"
	"time"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kerr"
)

// TopicSpec is the specification of a topic set.
type TopicSpec struct {
	// Partitions is the partition count of a new set. New topics of an existing set get the count of the set.
	Partitions int32
	// Replication is the number of replicas; 0 means 3, or the number of brokers if that is smaller. min.insync.replicas is one less,
	// so that after the loss of a broker, all acknowledged records exist and writes continue.
	Replication int16
	// EventsRetention and DeadLettersRetention are how long raw events and dead letters are kept; 0 means 30 days, negative forever.
	EventsRetention, DeadLettersRetention time.Duration
}

const (
	defaultRetention   = 30 * 24 * time.Hour
	defaultReplication = 3
)

// NewAdmin returns an admin client.
func NewAdmin(cfg Config) (*kadm.Client, error) {
	cl, err := cfg.newClient("admin", false)
	if err != nil {
		return nil, err
	}
	return kadm.NewClient(cl), nil
}

// TopicSet is the state of a topic set on the brokers.
type TopicSet struct {
	// Partitions is the partition count of each topic.
	Partitions int32
	// IDs are the topics' ids, events first. A topic that was deleted and created again has another id.
	IDs [4]kadm.TopicID
}

// Compare returns nil if the set equals the argument was, an earlier set, else ErrPartitionCounts or ErrOtherTopics.
func (s TopicSet) Compare(was TopicSet) error {
	switch {
	case s.Partitions != was.Partitions:
		return fmt.Errorf("%w: there were %d when this process started, now there are %d", ErrPartitionCounts, was.Partitions, s.Partitions)
	case s.IDs != was.IDs:
		return ErrOtherTopics
	}
	return nil
}

// ReadTopicSet reads the topic set. The error is ErrNoTopic with the names of all missing topics, ErrPartitionCounts, or the error
// of the request.
func ReadTopicSet(ctx context.Context, adm *kadm.Client, topics Topics) (TopicSet, error) {
	details, err := listTopics(ctx, adm, topics)
	if err != nil {
		return TopicSet{}, err
	}
	var set TopicSet
	var missing []string
	for i, t := range topics.All() {
		if d, ok := details[t]; ok {
			set.IDs[i] = d.ID
		} else {
			missing = append(missing, t)
		}
	}
	if len(missing) > 0 {
		return TopicSet{}, fmt.Errorf("reading partition counts: %w: %s", ErrNoTopic, strings.Join(missing, ", "))
	}
	set.Partitions, err = sameCount(details, topics)
	return set, err
}

// PartitionCount returns the partition count of the topic set. The error is that of ReadTopicSet.
func PartitionCount(ctx context.Context, adm *kadm.Client, topics Topics) (int32, error) {
	set, err := ReadTopicSet(ctx, adm, topics)
	return set.Partitions, err
}

// listTopics returns the existing topics of the set.
func listTopics(ctx context.Context, adm *kadm.Client, topics Topics) (kadm.TopicDetails, error) {
	details, err := adm.ListTopics(ctx, topics.All()...)
	if err != nil {
		return nil, fmt.Errorf("reading partition counts: %w", explain(err))
	}
	there := make(kadm.TopicDetails, 4)
	for _, t := range topics.All() {
		d := details[t]
		switch {
		case errors.Is(d.Err, kerr.UnknownTopicOrPartition) || d.Err == nil && len(d.Partitions) == 0:
		case d.Err != nil:
			return nil, fmt.Errorf("reading partition counts: %s: %w", t, explain(d.Err))
		default:
			there[t] = d
		}
	}
	return there, nil
}

func sameCount(there kadm.TopicDetails, topics Topics) (int32, error) {
	var n int32
	var first string
	for _, t := range topics.All() {
		d, ok := there[t]
		c := int32(len(d.Partitions))
		switch {
		case !ok:
		case first == "":
			n, first = c, t
		case c != n:
			return 0, fmt.Errorf("reading partition counts: %w: %s has %d, %s has %d: "+
				"the topics of a set must have the same, copy into a new set to change it",
				ErrPartitionCounts, first, n, t, c)
		}
	}
	return n, nil
}

// EnsureTopics creates the missing topics and returns the set's partition count. It does not change existing topics; if their
// counts differ, the error is ErrPartitionCounts. Stages do not call it, because with a misspelt prefix they would create a second,
// empty set.
func EnsureTopics(ctx context.Context, cfg Config, spec TopicSpec) (int32, error) {
	adm, err := NewAdmin(cfg)
	if err != nil {
		return 0, err
	}
	defer adm.Close()
	topics := cfg.Topics()
	there, err := listTopics(ctx, adm, topics)
	if err != nil {
		return 0, err
	}
	n, err := sameCount(there, topics)
	if err != nil {
		return 0, err
	}
	if n == 0 {
		n = spec.Partitions
	}
	if n < 1 {
		return 0, fmt.Errorf("making topics: %d is not a partition count", n)
	}
	if spec.Replication == 0 {
		if spec.Replication, err = chooseReplication(ctx, adm); err != nil {
			return 0, err
		}
	}
	for _, t := range topics.All() {
		if _, ok := there[t]; ok {
			continue
		}
		settings := topicConfigs(topics, spec)[t]
		create := func() (kadm.CreateTopicResponse, error) {
			r, err := adm.CreateTopic(ctx, n, spec.Replication, settings, t)
			if r.Err != nil {
				err = r.Err
			}
			return r, err
		}
		r, err := create()
		if errors.Is(err, kerr.InvalidConfig) { // brokers before 3.6 do not have this setting
			delete(settings, timestampLimit)
			r, err = create()
		}
		// Another process may create the topic at the same time.
		if err != nil && !errors.Is(err, kerr.TopicAlreadyExists) {
			if r.ErrMessage != "" {
				err = fmt.Errorf("%w (%s)", err, r.ErrMessage)
			}
			return 0, fmt.Errorf("making topic %s: %w", t, explain(err))
		}
	}
	return awaitTopics(ctx, adm, topics)
}

// chooseReplication returns the replication for TopicSpec.Replication = 0.
func chooseReplication(ctx context.Context, adm *kadm.Client) (int16, error) {
	brokers, err := adm.ListBrokers(ctx)
	if err != nil {
		return 0, fmt.Errorf("counting brokers: %w", err)
	}
	return int16(min(defaultReplication, len(brokers))), nil
}

// awaitTopics waits until the brokers' metadata has the new topics.
func awaitTopics(ctx context.Context, adm *kadm.Client, topics Topics) (n int32, err error) {
	repeat(ctx, func() bool {
		n, err = PartitionCount(ctx, adm, topics)
		return !errors.Is(err, ErrNoTopic)
	})
	if errors.Is(err, ErrNoTopic) {
		return 0, fmt.Errorf("waiting for topics: %w", errors.Join(ctx.Err(), err))
	}
	return n, err
}

// TopicPlan is a topic as EnsureTopics makes it.
type TopicPlan struct {
	Name        string
	Partitions  int32
	Replication int16
	Settings    map[string]string
}

// PlanTopics returns the topics that EnsureTopics makes on a cluster of three brokers or more, events first.
func PlanTopics(topics Topics, spec TopicSpec) []TopicPlan {
	spec.Replication = cmp.Or(spec.Replication, defaultReplication)
	settings := topicConfigs(topics, spec)
	var plan []TopicPlan
	for _, name := range topics.All() {
		t := TopicPlan{Name: name, Partitions: spec.Partitions, Replication: spec.Replication, Settings: map[string]string{}}
		for key, value := range settings[name] {
			t.Settings[key] = *value
		}
		plan = append(plan, t)
	}
	return plan
}

// timestampLimit is the setting for how far timestamps may be ahead of the broker's clock. Brokers before 3.6 do not have it.
const timestampLimit = "message.timestamp.after.max.ms"

// topicConfigs returns the settings of each topic. spec.Replication must be set.
func topicConfigs(topics Topics, spec TopicSpec) map[string]map[string]*string {
	common := map[string]string{
		// Kafka limits a batch after compression, the stages before compression.
		"max.message.bytes": strconv.Itoa(MaxBatchBytes),
		// Brokers recompress batches with other codecs.
		"compression.type": "zstd",
		// If there are replicas, acknowledged records survive the loss of any single broker.
		minInsync: strconv.Itoa(max(1, int(spec.Replication)-1)),
	}
	compacted := map[string]string{
		"cleanup.policy": "compact",
		// For erasure: superseded records, and those with a tombstone, are removed after a day. Kafka's default is no limit.
		"max.compaction.lag.ms": millis(24 * time.Hour),
		// A quarter of the limit above, because only closed segments are compacted.
		"segment.ms": millis(6 * time.Hour),
		// How long tombstones are kept. A reader that was absent for longer misses erasures and must read the topic from its start. The
		// compactor's local store does so after half of this time.
		"delete.retention.ms": millis(7 * 24 * time.Hour),
	}
	deleted := func(retention time.Duration) map[string]string {
		ms := "-1"
		if retention == 0 {
			retention = defaultRetention
		}
		if retention > 0 {
			ms = millis(retention)
		}
		return map[string]string{"cleanup.policy": "delete", "retention.ms": ms, "retention.bytes": "-1"}
	}
	of := func(own map[string]string) map[string]*string {
		all := maps.Clone(common)
		maps.Copy(all, own)
		out := make(map[string]*string, len(all))
		for k, v := range all {
			out[k] = &v
		}
		return out
	}
	events := deleted(spec.EventsRetention)
	// Producers set timestamps, and open runs expire by the latest timestamp read. Without a limit, one timestamp in the future would
	// expire all open runs of a partition. Brokers refuse such records, so that all readers compute the same stream time.
	events[timestampLimit] = millis(5 * time.Minute)
	return map[string]map[string]*string{
		topics.Events:      of(events),
		topics.Runs:        of(compacted),
		topics.Snapshots:   of(compacted),
		topics.DeadLetters: of(deleted(spec.DeadLettersRetention)),
	}
}

func millis(d time.Duration) string { return strconv.FormatInt(d.Milliseconds(), 10) }
