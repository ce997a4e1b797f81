package web

import (
	"bytes"
	"compress/gzip"
	"crypto/sha256"
	"encoding/hex"
	"mime"
	"net/http"
	"strings"
	"time"
)

// Static is content that is the same for every caller. It is compressed once, so that a slow reader of a response holds no encoder.
type Static struct {
	body, packed   []byte // packed is nil if compression gains nothing
	tag            string // of the content, whether or not it is compressed
	kind, lifetime string
}

// NewStatic returns content of a media type. cacheControl is the value of its Cache-Control header.
func NewStatic(body []byte, mediaType, cacheControl string) Static {
	sum := sha256.Sum256(body)
	s := Static{body: body, tag: `W/"` + hex.EncodeToString(sum[:8]) + `"`, kind: mediaType, lifetime: cacheControl}
	var b bytes.Buffer
	w, err := gzip.NewWriterLevel(&b, gzip.BestCompression)
	if err != nil {
		panic(err) // the level is valid
	}
	_, _ = w.Write(body) // a buffer returns no error
	_ = w.Close()        // a buffer returns no error
	if b.Len() < len(body) {
		s.packed = b.Bytes()
	}
	return s
}

// ServeHTTP answers GET and HEAD; the caller must refuse other methods.
func (s Static) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	header := w.Header()
	header.Set("X-Content-Type-Options", "nosniff")
	header.Set("Content-Type", s.kind)
	header.Set("Cache-Control", s.lifetime)
	header.Set("ETag", s.tag)
	header.Add("Vary", "Accept-Encoding")
	body := s.body
	if s.packed != nil && takesGzip(r) {
		header.Set("Content-Encoding", "gzip")
		body = s.packed
	}
	http.ServeContent(w, r, "", time.Time{}, bytes.NewReader(body))
}

// takesGzip reports whether the request accepts the encoding gzip.
func takesGzip(r *http.Request) bool {
	for _, header := range r.Header.Values("Accept-Encoding") {
		for one := range strings.SplitSeq(header, ",") {
			name, params, err := mime.ParseMediaType(one)
			if q, has := params["q"]; err == nil && name == "gzip" && (!has || strings.Trim(q, "0.") != "") {
				return true
			}
		}
	}
	return false
}
