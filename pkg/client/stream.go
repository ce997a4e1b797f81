package client

import (
	"context"
	"crypto/tls"
	"io"
	"net"
	"net/http"
	"net/http/httptrace"
	"sync"
)

// A body that arrives slowly must end with its connection. net/http notices at once that a connection is closed, but
// then waits for the current Read of the body, which may take hours. So the body is closed as soon as the connection
// is.

// watched is a connection that reports its Close.
type watched struct {
	net.Conn
	once   sync.Once
	closed chan struct{}
}

// Close implements net.Conn.
func (w *watched) Close() error {
	w.once.Do(func() { close(w.closed) })
	return w.Conn.Close()
}

// watchConns wraps the connections of a transport in watched.
func watchConns(t *http.Transport) {
	dial := t.DialContext
	t.DialContext = func(ctx context.Context, network, addr string) (net.Conn, error) {
		conn, err := dial(ctx, network, addr)
		if err != nil {
			return nil, err
		}
		return &watched{Conn: conn, closed: make(chan struct{})}, nil
	}
}

// closeWith closes a body when ctx ends, or when the request's connection does. The returned function stops that.
func closeWith(ctx context.Context, body io.Closer) (context.Context, func()) {
	over := make(chan struct{})
	shut := sync.OnceFunc(func() { _ = body.Close() }) // it only ends reads
	ctx = httptrace.WithClientTrace(ctx, &httptrace.ClientTrace{GotConn: func(info httptrace.GotConnInfo) {
		conn := info.Conn
		if secure, ok := conn.(*tls.Conn); ok {
			conn = secure.NetConn()
		}
		w, ok := conn.(*watched)
		if !ok {
			return // made by somebody else's dialer: net/http does what it can
		}
		go func() {
			select {
			case <-w.closed:
				shut()
			case <-over:
			}
		}()
	}})
	stop := context.AfterFunc(ctx, shut)
	return ctx, func() {
		stop()
		close(over)
	}
}
