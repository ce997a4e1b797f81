package cli

import (
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"maps"
	"regexp"
	"slices"
	"strconv"
	"strings"

	"github.com/spf13/cobra"
	"go.yaml.in/yaml/v3"

	"github.com/skeinhq/skein/internal/app"
	"github.com/skeinhq/skein/pkg/kafka"
)

// topicsAsCode adds flags to the group "topics" with which it prints the topics and the stages' rules. It talks to no broker.
func topicsAsCode(out *output, cmd *cobra.Command) *cobra.Command {
	var format, cluster string
	var cfg kafka.Config
	var spec kafka.TopicSpec
	cmd.Long = cmd.Short + `.

With --format it prints topics and, for an authorizer, what the stages' users may do: as resources of
Strimzi (KafkaTopic and KafkaUser), or as Terraform for the provider Mongey/kafka.`
	cmd.Example = `  skein topics --format strimzi --strimzi-cluster my-cluster --partitions 48 | kubectl apply -n kafka -f -
  skein topics --format terraform --topic-prefix acme. > skein.tf`
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		if len(args) > 0 || format == "" {
			return onlySubcommands(cmd, args)
		}
		if err := kafka.ValidatePrefix(cfg.TopicPrefix); err != nil {
			return app.Usagef("%w", err)
		}
		if spec.Partitions < 1 || spec.Replication < 1 {
			return app.Usagef("%d partitions and %d replicas: both must be 1 or more", spec.Partitions, spec.Replication)
		}
		plan := kafka.PlanTopics(cfg.Topics(), spec)
		switch format {
		case "strimzi":
			text, err := strimzi(cluster, cfg, plan)
			if err != nil {
				return err
			}
			return out.text(text)
		case "terraform":
			return out.text(terraform(cfg, plan))
		}
		return app.Usagef("--format is %q: say strimzi or terraform", format)
	}
	f := cmd.Flags()
	f.StringVar(&format, "format", "", "print topics and rules as `FORMAT`: strimzi or terraform")
	f.StringVar(&cluster, "strimzi-cluster", "my-cluster", "`NAME` of Strimzi's Kafka resource")
	f.StringVar(&cfg.TopicPrefix, "topic-prefix", "", "prefix `TEXT` of all topic names")
	f.Int32Var(&spec.Partitions, "partitions", defaultPartitions, "number of partitions")
	f.Int16Var(&spec.Replication, "replication", 3, "replicas of each partition")
	f.DurationVar(&spec.EventsRetention, "events-retention", 0, "raw events: retention; 0 is 30 days, negative is forever")
	f.DurationVar(&spec.DeadLettersRetention, "dead-letters-retention", 0, "dead letters: retention; 0 is 30 days, negative is forever")
	return cmd
}

type object = map[string]any

// strimzi returns the topics and the users as Kubernetes resources.
func strimzi(cluster string, cfg kafka.Config, plan []kafka.TopicPlan) (string, error) {
	b := &strings.Builder{}
	b.WriteString(`# Strimzi 0.49 or later; earlier ones have the same as kafka.strimzi.io/v1beta2. A change of partitions breaks the topic set.
`)
	enc := yaml.NewEncoder(b)
	enc.SetIndent(2)
	add := func(kind, name string, spec object) error {
		return enc.Encode(object{"apiVersion": "kafka.strimzi.io/v1", "kind": kind, "spec": spec,
			"metadata": object{"name": kubernetesName(name), "labels": object{"strimzi.io/cluster": cluster}}})
	}
	for _, t := range plan {
		spec := object{"topicName": t.Name, "partitions": t.Partitions, "replicas": t.Replication, "config": t.Settings}
		if err := add("KafkaTopic", t.Name, spec); err != nil {
			return "", err
		}
	}
	rules := cfg.Rules()
	for _, stage := range stageNames {
		var acls []object
		for _, r := range rules {
			if r.Stage != stage {
				continue
			}
			kind, pattern := r.Resource, "literal"
			if kind == "transactional id" {
				kind, pattern = "transactionalId", "prefix"
			}
			acls = append(acls, object{"operations": r.Operations, "resource": object{"type": kind, "name": r.Name, "patternType": pattern}})
		}
		spec := object{"authentication": object{"type": "scram-sha-512"}, "authorization": object{"type": "simple", "acls": acls}}
		if err := add("KafkaUser", cfg.TopicPrefix+"skein-"+stage, spec); err != nil {
			return "", err
		}
	}
	return b.String(), enc.Close()
}

var notDNS = regexp.MustCompile(`[^a-z0-9.-]`)

// kubernetesName returns a name for a Kubernetes resource. If it cannot be the name itself, it ends with a hash, so that two names stay
// different.
func kubernetesName(name string) string {
	var labels []string
	for label := range strings.SplitSeq(notDNS.ReplaceAllString(strings.ToLower(name), "-"), ".") {
		if label = strings.Trim(label, "-"); label != "" {
			labels = append(labels, label)
		}
	}
	valid := strings.Join(labels, ".")
	if valid != name {
		sum := sha256.Sum256([]byte(name))
		valid += "-" + hex.EncodeToString(sum[:4])
	}
	return valid
}

// terraform returns the topics and the rules as resources of the provider Mongey/kafka. Names of topics and groups need no escaping.
func terraform(cfg kafka.Config, plan []kafka.TopicPlan) string {
	b := &strings.Builder{}
	set, rules := terraformName(cfg.TopicPrefix+"skein"), cfg.Rules()
	fmt.Fprintf(b, `# In another file: terraform { required_providers { kafka = { source = "Mongey/kafka" } } }
# A change of partitions breaks the topic set.

locals {
  # The users as which the stages log in; with certificates "User:CN=…".
  %s_users = {
`, set)
	for _, stage := range stageNames {
		fmt.Fprintf(b, "    %-9s = %q\n", stage, "User:"+cfg.TopicPrefix+"skein-"+stage)
	}
	fmt.Fprintf(b, "  }\n  %s_rules = [\n", set)
	for _, r := range rules {
		kind, pattern := strings.ToUpper(r.Resource[:1])+r.Resource[1:], "Literal"
		if r.Resource == "transactional id" {
			kind, pattern = "TransactionalID", "Prefixed"
		}
		for _, operation := range r.Operations {
			fmt.Fprintf(b, "    { user = %q, type = %q, pattern = %q, name = %q, operation = %q },\n", r.Stage, kind, pattern, r.Name, operation)
		}
	}
	b.WriteString("  ]\n}\n")
	for _, t := range plan {
		fmt.Fprintf(b, `
resource "kafka_topic" %q {
  name               = %q
  partitions         = %d
  replication_factor = %d
  config = {
`, terraformName(t.Name), t.Name, t.Partitions, t.Replication)
		keys := slices.Sorted(maps.Keys(t.Settings))
		longest := 0
		for _, key := range keys {
			longest = max(longest, len(key))
		}
		for _, key := range keys {
			fmt.Fprintf(b, "    %-*s = %q\n", longest+2, strconv.Quote(key), t.Settings[key])
		}
		b.WriteString("  }\n  lifecycle {\n    prevent_destroy = true\n  }\n}\n")
	}
	fmt.Fprintf(b, `
resource "kafka_acl" %[1]q {
  for_each = { for r in local.%[1]s_rules : "${r.user} ${r.operation} ${r.name}" => r }

  acl_principal                = local.%[1]s_users[each.value.user]
  acl_host                     = "*"
  acl_operation                = each.value.operation
  acl_permission_type          = "Allow"
  resource_type                = each.value.type
  resource_pattern_type_filter = each.value.pattern
  resource_name                = each.value.name
}
`, set)
	return b.String()
}

var notIdentifier = regexp.MustCompile(`[^A-Za-z0-9_-]|^[0-9-]`)

// terraformName returns an identifier for a name. Terraform refuses two that become the same.
func terraformName(name string) string {
	return notIdentifier.ReplaceAllStringFunc(name, func(c string) string {
		if c == "." {
			return "_"
		}
		return "_" + c
	})
}
