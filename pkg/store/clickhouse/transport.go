package clickhouse

import (
	"net/http"
	"sync"
)

// sharedTransport is one HTTP transport for all connections of a pool. The driver makes one for each connection, and leaks it if
// the server refuses the first request (clickhouse-go 2.50, dialHttp): with a wrong password, each readiness probe would leak a
// connection.
type sharedTransport struct {
	connections int
	login       *login // nil: the driver's own
	mu          sync.Mutex
	transport   *http.Transport
}

// of is the driver's TransportFunc. All calls return the transport of the first call, since all have equal settings.
func (s *sharedTransport) of(t *http.Transport) (http.RoundTripper, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.transport == nil {
		t.MaxIdleConns, t.MaxIdleConnsPerHost = s.connections, s.connections
		s.transport = t
	}
	if s.login != nil {
		return s.login.over(s.transport), nil
	}
	return s.transport, nil
}

func (s *sharedTransport) close() {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.transport != nil {
		s.transport.CloseIdleConnections()
	}
}
