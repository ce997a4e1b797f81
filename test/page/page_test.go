package page_test

import (
	"cmp"
	"fmt"
	"io"
	"math/rand/v2"
	"net/http"
	"net/http/httptest"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"reflect"
	"slices"
	"strconv"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/chromedp/cdproto/fetch"
	"github.com/chromedp/chromedp"
	"github.com/chromedp/chromedp/kb"

	"github.com/skeinhq/skein/internal/app/dev"
	"github.com/skeinhq/skein/internal/app/dev/devtest"
	"github.com/skeinhq/skein/internal/seedtest"
	"github.com/skeinhq/skein/test/process"
	"github.com/skeinhq/skein/web"
)

// hostile are texts that would run, load or leave where a page trusts them.
var hostile = []string{
	`<script>window.ran = 1</script>`,
	`<img src="https://evil.example/a.png" onerror="window.ran = 2">`,
	`![picture](https://evil.example/b.png)`,
	`[click](javascript:window.ran=3) [data](data:text/html,<script>window.ran=4</script>) [plain](http://evil.example/c)`,
	`<iframe src="https://evil.example/d"></iframe><svg onload="window.ran=5">`,
	`"><style>@import "https://evil.example/e.css"</style>`,
	`[ok](https://good.example/x) <a href="javascript:window.ran=6">x</a>`,
}

// Whatever an agent or a user writes, into whatever field, runs nothing and loads nothing from anywhere.
func TestPage_RunsAndLoadsNothingThatMessagesName(t *testing.T) {
	address := devtest.Start(t, func(cfg *dev.Config) {
		var err error
		if cfg.Links, err = web.ParseLinks([]string{"traces=https://traces.example/{label.trace}/{label.user}"}); err != nil {
			t.Fatal(err)
		}
	}).URL()
	all := strings.Join(hostile, "\n\n")
	thread, run := `<img src=x onerror=window.ran=7>`, `"><script>window.ran=8</script>`
	start := func(id string) object {
		return object{"type": "RUN_STARTED", "threadId": thread, "runId": id}
	}
	content := []object{{"type": "text", "text": all},
		{"type": "image", "source": object{"type": "url", "value": "https://evil.example/f.png", "mimeType": "image/png"}}}
	input := object{"threadId": thread, "runId": run, "messages": []object{{"id": "u" + hostile[0], "role": "user", "content": content}},
		"state": object{}, "tools": []any{}, "context": []any{}, "forwardedProps": object{}}
	// The agent's name and the labels, which links may hold, come in headers: one line each.
	by := []string{"Skein-Agent", hostile[1], "Skein-Label-User", hostile[3], "Skein-Label-Trace", "javascript:window.ran=9"}
	publishAs(t, by, address, thread, run, input,
		start(run),
		object{"type": "STEP_STARTED", "stepName": all},
		object{"type": "REASONING_MESSAGE_START", "messageId": "r", "role": "reasoning"},
		object{"type": "REASONING_MESSAGE_CONTENT", "messageId": "r", "delta": all}, object{"type": "REASONING_MESSAGE_END", "messageId": "r"},
		object{"type": "TEXT_MESSAGE_START", "messageId": "a", "role": "assistant"},
		object{"type": "TEXT_MESSAGE_CONTENT", "messageId": "a", "delta": all}, object{"type": "TEXT_MESSAGE_END", "messageId": "a"},
		object{"type": "TOOL_CALL_START", "toolCallId": "c", "toolCallName": all, "parentMessageId": "a"},
		object{"type": "TOOL_CALL_ARGS", "toolCallId": "c", "delta": marshal(t, all)}, object{"type": "TOOL_CALL_END", "toolCallId": "c"},
		object{"type": "TOOL_CALL_RESULT", "messageId": "t", "toolCallId": "c", "content": all, "role": "tool"},
		object{"type": "ACTIVITY_SNAPSHOT", "messageId": "v", "activityType": all, "content": object{all: all}},
		object{"type": "STATE_SNAPSHOT", "snapshot": object{all: all, "__proto__": all}},
		object{"type": "CUSTOM", "name": all, "value": all},
		object{"type": "RUN_ERROR", "message": all, "code": all},
	)
	publishAs(t, by, address, thread, "asks", nil, start("asks"),
		object{"type": "RUN_FINISHED", "threadId": thread, "runId": "asks", "outcome": object{
			"type": "interrupt", "interrupts": []object{{"id": all, "reason": all, "message": all, "responseSchema": object{all: all}}},
		}})
	get(t, address+"/v1/threads/"+url.PathEscape(thread)+"/lineage", func(l struct{ Runs []struct{ Status string } }) bool {
		return len(l.Runs) == 2 && l.Runs[0].Status == "error" && l.Runs[1].Status == "interrupted"
	})
	b := newBrowser(t)
	at := "/?thread=" + url.QueryEscape(thread) + "&run=" + url.QueryEscape(run)
	for _, view := range []struct{ path, ready string }{
		{"/", "#waits li"}, {"/?q=error:any", "[data-row]"}, {"/?numbers=agent", ".multiples"}, {"/?numbers=label:user", ".multiples"},
		{"/?thread=" + url.QueryEscape(thread) + "&run=asks", ".card.wait"}, {at, ".card.bad"}, {at + "&plain=1", ".card.bad"},
		{at + "&zoom=story", ".list .r[aria-current]"}, {at + "&zoom=timeline", ".bar-row"},
		{at + "&zoom=raw&at=5", ".list .r[aria-current]"}, {at + "&compare=" + url.QueryEscape(run), ".sides"},
	} {
		p := b.tab(address+view.path, 1440, 900, false)
		p.wait(view.ready)
		p.run(chromedp.Evaluate(`document.querySelectorAll("details").forEach((d) => (d.open = true))`, nil))
		if ran := eval[int](p, "window.ran ?? 0"); ran != 0 {
			t.Errorf("%s: script %d ran", view.path, ran)
		}
		for _, link := range eval[[]string](p, `[...document.querySelectorAll("a")].map((a) => a.getAttribute("href"))`) {
			if !strings.HasPrefix(link, "?") && link != "./" && !strings.HasPrefix(link, "https://") && !strings.HasPrefix(link, "mailto:") {
				t.Errorf("%s: a link leads to %q", view.path, link)
			}
		}
		if n := eval[int](p, `document.querySelectorAll("#app img, #app iframe, #app script, #app style, #app object, #app embed").length`); n != 0 {
			t.Errorf("%s: %d elements that load or run", view.path, n)
		}
		p.calm(address)
	}
	p := b.tab(address+at, 1440, 900, false)
	p.wait(".placeholder")
	if !eval[bool](p, `[...document.querySelectorAll("a")].some((a) => a.href === "https://good.example/x" && a.rel.includes("noopener"))`) {
		t.Error("a link to https is none")
	}
}

// The page shows the state that GET …/state gives, at any event.
func TestPage_StateIsTheServers(t *testing.T) {
	address := devtest.Start(t).URL()
	seed := seedtest.New(t)
	rng := rand.New(rand.NewPCG(seed, 0))
	const thread, run, n = "states", "r", 700
	events := []any{object{"type": "RUN_STARTED", "threadId": thread, "runId": run},
		object{"type": "STATE_SNAPSHOT", "snapshot": object{"list": []any{}, "a/b": object{"~": 0}, "n": 0}}}
	length := 0
	for k := range n {
		var op object
		switch x := rng.IntN(6); {
		case x == 0 && length > 0:
			length--
			op = object{"op": "remove", "path": fmt.Sprintf("/list/%d", rng.IntN(length+1))}
		case x < 3:
			op = object{"op": "add", "path": fmt.Sprintf("/list/%d", rng.IntN(length+1)),
				"value": object{"k": k, "text": strings.Repeat("x", rng.IntN(20))}}
			length++
		case x == 3:
			op = object{"op": "replace", "path": "/a~1b/~0", "value": []any{k, nil, true, "é"}}
		case x == 4:
			op = object{"op": "copy", "from": "/a~1b", "path": "/copied"}
		default:
			op = object{"op": "replace", "path": "/n", "value": k}
		}
		events = append(events, object{"type": "STATE_DELTA", "delta": []any{op}})
	}
	events = append(events, object{"type": "RUN_FINISHED", "threadId": thread, "runId": run})
	publish(t, address, thread, run, nil, events...)
	base := address + "/v1/threads/" + thread + "/runs/" + run
	total := get(t, base+"/state", func(s struct{ Total int }) bool { return s.Total == len(events) }).Total
	p := newBrowser(t).tab(address+"/?thread="+thread+"&at=0", 1440, 900, false)
	p.until(fmt.Sprintf(`document.querySelector(".track")?.getAttribute("aria-valuemax") === "%d"`, total))
	positions := []int{0, total}
	for len(positions) < 50 {
		positions = append(positions, rng.IntN(total+1))
	}
	for _, at := range positions {
		p.visit(fmt.Sprintf("?thread=%s&at=%d", thread, at))
		p.until(fmt.Sprintf(`document.querySelector("#state")?.dataset.n === "%d"`, at))
		eval[bool](p, `(async () => {
			for (let closed; (closed = document.querySelectorAll("#state .fold-tree[aria-expanded=false]")).length; await new Promise(requestAnimationFrame)) closed.forEach((b) => b.click());
			return true;
		})()`)
		got := eval[any](p, `(() => {
			const read = (span, list) => {
				const fold = span.querySelector(".fold-tree");
				if (!fold) return JSON.parse(span.querySelector(".leaf > :last-child").textContent);
				const items = [...(list?.children ?? [])].map((li) => [li.querySelector(":scope > span .kk").textContent, read(li.querySelector(":scope > span"), li.querySelector(":scope > ul"))]);
				return fold.textContent.includes("[") ? items.map((i) => i[1]) : Object.fromEntries(items);
			};
			const tree = document.querySelector("#state .tree");
			return tree ? read(tree.querySelector(":scope > span"), tree.querySelector(":scope > ul")) : {};
		})()`)
		want := get[struct{ State any }](t, fmt.Sprintf("%s/state?at=%d", base, at), nil).State
		if !reflect.DeepEqual(got, want) {
			t.Fatalf("at event %d the page shows\n%s, the server says\n%s", at, marshal(t, got), marshal(t, want))
		}
	}
	p.calm(address)
}

// What the page draws is the picture that the server gives: the same rows in the same lanes.
func TestPage_LanesAreThoseOfThePicture(t *testing.T) {
	address := toured.address(t)
	type drawn struct {
		Run          string
		Lane, Branch int
	}
	l := get[struct {
		Picture struct {
			Rows []struct {
				RunID        string
				Lane, Branch int
			}
		}
	}](t, address+"/v1/threads/trip-planner/lineage", nil)
	var want []drawn
	for _, r := range l.Picture.Rows {
		want = append(want, drawn{r.RunID, r.Lane, r.Branch})
	}
	p := newBrowser(t).tab(address+"/?thread=trip-planner&run=ask", 1440, 900, false)
	p.wait(".grow-row")
	got := eval[[]drawn](p, `[...document.querySelectorAll(".graph .grow-row")].map((b) => ({Run: b.dataset.run, Lane: Number(b.dataset.lane), Branch: Number(b.dataset.branch)}))`)
	if !slices.Equal(got, want) {
		t.Errorf("the page draws %v, want %v", got, want)
	}
	// A run that names a later one as its parent has an edge of its own, beside the chains.
	if n := eval[int](p, `document.querySelectorAll(".graph .arc").length`); n != 1 {
		t.Errorf("%d spawn edges within the thread, want 1", n)
	}
	p.calm(address)
}

// What Numbers shows of the running week is what the API counts, column by column.
func TestPage_NumbersAreTheAPIs(t *testing.T) {
	address := toured.address(t)
	type groups struct {
		Groups []struct {
			By     map[string]string
			Values struct {
				Runs, Errors              int
				InputTokens, OutputTokens *int
			}
		}
	}
	now := time.Now().UTC()
	monday := now.Truncate(24*time.Hour).AddDate(0, 0, -int(now.Weekday()+6)%7)
	since := func(from time.Time, groupsAtLeast int) groups {
		return get(t, address+"/v1/statistics?by=status&measure=runs,errors,inputTokens,outputTokens&since="+from.Format(time.RFC3339),
			func(g groups) bool { return len(g.Groups) >= groupsAtLeast })
	}
	since(monday.AddDate(0, 0, -7), 4) // all of the tour, which goes back some hours, is indexed
	counted := since(monday, 1)
	want := map[string]string{}
	tokens := func(n *int) string {
		switch {
		case n == nil:
			return "–"
		case *n >= 10_000:
			return fmt.Sprintf("%.0f k", float64(*n)/1000)
		}
		return strconv.Itoa(*n)
	}
	for _, g := range counted.Groups {
		v := g.Values
		want[g.By["status"]] = fmt.Sprintf("%d/%d %s+%s", v.Errors, v.Runs, tokens(v.InputTokens), tokens(v.OutputTokens))
	}
	if want["finished"] == want["error"] || !strings.Contains(want["running"], "–+–") {
		t.Errorf("the tour's tokens are %v", want)
	}
	p := newBrowser(t).tab(address+"/?numbers=status&tables=errors,tokens", 1440, 900, false)
	p.wait(".tablebox td")
	got := eval[[][]string](p, `[...document.querySelector(".tablebox tbody").children].map((r, i) => [r.firstElementChild.textContent,
		[...document.querySelectorAll(".tablebox tbody")].map((b) => b.children[i].lastElementChild.textContent).join(" ").replaceAll("\u202f", "")])`)
	if len(got) < 4 {
		t.Errorf("the page has %d rows of %v", len(got), want)
	}
	for _, row := range got {
		if row[0] == "asked" {
			row[0] = "interrupted"
		}
		if row[1] != cmp.Or(want[row[0]], "– –") { // a status of no run in this week
			t.Errorf("%s: the page says %s, the API %s", row[0], row[1], want[row[0]])
		}
	}
	p.calm(address)
}

// A browser allows six connections to a host: ten tabs that are open leave room for the eleventh, as one that is hidden has no stream.
func TestPage_TenTabs(t *testing.T) {
	address := toured.address(t)
	b := newBrowser(t)
	var tabs []*tab
	for n := range 11 {
		began := time.Now()
		p := b.tab(address+"/?thread=trip-planner&run=now", 1440, 900, false)
		p.wait(".msg")
		t.Logf("tab %d after %v", n+1, time.Since(began).Round(time.Millisecond))
		tabs = append(tabs, p)
	}
	for n, p := range tabs {
		hidden := n < len(tabs)-1
		p.until(fmt.Sprintf(`document.hidden === %v && document.querySelector("main").dataset.live === "%v"`, hidden, !hidden))
	}
}

// A run that goes on grows on the page by itself. What goes on elsewhere in the thread costs a reading of its lineage where a run begins
// or ends, and not with each event.
func TestPage_FollowsARunThatGoesOn(t *testing.T) {
	const thread = "live"
	// As in production, records of an open run are far apart: the page does not wait for them.
	address := devtest.Start(t).URL()
	begin := func(run string) {
		publish(t, address, thread, run, nil, object{"type": "RUN_STARTED", "threadId": thread, "runId": run},
			object{"type": "TEXT_MESSAGE_START", "messageId": run, "role": "assistant"},
			object{"type": "TEXT_MESSAGE_CONTENT", "messageId": run, "delta": "one"})
	}
	end := func(run string) {
		publish(t, address, thread, run, nil, object{"type": "TEXT_MESSAGE_END", "messageId": run},
			object{"type": "RUN_FINISHED", "threadId": thread, "runId": run})
	}
	begin("r")
	get(t, address+"/v1/threads/"+thread+"/lineage", func(l struct{ Runs []any }) bool { return len(l.Runs) == 1 })
	// behind the record
	publish(t, address, thread, "r", nil, object{"type": "TEXT_MESSAGE_CONTENT", "messageId": "r", "delta": " and a half"})
	b := newBrowser(t)
	p := b.tab(address+"/?thread="+thread, 1440, 900, false)
	p.until(`document.querySelector(".chat")?.innerText.includes("one and a half")`)
	p.until(`document.querySelector("main")?.dataset.live === "true"`)
	sent := time.Now()
	publish(t, address, thread, "r", nil, object{"type": "TEXT_MESSAGE_CONTENT", "messageId": "r", "delta": " and two"})
	p.until(`document.querySelector(".chat")?.innerText.includes("one and a half and two")`)
	if took := time.Since(sent); took > 5*time.Second {
		t.Errorf("an event was shown after %v", took)
	}
	end("r")
	p.until(`document.querySelector(".runhead .status.finished") !== null`)

	address = devtest.Start(t).URL()
	begin("r")
	end("r")
	get(t, address+"/v1/threads/"+thread+"/lineage", func(l struct{ Runs []any }) bool { return len(l.Runs) == 1 })
	p = b.tab(address+"/?thread="+thread+"&run=r", 1440, 900, false)
	p.until(`document.querySelector("main")?.dataset.live === "true"`)
	begin("other")
	p.until(`document.querySelector(".graph .mini.run") !== null`)
	before, began, events := p.asked("/lineage?"), time.Now(), 0
	for ; time.Since(began) < 3*time.Second; events++ {
		publish(t, address, thread, "other", nil, object{"type": "TEXT_MESSAGE_CONTENT", "messageId": "other", "delta": " more"})
	}
	if n := p.asked("/lineage?") - before; n > 1 {
		t.Errorf("the page read the lineage %d times while %d events came of a run that it does not show", n, events)
	}
	end("other")
	p.until(`document.querySelector(".graph .mini.run") === null`)
	p.calm(address)

	// Where the index lacks what the stream has sent, the page says so as long as it lasts.
	var behind atomic.Bool
	behind.Store(true)
	p.answer("*atLeast=*", func(r *fetch.EventRequestPaused) chromedp.Action {
		if behind.Load() {
			return fetch.FulfillRequest(r.RequestID, http.StatusTooEarly)
		}
		return fetch.ContinueRequest(r.RequestID)
	})
	begin("last")
	p.until(`document.querySelector(".top .badge")?.textContent.startsWith("index behind by")`)
	behind.Store(false)
	p.until(`document.querySelector(".top .badge") === null && [...document.querySelectorAll(".graph .mini.run")].length === 1`)
}

// Stop ends a run that the proxy runs, whether one address serves all or ingest and query are two.
func TestPage_StopsARunThatAProxyRuns(t *testing.T) {
	agent := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Content-Type", "text/event-stream")
		_, _ = io.WriteString(w, `data: {"type":"RUN_STARTED","threadId":"held","runId":"r"}`+"\n\n"+
			`data: {"type":"TEXT_MESSAGE_CHUNK","messageId":"m","role":"assistant","delta":"I go on and on"}`+"\n\n")
		w.(http.Flusher).Flush()
		<-r.Context().Done()
	}))
	t.Cleanup(agent.Close)
	stops := func(t *testing.T, read, publish string) *tab {
		called := make(chan struct{})
		go func() {
			defer close(called)
			send(t, http.MethodPost, publish+"/v1/agents/helper", "application/json", `{"threadId":"held","runId":"r","messages":[],"state":{},"tools":[],"context":[],"forwardedProps":{}}`)
		}()
		get(t, read+"/v1/threads/held/lineage", func(l struct{ Runs []any }) bool { return len(l.Runs) == 1 })
		p := newBrowser(t).tab(read+"/?thread=held", 1440, 900, false)
		p.until(`document.querySelector(".chat")?.innerText.includes("on and on")`)
		p.click(".runhead .btn.danger", "Stop")
		p.wait("dialog[open] #why") // nothing is stopped yet
		p.shows("dialog[open]", "Stop the run r?")
		p.accessible()
		p.run(chromedp.SendKeys("#why", "it talks to itself"), chromedp.KeyEvent(kb.Enter))
		p.until(`document.querySelector(".runhead .status.cancelled") && !document.querySelector(".runhead .btn.danger")`)
		p.shows(".facts .badge", "stopped on request")
		p.shows(".grow-row", "stopped on request")
		p.shows(".chat .card", "Stopped on request", "it talks to itself")
		p.until(`document.querySelector(".facts .badge").title.includes("it talks to itself")`)
		for _, at := range []string{".facts > span:not([class])", ".graph .meta"} { // a stopped run has an end
			if got := eval[string](p, `document.querySelector("`+at+`").textContent`); !strings.HasSuffix(got, "s") {
				t.Errorf("%s of a stopped run says %q", at, got)
			}
		}
		if eval[bool](p, `document.body.innerText.includes("synthetic end")`) {
			t.Error("the page says that the agent fell silent")
		}
		<-called
		p.visit("?q=status:cancelled")
		p.shows("[data-row]", "stopped on request")
		return p
	}
	t.Run("one address", func(t *testing.T) {
		address := devtest.Start(t, devtest.Agents(t, "helper="+agent.URL)).URL()
		stops(t, address, address).calm(address)
	})
	t.Run("two addresses", func(t *testing.T) {
		dir := t.TempDir()
		bin, err := process.Commands(dir)
		if err != nil {
			t.Fatal(err)
		}
		var data string
		server := devtest.Start(t, func(cfg *dev.Config) { data = cfg.Data })
		known := filepath.Join(dir, "agents.yaml")
		if err := os.WriteFile(known, []byte("agents: [{name: helper, url: "+agent.URL+"}]"), 0o600); err != nil {
			t.Fatal(err)
		}
		ingest, query := process.FreeAddress(t), process.FreeAddress(t)
		for name, args := range map[string][]string{
			"ingest": {"--listen", ingest, "--query-url", "http://" + query, "--agents", known},
			"query":  {"--listen", query, "--ingest-url", "http://" + ingest, "--sqlite", filepath.Join(data, "index", "lineage.sqlite")},
		} {
			p, err := process.Start(t, dir, filepath.Join(bin, name),
				append(args, "--brokers", server.Broker(), "--tenant", "dev", "--admin-listen", "127.0.0.1:0")...)
			if err != nil {
				t.Fatal(err)
			}
			p.AwaitListening(args[1])
		}
		if p := stops(t, "http://"+query, "http://"+ingest); p.asked(ingest) == 0 {
			t.Error("the page asked query alone")
		}
	})
}

// The list says of each thread what it was about and how its last runs ended.
func TestPage_ListsLastRuns(t *testing.T) {
	address := toured.address(t)
	p := newBrowser(t).tab(address+"/", 1440, 900, false)
	row := `[...document.querySelectorAll("[data-row]")].find((r) => r.innerText.includes("trip-planner"))`
	p.until(row + `?.querySelector("[aria-label='Last 24 runs, 1 failed']")`)
	for _, want := range []string{"And what did the archive say of May?", "travel-desk", "env=prod"} {
		p.until(row + `.innerText.includes(` + marshal(t, want) + `)`) // the list is behind what the tour waits for
	}
	p.until(row + `.querySelector(".rn").textContent === "31"`)
	if n := p.asked("prefix=trip-planner"); n > 4 {
		t.Errorf("the page asked %d times about one thread in view, which has an open run", n)
	}
	p.calm(address)
}

// Keys move through a run, ? lists them, and operators' links lead to other tools.
func TestPage_KeysAndLinks(t *testing.T) {
	address := toured.address(t)
	p := newBrowser(t).tab(address+"/?thread=trip-planner&run=ask", 1440, 900, false)
	p.until(`document.querySelector(".track")?.getAttribute("aria-valuenow") === "28"`)
	at := func(want string) {
		t.Helper()
		p.until(`document.querySelector(".track").getAttribute("aria-valuenow") === "` + want + `"`)
	}
	p.wait(".facts a.tool")
	const read = `performance.getEntriesByType("resource").filter((r) => r.name.includes("/runs/ask")).length`
	before := eval[int](p, read)
	p.run(chromedp.KeyEvent("c"))
	p.shows("#toast", "No change of the state after this event")
	p.run(chromedp.KeyEvent(kb.ArrowLeft))
	at("27")
	p.run(chromedp.KeyEvent(kb.Home))
	at("0")
	p.run(chromedp.KeyEvent(kb.ArrowRight))
	at("1")
	if n := eval[int](p, read); n != before || n == 0 {
		t.Errorf("the run was read by %d requests, and by %d where keys moved through it", before, n-before)
	}
	p.run(chromedp.KeyEvent("?"))
	p.until(`document.querySelector("dialog[open] #keys-title")`)
	for _, key := range []string{"j", "[", "←", "Space", "?", "g"} {
		if !eval[bool](p, `[...document.querySelectorAll("dialog[open] kbd")].some((k) => k.textContent === `+marshal(t, key)+`)`) {
			t.Errorf("the list of keys lacks %s", key)
		}
	}
	p.run(chromedp.KeyEvent(kb.ArrowRight)) // closed to the view below
	p.run(chromedp.KeyEvent(kb.Escape))
	p.until(`!document.querySelector("dialog[open]")`)
	at("1")
	p.wait(".facts a.tool")
	links := eval[[]string](p, `[...document.querySelectorAll(".facts a.tool")].map((a) => a.href + " " + a.rel)`)
	if want := []string{"https://traces.example/7c0ffee%2F1?thread=trip-planner&trace=4bf92f3577b34da6a3ce929d0e0e4736 noopener noreferrer"}; !slices.Equal(links, want) {
		t.Errorf("links %q, want %q: one that needs a label which the run has not is none", links, want)
	}
	p.calm(address)
}

// What is copied to be pasted into a shell names what it is of and this server, and runs nothing else, whatever an id has in it. Where
// the browser does not let the page copy, a dialog has the text chosen.
func TestPage_CopiesCommandsThatAreSafeToPaste(t *testing.T) {
	address := devtest.Start(t).URL()
	planted := filepath.Join(t.TempDir(), "planted")
	thread := "a'; touch " + planted + "; echo '"
	// An id that looks like a flag is none: a command must not go to another server.
	const flag, message = "--url=https://evil.example", "-m"
	publish(t, address, flag, "r", nil, object{"type": "RUN_STARTED", "threadId": flag, "runId": "r"},
		object{"type": "TEXT_MESSAGE_CHUNK", "messageId": message, "role": "assistant", "delta": "Words."},
		object{"type": "RUN_FINISHED", "threadId": flag, "runId": "r"})
	publish(t, address, thread, "r", nil, object{"type": "RUN_STARTED", "threadId": thread, "runId": "r"},
		object{"type": "RUN_FINISHED", "threadId": thread, "runId": "r"})
	get(t, address+"/v1/threads/"+url.PathEscape(thread)+"/lineage", func(l struct{ Runs []any }) bool { return len(l.Runs) == 1 })
	p := newBrowser(t).tab(address+"/?thread="+url.QueryEscape(thread)+"&run=r", 1440, 900, false)
	p.wait(".runhead")
	eval[bool](p, `(window.copied = [], navigator.clipboard.writeText = (t) => (window.copied.push(t), Promise.resolve()), true)`)
	for n, entry := range []string{"skein command", "curl"} {
		p.until(fmt.Sprintf(`(() => {
			const of = (s, text) => [...document.querySelectorAll(s)].find((b) => b.textContent.trim().startsWith(text));
			of("button, summary", "Copy as")?.click();
			[...document.querySelectorAll("button")].filter((b) => b.textContent.trim() === %q).at(-1)?.click();
			return window.copied.length > %d;
		})()`, entry, n))
	}
	for _, command := range eval[[]string](p, `window.copied`) {
		out, err := exec.CommandContext(t.Context(), "sh", "-c", `curl() { printf '%s\n' "$@"; }; skein() { printf '%s\n' "$@"; }; `+command).Output()
		if err != nil || !strings.Contains(string(out), address) || !strings.Contains(string(out), thread) && !strings.Contains(string(out), "/v1/threads/") {
			t.Errorf("%s prints %q, %v", command, out, err)
		}
	}
	if _, err := os.Stat(planted); err == nil {
		t.Error("what an id says was run")
	}

	get(t, address+"/v1/threads/"+url.PathEscape(flag)+"/lineage", func(l struct{ Runs []any }) bool { return len(l.Runs) == 1 })
	for at, want := range map[string]string{"": "skein history --url " + address + " -- '" + flag + "' r", "&at=2": "skein state --at 2 --url " + address + " -- '" + flag + "' r"} {
		p.visit("?thread=" + url.QueryEscape(flag) + "&run=r" + at)
		p.until(`document.querySelector(".msg") && document.querySelector(".where")?.innerText.includes("` + map[bool]string{true: "event 3", false: "event 2"}[at == ""] + `")`)
		p.click("button[aria-haspopup=menu]", "Copy as")
		p.click("[role=menuitem]", "skein command")
		if got := eval[string](p, `window.copied.at(-1)`); got != want {
			t.Errorf("of thread %s the page copies %s, want %s", flag, got, want)
		}
	}
	p.click("button[aria-haspopup=menu]", "Copy this message as")
	p.click("[role=menuitem]", "skein command")
	if got, want := eval[string](p, `window.copied.at(-1)`), "skein blame --message=-m --run r --url "+address+" -- '"+flag+"'"; got != want {
		t.Errorf("of a message the page copies %s, want %s", got, want)
	}

	eval[bool](p, `(Object.defineProperty(navigator, "clipboard", {}), true)`) // as over plain HTTP from another host
	for _, leave := range []string{`document.activeElement.dispatchEvent(new ClipboardEvent("copy", { bubbles: true }))`, `document.querySelector("dialog[open] .btn").click()`} {
		p.click(".id .copy", "Copy run id r")
		p.until(`((e) => e.id === "chosen" && e.value === "r" && e.selectionEnd - e.selectionStart === 1)(document.activeElement)`)
		p.accessible()
		p.run(chromedp.Evaluate(leave, nil))
		p.until(`!document.querySelector("dialog[open]") && document.querySelector("#chosen").value === ""`)
	}
}
