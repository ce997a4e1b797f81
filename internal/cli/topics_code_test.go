package cli

import (
	"errors"
	"fmt"
	"io"
	"maps"
	"reflect"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"go.yaml.in/yaml/v3"

	"github.com/skeinhq/skein/internal/app"
	"github.com/skeinhq/skein/pkg/kafka"
)

func printTopicsAs(t *testing.T, args ...string) string {
	t.Helper()
	stdout, stderr, code := skein(t, "", append([]string{"topics", "--format"}, args...)...)
	if code != app.ExitDone || stderr != "" {
		t.Fatalf("exit %d, %s", code, stderr)
	}
	return stdout
}

// What is printed as Terraform has each line of what skein topics create makes and of what the rules say, and no other.
func TestTopics_PrintsTerraform(t *testing.T) {
	printed := printTopicsAs(t, "terraform", "--topic-prefix", "9.Acme_", "--partitions", "48", "--events-retention", "-1s")
	cfg := kafka.Config{TopicPrefix: "9.Acme_"}
	var want, got []string
	for _, r := range cfg.Rules() {
		kind := map[string]string{"topic": `"Topic", pattern = "Literal"`, "group": `"Group", pattern = "Literal"`,
			"transactional id": `"TransactionalID", pattern = "Prefixed"`}[r.Resource]
		for _, o := range r.Operations {
			want = append(want, fmt.Sprintf(`{ user = %q, type = %s, name = %q, operation = %q },`, r.Stage, kind, r.Name, o))
		}
	}
	for _, topic := range kafka.PlanTopics(cfg.Topics(), kafka.TopicSpec{Partitions: 48, Replication: 3, EventsRetention: -time.Second}) {
		want = append(want, fmt.Sprintf(`resource "kafka_topic" "_%s" {`, strings.ReplaceAll(topic.Name, ".", "_")), fmt.Sprintf("name = %q", topic.Name),
			"partitions = 48", "replication_factor = 3", "config = {")
		for _, key := range slices.Sorted(maps.Keys(topic.Settings)) {
			want = append(want, fmt.Sprintf("%q = %q", key, topic.Settings[key]))
		}
	}
	for line := range strings.Lines(printed) {
		if line = strings.Join(strings.Fields(line), " "); regexp.MustCompile(`^(\{ user|resource "kafka_topic|name|partitions|replication|config|")`).MatchString(line) {
			got = append(got, line)
		}
	}
	if !slices.Equal(got, want) {
		t.Errorf("printed is\n%s\nwant\n%s", strings.Join(got, "\n"), strings.Join(want, "\n"))
	}
	if set := "_9_Acme_skein"; !strings.Contains(printed, set+"_users = {") || !strings.Contains(printed, "local."+set+"_rules") {
		t.Errorf("%s names no users or rules", printed)
	}
}

// resource has the fields of Strimzi's KafkaTopic and KafkaUser that are printed, as its custom resource definitions name them.
type resource struct {
	APIVersion string `yaml:"apiVersion"`
	Kind       string
	Metadata   struct {
		Name   string
		Labels map[string]string
	}
	Spec struct {
		TopicName      string `yaml:"topicName"`
		Partitions     int32
		Replicas       int16
		Config         map[string]string
		Authentication struct{ Type string }
		Authorization  struct {
			Type string
			ACLs []struct {
				Resource struct {
					Type, Name  string
					PatternType string `yaml:"patternType"`
				}
				Operations []string
			} `yaml:"acls"`
		}
	}
}

// What is printed for Strimzi is, read again, what skein topics create makes and what the rules say.
func TestTopics_PrintsStrimzi(t *testing.T) {
	kinds := map[string]string{"topic literal": "topic", "group literal": "group", "transactionalId prefix": "transactional id"}
	names := map[string]bool{} // of all sets: those of one namespace differ
	for _, prefix := range []string{"", "acme.", "Acme.", "acme_", "-a..b-.", "9", strings.Repeat("x", 200)} {
		cfg := kafka.Config{TopicPrefix: prefix}
		var topics []kafka.TopicPlan
		var rules []kafka.Rule
		printed := printTopicsAs(t, "strimzi", "--topic-prefix="+prefix, "--replication", "2", "--strimzi-cluster", "prod")
		dec := yaml.NewDecoder(strings.NewReader(printed))
		dec.KnownFields(true)
		for {
			var r resource
			if err := dec.Decode(&r); errors.Is(err, io.EOF) {
				break
			} else if err != nil {
				t.Fatal(err)
			}
			name := r.Metadata.Name
			if r.APIVersion != "kafka.strimzi.io/v1" || r.Metadata.Labels["strimzi.io/cluster"] != "prod" || names[name] || len(name) > 253 ||
				!regexp.MustCompile(`^[a-z0-9]([-a-z0-9]*[a-z0-9])?(\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*$`).MatchString(name) {
				t.Errorf("%s %s of %s, labelled %v", r.Kind, name, r.APIVersion, r.Metadata.Labels)
			}
			names[name] = true
			if r.Kind == "KafkaTopic" {
				topics = append(topics, kafka.TopicPlan{Name: r.Spec.TopicName, Partitions: r.Spec.Partitions, Replication: r.Spec.Replicas,
					Settings: r.Spec.Config})
				continue
			}
			if r.Kind != "KafkaUser" || r.Spec.Authentication.Type != "scram-sha-512" || r.Spec.Authorization.Type != "simple" {
				t.Errorf("%s is %+v", name, r)
			}
			for _, a := range r.Spec.Authorization.ACLs {
				kind := kinds[a.Resource.Type+" "+a.Resource.PatternType]
				stage := stageNames[slices.IndexFunc(stageNames, func(s string) bool { return strings.Contains(name, "skein-"+s) })]
				rules = append(rules, kafka.Rule{Stage: stage, Resource: kind, Name: a.Resource.Name, Operations: a.Operations})
			}
		}
		wantRules := cfg.Rules()
		for i := range wantRules {
			wantRules[i].ClickHouse = false
		}
		if want := kafka.PlanTopics(cfg.Topics(), kafka.TopicSpec{Partitions: 12, Replication: 2}); !reflect.DeepEqual(topics, want) {
			t.Errorf("with the prefix %q the topics are %v, want %v", prefix, topics, want)
		}
		if !reflect.DeepEqual(rules, wantRules) {
			t.Errorf("with the prefix %q the rules are %v, want %v", prefix, rules, wantRules)
		}
	}
	if len(names) != 7*8 {
		t.Errorf("there are the names %q", slices.Sorted(maps.Keys(names)))
	}
}
