package query

import (
	"context"
	"fmt"
	"log/slog"
	"net/http"
	"runtime"
	"sync"
	"time"

	"github.com/klauspost/compress/gzhttp"
	"github.com/prometheus/client_golang/prometheus"
	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/skeinhq/skein/internal/front"
	"github.com/skeinhq/skein/internal/trace"
	"github.com/skeinhq/skein/pkg/kafka"
	"github.com/skeinhq/skein/pkg/quota"
	"github.com/skeinhq/skein/pkg/search"
	"github.com/skeinhq/skein/pkg/store"
	"github.com/skeinhq/skein/pkg/tail"
	"github.com/skeinhq/skein/pkg/tenant"
	"github.com/skeinhq/skein/web"
)

// Config is the query stage's configuration.
type Config struct {
	// Wait is how long a call waits for the index (with ?atLeast= or ?wait=true, or if the record of an open run is newer
	// than the index), and for a slot.
	Wait time.Duration
	// Poll is the pause between two reads of the index while a call waits. Some waits double it, up to maxLook.
	Poll time.Duration
	// Memory limits the bytes that requests, the cache of stepped runs and followed threads, and the latest events for live streams hold
	// together. Slots limits concurrent work: each read takes one. Tenants share both (share.Pool).
	Memory, Slots int
	// StreamHeartbeat is the pause after which an idle live stream sends a heartbeat, since proxies close connections that
	// are silent for a minute. StreamLife is the maximum duration of a stream, since many proxies close any connection after ten minutes.
	StreamHeartbeat, StreamLife time.Duration
	// Search bounds the cost of one search or statistic in the store.
	Search search.Bounds
	// Tail has the settings with which live streams read skein.events. All reads of Kafka use Tail.Kafka. New sets
	// RingBytes, Logger and Registerer of Tail.
	Tail tail.Config
	// IngestURL is the URL at which callers reach the ingest stage; "" if it is not known. Refusals of writes name it, and the page
	// stops runs there.
	IngestURL string
	// Links lead from the page to other tools.
	Links []web.Link
	// Quotas are the limits that the operator has set for each tenant.
	Quotas *quota.Quotas
	// TenantMetrics is how many tenants have counters of their own; 0 is none.
	TenantMetrics int
	// Tracer makes the spans of requests; nil: none.
	Tracer *trace.Tracer

	Logger     *slog.Logger
	Registerer prometheus.Registerer
}

// These are parts of Config.Memory, in ninths. Requests have the rest.
const cacheNinths, ringNinths = 2, 1

func (c Config) ringBytes() int    { return c.Memory / 9 * ringNinths }
func (c Config) cacheBytes() int64 { return int64(c.Memory / 9 * cacheNinths) }
func (c Config) readBytes() int64  { return int64(c.Memory) - c.cacheBytes() - int64(c.ringBytes()) }

// DefaultConfig returns the defaults: a wait of 5 s with a read of the index every 50 ms; 576 MiB, of which requests
// have 384 and the cache of stepped runs and followed threads 128; eight slots a processor, at least 16.
func DefaultConfig() Config {
	return Config{
		Wait: 5 * time.Second, Poll: 50 * time.Millisecond, Memory: 576 << 20, Slots: max(16, 8*runtime.GOMAXPROCS(0)),
		StreamHeartbeat: 15 * time.Second, StreamLife: 9 * time.Minute,
		Tail: tail.DefaultConfig(kafka.Config{}), Quotas: quota.Unlimited(),
		Search: search.Bounds{Rows: 50_000_000, Time: 10 * time.Second},
		Logger: slog.Default(), Registerer: prometheus.DefaultRegisterer,
	}
}

// minMemory is enough for one raw read besides other requests.
const minMemory = 32 << 20

// Validate returns an error that describes an invalid setting.
func (c Config) Validate() error {
	if c.Memory < minMemory {
		return fmt.Errorf("query: the memory is %d bytes; it must be at least %d", c.Memory, minMemory)
	}
	if c.StreamHeartbeat <= 0 {
		return fmt.Errorf("query: stream heartbeat %s must be positive", c.StreamHeartbeat)
	}
	return front.ValidateURL("query: ingest-url", c.IngestURL)
}

// recordReader reads single records of skein.runs: for open runs, whose messages are not in the store, and for the
// verifier, which checks the records themselves.
type recordReader interface {
	// Read returns the record at this partition and offset, or kafka.ErrNoRecord.
	Read(ctx context.Context, partition int32, offset int64) (*kgo.Record, error)
	Close()
}

// Service answers HTTP calls. Its only state that outlives a request is caches: stepped runs, followed threads, and the latest
// events. Call Drain before shutdown, so that live streams end, and Close after the last request.
type Service struct {
	cfg     Config
	store   store.Reader
	records recordReader
	raw     *rawLog
	tail    *tail.Tail
	auth    tenant.Authenticator
	metrics *metrics
	front   *front.Front

	room  *room
	watch *watch
	// awayUntil maps a partition to the time until which reads do not ask Kafka for the end of its log.
	awayUntil sync.Map
	cache     *cache
	// draining ends when the process starts to stop.
	draining context.Context
	drain    context.CancelCauseFunc
}

// New returns the stage. It reads the lineage store from r, and connects to Kafka when a call needs it; auth identifies
// callers.
func New(cfg Config, r store.Reader, auth tenant.Authenticator) (*Service, error) {
	if err := cfg.Validate(); err != nil {
		return nil, err
	}
	m := newMetrics(cfg.Registerer, cfg.TenantMetrics, new(Service).routes())
	// Compression does not help answers smaller than one packet. zstd is first because it is faster and smaller than gzip.
	compress, err := gzhttp.NewWrapper(gzhttp.MinSize(1400), gzhttp.EnableZstd(true), gzhttp.PreferZstd(true))
	if err != nil {
		return nil, fmt.Errorf("setting up compression: %w", err)
	}
	k := cfg.Tail.Kafka
	records, err := kafka.NewRecordReader(k, k.Topics().Runs)
	if err != nil {
		return nil, err
	}
	cfg.Tail.RingBytes, cfg.Tail.Logger, cfg.Tail.Registerer = cfg.ringBytes(), cfg.Logger, cfg.Registerer
	follow, err := tail.New(cfg.Tail)
	if err != nil {
		records.Close()
		return nil, err
	}
	s := &Service{
		cfg: cfg, store: r, records: records, raw: newRawLog(k), tail: follow, auth: auth, metrics: m,
		room: newRoom(cfg), watch: &watch{store: r, poll: cfg.Poll}, cache: newCache(cfg.cacheBytes(), m),
	}
	s.front = s.newFront(compress)
	s.draining, s.drain = context.WithCancelCause(context.Background())
	return s, nil
}

// Close closes the connections to Kafka.
func (s *Service) Close() {
	s.tail.Close()
	s.records.Close()
	s.raw.readers.Close()
}

// Handler returns the handler of /v1/…, /openapi.json and the page. It compresses all but live streams, if the caller accepts that.
func (s *Service) Handler() http.Handler { return s.front }
