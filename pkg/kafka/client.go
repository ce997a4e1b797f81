package kafka

import (
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/plugin/kprom"
	"github.com/twmb/franz-go/plugin/kslog"
)

// dialTimeout bounds the making of a connection. A broker that is down refuses at once, one that is cut
// off does not: kgo's 10 s would eat the whole time in which ingest answers 503.
const dialTimeout = 3 * time.Second

// clientID is the id of the client that a constructor makes.
func (c Config) clientID(role string) string {
	if c.ClientID == "" {
		return "skein-" + role
	}
	return c.ClientID + "-" + role
}

// base are the options of every client. The returned function gives the error of its metrics.
func (c Config) base(role string, metrics bool) ([]kgo.Opt, func() error, error) {
	if err := c.Validate(); err != nil {
		return nil, nil, err
	}
	opts := []kgo.Opt{
		kgo.SeedBrokers(c.Brokers...),
		kgo.ClientID(c.clientID(role)),
		// Names Skein in the brokers' client statistics (KIP-511).
		kgo.SoftwareNameAndVersion("skein", "1"),
		kgo.DialTimeout(dialTimeout),
		// Leaders move while brokers restart. 5 min, the default, is the time it would take to see
		// a partition that was added, which stops the stages.
		kgo.MetadataMaxAge(time.Minute),
		// How soon a client may ask again. The default of 5 s is the pause after a failed leader.
		kgo.MetadataMinAge(250 * time.Millisecond),
		kgo.MaxDecompressBatchBytes(maxUnpackBytes),
		// KIP-714 has brokers collect the clients' metrics. Skein serves its own.
		kgo.DisableClientMetrics(),
	}
	opts = append(opts, c.Security.options()...)
	if c.Logger != nil {
		opts = append(opts, kgo.WithLogger(kslog.New(c.Logger)))
	}
	check := func() error { return nil }
	if c.Registerer != nil && metrics {
		reg := &registerer{Registerer: c.Registerer}
		opts = append(opts, kgo.WithHooks(kprom.NewMetrics("skein", kprom.Subsystem("kafka"),
			kprom.Registerer(reg), kprom.WithClientLabel())))
		check = func() error { return reg.err }
	}
	return opts, check, nil
}

// newClient makes a client of base options and more.
func (c Config) newClient(role string, metrics bool, more ...kgo.Opt) (*kgo.Client, error) {
	opts, check, err := c.base(role, metrics)
	if err != nil {
		return nil, err
	}
	cl, err := kgo.NewClient(slices.Concat(opts, more, c.more())...)
	if err != nil {
		return nil, fmt.Errorf("making Kafka client %s: %w", c.clientID(role), err)
	}
	if err := check(); err != nil {
		cl.Close()
		return nil, fmt.Errorf("making Kafka client %s: %w", c.clientID(role), err)
	}
	return cl, nil
}

// registerer turns kprom's panic on a second client of the same id into an error, and does not take
// the first client's metrics away when the second is closed.
type registerer struct {
	prometheus.Registerer
	err  error
	mine map[prometheus.Collector]bool
}

func (r *registerer) MustRegister(cs ...prometheus.Collector) {
	for _, c := range cs {
		if err := r.Register(c); err != nil {
			if errors.As(err, new(prometheus.AlreadyRegisteredError)) {
				err = errors.New("there is a client of this id with metrics already: give each its own ClientID, or close the first one before")
			}
			r.err = errors.Join(r.err, err)
			return
		}
		if r.mine == nil {
			r.mine = make(map[prometheus.Collector]bool)
		}
		r.mine[c] = true
	}
}

func (r *registerer) Unregister(c prometheus.Collector) bool {
	return r.mine[c] && r.Registerer.Unregister(c)
}
