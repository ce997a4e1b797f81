package front

import (
	"encoding/json"
	"fmt"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"sync"

	"github.com/skeinhq/skein/schemas"
)

// The stages that serve HTTP, by the tags of their operations in schemas/openapi.json.
const (
	StageIngest = "ingest"
	StageQuery  = "query"
)

// operation is one operation of the API's description, and the stage that serves it.
type operation struct {
	Route
	stage string
}

// operations returns the operations of both stages. Tests compare the description with the routes.
var operations = sync.OnceValue(func() (all []operation) {
	var doc struct {
		Paths map[string]map[string]struct{ Tags []string }
	}
	if err := json.Unmarshal(schemas.OpenAPI, &doc); err != nil { // impossible: it is embedded
		panic(err)
	}
	for path, methods := range doc.Paths {
		for method, o := range methods {
			all = append(all, operation{Route{Method: strings.ToUpper(method), Pattern: path}, o.Tags[0]})
		}
	}
	return all
})

// noRoute returns the problem for a request that no route of the stage takes, and sets its Allow header.
func (f *Front) noRoute(path, method string, h http.Header) *Problem {
	takes := func(rt Route) bool { return rt.Match(path) && slices.Contains(rt.Methods(), method) }
	other, at := StageQuery, ""
	if f.Stage == StageQuery {
		other = StageIngest
	}
	if f.OtherURL != "" {
		at = " at " + f.OtherURL
	}
	if slices.ContainsFunc(operations(), func(o operation) bool { return o.stage == other && f.Stage != "" && takes(o.Route) }) {
		p := Refuse(http.StatusMisdirectedRequest, ReasonOtherStage, "this is the %s stage: send this request to the %s stage%s", f.Stage,
			other, at)
		p.Members = map[string]any{"stage": f.Stage, "servedBy": other}
		if f.OtherURL != "" {
			p.Members["url"] = f.OtherURL
		}
		return p
	}
	for _, rt := range f.Routes {
		if rt.Match(path) {
			methods := strings.Join(rt.Methods(), ", ")
			h.Set("Allow", methods)
			return Refuse(http.StatusMethodNotAllowed, "", "this path takes %s", methods)
		}
	}
	if f.Stage != StageIngest {
		at = ""
	}
	return Refuse(http.StatusNotFound, ReasonNoPath, "there is no such path; GET /openapi.json of the query stage%s lists all", at)
}

// ValidateURL returns an error if a URL, which a setting names, is not that of a server. The URL may be "".
func ValidateURL(setting, text string) error {
	u, err := url.Parse(text)
	switch {
	case text == "" || err == nil && u.Host != "" && u.User == nil && (u.Scheme == "http" || u.Scheme == "https"):
		return nil
	case err == nil && u.User != nil: // answers name the URL
		return fmt.Errorf("%s: want https://HOST, without a user or password", setting)
	}
	return fmt.Errorf("%s %q: want https://HOST", setting, text)
}
