package query

import (
	"encoding/json"
	"fmt"
	"net/http"
	"net/url"
	"strings"
	"testing"

	"github.com/skeinhq/skein/pkg/record"
	"github.com/skeinhq/skein/pkg/search"
)

func TestSearch_PagesAndBindsItsCursor(t *testing.T) {
	f := newFixture(t)
	for i := range 5 {
		r := run("chat", fmt.Sprint("r", i), int64(10*i))
		r.Agent, r.Labels = "shop", map[string]string{"user": "ann", "n": fmt.Sprint(i % 2)}
		f.put(r)
	}
	f.put(run("other", "x", 99))
	const filter = "/v1/runs?agent=shop&label=user%3Dann&label=n"
	var page runsAnswer
	decode := func(path string) {
		t.Helper()
		page = runsAnswer{}
		r := f.get("acme", path)
		if err := json.Unmarshal([]byte(r.body), &page); err != nil || r.status != http.StatusOK {
			t.Fatalf("%s: %d %s", path, r.status, r.body)
		}
	}
	decode(filter + "&limit=3")
	if len(page.Runs) != 3 || page.Runs[0].RunID != "r4" || page.Next == "" || page.Complete || len(page.IndexedTo) != 1 {
		t.Fatalf("the first page: %+v", page)
	}
	next := page.Next
	f.put(func() *record.Run { // arrives between two pages, at their beginning
		r := run("chat", "r9", 90)
		r.Agent, r.Labels = "shop", map[string]string{"user": "ann", "n": "9"}
		return r
	}())
	decode(filter + "&limit=3&after=" + next)
	if len(page.Runs) != 2 || page.Runs[0].RunID != "r1" || page.Runs[1].RunID != "r0" || page.Next != "" || !page.Complete {
		t.Errorf("the second page: %+v", page)
	}
	for who, path := range map[string]string{
		"umbrella": filter + "&after=" + next, "acme": "/v1/runs?agent=shop&label=user%3Dann&after=" + next,
		"reader": filter + "&sort=tokens&after=" + next,
	} {
		if r := f.get(who, path); r.status != http.StatusBadRequest ||
			!strings.Contains(r.body, "after must be next of a page with the same filter") {
			t.Errorf("a cursor of another search as %s: %d %s", who, r.status, r.body)
		}
	}
	decode("/v1/runs?since=2020-01-01T00:00:00Z&words=nothing")
	if len(page.Runs) != 0 || page.Runs == nil || !page.Complete || page.Searched.From.IsZero() || !page.Searched.To.IsZero() {
		t.Errorf("nothing found: %+v", page)
	}
	if r := f.get("nobody", "/v1/runs"); r.status != http.StatusOK || !strings.Contains(r.body, `"runs":[]`) {
		t.Errorf("a tenant without runs: %d %s", r.status, r.body)
	}
}

func TestStatistics_AnswersByName(t *testing.T) {
	f := newFixture(t)
	for i, agent := range []string{"shop", "desk", "shop"} {
		r := run("chat", fmt.Sprint("r", i), int64(10*i))
		r.Agent = agent
		f.put(r)
	}
	r := f.get("acme", "/v1/statistics?by=agent,label:user&measure=runs,firstTokenP50")
	want := `{"by":["agent","label:user"],"measures":["runs","firstTokenP50"],"groups":[` +
		`{"by":{"agent":"desk","label:user":""},"values":{"firstTokenP50":null,"runs":1}},` +
		`{"by":{"agent":"shop","label:user":""},"values":{"firstTokenP50":null,"runs":2}}],"searched":{},"complete":true,"indexedTo":[`
	if r.status != http.StatusOK || !strings.HasPrefix(r.body, want) {
		t.Errorf("%d %s\nwant %s", r.status, r.body, want)
	}
	if r := f.get("acme", "/v1/statistics?by=agent&limit=1"); !strings.Contains(r.body, `"agent":"shop"`) || !strings.Contains(r.body, `"complete":false`) {
		t.Errorf("one of two groups: %s", r.body)
	}
	if r := f.get("acme", "/v1/statistics"); !strings.Contains(r.body, `"groups":[{"by":{},"values":{"runs":3}}]`) {
		t.Errorf("all runs: %s", r.body)
	}
}

func TestSearch_RefusesNonsenseAndTooMuch(t *testing.T) {
	f := newFixture(t)
	for i := range 3 {
		f.put(run("chat", fmt.Sprint("r", i), int64(10*i)))
	}
	for _, path := range []string{"/v1/runs", "/v1/statistics"} {
		for _, query := range []string{"since=soon", "status=x", "label=%3D", "words=" + url.QueryEscape(strings.Repeat("a ", 33)), "rewrote=x",
			"limit=0", "nonsense=1", "agent=a&agent=b"} {
			name, _, _ := strings.Cut(query, "=")
			p := f.get("acme", path+"?"+query)
			if p.status != http.StatusBadRequest || !strings.Contains(p.body, name) {
				t.Errorf("%s?%s: %d %s", path, query, p.status, p.body)
			}
		}
		// What looks like SQL or a pattern is a text.
		for _, hostile := range []string{`' OR 1=1 --`, `%`, `_`, `(a+)+$`, `\`, "{tenant:String}", "\x00"} {
			q := url.Values{"agent": {hostile}, "words": {hostile + "x"}, "label": {hostile + "=" + hostile}, "prefix": {hostile}}
			if r := f.get("acme", path+"?"+q.Encode()); r.status != http.StatusOK || strings.Contains(r.body, `"runId"`) {
				t.Errorf("%s of %q: %d %s", path, hostile, r.status, r.body)
			}
		}
	}
	f.service.cfg.Search = search.Bounds{Rows: 2, Time: f.service.cfg.Search.Time}
	for _, path := range []string{"/v1/runs", "/v1/statistics"} {
		r := f.get("acme", path)
		if detail := r.problem(t, http.StatusUnprocessableEntity); !strings.Contains(detail, "narrow it by prefix") || !strings.Contains(r.body, `"limit":"search"`) {
			t.Errorf("%s beyond its bounds: %s", path, r.body)
		}
	}
}
