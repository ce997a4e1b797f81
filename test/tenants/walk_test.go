package tenants

import (
	"net/http"
	"strings"
	"testing"

	"github.com/skeinhq/skein/internal/front"
	"github.com/skeinhq/skein/pkg/kafka/kafkatest"
	"github.com/skeinhq/skein/pkg/tenant"
	"github.com/skeinhq/skein/test/site"
)

// secretOfAcme stands in everything that acme has and nobody else may see.
const secretOfAcme = "only-acme-knows"

// path fills a route's pattern.
func (s *tenants) path(r front.Route, thread, run string) string {
	position := s.erasure
	if thread == "nowhere" {
		position = "0:1000000"
	}
	return strings.NewReplacer("{thread}", thread, "{run}", run, "{position}", position, "{agent}", agentName).Replace(r.Pattern)
}

func reads(r front.Route) bool { return r.Method == http.MethodGet }

// isLive reports whether a route answers with a stream that goes on, and waits for a thread or run that is not there.
func isLive(r front.Route) bool {
	return strings.HasSuffix(r.Pattern, "/stream") || r.Pattern == "/v1/connect"
}

// place is the thread and the runs that a route is tried with. What is written is of no run that is read.
func place(r front.Route) (thread string, runs []string) {
	if reads(r) || isLive(r) {
		return "t1", []string{"r1", "r2"}
	}
	return "w", []string{"w"}
}

// quiet checks that an answer holds nothing of acme.
func quiet(t *testing.T, what string, r reply) {
	t.Helper()
	if strings.Contains(r.String(), secretOfAcme) {
		t.Errorf("%s: the answer holds what is acme's: %s", what, r)
	}
}

// refused checks an answer that says no.
func refused(t *testing.T, what string, r reply, status int) {
	t.Helper()
	quiet(t, what, r)
	if r.status != status || r.header.Get("Content-Type") != "application/problem+json" {
		t.Errorf("%s: the answer is %s, want a problem of status %d", what, r, status)
	}
	if challenged := r.header.Get("WWW-Authenticate") == tenant.Challenge; challenged != (status == http.StatusUnauthorized) {
		t.Errorf("%s: WWW-Authenticate is %q with status %d", what, r.header.Get("WWW-Authenticate"), status)
	}
}

// Every route of the stages' own tables, so that a new one is walked without anybody's thinking of it.
// Two tenants have threads and runs of the same ids; a third has nothing.
func TestTenants_WalkOfEveryRoute(t *testing.T) {
	t.Run("kfake and SQLite", func(t *testing.T) {
		t.Parallel()
		k, st := fakeEnds(t)
		walkEveryRoute(t, startSite(t, k, st))
	})
	t.Run("real Kafka and real ClickHouse", func(t *testing.T) {
		t.Parallel()
		k, st := realEnds(t)
		walkEveryRoute(t, startSite(t, k, st))
	})
}

func walkEveryRoute(t *testing.T, s *tenants) {
	api := s.stages[1]
	s.publish("acme", "t1", "r1", secretOfAcme, true)
	s.publish("acme", "t1", "r2", secretOfAcme, false)
	s.publish("acme", secretOfAcme, "r1", secretOfAcme, true)
	s.publish("umbrella", "t1", "r1", "what umbrella says", true)
	titled := s.as("acme")
	titled.Set("Content-Type", "application/json")
	s.send(http.MethodPatch, s.stages[0].url+"/v1/threads/t1", titled, strings.NewReader(`{"title":"titled `+secretOfAcme+`"}`))
	site.Eventually(s.t, "acme's thread has a title", func() (string, bool) {
		r := s.call(api, http.MethodGet, "/v1/threads", s.as("acme"))
		return r.String(), strings.Contains(r.body, "titled "+secretOfAcme)
	})
	for who, paths := range map[string][]string{
		"acme":     {"/v1/threads/t1/runs/r1", "/v1/threads/t1/runs/r2", "/v1/threads/" + secretOfAcme + "/runs/r1"},
		"umbrella": {"/v1/threads/t1/runs/r1"},
	} {
		for _, p := range paths {
			site.Eventually(s.t, who+" finds "+p, func() (string, bool) {
				r := s.call(api, http.MethodGet, p, s.as(who))
				return r.String(), r.status == http.StatusOK && (strings.HasSuffix(p, "r2") || strings.Contains(r.body, "finished"))
			})
		}
	}
	// What comes behind a run's end becomes a dead letter.
	late := s.as("acme")
	late.Set("Content-Type", "application/x-ndjson")
	s.send(http.MethodPost, s.stages[0].url+"/v1/threads/"+secretOfAcme+"/runs/r1/events", late, strings.NewReader(`{"type":"RAW","event":"late"}`))
	site.Eventually(s.t, "acme finds its dead letter", func() (string, bool) {
		r := s.call(api, http.MethodGet, "/v1/dead-letters", s.as("acme"))
		return r.String(), r.status == http.StatusOK && strings.Contains(r.body, secretOfAcme)
	})
	history := func() string {
		t.Helper()
		var all strings.Builder
		for _, run := range []string{"r1", "r2"} {
			r := s.call(api, http.MethodGet, "/v1/threads/t1/runs/"+run+"/history", s.as("acme"))
			if r.status != http.StatusOK || !strings.Contains(r.body, secretOfAcme) {
				t.Fatalf("acme cannot read its own: %s", r)
			}
			// How far the partition is indexed moves with every tenant's events.
			said, _, _ := strings.Cut(r.body, `"indexedTo"`)
			all.WriteString(said)
		}
		return all.String()
	}
	s.endedKeys()
	before := history()
	s.erasure = s.erase("acme", secretOfAcme)

	walked := map[tenant.Scope]int{}
	t.Run("routes", func(t *testing.T) {
		for _, st := range s.stages {
			for _, r := range st.routes {
				walked[r.Scope]++
				t.Run(st.name+" "+r.Method+" "+r.Pattern, func(t *testing.T) {
					if isLive(r) || strings.HasSuffix(r.Pattern, "/cancel") { // they wait for what never comes
						t.Parallel()
					}
					s := *s
					s.t = t
					if r.Scope == "" {
						got := s.call(st, r.Method, s.path(r, "t1", "r1"), nil)
						quiet(t, "nobody", got)
						if got.status != http.StatusOK || strings.Contains(r.Pattern, "{") {
							t.Errorf("a route for everybody answers %d", got.status)
						}
						return
					}
					s.walk(st, r)
				})
			}
		}
	})
	if walked[tenant.ScopePublish] < 2 || walked[tenant.ScopeRead] < 6 || walked[tenant.ScopeErase] < 2 {
		t.Errorf("walked %v", walked)
	}
	// A stranger's thread of the same id is erased, and acme's is not.
	s.erase("stranger", "t1")
	if after := history(); after != before {
		t.Errorf("somebody else has changed acme's history from\n%s\nto\n%s", before, after)
	}
}

// erase erases a thread, waits until that is done, and returns where it was asked for.
func (s *tenants) erase(who, thread string) (position string) {
	s.t.Helper()
	r := s.call(s.stages[0], http.MethodDelete, "/v1/threads/"+thread, s.as(who))
	href := r.header.Get("Location")
	if r.status != http.StatusAccepted || href == "" {
		s.t.Fatalf("erasing: %s", r)
	}
	site.Eventually(s.t, "the erasure is done", func() (string, bool) {
		r := s.call(s.stages[1], http.MethodGet, href, s.as(who))
		return r.String(), strings.Contains(r.body, `"state":"done"`)
	})
	return strings.TrimPrefix(href, "/v1/erasures/")
}

// walk tries one route as everybody.
func (s *tenants) walk(st stage, r front.Route) {
	t := s.t
	methods := []string{r.Method}
	if reads(r) {
		methods = append(methods, http.MethodHead)
	}
	thread, runs := place(r)
	for _, method := range methods {
		for _, run := range runs {
			p := s.path(r, thread, run)
			for name, who := range map[string]http.Header{
				"nobody":                   nil,
				"nobody, naming a tenant":  {"Tenant": {"acme"}, "X-Tenant": {"acme"}},
				"an unknown key":           {"Authorization": {"Bearer " + tenant.NewKey()}},
				"a key that was taken out": s.as("taken out"),
				"a key that has expired":   s.as("expired"),
				"no key":                   {"Authorization": {"Bearer acme"}},
				"a user and password":      {"Authorization": {"Basic YWNtZTphY21l"}},
				"another name for it":      {"Skein-Authorization": {"Bearer acme"}, "Authorization": {"Bearer " + s.secrets["acme"]}},
				"two keys":                 {"Authorization": {"Bearer " + s.secrets["stranger"], "Bearer " + s.secrets["acme"]}},
			} {
				refused(t, method+" as "+name, s.call(st, method, p, who), http.StatusUnauthorized)
			}
			refused(t, method+" without the scope", s.call(st, method, p, s.as("acme without "+string(r.Scope))), http.StatusForbidden)
			if reads(r) && !isLive(r) {
				s.readAsOthers(st, r, method, thread, run)
			}
		}
	}
	switch {
	case isLive(r):
		s.streamAsOthers(st, r)
		return
	case !reads(r):
		s.writeAsOthers(st, r)
	}
	for _, run := range runs {
		own := s.call(st, r.Method, s.path(r, thread, run), s.as("acme"))
		// An open run cannot be exported: to say so is to have found it.
		if own.status/100 != 2 && own.status != http.StatusConflict {
			t.Errorf("acme itself gets %s: what others were refused proves nothing", own)
		}
	}
}

// readAsOthers reads what is acme's with keys of other tenants.
func (s *tenants) readAsOthers(st stage, r front.Route, method, thread, run string) {
	t := s.t
	got := s.call(st, method, s.path(r, thread, run), s.as("stranger"))
	if !strings.Contains(r.Pattern, "{") {
		quiet(t, method+" as a stranger", got)
		if got.status != http.StatusOK {
			t.Errorf("a list is %s", got)
		}
	} else {
		refused(t, method+" as a stranger", got, http.StatusNotFound)
		// Whether there is such a thread elsewhere cannot be told from the answer.
		nowhere := s.call(st, method, s.path(r, "nowhere", "nothing"), s.as("stranger"))
		if nowhere.String() != got.String() {
			t.Errorf("what is acme's is answered with %s, what is nowhere with %s", got, nowhere)
		}
		// Nor does a path lead there that looks like acme's key.
		for _, way := range []string{"acme%2F" + thread, "..%2Facme%2F" + thread, thread + "%00", "acme%252F" + thread} {
			got := s.call(st, method, s.path(r, way, run), s.as("stranger"))
			quiet(t, way, got)
			if got.status != http.StatusNotFound && got.status != http.StatusBadRequest {
				t.Errorf("the path %s is answered with %s", way, got)
			}
		}
		refused(t, method+" of a thread with a secret id", s.call(st, method, s.path(r, "only-acme-know", run), s.as("stranger")),
			http.StatusNotFound)
	}
	for _, parameter := range []string{"tenant=acme", "tenantId=acme"} {
		refused(t, method+" with ?"+parameter, s.call(st, method, s.path(r, thread, run)+"?"+parameter, s.as("stranger")), http.StatusBadRequest)
	}
	naming := s.as("stranger")
	naming.Set("Tenant", "acme")
	naming.Set("X-Tenant", "acme")
	quiet(t, method+" naming a tenant", s.call(st, method, s.path(r, thread, run), naming))

	// umbrella has a thread t1 and a run r1 of its own, and has erased nothing.
	got = s.call(st, method, s.path(r, thread, run), s.as("umbrella"))
	quiet(t, method+" as umbrella", got)
	want := http.StatusOK
	if run != "r1" && strings.Contains(r.Pattern, "{run}") || strings.Contains(r.Pattern, "{position}") {
		want = http.StatusNotFound
	}
	if got.status != want {
		t.Errorf("umbrella's own is answered with %s, want %d", got, want)
	}
}

// writeAsOthers writes to a thread id with keys of other tenants: the records are theirs.
func (s *tenants) writeAsOthers(st stage, r front.Route) {
	t := s.t
	count := func() map[string]int {
		keys := map[string]int{}
		for _, rec := range kafkatest.Consume(t, s.kafka, s.kafka.Topics().Events) {
			keys[string(rec.Key)]++
		}
		return keys
	}
	before := count()
	for _, who := range []string{"stranger", "umbrella"} {
		for _, p := range []string{s.path(r, "w", "w"), s.path(r, "w", "w") + "?tenant=acme", s.path(r, "acme%2Fw", "w")} {
			header := s.as(who)
			header.Set("Tenant", "acme")
			quiet(t, who, s.call(st, r.Method, p, header))
		}
	}
	after := count()
	if after["stranger/w"] == before["stranger/w"] {
		t.Error("a stranger cannot write to its own threads: what was refused proves nothing")
	}
	for key, n := range after {
		if strings.HasPrefix(key, "acme/") && n != before[key] {
			t.Errorf("%d records of others are at %s", n-before[key], key)
		}
	}
}
