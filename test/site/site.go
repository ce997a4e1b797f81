// Package site runs all stages in one process, for tests that meet them from outside.
package site

import (
	"context"
	"fmt"
	"log/slog"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/skeinhq/skein/internal/clickhousetest"
	"github.com/skeinhq/skein/pkg/compactor"
	"github.com/skeinhq/skein/pkg/indexer"
	"github.com/skeinhq/skein/pkg/ingest"
	"github.com/skeinhq/skein/pkg/ingest/agents"
	"github.com/skeinhq/skein/pkg/kafka"
	"github.com/skeinhq/skein/pkg/kafka/kafkatest"
	"github.com/skeinhq/skein/pkg/query"
	"github.com/skeinhq/skein/pkg/store"
	"github.com/skeinhq/skein/pkg/store/clickhouse"
	"github.com/skeinhq/skein/pkg/tenant"
)

// Store is a lineage store with all its sides.
type Store interface {
	store.Writer
	store.Reader
	store.Migrator
}

// Options vary the stages that write.
type Options struct {
	Auth   tenant.Authenticator
	Agents agents.Config
	// Checkpoint is how often open runs are written. If it is 0, a run is only announced before it ends.
	Checkpoint time.Duration
	// Production keeps the intervals of production.
	Production bool
	// IdleLimit is the compactor's default if it is 0.
	IdleLimit time.Duration
}

// Start migrates the store, starts ingest, compactor and indexer, and returns ingest once all are ready. They run until the test ends, and
// then close the store.
func Start(t *testing.T, k kafka.Config, st Store, o Options) *ingest.Service {
	t.Helper()
	t.Cleanup(func() {
		if err := st.Close(); err != nil {
			t.Error(err)
		}
	})
	if err := st.Migrate(t.Context()); err != nil {
		t.Fatal(err)
	}
	logger := slog.New(slog.DiscardHandler)
	front := ingest.DefaultConfig(k)
	front.Agents = o.Agents
	door, err := ingest.New(front, o.Auth)
	if err != nil {
		t.Fatal(err)
	}
	Run(t, func(ctx context.Context) error {
		err := door.Run(ctx)
		if closed := door.Close(); err == nil {
			err = closed
		}
		return err
	})
	c := compactor.DefaultConfig()
	c.Dir, c.InstanceID = t.TempDir(), "one"
	if !o.Production {
		c.CommitInterval = 20 * time.Millisecond
		c.CheckpointInterval, c.CheckpointMax, c.CheckpointFactor = time.Hour, time.Hour, 1000
	}
	if o.Checkpoint > 0 {
		c.CheckpointInterval, c.CheckpointMax, c.CheckpointFactor = o.Checkpoint, o.Checkpoint, 0
	}
	if o.IdleLimit > 0 {
		c.IdleLimit = o.IdleLimit
	}
	folding, err := compactor.New(c, k, logger)
	if err != nil {
		t.Fatal(err)
	}
	Run(t, folding.Run)
	i := indexer.DefaultConfig(k)
	i.Logger, i.Registerer = logger, prometheus.NewRegistry()
	if !o.Production {
		i.MaxDelay = 10 * time.Millisecond
	}
	indexing, err := indexer.New(i, st)
	if err != nil {
		t.Fatal(err)
	}
	Run(t, indexing.Run)
	Eventually(t, "the stages are ready", func() (string, bool) {
		err := fmt.Errorf("ingest: %w; compactor: %w; indexer: %w", door.Ready(), folding.Ready(), indexing.Ready())
		return err.Error(), door.Ready() == nil && folding.Ready() == nil && indexing.Ready() == nil
	})
	return door
}

// ClickHouse opens a database as the store, migrated, and closes it when the test ends.
func ClickHouse(tb testing.TB, server clickhousetest.Server) *clickhouse.Store {
	tb.Helper()
	s, err := clickhouse.New(clickhouse.Options{Addrs: []string{server.Addr}, Database: server.Database, Username: server.Username,
		Password: server.Password})
	if err != nil {
		tb.Fatal(err)
	}
	tb.Cleanup(func() {
		if err := s.Close(); err != nil {
			tb.Error(err)
		}
	})
	if err := s.Migrate(tb.Context()); err != nil {
		tb.Fatal(err)
	}
	return s
}

// Query makes a query stage that reads until the test ends; change changes its settings.
func Query(t *testing.T, k kafka.Config, st store.Reader, auth tenant.Authenticator, change func(*query.Config)) *query.Service {
	t.Helper()
	q := query.DefaultConfig()
	q.Tail.Kafka, q.Logger, q.Registerer = k, slog.New(slog.DiscardHandler), prometheus.NewRegistry()
	change(&q)
	service, err := query.New(q, st, auth)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(service.Close)
	return service
}

// Run runs a part until the test ends.
func Run(t *testing.T, part func(context.Context) error) {
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan error, 1)
	go func() { done <- part(ctx) }()
	t.Cleanup(func() {
		cancel()
		if err := <-done; err != nil {
			t.Error(err)
		}
	})
}

// Eventually asks until the answer is the wanted one.
func Eventually(t *testing.T, what string, ask func() (answer string, ok bool)) {
	t.Helper()
	deadline := time.NewTimer(kafkatest.Timeout)
	defer deadline.Stop()
	tick := time.NewTicker(10 * time.Millisecond)
	defer tick.Stop()
	for {
		answer, ok := ask()
		if ok {
			return
		}
		select {
		case <-tick.C:
		case <-deadline.C:
			t.Fatalf("waited for this: %s; the last answer: %s", what, answer)
		}
	}
}
