package clickhousetest

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"net/http/httputil"
	"net/url"
	"strings"
	"testing"
)

// Statement is one on its way to the server.
type Statement struct {
	User, Password string
	Database, Text string
	Settings       url.Values
}

// Is reports whether the statement begins so.
func (s Statement) Is(begin string, args ...any) bool {
	return strings.HasPrefix(s.Text, fmt.Sprintf(begin, args...))
}

// What becomes of a statement at a Door. Any other error is the answer, as of a server that denies it.
var (
	// ErrCut cuts the connection before the server has the statement.
	ErrCut = errors.New("the connection is cut")
	// ErrLost lets the server carry the statement out, and cuts the connection.
	ErrLost = errors.New("the answer is lost")
	// ErrLate lets the server carry the statement out, and answers never.
	ErrLate = errors.New("the answer does not come")
)

// Then lets the server carry the statement out, calls f, and cuts the connection.
func Then(f func()) error { return &then{f} }

type then struct{ f func() }

func (t *then) Error() string { return ErrLost.Error() + ", and more comes behind it" }

// Door stands before a server and shows each statement to a function before it goes on. It returns its address.
func Door(tb testing.TB, addr string, shown func(Statement) error) string {
	tb.Helper()
	if !strings.HasPrefix(addr, "http://") {
		tb.Skip("statements are seen over HTTP only")
	}
	target, err := url.Parse(addr)
	if err != nil {
		tb.Fatal(err)
	}
	proxy := httputil.NewSingleHostReverseProxy(target)
	transport := &http.Transport{}
	proxy.Transport = transport
	// A caller or a server that is gone is seen as such.
	proxy.ErrorHandler = func(http.ResponseWriter, *http.Request, error) { panic(http.ErrAbortHandler) }
	closing := make(chan struct{})
	door := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		s := Statement{Database: r.URL.Query().Get("database"), Text: r.URL.Query().Get("query"), Settings: r.URL.Query()}
		var basic bool // or in headers: the two ways that ClickHouse's HTTP interface takes
		if s.User, s.Password, basic = r.BasicAuth(); !basic {
			s.User, s.Password = r.Header.Get("X-ClickHouse-User"), r.Header.Get("X-ClickHouse-Key")
		}
		if s.Text == "" {
			body, err := io.ReadAll(r.Body)
			if err != nil {
				panic(http.ErrAbortHandler)
			}
			s.Text, r.Body = string(body), io.NopCloser(bytes.NewReader(body))
		}
		err, behind := shown(s), &then{func() {}}
		switch {
		case err == nil:
			proxy.ServeHTTP(w, r)
		case errors.As(err, &behind), errors.Is(err, ErrLost):
			proxy.ServeHTTP(httptest.NewRecorder(), r)
			behind.f()
			panic(http.ErrAbortHandler)
		case errors.Is(err, ErrCut):
			panic(http.ErrAbortHandler)
		case errors.Is(err, ErrLate):
			proxy.ServeHTTP(httptest.NewRecorder(), r)
			select {
			case <-r.Context().Done():
			case <-closing:
			}
			panic(http.ErrAbortHandler)
		default:
			w.Header().Set("X-ClickHouse-Exception-Code", "497")
			w.WriteHeader(http.StatusForbidden)
			_, _ = io.WriteString(w, "Code: 497. DB::Exception: "+err.Error()+". (ACCESS_DENIED)\n")
		}
	}))
	tb.Cleanup(func() {
		close(closing)
		door.Close()
		transport.CloseIdleConnections()
	})
	return door.URL
}
