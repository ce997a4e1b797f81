package app

import (
	"net/http"
	"net/textproto"
	"net/url"
	"slices"
	"strings"

	"github.com/spf13/pflag"
)

// anyOrigin allows the pages of every origin.
const anyOrigin = "*"

// CORS allows web pages to call an HTTP API from a browser and read its responses. The zero value allows none. Pages still need the API
// key.
type CORS struct {
	// Origins are SCHEME://HOST[:PORT] each, or one "*".
	Origins []string
	// Headers are request headers that pages may send in addition to corsHeaders.
	Headers []string
}

// corsHeaders are the request headers of the API.
var corsHeaders = []string{
	"Authorization", "Skein-Authorization", "Content-Type", "Content-Encoding", "Accept", "Last-Event-ID", "Skein-Agent",
	"Traceparent", "Tracestate",
}

// exposed are the response headers that pages may read, besides those that CORS always allows.
const exposed = "Location, Retry-After, WWW-Authenticate"

// CORSFlag adds the flag of the origins.
func CORSFlag(f *pflag.FlagSet, origins *[]string) {
	f.StringSliceVar(origins, "cors-origin", nil,
		"allow web pages of `ORIGIN`, such as https://app.example, to call the API (repeatable); * allows every origin; by default none")
}

// PageLinkFlag adds the flag of the page's links to other tools; see web.ParseLinks.
func PageLinkFlag(f *pflag.FlagSet, links *[]string) {
	f.StringSliceVar(links, "page-link", nil,
		"a link from the page's runs to another tool, `NAME=URL` (repeatable); the https URL may hold {thread}, {run}, {trace}, {agent} and {label.KEY}")
}

// Check returns the error of the first invalid origin.
func (c CORS) Check() error {
	for _, o := range c.Origins {
		if o == anyOrigin {
			if len(c.Origins) > 1 {
				return Usagef("checking cors-origin: * already allows every origin: leave out the others, or *")
			}
			continue
		}
		u, err := url.Parse(o)
		if err != nil || (u.Scheme != "http" && u.Scheme != "https") || u.Host == "" || u.Scheme+"://"+u.Host != o || strings.ToLower(o) != o {
			return Usagef("checking cors-origin: %.200q is not an origin: write it as browsers do, such as https://app.example "+
				"or http://localhost:3000, without a path", o)
		}
	}
	return nil
}

// AllowPage allows the page that is served at a URL; "" is none.
func (c *CORS) AllowPage(address string) {
	u, err := url.Parse(strings.ToLower(address))
	if err != nil || address == "" || slices.Contains(c.Origins, anyOrigin) {
		return
	}
	host := u.Host
	if u.Port() == map[string]string{"http": "80", "https": "443"}[u.Scheme] { // browsers leave it out
		host = strings.TrimSuffix(host, ":"+u.Port())
	}
	c.Origins = append(c.Origins, u.Scheme+"://"+host)
}

// Handler adds the CORS headers to the responses of h and answers preflights. It never allows cookies, since only API keys authenticate.
func (c CORS) Handler(h http.Handler) http.Handler {
	if len(c.Origins) == 0 {
		return h
	}
	every := slices.Contains(c.Origins, anyOrigin)
	var allowed []string
	for _, name := range slices.Concat(corsHeaders, c.Headers) {
		if name = textproto.CanonicalMIMEHeaderKey(name); !slices.Contains(allowed, name) {
			allowed = append(allowed, name)
		}
	}
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		answer := w.Header()
		if !every {
			answer.Add("Vary", "Origin")
		}
		origin := r.Header.Get("Origin")
		if origin == "" || (!every && !slices.Contains(c.Origins, origin)) {
			h.ServeHTTP(w, r)
			return
		}
		if every {
			origin = anyOrigin
		}
		answer.Set("Access-Control-Allow-Origin", origin)
		if r.Method != http.MethodOptions || r.Header.Get("Access-Control-Request-Method") == "" {
			answer.Set("Access-Control-Expose-Headers", exposed)
			h.ServeHTTP(w, r)
			return
		}
		// This is a preflight, which carries no key.
		answer.Set("Access-Control-Allow-Methods", "GET, HEAD, POST, PUT, PATCH, DELETE")
		answer.Set("Access-Control-Allow-Headers", strings.Join(append(labelsOf(r), allowed...), ", "))
		answer.Set("Access-Control-Max-Age", "600")
		w.WriteHeader(http.StatusNoContent)
	})
}

// labelsOf returns the Skein-Label-KEY headers that a preflight asks for, since their names cannot be listed in advance.
func labelsOf(r *http.Request) []string {
	var labels []string
	for name := range strings.SplitSeq(r.Header.Get("Access-Control-Request-Headers"), ",") {
		name = strings.ToLower(strings.TrimSpace(name))
		if strings.HasPrefix(name, "skein-label-") && len(labels) < 16 {
			labels = append(labels, name)
		}
	}
	return labels
}
