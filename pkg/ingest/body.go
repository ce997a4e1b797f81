package ingest

import (
	"bufio"
	"compress/gzip"
	"context"
	"errors"
	"io"
	"mime"
	"net/http"
	"os"
	"strings"

	"github.com/klauspost/compress/zstd"
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

// event is one event of a body.
type event struct {
	// value is the event's exact bytes; nobody else holds them.
	value []byte
	// seq is the producer's number; -1 where it sends none.
	seq int64
	// line is where in the body the event begins, from 1.
	line int64
}

// eventReader takes a body apart. next returns io.EOF at the end, else a *rejection, behind which it can go on where
// that has more. It returns an event as soon as its last byte is there, and holds no more than one.
type eventReader interface {
	next() (event, error)
}

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

// newEventReader returns the reader of the media type's form.
func newEventReader(mediaType string, b *body, limit int) (eventReader, *rejection) {
	switch mediaType {
	case "", typeNDJSON, "application/ndjson", "application/jsonl", "application/x-jsonl":
		return &ndjsonReader{lines: newLineReader(b, limit), limit: limit}, nil
	case typeJSON:
		return &arrayReader{body: b, limit: limit, line: 1}, nil
	case typeSSE:
		return &sseReader{lines: newLineReader(b, limit), limit: limit}, nil
	case typeSequenced:
		return &sequencedReader{lines: newLineReader(b, limit), limit: limit, last: -1}, nil
	}
	return nil, reject(http.StatusUnsupportedMediaType, reasonMediaType, 0, "cannot take events as %.100q: set Content-Type to one of %s", mediaType, acceptedTypes)
}

// body is a request's body, decompressed and buffered. A byte order mark at its start is left out.
type body struct {
	*bufio.Reader
	// source is the body as it comes from the network, and the error it ended with.
	source *source
	close  func()
}

// openBody opens the body by its Content-Encoding, with a buffer of that size. The caller closes it.
func openBody(r *http.Request, buffer int) (*body, *rejection) {
	b := &body{source: &source{r: r.Body}, close: func() {}}
	var rd io.Reader = b.source
	switch enc := strings.ToLower(strings.TrimSpace(r.Header.Get("Content-Encoding"))); enc {
	case "", "identity":
	case "gzip", "x-gzip":
		rd = &lazyGzip{r: rd}
	case "zstd":
		// One goroutine, a window of at most 8 MiB (RFC 9659): what a decoder may need is bounded.
		z, err := zstd.NewReader(rd, zstd.WithDecoderConcurrency(1), zstd.WithDecoderLowmem(true), zstd.WithDecoderMaxWindow(8<<20))
		if err != nil {
			return nil, badLine(reasonEncoding, 0, "reading zstd: %v", err)
		}
		rd, b.close = z, z.Close
	default:
		return nil, reject(http.StatusUnsupportedMediaType, reasonEncoding, 0, "cannot read Content-Encoding %.100q: use gzip, zstd or none", enc)
	}
	// A look ahead must not swallow the error that ends the body.
	b.Reader = bufio.NewReaderSize(&source{r: rd}, buffer)
	return b, nil
}

// skipMark takes a UTF-8 byte order mark away, which some tools put before a file.
func (b *body) skipMark() {
	if head, err := b.Peek(3); err == nil && string(head) == "\xef\xbb\xbf" {
		_, _ = b.Discard(3)
	}
}

// failed turns a read error other than io.EOF into a refusal.
func (b *body) failed(err error, line int64) *rejection {
	if src := b.source.err; src != nil && !errors.Is(src, io.EOF) {
		err = src
	} else if !errors.Is(err, io.ErrUnexpectedEOF) {
		return badLine(reasonEncoding, line, "decompressing the body: %v", err)
	}
	var max *http.MaxBytesError
	switch {
	case errors.As(err, &max):
		return reject(http.StatusRequestEntityTooLarge, reasonTooLarge, line, "the body is larger than %d bytes", max.Limit)
	case errors.Is(err, os.ErrDeadlineExceeded) || errors.Is(err, context.DeadlineExceeded):
		return reject(http.StatusRequestTimeout, reasonTimeout, line, "the body stopped coming")
	}
	return badLine(reasonCut, line, "the body was cut off: %v", err)
}

// source remembers the error that its reader ended with, and ends with it from then on. Of the body
// itself it tells a broken connection from broken compression.
type source struct {
	r   io.Reader
	err error
}

func (s *source) Read(p []byte) (int, error) {
	if s.err != nil {
		return 0, s.err
	}
	n, err := s.r.Read(p)
	s.err = err
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
