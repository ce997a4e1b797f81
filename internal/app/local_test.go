package app

import (
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
)

func TestLocalOnly_KeepsWebPagesOut(t *testing.T) {
	h := LocalOnly(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(http.StatusOK) }))
	for name, c := range map[string]struct {
		method, host string
		header       map[string]string
		want         int
	}{
		"address":                            {"GET", "127.0.0.1:8420", nil, 200},
		"another address of loopback":        {"GET", "127.8.8.8:8420", nil, 200},
		"IPv6":                               {"GET", "[::1]:8420", nil, 200},
		"IPv6 without port":                  {"GET", "[::1]", nil, 200},
		"name":                               {"POST", "localhost:8420", nil, 200},
		"name in capitals":                   {"GET", "LOCALHOST", nil, 200},
		"no port":                            {"PUT", "localhost", nil, 200},
		"host of a page":                     {"GET", "rebound.example:8420", nil, 403},
		"host that only starts so":           {"GET", "localhost.example", nil, 403},
		"address in a name":                  {"GET", "127.0.0.1.example:8420", nil, 403},
		"address of the net":                 {"GET", "192.168.0.1:8420", nil, 403},
		"all addresses":                      {"GET", "0.0.0.0:8420", nil, 403},
		"no host":                            {"GET", "", nil, 403},
		"write of another origin":            {"POST", "127.0.0.1:8420", map[string]string{"Origin": "https://page.example"}, 403},
		"write of an origin on another port": {"PUT", "127.0.0.1:8420", map[string]string{"Origin": "http://127.0.0.1:3000"}, 403},
		"write of no origin":                 {"POST", "127.0.0.1:8420", map[string]string{"Origin": "null"}, 403},
		"write as a browser marks it":        {"DELETE", "localhost:8420", map[string]string{"Sec-Fetch-Site": "cross-site"}, 403},
		"write of its own origin":            {"POST", "localhost:8420", map[string]string{"Origin": "http://localhost:8420"}, 200},
		"read of another origin":             {"GET", "127.0.0.1:8420", map[string]string{"Origin": "https://page.example"}, 200},
	} {
		t.Run(name, func(t *testing.T) {
			r := httptest.NewRequestWithContext(t.Context(), c.method, "http://127.0.0.1/v1/threads", strings.NewReader("body"))
			r.Host = c.host
			for k, v := range c.header {
				r.Header.Set(k, v)
			}
			w := httptest.NewRecorder()
			h.ServeHTTP(w, r)
			if w.Code != c.want {
				t.Errorf("answer is %d %s, want %d", w.Code, w.Body, c.want)
			}
			if w.Code == http.StatusForbidden && w.Header().Get("Content-Type") != "application/problem+json" {
				t.Errorf("a refusal is %s", w.Header().Get("Content-Type"))
			}
			if h := w.Header().Get("Access-Control-Allow-Origin"); h != "" {
				t.Errorf("pages of %s may read the answer", h)
			}
		})
	}
}
