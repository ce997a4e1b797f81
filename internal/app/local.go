package app

import (
	"net"
	"net/http"
	"strings"

	"github.com/skeinhq/skein/internal/front"
)

// LocalOnly guards a handler on loopback that requires no credentials. Other machines cannot reach it, but web pages in a browser
// on this machine can:
//
//   - a page's host name can resolve to 127.0.0.1 (DNS rebinding), which makes the API part of the page's origin. So LocalOnly
//     refuses requests with a Host that is not loopback;
//   - a page can send writes to another origin without reading the response. So LocalOnly refuses writes, except from pages.
//
// Other clients (curl, an agent, the command line) are not affected.
func LocalOnly(h http.Handler, pages ...string) http.Handler {
	origins := http.NewCrossOriginProtection()
	for _, page := range pages {
		if err := origins.AddTrustedOrigin(page); err != nil {
			continue // not an origin, so not trusted
		}
	}
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		host := r.Host
		if name, _, err := net.SplitHostPort(host); err == nil {
			host = name
		}
		if !isLoopback(strings.ToLower(strings.Trim(host, "[]"))) {
			forbid(w,
				"there is no authentication here, so requests are taken for localhost only, under its own name: use 127.0.0.1, "+
					"[::1] or localhost as the host")
			return
		}
		if err := origins.Check(r); err != nil {
			forbid(w, "there is no authentication here, so web pages of another origin cannot write: "+err.Error())
			return
		}
		h.ServeHTTP(w, r)
	})
}

// forbid answers 403 without reading the rest of the body.
func forbid(w http.ResponseWriter, detail string) {
	w.Header().Set("Connection", "close")
	front.WriteProblem(w, front.Refuse(http.StatusForbidden, "", "%s", detail))
}
