package ingest

import (
	"errors"
	"fmt"
	"time"

	"github.com/skeinhq/skein/pkg/ingest/agents"
	"github.com/skeinhq/skein/pkg/kafka"
	"github.com/skeinhq/skein/pkg/quota"
)

// Config are the settings of the stage.
type Config struct {
	// Kafka names the cluster and the topic set. Its Registerer also gets the stage's metrics.
	Kafka kafka.Config
	// MaxEventBytes is the limit of one event or input; at most kafka.MaxValueBytes.
	MaxEventBytes int
	// AckTimeout, at most MaxAckTimeout, is how long nothing may be acknowledged before a request is answered with 503, and how long
	// the producer tries to have a record acknowledged that it could not send.
	AckTimeout time.Duration
	// AckBeat is how long a stream of acknowledgements may say nothing before it says the last one again.
	AckBeat time.Duration
	// PartitionCheck is how often the partition counts are compared with the pinned one.
	PartitionCheck time.Duration
	// RequestWindow bounds the bytes of one request that are written and not acknowledged. A single event may be larger.
	RequestWindow int
	// Memory bounds what all requests and proxied runs together hold: buffers, decoders, inputs, events that have begun, and what is written
	// and not acknowledged. One tenant may hold three quarters of it, and less where others hold much; a run may have an eighth of it all for
	// its events.
	Memory int
	// Quotas limit each tenant; nil: none are limited.
	Quotas *quota.Quotas
	// TenantMetrics is how many tenants have counters of their own; 0: none.
	TenantMetrics int
	// Agents are those that the proxy calls.
	Agents agents.Config
}

// MaxAckTimeout is the longest AckTimeout. After a signal, a process needs its drain timeout for requests under way, up to 5 s to
// end the rest, and up to AckTimeout and 1 s to wait for Kafka. Orchestrators must wait that long before they kill it: the
// chart's grace period is both timeouts and 15 s.
const MaxAckTimeout = 25 * time.Second

// DefaultMemory holds 10,000 streams that are acknowledged while they send, 2,400 batches at a time, or what 1,000 agents say in nearly
// half a minute, if each says 10 events of 200 bytes a second.
const DefaultMemory = 256 << 20

// DefaultConfig returns the settings of production for the given cluster.
func DefaultConfig(k kafka.Config) Config {
	return Config{
		Kafka:          k,
		MaxEventBytes:  kafka.MaxValueBytes,
		AckTimeout:     12 * time.Second,
		AckBeat:        15 * time.Second,
		PartitionCheck: 15 * time.Second,
		RequestWindow:  4 << 20,
		Memory:         DefaultMemory,
	}
}

// Validate reports every setting that cannot work, all at once.
func (c Config) Validate() error {
	errs := []error{c.Kafka.Validate()}
	bad := func(is bool, format string, args ...any) {
		if is {
			errs = append(errs, fmt.Errorf("ingest: "+format, args...))
		}
	}
	bad(c.MaxEventBytes < 1 || c.MaxEventBytes > kafka.MaxValueBytes, "event limit %d must be between 1 and %d", c.MaxEventBytes,
		kafka.MaxValueBytes)
	bad(c.AckTimeout <= 0 || c.AckTimeout > MaxAckTimeout, "acknowledgement timeout %s must be more than 0 and at most %s", c.AckTimeout, MaxAckTimeout)
	bad(c.AckBeat <= 0, "interval %s of acknowledgements must be positive", c.AckBeat)
	bad(c.PartitionCheck <= 0, "partition check interval %s must be positive", c.PartitionCheck)
	bad(c.RequestWindow < 1, "request window %d must be positive", c.RequestWindow)
	least := max(2*(max(c.RequestWindow, 3*(c.MaxEventBytes+inputSlack))+readBuffer+requestBase), runShare*(c.MaxEventBytes+recordOverhead))
	bad(c.Memory < least, "memory %d must be at least %d: a run has room for the largest event in an eighth of it, a tenant in half of it for three", c.Memory, least)
	return errors.Join(errs...)
}
