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

func newTopics(out *output) *cobra.Command {
	const (
		partitions  = "required number of partitions; 0 is any, but the same for all topics"
		replication = "required number of replicas; 0 is 3 or more, or the number of brokers if that is smaller"
	)
	create := &cobra.Command{
		Use:   "create",
		Short: "Create missing topics",
		Long: `Create the topics that do not exist, with the settings that Skein needs. Existing topics are left unchanged.
Then all topics are compared as skein topics check does; the exit code is 4 if anything differs.

Stages create no topics: they wait until the topics exist. Each partition gets three replicas, or one per
broker if there are fewer than three, unless --replication says otherwise. All replicas but one have to be
in sync for a record to be acknowledged, so losing one broker costs nothing.`,
		Example: `  skein topics create --brokers kafka-0:9092,kafka-1:9092 --partitions 48 --replication 3`,
	}
	check := &cobra.Command{
		Use:   "check",
		Short: "Compare the topics with what Skein needs",
		Long: `Compare partition counts, replicas and settings of the topics (min.insync.replicas, max.message.bytes,
cleanup.policy, retention, …) with what Skein needs. Stricter settings are accepted. The exit code is 4 if
anything differs.`,
		Example: `  skein topics check --brokers kafka-0:9092 --replication 3`,
	}
	alter := &cobra.Command{
		Use:   "alter",
		Short: "Change the topics to the settings that Skein needs",
		Long: `Change the existing topics to the settings that Skein needs, and compare them again. Partition counts and
replicas stay: the count belongs to the topic set, and replicas are moved with Kafka's own tools.`,
		Example: `  skein topics alter --brokers kafka-0:9092 --events-retention 168h`,
	}
	return topicsAsCode(out, group("topics", "Create, check, alter, copy, adopt or print topics",
		topicsCommand(out, create, createTopics, fmt.Sprintf("number of partitions, if no topic exists yet; 0 is %d", defaultPartitions),
			"replicas of each partition; 0 is 3, or the number of brokers if that is smaller", "retention; 0 is 30 days, negative is forever"),
		topicsCommand(out, check, kafka.CheckTopics, partitions, replication, "required retention; 0 is not compared, negative is forever"),
		topicsCommand(out, alter, kafka.AlterTopics, partitions, replication, "new retention; 0 leaves it unchanged, negative is forever"),
		newTopicsMigrate(out), newTopicsAdopt(out)))
}

// topicsCommand completes a command that calls do and prints the reports of do. The other arguments are the usages of flags.
func topicsCommand(
	out *output, cmd *cobra.Command, do func(context.Context, kafka.Config, kafka.TopicSpec) ([]kafka.TopicReport, error),
	partitions, replication, retention string,
) *cobra.Command {
	var at app.KafkaFlags
	var spec kafka.TopicSpec
	cmd.Args = usageArgs(cobra.NoArgs)
	cmd.RunE = func(cmd *cobra.Command, _ []string) error {
		cfg, err := at.Config("skein-topics")
		if err != nil {
			return err
		}
		if spec.Partitions < 0 || spec.Replication < 0 {
			return app.Usagef("%d partitions and %d replicas: neither can be negative", spec.Partitions, spec.Replication)
		}
		ctx, cancel := context.WithTimeout(cmd.Context(), topicsTimeout)
		defer cancel()
		reports, err := do(ctx, cfg, spec)
		if err != nil {
			if errors.Is(ctx.Err(), context.DeadlineExceeded) {
				return fmt.Errorf("no answer from %s in %s: %w", strings.Join(cfg.Brokers, ","), topicsTimeout, err)
			}
			return err
		}
		return printTopics(out, reports)
	}
	f := cmd.Flags()
	at.Flags(f)
	f.Int32Var(&spec.Partitions, "partitions", 0, partitions)
	f.Int16Var(&spec.Replication, "replication", 0, replication)
	f.DurationVar(&spec.EventsRetention, "events-retention", 0, "raw events: "+retention)
	f.DurationVar(&spec.DeadLettersRetention, "dead-letters-retention", 0, "dead letters: "+retention)
	jsonLinesFlags(cmd, out)
	return cmd
}

// defaultPartitions is the partition count of a new topic set.
const defaultPartitions = 12

// createTopics creates missing topics and checks all topics. It repeats the check while topics are missing, since the brokers do
// not all learn of a new topic at the same time.
func createTopics(ctx context.Context, cfg kafka.Config, spec kafka.TopicSpec) ([]kafka.TopicReport, error) {
	made := spec
	made.Partitions = cmp.Or(made.Partitions, defaultPartitions)
	if _, err := kafka.EnsureTopics(ctx, cfg, made); err != nil {
		return nil, err
	}
	for {
		reports, err := kafka.CheckTopics(ctx, cfg, spec)
		missing := slices.ContainsFunc(reports, func(r kafka.TopicReport) bool { return r.Partitions == 0 })
		if err != nil || !missing || pause(ctx, 100*time.Millisecond) != nil {
			return reports, err
		}
	}
}

// printTopics prints the reports, and returns an error if there are differences.
func printTopics(out *output, reports []kafka.TopicReport) error {
	differences := 0
	var rows [][]string
	var lines strings.Builder
	for _, r := range reports {
		differences += len(r.Differences)
		if out.asJSON {
			if err := out.json(r); err != nil {
				return err
			}
			continue
		}
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
		for _, d := range r.Differences {
			if d.What != "topic" {
				fmt.Fprintf(&lines, "%s: %s is %s, want %s\n", r.Topic, d.What, cmp.Or(d.Is, "not set"), d.Want)
			}
		}
	}
	if !out.asJSON {
		columns := []column{{name: "TOPIC"}, {name: "PARTITIONS"}, {name: "REPLICAS"}, {name: "IN SYNC"}, {name: "KEPT"}, {name: "STATE"}}
		if err := out.text(table(columns, rows, defaultWidth, true) + lines.String()); err != nil {
			return err
		}
	}
	if differences > 0 {
		return app.Differsf("%s from what Skein needs", count(differences, "difference"))
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
