package agents

import (
	"context"
	"errors"
	"fmt"
	"io"
	"mime"
	"net"
	"net/http"
	"net/textproto"
	"net/url"
	"strings"
	"time"

	"github.com/skeinhq/skein/pkg/tenant"
)

// The codes of errors, as RUN_ERROR has them.
const (
	CodeUnreachable = "agent-unreachable" // no connection, or it ended before an answer
	CodeTimeout     = "agent-timeout"     // one of the agent's timeouts is over
	CodeRedirect    = "agent-redirect"    // 301, 302, 303, 307 or 308
	CodeStatus      = "agent-status"      // any other status but 200
	CodeNotSSE      = "agent-not-sse"     // 200 with something that is no stream of events
	CodeCredential  = "agent-credential"  // the secret cannot be read
	CodeCut         = "agent-cut"         // the stream broke off
	CodeNoEnd       = "agent-no-end"      // the stream ended without RUN_FINISHED or RUN_ERROR
)

// Codes returns them.
func Codes() []string {
	return []string{CodeUnreachable, CodeTimeout, CodeRedirect, CodeStatus, CodeNotSSE, CodeCredential, CodeCut, CodeNoEnd}
}

// Error is what is wrong with an agent. The text is for the caller of the run: it names the agent's
// status and what it may have done, and never its address or answer; of its headers at most the name of a content type or coding.
type Error struct {
	Code string
	// Status is the agent's HTTP status; 0 where it gave none.
	Status int
	Text   string
	// Err is the cause, for the log; may be nil.
	Err error
}

func (e *Error) Error() string { return e.Text }

// Unwrap returns the cause.
func (e *Error) Unwrap() error { return e.Err }

// Caller calls one agent. It keeps connections to it.
type Caller struct {
	Agent
	client http.Client
}

// NewCaller returns what calls an agent of a Config. The caller calls Close in the end.
func NewCaller(a Agent) *Caller {
	c := &Caller{Agent: a}
	c.client = http.Client{
		Transport: &http.Transport{
			Proxy:       http.ProxyFromEnvironment,
			DialContext: (&net.Dialer{Timeout: a.ConnectTimeout}).DialContext,
			// The bytes are forwarded unchanged, so the transport must not request compression and decompress them.
			DisableCompression:    true,
			TLSHandshakeTimeout:   a.ConnectTimeout,
			ResponseHeaderTimeout: a.AnswerTimeout,
			ForceAttemptHTTP2:     true,
			// A connection is free again when its run has ended: as many runs as begin in a burst.
			MaxIdleConns: 256, MaxIdleConnsPerHost: 256,
			IdleConnTimeout: 30 * time.Second, // shorter than servers', which close theirs under a request else
		},
		// Where to is for the configuration to say.
		CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
	}
	return c
}

// Close closes connections that no run uses.
func (c *Caller) Close() { c.client.CloseIdleConnections() }

// Call gives the agent an input and returns its stream of events, which ends with ctx. Of the caller's
// headers those go on that the configuration names, but no value that holds an API key of Skein. All errors are *Error, without
// the agent's URL.
// It calls sent once, when it holds the input no more: as a rule before it returns, at the end of ctx in any case.
func (c *Caller) Call(ctx context.Context, input []byte, sent func(), caller http.Header) (io.ReadCloser, error) {
	// The transport's own timeout begins once the request is written: an agent that does not read it would have for ever.
	ctx, giveUp := context.WithCancelCause(ctx)
	late := time.AfterFunc(c.ConnectTimeout+c.AnswerTimeout, func() { giveUp(errLate) })
	defer late.Stop()
	out := send(ctx, input, sent)
	defer out.drop()
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, c.URL, nil)
	if err != nil {
		return nil, &Error{Code: CodeUnreachable, Text: "the agent cannot be called", Err: withoutURL(err)}
	}
	req.ContentLength, req.GetBody = int64(len(input)), out.body
	for _, name := range c.Headers {
		name = textproto.CanonicalMIMEHeaderKey(name)
		for _, v := range caller[name] {
			if !tenant.HoldsKey(v) { // an agent could use a key to call Skein itself
				req.Header.Add(name, v)
			}
		}
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
		return nil, &Error{Code: CodeUnreachable, Text: "the agent cannot be called", Err: err} // ctx is over
	}
	resp, err := c.client.Do(req)
	if !late.Stop() {
		if err == nil {
			_ = resp.Body.Close() // it has come too late
		}
		err = errLate
	}
	if err != nil {
		return nil, unanswered(withoutURL(err))
	}
	if err := checkAnswer(resp); err != nil {
		_ = resp.Body.Close() // the answer is of no use, so neither is the connection
		return nil, err
	}
	return resp.Body, nil
}

var errLate = fmt.Errorf("neither the request was read nor an answer given: %w", context.DeadlineExceeded)

// withoutURL returns an error's cause without the agent's URL, in which secrets may be: the log has the agent's name.
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

func checkAnswer(resp *http.Response) error {
	code := resp.StatusCode
	status := strings.TrimSpace(fmt.Sprintf("%d %s", code, http.StatusText(code))) // and not resp.Status, which is the agent's text
	switch code {
	case http.StatusOK:
	case http.StatusMovedPermanently, http.StatusFound, http.StatusSeeOther, http.StatusTemporaryRedirect, http.StatusPermanentRedirect:
		return &Error{Code: CodeRedirect, Status: code, Text: fmt.Sprintf("the agent answered %s: redirects are not followed, the agent's URL must be its last one", status)}
	default:
		return &Error{Code: CodeStatus, Status: code, Text: "the agent answered " + status}
	}
	media, _, err := mime.ParseMediaType(resp.Header.Get("Content-Type"))
	if err != nil || media != "text/event-stream" {
		return &Error{Code: CodeNotSSE, Status: code, Text: fmt.Sprintf("the agent answered %s with %.100q, not with text/event-stream", status, media)}
	}
	if enc := resp.Header.Get("Content-Encoding"); enc != "" && !strings.EqualFold(enc, "identity") {
		return &Error{Code: CodeNotSSE, Status: code, Text: fmt.Sprintf("the agent answered %s compressed as %.100q, which it was not asked for", status, enc)}
	}
	return nil
}
