package deploy

import (
	"os"
	"path"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/compose-spec/compose-go/v2/cli"
	"github.com/compose-spec/compose-go/v2/types"
	"sigs.k8s.io/yaml"
)

var (
	stages     = []string{"ingest", "compactor", "indexer", "query"}
	datastores = []string{"kafka", "clickhouse"}
	// once are the services that do their work and end.
	once = []string{"secrets", "topics", "migrate"}
)

func loadCompose(t *testing.T) *types.Project {
	t.Helper()
	options, err := cli.NewProjectOptions([]string{"../docker-compose.yml"}, cli.WithOsEnv, cli.WithConsistency(true),
		cli.WithProfiles([]string{"metrics"}))
	if err != nil {
		t.Fatal(err)
	}
	project, err := options.LoadProject(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	return project
}

// Datastores can be reached by the stages only, the stages from this machine only.
func TestCompose_PublishesNothingToOtherMachines(t *testing.T) {
	for name, s := range loadCompose(t).Services {
		if slices.Contains(datastores, name) && len(s.Ports) > 0 {
			t.Errorf("%s publishes a port", name)
		}
		if s.NetworkMode == "host" {
			t.Errorf("%s is on the host's network", name)
		}
		for _, p := range s.Ports {
			if p.HostIP != "127.0.0.1" {
				t.Errorf("%s publishes %s on %q, want 127.0.0.1", name, p.Published, p.HostIP)
			}
		}
	}
}

// proven returns the version that the tests' kits prove: the constant Version of a file of theirs, which
// may be made of the constant release.
func proven(t *testing.T, file string) string {
	t.Helper()
	text, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	var version string
	if found := regexp.MustCompile(`(?m)^const release = "(.+)"$`).FindSubmatch(text); found != nil {
		version = string(found[1])
		found = regexp.MustCompile(`(?m)^\s+libraryVersion += release \+ "-stable\.\d+"$`).FindSubmatch(text)
		if found == nil {
			t.Errorf("%s has an engine that is not of its release", file)
		}
	}
	if found := regexp.MustCompile(`(?m)\bVersion += +(release \+ )?"(.+)"$`).FindSubmatch(text); found != nil {
		version += string(found[2])
	}
	if !regexp.MustCompile(`^\d+(\.\d+){2,3}$`).MatchString(version) {
		t.Fatalf("%s has the version %q, want a full one", file, version)
	}
	return version
}

// The datastores are those that the tests prove, to the last digit, and are spoken to as there: the tests'
// engine of ClickHouse answers over HTTP only.
func TestCompose_PinsImages(t *testing.T) {
	want := map[string]string{
		"kafka":      "apache/kafka:" + proven(t, "../pkg/kafka/kafkatest/apache/jars.go"),
		"clickhouse": "clickhouse/clickhouse-server:" + proven(t, "../internal/clickhousetest/versions.go"),
		"secrets":    "busybox:1.37.0",
		"prometheus": "prom/prometheus:v3.5.3",
	}
	for name, s := range loadCompose(t).Services {
		if strings.HasPrefix(s.Image, "skein:") {
			continue // built here
		}
		if s.Image != want[name] {
			t.Errorf("%s runs %s, want %q", name, s.Image, want[name])
		}
	}
	for name, s := range loadCompose(t).Services {
		if url := s.Environment["SKEIN_CLICKHOUSE"]; url != nil && *url != "http://clickhouse:8123" {
			t.Errorf("%s speaks to %s", name, *url)
		}
	}
}

// "docker compose up --wait" returns when all is ready: every service that stays has a health check, and
// every one that ends is waited for by another, which is what makes --wait content with its end.
func TestCompose_CanBeWaitedFor(t *testing.T) {
	project := loadCompose(t)
	for name, s := range project.Services {
		if slices.Contains(once, name) {
			waited := false
			for _, other := range project.Services {
				d, ok := other.DependsOn[name]
				waited = waited || ok && d.Condition == types.ServiceConditionCompletedSuccessfully
			}
			if !waited {
				t.Errorf("nobody waits for %s to be done", name)
			}
			continue
		}
		if s.HealthCheck == nil || s.HealthCheck.Disable || len(s.HealthCheck.Test) == 0 {
			t.Errorf("%s has no health check", name)
		}
		for on, d := range s.DependsOn {
			want := types.ServiceConditionHealthy
			if slices.Contains(once, on) {
				want = types.ServiceConditionCompletedSuccessfully
			}
			if d.Condition != want {
				t.Errorf("%s depends on %s with condition %s, want %s", name, on, d.Condition, want)
			}
		}
	}
}

func TestCompose_StagesAreLockedDownAndChecked(t *testing.T) {
	project := loadCompose(t)
	for _, name := range stages {
		s := project.Services[name]
		if !s.ReadOnly || !slices.Contains(s.CapDrop, "ALL") || !slices.Contains(s.SecurityOpt, "no-new-privileges:true") || s.User == "root" ||
			s.Privileged {
			t.Errorf("%s is not locked down", name)
		}
		want := []string{"CMD", "/usr/local/bin/skein", "status", "http://127.0.0.1:8421"}
		if !slices.Equal(s.HealthCheck.Test, want) {
			t.Errorf("%s is checked by %q, want %q", name, s.HealthCheck.Test, want)
		}
	}
}

// A check that starts a JVM takes a fifth of a processor for ever. Both datastores are asked each second until they are ready.
func TestCompose_ChecksDatastoresCheaply(t *testing.T) {
	project := loadCompose(t)
	for _, name := range datastores {
		check := project.Services[name].HealthCheck
		if command := check.Test[1]; command != "bash" && command != "wget" {
			t.Errorf("%s is checked by %q", name, check.Test)
		}
		if check.StartInterval == nil || time.Duration(*check.StartInterval) != time.Second {
			t.Errorf("%s is asked every %v while it starts", name, check.StartInterval)
		}
	}
}

// Kafka's image declares volumes; one without a name would stay behind with each container.
func TestCompose_NamesEachVolume(t *testing.T) {
	var covered []string
	for _, v := range loadCompose(t).Services["kafka"].Volumes {
		if v.Type == types.VolumeTypeTmpfs || v.Source != "" {
			covered = append(covered, v.Target)
		}
	}
	for _, declared := range []string{"/etc/kafka/secrets", "/mnt/shared/config", "/var/lib/kafka/data"} {
		if !slices.Contains(covered, declared) {
			t.Errorf("nothing is mounted on %s of Kafka", declared)
		}
	}
}

// Rootless engines and others may not raise limits, and refuse a container that asks for it.
func TestCompose_AsksForNoLimits(t *testing.T) {
	for name, s := range loadCompose(t).Services {
		if len(s.Ulimits) > 0 {
			t.Errorf("%s asks for limits: %v", name, s.Ulimits)
		}
	}
}

// Prometheus reads the file that is mounted, which names each stage where its administration listens.
func TestCompose_ScrapesEachStage(t *testing.T) {
	project := loadCompose(t)
	prometheus := project.Services["prometheus"]
	var dir string
	for _, v := range prometheus.Volumes {
		if v.Target == "/etc/prometheus" && v.ReadOnly {
			dir = v.Source
		}
	}
	text, err := os.ReadFile(path.Join(dir, "prometheus.yml"))
	if err != nil {
		t.Fatal(err)
	}
	var config struct {
		RuleFiles     []string `json:"rule_files"`
		ScrapeConfigs []struct {
			StaticConfigs []struct{ Targets []string } `json:"static_configs"`
		} `json:"scrape_configs"`
	}
	if err := yaml.Unmarshal(text, &config); err != nil {
		t.Fatal(err)
	}
	var got, want []string
	for _, s := range config.ScrapeConfigs {
		for _, c := range s.StaticConfigs {
			got = append(got, c.Targets...)
		}
	}
	for _, stage := range stages {
		listen := project.Services[stage].Environment["SKEIN_ADMIN_LISTEN"]
		want = append(want, stage+strings.TrimPrefix(*listen, "0.0.0.0"))
	}
	if !slices.Equal(got, want) {
		t.Errorf("Prometheus scrapes %q, want %q", got, want)
	}
	if !slices.ContainsFunc(prometheus.Volumes, func(v types.ServiceVolumeConfig) bool {
		return strings.HasSuffix(v.Source, "/"+alertsFile) && slices.Contains(config.RuleFiles, v.Target)
	}) {
		t.Errorf("Prometheus has no alerts: its rules are %q", config.RuleFiles)
	}
}

// 15 s to drain, 12 s for Kafka, and 15 s beside: docs/capacity.md.
func TestCompose_GivesStagesTheTimeToStop(t *testing.T) {
	project := loadCompose(t)
	for _, name := range stages {
		if got := project.Services[name].StopGracePeriod; got == nil || time.Duration(*got) < 42*time.Second {
			t.Errorf("%s has %v to stop", name, got)
		}
	}
}

// A password in the file would be the same everywhere.
func TestCompose_HoldsNoSecret(t *testing.T) {
	for name, s := range loadCompose(t).Services {
		for key, value := range s.Environment {
			secret := regexp.MustCompile(`PASSWORD|SECRET|TOKEN|API_KEY`).MatchString(key)
			if secret && value != nil && *value != "" && !strings.HasPrefix(*value, "/secrets/") {
				t.Errorf("%s has %s in plain sight", name, key)
			}
		}
	}
}

func TestCompose_SetsWhatTheCommandsKnow(t *testing.T) {
	for name, s := range loadCompose(t).Services {
		if !strings.HasPrefix(s.Image, "skein:") {
			continue
		}
		var words []string
		for i, word := range s.Entrypoint {
			if i == 0 {
				word = path.Base(word)
			}
			if strings.HasPrefix(word, "--") {
				break
			}
			words = append(words, word)
		}
		var settings []string
		for key := range s.Environment {
			settings = append(settings, key)
		}
		checkSettings(t, "docker-compose.yml, "+name, strings.Join(words, " "), settings)
	}
}

// The image: static binaries, nobody as user, and nothing beneath them that is another thing tomorrow.
func TestDockerfile_IsStaticAndRunsAsNobody(t *testing.T) {
	b, err := os.ReadFile("../Dockerfile")
	if err != nil {
		t.Fatal(err)
	}
	text := string(b)
	for _, want := range []string{"CGO_ENABLED=0", "-buildvcs=false", "-trimpath", "\nUSER 65532:65532\n", "\nFROM scratch\n",
		"/etc/ssl/certs/ca-certificates.crt", "org.opencontainers.image.version=\"$VERSION\""} {
		if !strings.Contains(text, want) {
			t.Errorf("the Dockerfile has no %q", want)
		}
	}
	mod, err := os.ReadFile("../go.mod")
	if err != nil {
		t.Fatal(err)
	}
	version := regexp.MustCompile(`(?m)^go (\d+\.\d+)`).FindStringSubmatch(string(mod))[1]
	if !regexp.MustCompile(`(?m)^FROM golang:` + regexp.QuoteMeta(version) + `\.\d+-[a-z]+ AS build$`).MatchString(text) {
		t.Errorf("go.mod says Go %s, the Dockerfile another, or not a full version", version)
	}
	if n := strings.Count(text, "\nFROM "); n != 2 {
		t.Errorf("the Dockerfile has %d stages, want those two", n)
	}
}
