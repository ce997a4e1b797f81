package parts

import (
	"errors"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/moby/moby/client"
)

// A daemon that reaches no registry is as good as none, unless it has the image.
func TestImage_ADaemonWithoutARegistryIsUnavailable(t *testing.T) {
	for name, c := range map[string]struct {
		has  bool
		pull string // what the daemon says while it pulls; "" is an error at once
		want bool
	}{
		"has it":       {has: true, want: true},
		"pulls it":     {pull: `{"status":"Downloaded"}`, want: true},
		"no registry":  {},
		"fails midway": {pull: `{"errorDetail":{"message":"connection refused"},"error":"connection refused"}`},
	} {
		t.Run(name, func(t *testing.T) {
			daemon := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
				switch {
				case strings.HasSuffix(r.URL.Path, "/images/create") && c.pull != "":
					_, _ = io.WriteString(w, c.pull+"\n") // a test's answer
				case strings.HasSuffix(r.URL.Path, "/images/create"):
					w.WriteHeader(http.StatusInternalServerError)
					_, _ = io.WriteString(w, `{"message":"dial tcp: lookup registry: no such host"}`) // as above
				case c.has:
					_, _ = io.WriteString(w, `{"Id":"sha256:1"}`) // as above
				default:
					w.WriteHeader(http.StatusNotFound)
					_, _ = io.WriteString(w, `{"message":"no such image"}`) // as above
				}
			}))
			defer daemon.Close()
			docker, err := client.New(client.WithHost("tcp://"+strings.TrimPrefix(daemon.URL, "http://")), client.WithAPIVersion("1.44"))
			if err != nil {
				t.Fatal(err)
			}
			defer func() { _ = docker.Close() }() // idle connections only
			err = Image(t.Context(), docker, "example/kafka:1")
			var missing *UnavailableError
			if (err == nil) != c.want || err != nil && !errors.As(err, &missing) {
				t.Errorf("got %v", err)
			}
		})
	}
}
