package kafkatest

import (
	"context"
	"net"
	"strconv"
	"sync"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kfake"
	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/skeinhq/skein/pkg/kafka"
)

// Timeout is how long the helpers of this package wait before they fail the test.
const Timeout = 30 * time.Second

// Cluster is a running cluster.
type Cluster struct {
	Config kafka.Config
	// Fake is for faults: Control, Fault, DeleteRecords, CreateTopic and the like.
	Fake *kfake.Cluster

	dial func(ctx context.Context, network, address string) (net.Conn, error)
	stop sync.Once
}

// Option changes how a cluster is started.
type Option func(*options)

type options struct {
	brokers  int
	dir      string
	port     int
	noTopics bool
	virtual  bool
	fake     []kfake.Opt
}

// WithBrokers sets the number of brokers; else it is 1.
func WithBrokers(n int) Option { return func(o *options) { o.brokers = n } }

// WithDataDir keeps the cluster's data in a folder, from which a later cluster goes on.
func WithDataDir(dir string) Option { return func(o *options) { o.dir = dir } }

// WithPort listens on a port, such as that of a cluster that was stopped.
func WithPort(port int) Option { return func(o *options) { o.port = port } }

// WithoutTopics leaves the cluster empty.
func WithoutTopics() Option { return func(o *options) { o.noTopics = true } }

// Virtual has the cluster listen inside the process, so that it works in a bubble of testing/synctest:
// sockets would keep its time from moving. It answers to clients that are made of its Config only.
func Virtual() Option { return func(o *options) { o.virtual = true } }

// WithFake adds options of kfake.
func WithFake(opts ...kfake.Opt) Option {
	return func(o *options) { o.fake = append(o.fake, opts...) }
}

// Start is StartCluster for tests that need no more than the configuration.
func Start(tb testing.TB, partitions int32, opts ...Option) kafka.Config {
	tb.Helper()
	return StartCluster(tb, partitions, opts...).Config
}

// StartCluster starts a cluster with the four topics. It is stopped when the test ends, after what
// the test has registered later: clients that are closed in a Cleanup are closed first.
func StartCluster(tb testing.TB, partitions int32, opts ...Option) *Cluster {
	tb.Helper()
	o := options{brokers: 1}
	for _, opt := range opts {
		opt(&o)
	}
	fake := []kfake.Opt{
		kfake.NumBrokers(o.brokers),
		kfake.BrokerConfigs(map[string]string{"message.max.bytes": strconv.Itoa(kafka.MaxBatchBytes)}),
	}
	if o.port != 0 {
		fake = append(fake, kfake.Ports(o.port))
	}
	if o.dir != "" {
		fake = append(fake, kfake.DataDir(o.dir))
	}
	var network kfake.VirtualNetwork
	if o.virtual {
		ports := make([]int, o.brokers)
		for i := range ports {
			ports[i] = 9092 + i
		}
		fake = append(fake, kfake.ListenFn(network.Listen), kfake.Ports(ports...))
	}
	cl, err := kfake.NewCluster(append(fake, o.fake...)...)
	if err != nil {
		tb.Fatalf("starting kfake: %v", err)
	}
	c := &Cluster{Fake: cl, Config: kafka.Config{Brokers: cl.ListenAddrs(), ClientID: "test"}, dial: new(net.Dialer).DialContext}
	if o.virtual {
		c.dial = network.DialContext
		c.Config.Options = func() []kgo.Opt {
			return []kgo.Opt{
				kgo.Dialer(c.dial),
				// zstd's decoders are closed by finalizers, and those run outside of the bubble.
				kgo.ProducerBatchCompression(kgo.NoCompression()),
			}
		}
	}
	tb.Cleanup(c.Stop)
	if !o.noTopics {
		ctx, cancel := context.WithTimeout(context.Background(), Timeout)
		defer cancel()
		if _, err := kafka.EnsureTopics(ctx, c.Config, kafka.TopicSpec{Partitions: partitions}); err != nil {
			tb.Fatal(err)
		}
	}
	return c
}

// Stop stops the cluster; a second call does nothing.
func (c *Cluster) Stop() { c.stop.Do(c.Fake.Close) }

// Produce writes records to any topics, each to its own partition, and waits until all are
// acknowledged. The records then have their offsets.
func Produce(tb testing.TB, cfg kafka.Config, records ...*kgo.Record) {
	tb.Helper()
	cfg.Registerer = nil
	cl, err := kafka.NewProducer(cfg)
	if err != nil {
		tb.Fatal(err)
	}
	defer cl.Close()
	ctx, cancel := context.WithTimeout(context.Background(), Timeout)
	defer cancel()
	if err := cl.ProduceSync(ctx, records...).FirstErr(); err != nil {
		tb.Fatalf("producing: %v", err)
	}
}

// Consume reads a whole topic, read_committed, up to where it ends now. Records are in offset order
// within each partition, and partitions follow one another. However long the topic is, the test fails
// only once nothing has come for Timeout.
func Consume(tb testing.TB, cfg kafka.Config, topic string) []*kgo.Record {
	tb.Helper()
	records, err := readAll(context.Background(), cfg, topic)
	if err != nil {
		tb.Fatal(err)
	}
	return records
}

// ConsumeUntil reads a whole topic again and again until done accepts it, and returns what it has
// accepted. Use it for what another process or goroutine is about to write.
func ConsumeUntil(tb testing.TB, cfg kafka.Config, topic string, done func([]*kgo.Record) bool) []*kgo.Record {
	tb.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), Timeout)
	defer cancel()
	tick := time.NewTicker(20 * time.Millisecond)
	defer tick.Stop()
	for {
		records, err := readAll(ctx, cfg, topic)
		if err != nil {
			tb.Fatal(err)
		}
		if done(records) {
			return records
		}
		select {
		case <-ctx.Done():
			tb.Fatalf("%s did not become what was waited for within %v; it has %d records", topic, Timeout, len(records))
		case <-tick.C:
		}
	}
}
