package kafkatest

import (
	"context"
	"encoding/binary"
	"errors"
	"io"
	"maps"
	"net"
	"slices"
	"sync"

	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/skeinhq/skein/pkg/kafka"
)

// Fate decides what happens to a request on a Wire.
type Fate int

const (
	// Deliver passes the request and its response.
	Deliver Fate = iota
	// CutBefore breaks the connection before the broker has seen the request.
	CutBefore
	// CutAfter breaks the connection after the broker has answered. The broker has carried out the request, but the client
	// does not learn of it.
	CutAfter
	// Hang drops the request and all later requests on its connection, and delivers no response there.
	Hang
	// DownBefore cuts all connections of the wire before the broker has seen the request, as if the process were killed
	// then.
	DownBefore
	// DownAfter cuts all connections of the wire after the request was sent to the broker.
	DownAfter
)

// Request is a request that is being sent to a broker.
type Request struct {
	Key kmsg.Key
	// At is how many requests with this key the wire has sent before.
	At int
}

// Wire is one process's connection to the brokers. Faults of kfake itself affect all processes. A Wire affects only its
// own process, and can also lose a response.
type Wire struct {
	Config kafka.Config

	dial func(ctx context.Context, network, address string) (net.Conn, error)

	mu     sync.Mutex
	sent   map[kmsg.Key]int
	decide func(Request) Fate
	conns  map[*wireConn]struct{}
	dead   chan struct{}
}

// Wire returns a new Wire to the cluster. Clients that are made from its Config use it.
func (c *Cluster) Wire() *Wire {
	w := &Wire{dial: c.dial, sent: map[kmsg.Key]int{}, conns: map[*wireConn]struct{}{}, dead: make(chan struct{})}
	w.Config = c.Config
	w.Config.Options = func() []kgo.Opt {
		opts := []kgo.Opt{kgo.Dialer(w.connect)}
		if c.Config.Options != nil {
			opts = append(c.Config.Options(), opts...)
		}
		return opts
	}
	return w
}

// Decide sets the function that decides the fate of every later request; nil delivers all. The connection's goroutine
// calls it, so while the function waits, the request waits, too.
func (w *Wire) Decide(f func(Request) Fate) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.decide = f
}

// Sent returns how many requests of each kind the wire has sent so far.
func (w *Wire) Sent() map[kmsg.Key]int {
	w.mu.Lock()
	defer w.mu.Unlock()
	return maps.Clone(w.sent)
}

// Down breaks all connections and prevents new ones, as if the process were dead.
func (w *Wire) Down() {
	w.mu.Lock()
	if !w.isDead() {
		close(w.dead)
	}
	conns := slices.Collect(maps.Keys(w.conns))
	w.mu.Unlock()
	for _, c := range conns {
		_ = c.Close() // may be closed already
	}
}

// Dead returns a channel that is closed when the wire is down.
func (w *Wire) Dead() <-chan struct{} { return w.dead }

func (w *Wire) isDead() bool {
	select {
	case <-w.dead:
		return true
	default:
		return false
	}
}

var (
	errCut  = errors.New("the connection was cut")
	errDown = errors.New("the wire is down")
)

func (w *Wire) connect(ctx context.Context, network, address string) (net.Conn, error) {
	conn, err := w.dial(ctx, network, address)
	if err != nil {
		return nil, err
	}
	c := &wireConn{Conn: conn, wire: w}
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.isDead() {
		return nil, errors.Join(errDown, conn.Close())
	}
	w.conns[c] = struct{}{}
	return c, nil
}

// fate counts a request and returns its fate.
func (w *Wire) fate(key kmsg.Key) Fate {
	w.mu.Lock()
	at, decide := w.sent[key], w.decide
	w.sent[key]++
	w.mu.Unlock()
	if decide == nil {
		return Deliver
	}
	return decide(Request{Key: key, At: at})
}

// wireConn is a connection of a Wire. It relies on kgo, which writes each request with one call and reads in one
// goroutine.
type wireConn struct {
	net.Conn
	wire *Wire

	mu   sync.Mutex
	hung bool
	lost map[int32]bool // correlation ids whose responses are not delivered

	answer []byte // bytes of a response that the client has not read yet
}

// A request begins with its size (4 bytes), key (2), version (2) and correlation id (4), a response with its size and
// correlation id.
const (
	requestHead = 12
	answerHead  = 8
)

func (c *wireConn) Write(b []byte) (int, error) {
	if len(b) < requestHead {
		return 0, errors.New("a write is no whole request")
	}
	fate := c.wire.fate(kmsg.Key(binary.BigEndian.Uint16(b[4:])))
	c.mu.Lock()
	switch fate {
	case Hang:
		c.hung = true
	case CutAfter:
		if c.lost == nil {
			c.lost = map[int32]bool{}
		}
		c.lost[int32(binary.BigEndian.Uint32(b[8:]))] = true
	}
	hung := c.hung
	c.mu.Unlock()
	switch {
	case fate == CutBefore:
		return 0, errors.Join(errCut, c.Close())
	case fate == DownBefore:
		c.wire.Down()
		return 0, errDown
	case hung:
		return len(b), nil
	}
	n, err := c.Conn.Write(b)
	if fate == DownAfter {
		c.wire.Down()
		return n, errDown
	}
	return n, err
}

func (c *wireConn) Read(b []byte) (int, error) {
	if len(c.answer) == 0 {
		if err := c.next(); err != nil {
			return 0, err
		}
	}
	n := copy(b, c.answer)
	c.answer = c.answer[n:]
	return n, nil
}

// next reads the next complete response.
func (c *wireConn) next() error {
	for {
		head := make([]byte, answerHead)
		if _, err := io.ReadFull(c.Conn, head); err != nil {
			return err
		}
		answer := make([]byte, 4+binary.BigEndian.Uint32(head))
		copy(answer, head)
		if _, err := io.ReadFull(c.Conn, answer[answerHead:]); err != nil {
			return err
		}
		c.mu.Lock()
		hung, lost := c.hung, c.lost[int32(binary.BigEndian.Uint32(head[4:]))]
		c.mu.Unlock()
		switch {
		case lost:
			return errors.Join(io.EOF, c.Close())
		case !hung:
			c.answer = answer
			return nil
		}
	}
}

func (c *wireConn) Close() error {
	c.wire.mu.Lock()
	delete(c.wire.conns, c)
	c.wire.mu.Unlock()
	return c.Conn.Close()
}
