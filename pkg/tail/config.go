package tail

import (
	"log/slog"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/skeinhq/skein/pkg/kafka"
)

// Config are the settings of a Tail.
type Config struct {
	// RingBytes limits the memory of the records in the rings of all partitions together. Each partition that is read
	// gets an equal share.
	RingBytes int
	// Keep reports whether readers want a record; nil: all. Rings leave out others, but readers that catch up from the log return them.
	Keep func(*kgo.Record) bool
	// Linger is how long a partition is still read after its last reader has left.
	Linger time.Duration
	// Window is the number of offsets before the end of the log at which a partition's ring starts. A reader that needs
	// older records catches up by itself, and so does one that would wait until the window was read.
	Window int64
	// Since narrows the window to the records that are not older than this; 0: it does not.
	Since time.Duration
	// CatchUps limits how many readers catch up from the log at the same time; others wait. Tenants share this number
	// (share.Pool): a single tenant may use half of it.
	CatchUps int
	// Fetch has further options for the Kafka client of the fetch loop.
	Fetch []kgo.Opt
	// Away is how long brokers may be silent before readers get Batch.Away.
	Away time.Duration

	Kafka      kafka.Config
	Logger     *slog.Logger
	Registerer prometheus.Registerer
}

// DefaultConfig returns the settings of production for a topic set.
func DefaultConfig(k kafka.Config) Config {
	return Config{
		RingBytes: 64 << 20, Linger: 30 * time.Second, Window: 20_000, CatchUps: 8, Away: 5 * time.Second,
		Kafka: k, Logger: slog.Default(), Registerer: prometheus.DefaultRegisterer,
	}
}
