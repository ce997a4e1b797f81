package indexer

import (
	"errors"
	"fmt"
	"log/slog"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/skeinhq/skein/internal/trace"
	"github.com/skeinhq/skein/pkg/kafka"
)

// Config is the indexer's configuration. Begin with DefaultConfig.
type Config struct {
	// Kafka names the brokers and topics.
	Kafka kafka.Config
	// InstanceID is this process's name in the group, the same after a restart (a pod's name). A process that is killed and starts
	// again within 10 s gets its partitions at once. A second process of the name fences the first. If InstanceID is empty, nobody
	// reads the partitions of a killed process for 10 s.
	InstanceID string
	// 10,000 records and MaxBytes bound one block: it is written once it reaches one of them, or MaxDelay after the previous block, and
	// that one is written. After a pause a block is written at once.
	// A record counts as its bytes plus 256 for each message and tool call and 2,048 for the run; a record above MaxBytes is a block
	// of its own.
	MaxBytes int64
	MaxDelay time.Duration
	// Tracer makes the spans of blocks; nil: none.
	Tracer     *trace.Tracer
	Logger     *slog.Logger
	Registerer prometheus.Registerer

	maxRecords int // of a block
	// minBackoff and maxBackoff bound the pauses between tries while the store or Kafka is away.
	minBackoff, maxBackoff time.Duration
	// drainTimeout is how long the last block may take after Run's context has ended.
	drainTimeout time.Duration
}

// DefaultConfig returns the defaults for a topic set. MaxDelay suits ClickHouse, which must merge the parts that each block adds to
// several tables. A store with cheap small blocks can have a shorter one.
func DefaultConfig(k kafka.Config) Config {
	return Config{
		Kafka:        k,
		maxRecords:   10_000,
		MaxBytes:     40 << 20,
		MaxDelay:     500 * time.Millisecond,
		minBackoff:   100 * time.Millisecond,
		maxBackoff:   10 * time.Second,
		drainTimeout: 10 * time.Second,
		Logger:       slog.Default(),
		Registerer:   prometheus.DefaultRegisterer,
	}
}

// Validate returns all errors of the configuration.
func (c Config) Validate() error {
	var errs []error
	wrong := func(is bool, format string, args ...any) {
		if is {
			errs = append(errs, fmt.Errorf("indexer: "+format, args...))
		}
	}
	if err := c.Kafka.Validate(); err != nil {
		errs = append(errs, fmt.Errorf("indexer: %w", err))
	}
	wrong(c.MaxBytes < 1, "a block of %d bytes; at least 1 is needed", c.MaxBytes)
	wrong(c.MaxDelay <= 0, "a block's delay of %v; it must be above zero", c.MaxDelay)
	wrong(c.MaxDelay > 30*time.Second, "a block's delay of %v; 30s is the most", c.MaxDelay)
	wrong(c.Logger == nil, "a logger is needed")
	wrong(c.Registerer == nil, "a metrics registerer is needed")
	return errors.Join(errs...)
}
