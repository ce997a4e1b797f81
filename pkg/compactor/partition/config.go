package partition

import (
	"errors"
	"fmt"
	"time"

	"github.com/skeinhq/skein/pkg/agui"
	"github.com/skeinhq/skein/pkg/kafka"
)

// Config are the settings of a partition. DefaultConfig gives values for all.
type Config struct {
	// CheckpointInterval is the least time between two records of an open run.
	CheckpointInterval time.Duration
	// CheckpointFactor is how much a run must have grown to be written again at CheckpointInterval: by this many times the
	// size of its last record, in raw bytes. 0 writes every changed run.
	CheckpointFactor int
	// CheckpointMax is the time after which a changed open run is written in any case. It limits the lag of the committed
	// offset.
	CheckpointMax time.Duration
	// IdleLimit is how long, in stream time, a run may get no record before it expires (status abandoned).
	IdleLimit time.Duration
	// SnapshotBelow is the size in bytes below which a branch's conversation is due to be written whole at every run's end. A
	// larger one is due once half of it is new.
	SnapshotBelow int
	// RecordLimit is the largest value, in bytes, of a record on skein.runs or skein.snapshots.
	RecordLimit int
	// KeepEvents are the event families that new runs keep in their records.
	KeepEvents agui.Families
	// OpenRunBytes is about how much memory open runs may take in this process. Above it, the least recently used ones are
	// checkpointed and evicted. If those that cannot be evicted (used within the last second, or over the record limit) take
	// more, the largest run of the tenant that takes most is cut.
	OpenRunBytes int
	// CacheBytes bounds the histories of ended runs that this process keeps in memory for the next turn. Each partition has an
	// equal part, and keeps the conversation that it used last even if that is larger.
	CacheBytes int

	// Quota returns the limits of a tenant's open runs; nil is no limit. It is called for each run that begins.
	Quota func(tenant string) Quota

	// IngestKeys refuse records that ingest has not signed, from the processed offset on at which a partition is first opened with them;
	// nil requires no signatures.
	IngestKeys *kafka.IngestKeys

	// TellEnded sets Output.Ended, for which parents' records are read.
	TellEnded bool

	maxThreadRunsInMemory int // tests set less
}

// Quota limits the open runs of one tenant, over all partitions together. Each partition allows an equal part of it. 0 is no limit.
type Quota struct {
	// OpenRuns is how many runs may be open or expired. Above it, the run that was idle longest ends.
	OpenRuns int64
	// OpenRunBytes is the memory that open runs which cannot be evicted may take. Above it, the largest one is cut.
	OpenRunBytes int64
}

// DefaultOpenRuns is how many open and expired runs a tenant without a quota may have. One takes some 300 bytes of memory.
const DefaultOpenRuns = 100_000

// quota returns a tenant's quota.
func (c Config) quota(tenant string) Quota {
	if c.Quota == nil {
		return Quota{}
	}
	return c.Quota(tenant)
}

// DefaultConfig returns the settings of production.
func DefaultConfig() Config {
	return Config{
		CheckpointInterval:    30 * time.Second,
		CheckpointFactor:      8,
		CheckpointMax:         5 * time.Minute,
		IdleLimit:             time.Hour,
		SnapshotBelow:         32 << 10,
		RecordLimit:           16 << 20,
		OpenRunBytes:          256 << 20,
		CacheBytes:            64 << 20,
		Quota:                 func(string) Quota { return Quota{OpenRuns: DefaultOpenRuns} },
		maxThreadRunsInMemory: maxThreadRunsInMemory,
	}
}

// limits are one partition's part of the limits of its process.
type limits struct {
	// runBytes is for open runs, cacheBytes for histories.
	runBytes, cacheBytes int
	// threadRuns is how many runs threads may have in memory; unloadReads how many reads evictThreads may do at once.
	threadRuns, unloadReads int
}

// limits returns the limits of one partition in a process that has this many.
func (c Config) limits(partitions int) limits {
	return limits{
		runBytes: c.OpenRunBytes / partitions, cacheBytes: c.CacheBytes / partitions,
		threadRuns: c.maxThreadRunsInMemory / partitions, unloadReads: unloadReads / partitions,
	}
}

// Room returns how many bytes open runs may still take before some must leave memory, at least OpenRunBytes/16. They take held bytes now.
func (c Config) Room(held int) int { return max(c.OpenRunBytes-held, c.OpenRunBytes/16) }

// Validate reports every setting that cannot work, all at once.
func (c Config) Validate() error {
	var errs []error
	bad := func(is bool, format string, args ...any) {
		if is {
			errs = append(errs, fmt.Errorf(format, args...))
		}
	}
	bad(c.CheckpointInterval <= 0, "compactor: checkpoint interval %s must be positive", c.CheckpointInterval)
	bad(c.CheckpointFactor < 0, "compactor: checkpoint factor %d must not be negative", c.CheckpointFactor)
	bad(c.CheckpointMax < c.CheckpointInterval, "compactor: longest checkpoint interval %s must be at least the interval %s",
		c.CheckpointMax, c.CheckpointInterval)
	bad(c.IdleLimit <= 0, "compactor: idle limit %s must be positive", c.IdleLimit)
	bad(c.SnapshotBelow < 0, "compactor: snapshot threshold %d must not be negative", c.SnapshotBelow)
	bad(c.RecordLimit < 64<<10, "compactor: record limit %d must be at least 65536", c.RecordLimit)
	// Topics and producers allow values up to this.
	bad(c.RecordLimit > kafka.MaxValueBytes, "compactor: record limit %d must be at most %d", c.RecordLimit, kafka.MaxValueBytes)
	bad(c.OpenRunBytes < 1<<20, "compactor: memory of open runs %d must be at least 1048576 bytes", c.OpenRunBytes)
	bad(c.CacheBytes < 0, "compactor: cache size %d must not be negative", c.CacheBytes)
	return errors.Join(errs...)
}
