package deploy

import (
	"fmt"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	monitoringv1 "github.com/prometheus-operator/prometheus-operator/pkg/apis/monitoring/v1"
	"helm.sh/helm/v3/pkg/chart/loader"
	"helm.sh/helm/v3/pkg/chartutil"
	"helm.sh/helm/v3/pkg/engine"
	"helm.sh/helm/v3/pkg/lint"
	"helm.sh/helm/v3/pkg/lint/support"
	appsv1 "k8s.io/api/apps/v1"
	autoscalingv2 "k8s.io/api/autoscaling/v2"
	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	networkingv1 "k8s.io/api/networking/v1"
	policyv1 "k8s.io/api/policy/v1"
	gatewayv1 "sigs.k8s.io/gateway-api/apis/v1"
	"sigs.k8s.io/yaml"
)

const chartDir = "helm/skein"

type values = map[string]any

// required are the values without which the chart does not render.
func required() values {
	return values{
		"kafka":      values{"brokers": []any{"kafka-0:9092", "kafka-1:9092"}},
		"clickhouse": values{"urls": []any{"http://clickhouse:8123"}},
	}
}

// everything turns on what is off.
func everything() values {
	scale := func(more values) values {
		return values{"autoscaling": more, "podAnnotations": values{"a": "b"}, "nodeSelector": values{"disk": "fast"},
			"tolerations": []any{values{"key": "k", "operator": "Exists"}}, "affinity": values{"nodeAffinity": values{}},
			"extraEnv": []any{values{"name": "GODEBUG", "value": "madvdontneed=1"}}}
	}
	v := values{
		"global": values{"anything": "goes"}, "enabled": true,
		"apiKeys":    values{"existingSecret": "keys"},
		"clickhouse": values{"existingSecret": "db", "cluster": "main", "replicated": true, "authorityKey": "ca.crt"},
		"jwt":        values{"jwks": "https://id.example/keys", "issuer": "https://id.example/", "audience": "skein"},
		"quotas":     values{"default": values{"requests_per_second": 100}},
		"tls":        values{"existingSecret": "web", "clientAuthorityKey": "ca.crt", "authorityKey": "ca.crt"},
		"adminToken": values{"existingSecret": "admin"}, "requireIngest": values{"existingSecret": "signing"},
		"auditLog": true, "accessLog": true, "otel": values{"endpoint": "http://collector:4318"},
		"kafka": values{"topicPrefix": "acme.", "existingSecret": "kafka",
			"tls": values{"enabled": true, "serverName": "kafka", "authorityKey": "ca.crt", "certificateKey": "tls.crt",
				"privateKeyKey": "tls.key"},
			"sasl": values{"mechanism": "OAUTHBEARER", "user": "skein", "oauth": values{"url": "https://id.example/token", "scope": "kafka",
				"authorityKey": "id.crt", "extensions": values{"logicalCluster": "lkc-1", "identityPoolId": "pool-1"}}},
			"rack": "zone-a"},
		"image":       values{"pullSecrets": []any{values{"name": "pull"}}},
		"ingest":      scale(values{"enabled": true}),
		"query":       scale(values{"enabled": true}),
		"compactor":   scale(values{"enabled": true}),
		"indexer":     scale(values{"enabled": true}),
		"pprof":       true,
		"corsOrigins": []any{"https://app.example"},
		"httpRoute": values{"parentRefs": []any{values{"name": "public", "namespace": "gateways"}}, "hostnames": []any{"skein.example"},
			"annotations": values{"a": "b"}},
		"extraEnv":          []any{values{"name": "HTTPS_PROXY", "value": "http://proxy:3128"}},
		"priorityClassName": "high",
		"serviceAccount":    values{"annotations": values{"a": "b"}},
		"networkPolicy": values{
			"enabled":  true,
			"httpFrom": []any{values{"namespaceSelector": values{"matchLabels": values{"kubernetes.io/metadata.name": "gateway"}}}},
			"egress":   []any{values{"to": []any{values{"ipBlock": values{"cidr": "10.0.0.0/8"}}}}},
		},
	}
	v["indexer"].(values)["retain"] = []any{"acme=90", "test=7"}
	v["query"].(values)["pageLinks"] = []any{"traces=https://traces.example/{label.trace}", "user=https://crm.example/{label.user}"}
	v["ingest"].(values)["agents"] = []any{values{"name": "helper", "url": "https://helper.example/run",
		"credential_file": "/etc/skein/agents/helper"}}
	v["ingest"].(values)["agentsExistingSecret"] = "agents"
	v["ingest"].(values)["url"], v["query"].(values)["url"] = "https://in.skein.example", "https://skein.example"
	v["compactor"].(values)["storage"] = values{"className": "fast"}
	return v
}

// render returns the chart's objects as YAML by "Kind name".
func render(t *testing.T, vs ...values) (map[string]string, error) {
	t.Helper()
	c, err := loader.Load(chartDir)
	if err != nil {
		t.Fatal(err)
	}
	all := values{}
	for _, v := range vs {
		all = chartutil.MergeTables(v, all) // the later one wins
	}
	release := chartutil.ReleaseOptions{Name: "prod", Namespace: "agents", Revision: 1, IsInstall: true}
	vals, err := chartutil.ToRenderValues(c, all, release, chartutil.DefaultCapabilities)
	if err != nil {
		return nil, err
	}
	files, err := engine.Render(c, vals)
	if err != nil {
		return nil, err
	}
	objects := make(map[string]string)
	for name, text := range files {
		if filepath.Ext(name) != ".yaml" {
			continue
		}
		for doc := range strings.SplitSeq(text, "\n---\n") {
			var o struct {
				Kind     string
				Metadata struct{ Name string }
			}
			if err := yaml.Unmarshal([]byte(doc), &o); err != nil {
				t.Fatalf("%s: %v\n%s", name, err, doc)
			}
			if o.Kind == "" {
				continue
			}
			key := o.Kind + " " + o.Metadata.Name
			if _, ok := objects[key]; ok {
				t.Errorf("%s is there twice", key)
			}
			objects[key] = doc
		}
	}
	return objects, nil
}

func mustRender(t *testing.T, vs ...values) map[string]string {
	t.Helper()
	objects, err := render(t, append([]values{required()}, vs...)...)
	if err != nil {
		t.Fatal(err)
	}
	return objects
}

// strict decodes an object into Kubernetes' own type and refuses members that it does not have.
func strict[T any](t *testing.T, key, text string) T {
	t.Helper()
	var v T
	if err := yaml.UnmarshalStrict([]byte(text), &v); err != nil {
		t.Errorf("%s: %v\n%s", key, err, text)
	}
	return v
}

func TestChart_Lints(t *testing.T) {
	for _, m := range lint.All(chartDir, required(), "agents", true).Messages {
		if m.Severity > support.InfoSev {
			t.Error(m)
		}
	}
}

func TestChart_RendersWhatKubernetesKnows(t *testing.T) {
	for name, v := range map[string]values{"required values": {}, "everything on": everything()} {
		t.Run(name, func(t *testing.T) {
			objects := mustRender(t, v)
			for _, key := range slices.Sorted(maps.Keys(objects)) {
				text := objects[key]
				t.Logf("%s, %d lines", key, strings.Count(text, "\n"))
				kind, _, _ := strings.Cut(key, " ")
				switch kind {
				case "ConfigMap":
					strict[corev1.ConfigMap](t, key, text)
				case "Service":
					strict[corev1.Service](t, key, text)
				case "ServiceAccount":
					strict[corev1.ServiceAccount](t, key, text)
				case "Deployment":
					strict[appsv1.Deployment](t, key, text)
				case "StatefulSet":
					strict[appsv1.StatefulSet](t, key, text)
				case "Job":
					strict[batchv1.Job](t, key, text)
				case "PodDisruptionBudget":
					strict[policyv1.PodDisruptionBudget](t, key, text)
				case "NetworkPolicy":
					strict[networkingv1.NetworkPolicy](t, key, text)
				case "HorizontalPodAutoscaler":
					strict[autoscalingv2.HorizontalPodAutoscaler](t, key, text)
				case "HTTPRoute":
					strict[gatewayv1.HTTPRoute](t, key, text)
				default:
					t.Errorf("nobody checks a %s", kind)
				}
			}
		})
	}
}

// pods returns the pod templates by the name of their object.
func pods(t *testing.T, objects map[string]string) map[string]corev1.PodTemplateSpec {
	t.Helper()
	out := make(map[string]corev1.PodTemplateSpec)
	for key, text := range objects {
		kind, name, _ := strings.Cut(key, " ")
		switch kind {
		case "Deployment":
			out[name] = strict[appsv1.Deployment](t, key, text).Spec.Template
		case "StatefulSet":
			out[name] = strict[appsv1.StatefulSet](t, key, text).Spec.Template
		case "Job":
			out[name] = strict[batchv1.Job](t, key, text).Spec.Template
		}
	}
	return out
}

// The profile "restricted" of the Pod Security Standards, for all pods, and what is sensible beyond it.
func TestChart_PodsAreRestricted(t *testing.T) {
	for name, p := range pods(t, mustRender(t, everything())) {
		s := p.Spec.SecurityContext
		if s == nil || s.RunAsNonRoot == nil || !*s.RunAsNonRoot || *s.RunAsUser == 0 ||
			s.SeccompProfile.Type != corev1.SeccompProfileTypeRuntimeDefault {
			t.Errorf("%s: the pod is not restricted", name)
		}
		if p.Spec.HostNetwork || p.Spec.HostPID || p.Spec.HostIPC || p.Spec.AutomountServiceAccountToken == nil ||
			*p.Spec.AutomountServiceAccountToken {
			t.Errorf("%s: the pod has something of the host's or a token", name)
		}
		for _, v := range p.Spec.Volumes {
			if v.ConfigMap == nil && v.Secret == nil {
				t.Errorf("%s: volume %s is none of the kinds that are needed", name, v.Name)
			}
		}
		for _, c := range p.Spec.Containers {
			cs := c.SecurityContext
			if cs == nil || *cs.AllowPrivilegeEscalation || !*cs.ReadOnlyRootFilesystem ||
				!slices.Equal(cs.Capabilities.Drop, []corev1.Capability{"ALL"}) {
				t.Errorf("%s: container %s is not restricted", name, c.Name)
			}
			if c.Resources.Requests.Cpu().IsZero() || c.Resources.Limits.Memory().IsZero() {
				t.Errorf("%s: container %s has no CPU request or no memory limit", name, c.Name)
			}
		}
	}
}

func TestChart_StagesAreProbedAndRestartOnNewSettings(t *testing.T) {
	before := pods(t, mustRender(t))
	after := pods(t, mustRender(t, values{"log": values{"level": "debug"}}))
	for _, stage := range stages {
		p := before["prod-skein-"+stage]
		c := p.Spec.Containers[0]
		if c.ReadinessProbe.HTTPGet.Path != "/readyz" || c.LivenessProbe.HTTPGet.Path != "/healthz" || c.StartupProbe == nil {
			t.Errorf("%s has not all its probes", stage)
		}
		if sum := p.Annotations["checksum/config"]; sum == "" || sum == after["prod-skein-"+stage].Annotations["checksum/config"] {
			t.Errorf("%s does not restart when its settings change", stage)
		}
		if !slices.Equal(c.Command, []string{"/usr/local/bin/" + stage}) {
			t.Errorf("%s runs %q", stage, c.Command)
		}
	}
}

// A pod is not killed before ingest has drained and Kafka has had its time: lastGrace of 5 s, a second of Close, and a margin.
func TestChart_GivesIngestTheTimeToStop(t *testing.T) {
	for name, c := range map[string]struct {
		ingest values
		want   int64
	}{
		"the defaults":        {values{}, 42},
		"the longest for ack": {values{"ackTimeout": "25s"}, 55},
		"minutes to drain":    {values{"drainTimeout": "2m", "ackTimeout": "1.5s"}, 137},
		"an hour to drain":    {values{"drainTimeout": "1.5h", "ackTimeout": "500ms"}, 5416},
		"as it is told":       {values{"drainTimeout": "2m", "terminationGracePeriodSeconds": 7}, 7},
	} {
		t.Run(name, func(t *testing.T) {
			all := pods(t, mustRender(t, values{"ingest": c.ingest}))
			if got := *all["prod-skein-ingest"].Spec.TerminationGracePeriodSeconds; got != c.want {
				t.Errorf("ingest has %d s to stop, want %d", got, c.want)
			}
			if got := *all["prod-skein-query"].Spec.TerminationGracePeriodSeconds; got != 45 {
				t.Errorf("query has %d s to stop", got)
			}
		})
	}
}

func TestChart_SelectorsFindTheirPodsAndNoOthers(t *testing.T) {
	objects := mustRender(t)
	all := pods(t, objects)
	for key, text := range objects {
		if !strings.HasPrefix(key, "Service ") {
			continue
		}
		s := strict[corev1.Service](t, key, text)
		var found []string
		for name, p := range all {
			matches := true
			for k, v := range s.Spec.Selector {
				matches = matches && p.Labels[k] == v
			}
			if matches {
				found = append(found, name)
			}
		}
		want := []string{s.Name}
		if s.Name == "prod-skein-admin" { // all stages, and no job
			want = []string{"prod-skein-compactor", "prod-skein-indexer", "prod-skein-ingest", "prod-skein-query"}
		}
		if slices.Sort(found); !slices.Equal(found, want) {
			t.Errorf("%s finds %q", key, found)
		}
	}
}

// Secrets come from Secrets that exist: nothing that the chart writes holds one.
func TestChart_TakesSecretsFromSecrets(t *testing.T) {
	all := pods(t, mustRender(t, everything()))
	for stage, want := range map[string][]string{
		"ingest": {"kafka", "keys", "web", "admin", "signing", "agents"}, "indexer": {"kafka", "db", "web", "admin"},
		"query":     {"kafka", "db", "keys", "web", "admin", "signing"},
		"compactor": {"kafka", "web", "admin", "signing"}, "topics": {"kafka"}, "migrate": {"db"},
	} {
		var got []string
		for _, v := range all["prod-skein-"+stage].Spec.Volumes {
			if v.Secret != nil {
				got = append(got, v.Secret.SecretName)
			}
		}
		if !slices.Equal(got, want) {
			t.Errorf("%s has the secrets %q, want %q", stage, got, want)
		}
		mounted := all["prod-skein-"+stage].Spec.Containers[0].VolumeMounts
		for _, v := range all["prod-skein-"+stage].Spec.Volumes {
			if v.Secret != nil && !slices.ContainsFunc(mounted, func(m corev1.VolumeMount) bool {
				return m.Name == v.Name && m.MountPath == "/etc/skein/"+v.Name && m.ReadOnly
			}) {
				t.Errorf("%s does not have the files of %s where its settings look for them", stage, v.Name)
			}
		}
	}
}

func TestChart_SetsWhatTheCommandsKnow(t *testing.T) {
	objects := mustRender(t, everything())
	for _, stage := range stages {
		m := strict[corev1.ConfigMap](t, stage, objects["ConfigMap prod-skein-"+stage])
		var settings map[string]any
		if err := yaml.UnmarshalStrict([]byte(m.Data["skein.yaml"]), &settings); err != nil {
			t.Errorf("%s: %v", stage, err)
		}
		for key, value := range settings {
			switch value.(type) {
			case map[string]any, []any, nil:
				t.Errorf("%s: %s is %v, and settings are flat", stage, key, value)
			}
		}
		checkSettings(t, "the chart", stage, slices.Collect(maps.Keys(settings)))
		limited := func(e corev1.EnvVar) bool {
			return e.Name == "GOMEMLIMIT" && e.ValueFrom.ResourceFieldRef.Resource == "limits.memory"
		}
		if c := pods(t, objects)["prod-skein-"+stage].Spec.Containers[0]; !slices.ContainsFunc(c.Env, limited) {
			t.Errorf("%s: Go does not know the container's memory limit", stage)
		}
	}
	for job, command := range map[string]string{"prod-skein-topics": "skein topics create", "prod-skein-migrate": "skein migrate"} {
		c := pods(t, objects)[job].Spec.Containers[0]
		var variables []string
		for _, e := range c.Env {
			if strings.HasPrefix(e.Name, "SKEIN_") {
				variables = append(variables, e.Name)
			}
		}
		checkSettings(t, "the chart", command, variables)
		if got := strings.Join(c.Command, " "); got != "/usr/local/bin/"+command {
			t.Errorf("%s runs %q", job, got)
		}
	}
}

// Whatever a stage can be told, the chart's values can tell it, but for what would make no sense there.
func TestChart_ReachesEveryFlag(t *testing.T) {
	texts, err := helps()
	if err != nil {
		t.Fatal(err)
	}
	beside := map[string]string{
		"help": "no setting", "version": "no setting",
		"config":      "names the file that the chart writes",
		"instance-id": "the pod's name, in its environment",
		"group":       "one for each topic prefix, by default",
		"tenant":      "for one machine", "sqlite": "for one machine",
		"admin-tls-client-ca-file": "the kubelet, which probes, has no certificate",
		"kafka-oauth-token-file":   "instead of kafka-oauth-url",
	}
	objects := mustRender(t, everything())
	for _, stage := range stages {
		m := strict[corev1.ConfigMap](t, stage, objects["ConfigMap prod-skein-"+stage])
		var settings map[string]any
		if err := yaml.UnmarshalStrict([]byte(m.Data["skein.yaml"]), &settings); err != nil {
			t.Fatal(err)
		}
		flags := regexp.MustCompile(`(?m)^ +(?:-\w, )?--([a-z][a-z-]*)`).FindAllStringSubmatch(texts[stage], -1)
		if len(flags) < 10 {
			t.Fatalf("%s has %d flags only: its help is\n%s", stage, len(flags), texts[stage])
		}
		for _, flag := range flags {
			_, set := settings[strings.ReplaceAll(flag[1], "-", "_")]
			if !set && beside[flag[1]] == "" {
				t.Errorf("no value of the chart sets --%s of %s", flag[1], stage)
			}
		}
	}
}

// Ingest signs before anybody checks, so that nothing is refused while pods are replaced.
func TestChart_SignsBeforeItEnforces(t *testing.T) {
	objects := mustRender(t, values{"requireIngest": values{"existingSecret": "signing", "enforce": false}})
	for _, stage := range stages {
		has := strings.Contains(objects["ConfigMap prod-skein-"+stage], "require_ingest: /etc/skein/signing/keys")
		if has != (stage == "ingest") {
			t.Errorf("%s has the keys: %v", stage, has)
		}
	}
}

// The agents are a file beside the settings, and new ones restart the pods; their secrets come from a Secret.
func TestChart_StandsBeforeAgents(t *testing.T) {
	plain, full := mustRender(t), mustRender(t, everything())
	m := strict[corev1.ConfigMap](t, "ingest", full["ConfigMap prod-skein-ingest"])
	var file struct{ Agents []map[string]string }
	if err := yaml.UnmarshalStrict([]byte(m.Data["agents.yaml"]), &file); err != nil || len(file.Agents) != 1 || file.Agents[0]["credential_file"] != "/etc/skein/agents/helper" {
		t.Errorf("the agents are %q, %v", m.Data["agents.yaml"], err)
	}
	if !strings.Contains(m.Data["skein.yaml"], "agents: /etc/skein/config/agents.yaml") {
		t.Errorf("the settings are %s", m.Data["skein.yaml"])
	}
	if m := strict[corev1.ConfigMap](t, "ingest", plain["ConfigMap prod-skein-ingest"]); m.Data["agents.yaml"] != "" ||
		strings.Contains(m.Data["skein.yaml"], "\nagents: ") {
		t.Errorf("without agents the settings are %v", m.Data)
	}
	other := everything()
	other["ingest"].(values)["agents"].([]any)[0].(values)["url"] = "https://other.example/run"
	sum := func(objects map[string]string) string {
		d := strict[appsv1.Deployment](t, "ingest", objects["Deployment prod-skein-ingest"])
		return d.Spec.Template.Annotations["checksum/config"]
	}
	if sum(full) == sum(mustRender(t, other)) {
		t.Error("another agent restarts nothing")
	}
	d := strict[appsv1.Deployment](t, "ingest", full["Deployment prod-skein-ingest"])
	if !slices.ContainsFunc(d.Spec.Template.Spec.Volumes,
		func(v corev1.Volume) bool { return v.Secret != nil && v.Secret.SecretName == "agents" }) {
		t.Errorf("the volumes are %v", d.Spec.Template.Spec.Volumes)
	}
}

func TestChart_SaysThatNoEventsAreKept(t *testing.T) {
	for want, kept := range map[string][]any{"none": {}, "step,raw": {"step", "raw"}} {
		text := mustRender(t, required(), values{"compactor": values{"keepEvents": kept}})["ConfigMap prod-skein-compactor"]
		if !strings.Contains(text+"\n", "keep_events: "+want+"\n") {
			t.Errorf("with %v it says\n%s", kept, text)
		}
	}
}

// Topics and tables are made before the stages start, unless somebody else makes them; the stages wait.
func TestChart_MakesTopicsAndTablesUnlessToldNotTo(t *testing.T) {
	jobs := func(v values) []string {
		var keys []string
		for key, text := range mustRender(t, v) {
			if !strings.HasPrefix(key, "Job ") {
				continue
			}
			keys = append(keys, key)
			if hook := strict[batchv1.Job](t, key, text).Annotations["helm.sh/hook"]; hook != "pre-install,pre-upgrade" {
				t.Errorf("%s runs at %q", key, hook)
			}
		}
		slices.Sort(keys)
		return keys
	}
	if got := jobs(values{}); !slices.Equal(got, []string{"Job prod-skein-migrate", "Job prod-skein-topics"}) {
		t.Errorf("jobs are %q", got)
	}
	if got := jobs(values{"topics": values{"create": false}, "schema": values{"migrate": false}}); len(got) > 0 {
		t.Errorf("told not to, it runs %q", got)
	}
}

func TestChart_OneLineForWhatCannotWork(t *testing.T) {
	for name, c := range map[string]struct {
		with values
		want string
	}{
		"no brokers":       {values{"kafka": values{"brokers": []any{}}}, "kafka.brokers is missing: write --set 'kafka.brokers={HOST:9092}'"},
		"no ClickHouse":    {values{"clickhouse": values{"urls": []any{}}}, "clickhouse.urls is missing: write --set 'clickhouse.urls={http://HOST:8123}'"},
		"TLS by half":      {values{"kafka": values{"tls": values{"serverName": "kafka"}}}, "kafka.tls has values and is not enabled: write --set kafka.tls.enabled=true"},
		"nobody to log in": {values{"kafka": values{"sasl": values{"mechanism": "PLAIN"}}}, "kafka.sasl.user is missing: write --set kafka.sasl.user=NAME"},
		"no token":         {values{"kafka": values{"sasl": values{"mechanism": "OAUTHBEARER"}}}, "kafka.sasl.oauth.url is missing: write --set kafka.sasl.oauth.url=https://…"},
		"no client": {values{"kafka": values{"sasl": values{"mechanism": "OAUTHBEARER", "oauth": values{"url": "https://id.example/"}}}},
			"kafka.sasl.user is missing"},
		"MSK in plain text": {values{"kafka": values{"sasl": values{"mechanism": "AWS_MSK_IAM"}}},
			"kafka.tls is not enabled, and AWS_MSK_IAM needs it"},
		"no files":          {values{"kafka": values{"sasl": values{"mechanism": "PLAIN", "user": "u"}}}, "kafka.existingSecret is missing"},
		"scale upside down": {values{"compactor": values{"autoscaling": values{"enabled": true, "minReplicas": 9}}}, "compactor.autoscaling.maxReplicas is 6, below minReplicas 9: write at least that"},
	} {
		t.Run(name, func(t *testing.T) {
			_, err := render(t, required(), c.with)
			if err == nil || !strings.Contains(err.Error(), c.want) || strings.Contains(err.Error(), "\n") {
				t.Errorf("it says %v, want one line with %q", err, c.want)
			}
		})
	}
}

// A value that the chart does not know would be one that is silently not used.
func TestChart_RefusesValuesThatItDoesNotKnow(t *testing.T) {
	for _, v := range []values{
		{"brokers": []any{"kafka:9092"}},
		{"kafka": values{"broker": "kafka:9092"}},
		{"ingest": values{"replicaCount": 3}},
		{"kafka": values{"brokers": []any{"kafka"}}},
		{"clickhouse": values{"urls": []any{"clickhouse:9000"}}},
		{"compactor": values{"idleLimit": "an hour"}},
		{"compactor": values{"replicas": "many"}},
		{"compactor": values{"keepEvents": []any{"steps"}}},
		{"ingest": values{"memory": 1 << 20}},
		{"query": values{"extraEnv": []any{values{"value": "without a name"}}}},
	} {
		if _, err := render(t, required(), v); err == nil {
			t.Errorf("the chart takes %v", v)
		}
	}
	if _, err := render(t, required(), values{"global": values{"x": 1}, "enabled": true}); err != nil {
		t.Errorf("the chart cannot be part of another one: %v", err)
	}
}

// What a command would refuse, once it runs, the chart refuses before.
func TestChart_RefusesTimesThatTheCommandsRefuse(t *testing.T) {
	bin, err := commands()
	if err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct {
		stage, value, flag string
		refused, taken     []string
	}{
		{"ingest", "ackTimeout", "ack-timeout", []string{"0s", "0ms", "26s", "25.5s", "30000ms", "1m", "1h"},
			[]string{"500ms", "1s", "12.5s", "24.9s", "25s"}},
		{"compactor", "checkpointInterval", "checkpoint-interval", []string{"0s", "0m0s"}, []string{"100ms", "1m30s", "10s"}},
		{"compactor", "idleLimit", "idle-limit", []string{"0s", "0h0m"}, []string{"1h", "1.5h"}},
		{"indexer", "maxDelay", "max-delay", []string{"0s", "31s", "30.1s", "1m", "499ms", "0.4s"},
			[]string{"500ms", "0.5s", "1s", "1.5s", "30s"}},
	} {
		with := func(value string) values { return values{c.stage: values{c.value: value}} }
		for _, value := range c.refused {
			if _, err := render(t, required(), with(value)); err == nil {
				t.Errorf("the chart takes %s.%s of %s", c.stage, c.value, value)
			}
			args := map[string][]string{
				"ingest": {"--tenant", "t"}, "compactor": {"--dir", t.TempDir(), "--instance-id", "one"},
				"indexer": {"--clickhouse", "http://127.0.0.1:1"},
			}[c.stage]
			cmd := exec.CommandContext(t.Context(), filepath.Join(bin, c.stage),
				append(args, "--brokers", "127.0.0.1:1", "--admin-listen", "127.0.0.1:0", "--"+c.flag, value)...)
			const usage = 2
			if out, _ := cmd.CombinedOutput(); cmd.ProcessState.ExitCode() != usage {
				t.Errorf("%s --%s %s ends with %d and says\n%s", c.stage, c.flag, value, cmd.ProcessState.ExitCode(), out)
			}
		}
		for _, value := range c.taken {
			if _, err := render(t, required(), with(value)); err != nil {
				t.Errorf("%s.%s of %s: %v", c.stage, c.value, value, err)
			}
		}
	}
}

// Every value in values.yaml is described in the schema, and the other way round.
func TestChart_SchemaAndValuesSayTheSame(t *testing.T) {
	c, err := loader.Load(chartDir)
	if err != nil {
		t.Fatal(err)
	}
	var schema map[string]any
	if err := yaml.Unmarshal(c.Schema, &schema); err != nil {
		t.Fatal(err)
	}
	sayTheSame(t, "", schema, c.Values)
}

func sayTheSame(t *testing.T, path string, schema map[string]any, v values) {
	t.Helper()
	properties, ok := schema["properties"].(map[string]any)
	if !ok {
		return // free form, such as resources
	}
	for key, value := range v {
		sub, ok := properties[key].(map[string]any)
		if !ok {
			t.Errorf("values.yaml has %s%s, the schema has not", path, key)
			continue
		}
		if m, ok := value.(map[string]any); ok {
			sayTheSame(t, path+key+".", sub, m)
		}
	}
	for key := range properties {
		if _, ok := v[key]; !ok && !slices.Contains([]string{"global", "enabled", "nameOverride", "fullnameOverride"}, key) {
			t.Errorf("the schema has %s, values.yaml has not", fmt.Sprint(path, key))
		}
	}
}

// Who reaches the pods: Prometheus alone the admin port, everybody the HTTP ports unless told otherwise. What the pods reach: the ports
// that the values name, unless told otherwise.
func TestChart_NetworkPoliciesKeepTheAdminPort(t *testing.T) {
	for key := range mustRender(t, values{"networkPolicy": values{"enabled": false}}) {
		if strings.HasPrefix(key, "NetworkPolicy ") {
			t.Errorf("%s is there, though it is turned off", key)
		}
	}
	open := mustRender(t, values{
		"kafka": values{"existingSecret": "kafka",
			"sasl": values{"mechanism": "OAUTHBEARER", "user": "u", "oauth": values{"url": "https://id.example:8443/token"}}},
		"jwt": values{"jwks": "https://id.example/keys", "issuer": "i", "audience": "a"},
		"ingest": values{"agents": []any{values{"name": "helper", "url": "http://helper.agents:8000/run"},
			values{"name": "other", "url": "https://other.example/"}}},
		"networkPolicy": values{"egressPorts": []any{9095}}, "otel": values{"endpoint": "http://collector.observability:4318"},
	})
	reaches := map[string]string{"ingest": "53 53 9092 8421 8420 8443 443 4318 80 8000 9095", "query": "53 53 9092 8443 8123 443 4318 9095",
		"indexer":   "53 53 9092 8443 8123 4318 9095",
		"compactor": "53 53 9092 8443 4318 9095", "topics": "53 53 9092 8443 9095", "migrate": "53 53 8123 9095"}
	closed := mustRender(t, everything())
	all := pods(t, open)
	for stage := range reaches {
		key := "NetworkPolicy prod-skein-" + stage
		policy := strict[networkingv1.NetworkPolicy](t, key, open[key])
		n, job := policy.Spec, !slices.Contains(stages, stage)
		if (policy.Annotations["helm.sh/hook"] == "pre-install,pre-upgrade" && policy.Annotations["helm.sh/hook-weight"] == "-1") != job {
			t.Errorf("%s is not there when its pods start: %v", key, policy.Annotations)
		}
		labels := all["prod-skein-"+stage].Labels
		for k, v := range n.PodSelector.MatchLabels {
			if labels[k] != v {
				t.Errorf("%s is not of its pods: %s is %q", key, k, v)
			}
		}
		if len(n.PodSelector.MatchLabels) != 3 || len(n.PolicyTypes) != 2 || len(n.Egress) != 1 || len(n.Egress[0].To) > 0 {
			t.Fatalf("%s is %+v", key, n)
		}
		var reached []string
		for _, p := range n.Egress[0].Ports {
			reached = append(reached, p.Port.String())
		}
		if got := strings.Join(reached, " "); got != reaches[stage] {
			t.Errorf("%s reaches %s, want %s", stage, got, reaches[stage])
		}
		if job {
			if n.Ingress == nil || len(n.Ingress) > 0 {
				t.Errorf("%s lets in %+v", key, n.Ingress)
			}
			continue
		}
		ports := map[string]int{}
		for _, rule := range n.Ingress {
			ports[rule.Ports[0].Port.StrVal] = len(rule.From)
			if rule.Ports[0].Port.StrVal == "admin" && rule.From[0].NamespaceSelector.MatchLabels["kubernetes.io/metadata.name"] != "monitoring" {
				t.Errorf("%s lets %+v to the admin port", key, rule.From)
			}
		}
		want := map[string]int{"admin": 2} // and skein status, in pods of ingest
		if stage == "ingest" || stage == "query" {
			want["http"] = 0 // from anywhere
		}
		if !maps.Equal(ports, want) {
			t.Errorf("%s opens %v, want %v", key, ports, want)
		}
		n = strict[networkingv1.NetworkPolicy](t, key, closed[key]).Spec
		from := 2 // ingest too, at query and at the admin ports
		if stage == "ingest" {
			from = 1
		}
		if len(n.Egress) != 1 || len(n.PolicyTypes) != 2 || len(n.Ingress[len(n.Ingress)-1].From) != from {
			t.Errorf("told more, %s is %+v", key, n)
		}
	}
}

func TestChart_MakesNoPolicyForJobsThatItDoesNotRun(t *testing.T) {
	for key := range mustRender(t, values{"topics": values{"create": false}, "schema": values{"migrate": false}}) {
		if key == "NetworkPolicy prod-skein-topics" || key == "NetworkPolicy prod-skein-migrate" {
			t.Errorf("%s is there without its Job", key)
		}
	}
}

// Pods are found by labels that two long names do not share; names only have to differ, and to leave room for what is added to them.
func TestChart_LongNamesDiffer(t *testing.T) {
	long := strings.Repeat("a-very-long-name-", 3)
	for full, want := range map[string]string{
		strings.Repeat("x", 40): strings.Repeat("x", 40), "short-": "short",
		long + "one": "a-very-long-name-a-very-long-na-d1d99e61", long + "two": "a-very-long-name-a-very-long-na-afec20eb",
	} {
		if objects := mustRender(t, values{"fullnameOverride": full}); objects["Deployment "+want+"-ingest"] == "" {
			t.Errorf("%s gives %q", full, slices.Sorted(maps.Keys(objects)))
		}
	}
}

// One node is drained at a time, whichever stage runs on it.
func TestChart_DrainsOnePodAtATime(t *testing.T) {
	objects := mustRender(t)
	for _, stage := range stages {
		key := "PodDisruptionBudget prod-skein-" + stage
		b := strict[policyv1.PodDisruptionBudget](t, key, objects[key]).Spec
		if b.MaxUnavailable == nil || b.MaxUnavailable.IntVal != 1 || b.Selector.MatchLabels["app.kubernetes.io/component"] != stage {
			t.Errorf("%s is %+v", key, b)
		}
	}
}

// What clusters ask of pods: all have it, those of Jobs too.
func TestChart_PodsHaveWhatAClusterAsksFor(t *testing.T) {
	objects := mustRender(t, everything())
	for name, p := range pods(t, objects) {
		env := p.Spec.Containers[0].Env
		has := func(name, value string) bool { return slices.Contains(env, corev1.EnvVar{Name: name, Value: value}) }
		stage := slices.Contains(stages, strings.TrimPrefix(name, "prod-skein-"))
		if p.Spec.PriorityClassName != "high" || !has("HTTPS_PROXY", "http://proxy:3128") || has("GODEBUG", "madvdontneed=1") != stage ||
			has("OTEL_EXPORTER_OTLP_ENDPOINT", "http://collector:4318") != stage {
			t.Errorf("%s has the priority %q and the environment %v", name, p.Spec.PriorityClassName, env)
		}
	}
	account := strict[corev1.ServiceAccount](t, "", objects["ServiceAccount prod-skein"])
	if !maps.Equal(account.Annotations, map[string]string{"a": "b"}) {
		t.Errorf("the ServiceAccount has %v", account.Annotations)
	}
}

// The rules of docs/proxies.md.
func TestChart_RoutesReadsToQuery(t *testing.T) {
	const key = "HTTPRoute prod-skein"
	if mustRender(t)[key] != "" {
		t.Error("there is a route to no gateway")
	}
	spec := strict[gatewayv1.HTTPRoute](t, key, mustRender(t, everything(), values{"query": values{"service": values{"port": 81}}})[key]).Spec
	if len(spec.Rules) != 2 || spec.ParentRefs[0].Name != "public" || spec.Hostnames[0] != "skein.example" {
		t.Fatalf("the route is %+v", spec)
	}
	var reads []string
	for _, m := range spec.Rules[0].Matches {
		read := string(*m.Method)
		if m.Path != nil {
			read += " " + string(*m.Path.Type) + " " + *m.Path.Value
		}
		for _, h := range m.Headers {
			read += " " + string(h.Name) + ":" + h.Value
		}
		reads = append(reads, read)
	}
	want := "GET, HEAD, POST Exact /v1/connect, OPTIONS Access-Control-Request-Method:GET, OPTIONS Exact /v1/connect"
	if got := strings.Join(reads, ", "); got != want {
		t.Errorf("query gets %s", got)
	}
	for i, want := range []string{"prod-skein-query 81", "prod-skein-ingest 80"} {
		rule := spec.Rules[i]
		if got := fmt.Sprint(rule.BackendRefs[0].Name, " ", *rule.BackendRefs[0].Port); got != want || *rule.Timeouts.Request != "0s" {
			t.Errorf("rule %d goes to %s, want %s, for %s at most", i, got, want, *rule.Timeouts.Request)
		}
	}
	if len(spec.Rules[1].Matches) > 0 {
		t.Errorf("ingest gets %+v only", spec.Rules[1].Matches)
	}
}

// What is scaled on lag is scaled on the stage's own, which docs/metrics.md lists.
func TestChart_ScalesOnTheStagesOwnLag(t *testing.T) {
	documented, err := os.ReadFile("../docs/metrics.md")
	if err != nil {
		t.Fatal(err)
	}
	objects := mustRender(t, everything())
	for stage, kind := range map[string]string{"compactor": "StatefulSet", "indexer": "Deployment"} {
		key := "HorizontalPodAutoscaler prod-skein-" + stage
		spec := strict[autoscalingv2.HorizontalPodAutoscaler](t, key, objects[key]).Spec
		metric := spec.Metrics[0].Pods.Metric.Name
		if metric != "skein_"+stage+"_lag_seconds" || !strings.Contains(string(documented), "| `"+metric+"` | gauge |") {
			t.Errorf("%s looks at %s", key, metric)
		}
		if spec.ScaleTargetRef.Kind != kind || spec.ScaleTargetRef.Name != "prod-skein-"+stage {
			t.Errorf("%s scales %+v", key, spec.ScaleTargetRef)
		}
		if strings.Contains(objects[kind+" prod-skein-"+stage], "\n  replicas:") {
			t.Errorf("%s names a count that its scaler sets", stage)
		}
	}
}

// Ingest reaches query by its Service, whatever callers call it, unless it is given another address.
func TestChart_LetsIngestAskQuery(t *testing.T) {
	for want, v := range map[string]values{
		"http://prod-skein-query.agents:80":                    {},
		"http://prod-skein-query.agents:81":                    {"query": values{"url": "https://skein.example", "service": values{"port": 81}}},
		"https://prod-skein-query.agents:80 /etc/skein/tls/ca": {"tls": values{"existingSecret": "web", "authorityKey": "ca"}},
		"https://query.internal":                               {"query": values{"internalUrl": "https://query.internal"}},
	} {
		var got struct {
			URL string `json:"query_internal_url"`
			CAs string `json:"query_ca_file"`
		}
		m := strict[corev1.ConfigMap](t, "ingest", mustRender(t, v)["ConfigMap prod-skein-ingest"])
		if err := yaml.Unmarshal([]byte(m.Data["skein.yaml"]), &got); err != nil || strings.TrimSpace(got.URL+" "+got.CAs) != want {
			t.Errorf("ingest asks at %s with %q, want %s; %v", got.URL, got.CAs, want, err)
		}
	}
}

// Tokens alone are enough: a file of API keys that is not there would keep the stages from getting ready.
func TestChart_TakesTokensWithoutKeys(t *testing.T) {
	jwt := values{"jwks": "https://id.example/keys", "issuer": "i", "audience": "a"}
	for _, stage := range []string{"ingest", "query"} {
		key := "ConfigMap prod-skein-" + stage
		tokens := strict[corev1.ConfigMap](t, key, mustRender(t, values{"jwt": jwt})[key]).Data["skein.yaml"]
		both := strict[corev1.ConfigMap](t, key,
			mustRender(t, values{"jwt": jwt, "apiKeys": values{"existingSecret": "keys"}})[key]).Data["skein.yaml"]
		if strings.Contains(tokens, "api_keys:") || !strings.Contains(both, "api_keys:") {
			t.Errorf("%s takes keys where there are none, or none where there are", stage)
		}
	}
}

// The operator's objects are opt-in. What it scrapes are the stages, in the way that they ask for; the rules are those of the file.
func TestChart_HasPrometheusScrapeAndAlert(t *testing.T) {
	objects := mustRender(t, everything())
	if objects["PodMonitor prod-skein"]+objects["PrometheusRule prod-skein"] != "" {
		t.Error("there is what only the operator knows, and nobody asked for it")
	}
	operated := values{"podMonitor": true, "rules": true, "labels": values{"release": "monitoring"}}
	objects = mustRender(t, everything(), values{"prometheus": operated})
	monitor := strict[monitoringv1.PodMonitor](t, "PodMonitor", objects["PodMonitor prod-skein"])
	for name, p := range pods(t, objects) {
		found := true
		for k, v := range monitor.Spec.Selector.MatchLabels {
			found = found && p.Labels[k] == v
		}
		if stage := slices.Contains(stages, strings.TrimPrefix(name, "prod-skein-")); found != stage {
			t.Errorf("%s is scraped: %v", name, found)
		}
	}
	e := monitor.Spec.PodMetricsEndpoints[0]
	if *e.Port != "admin" || *e.Scheme != "https" || *e.TLSConfig.ServerName != "prod-skein-admin.agents" ||
		e.TLSConfig.CA.Secret.Key != "ca.crt" || e.Authorization.Credentials.Name != "admin" || monitor.Labels["release"] != "monitoring" {
		t.Errorf("the monitor is %+v", monitor)
	}
	rules := strict[monitoringv1.PrometheusRule](t, "PrometheusRule", objects["PrometheusRule prod-skein"])
	var got []string
	for _, rule := range rules.Spec.Groups[0].Rules {
		got = append(got, rule.Alert+rule.Expr.String()+rule.Annotations["summary"])
	}
	var want []string
	for _, rule := range alerts(t) {
		want = append(want, rule.Alert+rule.Expr+rule.Annotations["summary"])
	}
	if !slices.Equal(got, want) {
		t.Errorf("the rules are %q, want %q", got, want)
	}
}
