package web

import (
	"fmt"
	"net/url"
	"regexp"
	"strings"
)

// LinksPath is the path from which the page reads its links.
const LinksPath = "/links.json"

// Link leads from a run to another tool. {thread}, {run}, {trace}, {agent} and {label.KEY} in its URL stand for values of the run. A run
// that lacks one of these values does not show the link.
type Link struct {
	Name string `json:"name"`
	URL  string `json:"url"`
}

var (
	placeholder = regexp.MustCompile(`\{[^{}]*\}`)
	knownPlace  = regexp.MustCompile(`^\{(thread|run|trace|agent|label\.[^{}]+)\}$`)
)

// ParseLinks reads NAME=URL pairs. Only https is allowed, and the host must not depend on a run, as agents write its ids and labels.
func ParseLinks(pairs []string) ([]Link, error) {
	links := []Link{}
	for _, pair := range pairs {
		name, text, _ := strings.Cut(pair, "=")
		bad := func(why string) ([]Link, error) {
			return nil, fmt.Errorf("checking page-link: %q: %s; write NAME=URL, such as traces=https://traces.example/trace/{trace}", pair, why)
		}
		if name = strings.TrimSpace(name); name == "" || text == "" {
			return bad("it has no name or no URL")
		}
		for _, p := range placeholder.FindAllString(text, -1) {
			if !knownPlace.MatchString(p) {
				return bad(p + " is not {thread}, {run}, {trace}, {agent} or {label.KEY}")
			}
		}
		u, err := url.Parse(placeholder.ReplaceAllString(text, "x"))
		if err != nil || u.Scheme != "https" || u.Host == "" || u.User != nil {
			return bad("it is not an https URL without credentials")
		}
		if host, _, _ := strings.Cut(strings.TrimPrefix(text, "https://"), "/"); !strings.HasPrefix(text, "https://") ||
			strings.Contains(host, "{") {
			return bad("its host must be fixed")
		}
		links = append(links, Link{name, text})
	}
	return links, nil
}
