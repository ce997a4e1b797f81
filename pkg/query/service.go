package query

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"runtime"
	"time"

	"github.com/klauspost/compress/gzhttp"
	"github.com/prometheus/client_golang/prometheus"

	"github.com/skeinhq/skein/internal/front"
	"github.com/skeinhq/skein/pkg/quota"
	"github.com/skeinhq/skein/pkg/search"
	"github.com/skeinhq/skein/pkg/store"
	"github.com/skeinhq/skein/pkg/tail"
	"github.com/skeinhq/skein/pkg/tenant"
	"github.com/skeinhq/skein/web"
)

// Config is the query stage's configuration.
type Config struct {
	// Wait is how long a call waits for the index: with ?atLeast=, and where an open run's
	// record is newer than the index says.
	Wait time.Duration
	// Poll is the pause between two looks at the index while a call waits.
	Poll time.Duration
	// Memory is what requests, the runs that were stepped through last and the latest events for live streams (RingBytes) may hold together,
	// in bytes; Slots is how much work there may be at the same time: a read takes one. Tenants share both (share.Pool).
	Memory, Slots int
	// StreamHeartbeat is the pause after which a live stream that has nothing to say says so: what stands in between ends
	// connections that are silent for a minute. StreamRetry is after which time a reader is to come again whose
	// stream has ended, and StreamLife how long a stream lasts at most: what stands in between ends connections, whatever
	// flows, mostly after ten minutes.
	StreamHeartbeat, StreamRetry, StreamLife time.Duration
	// Search bounds what one search or statistic costs the store.
	Search search.Bounds
	// Links lead from the page to other tools.
	Links []web.Link
	// Quotas are what each tenant may have by the operator's word.
	Quotas *quota.Quotas
	// TenantMetrics is how many tenants have counters of their own; 0: none.
	TenantMetrics int

	Logger     *slog.Logger
	Registerer prometheus.Registerer
}

// The parts of Config.Memory, in ninths: the rest is what requests hold.
const timelineNinths, ringNinths = 2, 1

// RingBytes is the part of the memory that the latest events have, for tail.Config.
func (c Config) RingBytes() int       { return c.Memory / 9 * ringNinths }
func (c Config) timelineBytes() int64 { return int64(c.Memory / 9 * timelineNinths) }
func (c Config) readBytes() int64     { return int64(c.Memory) - c.timelineBytes() - int64(c.RingBytes()) }

// DefaultConfig returns the defaults: a wait of 5 s, looking every 50 ms, 576 MiB, of which requests have 384 and runs that are stepped
// through 128, eight slots for each processor.
func DefaultConfig() Config {
	return Config{
		Wait: 5 * time.Second, Poll: 50 * time.Millisecond, Memory: 576 << 20, Slots: max(16, 8*runtime.GOMAXPROCS(0)),
		StreamHeartbeat: 15 * time.Second, StreamRetry: time.Second, StreamLife: 9 * time.Minute,
		Quotas: quota.Unlimited(),
		Search: search.Bounds{Rows: 50_000_000, Time: 10 * time.Second},
		Logger: slog.Default(), Registerer: prometheus.DefaultRegisterer,
	}
}

// minMemory has room for one raw read beside others.
const minMemory = 32 << 20

// Validate says what is wrong with what an operator sets.
func (c Config) Validate() error {
	if c.Memory < minMemory {
		return fmt.Errorf("query: the memory is %d bytes; it must be at least %d", c.Memory, minMemory)
	}
	return nil
}

// ErrRecordGone says that a record of skein.runs is no longer there: compaction has removed it in
// favour of a newer one of the same run.
var ErrRecordGone = errors.New("the record is gone")

// RecordReader reads single records of skein.runs: for runs that are still open, whose messages are not
// in the store, and for proofs, which are about the record itself.
type RecordReader interface {
	// Record returns the value of the record of skein.runs at this partition and offset, or
	// ErrRecordGone.
	Record(ctx context.Context, partition int32, offset int64) ([]byte, error)
}

// Service answers HTTP calls. It holds no state that outlives a request, but for what was read last to step through runs. Drain it
// before it goes, so that live streams end.
type Service struct {
	cfg     Config
	store   store.Reader
	records RecordReader
	raw     *RawLog
	tail    *tail.Tail
	auth    tenant.Authenticator
	metrics *metrics
	front   *front.Front

	room      *room
	watch     *watch
	timelines *timelines
	// draining is done when the process starts to stop.
	draining context.Context
	drain    context.CancelCauseFunc
}

// New returns the stage over a store, the records of runs, the raw events, those that come, and the caller's identity.
func New(cfg Config, r store.Reader, rr RecordReader, raw *RawLog, follow *tail.Tail, auth tenant.Authenticator) (*Service, error) {
	if err := cfg.Validate(); err != nil {
		return nil, err
	}
	m, err := newMetrics(cfg.Registerer, cfg.TenantMetrics, new(Service).routes())
	if err != nil {
		return nil, fmt.Errorf("registering query metrics: %w", err)
	}
	room := newRoom(cfg)
	// Answers below a packet gain nothing. zstd first: it is faster and smaller than gzip.
	compress, err := gzhttp.NewWrapper(gzhttp.MinSize(1400), gzhttp.EnableZstd(true), gzhttp.PreferZstd(true))
	if err != nil {
		return nil, fmt.Errorf("setting up compression: %w", err)
	}
	s := &Service{
		cfg: cfg, store: r, records: rr, raw: raw, tail: follow, auth: auth, metrics: m,
		room: room, watch: newWatch(r, cfg.Poll), timelines: newTimelines(cfg.timelineBytes(), m),
	}
	s.front = s.newFront(compress)
	s.draining, s.drain = context.WithCancelCause(context.Background())
	return s, nil
}

// Handler returns the HTTP API: /v1/… and /openapi.json, compressed where the caller takes it.
func (s *Service) Handler() http.Handler { return s.front }
