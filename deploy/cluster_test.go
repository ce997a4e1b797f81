//go:build cluster

package deploy

import (
	"bytes"
	"flag"
	"fmt"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"helm.sh/helm/v3/pkg/action"
	"helm.sh/helm/v3/pkg/chart"
	"helm.sh/helm/v3/pkg/chart/loader"
	"helm.sh/helm/v3/pkg/chartutil"
	"helm.sh/helm/v3/pkg/release"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	schedulingv1 "k8s.io/api/scheduling/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/cli-runtime/pkg/genericclioptions"
	"k8s.io/client-go/discovery"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/yaml"
)

var before = flag.String("cluster.from", "", "commit whose chart is upgraded to this one; none is that before the last change of the chart")

// The chart by Helm's own code on a real API server with controllers and scheduler. Containers do not run: the node pretends.
func TestCluster(t *testing.T) {
	c := startCluster(t)
	version, err := c.client.Discovery().ServerVersion()
	if err != nil {
		t.Fatal(err)
	}
	t.Logf("Kubernetes %s", version.GitVersion)
	c.makeRoom(t)

	step := func(name string, f func(*testing.T)) {
		ok := t.Run(name, func(t *testing.T) {
			f(t)
			for _, w := range c.takeWarnings() {
				t.Errorf("the API server warns: %s", w)
			}
		})
		if !ok {
			t.FailNow() // what follows builds on it
		}
	}
	h := c.helm(t, "prod")
	step("a pod that is not restricted is refused", func(t *testing.T) {
		pod := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Name: "bad"}}
		pod.Spec.Containers = []corev1.Container{{Name: "bad", Image: "bad"}}
		if _, err := c.client.CoreV1().Pods(namespace).Create(t.Context(), pod, metav1.CreateOptions{}); !apierrors.IsForbidden(err) {
			t.Errorf("the API server says %v", err)
		}
	})
	step("without values it says what to write", func(t *testing.T) {
		says(t, h.install(t, newChart(t), values{}), "kafka.brokers is missing: write --set 'kafka.brokers={HOST:9092}'")
		c.isEmpty(t)
	})
	step("installs with the two required values", func(t *testing.T) { works(t, h.install(t, newChart(t), required())) })
	step("upgrades", func(t *testing.T) {
		works(t, h.upgrade(t, newChart(t), with(required(), values{"ingest": values{"replicas": 3}})))
		if n := c.deployment(t, "prod-skein-ingest").Status.ReadyReplicas; n != 3 {
			t.Errorf("%d pods of ingest are ready", n)
		}
	})
	step("rolls back", func(t *testing.T) {
		rollback := action.NewRollback(h.config)
		rollback.Version, rollback.Wait, rollback.Timeout = 1, true, patience
		works(t, rollback.Run("prod"))
		if n := *c.deployment(t, "prod-skein-ingest").Spec.Replicas; n != 2 {
			t.Errorf("ingest has %d pods, and had 2 at first", n)
		}
	})
	step("refuses other storage, and takes the way that it names", func(t *testing.T) { c.changeStorage(t, h) })
	step("takes each value", func(t *testing.T) { c.takeEachValue(t, h) })
	step("runs with everything on", func(t *testing.T) {
		works(t, h.upgrade(t, newChart(t), with(storage("20Gi", ""), everything(), required())))
		for _, e := range c.events(t) {
			if e.Reason == "FailedCreate" && strings.Contains(e.Message, "is forbidden") { // a claim may be on its way out
				t.Errorf("%s %s: %s", e.InvolvedObject.Kind, e.InvolvedObject.Name, e.Message)
			}
		}
	})
	step("uninstalls, and leaves nothing", func(t *testing.T) { works(t, h.uninstall()); c.isEmpty(t) })
	step("upgrades from the chart before, and replaces nothing", func(t *testing.T) {
		works(t, h.install(t, oldChart(t), required()))
		old := c.workloads(t)
		h.keep = true // as docs/upgrade.md has it
		works(t, h.upgrade(t, newChart(t), nil))
		h.keep = false
		if now := c.workloads(t); !maps.Equal(old, now) {
			t.Errorf("it had %v and has %v", old, now)
		}
		works(t, h.uninstall())
		c.isEmpty(t)
	})
	step("installs two releases whose long names begin alike", func(t *testing.T) {
		one, two := c.helm(t, strings.Repeat("a-long-name-", 4)+"one"), c.helm(t, strings.Repeat("a-long-name-", 4)+"two")
		works(t, one.install(t, newChart(t), required()))
		works(t, two.install(t, newChart(t), required()))
		if all := c.workloads(t); len(all) != 10 { // three Deployments, a StatefulSet and its claim each
			t.Errorf("there are %v", all)
		}
		works(t, one.uninstall())
		works(t, two.uninstall())
		c.isEmpty(t)
	})
}

const (
	namespace = "agents"
	patience  = 5 * time.Minute // on a busy machine
)

// makeRoom makes what a cluster's administrator would: a namespace, the priority that everything names, the Gateway API.
func (c *cluster) makeRoom(t *testing.T) {
	t.Helper()
	restricted := map[string]string{}
	for _, mode := range []string{"enforce", "warn", "audit"} {
		restricted["pod-security.kubernetes.io/"+mode] = "restricted"
	}
	ns := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: namespace, Labels: restricted}}
	if _, err := c.client.CoreV1().Namespaces().Create(t.Context(), ns, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	until(t, time.Minute, func() error {
		_, err := c.client.CoreV1().ServiceAccounts(namespace).Get(t.Context(), "default", metav1.GetOptions{})
		return err
	})
	high := &schedulingv1.PriorityClass{ObjectMeta: metav1.ObjectMeta{Name: "high"}, Value: 1000}
	if _, err := c.client.SchedulingV1().PriorityClasses().Create(t.Context(), high, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	dir, err := exec.CommandContext(t.Context(), "go", "list", "-m", "-f", "{{.Dir}}", "sigs.k8s.io/gateway-api").Output()
	if err != nil {
		t.Fatal(err)
	}
	text, err := os.ReadFile(filepath.Join(strings.TrimSpace(string(dir)), "config/crd/standard/gateway.networking.k8s.io_httproutes.yaml"))
	if err != nil {
		t.Fatal(err)
	}
	var definition unstructured.Unstructured
	if err := yaml.Unmarshal(text, &definition.Object); err != nil {
		t.Fatal(err)
	}
	definitions := schema.GroupVersionResource{Group: "apiextensions.k8s.io", Version: "v1", Resource: "customresourcedefinitions"}
	_, err = dynamic.NewForConfigOrDie(c.config).Resource(definitions).Create(t.Context(), &definition, metav1.CreateOptions{})
	works(t, err)
	until(t, time.Minute, func() error {
		_, err := c.client.Discovery().ServerResourcesForGroupVersion("gateway.networking.k8s.io/v1")
		return err
	})
}

// A helm does with one release what the commands of Helm do.
type helm struct {
	config *action.Configuration
	name   string
	keep   bool // in an upgrade, the values that the release has
}

func (c *cluster) helm(t *testing.T, name string) *helm {
	t.Helper()
	flags := genericclioptions.NewConfigFlags(false)
	flags.KubeConfig, flags.CacheDir, flags.Namespace = &c.kubeconfig, new(t.TempDir()), new(namespace)
	flags.WrapConfigFn = func(*rest.Config) *rest.Config {
		config := rest.CopyConfig(c.config)
		config.WarningHandler = c
		return config
	}
	h := &helm{config: new(action.Configuration), name: name}
	if err := h.config.Init(flags, namespace, "secret", func(string, ...any) {}); err != nil {
		t.Fatal(err)
	}
	return h
}

func (h *helm) install(t *testing.T, c *chart.Chart, v values) error {
	install := action.NewInstall(h.config)
	install.ReleaseName, install.Namespace, install.Wait, install.Timeout = h.name, namespace, true, patience
	_, err := install.RunWithContext(t.Context(), c, v)
	return err
}

func (h *helm) upgrade(t *testing.T, c *chart.Chart, v values) error {
	_, err := h.apply(t, c, v, true, true)
	return err
}

func (h *helm) apply(t *testing.T, c *chart.Chart, v values, hooks, wait bool) (*release.Release, error) {
	upgrade := action.NewUpgrade(h.config)
	upgrade.Namespace, upgrade.MaxHistory = namespace, 3
	upgrade.ResetValues, upgrade.ResetThenReuseValues = !h.keep, h.keep
	upgrade.DisableHooks, upgrade.Wait, upgrade.Timeout = !hooks, wait, patience
	// Reading the schemas takes a second of processor time, and of what they would refuse the API server warns all the same.
	upgrade.DisableOpenAPIValidation = !wait
	return upgrade.RunWithContext(t.Context(), h.name, c, v)
}

func (h *helm) uninstall() error {
	uninstall := action.NewUninstall(h.config)
	uninstall.Wait, uninstall.Timeout = true, patience
	_, err := uninstall.Run(h.name)
	return err
}

func works(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

func says(t *testing.T, err error, want string) {
	t.Helper()
	if err == nil || !strings.Contains(err.Error(), want) {
		t.Fatalf("it says %v, want %s", err, want)
	}
}

// with merges values; the first one wins.
func with(vs ...values) values {
	all := values{}
	for _, v := range vs {
		all = chartutil.MergeTables(all, v)
	}
	return all
}

func storage(size, class string) values {
	return values{"compactor": values{"storage": values{"size": size, "className": class}}}
}

func newChart(t *testing.T) *chart.Chart {
	t.Helper()
	c, err := loader.Load(chartDir)
	if err != nil {
		t.Fatal(err)
	}
	return c
}

func oldChart(t *testing.T) *chart.Chart {
	t.Helper()
	from := *before
	if from == "" { // what is not committed is a change, too
		changes := "-2"
		if exec.CommandContext(t.Context(), "git", "diff", "--quiet", "HEAD", "--", chartDir).Run() != nil {
			changes = "-1"
		}
		out, err := exec.CommandContext(t.Context(), "git", "log", changes, "--format=%H", "--", chartDir).Output()
		commits := strings.Fields(string(out))
		if err != nil || len(commits) == 0 {
			t.Fatalf("the commits of the chart are %q, %v", out, err)
		}
		from = commits[len(commits)-1]
	}
	archive := exec.CommandContext(t.Context(), "git", "-C", "..", "archive", "--format=tar.gz", "--prefix=skein/", from+":deploy/"+chartDir)
	archive.Stderr = os.Stderr
	out, err := archive.Output()
	if err != nil {
		t.Fatalf("reading the chart of %s: %v", from, err)
	}
	c, err := loader.LoadArchive(bytes.NewReader(out))
	if err != nil {
		t.Fatal(err)
	}
	t.Logf("from %.8s", from)
	return c
}

func (c *cluster) deployment(t *testing.T, name string) *appsv1.Deployment {
	t.Helper()
	d, err := c.client.AppsV1().Deployments(namespace).Get(t.Context(), name, metav1.GetOptions{})
	if err != nil {
		t.Fatal(err)
	}
	return d
}

func (c *cluster) events(t *testing.T) []corev1.Event {
	t.Helper()
	events, err := c.client.CoreV1().Events(namespace).List(t.Context(), metav1.ListOptions{})
	if err != nil {
		t.Fatal(err)
	}
	return events.Items
}

// objects are what is in the namespace but what Kubernetes itself makes there, by "kind name", with their uids.
func (c *cluster) objects(t *testing.T) map[string]string {
	t.Helper()
	lists, err := discovery.ServerPreferredNamespacedResources(c.client.Discovery())
	if err != nil {
		t.Fatal(err)
	}
	lists = discovery.FilteredBy(discovery.SupportsAllVerbs{Verbs: []string{"list"}}, lists)
	resources, err := discovery.GroupVersionResources(lists)
	if err != nil {
		t.Fatal(err)
	}
	all := make(map[string]string)
	for resource := range resources {
		found, err := dynamic.NewForConfigOrDie(c.config).Resource(resource).Namespace(namespace).List(t.Context(), metav1.ListOptions{})
		if err != nil {
			t.Fatal(err)
		}
		for _, o := range found.Items {
			all[o.GetKind()+" "+o.GetName()] = string(o.GetUID())
		}
	}
	maps.DeleteFunc(all, func(key, _ string) bool {
		return strings.HasPrefix(key, "Event ") || key == "ServiceAccount default" || key == "ConfigMap kube-root-ca.crt"
	})
	return all
}

// isEmpty waits until the collector has removed what belonged to removed objects.
func (c *cluster) isEmpty(t *testing.T) {
	t.Helper()
	until(t, time.Minute, func() error {
		if left := c.objects(t); len(left) > 0 {
			return fmt.Errorf("left are %q", slices.Sorted(maps.Keys(left)))
		}
		return nil
	})
}

// workloads are what cannot be replaced without a pause, or without data.
func (c *cluster) workloads(t *testing.T) map[string]string {
	t.Helper()
	all := c.objects(t)
	maps.DeleteFunc(all, func(key, _ string) bool {
		kind, _, _ := strings.Cut(key, " ")
		return !slices.Contains([]string{"Deployment", "StatefulSet", "PersistentVolumeClaim"}, kind)
	})
	return all
}

func (c *cluster) changeStorage(t *testing.T, h *helm) {
	const name, claim = "prod-skein-compactor", "data-prod-skein-compactor-0"
	sets, claims := c.client.AppsV1().StatefulSets(namespace), c.client.CoreV1().PersistentVolumeClaims(namespace)
	refused := "compactor.storage cannot change in an upgrade: " +
		"write --set compactor.storage.size=10Gi,compactor.storage.className=, or first " +
		"kubectl -n agents delete statefulset prod-skein-compactor --cascade=orphan, which keeps pods and volumes"
	says(t, h.upgrade(t, newChart(t), with(required(), storage("20Gi", ""))), refused)
	says(t, h.upgrade(t, newChart(t), with(required(), storage("10Gi", "fast"))), refused)
	works(t, h.upgrade(t, newChart(t), with(required(), storage("10240Mi", ""))))
	old := c.objects(t)
	orphan := metav1.DeletePropagationOrphan
	works(t, sets.Delete(t.Context(), name, metav1.DeleteOptions{PropagationPolicy: &orphan}))
	until(t, time.Minute, func() error {
		if _, err := sets.Get(t.Context(), name, metav1.GetOptions{}); !apierrors.IsNotFound(err) {
			return fmt.Errorf("the StatefulSet is still there: %v", err)
		}
		return nil
	})
	works(t, h.upgrade(t, newChart(t), with(required(), storage("20Gi", ""))))
	now := c.objects(t)
	for _, key := range []string{"PersistentVolumeClaim " + claim, "Pod " + name + "-0"} {
		if old[key] == "" || now[key] != old[key] {
			t.Errorf("%s was %q and is %q", key, old[key], now[key])
		}
	}
	set, err := sets.Get(t.Context(), name, metav1.GetOptions{})
	works(t, err)
	if size := set.Spec.VolumeClaimTemplates[0].Spec.Resources.Requests.Storage().String(); size != "20Gi" {
		t.Errorf("the storage of new pods is %s", size)
	}
	// As values.yaml says: the pod's volume follows once both are deleted.
	works(t, claims.Delete(t.Context(), claim, metav1.DeleteOptions{}))
	works(t, c.client.CoreV1().Pods(namespace).Delete(t.Context(), name+"-0", metav1.DeleteOptions{}))
	until(t, time.Minute, func() error {
		made, err := claims.Get(t.Context(), claim, metav1.GetOptions{})
		if err == nil && made.Status.Capacity.Storage().String() != "20Gi" {
			err = fmt.Errorf("the claim has %s", made.Status.Capacity.Storage())
		}
		return err
	})
}

// other has another value for what is neither a number nor a switch, by its path or its last name; a text without one gets an x at its end.
var other = map[string]any{
	"kafka.brokers": []any{"other:9093"}, "kafka.sasl.mechanism": "PLAIN", "kafka.sasl.oauth.extensions": values{"other": "x"}, "clickhouse.urls": []any{"https://other:8443"},
	"jwt.skew": "1m", "otel.endpoint": "https://other:4319", "quotas": values{"default": values{"requests_per_second": 7}},
	"image.digest": "sha256:" + strings.Repeat("0", 64), "image.pullPolicy": "Always", "image.pullSecrets": []any{values{"name": "other"}},
	"log.level": "debug", "log.format": "text",
	"networkPolicy.prometheusNamespace": values{"team": "x"},
	"networkPolicy.httpFrom":            []any{values{"ipBlock": values{"cidr": "10.1.0.0/16"}}},
	"networkPolicy.egressPorts":         []any{9999}, "networkPolicy.egress": []any{values{"ports": []any{values{"port": 9999}}}},
	"httpRoute.parentRefs": []any{values{"name": "other"}}, "httpRoute.hostnames": []any{"other.example"},
	"streamHeartbeat": "20s", "corsOrigins": []any{"https://other.example"}, "priorityClassName": "system-cluster-critical",
	"ingest.ackTimeout": "13s", "ingest.drainTimeout": "16s",
	"ingest.agents":                []any{values{"name": "other", "url": "https://other.example/run"}},
	"compactor.checkpointInterval": "31s", "compactor.idleLimit": "2h", "compactor.keepEvents": []any{},
	"indexer.maxDelay": "1s", "indexer.purgeWithin": "1h", "indexer.retain": []any{"other=1"},
	"query.internalUrl": "https://other.example", "query.pageLinks": []any{"other=https://other.example"},
	"type": "NodePort", "annotations": values{"c": "d"}, "podAnnotations": values{"c": "d"}, "nodeSelector": values{"c": "d"},
	"resources": values{"limits": values{"memory": "3Gi"}}, "tolerations": []any{values{"key": "other", "operator": "Exists"}},
	"affinity": values{"podAntiAffinity": values{}}, "extraEnv": []any{values{"name": "GOGC", "value": "400"}},
}

// takeEachValue upgrades once for each value that values.yaml has: each of them changes an object, and the API server takes it.
func (c *cluster) takeEachValue(t *testing.T, h *helm) {
	var tree values
	works(t, yaml.Unmarshal(newChart(t).Schema, &tree))
	known := leaves("", tree, newChart(t).Values)
	plain := make(map[string]string) // what the values beside give alone
	for _, path := range known {
		if strings.HasPrefix(path, "compactor.storage.") || strings.HasPrefix(path, "prometheus.") {
			continue // cannot change; the cluster has no operator of Prometheus
		}
		// All is on but what hides others, or cannot be without them.
		base := with(values{"networkPolicy": values{"egress": []any{}}}, storage("20Gi", ""), everything(), required())
		for _, stage := range stages {
			of, ok := strings.CutPrefix(path, stage+".autoscaling.")
			base[stage].(values)["autoscaling"] = values{"enabled": ok && of != "enabled"}
		}
		if path == "kafka.tls.enabled" {
			base["kafka"] = values{"brokers": []any{"kafka:9092"}}
		}
		all, err := chartutil.CoalesceValues(newChart(t), base)
		works(t, err)
		key := fmt.Sprint(base)
		if plain[key] == "" {
			plain[key] = h.manifest(t, base)
		}
		changed := values{}
		at, names := changed, strings.Split(path, ".")
		for _, name := range names[:len(names)-1] {
			next := values{}
			at[name], at = next, next
		}
		at[names[len(names)-1]] = another(t, path, all)
		hooks := strings.HasPrefix(path, "topics.") || strings.HasPrefix(path, "schema.")
		r, err := h.apply(t, newChart(t), with(changed, base), hooks, false)
		if err != nil {
			t.Fatalf("%v: %v", changed, err)
		}
		if manifest(r) == plain[key] {
			t.Errorf("%v changes nothing", changed)
		}
	}
	t.Logf("%d values", len(known))
}

// another returns what a value is not in all.
func another(t *testing.T, path string, all chartutil.Values) any {
	t.Helper()
	if to, ok := other[path]; ok {
		return to
	}
	if to, ok := other[path[strings.LastIndex(path, ".")+1:]]; ok {
		return to
	}
	was, err := all.PathValue(path)
	works(t, err)
	switch was := was.(type) {
	case bool:
		return !was
	case int:
		return was + 1
	case int64:
		return was + 1
	case float64:
		return int64(was) + 1
	case string:
		return was + "x"
	}
	t.Fatalf("%s is %v: write into other what it can be instead", path, was)
	return nil
}

// manifest returns all objects as Helm would make them, without making them.
func (h *helm) manifest(t *testing.T, v values) string {
	t.Helper()
	dry := action.NewUpgrade(h.config)
	dry.Namespace, dry.ResetValues, dry.DryRunOption, dry.DryRun = namespace, true, "server", true
	r, err := dry.RunWithContext(t.Context(), h.name, newChart(t), v)
	works(t, err)
	return manifest(r)
}

func manifest(r *release.Release) string {
	all := r.Manifest
	for _, hook := range r.Hooks {
		all += hook.Manifest
	}
	return all
}

// leaves are the paths of values.yaml below which the schema names nothing.
func leaves(path string, schema, v values) []string {
	var all []string
	properties := schema["properties"].(values)
	for _, key := range slices.Sorted(maps.Keys(v)) {
		sub := properties[key].(values)
		if sub["properties"] == nil {
			all = append(all, path+key)
			continue
		}
		all = append(all, leaves(path+key+".", sub, v[key].(values))...)
	}
	return all
}
