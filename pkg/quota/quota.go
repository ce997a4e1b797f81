package quota

import (
	"context"
	"crypto/sha256"
	"fmt"
	"io"
	"log/slog"
	"maps"
	"os"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/prometheus/client_golang/prometheus"
)

const (
	// pollInterval is how soon a changed file is seen. It is polled and not watched, as pkg/tenant's key file is: what a
	// watch says of a mounted ConfigMap, whose links are swapped, depends on the system.
	pollInterval = 2 * time.Second
	// forgetAfter is when a tenant that does nothing is forgotten. Its buckets are full long before.
	forgetAfter = 10 * time.Minute
	// maxFileBytes bounds what is read.
	maxFileBytes = 16 << 20
)

// Config are the settings of Quotas.
type Config struct {
	// Path is the file; "" for none, and then Stage's limits hold for every tenant.
	Path string
	// Replicas is the number of processes that share the limits. Each grants an equal part.
	Replicas int
	// Stage are the limits of a tenant where the file says nothing.
	Stage Limits
	// Remark says what is surprising about limits, or nothing; it is a warning in the log whenever they come into force. nil: none.
	Remark     func(Limits) string
	Logger     *slog.Logger          // nil: none
	Registerer prometheus.Registerer // nil: none
}

// Quotas hold the limits of all tenants and what each has used of them in this process.
type Quotas struct {
	cfg     Config
	metrics *metrics
	file    atomic.Pointer[file]

	tenants sync.Map // of *Tenant by id

	mu      sync.Mutex // of reload
	loaded  [sha256.Size]byte
	refused error // why the file as it is now is not in force
}

// Open reads the file. A file that cannot be used is an error here; later, in Run, it changes nothing and is logged.
func Open(cfg Config) (*Quotas, error) {
	if cfg.Replicas < 1 {
		return nil, fmt.Errorf("checking replicas: %d is below 1: set it to the number of processes of this stage", cfg.Replicas)
	}
	if cfg.Logger == nil {
		cfg.Logger = slog.New(slog.DiscardHandler)
	}
	q := &Quotas{cfg: cfg}
	q.file.Store(&file{fallback: cfg.Stage})
	if cfg.Path != "" {
		text, err := readBounded(cfg.Path)
		if err != nil {
			return nil, err
		}
		f, err := parse(text, cfg.Stage)
		if err != nil {
			return nil, fmt.Errorf("reading quotas of %s: %w", cfg.Path, err)
		}
		q.file.Store(f)
		q.loaded = sha256.Sum256(text)
		q.remark(f)
	}
	var err error
	if q.metrics, err = newMetrics(cfg.Registerer); err != nil {
		return nil, fmt.Errorf("registering metrics of quotas: %w", err)
	}
	return q, nil
}

// Unlimited returns Quotas that refuse nothing.
func Unlimited() *Quotas {
	q, err := Open(Config{Replicas: 1})
	if err != nil { // it reads no file and registers nothing
		panic(err)
	}
	return q
}

// Run reads the file again whenever it changes, and forgets idle tenants, until ctx ends.
func (q *Quotas) Run(ctx context.Context) error {
	tick := time.NewTicker(pollInterval)
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			return nil
		case now := <-tick.C:
			if q.cfg.Path != "" {
				q.reload()
			}
			q.forget(now)
		}
	}
}

// reload puts the file as it is now in force. What tenants have used stays used.
func (q *Quotas) reload() {
	q.mu.Lock()
	defer q.mu.Unlock()
	text, err := readBounded(q.cfg.Path)
	sum := sha256.Sum256(text)
	var f *file
	if err == nil && sum != q.loaded {
		f, err = parse(text, q.cfg.Stage)
	}
	was := q.refused
	q.refused = err
	switch {
	case err != nil:
		q.metrics.stale.Set(1)
		if was == nil || was.Error() != err.Error() { // one line for each thing that is wrong
			q.metrics.reloads.WithLabelValues(reloadRefused).Inc()
			q.cfg.Logger.Error("quotas were not read; those read before stay in force", "error", err)
		}
	case f == nil:
		q.metrics.stale.Set(0)
	default:
		q.loaded = sum
		q.file.Store(f)
		q.tenants.Range(func(id, t any) bool {
			t.(*Tenant).set(f.of(id.(string)))
			return true
		})
		q.metrics.stale.Set(0)
		q.metrics.reloads.WithLabelValues(reloadLoaded).Inc()
		q.cfg.Logger.Info("quotas are in force", "tenants", len(f.tenants))
		q.remark(f)
	}
}

// remark warns of what is surprising about the limits of a file: of the default first, and of each tenant whose limits are others.
func (q *Quotas) remark(f *file) {
	if q.cfg.Remark == nil {
		return
	}
	usual := q.cfg.Remark(f.fallback)
	if usual != "" {
		q.cfg.Logger.Warn("a quota may not do what it seems to", "tenant", "default", "remark", usual)
	}
	for _, tenant := range slices.Sorted(maps.Keys(f.tenants)) {
		if said := q.cfg.Remark(f.tenants[tenant]); said != "" && said != usual {
			q.cfg.Logger.Warn("a quota may not do what it seems to", "tenant", tenant, "remark", said)
		}
	}
}

// forget drops tenants that are idle, so that memory does not grow with every tenant ever seen.
func (q *Quotas) forget(now time.Time) {
	q.tenants.Range(func(id, t any) bool {
		if t.(*Tenant).idle(now) {
			q.tenants.CompareAndDelete(id, t)
		}
		return true
	})
}

func readBounded(path string) (text []byte, err error) {
	f, err := os.Open(path)
	if err != nil {
		return nil, fmt.Errorf("reading quotas: %w", err)
	}
	defer func() { _ = f.Close() }() // only read
	text, err = io.ReadAll(io.LimitReader(f, maxFileBytes+1))
	if err != nil {
		return nil, fmt.Errorf("reading quotas: %w", err)
	}
	if len(text) > maxFileBytes {
		return nil, fmt.Errorf("reading quotas of %s: %w: it has more than %d bytes", path, ErrFile, maxFileBytes)
	}
	return text, nil
}

// Limits returns a tenant's limits in force, those of all replicas together.
func (q *Quotas) Limits(tenant string) Limits { return q.file.Load().of(tenant) }

// Tenant returns a tenant's share. Keep it for a request, not for longer.
func (q *Quotas) Tenant(id string) *Tenant {
	if t, ok := q.tenants.Load(id); ok {
		return t.(*Tenant)
	}
	file := q.file.Load()
	fresh := newTenant(q, file.of(id))
	t, there := q.tenants.LoadOrStore(id, fresh)
	for now := q.file.Load(); !there && now != file; now = q.file.Load() { // it has changed before the tenant was there to be told
		file = now
		fresh.set(file.of(id))
	}
	return t.(*Tenant)
}
