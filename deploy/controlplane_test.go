//go:build cluster

package deploy

import (
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"encoding/pem"
	"flag"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"sync"
	"syscall"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
)

var binaries = flag.String("cluster.bin", "", "folder with etcd, kube-apiserver, kube-controller-manager and kube-scheduler")

// A cluster is a Kubernetes control plane on loopback, and a node that only pretends to run what it is given.
type cluster struct {
	kubeconfig string
	config     *rest.Config
	client     *kubernetes.Clientset

	mu       sync.Mutex
	warnings []string // of the API server, to Helm
}

// HandleWarningHeader keeps what the API server says of an object that it takes all the same.
func (c *cluster) HandleWarningHeader(_ int, _, text string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.warnings = append(c.warnings, text)
}

func (c *cluster) takeWarnings() []string {
	c.mu.Lock()
	defer c.mu.Unlock()
	defer func() { c.warnings = nil }()
	return c.warnings
}

// startCluster returns once the API server is ready. All processes end with the test.
func startCluster(t *testing.T) *cluster {
	t.Helper()
	dir := t.TempDir()
	in := func(name string) string { return filepath.Join(dir, name) }
	write := func(name string, content []byte) string {
		if err := os.WriteFile(in(name), content, 0o600); err != nil {
			t.Fatal(err)
		}
		return in(name)
	}
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	der, err := x509.MarshalECPrivateKey(key)
	if err != nil {
		t.Fatal(err)
	}
	serviceAccounts := write("sa.key", pem.EncodeToMemory(&pem.Block{Type: "EC PRIVATE KEY", Bytes: der}))
	token := rand.Text()
	ports := freePorts(t, 5)
	etcd, peers := "http://127.0.0.1:"+ports[0], "http://127.0.0.1:"+ports[1]
	c := &cluster{kubeconfig: write("kubeconfig", fmt.Appendf(nil, `{apiVersion: v1, kind: Config, current-context: c,
 contexts: [{name: c, context: {cluster: c, user: admin}}], users: [{name: admin, user: {token: %s}}],
 clusters: [{name: c, cluster: {server: "https://127.0.0.1:%s", certificate-authority: %q}}]}`, token, ports[2], in("apiserver.crt")))}

	start := func(name string, args ...string) {
		log, err := os.Create(in(name + ".log"))
		if err != nil {
			t.Fatal(err)
		}
		cmd := exec.Command(filepath.Join(*binaries, name), args...)
		cmd.Stdout, cmd.Stderr = log, log
		cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
		if err := cmd.Start(); err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() {
			_ = cmd.Process.Kill() // nothing of it is kept
			_ = cmd.Wait()
			if text, err := os.ReadFile(log.Name()); t.Failed() {
				t.Logf("%s ended with (%v)\n%s", name, err, text[max(0, len(text)-1500):])
			}
		})
	}
	start("etcd", "--data-dir", in("etcd"), "--listen-client-urls", etcd, "--advertise-client-urls", etcd, "--listen-peer-urls", peers,
		"--initial-advertise-peer-urls", peers, "--initial-cluster", "default="+peers, "--unsafe-no-fsync")
	start("kube-apiserver", "--etcd-servers", etcd, "--bind-address", "127.0.0.1", "--secure-port", ports[2], "--cert-dir", dir,
		"--endpoint-reconciler-type", "none", "--token-auth-file", write("tokens.csv", []byte(token+",admin,admin,system:masters\n")),
		"--authorization-mode", "Node,RBAC", "--service-cluster-ip-range", "10.0.0.0/24",
		"--service-account-issuer", "https://kubernetes.default.svc", "--service-account-key-file", serviceAccounts,
		"--service-account-signing-key-file", serviceAccounts)

	// The API server makes its certificate first.
	until(t, 3*time.Minute, func() error {
		config, err := clientcmd.BuildConfigFromFlags("", c.kubeconfig)
		if err != nil {
			return err
		}
		config.QPS, config.WarningHandler = -1, rest.NoWarnings{}
		client, err := kubernetes.NewForConfig(config)
		if err != nil {
			return err
		}
		c.config, c.client = config, client
		return client.Discovery().RESTClient().Get().AbsPath("/readyz").Do(t.Context()).Error()
	})
	start("kube-controller-manager", "--kubeconfig", c.kubeconfig, "--service-account-private-key-file", serviceAccounts,
		"--root-ca-file", in("apiserver.crt"), "--bind-address", "127.0.0.1", "--secure-port", ports[3], "--leader-elect=false")
	start("kube-scheduler", "--kubeconfig", c.kubeconfig, "--bind-address", "127.0.0.1", "--secure-port", ports[4], "--leader-elect=false")
	c.startNode(t)
	return c
}

// freePorts are free now; the servers take no port 0.
func freePorts(t *testing.T, n int) []string {
	t.Helper()
	var ports []string
	for range n {
		l, err := net.Listen("tcp", "127.0.0.1:0")
		if err != nil {
			t.Fatal(err)
		}
		defer l.Close()
		_, port, err := net.SplitHostPort(l.Addr().String())
		if err != nil {
			t.Fatal(err)
		}
		ports = append(ports, port)
	}
	return ports
}

// until repeats f until it returns nil, or fails with what it returned last.
func until(t *testing.T, limit time.Duration, f func() error) {
	t.Helper()
	deadline := time.Now().Add(limit)
	for {
		err := f()
		if err == nil {
			return
		}
		if time.Now().After(deadline) {
			t.Fatalf("after %v: %v", limit, err)
		}
		time.Sleep(100 * time.Millisecond)
	}
}

// startNode makes the node n1 and stands in for its kubelet and a provisioner of volumes, until the test ends.
func (c *cluster) startNode(t *testing.T) {
	t.Helper()
	node := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "n1", Labels: map[string]string{"disk": "fast"}}}
	if _, err := c.client.CoreV1().Nodes().Create(t.Context(), node, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	ctx, stop := context.WithCancel(context.Background()) // t's own has ended when cleanups run, which wait for it
	done := make(chan struct{})
	t.Cleanup(func() { stop(); <-done })
	go func() {
		defer close(done)
		for beat := 0; ctx.Err() == nil; beat++ {
			for _, f := range []func(context.Context) error{c.runPods, c.provision} {
				// Others change and delete the same objects; the next round sees how they are then.
				err := f(ctx)
				if err != nil && ctx.Err() == nil && !apierrors.IsConflict(err) && !apierrors.IsNotFound(err) && !apierrors.IsAlreadyExists(err) {
					t.Errorf("the node: %v", err)
				}
			}
			if beat%50 == 0 { // a node that says nothing for 40 s is taken for lost
				if err := c.heartbeat(ctx); err != nil && ctx.Err() == nil && !apierrors.IsConflict(err) {
					t.Errorf("the node: %v", err)
				}
			}
			time.Sleep(100 * time.Millisecond)
		}
	}()
}

func (c *cluster) heartbeat(ctx context.Context) error {
	node, err := c.client.CoreV1().Nodes().Get(ctx, "n1", metav1.GetOptions{})
	if err != nil {
		return err
	}
	node.Status.Capacity = corev1.ResourceList{corev1.ResourceCPU: resource.MustParse("64"),
		corev1.ResourceMemory: resource.MustParse("512Gi"), corev1.ResourcePods: resource.MustParse("500")}
	node.Status.Allocatable = node.Status.Capacity
	node.Status.Conditions = []corev1.NodeCondition{{Type: corev1.NodeReady, Status: corev1.ConditionTrue, LastHeartbeatTime: metav1.Now()}}
	_, err = c.client.CoreV1().Nodes().UpdateStatus(ctx, node, metav1.UpdateOptions{})
	return err
}

// runPods has pods of Jobs succeed and all others get ready at once; deleted ones are gone.
func (c *cluster) runPods(ctx context.Context) error {
	pods, err := c.client.CoreV1().Pods("").List(ctx, metav1.ListOptions{FieldSelector: "spec.nodeName=n1"})
	if err != nil {
		return err
	}
	for i := range pods.Items {
		pod := &pods.Items[i]
		api := c.client.CoreV1().Pods(pod.Namespace)
		if pod.DeletionTimestamp != nil {
			if err := api.Delete(ctx, pod.Name, metav1.DeleteOptions{GracePeriodSeconds: new(int64)}); err != nil {
				return err
			}
			continue
		}
		if pod.Status.Phase != corev1.PodPending {
			continue
		}
		now := metav1.Now()
		job := slices.ContainsFunc(pod.OwnerReferences, func(o metav1.OwnerReference) bool { return o.Kind == "Job" })
		pod.Status.Phase, pod.Status.PodIP = corev1.PodRunning, fmt.Sprintf("10.1.%d.%d", now.Unix()%250, i+1)
		pod.Status.PodIPs = []corev1.PodIP{{IP: pod.Status.PodIP}}
		ready := corev1.ConditionTrue
		state := corev1.ContainerState{Running: &corev1.ContainerStateRunning{StartedAt: now}}
		if job {
			pod.Status.Phase, ready = corev1.PodSucceeded, corev1.ConditionFalse
			state = corev1.ContainerState{Terminated: &corev1.ContainerStateTerminated{Reason: "Completed", StartedAt: now, FinishedAt: now}}
		}
		for _, kind := range []corev1.PodConditionType{corev1.PodReady, corev1.ContainersReady} {
			pod.Status.Conditions = append(pod.Status.Conditions, corev1.PodCondition{Type: kind, Status: ready, LastTransitionTime: now})
		}
		for _, container := range pod.Spec.Containers {
			pod.Status.ContainerStatuses = append(pod.Status.ContainerStatuses,
				corev1.ContainerStatus{Name: container.Name, Image: container.Image, Ready: !job, Started: new(!job), State: state})
		}
		if _, err := api.UpdateStatus(ctx, pod, metav1.UpdateOptions{}); err != nil {
			return err
		}
	}
	return nil
}

// provision makes a volume for each claim that has none, and removes those whose claims are gone.
func (c *cluster) provision(ctx context.Context) error {
	claims, err := c.client.CoreV1().PersistentVolumeClaims("").List(ctx, metav1.ListOptions{})
	if err != nil {
		return err
	}
	volumes, err := c.client.CoreV1().PersistentVolumes().List(ctx, metav1.ListOptions{})
	if err != nil {
		return err
	}
	made := make(map[string]bool)
	for _, v := range volumes.Items {
		made[v.Name] = true
		if v.Status.Phase == corev1.VolumeReleased && v.DeletionTimestamp == nil {
			if err := c.client.CoreV1().PersistentVolumes().Delete(ctx, v.Name, metav1.DeleteOptions{}); err != nil {
				return err
			}
		}
	}
	for _, claim := range claims.Items {
		volume := &corev1.PersistentVolume{ObjectMeta: metav1.ObjectMeta{Name: "pv-" + string(claim.UID)}, Spec: corev1.PersistentVolumeSpec{
			Capacity: claim.Spec.Resources.Requests, AccessModes: claim.Spec.AccessModes,
			PersistentVolumeReclaimPolicy: corev1.PersistentVolumeReclaimRetain,

			ClaimRef:               &corev1.ObjectReference{Namespace: claim.Namespace, Name: claim.Name, UID: claim.UID},
			PersistentVolumeSource: corev1.PersistentVolumeSource{HostPath: &corev1.HostPathVolumeSource{Path: "/nothing/is/written"}},
		}}
		if claim.Spec.StorageClassName != nil {
			volume.Spec.StorageClassName = *claim.Spec.StorageClassName
		}
		if made[volume.Name] || claim.Status.Phase != corev1.ClaimPending {
			continue
		}
		if _, err := c.client.CoreV1().PersistentVolumes().Create(ctx, volume, metav1.CreateOptions{}); err != nil {
			return err
		}
	}
	return nil
}
