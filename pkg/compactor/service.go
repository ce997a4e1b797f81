package compactor

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"sync/atomic"
	"time"

	"github.com/cockroachdb/pebble/v2/vfs"
	"github.com/prometheus/client_golang/prometheus"
	"github.com/twmb/franz-go/pkg/kadm"

	"github.com/skeinhq/skein/pkg/compactor/runstore"
	"github.com/skeinhq/skein/pkg/kafka"
)

// Service runs the compactor stage.
type Service struct {
	cfg     Config
	kafka   kafka.Config
	logger  *slog.Logger
	metrics *metrics
	now     func() time.Time
	fs      vfs.FS // of the local stores
	current atomic.Pointer[session]
	failure atomic.Pointer[error] // of the last session; nil while one is running
	broken  atomic.Pointer[error] // why no further session will start
	turned  atomic.Int64          // the time of the main loop's last cycle, in nanoseconds
}

// New returns the stage and registers its metrics. It opens nothing before Run. The topics must exist.
func New(cfg Config, k kafka.Config, logger *slog.Logger) (*Service, error) {
	if err := errors.Join(cfg.Validate(), k.Validate()); err != nil {
		return nil, err
	}
	reg := cfg.Registerer
	if reg == nil {
		reg = prometheus.NewRegistry()
	}
	m := newMetrics(reg, cfg.TenantMetrics)
	registerDisk(reg, cfg.Dir)
	return newService(cfg, k, logger, m), nil
}

func newService(cfg Config, k kafka.Config, logger *slog.Logger, m *metrics) *Service {
	cfg.IngestKeys = k.IngestKeys
	cfg.TellEnded = cfg.Tracer != nil
	return &Service{cfg: cfg, kafka: k, logger: logger, metrics: m, now: time.Now, fs: vfs.Default}
}

// Lag returns the lag of the events that were read: see kafka.NewStallWatch.
func (s *Service) Lag() *kafka.Lag { return s.metrics.lag }

// Run works until ctx ends (nil), or until it must not continue: another process has this instance's ids (ErrFenced),
// partition counts differ (kafka.ErrPartitionCounts), or the local stores have failed (runstore.ErrFailed). After any
// other error the next session starts, after a pause, from what was committed. A transaction in progress when ctx ends
// may still commit within a few seconds (grace).
//
// After runstore.ErrFailed, goroutines may remain that wait for the disk; they write nothing to Kafka.
func (s *Service) Run(ctx context.Context) error {
	admin, err := kafka.NewAdmin(s.kafka)
	if err != nil {
		return err
	}
	defer admin.Close()
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	stores := runstore.NewSet(s.fs, s.cfg.Dir, s.logger)
	var result error
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		result = errors.Join(s.sessions(ctx, admin, stores), stores.Close())
	}()
	select {
	case <-ended:
	case <-stores.Failed():
	}
	failure := stores.Err()
	if failure == nil {
		return result
	}
	s.broken.Store(&failure)
	cancel()
	select {
	case <-ended:
	case <-time.After(unwind): // the main loop or the closing of a store waits for the disk
		if one := s.current.Load(); one != nil {
			go one.group.CloseAllowingRebalance() // so that the member does not seem alive
		}
	}
	return fmt.Errorf("compacting: %w", failure)
}

// unwind is the longest time that a session may take to end after the local stores have failed.
const unwind = time.Second

// sessions runs one session after another.
func (s *Service) sessions(ctx context.Context, admin *kadm.Client, stores *runstore.Set) error {
	const shortest, longest = 200 * time.Millisecond, 5 * time.Second
	pause := shortest
	logged := make(map[string]bool) // the errors logged since a session was running
	for ctx.Err() == nil {
		s.heartbeat()
		began := s.now()
		err := s.session(ctx, admin, stores)
		if errors.Is(err, ErrFenced) || errors.Is(err, kafka.ErrPartitionCounts) || errors.Is(err, runstore.ErrFailed) {
			return fmt.Errorf("compacting: %w", err)
		}
		if ctx.Err() != nil { // the session's error is then of no interest
			continue
		}
		if s.now().Sub(began) > time.Minute {
			pause = shortest
		}
		// While Kafka is away each try ends with the same error.
		level := slog.LevelError
		// Each running session finds runstore.ErrOtherEvents again, so this error does not clear what was logged.
		if s.failure.Swap(&err) == nil && !errors.Is(err, runstore.ErrOtherEvents) {
			clear(logged)
		}
		if logged[err.Error()] {
			level = slog.LevelDebug
		}
		logged[err.Error()] = true
		s.logger.Log(ctx, level, "session ended, starting another", "error", err, "pause", pause)
		select {
		case <-ctx.Done():
		case <-time.After(pause + rand.N(pause)):
		}
		pause = min(2*pause, longest)
	}
	return nil
}

func (s *Service) session(ctx context.Context, admin *kadm.Client, stores *runstore.Set) error {
	one := s.newSession(admin, stores)
	s.metrics.sessions.Inc()
	defer one.close()
	if err := one.start(ctx); err != nil {
		return err
	}
	s.current.Store(one)
	s.failure.Store(nil)
	defer s.current.Store(nil)
	return one.run(ctx)
}

// Ready returns nil while a session is in the group and all its partitions are open, else an error with what is
// missing. A standby member, which has no partitions, is ready.
func (s *Service) Ready() error {
	if err := s.broken.Load(); err != nil {
		return *err
	}
	one := s.current.Load()
	if one == nil {
		if err := s.failure.Load(); err != nil {
			return fmt.Errorf("there is no session with the group: %w", *err)
		}
		return errors.New("there is no session with the group")
	}
	return one.members.ready()
}

// CheckVersions returns an error if a partition has stopped because a newer Skein wrote its next record, else nil.
func (s *Service) CheckVersions() error { return s.metrics.stops.Check() }

func (s *Service) heartbeat() { s.turned.Store(s.now().UnixNano()) }

// Turned returns the time of the main loop's last cycle: a poll, a commit, or the start of a session. A cycle takes
// seconds, or longer while Kafka does not answer. Before Run, Turned returns the current time.
func (s *Service) Turned() time.Time {
	if at := s.turned.Load(); at != 0 {
		return time.Unix(0, at)
	}
	return s.now()
}
