package cli

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/skeinhq/skein/internal/app"
	"github.com/skeinhq/skein/pkg/kafka"
)

// topicsTimeout bounds the calls of a topics command to the brokers.
const topicsTimeout = 30 * time.Second

type topicsOptions struct {
	kafka  app.KafkaFlags
	spec   kafka.TopicSpec
	asJSON bool
}

func newTopics(out *output) *cobra.Command {
	return group("topics", "Create, check, alter and copy the topics of a Kafka cluster",
		newTopicsCreate(out), newTopicsCheck(out), newTopicsAlter(out), newTopicsMigrate(out))
}

func newTopicsCreate(out *output) *cobra.Command {
	var o topicsOptions
	cmd := &cobra.Command{
		Use:   "create",
		Short: "Create missing topics",
		Long: `Create the topics that do not exist, with the settings that Skein needs. Existing topics are left unchanged.
Then all topics are compared as skein topics check does; the exit code is 4 if anything differs.

Stages create no topics: they wait until the topics exist. Each partition gets three replicas, or one per
broker if there are fewer than three, unless --replication says otherwise. All replicas but one have to be
in sync for a record to be acknowledged, so losing one broker costs nothing.`,
		Example: `  skein topics create --brokers kafka-0:9092,kafka-1:9092 --partitions 48 --replication 3`,
		Args:    usageArgs(cobra.NoArgs),
		RunE: func(cmd *cobra.Command, _ []string) error {
			return o.run(cmd.Context(), out, func(ctx context.Context, cfg kafka.Config) ([]kafka.TopicReport, error) {
				spec := o.spec
				if spec.Partitions == 0 {
					spec.Partitions = defaultPartitions
				}
				if _, err := kafka.EnsureTopics(ctx, cfg, spec); err != nil {
					return nil, err
				}
				return checkMade(ctx, cfg, o.spec)
			})
		},
	}
	o.flags(cmd, fmt.Sprintf("number of partitions, if no topic exists yet; 0 is %d", defaultPartitions),
		"replicas of each partition; 0 is 3, or the number of brokers if that is smaller", "retention; 0 is 30 days, negative is forever")
	return cmd
}

func newTopicsCheck(out *output) *cobra.Command {
	var o topicsOptions
	cmd := &cobra.Command{
		Use:   "check",
		Short: "Compare the topics with what Skein needs",
		Long: `Compare partition counts, replicas and settings of the topics (min.insync.replicas, max.message.bytes,
cleanup.policy, retention, …) with what Skein needs. Stricter settings are accepted. The exit code is 4 if
anything differs.`,
		Example: `  skein topics check --brokers kafka-0:9092 --replication 3`,
		Args:    usageArgs(cobra.NoArgs),
		RunE: func(cmd *cobra.Command, _ []string) error {
			return o.run(cmd.Context(), out, func(ctx context.Context, cfg kafka.Config) ([]kafka.TopicReport, error) {
				return kafka.CheckTopics(ctx, cfg, o.spec)
			})
		},
	}
	o.flags(cmd, "required number of partitions; 0 is any, but the same for all topics",
		"required number of replicas; 0 is 3 or more, or the number of brokers if that is smaller",
		"required retention; 0 is not compared, negative is forever")
	return cmd
}

func newTopicsAlter(out *output) *cobra.Command {
	var o topicsOptions
	cmd := &cobra.Command{
		Use:   "alter",
		Short: "Change the topics to the settings that Skein needs",
		Long: `Change the existing topics to the settings that Skein needs, and compare them again. Partition counts and
replicas stay: the count belongs to the topic set, and replicas are moved with Kafka's own tools.`,
		Example: `  skein topics alter --brokers kafka-0:9092 --events-retention 168h`,
		Args:    usageArgs(cobra.NoArgs),
		RunE: func(cmd *cobra.Command, _ []string) error {
			return o.run(cmd.Context(), out, func(ctx context.Context, cfg kafka.Config) ([]kafka.TopicReport, error) {
				return kafka.AlterTopics(ctx, cfg, o.spec)
			})
		},
	}
	o.flags(cmd, "required number of partitions; 0 is any, but the same for all topics",
		"required number of replicas; 0 is 3 or more, or the number of brokers if that is smaller",
		"new retention; 0 leaves it unchanged, negative is forever")
	return cmd
}

// defaultPartitions is the partition count of a new topic set.
const defaultPartitions = 12

func (o *topicsOptions) flags(cmd *cobra.Command, partitions, replication, retention string) {
	f := cmd.Flags()
	o.kafka.Flags(f)
	f.Int32Var(&o.spec.Partitions, "partitions", 0, partitions)
	f.Int16Var(&o.spec.Replication, "replication", 0, replication)
	f.DurationVar(&o.spec.EventsRetention, "events-retention", 0, "raw events: "+retention)
	f.DurationVar(&o.spec.DeadLettersRetention, "dead-letters-retention", 0, "dead letters: "+retention)
	jsonLinesFlags(cmd, &o.asJSON)
}

// checkMade checks new topics. It repeats the check while topics are missing: brokers learn of a new topic one after another.
func checkMade(ctx context.Context, cfg kafka.Config, spec kafka.TopicSpec) ([]kafka.TopicReport, error) {
	tick := time.NewTicker(100 * time.Millisecond)
	defer tick.Stop()
	for {
		reports, err := kafka.CheckTopics(ctx, cfg, spec)
		missing := slices.ContainsFunc(reports, func(r kafka.TopicReport) bool { return r.Partitions == 0 })
		if err != nil || !missing {
			return reports, err
		}
		select {
		case <-ctx.Done():
			return reports, nil
		case <-tick.C:
		}
	}
}

// run calls do with the cluster's configuration and prints the reports.
func (o *topicsOptions) run(ctx context.Context, out *output, do func(context.Context, kafka.Config) ([]kafka.TopicReport, error)) error {
	cfg, err := o.kafka.Config("skein-topics")
	if err != nil {
		return err
	}
	if o.spec.Partitions < 0 || o.spec.Replication < 0 {
		return app.Usagef("%d partitions and %d replicas: neither can be negative", o.spec.Partitions, o.spec.Replication)
	}
	ctx, cancel := context.WithTimeout(ctx, topicsTimeout)
	defer cancel()
	reports, err := do(ctx, cfg)
	if err != nil {
		if errors.Is(ctx.Err(), context.DeadlineExceeded) {
			return fmt.Errorf("no answer from %s in %s: %w", strings.Join(cfg.Brokers, ","), topicsTimeout, err)
		}
		return err
	}
	n := 0
	for _, r := range reports {
		n += len(r.Differences)
	}
	if o.asJSON {
		for _, r := range reports {
			if err := out.json(r); err != nil {
				return err
			}
		}
	} else if err := printTopics(out, reports); err != nil {
		return err
	}
	if n > 0 {
		return app.Differsf("%s from what Skein needs", count(n, "difference"))
	}
	return nil
}

func printTopics(out *output, reports []kafka.TopicReport) error {
	var rows [][]string
	for _, r := range reports {
		state := "ok"
		switch {
		case r.Partitions == 0:
			state = "missing"
		case len(r.Differences) > 0:
			state = "differs"
		}
		inSync := "-"
		if n := r.Settings["min.insync.replicas"]; n != "" {
			inSync = "≥ " + n
		}
		rows = append(rows, []string{r.Topic, fmt.Sprint(r.Partitions), fmt.Sprint(r.Replication), inSync, retention(r.Settings), state})
	}
	columns := []column{{name: "TOPIC"}, {name: "PARTITIONS"}, {name: "REPLICAS"}, {name: "IN SYNC"}, {name: "KEPT"}, {name: "STANDS"}}
	if err := out.text(table(columns, rows, defaultWidth, true)); err != nil {
		return err
	}
	for _, r := range reports {
		for _, d := range r.Differences {
			if d.What == "topic" {
				continue
			}
			if err := out.text(fmt.Sprintf("%s: %s is %s, want %s\n", r.Topic, d.What, cmp.Or(d.Is, "not set"), d.Want)); err != nil {
				return err
			}
		}
	}
	return nil
}

// retention formats how long a topic keeps its records.
func retention(settings map[string]string) string {
	ms, err := strconv.ParseInt(settings["retention.ms"], 10, 64)
	switch {
	case settings["cleanup.policy"] == "compact":
		return "compacted"
	case err != nil:
		return "-"
	case ms < 0:
		return "for ever"
	case ms%day.Milliseconds() == 0:
		return fmt.Sprintf("%dd", ms/day.Milliseconds())
	}
	return (time.Duration(ms) * time.Millisecond).String()
}

const day = 24 * time.Hour
