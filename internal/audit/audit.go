package audit

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"os"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"
)

// Entry is a line of the log.
type Entry struct {
	Time  time.Time `json:"time"`
	Stage string    `json:"stage"`
	// Action is what was asked for: read, export, or a call of ingest (events, input, agent, cancel, erase); empty for what no route takes.
	Action string `json:"action,omitempty"`
	// Route is the method and the pattern of the path.
	Route string `json:"route,omitempty"`
	// Tenant and Subject are the caller's: the tenant, and the name of the key or the subject of the token. Both are empty where the
	// caller was not authenticated.
	Tenant  string `json:"tenant,omitempty"`
	Subject string `json:"subject,omitempty"`
	Thread  string `json:"threadId,omitempty"`
	Run     string `json:"runId,omitempty"`
	Agent   string `json:"agent,omitempty"`
	// From is the address that the connection came from, without its port.
	From string `json:"from"`
	// Status is that of the answer; 0 while there is none.
	Status int    `json:"status,omitempty"`
	Result Result `json:"result"`
	// DurationMs is how long the request took: streams have their line when they end.
	DurationMs int64 `json:"durationMs"`
}

// Result is what became of a request.
type Result string

// The results.
const (
	Begun   Result = "begun"   // an erasure, before it is written
	Done    Result = "done"    // 2xx and 3xx
	Denied  Result = "denied"  // 401 and 403
	Refused Result = "refused" // any other 4xx
	Failed  Result = "failed"  // 5xx
	Cut     Result = "cut"     // the answer was broken off
)

func resultOf(status int) Result {
	switch {
	case status == http.StatusUnauthorized || status == http.StatusForbidden:
		return Denied
	case status >= 500:
		return Failed
	case status >= 400:
		return Refused
	}
	return Done
}

// Log writes entries. It is safe for concurrent use.
type Log struct {
	stage  string
	path   string // of the file; empty for a writer
	logger *slog.Logger
	lost   prometheus.Counter

	mu     sync.Mutex
	out    io.Writer
	file   *os.File
	looked time.Time
	failed error
}

// reopenAfter is how soon a file that was renamed or removed is made again.
const reopenAfter = time.Second

// Open opens the log of a stage: "-" is stdout, anything else a file that lines are appended to. A file that was rotated away is
// opened anew within a second.
func Open(path, stage string, stdout io.Writer, logger *slog.Logger, reg prometheus.Registerer) (*Log, error) {
	l := &Log{stage: stage, logger: logger, lost: prometheus.NewCounter(prometheus.CounterOpts{
		Name: "skein_audit_lines_lost_total", Help: "Lines of the audit log that could not be written.",
	})}
	if err := reg.Register(l.lost); err != nil {
		return nil, fmt.Errorf("registering metrics of the audit log: %w", err)
	}
	if path == "-" {
		l.out = stdout
		return l, nil
	}
	l.path = path
	if err := l.reopen(); err != nil {
		return nil, err
	}
	return l, nil
}

func (l *Log) reopen() error {
	f, err := os.OpenFile(l.path, os.O_WRONLY|os.O_CREATE|os.O_APPEND, 0o600)
	if err != nil {
		return fmt.Errorf("opening the audit log: %w", err)
	}
	if l.file != nil {
		_ = l.file.Close() // its lines are written
	}
	l.file, l.out = f, f
	return nil
}

// Ready returns nil, or why the last line was not written.
func (l *Log) Ready() error {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.failed
}

// Close closes the file.
func (l *Log) Close() error {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.file == nil {
		return nil
	}
	return l.file.Close()
}

func (l *Log) write(e Entry) error {
	line, err := json.Marshal(e)
	if err != nil { // texts and numbers: cannot be
		return fmt.Errorf("encoding a line of the audit log: %w", err)
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	err = l.rotated()
	if err == nil {
		_, err = l.out.Write(append(line, '\n'))
	}
	if err != nil {
		err = fmt.Errorf("writing the audit log: %w", err)
		l.lost.Inc()
		if l.failed == nil {
			l.logger.Error("a line of the audit log is lost", "error", err)
		}
	}
	l.failed = err
	return err
}

// rotated opens the file anew where the one of its name is another one.
func (l *Log) rotated() error {
	now := time.Now()
	if l.file == nil || now.Sub(l.looked) < reopenAfter {
		return nil
	}
	l.looked = now
	have, err := l.file.Stat()
	if err != nil {
		return err
	}
	if at, err := os.Stat(l.path); err == nil && os.SameFile(have, at) {
		return nil
	}
	return l.reopen()
}

type entryKey struct{}

// held is the entry of a request that is being answered.
type held struct {
	Entry
	log *Log
}

// From returns the entry of a request, for its handler to complete. It is written once the handler has returned. Without a log it is one
// that nobody reads.
func From(ctx context.Context) *Entry {
	if h, ok := ctx.Value(entryKey{}).(*held); ok {
		return &h.Entry
	}
	return new(Entry)
}

// Begin writes the entry of a request before it is carried out, for what must not happen without a line. The line that says how it
// ended follows.
func Begin(ctx context.Context) error {
	h, ok := ctx.Value(entryKey{}).(*held)
	if !ok || h.log == nil {
		return nil
	}
	e := h.Entry
	e.Result, e.DurationMs = Begun, time.Since(e.Time).Milliseconds()
	return h.log.write(e)
}

// Handler answers requests by next and writes a line for each that a route took: to log, and to access as "request". Either may be nil.
func Handler(next http.Handler, stage string, log *Log, access *slog.Logger) http.Handler {
	if log == nil && access == nil {
		return next
	}
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		h := &held{log: log, Entry: Entry{Time: time.Now().UTC(), Stage: stage, From: r.RemoteAddr}}
		if host, _, err := net.SplitHostPort(r.RemoteAddr); err == nil {
			h.From = host
		}
		sw := &statusWriter{ResponseWriter: w}
		defer func() {
			thrown := recover()
			if h.Status = sw.status; h.Status == 0 {
				h.Status = http.StatusOK
			}
			if h.Result = resultOf(h.Status); thrown != nil {
				h.Result = Cut
			}
			h.DurationMs = time.Since(h.Time).Milliseconds()
			if log != nil && h.Action != "" {
				_ = log.write(h.Entry) // counted and logged there; the answer is out
			}
			if access != nil {
				access.InfoContext(r.Context(), "request", "method", r.Method, "path", r.URL.Path, "status", h.Status, "result", string(h.Result),
					"duration_ms", h.DurationMs, "from", h.From, "tenant", h.Tenant, "subject", h.Subject)
			}
			if thrown != nil {
				panic(thrown)
			}
		}()
		next.ServeHTTP(sw, r.WithContext(context.WithValue(r.Context(), entryKey{}, h)))
	})
}

// ErrNotWritten says that something was not done because the audit log does not take its line.
var ErrNotWritten = errors.New("the audit log cannot be written, and nothing is erased without a line there")

// statusWriter remembers the status of an answer.
type statusWriter struct {
	http.ResponseWriter
	status int
}

// WriteHeader implements http.ResponseWriter.
func (w *statusWriter) WriteHeader(status int) {
	if w.status == 0 && status >= 200 {
		w.status = status
	}
	w.ResponseWriter.WriteHeader(status)
}

// Write implements http.ResponseWriter.
func (w *statusWriter) Write(b []byte) (int, error) {
	if w.status == 0 {
		w.status = http.StatusOK
	}
	return w.ResponseWriter.Write(b)
}

// Unwrap serves http.ResponseController.
func (w *statusWriter) Unwrap() http.ResponseWriter { return w.ResponseWriter }
