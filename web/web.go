// Package web is the page: what a person sees who opens Skein in a browser. Its source is TypeScript in src; make web builds
// it into dist, which is committed and goes into the binary.
package web

import (
	"embed"
	"encoding/json"
	"io/fs"
	"net/http"
	"path"
)

//go:embed dist
var dist embed.FS

// policy lets the page load what is served beside it, and nothing else: no other host, no inline script or style.
const policy = "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; connect-src 'self'; " +
	"form-action 'none'; base-uri 'none'; frame-ancestors 'none'"

// Index is the path of the page, AssetPrefix that of what it loads.
const (
	Index       = "/"
	AssetPrefix = "/assets/"
)

// Handler serves the page with these links to other tools. It answers GET and HEAD of Index, LinksPath and below AssetPrefix; the
// names of assets say what is in them, so that they may be cached for good.
func Handler(links []Link) http.Handler {
	files := make(handler)
	root, err := fs.Sub(dist, "dist")
	if err == nil {
		err = fs.WalkDir(root, ".", func(name string, d fs.DirEntry, err error) error {
			if err != nil || d.IsDir() {
				return err
			}
			body, err := fs.ReadFile(root, name)
			if err != nil {
				return err
			}
			if name == "index.html" {
				files[Index] = NewStatic(body, types[".html"], "no-cache")
			} else {
				files["/"+name] = NewStatic(body, types[path.Ext(name)], "public, max-age=31536000, immutable")
			}
			return nil
		})
	}
	if err == nil {
		var body []byte
		if body, err = json.Marshal(append([]Link{}, links...)); err == nil {
			files[LinksPath] = NewStatic(body, types[".json"], "no-cache")
		}
	}
	if err != nil {
		panic("reading the embedded page: " + err.Error()) // it is a part of this binary
	}
	return files
}

// types are those of the files; what the machine's own list says does not count.
var types = map[string]string{
	".html": "text/html; charset=utf-8", ".js": "text/javascript; charset=utf-8", ".css": "text/css; charset=utf-8", ".svg": "image/svg+xml",
	".json": "application/json",
}

type handler map[string]Static

func (h handler) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	header := w.Header()
	if r.Method != http.MethodGet && r.Method != http.MethodHead {
		header.Set("Allow", "GET, HEAD")
		http.Error(w, "the page is read with GET", http.StatusMethodNotAllowed)
		return
	}
	f, ok := h[r.URL.Path]
	header.Set("X-Content-Type-Options", "nosniff")
	if !ok {
		http.Error(w, "this is no file of the page; load it again from "+Index, http.StatusNotFound)
		return
	}
	header.Set("Content-Security-Policy", policy)
	header.Set("Referrer-Policy", "no-referrer")
	header.Set("Cross-Origin-Opener-Policy", "same-origin")
	f.ServeHTTP(w, r)
}
