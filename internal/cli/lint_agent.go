package cli

import (
	"bytes"
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"io"
	"mime"
	"net/http"
	"net/url"
	"strings"

	"github.com/skeinhq/skein/internal/app"
	"github.com/skeinhq/skein/pkg/agui"
	"github.com/skeinhq/skein/pkg/lint"
)

func isURL(name string) bool {
	return strings.HasPrefix(name, "http://") || strings.HasPrefix(name, "https://")
}

// openAgent returns the stream that an agent sends in answer to the input, or to hello if input is nil. Reading the stream sends the
// request.
func openAgent(address string, o lintOptions, input []byte) (linted, error) {
	u, err := url.Parse(address)
	if err != nil || u.Host == "" {
		return linted{}, app.Usagef("reading url %q: want http://HOST:PORT/PATH", address)
	}
	if o.timeout <= 0 {
		return linted{}, app.Usagef("timeout %v is not positive: an agent needs time to answer", o.timeout)
	}
	if input == nil {
		input = hello()
	}
	s := linted{name: (&url.URL{Scheme: u.Scheme, Host: u.Host, Path: u.Path}).String()} // without user and query, which may be secret
	if s.input, err = agui.DecodeInput(input, ""); err != nil {
		return linted{}, app.Usagef("reading input: %w", err)
	}
	header := http.Header{"Content-Type": {"application/json"}, "Accept": {"text/event-stream"}}
	for _, h := range o.headers {
		name, value, ok := strings.Cut(h, ":")
		if name = strings.TrimSpace(name); !ok || name == "" {
			return linted{}, app.Usagef("a --header is malformed: want 'Name: value'") // leaves out the header's text, which may be secret
		}
		header.Set(name, strings.TrimSpace(value))
	}
	s.read = func(ctx context.Context, l *lint.Linter) error {
		ctx, cancel := context.WithTimeout(ctx, o.timeout)
		defer cancel()
		request, err := http.NewRequestWithContext(ctx, http.MethodPost, address, bytes.NewReader(input))
		if err != nil {
			return app.Usagef("reading url: %w", err)
		}
		request.Header = header
		if err := lintAnswer(request, l); err != nil {
			if errors.Is(err, context.DeadlineExceeded) {
				err = fmt.Errorf("the answer did not end within --timeout %v", o.timeout)
			}
			return fmt.Errorf("asking %s: %w", s.name, err)
		}
		return nil
	}
	return s, nil
}

// hello returns an input for a new thread.
func hello() []byte {
	return fmt.Appendf(nil, `{"threadId":"skein-lint-%s","runId":"skein-lint-%s","protocolVersion":"`+agui.ProtocolVersion+`",`+
		`"messages":[{"id":"m1","role":"user","content":"Hello"}],"tools":[],"context":[],"state":{},"forwardedProps":{}}`,
		rand.Text(), rand.Text())
}

// protobuf is AG-UI's other encoding. The client reads it if the agent answers with it.
const protobuf = "application/vnd.ag-ui.event+proto"

// lintAnswer sends the request and lints the answer as the official client reads it. A status other than 2xx fails the run, and
// every content type except protobuf is read as SSE.
func lintAnswer(request *http.Request, l *lint.Linter) error {
	// Its own transport lets the request leave no connection open. Redirects to other hosts are refused, since they would get the agent's
	// headers.
	transport := http.DefaultTransport.(*http.Transport).Clone()
	defer transport.CloseIdleConnections()
	client := &http.Client{Transport: transport, CheckRedirect: func(to *http.Request, via []*http.Request) error {
		if from := via[0].URL; to.URL.Host != from.Host || to.URL.Scheme != from.Scheme {
			return fmt.Errorf("it redirects to %s://%s: use that address", to.URL.Scheme, to.URL.Host)
		}
		if to.Method != http.MethodPost {
			return fmt.Errorf("it answers with a redirect that turns the request into a %s: use the final address", to.Method)
		}
		if len(via) >= 10 {
			return errors.New("it redirects ten times")
		}
		return nil
	}}
	response, err := client.Do(request)
	if err != nil {
		var failed *url.Error
		if errors.As(err, &failed) {
			err = failed.Err // leaves out the URL, which may contain secrets
		}
		return err
	}
	defer func() { _ = response.Body.Close() }() // read only
	if response.StatusCode < 200 || response.StatusCode > 299 {
		body, err := io.ReadAll(io.LimitReader(response.Body, 1<<10))
		if err != nil {
			return err
		}
		l.Status(response.Status, string(body))
		return nil
	}
	kind := response.Header.Get("Content-Type")
	parsed, _, _ := mime.ParseMediaType(kind) // "" on an error
	switch parsed {
	case protobuf:
		return fmt.Errorf("it answers in protobuf (%s) instead of text/event-stream: lint reads SSE only", protobuf)
	case "text/event-stream":
	default:
		l.ContentType(kind)
	}
	if err := l.ReadSSE(response.Body, 1); err != nil {
		return err
	}
	l.End()
	return nil
}
