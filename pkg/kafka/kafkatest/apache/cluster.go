package apache

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"net"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/skeinhq/skein/test/parts"
)

// ClusterID is an arbitrary UUID in base64. All clusters may share it, because they never connect to each other.
const ClusterID = "c2tlaW4tdGVzdC1rYWZrYQ"

// Options are the settings of a cluster.
type Options struct {
	// Nodes is the number of nodes, 1 or 3. Each is a broker and a controller. A test that kills nodes during transactions
	// needs 3: if a single node dies between the decision to commit and the markers, it may never write the markers, and
	// the committed records stay invisible.
	Nodes int
	// Settings are broker settings that extend or override Settings(Nodes).
	Settings map[string]string
	// Heap is the maximum heap of each node, as a value of Java's -Xmx; "" means 384m.
	Heap string
	// Long lets Java compile as for a long life, which a measurement wants of a broker. By default, nodes compile fast and only once.
	Long bool
	// Security, if not nil, adds three listeners that require authentication.
	Security *Security
}

// Cluster is a running cluster. Nodes are numbered from 1.
type Cluster struct {
	dir      string
	brokers  []string
	secured  map[string][]string // addresses of each listener
	watchdog *watchdog

	mu     sync.Mutex
	nodes  []*node
	closed bool
}

// Start fetches missing jars, starts the nodes and returns when all nodes answer. Set a deadline on ctx; three nodes on
// two cores take about 10 s. The error is a *parts.UnavailableError if this machine has no Java, or neither has nor can
// fetch the jars.
func Start(ctx context.Context, o Options) (*Cluster, error) {
	if o.Nodes != 1 && o.Nodes != 3 {
		return nil, fmt.Errorf("starting Kafka: %d nodes: want 1 or 3", o.Nodes)
	}
	if err := supported(); err != nil {
		return nil, err
	}
	java, err := parts.Java(ctx)
	if err != nil {
		return nil, err
	}
	jars, err := Jars(ctx)
	if err != nil {
		return nil, err
	}
	// Another process may take a port between the search and the start.
	const tries = 3
	for try := 1; ; try++ {
		c, err := start(ctx, java, jars, o)
		if err == nil || try == tries || !errors.Is(err, errPortTaken) {
			return c, err
		}
	}
}

func start(ctx context.Context, java, jars string, o Options) (*Cluster, error) {
	dir, err := os.MkdirTemp("", "skein-kafka-")
	if err != nil {
		return nil, fmt.Errorf("starting Kafka: %w", err)
	}
	c := &Cluster{dir: dir, secured: make(map[string][]string)}
	if c.watchdog, err = startWatchdog(dir); err != nil {
		return nil, errors.Join(err, os.RemoveAll(dir))
	}
	if err := c.startNodes(ctx, java, jars, o); err != nil {
		return nil, errors.Join(err, c.Close())
	}
	return c, nil
}

func (c *Cluster) startNodes(ctx context.Context, java, jars string, o Options) error {
	ports, err := FreePorts(5 * o.Nodes)
	if err != nil {
		return fmt.Errorf("starting Kafka: %w", err)
	}
	heap := o.Heap
	if heap == "" {
		heap = "384m"
	}
	address := func(i int) string { return net.JoinHostPort("127.0.0.1", strconv.Itoa(ports[i])) }
	var voters []string
	for i := range o.Nodes {
		c.brokers = append(c.brokers, address(i))
		voters = append(voters, strconv.Itoa(i+1)+"@"+address(o.Nodes+i))
	}
	for i := range o.Nodes {
		n := &node{dir: filepath.Join(c.dir, "n"+strconv.Itoa(i+1)), id: i + 1, java: java, jars: jars, heap: heap, long: o.Long}
		settings := Settings(o.Nodes)
		clients := "PLAINTEXT://" + address(i)
		if o.Security != nil {
			for l, listener := range []string{Login, MutualTLS, OAuth} {
				at := address((2+l)*o.Nodes + i)
				c.secured[listener] = append(c.secured[listener], at)
				clients += "," + listener + "://" + at
			}
			maps.Copy(settings, o.Security.settings())
			n.properties = []string{"-Dorg.apache.kafka.sasl.oauthbearer.allowed.urls=file://" + o.Security.KeysFile}
		}
		maps.Copy(settings, o.Settings)
		maps.Copy(settings, map[string]string{
			"node.id":                  strconv.Itoa(n.id),
			"broker.rack":              Rack(n.id),
			"controller.quorum.voters": strings.Join(voters, ","),
			"listeners":                clients + ",CONTROLLER://" + address(o.Nodes+i),
			"advertised.listeners":     clients,
			"listener.security.protocol.map": "PLAINTEXT:PLAINTEXT,CONTROLLER:PLAINTEXT," + Login + ":SASL_SSL," + OAuth + ":SASL_SSL," +
				MutualTLS + ":SSL",
			"inter.broker.listener.name": "PLAINTEXT",
			"log.dirs":                   filepath.Join(n.dir, "data"),
		})
		if err := n.configure(settings); err != nil {
			return err
		}
		c.nodes = append(c.nodes, n)
	}
	if err := each(c.nodes, func(n *node) error { return n.format(ctx) }); err != nil {
		return err
	}
	return each(c.nodes, func(n *node) error { return n.up(ctx) })
}

// each calls f for all nodes concurrently, because a node becomes ready only with a majority of the nodes.
func each(nodes []*node, f func(*node) error) error {
	errs := make([]error, len(nodes))
	var wg sync.WaitGroup
	for i, n := range nodes {
		wg.Go(func() { errs[i] = f(n) })
	}
	wg.Wait()
	return errors.Join(errs...)
}

// Version returns a description with the version that the brokers log when they start.
func (c *Cluster) Version() string {
	c.mu.Lock()
	defer c.mu.Unlock()
	return "Apache Kafka " + c.nodes[0].version() + " from Maven jars"
}

// Brokers returns the addresses of all nodes, running or not.
func (c *Cluster) Brokers() []string { return append([]string(nil), c.brokers...) }

// Secured returns the addresses of all nodes for a listener that Options.Security adds.
func (c *Cluster) Secured(listener string) []string {
	return append([]string(nil), c.secured[listener]...)
}

// Kill ends a node with SIGKILL. It does nothing if the node is down.
func (c *Cluster) Kill(id int) error { return c.with(id, (*node).kill) }

// Stop ends a node with SIGTERM. The node transfers its partitions first.
func (c *Cluster) Stop(id int) error { return c.with(id, (*node).stop) }

// Up starts a node that is down and returns when it answers.
func (c *Cluster) Up(ctx context.Context, id int) error {
	return c.with(id, func(n *node) error { return n.up(ctx) })
}

// Pause stops a node with SIGSTOP. Its connections stay open but get no response.
func (c *Cluster) Pause(id int) error { return c.with(id, (*node).pause) }

// Resume continues a paused node.
func (c *Cluster) Resume(id int) error { return c.with(id, (*node).resume) }

func (c *Cluster) with(id int, f func(*node) error) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	if id < 1 || id > len(c.nodes) {
		return fmt.Errorf("there is no node %d: nodes are 1 to %d", id, len(c.nodes))
	}
	if c.closed {
		return errors.New("the cluster is closed")
	}
	return f(c.nodes[id-1])
}

// Logs returns the last warnings and errors of the nodes' logs, for the output of a failed test.
func (c *Cluster) Logs() string {
	c.mu.Lock()
	defer c.mu.Unlock()
	var b strings.Builder
	for _, n := range c.nodes {
		fmt.Fprintf(&b, "node %d:\n%s", n.id, n.warnings())
	}
	return b.String()
}

// Close kills all nodes and removes their data.
func (c *Cluster) Close() error {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.closed {
		return nil
	}
	c.closed = true
	var errs []error
	for _, n := range c.nodes {
		errs = append(errs, n.kill())
	}
	return errors.Join(append(errs, c.watchdog.close())...)
}

// readyTimeout is how long a node may take to start. On two busy cores, three nodes need almost a minute.
const readyTimeout = 2 * time.Minute
