package ingest

import (
	"bytes"
	"compress/gzip"
	"context"
	"errors"
	"fmt"
	"io"
	"math/bits"
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
	typeNDJSON = "application/x-ndjson"
	typeJSON   = "application/json"
	// typeMergePatch is typeJSON of a patch (RFC 7396).
	typeMergePatch = "application/merge-patch+json"
	typeSSE        = "text/event-stream"
	typeSequenced  = "application/vnd.skein.events+ndjson"
)

const acceptedTypes = typeNDJSON + ", application/jsonl, " + typeJSON + ", " + typeSSE + ", " + typeSequenced

// readBuffer is the size of a read buffer. Most events fit, so a line is copied only once.
const readBuffer = 64 << 10

// mediaType returns the request's Content-Type in lower case without parameters, "" if there is none.
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

// formOf returns how events are framed in a body of this media type.
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

// body reads a request's body and decompresses it. It limits the decompressed size.
type body struct {
	// source reads the raw body from the network and keeps the error of the last read.
	source *source
	r      io.Reader // the decompressed body
	wire   *source   // equals source if the body is compressed; else nil
	most   int64     // the tenant's limit on bytes read from r; 0: none
	n      int64     // bytes read from r
	head   []byte
	// claim counts the request's part of the memory.
	claim *front.Claim
	// buffer is the size of the read buffer that claim includes.
	buffer int
	close  func()
}

// openBody opens the body of a tenant's request according to its Content-Encoding. It acquires memory for the request
// and a read buffer of buffer bytes, or fewer if Content-Length is smaller: a power of two, so that readers can reuse it. The caller must
// close the body.
func (s *Service) openBody(c *front.Call, t target, buffer int) (*body, error) {
	r, h := c.R, s.memory.Claim(t.tenant, 0)
	encoding := strings.ToLower(strings.TrimSpace(r.Header.Get("Content-Encoding")))
	if n := r.ContentLength; n >= 0 && encoding == "" {
		buffer = max(leastBuffer, 1<<bits.Len64(uint64(min(n, int64(buffer)-1))))
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
	b.most, b.buffer = t.limits.MaxRequestBytes, buffer
	return b, nil
}

// events returns a reader of the body's events. The request's claim includes the reader's memory.
func (b *body) events(form eventstream.Form, limit int) *eventstream.Reader {
	r := eventstream.New(b, form, limit, b.buffer, eventstream.Memory{Acquire: b.claim.Take, Release: b.claim.Give})
	b.pending(r.Pending)
	return r
}

// pending registers the function that reports whether an event has begun and not ended.
func (b *body) pending(f func() bool) {
	b.source.pace.pending = f
}

// leastBuffer is the smallest read buffer of a body, in bytes.
const leastBuffer = 512

// newBody returns a body that acquires its memory from h. Closing the body closes h.
func newBody(r io.Reader, encoding string, h *front.Claim) (*body, error) {
	b := &body{source: &source{r: r}, claim: h, close: h.Close}
	b.r = b.source
	switch encoding {
	case "", "identity":
	case "gzip", "x-gzip":
		if err := h.Take(inflateGzip); err != nil {
			return nil, err
		}
		b.r, b.wire = &lazy{open: func() (io.Reader, error) { return gzip.NewReader(b.source) }}, b.source
	case "zstd":
		var z *zstd.Decoder
		b.r, b.wire = &lazy{open: func() (_ io.Reader, err error) {
			z, err = openZstd(b.source, h)
			return z, err
		}}, b.source
		b.close = func() {
			if z != nil {
				z.Close()
			}
			h.Close()
		}
	default:
		return nil, front.Refuse(http.StatusUnsupportedMediaType, reasonEncoding, "cannot read Content-Encoding %.100q: use gzip, zstd or none",
			encoding)
	}
	return b, nil
}

// came counts an event that has arrived completely.
func (b *body) came() {
	b.source.pace.events++
}

// end aborts the current read and all later ones. Another goroutine may call it.
func (b *body) end() {
	p := b.source.pace
	p.ended.Store(true)
	_ = p.rc.SetReadDeadline(time.Now()) // fails only for the response writers of tests
}

// failed converts a read error other than io.EOF into a refusal.
func (b *body) failed(err error, line int64) *front.Problem {
	var rej *front.Problem
	if errors.As(err, &rej) { // this package refused the body
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

// noEvent returns the refusal of a body that has bytes but no event. It returns nil for an empty body.
func (b *body) noEvent() error {
	if b.n == 0 {
		return nil
	}
	return badLine(reasonNoEvent, 1, "there is no event in the body, which begins with %q: is its Content-Type right?", b.head)
}

// source repeats the first error of its reader on every later read. With this error, failed distinguishes a broken
// connection from broken compression.
type source struct {
	r    io.Reader
	err  error
	n    int64 // bytes read so far
	pace *pace
}

func (s *source) Read(p []byte) (int, error) {
	if s.err != nil {
		return 0, s.err
	}
	if !s.pace.before(s.n) {
		s.err = os.ErrDeadlineExceeded
		return 0, s.err
	}
	n, err := s.r.Read(p)
	s.pace.after()
	s.n += int64(n)
	s.err = err
	return n, err
}

const (
	// A compressed body may inflate to mostRatio times its size plus freeInflated bytes, because the first events of a
	// stream are very similar.
	mostRatio    = 200
	freeInflated = 1 << 20
	// mostInflated limits the decompressed size of a compressed body. An uncompressed body has no such limit, because it
	// costs the caller as much to send as it costs ingest to read.
	mostInflated = 1 << 30
	// headBytes is how many bytes the refusal of a body without events quotes.
	headBytes = 64
)

func (b *body) Read(p []byte) (int, error) {
	n, err := b.r.Read(p)
	if len(b.head) < headBytes {
		b.head = append(b.head, p[:min(n, headBytes-len(b.head))]...)
	}
	b.n += int64(n)
	switch {
	case b.most > 0 && b.n > b.most:
		return 0, front.Refuse(http.StatusRequestEntityTooLarge, reasonTooLarge, "the body is larger than the %d bytes that a request of this tenant may have (max_request_bytes)", b.most)
	case b.wire == nil:
	case b.n > mostInflated:
		return 0, front.Refuse(http.StatusRequestEntityTooLarge, reasonTooLarge, "the body holds more than %d bytes, compressed: send it in parts", mostInflated)
	case b.n-freeInflated > mostRatio*b.wire.n:
		return 0, front.Refuse(http.StatusRequestEntityTooLarge, reasonRatio, "the body holds more than %d times its compressed bytes: send it with less compression, or with none", mostRatio)
	}
	return n, err
}

// lazy opens a decompressor on the first Read, because opening it already reads from the body.
type lazy struct {
	r    io.Reader
	open func() (io.Reader, error)
}

func (l *lazy) Read(p []byte) (int, error) {
	if l.r == nil {
		r, err := l.open()
		if errors.Is(err, io.EOF) { // the body is empty
			err = io.ErrUnexpectedEOF
		}
		if err != nil {
			return 0, err
		}
		l.r = r
	}
	return l.r.Read(p)
}

const (
	// zstdWindow is the largest accepted window. RFC 9659 requires that every HTTP decoder accepts a window of this size.
	zstdWindow = 8 << 20
	// leastZstdWindow is the smallest window limit: later frames may use it even if the first frame's window is smaller.
	leastZstdWindow = 128 << 10
)

// openZstd reads the header of the first frame and acquires memory for that frame's window. A later frame with a larger
// window is refused.
func openZstd(r io.Reader, claim *front.Claim) (*zstd.Decoder, error) {
	head := make([]byte, 0, zstd.HeaderMaxSize)
	var h zstd.Header
	for bad := io.ErrUnexpectedEOF; bad != nil; bad = h.Decode(head) {
		if !errors.Is(bad, io.ErrUnexpectedEOF) || len(head) == cap(head) {
			return nil, fmt.Errorf("reading its header: %w", bad)
		}
		n, err := r.Read(head[len(head):cap(head)])
		if head = head[:len(head)+n]; n == 0 && err != nil {
			return nil, err
		}
	}
	window := max(h.WindowSize, leastZstdWindow)
	switch {
	case h.Skippable: // it has no window
		window = zstdWindow
	case h.SingleSegment:
		window = max(h.FrameContentSize, leastZstdWindow)
	}
	if window > zstdWindow {
		return nil, fmt.Errorf("its window has %d bytes, %d are allowed", window, zstdWindow)
	}
	if err := claim.Take(int64(window) + inflateZstd); err != nil {
		return nil, err
	}
	// With one goroutine and a known window, the decoder's memory is bounded.
	return zstd.NewReader(io.MultiReader(bytes.NewReader(head), r), zstd.WithDecoderConcurrency(1), zstd.WithDecoderLowmem(true),
		zstd.WithDecoderMaxWindow(window))
}
