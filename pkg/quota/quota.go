package quota

import (
	"context"
	"fmt"
	"log/slog"
	"maps"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/skeinhq/skein/internal/reload"
)

const (
	// forgetAfter is how long an idle tenant is kept. Its buckets are full long before that.
	forgetAfter = 10 * time.Minute
	// maxFileBytes is the largest accepted file, in bytes.
	maxFileBytes = 16 << 20
)

// Config contains the settings of Quotas.
type Config struct {
	// Path is the quota file. If it is "", Stage applies to every tenant.
	Path string
	// Replicas is the number of processes that share the limits. Each process grants an equal part.
	Replicas int
	// Stage contains the limits for everything that the file does not set.
	Stage Limits
	// Remark returns a warning if limits may have a surprising effect, else "". The warning is logged whenever such limits
	// come into force. nil: no warnings.
	Remark     func(Limits) string
	Logger     *slog.Logger          // nil: none
	Registerer prometheus.Registerer // nil: none
}

// Quotas are the limits of all tenants and their use in this process.
type Quotas struct {
	cfg     Config
	metrics *metrics
	file    atomic.Pointer[file]

	tenants sync.Map // tenant id to *Tenant
	source  reload.Source
}

// Open reads the quota file. An invalid file is an error here. Later, in Run, an invalid file is logged and changes
// nothing.
func Open(cfg Config) (*Quotas, error) {
	if cfg.Replicas < 1 {
		return nil, fmt.Errorf("checking replicas: %d is below 1: set it to the number of processes of this stage", cfg.Replicas)
	}
	if cfg.Logger == nil {
		cfg.Logger = slog.New(slog.DiscardHandler)
	}
	q := &Quotas{cfg: cfg, metrics: newMetrics(cfg.Registerer)}
	q.file.Store(&file{fallback: cfg.Stage})
	if cfg.Path == "" {
		return q, nil
	}
	q.source = reload.Source{What: "quotas of " + cfg.Path, Read: reload.File(cfg.Path, maxFileBytes), Take: q.take, Failing: q.metrics.stale}
	if err := q.source.Load(context.Background(), time.Now()); err != nil {
		return nil, err
	}
	q.source.Reloads = q.metrics.reloads
	q.source.Refused = func(err error) {
		cfg.Logger.Error("quotas were not read; those read before stay in force", "error", err)
	}
	return q, nil
}

// Unlimited returns Quotas that refuse nothing.
func Unlimited() *Quotas {
	q, err := Open(Config{Replicas: 1})
	if err != nil { // impossible: Open reads no file and registers no metric here
		panic(err)
	}
	return q
}

// Run reads the file again whenever it changes and drops idle tenants, until ctx ends.
func (q *Quotas) Run(ctx context.Context) error {
	tick := time.NewTicker(reload.Interval)
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			return nil
		case now := <-tick.C:
			if q.cfg.Path != "" {
				_ = q.source.Load(ctx, now) // Refused logs the error
			}
			q.forget(now)
		}
	}
}

// take applies a new file. Tokens already taken and slots in use stay counted.
func (q *Quotas) take(text []byte) error {
	f, err := parse(text, q.cfg.Stage)
	if err != nil {
		return err
	}
	q.file.Store(f)
	q.tenants.Range(func(id, t any) bool {
		t.(*Tenant).set(f.of(id.(string)))
		return true
	})
	q.cfg.Logger.Info("quotas are in force", "tenants", len(f.tenants))
	q.remark(f)
	return nil
}

// remark logs the warnings about a file's limits: first that for the default, then those for tenants that differ from
// it.
func (q *Quotas) remark(f *file) {
	if q.cfg.Remark == nil {
		return
	}
	usual := q.cfg.Remark(f.fallback)
	if usual != "" {
		q.cfg.Logger.Warn("a quota may not do what it seems to", "tenant", "default", "remark", usual)
	}
	for _, tenant := range slices.Sorted(maps.Keys(f.tenants)) {
		if remark := q.cfg.Remark(f.tenants[tenant]); remark != "" && remark != usual {
			q.cfg.Logger.Warn("a quota may not do what it seems to", "tenant", tenant, "remark", remark)
		}
	}
}

// forget drops idle tenants, so that memory does not grow with every tenant ever seen.
func (q *Quotas) forget(now time.Time) {
	q.tenants.Range(func(id, t any) bool {
		if t.(*Tenant).idle(now) {
			q.tenants.CompareAndDelete(id, t)
		}
		return true
	})
}

// Limits returns a tenant's current limits, which apply to all replicas together.
func (q *Quotas) Limits(tenant string) Limits { return q.file.Load().of(tenant) }

// Tenant returns the counters of a tenant. Keep the result only for one request, because idle tenants are dropped.
func (q *Quotas) Tenant(id string) *Tenant {
	if t, ok := q.tenants.Load(id); ok {
		return t.(*Tenant)
	}
	file := q.file.Load()
	fresh := newTenant(q, file.of(id))
	t, there := q.tenants.LoadOrStore(id, fresh)
	for now := q.file.Load(); !there && now != file; now = q.file.Load() { // if the file changed meanwhile, take missed the tenant
		file = now
		fresh.set(file.of(id))
	}
	return t.(*Tenant)
}
