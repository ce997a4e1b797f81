package kafkatest

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"os"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/skeinhq/skein/pkg/kafka"
	"github.com/skeinhq/skein/pkg/kafka/kafkatest/apache"
	"github.com/skeinhq/skein/test/parts"
	"github.com/skeinhq/skein/test/parts/partstest"
)

// BrokersVariable is the environment variable with the brokers for tests, as HOST:PORT separated by commas. Tests
// create and delete their own topics there.
const BrokersVariable = "SKEIN_TEST_BROKERS"

// startTimeout limits the start of a real cluster, downloads included.
const startTimeout = 5 * time.Minute

// RealCluster is a real Kafka with a topic prefix that only this test uses.
type RealCluster struct {
	Config kafka.Config
	// Version describes the cluster, with the version that the brokers report.
	Version string

	tb    testing.TB
	nodes nodes // nil for the brokers of SKEIN_TEST_BROKERS
	own   bool  // the test may kill nodes
}

// nodes is a cluster that this process has started.
type nodes interface {
	Brokers() []string
	// Version returns what the brokers report about themselves.
	Version() string
	Kill(node int) error
	Stop(node int) error
	Up(ctx context.Context, node int) error
	Pause(node int) error
	Resume(node int) error
	// Logs returns the last lines of the nodes' logs.
	Logs() string
	Close() error
}

// RealOption selects which real cluster a test gets.
type RealOption func(*realOptions)

type realOptions struct {
	own      bool
	settings map[string]string
}

// Own requests a cluster for this test alone, which may kill nodes while other tests run. The cluster never has the
// brokers of SKEIN_TEST_BROKERS.
func Own() RealOption { return func(o *realOptions) { o.own = true } }

// WithSettings requests a cluster for this test alone, with these broker settings.
func WithSettings(settings map[string]string) RealOption {
	return func(o *realOptions) { o.own, o.settings = true, settings }
}

// Real returns a real Kafka with at least the given number of nodes, 1 or 3. It uses the first available of:
//
//   - the brokers in SKEIN_TEST_BROKERS;
//   - containers, if a Docker daemon answers;
//   - Apache Kafka from Maven jars, if Java 17 and mvn are installed.
//
// With -short, or if none is available, it skips the test and reports why and what to install. With CI=true, the test
// fails.
//
// The tests of a process share one cluster per number of nodes and must not disturb its nodes. A test that kills or
// pauses nodes needs the option Own.
func Real(tb testing.TB, nodes int, opts ...RealOption) *RealCluster {
	tb.Helper()
	partstest.SkipShort(tb, "a real Kafka")
	var o realOptions
	for _, opt := range opts {
		opt(&o)
	}
	ctx, cancel := context.WithTimeout(context.Background(), startTimeout)
	defer cancel()
	c := &RealCluster{tb: tb, own: o.own, Config: kafka.Config{
		ClientID:    "test",
		TopicPrefix: "test-" + strings.ToLower(rand.Text()[:10]) + ".",
	}}
	if named := os.Getenv(BrokersVariable); named != "" && !o.own {
		c.Config.Brokers = strings.Split(named, ",")
		tb.Cleanup(c.dropTopics)
	} else {
		c.start(ctx, nodes, o)
	}
	least := nodes
	if c.nodes == nil {
		least = 1
	}
	n, version, err := identify(ctx, c.Config, least)
	if err != nil {
		tb.Fatalf("asking Kafka for its version: %v", err)
	}
	switch {
	case c.nodes == nil && n < nodes:
		unavailable(tb, fmt.Sprintf("the cluster that %s names has %d nodes, and %d are needed", BrokersVariable, n, nodes))
	case c.nodes == nil:
		c.Version = fmt.Sprintf("Kafka named by %s, %d nodes, protocol of %s", BrokersVariable, n, version)
	default:
		c.Version = fmt.Sprintf("%s, %d nodes, protocol of %s", c.nodes.Version(), n, version)
	}
	tb.Logf("real Kafka: %s", c.Version)
	return c
}

func (c *RealCluster) start(ctx context.Context, count int, o realOptions) {
	c.tb.Helper()
	var err error
	if o.own {
		c.nodes, err = startNodes(ctx, count, o.settings)
	} else {
		c.nodes, err = shared(ctx, count)
	}
	var missing *parts.UnavailableError
	switch {
	case errors.As(err, &missing):
		unavailable(c.tb, fmt.Sprintf("%s is not set, no Docker daemon answers, and %v", BrokersVariable, err))
	case err != nil:
		c.tb.Fatalf("starting a real Kafka: %v", err)
	}
	c.Config.Brokers = c.nodes.Brokers()
	if o.own {
		c.tb.Cleanup(c.end)
		return
	}
	c.tb.Cleanup(func() {
		c.report()
		c.dropTopics()
	})
}

// report logs the last log lines of the nodes if the test has failed.
func (c *RealCluster) report() {
	if c.tb.Failed() {
		c.tb.Logf("what the nodes of Kafka logged last:\n%s", c.nodes.Logs())
	}
}

// end stops a cluster that belongs to the test.
func (c *RealCluster) end() {
	c.report()
	if err := c.nodes.Close(); err != nil {
		c.tb.Errorf("stopping Kafka: %v", err)
	}
}

// dropTopics deletes the topics of the test.
func (c *RealCluster) dropTopics() {
	ctx, cancel := context.WithTimeout(context.Background(), Timeout)
	defer cancel()
	adm, err := kafka.NewAdmin(c.Config)
	if err != nil {
		c.tb.Errorf("deleting topics: %v", err)
		return
	}
	defer adm.Close()
	topics, err := adm.ListTopics(ctx)
	if err != nil {
		c.tb.Errorf("deleting topics: %v", err)
		return
	}
	var mine []string
	for _, name := range topics.Names() {
		if strings.HasPrefix(name, c.Config.TopicPrefix) {
			mine = append(mine, name)
		}
	}
	if len(mine) == 0 {
		return
	}
	if _, err := adm.DeleteTopics(ctx, mine...); err != nil {
		c.tb.Errorf("deleting topics: %v", err)
	}
}

// MakeTopics creates the test's topics, replicated as in production.
func (c *RealCluster) MakeTopics(partitions int32) {
	c.tb.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), Timeout)
	defer cancel()
	if _, err := kafka.EnsureTopics(ctx, c.Config, kafka.TopicSpec{Partitions: partitions}); err != nil {
		c.tb.Fatal(err)
	}
}

// Kill ends a node with SIGKILL. Nodes are numbered from 1.
func (c *RealCluster) Kill(node int) {
	c.tb.Helper()
	c.must("Kill", func() error { return c.nodes.Kill(node) })
}

// Stop ends a node with SIGTERM. The node transfers its partitions first.
func (c *RealCluster) Stop(node int) {
	c.tb.Helper()
	c.must("Stop", func() error { return c.nodes.Stop(node) })
}

// Pause freezes a node like SIGSTOP. The node's connections stay open but get no response.
func (c *RealCluster) Pause(node int) {
	c.tb.Helper()
	c.must("Pause", func() error { return c.nodes.Pause(node) })
}

// Resume continues a paused node.
func (c *RealCluster) Resume(node int) {
	c.tb.Helper()
	c.must("Resume", func() error { return c.nodes.Resume(node) })
}

// Up starts a node that is down and returns when it answers.
func (c *RealCluster) Up(node int) {
	c.tb.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), startTimeout)
	defer cancel()
	c.must("Up", func() error { return c.nodes.Up(ctx, node) })
}

func (c *RealCluster) must(what string, f func() error) {
	c.tb.Helper()
	if !c.own {
		c.tb.Fatalf("%s: other tests run on this cluster: ask for one of the test's Own", what)
	}
	if err := f(); err != nil {
		c.tb.Fatalf("%s: %v", what, err)
	}
}

var sharing struct {
	sync.Mutex
	clusters map[int]nodes
}

// shared returns the process's shared cluster with count nodes. The watchdog of package apache, or the reaper of
// testcontainers, ends the cluster with the process.
func shared(ctx context.Context, count int) (nodes, error) {
	sharing.Lock()
	defer sharing.Unlock()
	if c, ok := sharing.clusters[count]; ok {
		return c, nil
	}
	c, err := startNodes(ctx, count, nil)
	if err != nil {
		return nil, err
	}
	if sharing.clusters == nil {
		sharing.clusters = make(map[int]nodes)
	}
	sharing.clusters[count] = c
	return c, nil
}

func startNodes(ctx context.Context, count int, settings map[string]string) (nodes, error) {
	if dockerAnswers(ctx) {
		return startContainers(ctx, count, settings)
	}
	c, err := apache.Start(ctx, apache.Options{Nodes: count, Settings: settings})
	if err != nil {
		return nil, err
	}
	return c, nil
}

// unavailable skips a test because there is no real Kafka. With CI=true the test fails.
func unavailable(tb testing.TB, why string) {
	tb.Helper()
	partstest.Skip(tb, "there is no real Kafka: "+why)
}

// identify returns the number of brokers, once each broker knows at least so many, and the Kafka version of their protocol. A broker that
// has just started may not know the others yet, and topics that are made then have fewer replicas.
func identify(ctx context.Context, cfg kafka.Config, least int) (int, string, error) {
	ctx, cancel := context.WithTimeout(ctx, Timeout)
	defer cancel()
	tick := time.NewTicker(100 * time.Millisecond)
	defer tick.Stop()
	for brokers := cfg.Brokers; ; {
		cfg.Brokers = brokers[:1]
		n, version, err := askVersion(ctx, cfg)
		switch {
		case err == nil && n < least:
			err = fmt.Errorf("%s knows %d of %d brokers", brokers[0], n, least)
		case err == nil && len(brokers) == 1:
			return n, version, nil
		case err == nil:
			brokers = brokers[1:]
			continue
		}
		// A cluster that has just started or lost a node may close connections or know no controller.
		select {
		case <-ctx.Done():
			return 0, "", err
		case <-tick.C:
		}
	}
}

// askVersion connects anew each time, because a client asks the first broker alone, and only once, which other ones there are.
func askVersion(ctx context.Context, cfg kafka.Config) (int, string, error) {
	adm, err := kafka.NewAdmin(cfg)
	if err != nil {
		return 0, "", err
	}
	defer adm.Close()
	all, err := adm.ApiVersions(ctx)
	if err != nil {
		return 0, "", fmt.Errorf("asking brokers for their versions: %w", err)
	}
	version := ""
	for _, v := range all.Sorted() {
		if v.Err != nil {
			return 0, "", fmt.Errorf("asking broker %d for its versions: %w", v.NodeID, v.Err)
		}
		version = v.VersionGuess()
	}
	return len(all), version, nil
}
