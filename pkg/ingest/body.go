package ingest

import (
	"bytes"
	"compress/gzip"
	"context"
	"errors"
	"fmt"
	"io"
	"mime"
	"net/http"
	"os"
	"strings"
	"time"

	"github.com/klauspost/compress/zstd"

	"github.com/skeinhq/skein/internal/front"
	"github.com/skeinhq/skein/pkg/eventstream"
)

// The media types of events.
const (
	typeNDJSON    = "application/x-ndjson"
	typeJSON      = "application/json"
	typeSSE       = "text/event-stream"
	typeSequenced = "application/vnd.skein.events+ndjson"
)

const acceptedTypes = typeNDJSON + ", application/jsonl, " + typeJSON + ", " + typeSSE + ", " + typeSequenced

// readBuffer is enough for most events, so that a line is copied once.
const readBuffer = 64 << 10

// mediaType is the request's without parameters, in lower case; "" where it has none.
func mediaType(r *http.Request) string {
	t := r.Header.Get("Content-Type")
	if t == "" {
		return ""
	}
	if parsed, _, err := mime.ParseMediaType(t); err == nil {
		return parsed
	}
	before, _, _ := strings.Cut(t, ";")
	return strings.ToLower(strings.TrimSpace(before))
}

// formOf returns the form of the media type's events.
func formOf(mediaType string) (eventstream.Form, error) {
	switch mediaType {
	case "", typeNDJSON, "application/ndjson", "application/jsonl", "application/x-jsonl":
		return eventstream.NDJSON, nil
	case typeJSON:
		return eventstream.Array, nil
	case typeSSE:
		return eventstream.ServerSent, nil
	case typeSequenced:
		return eventstream.Numbered, nil
	}
	return 0, front.Refuse(http.StatusUnsupportedMediaType, reasonMediaType, "cannot read events as %.100q: set Content-Type to one of %s",
		mediaType, acceptedTypes)
}

// body is a request's body, decompressed.
type body struct {
	*plain
	// source is the body as it comes from the network, and the error it ended with.
	source *source
	// claim is what the request holds of the memory for requests.
	claim *front.Claim
	// buffer is the size of the buffer that the claim has.
	buffer int
	close  func()
}

// openBody opens the body of a tenant's request by its Content-Encoding. It takes memory for a buffer of that size, or of the size of a
// small body. The caller closes it.
func (s *Service) openBody(c *front.Call, t target, buffer int) (*body, error) {
	r, h := c.R, s.memory.Claim(t.tenant, 0)
	encoding := strings.ToLower(strings.TrimSpace(r.Header.Get("Content-Encoding")))
	if n := r.ContentLength; n >= 0 && encoding == "" {
		buffer = max(leastBuffer, min(buffer, int(min(n, int64(buffer)))+1))
	}
	if err := h.Take(int64(requestBase + front.HeadBytes(r) + buffer)); err != nil {
		return nil, err
	}
	b, err := newBody(r.Body, encoding, h)
	if err != nil {
		h.Close()
		return nil, err
	}
	limits := s.pace
	if isShort(r) {
		limits.idle = min(limits.idle, limits.event)
	}
	b.source.pace = &pace{limits: limits, rc: http.NewResponseController(c.W), opened: time.Now()}
	b.plain.most, b.buffer = t.limits.MaxRequestBytes, buffer
	return b, nil
}

// events returns a reader of the body's events, which takes memory of the request's claim.
func (b *body) events(form eventstream.Form, limit int) *eventstream.Reader {
	r := eventstream.New(b, form, limit, b.buffer, eventstream.Memory{Acquire: b.claim.Take, Release: b.claim.Give})
	b.pending(r.Pending)
	return r
}

// pending sets what reports whether an event has begun and not ended.
func (b *body) pending(f func() bool) {
	if p := b.source.pace; p != nil {
		p.pending = f
	}
}

// leastBuffer is the smallest buffer of a body.
const leastBuffer = 512

// newBody opens a body that counts what it holds in h, and closes h with it.
func newBody(r io.Reader, encoding string, h *front.Claim) (*body, error) {
	b := &body{source: &source{r: r}, claim: h, close: h.Close}
	b.plain = &plain{r: b.source}
	switch encoding {
	case "", "identity":
	case "gzip", "x-gzip":
		if err := h.Take(inflateGzip); err != nil {
			return nil, err
		}
		b.plain.r, b.plain.wire = &lazyGzip{r: b.source}, b.source
	case "zstd":
		z := &lazyZstd{r: b.source, claim: h}
		b.plain.r, b.plain.wire = z, b.source
		b.close = func() {
			z.close()
			h.Close()
		}
	default:
		return nil, front.Refuse(http.StatusUnsupportedMediaType, reasonEncoding, "cannot read Content-Encoding %.100q: use gzip, zstd or none",
			encoding)
	}
	return b, nil
}

// came says that a whole event has come.
func (b *body) came() {
	if p := b.source.pace; p != nil {
		p.events++
	}
}

// end has a read that waits end, and all after it. Another goroutine may call it.
func (b *body) end() {
	if p := b.source.pace; p != nil {
		p.ended.Store(true)
		_ = p.rc.SetReadDeadline(time.Now()) // refused only by writers that are no connection (tests)
	}
}

// failed turns an error other than io.EOF, which reading the body has returned, into a refusal.
func (b *body) failed(err error, line int64) error {
	var rej *front.Problem
	if errors.As(err, &rej) { // of ours
		at := *rej
		at.Line = line
		return &at
	}
	var bad *eventstream.Error
	if errors.As(err, &bad) {
		rej := badLine(bad.Reason, bad.Line, "%s", bad.Detail)
		if bad.Reason == reasonTooLarge {
			rej.Status = http.StatusRequestEntityTooLarge
		}
		if bad.More {
			return badEventError{rej}
		}
		return rej
	}
	if src := b.source.err; src != nil && !errors.Is(src, io.EOF) {
		err = src
	} else if !errors.Is(err, io.ErrUnexpectedEOF) {
		return badLine(reasonEncoding, line, "decompressing the body: %v", err)
	}
	if errors.Is(err, os.ErrDeadlineExceeded) || errors.Is(err, context.DeadlineExceeded) {
		rej = front.Refuse(http.StatusRequestTimeout, reasonTimeout, "the body stopped arriving: %s", b.source.pace)
		rej.Line = line
		return rej
	}
	return badLine(reasonCut, line, "the body was cut off: %v", err)
}

// noEvent is the refusal of a body that has bytes and no event; nil for one without bytes.
func (b *body) noEvent() error {
	if b.plain.n == 0 {
		return nil
	}
	return badLine(reasonNoEvent, 1, "there is no event in the body, which begins with %q: is its Content-Type right?", b.plain.head)
}

// source remembers the error that its reader ended with, and ends with it from then on. Of the body
// itself it tells a broken connection from broken compression.
type source struct {
	r    io.Reader
	err  error
	n    int64 // bytes that came
	pace *pace // nil: it may take for ever
}

func (s *source) Read(p []byte) (int, error) {
	if s.err != nil {
		return 0, s.err
	}
	if s.pace != nil && !s.pace.before(s.n) {
		s.err = os.ErrDeadlineExceeded
		return 0, s.err
	}
	n, err := s.r.Read(p)
	if s.pace != nil {
		s.pace.after()
	}
	s.n += int64(n)
	s.err = err
	return n, err
}

const (
	// A compressed body may hold mostRatio times its bytes, and freeInflated beyond that: the first events of a stream look alike.
	mostRatio    = 200
	freeInflated = 1 << 20
	// mostInflated is the most that one compressed body may hold. An uncompressed one, whose bytes cost its sender as much as us, has no end.
	mostInflated = 1 << 30
	// headBytes are shown of a body without an event.
	headBytes = 64
)

// plain is a body behind decompression. It bounds what is made of few bytes.
type plain struct {
	r    io.Reader
	wire *source // what it is made of; nil for a body that is not compressed
	most int64   // the tenant's limit of a request; 0 for none
	n    int64
	head []byte
}

func (l *plain) Read(p []byte) (int, error) {
	n, err := l.r.Read(p)
	if len(l.head) < headBytes {
		l.head = append(l.head, p[:min(n, headBytes-len(l.head))]...)
	}
	l.n += int64(n)
	switch {
	case l.most > 0 && l.n > l.most:
		return 0, front.Refuse(http.StatusRequestEntityTooLarge, reasonTooLarge, "the body is larger than the %d bytes that a request of this tenant may have (max_request_bytes)", l.most)
	case l.wire == nil:
	case l.n > mostInflated:
		return 0, front.Refuse(http.StatusRequestEntityTooLarge, reasonTooLarge, "the body holds more than %d bytes, compressed: send it in parts", mostInflated)
	case l.n-freeInflated > mostRatio*l.wire.n:
		return 0, front.Refuse(http.StatusRequestEntityTooLarge, reasonRatio, "the body holds more than %d times its compressed bytes: send it with less compression, or with none", mostRatio)
	}
	return n, err
}

// lazyGzip reads the gzip header with the first read: until then there may be nothing on the wire.
type lazyGzip struct {
	r io.Reader
	z *gzip.Reader
}

func (g *lazyGzip) Read(p []byte) (int, error) {
	if g.z == nil {
		z, err := gzip.NewReader(g.r)
		if err != nil {
			if errors.Is(err, io.EOF) { // not even a header
				err = io.ErrUnexpectedEOF
			}
			return 0, err
		}
		g.z = z
	}
	return g.z.Read(p)
}

const (
	// zstdWindow is the largest window of a body: what RFC 9659 has every decoder of HTTP take.
	zstdWindow = 8 << 20
	// leastZstdWindow is what any frame of a body may have, whatever its first one says.
	leastZstdWindow = 128 << 10
)

// lazyZstd reads the first frame's header with the first read, and takes memory for the window that it names. No later frame may have
// a larger one.
type lazyZstd struct {
	r     io.Reader
	claim *front.Claim
	z     *zstd.Decoder
}

func (l *lazyZstd) Read(p []byte) (int, error) {
	if l.z == nil {
		if err := l.open(); err != nil {
			return 0, err
		}
	}
	return l.z.Read(p)
}

func (l *lazyZstd) open() error {
	head := make([]byte, 0, zstd.HeaderMaxSize)
	var h zstd.Header
	window := uint64(zstdWindow) // where the first frame has none: it is to be skipped
	for {
		n, err := l.r.Read(head[len(head):cap(head)])
		head = head[:len(head)+n]
		if bad := h.Decode(head); bad == nil {
			if !h.Skippable {
				window = max(h.WindowSize, leastZstdWindow)
			}
			break
		} else if !errors.Is(bad, io.ErrUnexpectedEOF) || len(head) == cap(head) {
			return fmt.Errorf("reading its header: %w", bad)
		}
		switch {
		case errors.Is(err, io.EOF):
			return io.ErrUnexpectedEOF
		case err != nil:
			return err
		}
	}
	if window > zstdWindow {
		return fmt.Errorf("its window has %d bytes, %d are allowed", window, zstdWindow)
	}
	if err := l.claim.Take(int64(window) + inflateZstd); err != nil {
		return err
	}
	// One goroutine, and a window that is known: what a decoder may need is bounded.
	z, err := zstd.NewReader(io.MultiReader(bytes.NewReader(head), l.r), zstd.WithDecoderConcurrency(1), zstd.WithDecoderLowmem(true),
		zstd.WithDecoderMaxWindow(window))
	if err != nil {
		return fmt.Errorf("making a decoder: %w", err)
	}
	l.z = z
	return nil
}

func (l *lazyZstd) close() {
	if l.z != nil {
		l.z.Close()
	}
}
