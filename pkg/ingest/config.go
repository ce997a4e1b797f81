package ingest

import (
	"crypto/tls"
	"errors"
	"fmt"
	"time"

	"github.com/skeinhq/skein/internal/front"
	"github.com/skeinhq/skein/internal/trace"
	"github.com/skeinhq/skein/pkg/ingest/agents"
	"github.com/skeinhq/skein/pkg/kafka"
	"github.com/skeinhq/skein/pkg/quota"
)

// Config contains the settings of the stage.
type Config struct {
	// Kafka configures the cluster and the topic set. The stage registers its own metrics at Kafka.Registerer, too.
	Kafka kafka.Config
	// MaxEventBytes is the size limit of an event or input; at most kafka.MaxValueBytes.
	MaxEventBytes int
	// AckTimeout is how long ingest waits without any acknowledgement by Kafka before it answers a request with 503. It is
	// also how long the producer tries to send a record. At most MaxAckTimeout.
	AckTimeout time.Duration
	// Heartbeat is the longest pause in a stream of acknowledgements or of a proxied run. Then the last acknowledgement is
	// repeated, or a comment is sent.
	Heartbeat time.Duration
	// PartitionCheck is the interval at which the partition counts are compared with the pinned count.
	PartitionCheck time.Duration
	// RequestWindow limits the unacknowledged bytes of one request. A single event may be larger.
	RequestWindow int
	// Memory limits the bytes of all requests and proxied runs: buffers, decoders, inputs, incomplete events and
	// unacknowledged records. A tenant may use three quarters of it, or less while others use much; a run may use an
	// eighth for its events.
	Memory int
	// Quotas limit each tenant; nil: no limits.
	Quotas *quota.Quotas
	// TenantMetrics is how many tenants have their own counters; 0: none.
	TenantMetrics int
	// QueryURL is the URL at which callers reach the query stage; "" if it is not known. Refusals of reads name it.
	QueryURL string
	// QueryInternalURL is the URL at which the stage itself reaches query, to ask whether a run that is to be stopped has
	// ended; "" is QueryURL. QueryTLS is for https; nil means Go's defaults.
	QueryInternalURL string
	QueryTLS         *tls.Config
	// Agents are the agents that the proxy may call.
	Agents agents.Config
	// Tracer makes the spans of requests and of the records that they write; nil: none.
	Tracer *trace.Tracer
}

// MaxAckTimeout is the longest AckTimeout. After a signal, a process needs its drain timeout for requests in progress,
// up to 5 s to end the rest, and up to AckTimeout + 1 s to wait for Kafka. Orchestrators must not kill it earlier, so
// the chart's grace period is drain timeout + AckTimeout + 15 s.
const MaxAckTimeout = 25 * time.Second

// DefaultMemory suffices for 10,000 streams that are acknowledged while they send, or 2,400 concurrent batches, or the
// output of 1,000 agents for nearly half a minute, if each sends 10 events of 200 bytes a second.
const DefaultMemory = 256 << 20

// DefaultConfig returns production settings for a cluster.
func DefaultConfig(k kafka.Config) Config {
	return Config{
		Kafka:          k,
		MaxEventBytes:  kafka.MaxValueBytes,
		AckTimeout:     12 * time.Second,
		Heartbeat:      15 * time.Second,
		PartitionCheck: 15 * time.Second,
		RequestWindow:  4 << 20,
		Memory:         DefaultMemory,
	}
}

// Validate returns all invalid settings as one error.
func (c Config) Validate() error {
	errs := []error{c.Kafka.Validate(), front.ValidateURL("ingest: query-url", c.QueryURL),
		front.ValidateURL("ingest: query-internal-url", c.QueryInternalURL)}
	bad := func(is bool, format string, args ...any) {
		if is {
			errs = append(errs, fmt.Errorf("ingest: "+format, args...))
		}
	}
	bad(c.MaxEventBytes < 1 || c.MaxEventBytes > kafka.MaxValueBytes, "event limit %d must be between 1 and %d", c.MaxEventBytes,
		kafka.MaxValueBytes)
	bad(c.AckTimeout <= 0 || c.AckTimeout > MaxAckTimeout, "acknowledgement timeout %s must be more than 0 and at most %s", c.AckTimeout, MaxAckTimeout)
	bad(c.Heartbeat <= 0, "stream heartbeat %s must be positive", c.Heartbeat)
	bad(c.PartitionCheck <= 0, "partition check interval %s must be positive", c.PartitionCheck)
	bad(c.RequestWindow < 1, "request window %d must be positive", c.RequestWindow)
	least := max(2*(max(c.RequestWindow, 3*(c.MaxEventBytes+inputSlack))+readBuffer+requestBase), runShare*(c.MaxEventBytes+recordOverhead))
	bad(c.Memory < least, "memory %d must be at least %d: a run has room for the largest event in an eighth of it, a tenant in half of it for three", c.Memory, least)
	return errors.Join(errs...)
}
