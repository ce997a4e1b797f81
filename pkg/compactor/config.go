package compactor

import (
	"errors"
	"fmt"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/skeinhq/skein/internal/trace"
	"github.com/skeinhq/skein/pkg/compactor/partition"
)

// Config has the settings of the stage. DefaultConfig sets all but Dir and InstanceID.
type Config struct {
	// Dir is the folder of the local stores, with a sub-folder for each partition. One process owns it.
	Dir string
	// InstanceID is this process's own name in the group, stable over restarts (a pod's name), so that a restart within
	// the session timeout causes no rebalance. The transactional id is derived from it, so a second process with the same
	// name fences the first.
	InstanceID string

	// CommitInterval is how long the stage gathers events before it commits them, and so the longest time before a sealed
	// run becomes visible. It is half as long if a run ended, and up to a second while the stage lags.
	CommitInterval time.Duration
	// Partition has the settings of each partition.
	partition.Config

	// Registerer receives the metrics of the stage and of the TenantMetrics largest tenants; nil registers none.
	Registerer    prometheus.Registerer
	TenantMetrics int
	// Tracer makes the spans of runs and transactions; nil: none.
	Tracer *trace.Tracer
}

// DefaultConfig returns the settings of production. Dir and InstanceID have no default.
func DefaultConfig() Config {
	return Config{
		CommitInterval: 200 * time.Millisecond,
		Config:         partition.DefaultConfig(),
	}
}

// Validate returns an error with every invalid setting.
func (c Config) Validate() error {
	var errs []error
	bad := func(is bool, format string, args ...any) {
		if is {
			errs = append(errs, fmt.Errorf(format, args...))
		}
	}
	bad(c.Dir == "", "compactor: dir is empty: name a folder for the local stores")
	bad(c.InstanceID == "", "compactor: instance id is empty: give each process a name that it keeps over restarts")
	bad(c.CommitInterval <= 0, "compactor: commit interval %s must be positive", c.CommitInterval)
	// The transaction timeout is 8 s: the brokers would abort a longer transaction.
	bad(c.CommitInterval > 5*time.Second, "compactor: commit interval %s must be at most 5s", c.CommitInterval)
	return errors.Join(append(errs, c.Config.Validate())...)
}
