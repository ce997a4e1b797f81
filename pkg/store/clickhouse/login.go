package clickhouse

import (
	"context"
	"fmt"
	"net/http"

	ch "github.com/ClickHouse/clickhouse-go/v2"

	"github.com/skeinhq/skein/internal/password"
)

// login reads the password from its file for each login. The driver itself would keep the first one.
type login struct{ user, file string }

func (l *login) password() (string, error) {
	text, err := password.Read(l.file)
	if err != nil {
		return "", fmt.Errorf("%w: %w", ErrPassword, err)
	}
	return text, nil
}

// dial is the driver's default DialStrategy with the current password. A native connection logs in once.
func (l *login) dial(ctx context.Context, id int, o *ch.Options, dial ch.Dial) (ch.DialResult, error) {
	text, err := l.password()
	if err != nil {
		return ch.DialResult{}, err
	}
	now := *o
	now.Auth.Password = text
	return ch.DefaultDialStrategy(ctx, id, &now, dial)
}

// over returns a transport that sends the current password with each HTTP request. The driver's HTTP connections would keep the
// first password.
func (l *login) over(t http.RoundTripper) http.RoundTripper {
	return roundTripper(func(r *http.Request) (*http.Response, error) {
		text, err := l.password()
		if err != nil {
			return nil, err
		}
		r = r.Clone(r.Context())
		r.Header.Del("Authorization") // the server refuses two kinds of credentials
		r.Header.Set("X-ClickHouse-User", l.user)
		r.Header.Set("X-ClickHouse-Key", text)
		r.Header.Set("X-ClickHouse-SSL-Certificate-Auth", "off")
		return t.RoundTrip(r)
	})
}

type roundTripper func(*http.Request) (*http.Response, error)

// RoundTrip implements http.RoundTripper.
func (f roundTripper) RoundTrip(r *http.Request) (*http.Response, error) { return f(r) }
