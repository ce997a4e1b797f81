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
	// Wait is how long a call waits for the index: with ?atLeast=, and if the record of an open run is newer than the
	// index.
	Wait time.Duration
	// Poll is the pause between two reads of the index while a call waits.
	Poll time.Duration
	// Memory bounds, in bytes, what requests, the cached timelines of stepped runs and the latest events for live streams
	// (RingBytes) hold together. Slots bounds concurrent work: each read takes one. Tenants share both (share.Pool).
	Memory, Slots int
	// StreamHeartbeat is the pause after which an idle live stream sends a heartbeat, since proxies close connections that
	// are silent for a minute. StreamRetry is the delay after which a reader reconnects once its stream has ended.
	// StreamLife is the maximum duration of a stream, since many proxies close any connection after ten minutes.
	StreamHeartbeat, StreamRetry, StreamLife time.Duration
	// Search bounds the cost of one search or statistic in the store.
	Search search.Bounds
	// Links lead from the page to other tools.
	Links []web.Link
	// Quotas are the limits of each tenant that the operator set.
	Quotas *quota.Quotas
	// TenantMetrics is how many tenants have counters of their own; 0 is none.
	TenantMetrics int

	Logger     *slog.Logger
	Registerer prometheus.Registerer
}

// These are parts of Config.Memory, in ninths. Requests have the rest.
const timelineNinths, ringNinths = 2, 1

// RingBytes returns the part of Memory for the latest events, in bytes; see tail.Config.
func (c Config) RingBytes() int       { return c.Memory / 9 * ringNinths }
func (c Config) timelineBytes() int64 { return int64(c.Memory / 9 * timelineNinths) }
func (c Config) readBytes() int64     { return int64(c.Memory) - c.timelineBytes() - int64(c.RingBytes()) }

// DefaultConfig returns the defaults: a wait of 5 s with a read of the index every 50 ms; 576 MiB, of which requests
// have 384 and timelines of stepped runs 128; eight slots a processor, at least 16.
func DefaultConfig() Config {
	return Config{
		Wait: 5 * time.Second, Poll: 50 * time.Millisecond, Memory: 576 << 20, Slots: max(16, 8*runtime.GOMAXPROCS(0)),
		StreamHeartbeat: 15 * time.Second, StreamRetry: time.Second, StreamLife: 9 * time.Minute,
		Quotas: quota.Unlimited(),
		Search: search.Bounds{Rows: 50_000_000, Time: 10 * time.Second},
		Logger: slog.Default(), Registerer: prometheus.DefaultRegisterer,
	}
}

// minMemory has room for one raw read beside other requests.
const minMemory = 32 << 20

// Validate returns an error that describes an invalid setting.
func (c Config) Validate() error {
	if c.Memory < minMemory {
		return fmt.Errorf("query: the memory is %d bytes; it must be at least %d", c.Memory, minMemory)
	}
	return nil
}

// ErrRecordGone means that a record of skein.runs no longer exists: compaction has removed it in favour of a newer one
// of the same run.
var ErrRecordGone = errors.New("the record is gone")

// RecordReader reads single records of skein.runs: for open runs, whose messages are not in the store, and for the
// verifier, which checks the records themselves.
type RecordReader interface {
	// Record returns the value of the record of skein.runs at this partition and offset, or ErrRecordGone.
	Record(ctx context.Context, partition int32, offset int64) ([]byte, error)
}

// Service answers HTTP calls. It holds no state that outlives a request, except a cache of the timelines of stepped
// runs. Call Drain before shutdown, so that live streams end.
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
	// draining ends when the process starts to stop.
	draining context.Context
	drain    context.CancelCauseFunc
}

// New returns the stage. It reads the lineage store from r, records of runs from rr, raw events from raw and new events
// from follow; auth identifies callers.
func New(cfg Config, r store.Reader, rr RecordReader, raw *RawLog, follow *tail.Tail, auth tenant.Authenticator) (*Service, error) {
	if err := cfg.Validate(); err != nil {
		return nil, err
	}
	m, err := newMetrics(cfg.Registerer, cfg.TenantMetrics, new(Service).routes())
	if err != nil {
		return nil, fmt.Errorf("registering query metrics: %w", err)
	}
	room := newRoom(cfg)
	// Compression does not help answers smaller than one packet. zstd is first because it is faster and smaller than gzip.
	compress, err := gzhttp.NewWrapper(gzhttp.MinSize(1400), gzhttp.EnableZstd(true), gzhttp.PreferZstd(true))
	if err != nil {
		return nil, fmt.Errorf("setting up compression: %w", err)
	}
	s := &Service{
		cfg: cfg, store: r, records: rr, raw: raw, tail: follow, auth: auth, metrics: m,
		room: room, watch: &watch{store: r, poll: cfg.Poll}, timelines: newTimelines(cfg.timelineBytes(), m),
	}
	s.front = s.newFront(compress)
	s.draining, s.drain = context.WithCancelCause(context.Background())
	return s, nil
}

// Handler returns the HTTP API: /v1/… and /openapi.json, compressed if the caller accepts it.
func (s *Service) Handler() http.Handler { return s.front }
