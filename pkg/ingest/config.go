package ingest

import (
	"errors"
	"fmt"
	"time"

	"github.com/skeinhq/skein/pkg/kafka"
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
	// RequestWindow and TotalWindow bound the bytes that are written and not acknowledged, of one
	// request and of all. A single event may be larger than RequestWindow, never than TotalWindow.
	RequestWindow, TotalWindow int
}

// MaxAckTimeout is the longest AckTimeout. A process that is told to stop may take 15 s for requests that are under
// way and then waits for Kafka this long: orchestrators kill it where that takes too long, after 45 s in the chart.
const MaxAckTimeout = 25 * time.Second

// DefaultConfig returns the settings of production for the given cluster.
func DefaultConfig(k kafka.Config) Config {
	return Config{
		Kafka:          k,
		MaxEventBytes:  kafka.MaxValueBytes,
		AckTimeout:     12 * time.Second,
		AckBeat:        15 * time.Second,
		PartitionCheck: 15 * time.Second,
		RequestWindow:  4 << 20,
		TotalWindow:    128 << 20,
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
	bad(c.MaxEventBytes < 1 || c.MaxEventBytes > kafka.MaxValueBytes, "event limit %d must be between 1 and %d", c.MaxEventBytes, kafka.MaxValueBytes)
	bad(c.AckTimeout <= 0 || c.AckTimeout > MaxAckTimeout, "acknowledgement timeout %s must be more than 0 and at most %s", c.AckTimeout, MaxAckTimeout)
	bad(c.AckBeat <= 0, "interval %s of acknowledgements must be positive", c.AckBeat)
	bad(c.PartitionCheck <= 0, "partition check interval %s must be positive", c.PartitionCheck)
	bad(c.RequestWindow < 1, "request window %d must be positive", c.RequestWindow)
	bad(c.TotalWindow < c.RequestWindow || c.TotalWindow < c.MaxEventBytes+recordOverhead, "total window %d must hold a request's window and the largest event", c.TotalWindow)
	return errors.Join(errs...)
}
