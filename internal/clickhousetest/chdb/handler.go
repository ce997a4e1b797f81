//go:build linux && amd64

package chdb

import (
	"bytes"
	"fmt"
	"io"
	"net/http"
	"regexp"
	"strconv"
	"strings"
	"sync"

	"github.com/ClickHouse/ch-go/compress"
	chproto "github.com/ClickHouse/ch-go/proto"
	"github.com/ClickHouse/clickhouse-go/v2/lib/column"
	"github.com/ClickHouse/clickhouse-go/v2/lib/proto"
)

// Handler answers as ClickHouse's HTTP interface does. It holds a fixed number of engine sessions.
type Handler struct {
	pool   chan *session
	closed sync.Once
}

// New loads the library, starts the engine on the folder dir and opens sessions. There is one engine a
// process: a second New must name the same library and folder. The engine also takes args, such as
// --config-file=FILE.
func New(library, dir string, sessions int, args ...string) (*Handler, error) {
	if err := load(library); err != nil {
		return nil, err
	}
	h := &Handler{pool: make(chan *session, sessions)}
	for range sessions {
		c, err := connect(append([]string{"--path=" + dir}, args...)...)
		if err != nil {
			return nil, err
		}
		h.pool <- &session{conn: c, database: "default", settings: map[string]string{}}
	}
	return h, nil
}

// Close waits for the running statements and ends the sessions. The Handler cannot be used after it.
func (h *Handler) Close() {
	h.closed.Do(func() {
		for range cap(h.pool) {
			(<-h.pool).conn.close()
		}
	})
}

// ServeHTTP implements http.Handler.
func (h *Handler) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	if r.URL.Path == "/ping" || (r.Method == http.MethodGet && r.URL.Path == "/" && r.URL.Query().Get("query") == "") {
		_, _ = io.WriteString(w, "Ok.\n")
		return
	}
	if strings.HasPrefix(r.Header.Get("Content-Type"), "multipart/") {
		http.Error(w, "Code: 48. DB::Exception: External tables are not served here. (NOT_IMPLEMENTED)", http.StatusNotImplemented)
		return
	}
	q, err := readRequest(r)
	if err != nil {
		fail(w, err)
		return
	}
	out, res, err := h.run(r, q)
	if e := q.close(); err == nil {
		err = e
	}
	if err != nil {
		fail(w, err)
		return
	}
	header := w.Header()
	if id := q.values.Get("query_id"); id != "" {
		header.Set("X-ClickHouse-Query-Id", id)
	}
	header.Set("X-ClickHouse-Format", q.format)
	header.Set("X-ClickHouse-Summary", fmt.Sprintf(`{"read_rows":"%d","read_bytes":"%d","written_rows":"%d","written_bytes":"%d"}`,
		res.rowsRead, res.bytesRead, res.rowsWritten, res.bytesWritten))
	header.Set("Content-Length", strconv.Itoa(len(out)))
	_, _ = w.Write(out) // the client is gone: there is nobody left to tell
}

// run gives the request a session and returns the answer as it goes onto the wire.
func (h *Handler) run(r *http.Request, q *request) ([]byte, *result, error) {
	var s *session
	select { // a client that has gone must not take a session
	case s = <-h.pool:
	case <-r.Context().Done():
		return nil, nil, r.Context().Err()
	}
	res, err := func() (*result, error) {
		defer func() { h.pool <- s }()
		if err := s.prepare(q.database, q.settings); err != nil {
			return nil, err
		}
		return s.conn.query(q.text, q.format, q.params)
	}()
	if err != nil {
		return nil, nil, err
	}
	out := res.data
	if q.hello > 0 {
		if out, err = reencode(out, q.hello); err != nil {
			return nil, nil, err
		}
	}
	if q.values.Get("compress") == "1" {
		method := compress.LZ4
		if q.values.Get("network_compression_method") == "ZSTD" {
			method = compress.ZSTD
		}
		if out, err = compressed(out, method); err != nil {
			return nil, nil, err
		}
	}
	return out, res, nil
}

// compressed writes ClickHouse's compressed blocks.
func compressed(in []byte, method compress.Method) ([]byte, error) {
	const block = 1 << 20
	w := compress.NewWriter(compress.LevelZero, method)
	var out []byte
	for len(in) > 0 {
		n := min(len(in), block)
		if err := w.Compress(in[:n]); err != nil {
			return nil, fmt.Errorf("compressing: %w", err)
		}
		out, in = append(out, w.Data...), in[n:]
	}
	return out, nil
}

// reencode turns one Native block of revision 0 into one of the given revision.
func reencode(in []byte, revision uint64) ([]byte, error) {
	b := proto.Block{ServerContext: &column.ServerContext{}}
	if err := b.Decode(chproto.NewReader(bytes.NewReader(in)), 0); err != nil {
		return nil, fmt.Errorf("decoding the hello: %w", err)
	}
	var out chproto.Buffer
	if err := b.Encode(&out, revision); err != nil {
		return nil, fmt.Errorf("encoding the hello: %w", err)
	}
	return out.Buf, nil
}

var errorCode = regexp.MustCompile(`Code: (\d+)\.`)

// statusOf is the HTTP status of the error codes that are not the server's fault.
var statusOf = map[string]int{
	"60": 404, "81": 404, "46": 404, "50": 404, "56": 404, "115": 404,
	"516": 403, "497": 403, "164": 403,
	"62": 400, "47": 400, "53": 400, "43": 400, "42": 400, "26": 400, "27": 400, "41": 400, "70": 400, "72": 400,
	"456": 400, "457": 400,
}

func fail(w http.ResponseWriter, err error) {
	msg := err.Error()
	if i := strings.Index(msg, "Code: "); i > 0 { // drop what the engine's front puts before it
		msg = msg[i:]
	}
	status := http.StatusInternalServerError
	if m := errorCode.FindStringSubmatch(msg); m != nil {
		w.Header().Set("X-ClickHouse-Exception-Code", m[1])
		if s, ok := statusOf[m[1]]; ok {
			status = s
		}
	}
	w.Header().Set("Content-Type", "text/plain; charset=UTF-8")
	w.WriteHeader(status)
	_, _ = io.WriteString(w, msg+"\n")
}
