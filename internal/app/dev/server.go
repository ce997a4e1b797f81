package dev

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"slices"
	"strings"
	"syscall"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/twmb/franz-go/pkg/kadm"

	"github.com/skeinhq/skein/internal/admin"
	"github.com/skeinhq/skein/internal/app"
	"github.com/skeinhq/skein/internal/front"
	"github.com/skeinhq/skein/internal/trace"
	"github.com/skeinhq/skein/pkg/ingest"
	"github.com/skeinhq/skein/pkg/kafka"
	"github.com/skeinhq/skein/pkg/query"
	"github.com/skeinhq/skein/pkg/store/sqlite"
)

// Server is a running development server.
type Server struct {
	cfg    Config
	group  *app.Group
	folder *folder

	registry *prometheus.Registry
	admin    *admin.Admin
	http     net.Listener
	adminL   net.Listener

	kafka  kafka.Config
	adm    *kadm.Client
	store  *sqlite.Store
	ingest *ingest.Service
	query  *query.Service

	// keyFile has the API key that requests need; "" if they need none.
	keyFile string
	tracer  *trace.Tracer
}

// Start starts all stages and returns once they answer requests. If the last process did not close the folder, Start first
// rebuilds the derived data from the broker's topics.
//
// The caller must call Wait or Close. After an error nothing is running.
func Start(ctx context.Context, cfg Config) (*Server, error) {
	begin := time.Now()
	if err := cfg.Validate(); err != nil {
		return nil, err
	}
	s := &Server{cfg: cfg, group: app.NewGroup(), registry: app.NewRegistry()}
	s.admin = admin.New(s.registry)
	s.admin.Identify(app.BuildInfo().Version, "ingest", "compactor", "indexer", "query")
	s.admin.ServeProfiles() // loopback only
	if err := s.start(ctx); err != nil {
		if errors.Is(err, ErrFolderInUse) || errors.Is(err, syscall.EADDRINUSE) {
			err = fmt.Errorf("%w. A second instance beside it, also by make run, needs its own SKEIN_LISTEN=127.0.0.1:0, "+
				"SKEIN_KAFKA_LISTEN=127.0.0.1:0 and SKEIN_DATA=FOLDER", err)
		}
		// Everything opened so far is a part of the group.
		return nil, s.group.Abort(err)
	}
	s.admin.Started()
	cfg.Logger.Info("ready", "http", s.URL(), "kafka", s.Broker(), "start", time.Since(begin).Round(time.Millisecond).String())
	return s, nil
}

func (s *Server) start(ctx context.Context) (err error) {
	if s.tracer, err = trace.New(ctx, "skein", app.BuildInfo().Version, s.cfg.Logger); err != nil {
		return app.Usagef("%w", err)
	}
	s.group.Closing(ctx, "spans", s.tracer.Close)
	if err := s.openFolder(ctx); err != nil {
		return err
	}
	if err := s.listen(ctx); err != nil {
		return err
	}
	if err := s.openBroker(ctx); err != nil {
		return err
	}
	if err := s.openStore(ctx); err != nil {
		return err
	}
	handler, err := s.startStages(ctx)
	if err != nil {
		return err
	}
	handler = s.cfg.CORS.Handler(handler)
	if s.keyFile == "" {
		handler = app.LocalOnly(handler, s.cfg.CORS.Origins...)
	}
	s.group.Go(ctx, "HTTP listener", func(ctx context.Context) error {
		return app.ServeDraining(ctx, s.http, handler, s.cfg.Logger, app.Drain{
			Timeout: app.DrainTimeout, Begin: s.drain, End: s.ingest.Stop, Waiting: s.cfg.Draining,
		})
	})
	return nil
}

// drain makes the stages refuse new requests.
func (s *Server) drain() {
	s.ingest.Drain()
	s.query.Drain()
}

func (s *Server) openFolder(ctx context.Context) error {
	f, err := openFolder(s.cfg.Data)
	if err != nil {
		return err
	}
	s.folder = f
	s.group.Closing(ctx, "data folder", f.close)
	return nil
}

func (s *Server) listen(ctx context.Context) error {
	var err error
	if s.http, err = app.Listen(ctx, s.cfg.Listen, "listen"); err != nil {
		return err
	}
	// ServeHTTP also closes this listener, but a failed start does not reach ServeHTTP.
	s.group.Closing(ctx, "HTTP port", func() error {
		_ = s.http.Close() // most likely closed before
		return nil
	})
	if s.cfg.AdminListen == "" {
		return nil
	}
	if s.adminL, err = app.Listen(ctx, s.cfg.AdminListen, "admin-listen"); err != nil {
		return err
	}
	s.group.Go(ctx, "admin listener", func(ctx context.Context) error {
		return app.ServeHTTP(ctx, s.adminL, app.LocalOnly(s.admin.Handler()), s.cfg.Logger)
	})
	return nil
}

// URL returns the address of the HTTP API, such as "http://127.0.0.1:8420". It uses loopback if the server listens on all addresses.
func (s *Server) URL() string {
	host, port, err := net.SplitHostPort(s.http.Addr().String())
	if err != nil { // a TCP listener always has HOST:PORT
		return "http://" + s.http.Addr().String()
	}
	if ip := net.ParseIP(host); ip == nil || ip.IsUnspecified() {
		host = "127.0.0.1"
	}
	return "http://" + net.JoinHostPort(host, port)
}

// KeyFile returns the file with the API key that every request needs, or "" if the server listens on loopback and requests need none.
func (s *Server) KeyFile() string { return s.keyFile }

// AdminURL returns the address of metrics, health and profiles, or "" if there is none.
func (s *Server) AdminURL() string {
	if s.adminL == nil {
		return ""
	}
	return "http://" + s.adminL.Addr().String()
}

// Agents returns the names of the proxy's agents.
func (s *Server) Agents() []string { return s.cfg.Agents.Names() }

// Broker returns the address of the embedded Kafka broker.
func (s *Server) Broker() string { return s.kafka.Brokers[0] }

// Kafka returns the configuration of the embedded broker's clients and topics.
func (s *Server) Kafka() kafka.Config { return s.kafka }

// Data returns the data folder.
func (s *Server) Data() string { return s.folder.path }

// Wait blocks until ctx ends or a stage fails, then stops everything in order.
func (s *Server) Wait(ctx context.Context) error {
	stop := context.AfterFunc(ctx, s.admin.Draining)
	defer stop()
	return s.group.Wait(ctx)
}

// Close stops everything in order.
func (s *Server) Close() error {
	s.admin.Draining()
	return s.group.Abort(nil)
}

// split passes writes to ingest and reads, among them POST /v1/connect, to query.
func split(writes, reads http.Handler) http.Handler {
	routes := slices.Concat(ingest.Routes(), query.Routes())
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		var allowed []string
		for i := range routes {
			if routes[i].Match(r.URL.EscapedPath()) {
				allowed = append(allowed, routes[i].Methods()...)
			}
		}
		if len(allowed) > 0 && !slices.Contains(allowed, r.Method) {
			slices.Sort(allowed)
			methods := strings.Join(allowed, ", ")
			w.Header().Set("Allow", methods)
			w.Header().Set("Connection", "close") // the rest of the body is not read
			front.WriteProblem(w, front.Refuse(http.StatusMethodNotAllowed, "", "this path takes %s", methods))
			return
		}
		if r.Method != http.MethodGet && r.Method != http.MethodHead && r.URL.Path != "/v1/connect" {
			writes.ServeHTTP(w, r)
			return
		}
		reads.ServeHTTP(w, r)
	})
}
