//go:build linux && amd64

package chdb

import (
	"bytes"
	"compress/gzip"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"os"
	"regexp"
	"strconv"
	"strings"

	"github.com/ClickHouse/ch-go/compress"
	"golang.org/x/sys/unix"
)

// reserved are the URL parameters that are not settings.
var reserved = map[string]bool{
	"query": true, "database": true, "default_format": true, "compress": true, "decompress": true,
	"query_id": true, "user": true, "password": true, "client_protocol_version": true, "quota_key": true,
	"session_id": true, "session_timeout": true, "session_check": true, "role": true, "buffer_size": true,
	"wait_end_of_query": true, "network_compression_method": true, "network_zstd_compression_level": true,
	"stacktrace": true, "close_session": true,
}

var (
	revisionCall = regexp.MustCompile(`(?i)\brevision\(\)`)
	insertFormat = regexp.MustCompile(`(?is)\s+FORMAT\s+(\w+)\s*;?\s*$`)
	settingName  = regexp.MustCompile(`^[A-Za-z_][A-Za-z0-9_.]*$`)
)

// request is an HTTP request, read to its end.
type request struct {
	values           url.Values
	database, format string
	params, settings map[string]string
	text             []byte
	// hello is the client's protocol revision, where this is the query by which clickhouse-go asks for
	// the server's; else 0. libchdb writes Native blocks of revision 0, and clickhouse-go decodes with
	// the revision that the server reported: so 0 is reported. The answer to the hello itself is
	// decoded with the client's own revision.
	hello uint64
	// data is the file with the rows of an INSERT, or nil. Rows within the text would end at the
	// first empty line, which binary data may well contain.
	data *os.File
}

// readRequest reads the body and sorts the parameters. The caller closes it.
func readRequest(r *http.Request) (*request, error) {
	q := &request{
		values:   r.URL.Query(),
		database: r.URL.Query().Get("database"),
		format:   r.URL.Query().Get("default_format"),
		params:   map[string]string{}, settings: map[string]string{},
	}
	if q.database == "" {
		q.database = r.Header.Get("X-ClickHouse-Database")
	}
	if q.format == "" {
		q.format = "TabSeparated"
	}
	for name, v := range q.values {
		if param, ok := strings.CutPrefix(name, "param_"); ok {
			q.params[param] = v[len(v)-1]
		} else if !reserved[name] && settingName.MatchString(name) {
			q.settings[name] = v[len(v)-1]
		}
	}
	body, err := readBody(r, q.values.Get("decompress") == "1")
	if err != nil {
		return nil, exception(33, "CANNOT_READ_ALL_DATA", err.Error())
	}
	head := q.values.Get("query")
	switch {
	case head == "" && len(body) == 0:
		return nil, exception(62, "SYNTAX_ERROR", "Empty query")
	case head == "":
		q.text = body
	case len(body) == 0:
		q.text = []byte(head)
	default:
		return q, q.insert(head, body)
	}
	if v := q.values.Get("client_protocol_version"); v != "" && q.format == "Native" && head == "" && revisionCall.Match(q.text) {
		if q.hello, err = strconv.ParseUint(v, 10, 64); err != nil {
			return nil, fmt.Errorf("reading client_protocol_version: %w", err)
		}
		q.text = revisionCall.ReplaceAll(q.text, []byte("toUInt32(0)"))
	}
	return q, nil
}

// exception is an error in the server's own form, which its clients take apart.
func exception(code int, name, text string) error {
	return fmt.Errorf("Code: %d. DB::Exception: %s. (%s)", code, text, name) //nolint:staticcheck // ClickHouse's text
}

// insert takes a statement and the data that follow it.
func (q *request) insert(head string, body []byte) error {
	m := insertFormat.FindStringSubmatchIndex(head)
	if m == nil {
		q.text = append([]byte(head+"\n"), body...)
		return nil
	}
	f, err := memoryFile(body)
	if err != nil {
		return err
	}
	q.data = f
	q.text = fmt.Appendf(nil, "%s FROM INFILE '/proc/self/fd/%d' COMPRESSION 'none' FORMAT %s",
		head[:m[0]], f.Fd(), head[m[2]:m[3]])
	return nil
}

func (q *request) close() error {
	if q.data == nil {
		return nil
	}
	return q.data.Close()
}

func readBody(r *http.Request, blocks bool) ([]byte, error) {
	var in io.Reader = r.Body
	if r.Header.Get("Content-Encoding") == "gzip" {
		gz, err := gzip.NewReader(in)
		if err != nil {
			return nil, err
		}
		in = gz
	}
	if blocks {
		in = compress.NewReader(in)
	}
	var b bytes.Buffer
	if _, err := b.ReadFrom(in); err != nil && !errors.Is(err, io.EOF) { // ch-go wraps the EOF
		return nil, err
	}
	return b.Bytes(), nil
}

func memoryFile(b []byte) (*os.File, error) {
	fd, err := unix.MemfdCreate("insert", unix.MFD_CLOEXEC)
	if err != nil {
		return nil, fmt.Errorf("creating a file in memory: %w", err)
	}
	f := os.NewFile(uintptr(fd), "insert")
	if _, err := f.Write(b); err != nil {
		return nil, errors.Join(fmt.Errorf("writing a file in memory: %w", err), f.Close())
	}
	return f, nil
}
