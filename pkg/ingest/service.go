package ingest

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"sync"
	"sync/atomic"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/skeinhq/skein/internal/front"
	"github.com/skeinhq/skein/internal/share"
	"github.com/skeinhq/skein/pkg/client"
	"github.com/skeinhq/skein/pkg/ingest/agents"
	"github.com/skeinhq/skein/pkg/kafka"
	"github.com/skeinhq/skein/pkg/quota"
	"github.com/skeinhq/skein/pkg/tail"
	"github.com/skeinhq/skein/pkg/tenant"
)

// Service is the ingest stage.
type Service struct {
	cfg      Config
	front    *front.Front
	topics   kafka.Topics
	producer *kgo.Client
	metrics  *metrics
	// memory is the budget of requests and runs: their buffers, inputs and unacknowledged records.
	memory *front.Memory
	// large limits the bytes of unacknowledged large events. A broker handles the requests of a connection in order, so
	// small events wait for earlier large ones.
	large *share.Pool
	sent  *sentRuns
	pin   *pin

	logger *slog.Logger
	agents map[string]*agents.Caller
	runs   *Runs
	lines  lines
	// claiming are the goroutines of claims.
	claiming sync.WaitGroup
	// asking calls query; nil if its address is not known.
	asking *client.Client
	// draining is set by Drain; stopping ends with Stop.
	draining *atomic.Bool
	stopping context.Context
	stop     context.CancelFunc
	// log reads threads from skein.events: those of proxied runs, and those of runs for whose end a cancel request waits.
	log *tail.Tail
	// cancelWait is the constant of that name; tests change it.
	cancelWait time.Duration
	// afterEnd is the constant of that name; tests change it.
	afterEnd time.Duration
	// pace is bodyPace; tests change it.
	pace paceLimits
}

const (
	// largeEvent is the smallest size of a large event, in bytes. The unacknowledged large events of all tenants may have
	// at most largeEvents * MaxEventBytes.
	largeEvent, largeEvents = 64 << 10, 4
)

// leastDelivery is the shortest delivery timeout that the Kafka client accepts.
const leastDelivery = time.Second

// New returns the stage without connecting to Kafka. The stage is ready after Run has read the topics. Call Close when
// the stage is no longer used.
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
	memory := newMemory(cfg.Memory)
	m, err := newMetrics(cfg.Kafka.Registerer, cfg.TenantMetrics, memory)
	if err != nil {
		return nil, fmt.Errorf("registering ingest metrics: %w", err)
	}
	// After AckTimeout, a record is not sent any more, because the caller was informed that it may be missing.
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
		sent: newSentRuns(), memory: memory, large: share.NewPool(largeEvents * int64(cfg.MaxEventBytes)), pace: bodyPace,
		pin: &pin{adm: adm, topics: cfg.Kafka.Topics(), m: m, logger: logger,
			// Without the purge, the producer would refuse all records for the topic until the process restarts.
			recreated: func() {
				producer.PurgeTopicsFromProducing(cfg.Kafka.Topics().Events)
				s.log.TopicRecreated()
				s.sent.forget("")
			},
			err: fmt.Errorf("%w: the partition counts are not known yet", ErrUnavailable)},
	}
	s.runs = newRuns(memory)
	s.lines.of = map[string]*line{}
	if cfg.QueryURL+cfg.QueryInternalURL != "" {
		s.asking, err = client.New(cmp.Or(cfg.QueryInternalURL, cfg.QueryURL), client.WithTLS(cfg.QueryTLS),
			client.WithoutRedirects(), client.WithPatience(0))
		if err != nil {
			return nil, errors.Join(err, s.Close())
		}
	}
	s.front = &front.Front{
		Stage: front.StageIngest, OtherURL: cfg.QueryURL, Routes: s.routes(), Auth: auth, Quotas: cfg.Quotas, Tracer: cfg.Tracer,
		Draining: func() error {
			if s.draining.Load() {
				return errDraining
			}
			return nil
		},
		Explain: func(_ *front.Call, err error) *front.Problem { return problemOf(err) },
		Done:    func(c *front.Call, p *front.Problem, _ time.Duration) { m.done(c.Route.Action, p) },
	}
	if s.log, err = followLog(cfg, logger); err != nil {
		return nil, errors.Join(err, s.Close())
	}
	return s, nil
}

// mostWindow bounds claimWindow in offsets of a partition that was not read before.
const mostWindow = 1_000_000

// claimRing holds the claims of some 10,000 runs for claimWindow: five records of 600 bytes each. If they do not fit, each start reads them
// from the log.
const claimRing = 32 << 20

// followLog returns a reader of the threads in skein.events. Its fetches use at most about 64 MiB, whatever the number
// of threads (kafka.OneAnswer).
func followLog(cfg Config, logger *slog.Logger) (*tail.Tail, error) {
	limits, err := kafka.OneAnswer()
	if err != nil {
		return nil, err
	}
	ring, window, since := 4<<20, int64(0), time.Duration(0)
	for _, a := range cfg.Agents {
		if a.OneRun() {
			ring, window, since = claimRing, mostWindow, claimWindow
		}
	}
	return tail.New(tail.Config{
		Window: window, Since: since,
		RingBytes: ring, Keep: concernsStops, Linger: 30 * time.Second, CatchUps: 2, Away: 5 * time.Second, Fetch: limits,
		Kafka: cfg.Kafka, Logger: logger, Registerer: prometheus.NewRegistry(), // not registered: tail's metrics describe query's live streams
	})
}

// Run checks the partition counts until ctx ends. Requests are answered with 503 until the first successful check, and
// while the counts differ from the pinned ones.
func (s *Service) Run(ctx context.Context) error {
	s.pin.watch(ctx, s.cfg.PartitionCheck)
	return nil
}

// CheckVersions returns an error if a newer Skein wrote to a thread, so that this process reads no more requests to
// stop its runs.
func (s *Service) CheckVersions() error { return s.metrics.stops.Check() }

// Ready returns nil if the stage is ready, else the reason why it is not.
func (s *Service) Ready() error {
	_, err := s.pin.partitions()
	return err
}

// Close waits up to AckTimeout + 1 s until sent records are acknowledged, and closes the connections. Call it after the
// HTTP server's Shutdown, when no request is in progress.
func (s *Service) Close() error {
	ctx, cancel := context.WithTimeout(context.Background(), s.cfg.AckTimeout+time.Second)
	defer cancel()
	defer s.stop()
	lost, runs := s.runs.close(ctx)
	claimed := make(chan struct{})
	go func() {
		defer close(claimed)
		s.claiming.Wait()
	}()
	select {
	case <-claimed:
	case <-ctx.Done():
	}
	err := s.producer.Flush(ctx)
	s.producer.Close()
	s.pin.adm.Close()
	if s.log != nil {
		s.log.Close()
	}
	for _, a := range s.agents {
		a.Close()
	}
	if s.asking != nil {
		s.asking.Close()
	}
	if err != nil {
		err = fmt.Errorf("flushing events: %w", err)
	}
	if lost > 0 {
		err = errors.Join(err, fmt.Errorf("Kafka has not acknowledged %d records of %d proxied runs: they may be missing", lost, runs)) //nolint:staticcheck // a name
	}
	return err
}

// Drain refuses new requests with 503, so that callers use another process. Requests in progress continue.
func (s *Service) Drain() { s.draining.Store(true) }

// Stop ends the requests in progress within seconds. Senders of events get a response with the acknowledged part, and
// proxied runs end with a RUN_ERROR. Stop does not wait for them.
func (s *Service) Stop() {
	s.Drain()
	s.stop()
	s.runs.endAll(errStopping)
}

// Runs returns the runs that this process serves as proxy.
func (s *Service) Runs() *Runs { return s.runs }
