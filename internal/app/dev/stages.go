package dev

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"time"

	"github.com/skeinhq/skein/pkg/compactor"
	"github.com/skeinhq/skein/pkg/indexer"
	"github.com/skeinhq/skein/pkg/ingest"
	"github.com/skeinhq/skein/pkg/query"
)

const (
	// cacheBytes bounds the compactor's cache of histories.
	cacheBytes = 16 << 20
	// readyPoll is the interval of checking whether the stages are ready.
	readyPoll = 10 * time.Millisecond
	// readyTimeout bounds the wait until all stages are ready.
	readyTimeout = 2 * time.Minute
)

// startStages starts the four stages and returns the API of ingest and query.
func (s *Server) startStages(ctx context.Context) (http.Handler, error) {
	compactorReady, err := s.startCompactor(ctx)
	if err != nil {
		return nil, err
	}
	indexerReady, err := s.startIndexer(ctx)
	if err != nil {
		return nil, err
	}
	auth, err := s.authenticator()
	if err != nil {
		return nil, err
	}
	ingestCfg := ingest.DefaultConfig(s.client("ingest"))
	ingestCfg.Agents, ingestCfg.QueryURL, ingestCfg.Tracer = s.cfg.Agents, s.URL(), s.tracer
	front, err := ingest.New(ingestCfg, auth)
	if err != nil {
		return nil, err
	}
	s.ingest = front
	s.admin.AddCheck("ingest", func(context.Context) error { return front.Ready() })
	s.group.Go(ctx, "ingest", func(ctx context.Context) error {
		// The group has stopped the HTTP listener by now, so no request is running.
		return errors.Join(front.Run(ctx), front.Close())
	})

	queryCfg := query.DefaultConfig()
	queryCfg.Tail.Kafka, queryCfg.Logger, queryCfg.Registerer = s.client("query"), s.cfg.Logger, s.registry
	queryCfg.StreamLife, queryCfg.Links, queryCfg.Tracer = s.cfg.StreamLife, s.cfg.Links, s.tracer
	answers, err := query.New(queryCfg, s.store, auth)
	if err != nil {
		return nil, err
	}
	s.group.Closing(ctx, "query", func() error {
		answers.Close()
		return nil
	})
	s.query = answers
	s.admin.AddCheck("index", s.store.Ping)
	if err := s.awaitReady(ctx, compactorReady, indexerReady, func() bool { return front.Ready() == nil }); err != nil {
		return nil, err
	}
	api, health := split(front.Handler(), answers.Handler()), s.admin.Handler()
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path == "/healthz" || r.URL.Path == "/readyz" || r.URL.Path == "/status" { // for skein status if there is no admin port
			health.ServeHTTP(w, r)
			return
		}
		api.ServeHTTP(w, r)
	}), nil
}

func (s *Server) startCompactor(ctx context.Context) (ready func() bool, err error) {
	cfg := compactor.DefaultConfig()
	cfg.Dir = s.folder.in(compactorName)
	cfg.InstanceID = "dev"
	cfg.CacheBytes = cacheBytes
	cfg.KeepEvents = s.cfg.KeepEvents
	cfg.Registerer, cfg.Tracer = s.registry, s.tracer
	c, err := compactor.New(cfg, s.client("compactor"), s.cfg.Logger)
	if err != nil {
		return nil, err
	}
	s.admin.AddCheck("compactor", func(context.Context) error { return c.Ready() })
	s.admin.AddRemark("compactor-versions", func(context.Context) error { return c.CheckVersions() })
	s.group.Go(ctx, "compactor", c.Run)
	return func() bool { return c.Ready() == nil }, nil
}

func (s *Server) startIndexer(ctx context.Context) (ready func() bool, err error) {
	cfg := indexer.DefaultConfig(s.client("indexer"))
	cfg.Logger, cfg.Registerer, cfg.Tracer = s.cfg.Logger, s.registry, s.tracer
	i, err := indexer.New(cfg, s.store)
	if err != nil {
		return nil, err
	}
	s.admin.AddCheck("indexer", func(context.Context) error { return i.Ready() })
	s.admin.AddRemark("indexer-versions", func(context.Context) error { return i.CheckVersions() })
	s.group.Go(ctx, "indexer", i.Run)
	return func() bool { return i.Ready() == nil }, nil
}

// awaitReady waits until all stages are ready. If one ends instead, Abort returns its error.
func (s *Server) awaitReady(ctx context.Context, ready ...func() bool) error {
	deadline := time.After(readyTimeout)
	for {
		if !slices.ContainsFunc(ready, func(is func() bool) bool { return !is() }) {
			return nil
		}
		if s.group.Ended() {
			return errors.New("starting stages: one of them ended")
		}
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-deadline:
			return fmt.Errorf("starting stages: not ready after %v", readyTimeout)
		case <-time.After(readyPoll):
		}
	}
}
