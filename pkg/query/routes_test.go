package query

import (
	"compress/gzip"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/klauspost/compress/zstd"
	"github.com/prometheus/client_golang/prometheus/testutil"

	"github.com/skeinhq/skein/internal/front"
	"github.com/skeinhq/skein/pkg/client"
	"github.com/skeinhq/skein/pkg/quota"
	"github.com/skeinhq/skein/pkg/record"
	"github.com/skeinhq/skein/pkg/store"
)

// pathOf fills a route's pattern. Where a filled fixture has its erasure is the position.
func pathOf(pattern, thread, run string) string {
	return strings.NewReplacer("{thread}", url.PathEscape(thread), "{run}", url.PathEscape(run), "{position}", "3:0").Replace(pattern)
}

// readRoutes are the routes that are no streams.
func readRoutes() []front.Route {
	return slices.DeleteFunc(new(Service).routes(), func(r front.Route) bool { return r.Kind == quota.Streams })
}

func TestHandler_KeepsTenantsApart(t *testing.T) {
	f := newRawFixture(t)
	f.add("acme", "chat", record.Headers{Kind: record.KindErase, Seq: -1}, "{}") // the erasure that pathOf names
	secret := `{"type":"TEXT_MESSAGE_CHUNK","messageId":%q,"role":"assistant","delta":"a secret of acme"}`
	root := f.indexed("root", "", f.event("root", fmt.Sprintf(started, "root")), f.event("root", fmt.Sprintf(secret, "m1")),
		f.event("root", fmt.Sprintf(finished, "root")))
	f.indexedFor("acme", "chat", "open", "", func(rec *record.Run) {
		rec.ParentRunID, rec.ParentBy, rec.Base, rec.BranchID, rec.RootRunID, rec.Depth = "root", record.ParentExplicit, "root", root.BranchID,
			root.RootRunID, 1
	}, f.event("open", fmt.Sprintf(started, "open")), f.event("open", fmt.Sprintf(secret, "m2")))
	theirs := run("theirs", "root", 3)
	theirs.Tenant = "acme2"
	f.put(theirs)
	for _, rt := range readRoutes() {
		for _, runID := range []string{"root", "open"} {
			for _, form := range []string{"application/json", "text/event-stream"} {
				path := pathOf(rt.Pattern, "chat", runID)
				want := http.StatusOK
				if runID == "open" && strings.HasSuffix(rt.Pattern, "/export") || rt.Pattern == "/v1/threads/{thread}/export" {
					want = http.StatusConflict // nothing is exported before its end
				}
				if r := f.get("acme", path, "Accept", form); r.status != want {
					t.Errorf("%s for the owner: %d %s", path, r.status, r.body)
				}
				others := []string{"acme2", "acm", "ACME", "acme/chat", "%"}
				if form != "application/json" || runID == "open" {
					others = others[:1]
				}
				for _, other := range others {
					r := f.get(other, path, "Accept", form)
					if strings.Contains(r.body, "secret") || strings.Contains(r.body, `"chat"`) {
						t.Errorf("%s for %s gives away: %s", path, other, r.body)
					}
					if !strings.Contains(rt.Pattern, "{") {
						continue // a list of their own
					}
					r.problem(t, http.StatusNotFound)
					if runID == "root" && other == "acm" && slices.Contains(rt.Params, "atLeast") {
						f.get(other, path+"?atLeast=3:10", "Accept", form).problem(t, http.StatusTooEarly)
					}
				}
			}
		}
	}
}

func TestHandler_TakesAnyID(t *testing.T) {
	f := newRawFixture(t)
	for n, id := range []string{
		"a/b//c", "/", "..a", "a?b#c", "100%", "%2F", "a b+c", "nul\x00after", "👩‍👩‍👧 é", "\"'<>", strings.Repeat("x", 512),
		strings.Repeat("🦊", 128), "a\\b", ";a=b", ":", "...",
	} {
		event := func(format string) int64 {
			return f.add("acme", id, record.Headers{Kind: record.KindEvent, RunID: id, Seq: -1}, string(jsonf(format, id, id)))
		}
		at := []int64{event(`{"type":"RUN_STARTED","threadId":%s,"runId":%s}`), event(`{"type":"RUN_FINISHED","threadId":%s,"runId":%s}`)}
		f.indexedFor("acme", id, id, "", nil, at...)
		for i, rt := range readRoutes()[1:] {
			path := pathOf(rt.Pattern, id, id)
			if !strings.Contains(rt.Pattern, "{thread}") || (n+i)%3 != 0 { // each id has a third of the routes, which differ in nothing here
				continue
			}
			r := f.get("acme", path)
			if strings.HasSuffix(rt.Pattern, "/events") { // lines as they were published
				if r.status != http.StatusOK || r.body != f.lines(at...) {
					t.Errorf("%s: %d %s", path, r.status, r.body)
				}
				continue
			}
			var body struct {
				ThreadID    string `json:"threadId"`
				ThreadIDRef string `json:"thread_id_ref"` // of an artifact
			}
			if err := json.Unmarshal([]byte(r.body), &body); err != nil || r.status != 200 || body.ThreadID+body.ThreadIDRef != id {
				t.Errorf("%s: %d %s", path, r.status, r.body)
			}
		}
	}
	for _, path := range []string{
		"/v1/threads/.", "/v1/threads/..", "/v1/threads/%2E", "/v1/threads/%2e%2E", "/v1/threads/", "/v1/threads//runs/r",
		"/v1/threads/t/runs/..", "/v1/threads/t/runs/", "/v1/threads/t/runs/%2e%2e/history", "/v1/threads/t/runs//history",
		"/v1/threads/" + strings.Repeat("x", 513), "/v1/threads/%ff", "/v1/threads/t/runs/" + strings.Repeat("%F0%9F%A6%8A", 129),
	} {
		f.get("acme", path).problem(t, http.StatusBadRequest)
	}
}

func TestThreads_ArePagedAndFiltered(t *testing.T) {
	f := newFixture(t)
	for i := range 7 {
		r := run(fmt.Sprint("thread/", i), "run", int64(i+1))
		if i%2 == 1 {
			r.Status = record.StatusError
		}
		f.put(r)
	}
	type page struct {
		Threads   []store.Thread `json:"threads"`
		Next      string         `json:"next"`
		IndexedTo []string       `json:"indexedTo"`
	}
	walk := func(query url.Values) string {
		var ids []string
		for {
			var p page
			f.json("/v1/threads?"+query.Encode(), &p)
			for _, th := range p.Threads {
				ids = append(ids, strings.TrimPrefix(th.ThreadID, "thread/"))
			}
			if !slices.Equal(p.IndexedTo, []string{"3:79"}) {
				t.Errorf("indexed to %v", p.IndexedTo)
			}
			if p.Next == "" {
				return strings.Join(ids, " ")
			}
			query.Set("after", p.Next)
		}
	}
	for _, c := range []struct{ query, want string }{
		{"", "0 1 2 3 4 5 6"},
		{"limit=2", "0 1 2 3 4 5 6"},
		{"status=error&limit=1", "1 3 5"},
		{"prefix=thread/3", "3"},
		{"prefix=none", ""},
		{"since=2026-09-17T12:06:00Z", "5 6"},
		{"since=2026-09-17T14:06:00%2B02:00&limit=1", "5 6"},
	} {
		query, err := url.ParseQuery(c.query)
		if err != nil {
			t.Fatal(err)
		}
		if got := walk(query); got != c.want {
			t.Errorf("%s: %q, want %q", c.query, got, c.want)
		}
	}
	for _, query := range []string{"limit=0", "limit=1001"} {
		f.get("acme", "/v1/threads?"+query).problem(t, http.StatusBadRequest)
	}
	if r := f.get("nobody", "/v1/threads"); r.body != `{"threads":[],"indexedTo":[]}`+"\n" {
		t.Errorf("a tenant without threads: %s", r.body)
	}
}

// The list's row is made by the store, the summary here: they say the same.
func TestThread_SummaryIsThatOfTheList(t *testing.T) {
	f := newFixture(t)
	conversation(f)
	late := run("chat", "late", 5)
	late.StartedAt = epoch.Add(-time.Hour)
	end := epoch.Add(9 * time.Hour)
	late.EndedAt = &end
	f.put(late)
	open := opened(run("chat", "open", 6, msg("m", "user", "x")))
	open.Agent = "shop"
	f.put(open)
	var list struct {
		Threads []json.RawMessage `json:"threads"`
	}
	f.json("/v1/threads", &list)
	row := strings.TrimSuffix(string(list.Threads[0]), "}")
	got := f.get("acme", "/v1/threads/chat").body
	if want := row + `,"running":[{"runId":"open","branchId":"open","agent":"shop","startedAt":"2026-09-17T12:06:00Z"}],"indexedTo":"3:69"}` + "\n"; got != want {
		t.Errorf("got  %s\nwant %s", got, want)
	}
}

func TestLineage_InEveryFormat(t *testing.T) {
	f := newFixture(t)
	conversation(f)
	var l struct {
		Runs []struct {
			RunID       string `json:"runId"`
			ParentRunID string `json:"parentRunId"`
			First       string `json:"first"`
			Inferred    bool   `json:"parentInferred"`
		} `json:"runs"`
		Branches []struct {
			BranchID  string   `json:"branchId"`
			ForkRunID string   `json:"forkRunId"`
			Runs      []string `json:"runs"`
		} `json:"branches"`
		Tips      []string `json:"tips"`
		TipRunID  string   `json:"tipRunId"`
		IndexedTo string   `json:"indexedTo"`
	}
	r := f.json("/v1/threads/chat/lineage", &l)
	got := strings.Join(strings.Fields(fmt.Sprintln(l.Runs, l.Branches, l.Tips, l.TipRunID, l.IndexedTo)), " ")
	want := "[{root  3:10 false} {left root 3:20 false} {leaf left 3:30 true} {right root 3:40 true}] " +
		"[{root  [root left leaf]} {right root [right]}] [leaf right] right 3:49"
	if got != strings.Join(strings.Fields(want), " ") {
		t.Errorf("got  %s\nwant %s\n%s", got, want, r.body)
	}
	for format, c := range map[string]struct{ contentType, part string }{
		"json":    {"application/json", `"picture":{"rows":[`},
		"text":    {"text/plain; charset=utf-8", "leaf"},
		"mermaid": {"text/vnd.mermaid; charset=utf-8", "gitGraph"},
	} {
		r := f.get("acme", "/v1/threads/chat/lineage?format="+format)
		if r.status != 200 || r.header.Get("Content-Type") != c.contentType || !strings.Contains(r.body, c.part) ||
			r.header.Get("Skein-Indexed-To") != "3:49" {
			t.Errorf("%s: %d %v\n%s", format, r.status, r.header, r.body)
		}
	}
	for _, line := range strings.Split(f.get("acme", "/v1/threads/chat/lineage?format=text&width=20").body, "\n") {
		if n := len([]rune(line)); n > 20 {
			t.Errorf("a line of %d columns: %q", n, line)
		}
	}
	f.get("acme", "/v1/threads/chat/lineage?format=text&width=3").problem(t, http.StatusBadRequest)
}

// A part of a thread is a thread of its own: what it is based on is said, and is no fault of it.
func TestLineage_OfAPart(t *testing.T) {
	f := newFixture(t)
	conversation(f)
	edited := run("chat", "alone", 5)
	edited.Rewrote = []string{"summarised", "edited"}
	f.put(edited)
	theirs := run("chat", "root", 6)
	theirs.Tenant = "umbrella"
	f.put(theirs)
	for query, want := range map[string]string{
		"ancestorsOf=leaf":   "root left leaf; root:root,left,leaf; leaf",
		"ancestorsOf=left":   "root left; root:root,left; ",
		"ancestorsOf=root":   "root; root:root; ",
		"descendantsOf=root": "left leaf right; root:left,leaf right:right; leaf right",
		"descendantsOf=leaf": "; ; ",
		"siblingsOf=left":    "right; right:right; right",
		"siblingsOf=alone":   "root; root:root; ",
	} {
		var l lineageAnswer
		r := f.json("/v1/threads/chat/lineage?"+query, &l)
		described(t, "Lineage", r.body)
		var runs, branches []string
		for _, r := range l.Runs {
			runs = append(runs, r.RunID)
		}
		for _, b := range l.Branches {
			branches = append(branches, b.ID+":"+strings.Join(b.Runs, ","))
		}
		got := strings.Join(runs, " ") + "; " + strings.Join(branches, " ") + "; " + strings.Join(l.Tips, " ")
		if tip := l.TipRunID; tip != "alone" {
			t.Errorf("%s: the thread's tip is %q", query, tip)
		}
		if got != want || len(l.Picture.Rows) != len(l.Runs) || strings.Contains(r.body, "not here") {
			t.Errorf("%s: %s, want %s\n%s", query, got, want, r.body)
		}
	}
	if text := f.get("acme", "/v1/threads/chat/lineage?descendantsOf=root&format=text").body; !strings.Contains(text, "leaf") ||
		strings.Contains(text, "root") {
		t.Errorf("the picture: %s", text)
	}
	if text := f.get("acme", "/v1/threads/chat/lineage?format=text").body; !strings.Contains(text, "[history summarised, history edited]") {
		t.Errorf("the picture: %s", text)
	}
	for query, status := range map[string]int{
		"ancestorsOf=nobody": 404, "ancestorsOf=": 400, "siblingsOf=..": 400, "ancestorsOf=leaf&siblingsOf=left": 400,
	} {
		f.get("acme", "/v1/threads/chat/lineage?"+query).problem(t, status)
	}
	for _, query := range []string{"ancestorsOf=leaf", "descendantsOf=left", "siblingsOf=left"} {
		f.get("umbrella", "/v1/threads/chat/lineage?"+query).problem(t, http.StatusNotFound) // acme's run
	}
	if r := f.get("umbrella", "/v1/threads/chat/lineage?descendantsOf=root"); r.status != 200 || !strings.Contains(r.body, `"runs":[]`) {
		t.Errorf("umbrella's own run: %d %s", r.status, r.body)
	}
}

func TestResolution_SaysWhatTheAnswerSays(t *testing.T) {
	for want, answer := range map[string][2]string{
		"approved":         {"resolved", `{"approved":true,"by":"ann"}`},
		"declined":         {"resolved", `{"approved":false}`},
		"cancelled":        {"cancelled", `{"approved":true}`},
		"the blue one":     {"resolved", `"the\n blue one"`},
		`{"city":"Paris"}`: {"resolved", `{"city":"Paris"}`},
		"resolved":         {"resolved", ""},
	} {
		if got := resolution(answer[0], json.RawMessage(answer[1])); got != want {
			t.Errorf("%q says %q, want %q", answer, got, want)
		}
	}
}

// A lineage says what runs are about where that is asked for, and shows the branches of a fan alone.
func TestLineage_WordsAndBundles(t *testing.T) {
	f := newFixture(t)
	ask := run("chat", "ask", 1, msg("u", "user", "  how\n are you "+strings.Repeat("x", 300)), msg("a", "assistant", "well"))
	took := int64(1500)
	ask.Stats.Duration = &took
	f.put(ask)
	for n, id := range []string{"next", "s1", "s2", "s3", "s4", "s5"} {
		side := run("chat", id, int64(10+10*n), msg("a-"+id, "assistant", "again"))
		side.ParentRunID, side.ParentBy, side.RootRunID, side.Depth = "ask", record.ParentExplicit, "ask", 1
		if id == "next" {
			side.BranchID = "ask"
		}
		f.put(side)
	}
	last := run("chat", "last", 90)
	last.ParentRunID, last.ParentBy, last.BranchID, last.RootRunID, last.Depth = "next", record.ParentExplicit, "ask", "ask", 2
	last.Resumes = []json.RawMessage{json.RawMessage(`{"interruptId":"i","status":"cancelled"}`)}
	f.put(last)

	var l lineageAnswer
	f.json("/v1/threads/chat/lineage?words=true", &l)
	wordsIn := func(r client.LineageRun) words { return words{r.Question, r.Answer, r.Resumed, r.Resolution} }
	want := words{Question: "how are you " + strings.Repeat("x", maxWords-len("how are you ")) + "…", Answer: "well"}
	if got := l.Runs[0]; wordsIn(got) != want || got.DurationMs == nil || *got.DurationMs != took || got.Row != 0 {
		t.Errorf("the first run says %+v", got)
	}
	want = words{Resumed: "cancelled", Resolution: "cancelled"}
	if got := l.Runs[len(l.Runs)-1]; wordsIn(got) != want || got.Row != len(l.Picture.Rows)-1 {
		t.Errorf("the last run says %+v", got)
	}
	if len(l.Picture.Rows) != 4 || l.Picture.Rows[2].Kind != "fan" || l.Runs[4].Row != 2 {
		t.Errorf("the picture is %+v", l.Picture.Rows)
	}
	l = lineageAnswer{}
	f.json("/v1/threads/chat/lineage?bundle=s3", &l)
	if len(l.Runs) != 5 || l.Picture.Lanes != 1 || wordsIn(l.Runs[0]) != (words{}) {
		t.Errorf("the fan alone has %d runs in %d lanes: %+v", len(l.Runs), l.Picture.Lanes, l.Runs)
	}
	for query, status := range map[string]int{"bundle=last": 400, "bundle=nobody": 404, "lanes=1": 400, "words=1": 400} {
		f.get("acme", "/v1/threads/chat/lineage?"+query).problem(t, status)
	}
}

func TestRun_SaysAllButItsContents(t *testing.T) {
	f := newFixture(t)
	r := run("chat", "run", 1, msg("u", "user", "the content"))
	r.ClientRunID, r.SpawnedBy, r.InputSHA256, r.Truncated = "given", "elsewhere", "ab", true
	r.Input = json.RawMessage(`{"threadId":"chat","x":1.0}`)
	r.State = json.RawMessage(`{"the":"state"}`)
	f.put(r)
	got := f.get("acme", "/v1/threads/chat/runs/run")
	const want = `{"threadId":"chat","runId":"run","clientRunId":"given","parentBy":"none","spawnedBy":"elsewhere","branchId":"run",` +
		`"rootRunId":"run","depth":0,"status":"finished","startedAt":"2026-09-17T12:01:00Z","endedAt":"2026-09-17T12:01:02Z",` +
		`"started":{"type":"RUN_STARTED","threadId":"chat","runId":"run"},"input":{"threadId":"chat","x":1.0},"events":[],` +
		`"terminal":{"type":"RUN_FINISHED","threadId":"chat","runId":"run"},"interrupts":[],"pendingToolCalls":[],"resumes":[],` +
		`"messageCount":1,"stats":{"events":{"RUN_STARTED":1},"eventBytes":{"RUN_STARTED":50},"messages":0},` +
		`"raw":{"partition":3,"first":10,"next":20,"ranges":[[10,20]],"events":5,"sha256":"","nextSeq":-1},"inputSha256":"ab",` +
		`"foldVersion":1,"record":"3:1","truncated":true,"indexedTo":"3:19"}` + "\n"
	if got.status != 200 || got.body != want {
		t.Errorf("got  %s\nwant %s", got.body, want)
	}
}

func TestHandler_Compresses(t *testing.T) {
	f := newFixture(t)
	text := strings.Repeat("the same again ", 1000)
	f.put(run("chat", "run", 1, msg("u", "user", text)))
	for _, c := range []struct {
		accept, encoding string
		reader           func(io.Reader) (io.Reader, error)
	}{
		{"gzip", "gzip", func(r io.Reader) (io.Reader, error) { return gzip.NewReader(r) }},
		{"gzip, zstd", "zstd", func(r io.Reader) (io.Reader, error) { return zstd.NewReader(r, zstd.WithDecoderConcurrency(1)) }},
		{"", "", func(r io.Reader) (io.Reader, error) { return r, nil }},
	} {
		for _, form := range []string{"*/*", "text/event-stream"} {
			r := f.get("acme", "/v1/threads/chat/history", "Accept-Encoding", c.accept, "Accept", form)
			if got := r.header.Get("Content-Encoding"); got != c.encoding {
				t.Errorf("accepting %q: %q", c.accept, got)
			}
			reader, err := c.reader(strings.NewReader(r.body))
			if err != nil {
				t.Fatal(err)
			}
			body, err := io.ReadAll(reader)
			if err != nil || !strings.Contains(string(body), text) {
				t.Errorf("accepting %q: %v, %d bytes", c.accept, err, len(body))
			}
			if c.encoding != "" && len(r.body) > len(text)/4 {
				t.Errorf("accepting %q: %d bytes", c.accept, len(r.body))
			}
		}
	}
}

// away is a store that does not answer.
type away struct{ store.Reader }

func (away) Threads(context.Context, string, store.ThreadQuery) ([]store.Thread, string, error) {
	return nil, "", errors.New("connection refused")
}

func (away) IndexedTo(context.Context, string) (map[int32]int64, error) {
	return nil, errors.New("connection refused")
}

func TestHandler_AsksToComeBackWhileTheStoreIsAway(t *testing.T) {
	f := startFixtureOver(t, shortWait, newFilledFixture(t, 1).raw.cfg, func(r store.Reader) store.Reader { return away{r} })
	asked := 0
	for _, rt := range readRoutes() {
		if rt.Pattern == "/v1/dead-letters" {
			continue // Kafka has them, not the store
		}
		asked++
		r := f.get("acme", pathOf(rt.Pattern, "chat", "run"))
		detail := r.problem(t, http.StatusServiceUnavailable)
		if r.header.Get("Retry-After") == "" || strings.Contains(detail, "refused") {
			t.Errorf("%s: Retry-After %q, detail %q", rt.Pattern, r.header.Get("Retry-After"), detail)
		}
	}
	if n := strings.Count(f.log.String(), "\n"); n != asked {
		t.Errorf("%d lines for %d errors:\n%s", n, asked, f.log)
	}
}

func TestHandler_CountsRequests(t *testing.T) {
	f := newFixture(t)
	f.put(run("chat", "run", 1))
	f.get("acme", "/v1/threads/chat")
	f.get("acme", "/v1/threads/nobody")
	f.get("acme", "/v1/threads/chat/history")
	got, err := testutil.GatherAndCount(f.reg, "skein_query_requests_total")
	if want := 3 * len(new(Service).routes()); err != nil || got != want {
		t.Errorf("%d series (%v), want %d: all outcomes are there from the start", got, err, want)
	}
	f.get("globex", "/v1/threads")
	if err := testutil.GatherAndCompare(f.reg, strings.NewReader(`
# HELP skein_query_tenant_requests_total Requests with valid credentials, of the largest tenants and of all others.
# TYPE skein_query_tenant_requests_total counter
skein_query_tenant_requests_total{tenant="acme"} 3
skein_query_tenant_requests_total{tenant="other"} 1
`), "skein_query_tenant_requests_total"); err != nil {
		t.Error(err)
	}
	problems, err := testutil.GatherAndLint(f.reg)
	if err != nil || len(problems) > 0 {
		t.Errorf("%v %v", problems, err)
	}
}
