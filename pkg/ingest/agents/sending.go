package agents

import (
	"context"
	"errors"
	"io"
	"sync"
)

// sending is an input on its way to an agent. A transport keeps the request, with the body and GetBody, for as long
// as the response streams; the input itself is released as soon as it is no longer needed.
type sending struct {
	mu    sync.Mutex
	input []byte
	users int // the call, and the bodies that are open
	// sent is called when the input is let go; nil afterwards.
	sent func()
}

var errSent = errors.New("the input was let go")

// send has one user, the call, which drops it. It is let go at the end of ctx in any case.
func send(ctx context.Context, input []byte, sent func()) *sending {
	s := &sending{input: input, users: 1, sent: sent}
	context.AfterFunc(ctx, s.letGo)
	return s
}

// body is a body for http.Request, and its GetBody.
func (s *sending) body() (io.ReadCloser, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.sent == nil {
		return nil, errSent
	}
	s.users++
	return &sendingBody{of: s}, nil
}

func (s *sending) drop() {
	s.mu.Lock()
	s.users--
	last := s.users == 0
	s.mu.Unlock()
	if last {
		s.letGo()
	}
}

func (s *sending) letGo() {
	s.mu.Lock()
	sent := s.sent
	s.input, s.users, s.sent = nil, 0, nil
	s.mu.Unlock()
	if sent != nil {
		sent()
	}
}

type sendingBody struct {
	of     *sending
	at     int
	closed sync.Once
}

func (b *sendingBody) Read(p []byte) (int, error) {
	b.of.mu.Lock()
	defer b.of.mu.Unlock()
	if b.of.sent == nil {
		return 0, errSent
	}
	n := copy(p, b.of.input[b.at:])
	b.at += n
	if b.at == len(b.of.input) {
		return n, io.EOF
	}
	return n, nil
}

func (b *sendingBody) Close() error {
	b.closed.Do(b.of.drop)
	return nil
}
