package query

import (
	"net/http"
	"net/url"
	"strings"

	"github.com/skeinhq/skein/internal/problem"
)

// router finds the handler of a path by its escaped segments. http.ServeMux will not do: to it a
// segment %2F, the id "/", is the end of a subtree's path; it redirects "." and ".." to another
// thread or run; and it refuses in plain text.
type router []routerEntry

type routerEntry struct {
	segments []string // "{name}" takes any
	handler  http.Handler
}

func (rt *router) add(pattern string, h http.Handler) {
	*rt = append(*rt, routerEntry{strings.Split(pattern, "/"), h})
}

// ServeHTTP implements http.Handler. The values of a pattern are given as r.PathValue, unescaped.
func (rt router) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	segments := strings.Split(r.URL.EscapedPath(), "/")
	for _, e := range rt {
		if !e.match(segments) {
			continue
		}
		for i, name := range e.segments {
			if !strings.HasPrefix(name, "{") {
				continue
			}
			value, err := url.PathUnescape(segments[i])
			if err != nil { // net/http has parsed it before: it cannot be
				problem.Write(w, problem.Problem{Status: http.StatusBadRequest, Detail: "the path is not escaped: " + err.Error()})
				return
			}
			r.SetPathValue(strings.Trim(name, "{}"), value)
		}
		e.handler.ServeHTTP(w, r)
		return
	}
	problem.Write(w, problem.Problem{Status: http.StatusNotFound, Detail: "there is no such path; GET /openapi.json lists all"})
}

func (e routerEntry) match(segments []string) bool {
	if len(segments) != len(e.segments) {
		return false
	}
	for i, name := range e.segments {
		if !strings.HasPrefix(name, "{") && name != segments[i] {
			return false
		}
	}
	return true
}
