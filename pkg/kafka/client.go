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

// dialTimeout limits the time to connect to a broker. During a network failure, connections are not refused at once. With kgo's
// default of 10 s, connecting alone would use up DeliveryTimeout, and then ingest answers 503.
const dialTimeout = 3 * time.Second

// rackInterval is how long a reader with a rack reads from a follower before it asks the leader again.
const rackInterval = 5 * time.Second

// clientID returns the id of a client for a role.
func (c Config) clientID(role string) string {
	if c.ClientID == "" {
		return "skein-" + role
	}
	return c.ClientID + "-" + role
}

// base returns the options of every client, and a function that, once the client is made, returns errors of registering metrics.
func (c Config) base(role string, metrics bool) ([]kgo.Opt, func() error, error) {
	if err := c.Validate(); err != nil {
		return nil, nil, err
	}
	opts := []kgo.Opt{
		kgo.SeedBrokers(c.Brokers...),
		kgo.ClientID(c.clientID(role)),
		// Brokers list clients by software name in their statistics (KIP-511).
		kgo.SoftwareNameAndVersion("skein", "1"),
		kgo.DialTimeout(dialTimeout),
		// Stages must stop soon after a partition is added. With the default of 5 min, they would notice it too late.
		kgo.MetadataMaxAge(time.Minute),
		// After a leader has failed, a client waits at least this long before it asks for the new leader. The default is 5 s.
		kgo.MetadataMinAge(250 * time.Millisecond),
		kgo.MaxDecompressBatchBytes(maxUnpackBytes),
		// Do not send the client's metrics to brokers (KIP-714), because Skein serves its own.
		kgo.DisableClientMetrics(),
	}
	opts = append(opts, c.Security.options(c.Logger)...)
	if c.Rack != "" {
		opts = append(opts, kgo.Rack(c.Rack),
			// If the node in the rack goes away, kgo reads nothing until this has passed; then the leader names another one, or none.
			// The default is 30 min. It costs a request to the leader.
			kgo.RecheckPreferredReplicaInterval(rackInterval))
	}
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

// newClient makes a client with the base options, the options of more, and Config.Options.
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

// registerer stores an error where kprom would panic, such as for a second client with the same id. Closing that client leaves the
// first client's metrics registered.
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
