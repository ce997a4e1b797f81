// Package web serves the page that Skein shows in a browser. Its source is TypeScript in src; make web builds it into dist,
// which is committed and embedded into the binary.
package web

import (
	"embed"
	"encoding/json"
	"io/fs"
	"maps"
	"net/http"
	"net/url"
	"path"
	"strings"
	"sync"
)

//go:embed dist
var dist embed.FS

// policy lets the page load only what Skein serves with it: nothing from other hosts, and no inline script or style. The page may
// call the API of its own host and that of ingest, if an origin is added.
const policy = "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; " +
	"form-action 'none'; base-uri 'none'; frame-ancestors 'none'; connect-src 'self'"

// Index is the path of the page, and AssetPrefix that of the files that it loads.
const (
	Index       = "/"
	AssetPrefix = "/assets/"
)

// Handler serves the page with these links to other tools. The page stops runs at the URL of ingest; "" is the page's own host. Handler
// answers GET and HEAD of Index, LinksPath and below AssetPrefix; the caller refuses other methods. The names of assets identify their
// contents, so caches may keep them for ever.
func Handler(links []Link, ingestURL string) http.Handler {
	body, err := json.Marshal(append([]Link{}, links...))
	if err != nil {
		panic(err) // strings always encode
	}
	all := handler{maps.Clone(files()), policy}
	all.files[LinksPath] = NewStatic(body, types[".json"], "no-cache")
	if u, err := url.Parse(ingestURL); err == nil && u.Host != "" {
		all.policy += " " + u.Scheme + "://" + u.Host
	}
	return all
}

// files returns the files of the page by their paths.
var files = sync.OnceValue(func() map[string]Static {
	all := map[string]Static{}
	err := fs.WalkDir(dist, "dist", func(name string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() {
			return err
		}
		body, err := fs.ReadFile(dist, name)
		at := strings.TrimPrefix(name, "dist")
		if at == "/index.html" {
			all[Index] = NewStatic(body, types[".html"], "no-cache")
		} else {
			all[at] = NewStatic(body, types[path.Ext(at)], "public, max-age=31536000, immutable")
		}
		return err
	})
	if err != nil {
		panic("reading the embedded page: " + err.Error()) // the page is embedded in this binary
	}
	return all
})

// types maps a file's extension to its media type, so that the machine's own list of types does not matter.
var types = map[string]string{
	".html": "text/html; charset=utf-8", ".js": "text/javascript; charset=utf-8", ".css": "text/css; charset=utf-8", ".svg": "image/svg+xml",
	".json": "application/json",
}

type handler struct {
	files  map[string]Static
	policy string
}

func (h handler) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	header := w.Header()
	f, ok := h.files[r.URL.Path]
	header.Set("X-Content-Type-Options", "nosniff")
	if !ok {
		http.Error(w, "this is no file of the page; load it again from "+Index, http.StatusNotFound)
		return
	}
	header.Set("Content-Security-Policy", h.policy)
	header.Set("Referrer-Policy", "no-referrer")
	header.Set("Cross-Origin-Opener-Policy", "same-origin")
	f.ServeHTTP(w, r)
}
