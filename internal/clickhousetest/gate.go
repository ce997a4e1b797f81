package clickhousetest

import (
	"context"
	"net"
	"strings"
	"sync"
	"testing"
)

// Gate is a way to a server that can go away, hang, and come back at the same address. It knows nothing of
// what it lets through, so any protocol will do.
type Gate struct {
	// Addr is the server's address by this way, of the same form.
	Addr string

	tb           testing.TB
	host, target string
	wg           sync.WaitGroup

	mu       sync.Mutex
	listener net.Listener
	conns    []net.Conn
	// flow is closed while bytes go through, cut once the connections of its time are.
	flow, cut chan struct{}
}

// NewGate returns an open gate to a server's address. It is closed when the test ends.
func NewGate(tb testing.TB, addr string) *Gate {
	tb.Helper()
	scheme, target, _ := strings.Cut(addr, "://")
	g := &Gate{tb: tb, host: "127.0.0.1:0", target: target, flow: make(chan struct{})}
	close(g.flow)
	g.Open()
	g.Addr = scheme + "://" + g.host
	tb.Cleanup(g.Close)
	return g
}

// Open lets connections in again after Close.
func (g *Gate) Open() {
	g.tb.Helper()
	l, err := (&net.ListenConfig{}).Listen(context.Background(), "tcp", g.host) // also used when the test's own has ended
	if err != nil {
		g.tb.Fatal(err)
	}
	g.mu.Lock()
	g.listener, g.host, g.cut = l, l.Addr().String(), make(chan struct{})
	g.mu.Unlock()
	g.wg.Go(func() {
		for {
			in, err := l.Accept()
			if err != nil {
				return
			}
			g.connect(in)
		}
	})
}

// Close cuts all connections and refuses new ones.
func (g *Gate) Close() {
	g.mu.Lock()
	select {
	case <-g.cut: // closed already
	default:
		close(g.cut)
		_ = g.listener.Close()
	}
	for _, c := range g.conns {
		_ = c.Close()
	}
	g.conns = nil
	g.mu.Unlock()
	g.wg.Wait()
}

// Hang keeps all connections and takes new ones, and lets nothing through.
func (g *Gate) Hang() {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.flow = make(chan struct{})
}

// GoOn lets through what was held up by Hang, and what comes.
func (g *Gate) GoOn() {
	g.mu.Lock()
	defer g.mu.Unlock()
	close(g.flow)
}

func (g *Gate) connect(in net.Conn) {
	out, err := (&net.Dialer{}).DialContext(context.Background(), "tcp", g.target)
	if err != nil {
		_ = in.Close()
		return
	}
	g.mu.Lock()
	defer g.mu.Unlock()
	select {
	case <-g.cut: // meanwhile
		_, _ = in.Close(), out.Close() // nothing went through
		return
	default:
	}
	g.conns = append(g.conns, in, out)
	cut := g.cut
	g.wg.Go(func() { g.pass(out, in, cut) })
	g.wg.Go(func() { g.pass(in, out, cut) })
}

// pass copies from one end to the other until either is gone.
func (g *Gate) pass(to, from net.Conn, cut <-chan struct{}) {
	defer func() { _ = to.Close() }() // the end of one is the end of the other
	buf := make([]byte, 32<<10)
	for {
		n, err := from.Read(buf)
		if n > 0 {
			g.mu.Lock()
			flow := g.flow
			g.mu.Unlock()
			select {
			case <-flow:
			case <-cut:
				return
			}
			if _, err := to.Write(buf[:n]); err != nil {
				return
			}
		}
		if err != nil {
			return
		}
	}
}
