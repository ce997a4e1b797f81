package agents

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"mime"
	"net"
	"net/http"
	"net/http/httptrace"
	"net/textproto"
	"net/url"
	"strings"
	"sync/atomic"
	"syscall"
	"time"

	"github.com/skeinhq/skein/pkg/fold"
	"github.com/skeinhq/skein/pkg/record"
	"github.com/skeinhq/skein/pkg/tenant"
)

// The values of Error.Code, which are also the codes of the RUN_ERROR events.
const (
	CodeUnreachable = "agent-unreachable" // no connection, or one that ended before the response
	CodeTimeout     = "agent-timeout"     // one of the agent's timeouts expired
	CodeRedirect    = "agent-redirect"    // 301, 302, 303, 307 or 308
	CodeStatus      = "agent-status"      // any other status but 200
	CodeNotSSE      = "agent-not-sse"     // 200 with a body that is not an event stream
	CodeCredential  = "agent-credential"  // the credential file cannot be read
	CodeCut         = "agent-cut"         // the stream broke off
	CodeNoEnd       = fold.CodeNoEnd      // the stream ended without a RUN_FINISHED or RUN_ERROR that clients can read
)

// Codes returns all error codes.
func Codes() []string {
	return []string{CodeUnreachable, CodeTimeout, CodeRedirect, CodeStatus, CodeNotSSE, CodeCredential, CodeCut, CodeNoEnd}
}

// Error is a failed call of an agent. Text is for the caller of the run. It contains the agent's status, the first KB of
// its answer, and the possible fault of the agent, but never the agent's address or credential or the caller's headers (hide),
// and of the agent's headers at most a content type, a coding and Retry-After.
type Error struct {
	Code string
	// Status is the agent's HTTP status; 0 if there was no response.
	Status int
	Text   string
	// Err is the cause, for the log; it may be nil.
	Err error
}

func (e *Error) Error() string { return e.Text }

// Unwrap returns the cause, or nil.
func (e *Error) Unwrap() error { return e.Err }

// Caller calls one agent and keeps idle connections to it.
type Caller struct {
	Agent
	client, fresh http.Client // fresh reuses no connection
}

// NewCaller returns a Caller for an agent of a Config. Call Close when the Caller is no longer used.
func NewCaller(a Agent) *Caller {
	kept := &http.Transport{
		Proxy:       http.ProxyFromEnvironment,
		DialContext: (&net.Dialer{Timeout: a.ConnectTimeout}).DialContext,
		// The bytes are forwarded unchanged, so the transport must not request compression and decompress them.
		DisableCompression:    true,
		TLSHandshakeTimeout:   a.ConnectTimeout,
		ResponseHeaderTimeout: a.AnswerTimeout,
		ForceAttemptHTTP2:     true,
		// A connection becomes idle when its run ends. Keep enough for a burst of runs.
		MaxIdleConns: 256, MaxIdleConnsPerHost: 256,
		IdleConnTimeout: 30 * time.Second, // many servers close it earlier: see again
	}
	fresh := kept.Clone()
	fresh.DisableKeepAlives = true
	// Only the configuration decides which hosts are called, so redirects are not followed.
	last := func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }
	return &Caller{
		Agent:  a,
		client: http.Client{Transport: kept, CheckRedirect: last}, fresh: http.Client{Transport: fresh, CheckRedirect: last},
	}
}

// Close closes idle connections.
func (c *Caller) Close() { c.client.CloseIdleConnections() }

// closedByAgent reports whether a call failed because the agent had closed the connection.
func closedByAgent(err error) bool {
	return errors.Is(err, io.EOF) || errors.Is(err, syscall.ECONNRESET) || errors.Is(err, syscall.EPIPE) ||
		strings.HasSuffix(err.Error(), "server closed idle connection") // an error of net/http that has no name
}

// Call posts a tenant's input to the agent and returns the agent's event stream, which ends with ctx. It forwards the caller's
// trace context, and its headers that the configuration names, except values that contain an API key of Skein. Every error is an *Error
// without the agent's URL.
//
// Call calls the argument sent once, when the input is no longer needed: usually before Call returns, at the latest
// when ctx ends.
func (c *Caller) Call(ctx context.Context, input []byte, sent func(), tenantID string, caller http.Header) (io.ReadCloser, error) {
	// The transport's own timeout starts only after the request is written. Without the timer late, an agent that does not
	// read the request could block the call forever.
	ctx, giveUp := context.WithCancelCause(ctx)
	late := time.AfterFunc(c.ConnectTimeout+c.AnswerTimeout, func() { giveUp(errLate) })
	defer late.Stop()
	out := send(ctx, input, sent)
	defer out.drop()
	var reused, answered atomic.Bool
	req, err := http.NewRequestWithContext(httptrace.WithClientTrace(ctx, &httptrace.ClientTrace{
		GotConn:              func(i httptrace.GotConnInfo) { reused.Store(i.Reused) },
		GotFirstResponseByte: func() { answered.Store(true) },
	}), http.MethodPost, c.URL, nil)
	if err != nil {
		return nil, &Error{Code: CodeUnreachable, Text: "the agent cannot be called", Err: withoutURL(err)}
	}
	req.ContentLength, req.GetBody = int64(len(input)), out.body
	for _, name := range c.Headers {
		name = textproto.CanonicalMIMEHeaderKey(name)
		for _, v := range caller[name] {
			if !tenant.HoldsKey(v) { // the agent could use such a key to call Skein
				req.Header.Add(name, v)
			}
		}
	}
	if name := *c.TenantHeader; name != "" {
		req.Header.Set(name, record.EscapeKeyPart(tenantID))
	}
	if t := record.Traceparent(caller.Get(record.HeaderTraceparent)); t != "" {
		req.Header.Set(record.HeaderTraceparent, t)
	}
	secret, err := c.credential()
	if err != nil {
		return nil, &Error{Code: CodeCredential, Text: "the agent's credential cannot be read: the log of ingest says why", Err: err}
	}
	if secret != "" {
		req.Header.Set(c.CredentialHeader, secret)
	}
	req.Header.Set("Content-Type", "application/json")
	req.Header.Set("Accept", "text/event-stream")
	req.Header.Set("Accept-Encoding", "identity")
	if req.Header.Get("User-Agent") == "" {
		req.Header.Set("User-Agent", "skein-ingest")
	}
	if req.Body, err = out.body(); err != nil {
		return nil, &Error{Code: CodeUnreachable, Text: "the agent cannot be called", Err: err} // ctx has ended
	}
	begun := time.Now()
	resp, err := c.client.Do(req)
	if err != nil && reused.Load() && !answered.Load() && time.Since(begun) < again && closedByAgent(err) {
		if req.Body, err = out.body(); err == nil {
			resp, err = c.fresh.Do(req)
		}
	}
	if !late.Stop() {
		if err == nil {
			_ = resp.Body.Close() // the response arrived too late
		}
		err = errLate
	}
	if err != nil {
		return nil, unanswered(withoutURL(err))
	}
	hide := hiding(req, secret)
	if err := checkAnswer(resp, hide); err != nil {
		if err.Code != CodeRedirect {
			stop := time.AfterFunc(saidWithin, func() { giveUp(errLate) })
			switch text := said(resp, hide); {
			case text != "" && err.Code == CodeStatus:
				err.Text = fmt.Sprintf("HTTP %d: %s", err.Status, text) // as the official client's error
			case text != "":
				err.Text += ": " + text
			}
			stop.Stop()
		}
		if after := hide(resp.Header.Get("Retry-After")); after != "" {
			err.Text += strings.ToValidUTF8(fmt.Sprintf(" (Retry-After: %.100s)", after), "")
		}
		_ = resp.Body.Close() // the response cannot be used
		return nil, err
	}
	return resp.Body, nil
}

// again is how long after a request on a reused connection failed without a byte it is sent once more, on a fresh one: a
// server may close an idle connection at the moment at which the request is sent. An agent that failed later may have
// begun to work on it.
const again = 2 * time.Second

const (
	saidBytes  = 1 << 10         // of an agent's answer that Error.Text contains
	saidWithin = 2 * time.Second // for reading it
)

// said returns the beginning of an answer that is no stream, without what hide removes. JSON is compacted, as in the
// official client's error.
func said(resp *http.Response, hide func(string) string) string {
	if enc := resp.Header.Get("Content-Encoding"); enc != "" && !strings.EqualFold(enc, "identity") {
		return ""
	}
	text, _ := io.ReadAll(io.LimitReader(resp.Body, 64*saidBytes)) // what has come is enough
	if flat := new(bytes.Buffer); json.Compact(flat, text) == nil {
		text = flat.Bytes()
	}
	text = text[:min(len(text), 16*saidBytes)] // hiding makes it shorter
	text = bytes.TrimSpace(bytes.ToValidUTF8([]byte(hide(string(text))), []byte("\uFFFD")))
	if len(text) > saidBytes {
		text = append(bytes.ToValidUTF8(text[:saidBytes], nil), "…"...)
	}
	return string(text)
}

var errLate = fmt.Errorf("neither the request was read nor an answer given: %w", context.DeadlineExceeded)

// withoutURL returns the cause of an error without the agent's URL, which may contain secrets. The log has the agent's
// name instead.
func withoutURL(err error) error {
	var failed *url.Error
	if errors.As(err, &failed) {
		return failed.Err
	}
	return err
}

func unanswered(err error) *Error {
	var timeout net.Error
	if errors.As(err, &timeout) && timeout.Timeout() {
		return &Error{Code: CodeTimeout, Text: "the agent did not answer in time", Err: err}
	}
	return &Error{Code: CodeUnreachable, Text: "the agent cannot be reached", Err: err}
}

func checkAnswer(resp *http.Response, hide func(string) string) *Error {
	code := resp.StatusCode
	status := strings.TrimSpace(fmt.Sprintf("%d %s", code, http.StatusText(code))) // not resp.Status: the agent chooses its text
	switch code {
	case http.StatusOK:
	case http.StatusMovedPermanently, http.StatusFound, http.StatusSeeOther, http.StatusTemporaryRedirect, http.StatusPermanentRedirect:
		return &Error{Code: CodeRedirect, Status: code, Text: fmt.Sprintf("the agent answered %s: redirects are not followed, the agent's URL must be its last one", status)}
	default:
		return &Error{Code: CodeStatus, Status: code, Text: "the agent answered " + status}
	}
	media, _, err := mime.ParseMediaType(resp.Header.Get("Content-Type"))
	if err != nil || media != "text/event-stream" {
		return &Error{Code: CodeNotSSE, Status: code, Text: fmt.Sprintf("the agent answered %s with %.100q, not with text/event-stream", status, hide(media))}
	}
	if enc := resp.Header.Get("Content-Encoding"); enc != "" && !strings.EqualFold(enc, "identity") {
		return &Error{Code: CodeNotSSE, Status: code, Text: fmt.Sprintf("the agent answered %s compressed as %.100q, which it was not asked for", status, hide(enc))}
	}
	return nil
}
