package kafkatest

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/netip"
	"os"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/moby/moby/api/types/container"
	"github.com/moby/moby/api/types/network"
	"github.com/moby/moby/client"
	"github.com/testcontainers/testcontainers-go"
	tcnetwork "github.com/testcontainers/testcontainers-go/network"
	"github.com/testcontainers/testcontainers-go/wait"

	"github.com/skeinhq/skein/pkg/kafka/kafkatest/apache"
	"github.com/skeinhq/skein/test/parts"
)

// image is the broker image of the containers, which docker-compose.yml also uses.
var image = "apache/kafka:" + apache.Tested

// dockerTimeout is how long a Docker daemon may take to answer. After that, it counts as absent.
const dockerTimeout = 3 * time.Second

// dockerAnswers reports whether there is a Docker daemon that has or can pull the image. Only the first call checks. If
// a daemon answers but cannot provide the image, dockerAnswers prints the reason to stderr.
func dockerAnswers(whole context.Context) bool {
	asked.Do(func() {
		ctx, cancel := context.WithTimeout(whole, dockerTimeout)
		defer cancel()
		answer := make(chan bool, 1)
		go func() {
			// If the library finds no daemon, it may panic instead of returning an error.
			defer func() {
				if recover() != nil {
					answer <- false
				}
			}()
			p, err := testcontainers.NewDockerProvider()
			if err != nil {
				answer <- false
				return
			}
			err = p.Health(ctx)
			answer <- errors.Join(err, p.Close()) == nil
		}()
		select {
		case answered = <-answer:
		case <-ctx.Done():
		}
		if !answered {
			return
		}
		p, err := testcontainers.NewDockerProvider()
		if err == nil {
			err = errors.Join(parts.Image(whole, p.Client(), image), p.Close())
		}
		if err != nil {
			answered = false
			_, _ = fmt.Fprintf(os.Stderr, "%v; tests use Apache Kafka's jars in its place\n", err) // lost if stderr is closed
		}
	})
	return answered
}

var (
	asked    sync.Once
	answered bool
)

// containers is a cluster in Docker. The ports of the brokers have the same numbers on 127.0.0.1 as inside the
// containers, because clients connect to the addresses that brokers advertise.
type containers struct {
	docker  client.APIClient
	network *testcontainers.DockerNetwork
	brokers []string
	version string

	mu    sync.Mutex
	nodes []*testcontainers.DockerContainer
}

func startContainers(ctx context.Context, count int, settings map[string]string) (_ *containers, err error) {
	p, err := testcontainers.NewDockerProvider()
	if err != nil {
		return nil, fmt.Errorf("connecting to Docker: %w", err)
	}
	c := &containers{docker: p.Client(), version: "Apache Kafka in Docker, image " + image,
		nodes: make([]*testcontainers.DockerContainer, count)}
	defer func() {
		if err != nil {
			err = errors.Join(err, c.Close())
		}
	}()
	if c.network, err = tcnetwork.New(ctx); err != nil {
		return nil, fmt.Errorf("making Docker network: %w", err)
	}
	ports, err := apache.FreePorts(count)
	if err != nil {
		return nil, err
	}
	var voters []string
	for i, port := range ports {
		c.brokers = append(c.brokers, net.JoinHostPort("127.0.0.1", strconv.Itoa(port)))
		voters = append(voters, fmt.Sprintf("%d@%s:9093", i+1, nodeName(i)))
	}
	// Start all nodes at once, because none is ready before the controllers have a majority.
	errs := make([]error, count)
	var wg sync.WaitGroup
	for i, port := range ports {
		wg.Go(func() {
			env := map[string]string{
				"CLUSTER_ID":      apache.ClusterID,
				"KAFKA_HEAP_OPTS": "-Xmx384m",
			}
			for _, more := range []map[string]string{apache.Settings(count), settings, {
				"node.id":                        strconv.Itoa(i + 1),
				"broker.rack":                    apache.Rack(i + 1),
				"controller.quorum.voters":       strings.Join(voters, ","),
				"listeners":                      fmt.Sprintf("PLAINTEXT://:%d,INTERNAL://:9094,CONTROLLER://:9093", port),
				"advertised.listeners":           fmt.Sprintf("PLAINTEXT://127.0.0.1:%d,INTERNAL://%s:9094", port, nodeName(i)),
				"listener.security.protocol.map": "PLAINTEXT:PLAINTEXT,INTERNAL:PLAINTEXT,CONTROLLER:PLAINTEXT",
				"inter.broker.listener.name":     "INTERNAL",
			}} {
				for key, value := range more {
					env[variable(key)] = value
				}
			}
			c.nodes[i], errs[i] = c.run(ctx, i, port, env)
		})
	}
	wg.Wait()
	if err := errors.Join(errs...); err != nil {
		return nil, err
	}
	return c, nil
}

func nodeName(i int) string { return "kafka-" + strconv.Itoa(i+1) }

// variable returns the environment variable with which the image sets a broker setting.
func variable(key string) string {
	return "KAFKA_" + strings.ToUpper(strings.ReplaceAll(key, ".", "_"))
}

func (c *containers) run(ctx context.Context, i, port int, env map[string]string) (*testcontainers.DockerContainer, error) {
	inside, err := network.ParsePort(fmt.Sprintf("%d/tcp", port))
	if err != nil {
		return nil, fmt.Errorf("starting Kafka container: %w", err)
	}
	ctr, err := testcontainers.Run(ctx, image,
		testcontainers.WithEnv(env),
		testcontainers.WithExposedPorts(inside.String()),
		testcontainers.WithHostConfigModifier(func(h *container.HostConfig) {
			h.PortBindings = network.PortMap{inside: {{HostIP: netip.AddrFrom4([4]byte{127, 0, 0, 1}), HostPort: strconv.Itoa(port)}}}
		}),
		tcnetwork.WithNetwork([]string{nodeName(i)}, c.network),
		// Without a timeout of its own the strategy gives up after a minute.
		testcontainers.WithWaitStrategyAndDeadline(startTimeout, wait.ForLog("Kafka Server started").WithStartupTimeout(startTimeout)),
	)
	if err != nil {
		return ctr, fmt.Errorf("starting Kafka container: %w", err)
	}
	return ctr, nil
}

func (c *containers) Brokers() []string { return append([]string(nil), c.brokers...) }
func (c *containers) Version() string   { return c.version }

func (c *containers) with(id int, f func(*testcontainers.DockerContainer) error) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	if id < 1 || id > len(c.nodes) {
		return fmt.Errorf("there is no node %d: nodes are 1 to %d", id, len(c.nodes))
	}
	return f(c.nodes[id-1])
}

func (c *containers) Kill(id int) error {
	return c.with(id, func(n *testcontainers.DockerContainer) error {
		ctx := context.Background()
		if _, err := c.docker.ContainerKill(ctx, n.GetContainerID(), client.ContainerKillOptions{Signal: "KILL"}); err != nil {
			return fmt.Errorf("killing node %d: %w", id, err)
		}
		return nil
	})
}

func (c *containers) Stop(id int) error {
	return c.with(id, func(n *testcontainers.DockerContainer) error {
		patience := 30 * time.Second
		return n.Stop(context.Background(), &patience)
	})
}

func (c *containers) Up(ctx context.Context, id int) error {
	return c.with(id, func(n *testcontainers.DockerContainer) error { return c.up(ctx, id, n) })
}

// up starts a stopped container and waits until its broker accepts connections. Unlike run, it cannot wait for a log
// line, because the container's log still contains that of the first start.
func (c *containers) up(ctx context.Context, id int, n *testcontainers.DockerContainer) error {
	state, err := n.State(ctx)
	if err != nil {
		return fmt.Errorf("starting node %d: %w", id, err)
	}
	if state.Paused {
		if _, err := c.docker.ContainerUnpause(ctx, n.GetContainerID(), client.ContainerUnpauseOptions{}); err != nil {
			return fmt.Errorf("resuming node %d: %w", id, err)
		}
	}
	if state.Running {
		return nil
	}
	if err := n.Start(ctx); err != nil {
		return fmt.Errorf("starting node %d: %w", id, err)
	}
	tick := time.NewTicker(100 * time.Millisecond)
	defer tick.Stop()
	for {
		conn, err := (&net.Dialer{}).DialContext(ctx, "tcp", c.brokers[id-1])
		if err == nil {
			return conn.Close()
		}
		select {
		case <-ctx.Done():
			return fmt.Errorf("starting node %d: %w", id, err)
		case <-tick.C:
		}
	}
}

func (c *containers) Pause(id int) error {
	return c.with(id, func(n *testcontainers.DockerContainer) error {
		_, err := c.docker.ContainerPause(context.Background(), n.GetContainerID(), client.ContainerPauseOptions{})
		return err
	})
}

func (c *containers) Resume(id int) error {
	return c.with(id, func(n *testcontainers.DockerContainer) error {
		_, err := c.docker.ContainerUnpause(context.Background(), n.GetContainerID(), client.ContainerUnpauseOptions{})
		return err
	})
}

func (c *containers) Logs() string {
	const last = 8 << 10
	var b strings.Builder
	for i, n := range c.nodes {
		fmt.Fprintf(&b, "node %d:\n", i+1)
		logs, err := n.Logs(context.Background())
		if err != nil {
			fmt.Fprintln(&b, err)
			continue
		}
		all, err := io.ReadAll(logs)
		_ = logs.Close() // opened for reading only
		b.Write(all[max(0, len(all)-last):])
		if err != nil {
			fmt.Fprintln(&b, err)
		}
	}
	return b.String()
}

func (c *containers) Close() error {
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	var errs []error
	for _, n := range c.nodes {
		if n != nil {
			errs = append(errs, n.Terminate(ctx, testcontainers.StopTimeout(0)))
		}
	}
	if c.network != nil {
		errs = append(errs, c.network.Remove(ctx))
	}
	return errors.Join(append(errs, c.docker.Close())...)
}
