package app

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"syscall"
	"time"
)

const (
	// headerTimeout ends connections that never get a request out.
	headerTimeout = 10 * time.Second
	// idleTimeout is longer than that of common load balancers (60 s), so that it is they who
	// close a connection, and no request meets one that is being closed.
	idleTimeout = 2 * time.Minute
	// drainTimeout is how long requests that are being answered may take to end after a signal.
	drainTimeout = 15 * time.Second
)

// Listen opens a TCP address. Where it is in use, the error says what to do; flag is the name of
// the flag that sets the address.
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

// AddressInUse is the error for an address that another process listens on.
func AddressInUse(addr, flag string) error {
	host, _, err := net.SplitHostPort(addr)
	if err != nil {
		host = "127.0.0.1"
	}
	return fmt.Errorf("listening on %s: another process has this port: stop it, or choose another one with --%s %s (0 takes a free one)",
		addr, flag, net.JoinHostPort(host, "0"))
}

// ServeHTTP answers requests on l until ctx ends. Then no new ones are taken and those under way
// may finish; what still runs after a while is cut off. It returns when all is closed.
//
// Reading a body and writing an answer have no time limit: event streams last as long as a run.
func ServeHTTP(ctx context.Context, l net.Listener, handler http.Handler, logger *slog.Logger) error {
	// Requests under way see their contexts end only when draining did not help.
	requests, cut := context.WithCancel(context.WithoutCancel(ctx))
	defer cut()
	server := &http.Server{
		Handler:           handler,
		ReadHeaderTimeout: headerTimeout,
		IdleTimeout:       idleTimeout,
		BaseContext:       func(net.Listener) context.Context { return requests },
		ErrorLog:          slog.NewLogLogger(logger.Handler(), slog.LevelWarn),
	}
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
	drain, cancel := context.WithTimeout(context.WithoutCancel(ctx), drainTimeout)
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
