package ingest

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"sync/atomic"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/skeinhq/skein/internal/front"
	"github.com/skeinhq/skein/internal/share"
	"github.com/skeinhq/skein/pkg/ingest/agents"
	"github.com/skeinhq/skein/pkg/kafka"
	"github.com/skeinhq/skein/pkg/quota"
	"github.com/skeinhq/skein/pkg/tail"
	"github.com/skeinhq/skein/pkg/tenant"
)

// Service is the stage.
type Service struct {
	cfg      Config
	front    *front.Front
	topics   kafka.Topics
	producer *kgo.Client
	metrics  *metrics
	// memory is what requests and runs hold: their buffers, inputs, and what is written and not acknowledged.
	memory *front.Memory
	// large is what tenants have of large events with Kafka, in bytes: a broker takes the requests of one connection one after another, so
	// that small events wait behind the large ones that are under way.
	large *share.Pool
	pin   *pin

	logger *slog.Logger
	agents map[string]*agents.Caller
	runs   *Runs
	// draining is set by Drain, stopping ends with Stop.
	draining *atomic.Bool
	stopping context.Context
	stop     context.CancelFunc
	// log follows threads: of the runs that may be stopped, and of those whose end a call waits for.
	log *tail.Tail
	// cancelWait is the constant of that name, but in tests.
	cancelWait time.Duration
	// afterEnd is the constant of that name, but in tests.
	afterEnd time.Duration
	// pace is bodyPace, but in tests.
	pace paceLimits
}

const (
	// largeEvent is the size, in bytes, from which on events count as large. All together that Kafka has not acknowledged may come to
	// largeEvents times the largest.
	largeEvent, largeEvents = 64 << 10, 4
)

// leastDelivery is the least time that the client takes for a delivery.
const leastDelivery = time.Second

// New makes the stage. It connects to nothing: the stage is ready once Run has seen the topics. The
// caller calls Close in the end.
func New(cfg Config, auth tenant.Authenticator) (*Service, error) {
	if err := cfg.Validate(); err != nil {
		return nil, err
	}
	if auth == nil {
		return nil, errors.New("ingest: there is no authenticator")
	}
	if cfg.Quotas == nil {
		cfg.Quotas = quota.Unlimited()
	}
	logger := cfg.Kafka.Logger
	if logger == nil {
		logger = slog.New(slog.DiscardHandler)
	}
	m, err := newMetrics(cfg.Kafka.Registerer, cfg.TenantMetrics)
	if err != nil {
		return nil, fmt.Errorf("registering ingest metrics: %w", err)
	}
	// Records that could not be sent by then are not sent later: the caller was answered that they may be missing.
	producer, err := kafka.NewProducer(cfg.Kafka, kgo.RecordDeliveryTimeout(max(cfg.AckTimeout, leastDelivery)))
	if err != nil {
		return nil, err
	}
	adm, err := kafka.NewAdmin(cfg.Kafka)
	if err != nil {
		producer.Close()
		return nil, err
	}
	callers := make(map[string]*agents.Caller, len(cfg.Agents))
	for name, a := range cfg.Agents {
		callers[name] = agents.NewCaller(a)
	}
	stopping, stop := context.WithCancel(context.Background())
	var s *Service
	s = &Service{
		draining: new(atomic.Bool), stopping: stopping, stop: stop,
		logger: logger, agents: callers, afterEnd: afterEnd,
		cancelWait: cancelWait,
		cfg:        cfg, topics: cfg.Kafka.Topics(), producer: producer, metrics: m,
		memory: newMemory(cfg.Memory, m.memory), large: share.NewPool(largeEvents * int64(cfg.MaxEventBytes)), pace: bodyPace,
		pin: &pin{adm: adm, topics: cfg.Kafka.Topics(), m: m, logger: logger,
			// Else it would refuse all that is written to them, for as long as it lives.
			anew: func() {
				producer.PurgeTopicsFromProducing(cfg.Kafka.Topics().Events)
				s.log.TopicMadeAnew()
			},
			err: fmt.Errorf("%w: the partition counts are not known yet", ErrUnavailable)},
	}
	s.runs = newRuns(s.memory)
	s.front = &front.Front{
		Routes: s.routes(), Auth: auth, Quotas: cfg.Quotas,
		Draining: func() error {
			if s.draining.Load() {
				return errDraining
			}
			return nil
		},
		Explain: func(_ *front.Call, err error) *front.Problem { return problemOf(err) },
		Done:    func(c *front.Call, p *front.Problem, _ time.Duration) { m.done(c.Route.Action, p) },
	}
	if s.log, err = followLog(cfg.Kafka, logger); err != nil {
		return nil, errors.Join(err, s.Close())
	}
	return s, nil
}

// followLog returns what follows threads of skein.events from their ends. It holds some 64 MiB at the worst, however many there are
// (kafka.OneAnswer).
func followLog(cfg kafka.Config, logger *slog.Logger) (*tail.Tail, error) {
	limits, err := kafka.OneAnswer()
	if err != nil {
		return nil, err
	}
	return tail.New(tail.Config{
		RingBytes: 4 << 20, Keep: concernsStops, Linger: 30 * time.Second, CatchUps: 2, Away: 5 * time.Second, Fetch: limits,
		Kafka: cfg, Logger: logger, Registerer: prometheus.NewRegistry(), // its metrics are those of query's live streams
	})
}

// Run watches the partition counts until ctx ends. Requests are answered with 503 until its first look at the topics, and whenever their
// counts are not what they were.
func (s *Service) Run(ctx context.Context) error {
	s.pin.watch(ctx, s.cfg.PartitionCheck)
	return nil
}

// CheckVersions returns nil, or why requests to stop runs of a thread are not read: a newer Skein wrote a record there.
func (s *Service) CheckVersions() error { return s.metrics.stops.Check() }

// Ready returns nil while the stage is ready, else the reason why it is not.
func (s *Service) Ready() error {
	_, err := s.pin.partitions()
	return err
}

// Close waits, for a bounded time, until what was sent is acknowledged, and closes the connections.
// Call it once no request is under way any more: after the HTTP server's Shutdown.
func (s *Service) Close() error {
	ctx, cancel := context.WithTimeout(context.Background(), s.cfg.AckTimeout+time.Second)
	defer cancel()
	defer s.stop()
	lost, runs := s.runs.close(ctx)
	err := s.producer.Flush(ctx)
	s.producer.Close()
	s.pin.adm.Close()
	if s.log != nil {
		s.log.Close()
	}
	for _, a := range s.agents {
		a.Close()
	}
	if err != nil {
		err = fmt.Errorf("flushing events: %w", err)
	}
	if lost > 0 {
		err = errors.Join(err, fmt.Errorf("Kafka has not acknowledged %d records of %d proxied runs: they may be missing", lost, runs)) //nolint:staticcheck // a name
	}
	return err
}

// Drain refuses new requests with 503, so that callers go elsewhere. Requests under way continue.
func (s *Service) Drain() { s.draining.Store(true) }

// Stop ends the requests under way within seconds: senders of events get a response that says how far they were
// acknowledged, and proxied runs end with a RUN_ERROR. It does not wait for them.
func (s *Service) Stop() {
	s.Drain()
	s.stop()
	s.runs.endAll(errStopping)
}

// Runs returns the runs that the process holds as their proxy.
func (s *Service) Runs() *Runs { return s.runs }
