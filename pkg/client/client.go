package client

import (
	"bytes"
	"context"
	"crypto/tls"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"sync/atomic"
	"time"
)

const typeJSON = "application/json"

// maxAnswerBytes bounds an answer that is read into memory. Several histories of the largest run records fit.
const maxAnswerBytes = 256 << 20

// Client calls one Skein installation. It is safe for concurrent use.
type Client struct {
	// read and publish are the addresses of the stages query and ingest; "" is none.
	read, publish string

	key      string
	http     *http.Client
	producer Producer
	patience time.Duration
	note     func(text string)
	// answered is true once the server has answered. Copies of the client share it.
	answered *atomic.Bool
}

// Producer describes the producer of a run's inputs and events.
type Producer struct {
	// Agent is the producer's name, or "".
	Agent string
	// Labels are those of the run, by key. The server converts keys to lower case.
	Labels map[string]string
}

// As returns a client whose inputs and events name a producer. It shares the connections of c.
func (c *Client) As(p Producer) *Client {
	as := *c
	as.producer = p
	return &as
}

// WithKey returns a client with another API key. It shares the connections of c.
func (c *Client) WithKey(key string) *Client {
	as := *c
	as.key = key
	return &as
}

// Option configures a Client.
type Option func(*Client)

// WithAPIKey sends an API key with every call; an empty one is not sent.
func WithAPIKey(key string) Option { return func(c *Client) { c.key = key } }

// WithPublishURL sets the address of the ingest stage, if it has another one than the query stage. It takes events, inputs, and
// requests to cancel a run or change or erase a thread.
func WithPublishURL(base string) Option {
	return func(c *Client) { c.publish = strings.TrimRight(base, "/") }
}

// WithTLS sets the TLS configuration for an https:// server; nil is Go's default.
func WithTLS(config *tls.Config) Option {
	return func(c *Client) {
		if config != nil {
			c.http.Transport.(*http.Transport).TLSClientConfig = config.Clone() // New has made it
		}
	}
}

// WithoutRedirects makes a redirect an error, so that only the given addresses get the key.
func WithoutRedirects() Option {
	return func(c *Client) {
		c.http.CheckRedirect = func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }
	}
}

// New returns a client for the server at base, such as "http://127.0.0.1:8420". With WithPublishURL, base is the address of the
// query stage. One of the two may be "": calls that need it then return ErrNoReadURL or ErrNoPublishURL.
func New(base string, options ...Option) (*Client, error) {
	// The client has a transport of its own, so that Close leaves idle connections of others open.
	transport := http.DefaultTransport.(*http.Transport).Clone()
	base = strings.TrimRight(base, "/")
	c := &Client{
		read: base, publish: base, http: &http.Client{Transport: transport},
		patience: defaultPatience, note: func(string) {}, answered: new(atomic.Bool),
	}
	for _, o := range options {
		o(c)
	}
	for _, address := range []string{c.read, c.publish} {
		u, err := url.Parse(address)
		none := address == "" && c.read != c.publish
		if !none && (err != nil || u.Host == "" || (u.Scheme != "http" && u.Scheme != "https")) {
			return nil, fmt.Errorf("reading url %q: want http://HOST:PORT", address)
		}
	}
	return c, nil
}

// URL returns the address of the query stage.
func (c *Client) URL() string { return c.read }

// Close ends idle connections.
func (c *Client) Close() { c.http.CloseIdleConnections() }

// SetTitle sets the title of a thread, which shows once the thread has a run; "" removes it. It returns the position of the change: a read
// with atLeast of it has the title.
func (c *Client) SetTitle(ctx context.Context, thread, title string) (position string, err error) {
	if title == "" {
		return c.patch(ctx, thread, map[string]any{"title": nil})
	}
	return c.patch(ctx, thread, map[string]any{"title": title})
}

// SetArchived archives a thread, so that lists leave it out unless they are asked for it, or takes that back. It returns the position of
// the change.
func (c *Client) SetArchived(ctx context.Context, thread string, archived bool) (position string, err error) {
	return c.patch(ctx, thread, map[string]any{"archived": archived})
}

func (c *Client) patch(ctx context.Context, thread string, patch map[string]any) (string, error) {
	body, err := json.Marshal(patch)
	if err != nil { // impossible: it is one text or bool
		return "", fmt.Errorf("encoding patch: %w", err)
	}
	type place struct {
		Partition int32 `json:"partition"`
		Offset    int64 `json:"offset"`
	}
	at, err := again(ctx, &tries{client: c}, func() (place, error) {
		return answer[place](c.call(ctx, http.MethodPatch, ThreadPath(thread), nil, typeJSON, bytes.NewReader(body)))
	})
	if err != nil {
		return "", err
	}
	return fmt.Sprintf("%d:%d", at.Partition, at.Offset), nil
}

// Receipt is the answer to an erasure: its position, and in Href the path of the query stage for its progress.
type Receipt struct {
	ThreadID string `json:"threadId"`
	Position string `json:"position"`
	Href     string `json:"href"`
}

// EraseThread requests the erasure of all that a thread has so far.
func (c *Client) EraseThread(ctx context.Context, thread string) (Receipt, error) {
	return again(ctx, &tries{client: c, acts: true}, func() (Receipt, error) {
		return answer[Receipt](c.call(ctx, http.MethodDelete, ThreadPath(thread), nil, "", nil))
	})
}

// Cancelled is the answer of CancelRun: how the run ended.
type Cancelled struct {
	ThreadID string `json:"threadId"`
	RunID    string `json:"runId"`
	// Position is the position of the request in skein.events, End that of the run's terminal event.
	Position string `json:"position"`
	End      string `json:"end"`
	Status   string `json:"status"`
	// Synthetic is true if a proxy ended the run in the agent's place.
	Synthetic bool `json:"synthetic,omitempty"`
}

// CancelRun requests that a run be stopped, and waits for its end; if run is "", whatever run of the thread is open. The error is an *Error
// of status 409 if the end does not come: the run had ended before, or no proxy serves it. The reason is for people and may be empty.
func (c *Client) CancelRun(ctx context.Context, thread, run, reason string) (Cancelled, error) {
	body, err := json.Marshal(struct {
		Reason string `json:"reason,omitempty"`
	}{reason})
	if err != nil { // impossible: it is one string
		return Cancelled{}, fmt.Errorf("encoding reason: %w", err)
	}
	path := RunPath(thread, run)
	if run == "" {
		path = ThreadPath(thread)
	}
	return answer[Cancelled](c.call(ctx, http.MethodPost, path+"/cancel", nil, typeJSON, bytes.NewReader(body)))
}

// RunningRun is an open run of a thread.
type RunningRun struct {
	RunID string `json:"runId"`
	// ClientRunID is the id that the agent gave, if it differs.
	ClientRunID string `json:"clientRunId"`
	Agent       string `json:"agent"`
}

// Running returns the open runs of a thread, by start.
func (c *Client) Running(ctx context.Context, thread string) ([]RunningRun, error) {
	found, err := answer[struct{ Running []RunningRun }](c.Get(ctx, ThreadPath(thread), nil))
	return found.Running, err
}

// KnownRun is what the query stage knows of a run, as far as it concerns the run's end.
type KnownRun struct {
	RunID       string `json:"runId"`
	ClientRunID string `json:"clientRunId"`
	Status      string `json:"status"`
	// Raw.Next is the offset in skein.events after the run's last record.
	Raw struct {
		Next int64 `json:"next"`
	} `json:"raw"`
}

// Ended reports whether the run has ended. An agent may go on with an abandoned run, which therefore has not.
func (r KnownRun) Ended() bool {
	return slices.Contains([]string{"finished", "interrupted", "error", "cancelled"}, r.Status)
}

// LastRun returns the last run that has a client run id: the run of this id, or RUN~2 and so on, if the id was used again.
func (c *Client) LastRun(ctx context.Context, thread, run string) (last KnownRun, err error) {
	get := func(id string) (KnownRun, error) { return answer[KnownRun](c.Get(ctx, RunPath(thread, id), nil)) }
	if last, err = get(run); err != nil || last.Status == "running" {
		return last, err
	}
	first, n, up := last, 1, true
	for step := 1; step > 0; { // the numbers have no gaps: double the step until a run is missing, then halve it
		r, err := get(fmt.Sprintf("%s~%d", run, n+step))
		if err != nil && !IsNotFound(err) {
			return KnownRun{}, err
		}
		if err == nil {
			n, last = n+step, r
		}
		if up = up && err == nil; up {
			step *= 2
		} else {
			step /= 2
		}
	}
	for ; n > 1 && last.ClientRunID != run; n-- { // it is a run that an agent gave such an id
		if last, err = get(fmt.Sprintf("%s~%d", run, n-1)); err != nil && !IsNotFound(err) {
			return KnownRun{}, err
		}
	}
	if n == 1 {
		return first, nil
	}
	return last, nil
}

// answer decodes the answer of call.
func answer[T any](body []byte, err error) (T, error) {
	var v T
	if err != nil {
		return v, err
	}
	if err := json.Unmarshal(body, &v); err != nil {
		return v, fmt.Errorf("decoding answer: %w", err)
	}
	return v, nil
}

// Get returns the JSON (or text) of one call of the query stage. path starts with "/v1/" and is escaped: see ThreadPath
// and RunPath.
func (c *Client) Get(ctx context.Context, path string, query url.Values) ([]byte, error) {
	return c.call(ctx, http.MethodGet, path, query, "", nil)
}

// ThreadPath returns the escaped path of a thread; any id becomes one segment.
func ThreadPath(thread string) string { return "/v1/threads/" + url.PathEscape(thread) }

// RunPath returns the escaped path of a run.
func RunPath(thread, run string) string {
	return ThreadPath(thread) + "/runs/" + url.PathEscape(run)
}

func (c *Client) call(ctx context.Context, method, path string, query url.Values, mediaType string, body io.Reader) ([]byte, error) {
	req, err := c.request(ctx, method, path, query, body)
	if err != nil {
		return nil, err
	}
	if mediaType != "" {
		req.Header.Set("Content-Type", mediaType)
	}
	if c.producer.Agent != "" {
		req.Header.Set("Skein-Agent", c.producer.Agent)
	}
	for key, v := range c.producer.Labels {
		req.Header.Set("Skein-Label-"+key, v)
	}
	resp, err := c.do(ctx, req)
	if err != nil {
		return nil, err
	}
	defer func() { _ = resp.Body.Close() }() // read only: nothing is lost if it fails
	out, err := io.ReadAll(io.LimitReader(resp.Body, maxAnswerBytes+1))
	if err != nil {
		return nil, brokenOff(ctx, err)
	}
	if len(out) > maxAnswerBytes {
		return nil, fmt.Errorf("reading answer: it has more than %d bytes", maxAnswerBytes)
	}
	return out, nil
}

// request makes a request, to the query stage if the method is GET and else to ingest; path starts with "/" and is escaped.
func (c *Client) request(ctx context.Context, method, path string, query url.Values, body io.Reader) (*http.Request, error) {
	base, missing := c.publish, ErrNoPublishURL
	if method == http.MethodGet {
		base, missing = c.read, ErrNoReadURL
	}
	if base == "" {
		return nil, missing
	}
	address := base + path
	if len(query) > 0 {
		address += "?" + query.Encode()
	}
	req, err := http.NewRequestWithContext(ctx, method, address, body)
	if err != nil {
		return nil, fmt.Errorf("making request: %w", err)
	}
	return req, nil
}

// do sends a request with the key and returns a successful answer, whose body the caller closes.
func (c *Client) do(ctx context.Context, req *http.Request) (*http.Response, error) {
	if c.key != "" {
		// net/http drops the header when it follows a redirect to another host.
		req.Header.Set("Authorization", "Bearer "+c.key)
	}
	resp, err := c.http.Do(req)
	if err != nil {
		if ctx.Err() != nil {
			return nil, ctx.Err()
		}
		return nil, fmt.Errorf("no answer from %s://%s: is Skein running there? (%w: %w)", req.URL.Scheme, req.URL.Host, ErrUnreachable, err)
	}
	c.answered.Store(true)
	if resp.StatusCode/100 != 2 {
		defer func() { _ = resp.Body.Close() }() // read only: nothing is lost if it fails
		return nil, readError(req.Method, resp)
	}
	return resp, nil
}
