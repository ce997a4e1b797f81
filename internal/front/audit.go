package front

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

// Entry is a line of the audit log. It records who read, published, erased or exported what, without payloads.
type Entry struct {
	Time  time.Time `json:"time"`
	Stage string    `json:"stage"`
	// Action is the kind of request: read, export, or a call of ingest (events, input, agent, cancel, patch, erase); "" if no
	// route matches.
	Action string `json:"action,omitempty"`
	// Route is the method and the path pattern.
	Route string `json:"route,omitempty"`
	// Tenant is the caller's tenant. Subject is the name of its key or the subject of its token. Both are "" if the caller
	// was not authenticated.
	Tenant  string `json:"tenant,omitempty"`
	Subject string `json:"subject,omitempty"`
	Thread  string `json:"threadId,omitempty"`
	Run     string `json:"runId,omitempty"`
	Agent   string `json:"agent,omitempty"`
	// From is the remote address of the connection, without the port.
	From string `json:"from"`
	// Status is the status of the response; 0 before the response begins.
	Status int    `json:"status,omitempty"`
	Result string `json:"result"`
	// DurationMs is the duration of the request. The line of a stream is written when the stream ends.
	DurationMs int64 `json:"durationMs"`
}

// The values of Entry.Result.
const (
	begun   = "begun"   // an erasure before its record is written
	done    = "done"    // 2xx and 3xx
	denied  = "denied"  // 401 and 403
	refused = "refused" // any other 4xx
	failed  = "failed"  // 5xx
	cut     = "cut"     // the response was aborted
)

func resultOf(status int) string {
	switch {
	case status == http.StatusUnauthorized || status == http.StatusForbidden:
		return denied
	case status >= 500:
		return failed
	case status >= 400:
		return refused
	}
	return done
}

// AuditLog writes entries as JSON Lines. It is safe for concurrent use.
type AuditLog struct {
	stage  string
	path   string // path of the file; "" for a writer
	logger *slog.Logger
	lost   prometheus.Counter

	mu     sync.Mutex
	out    io.Writer
	file   *os.File
	looked time.Time
	failed error
}

// reopenAfter is the shortest time between two checks whether the file was renamed or removed.
const reopenAfter = time.Second

// OpenAuditLog opens the audit log of a stage. The path "-" means stdout, any other path a file to which lines are
// appended. After a log rotation, the file is opened again within a second.
func OpenAuditLog(path, stage string, stdout io.Writer, logger *slog.Logger, reg prometheus.Registerer) (*AuditLog, error) {
	l := &AuditLog{stage: stage, logger: logger, lost: prometheus.NewCounter(prometheus.CounterOpts{
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

func (l *AuditLog) reopen() error {
	f, err := os.OpenFile(l.path, os.O_WRONLY|os.O_CREATE|os.O_APPEND, 0o600)
	if err != nil {
		return fmt.Errorf("opening the audit log: %w", err)
	}
	if l.file != nil {
		_ = l.file.Close() // all its lines are already written
	}
	l.file, l.out = f, f
	return nil
}

// Ready returns nil, or the error with which the last line was lost.
func (l *AuditLog) Ready() error {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.failed
}

// Close closes the file.
func (l *AuditLog) Close() error {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.file == nil {
		return nil
	}
	return l.file.Close()
}

func (l *AuditLog) write(e Entry) error {
	line, err := json.Marshal(e)
	if err != nil { // impossible: an Entry contains only texts and numbers
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

// rotated opens the path again if another file, or none, is there now. It checks at most once per reopenAfter.
func (l *AuditLog) rotated() error {
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

type lineKey struct{}

// line is the audit entry of the current request.
type line struct {
	Entry
	log *AuditLog
}

// lineOf returns the line of a request. Without Audited, it returns a line that is never written.
func lineOf(ctx context.Context) *line {
	if l, ok := ctx.Value(lineKey{}).(*line); ok {
		return l
	}
	return new(line)
}

// ErrNotWritten means that an erasure is refused because its audit line cannot be written.
var ErrNotWritten = errors.New("the audit log cannot be written, and nothing is erased without a line there")

// Announce writes the call's audit entry before the call is carried out, for calls that must not happen without a line.
// Another line with the result follows.
func (c *Call) Announce() error {
	if c.line.log == nil {
		return nil
	}
	e := c.line.Entry
	e.Result, e.DurationMs = begun, time.Since(e.Time).Milliseconds()
	if c.line.log.write(e) != nil { // write logs the error
		return ErrNotWritten
	}
	return nil
}

// Audited returns a handler that calls next and then writes a line for each request. It writes to the argument log if
// the route has an action, and to the argument access in any case. Both may be nil.
func Audited(next http.Handler, stage string, log *AuditLog, access *slog.Logger) http.Handler {
	if log == nil && access == nil {
		return next
	}
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		l := &line{log: log, Entry: Entry{Time: time.Now().UTC(), Stage: stage, From: r.RemoteAddr}}
		if host, _, err := net.SplitHostPort(r.RemoteAddr); err == nil {
			l.From = host
		}
		out := NewWriter(w)
		defer func() {
			thrown := recover()
			out.began()
			l.Status = out.status
			if l.Result = resultOf(l.Status); thrown != nil {
				l.Result = cut
			}
			l.DurationMs = time.Since(l.Time).Milliseconds()
			if log != nil && l.Action != "" {
				_ = log.write(l.Entry) // write counts and logs the error; the response is already sent
			}
			if access != nil {
				access.InfoContext(r.Context(), "request", "method", r.Method, "path", r.URL.Path, "status", l.Status, "result", l.Result,
					"duration_ms", l.DurationMs, "from", l.From, "tenant", l.Tenant, "subject", l.Subject)
			}
			if thrown != nil {
				panic(thrown)
			}
		}()
		next.ServeHTTP(out, r.WithContext(context.WithValue(r.Context(), lineKey{}, l)))
	})
}
