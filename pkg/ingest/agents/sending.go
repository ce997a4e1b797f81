package agents

import (
	"context"
	"errors"
	"io"
	"sync"
)

// sending is an input that is being sent to an agent. It frees the input as soon as possible, because http.Transport
// keeps the request, with its Body and GetBody, while the response streams.
type sending struct {
	mu    sync.Mutex
	input []byte
	users int // references: one for the call and one for each open body
	// sent is called when the input is freed, and is nil afterwards.
	sent func()
}

var errSent = errors.New("the input was let go")

// send returns a sending with one reference, which belongs to the caller. The input is freed when the last reference is
// dropped or ctx ends.
func send(ctx context.Context, input []byte, sent func()) *sending {
	s := &sending{input: input, users: 1, sent: sent}
	context.AfterFunc(ctx, s.letGo)
	return s
}

// body returns a reader of the input for http.Request.Body and GetBody. The reader has a reference until Close.
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
