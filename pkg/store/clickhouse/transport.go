package clickhouse

import (
	"net/http"
	"sync"
)

// sharedTransport has all connections of a pool use one HTTP transport. The driver makes one for each,
// and forgets it when the server refuses the first question (clickhouse-go 2.50, dialHttp): with a
// wrong password, each readiness probe would leave a connection behind.
type sharedTransport struct {
	connections int
	login       *login // nil: the driver's own
	mu          sync.Mutex
	transport   *http.Transport
}

// of is the driver's TransportFunc. All calls come with equal transports.
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
