package kafkatest

import (
	"context"
	"net"
	"strconv"
	"sync"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kfake"
	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/skeinhq/skein/pkg/kafka"
)

// Timeout is how long the helpers of this package wait before they fail the test.
const Timeout = 30 * time.Second

// Cluster is a running kfake cluster.
type Cluster struct {
	Config kafka.Config
	// Fake allows tests to inject faults with Control, Fault, DeleteRecords, CreateTopic and the like.
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

// WithBrokers sets the number of brokers; the default is 1.
func WithBrokers(n int) Option { return func(o *options) { o.brokers = n } }

// WithDataDir stores the cluster's data in a folder, from which a later cluster can continue.
func WithDataDir(dir string) Option { return func(o *options) { o.dir = dir } }

// WithPort makes the cluster listen on a given port, such as that of a stopped cluster.
func WithPort(port int) Option { return func(o *options) { o.port = port } }

// WithoutTopics starts the cluster without topics.
func WithoutTopics() Option { return func(o *options) { o.noTopics = true } }

// Virtual makes the cluster listen inside the process, so that it works in a bubble of testing/synctest. With sockets,
// the time of the bubble would not advance. Only clients that are made from the cluster's Config can connect.
func Virtual() Option { return func(o *options) { o.virtual = true } }

// WithFake adds options of kfake.
func WithFake(opts ...kfake.Opt) Option {
	return func(o *options) { o.fake = append(o.fake, opts...) }
}

// Start is StartCluster for tests that need only the configuration.
func Start(tb testing.TB, partitions int32, opts ...Option) kafka.Config {
	tb.Helper()
	return StartCluster(tb, partitions, opts...).Config
}

// StartCluster starts a cluster with the four topics. The cluster stops at the end of the test, after all cleanups that
// were registered later, such as those that close clients.
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
				// No compression, because finalizers close zstd's decoders, and they run outside the bubble.
				kgo.ProducerBatchCompression(kgo.NoCompression()),
			}
		}
	}
	tb.Cleanup(c.Stop)
	if !o.noTopics {
		ctx, cancel := context.WithTimeout(context.Background(), Timeout)
		defer cancel()
		cfg := c.Config
		cfg.Options = func() []kgo.Opt { // kgo must not cache for long that the topics do not exist
			opts := []kgo.Opt{kgo.MetadataMinAge(10 * time.Millisecond)}
			if c.Config.Options != nil {
				opts = append(opts, c.Config.Options()...)
			}
			return opts
		}
		if _, err := kafka.EnsureTopics(ctx, cfg, kafka.TopicSpec{Partitions: partitions}); err != nil {
			tb.Fatal(err)
		}
	}
	return c
}

// Stop stops the cluster. Further calls do nothing.
func (c *Cluster) Stop() { c.stop.Do(c.Fake.Close) }

// Admin returns an admin client, which closes at the end of the test.
func Admin(tb testing.TB, cfg kafka.Config) *kadm.Client {
	tb.Helper()
	adm, err := kafka.NewAdmin(cfg)
	if err != nil {
		tb.Fatal(err)
	}
	tb.Cleanup(adm.Close)
	return adm
}

// Eventually asks every 10 ms until the answer is true, and fails the test after Timeout.
func Eventually(tb testing.TB, what string, is func() bool) {
	tb.Helper()
	for deadline := time.Now().Add(Timeout); !is(); time.Sleep(10 * time.Millisecond) {
		if time.Now().After(deadline) {
			tb.Fatalf("waited in vain until %s", what)
		}
	}
}

// Produce writes records, each to the topic and partition that it names, and waits until all are acknowledged.
// Afterwards, the records have their offsets.
func Produce(tb testing.TB, cfg kafka.Config, records ...*kgo.Record) {
	tb.Helper()
	cfg.Registerer = nil
	cl, err := kafka.NewProducer(cfg, kgo.RecordDeliveryTimeout(100*365*24*time.Hour)) // which counts from the records' timestamps
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

// Header returns a record's header, "" where it has none of that name.
func Header(m *kgo.Record, name string) string {
	for _, h := range m.Headers {
		if h.Key == name {
			return string(h.Value)
		}
	}
	return ""
}

// Consume reads a whole topic, read_committed, up to its current end. It sorts the records by partition, then offset.
// The test fails if no record arrives for 30 s; a long topic may take longer in total.
func Consume(tb testing.TB, cfg kafka.Config, topic string) []*kgo.Record {
	tb.Helper()
	records, err := readAll(context.Background(), cfg, topic)
	if err != nil {
		tb.Fatal(err)
	}
	return records
}

// ConsumeUntil reads a whole topic repeatedly until done returns true for its records, and returns these. Use it to
// wait for records of another process or goroutine.
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
