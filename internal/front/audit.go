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

// Entry is a line of the audit log: who read, published, erased or exported what. It has no payloads.
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
	Result string `json:"result"`
	// DurationMs is how long the request took: streams have their line when they end.
	DurationMs int64 `json:"durationMs"`
}

// What became of a request.
const (
	begun   = "begun"   // an erasure, before it is written
	done    = "done"    // 2xx and 3xx
	denied  = "denied"  // 401 and 403
	refused = "refused" // any other 4xx
	failed  = "failed"  // 5xx
	cut     = "cut"     // the answer was broken off
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

// AuditLog writes entries, as JSON Lines. It is safe for concurrent use.
type AuditLog struct {
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

// OpenAuditLog opens the log of a stage: "-" is stdout, anything else a file that lines are appended to. A file that was rotated away is
// opened again within a second.
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
		_ = l.file.Close() // its lines are written
	}
	l.file, l.out = f, f
	return nil
}

// Ready returns nil, or why the last line was not written.
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

// line is the entry of a request that is being answered.
type line struct {
	Entry
	log *AuditLog
}

// lineOf returns the line of a request; without Audited it is one that nobody reads.
func lineOf(ctx context.Context) *line {
	if l, ok := ctx.Value(lineKey{}).(*line); ok {
		return l
	}
	return new(line)
}

// ErrNotWritten says that something was not done because the audit log does not take its line.
var ErrNotWritten = errors.New("the audit log cannot be written, and nothing is erased without a line there")

// Announce writes the call's entry before it is carried out, for what must not happen without a line. The line that says how it ended
// follows.
func (c *Call) Announce() error {
	if c.line.log == nil {
		return nil
	}
	e := c.line.Entry
	e.Result, e.DurationMs = begun, time.Since(e.Time).Milliseconds()
	if c.line.log.write(e) != nil { // logged there
		return ErrNotWritten
	}
	return nil
}

// Audited answers requests by next and writes a line for each whose route has an action: to log, and to access as "request". Either may be
// nil.
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
				_ = log.write(l.Entry) // counted and logged there; the answer is out
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
