package app

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"sync/atomic"
	"syscall"
	"time"

	"github.com/skeinhq/skein/internal/front"
)

const (
	// DrainTimeout is how long running requests may take after a signal, by default.
	DrainTimeout = 15 * time.Second
	// lastGrace is how long running requests may take after Drain.End.
	lastGrace = 5 * time.Second
	// drainPoll is the interval of checking whether requests still run, while a server stops.
	drainPoll = 10 * time.Millisecond
)

// Listen opens a TCP address. flag is the flag of the address, for the error if the address is in use.
func Listen(ctx context.Context, addr, flag string) (net.Listener, error) {
	l, err := (&net.ListenConfig{}).Listen(ctx, "tcp", addr)
	if errors.Is(err, syscall.EADDRINUSE) {
		return nil, AddressInUse(addr, flag)
	}
	if err != nil {
		return nil, fmt.Errorf("listening on %s: %w", addr, err)
	}
	return l, nil
}

// AddressInUse returns the error for an address that another process listens on.
func AddressInUse(addr, flag string) error {
	host, _, err := net.SplitHostPort(addr)
	if err != nil {
		host = "127.0.0.1"
	}
	return fmt.Errorf("listening on %s: %w: stop the process that uses it, or choose another port with --%s %s (0 picks a free one)",
		addr, syscall.EADDRINUSE, flag, net.JoinHostPort(host, "0"))
}

// ServeHTTP serves requests on l until ctx ends. Then it accepts no new requests, waits up to DrainTimeout for running ones,
// closes their connections and returns. Reading a body and writing a response have no time limit, since an event stream
// lasts as long as its run.
func ServeHTTP(ctx context.Context, l net.Listener, handler http.Handler, logger *slog.Logger) error {
	return ServeDraining(ctx, l, handler, logger, Drain{Timeout: DrainTimeout})
}

// Drain configures how a server stops.
type Drain struct {
	// Timeout is how long running requests may take.
	Timeout time.Duration
	// Begin makes the handler refuse new requests. The listener stays open while requests run, so that callers get the refusal. End makes
	// running requests end after Timeout. If Begin is nil, the listener closes at once and the connections close after Timeout.
	Begin, End func()
	// Waiting is called after Begin with the number of running requests, unless there are none. It may be nil.
	Waiting func(requests int)
}

// ServeDraining is ServeHTTP with settings for the stop.
func ServeDraining(ctx context.Context, l net.Listener, handler http.Handler, logger *slog.Logger, d Drain) error {
	var running atomic.Int64
	counted := http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		running.Add(1)
		defer running.Add(-1)
		handler.ServeHTTP(w, r)
	})
	// The contexts of running requests end only after the drain has timed out.
	requests, cut := context.WithCancel(context.WithoutCancel(ctx))
	defer cut()
	server := front.NewServer(counted)
	server.BaseContext = func(net.Listener) context.Context { return requests }
	server.ErrorLog = slog.NewLogLogger(logger.Handler(), slog.LevelWarn)
	var failed error
	served := make(chan struct{})
	go func() {
		failed = server.Serve(l)
		close(served)
	}()
	select {
	case <-served:
		return fmt.Errorf("serving HTTP: %w", failed)
	case <-ctx.Done():
	}
	timeout := d.Timeout
	if d.Begin != nil {
		d.Begin()
		if n := running.Load(); n > 0 && d.Waiting != nil {
			d.Waiting(int(n))
		}
		for end := time.Now().Add(d.Timeout); running.Load() > 0; time.Sleep(drainPoll) {
			if time.Now().After(end) {
				d.End()
				break
			}
		}
		timeout = lastGrace
	}
	drain, cancel := context.WithTimeout(context.WithoutCancel(ctx), timeout)
	defer cancel()
	err := server.Shutdown(drain)
	if errors.Is(err, context.DeadlineExceeded) {
		cut()
		err = server.Close()
	}
	<-served
	if err != nil {
		return fmt.Errorf("stopping HTTP: %w", err)
	}
	return nil
}
