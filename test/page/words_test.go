package page_test

import (
	"fmt"
	"net/http"
	"net/http/httptest"
	"net/http/httputil"
	"net/url"
	"slices"
	"strings"
	"testing"

	"github.com/chromedp/chromedp"
	"github.com/chromedp/chromedp/kb"
)

// shows fails the test where no element of the page with this selector says all of these words.
func (p *tab) shows(selector string, words ...string) {
	p.t.Helper()
	p.until(fmt.Sprintf(`[...document.querySelectorAll(%s)].some((e) => %s.every((w) => e.innerText.includes(w)))`, marshal(p.t, selector), marshal(p.t, words)))
}

// What the page says of runs, answers, folds and contents; one tab goes from place to place.
func TestPage_SaysWhatThereIs(t *testing.T) {
	address := toured.address(t)
	p := newBrowser(t).tab(address+"/?thread=trip-planner&run=r01", 1440, 900, false)
	p.shows(".inspect", "7 · –", "Output\n3", "Total\n9", "m (p)")
	p.visit("?thread=trip-planner&run=ask")
	sub := func(name string, f func(t *testing.T)) {
		t.Run(name, func(t *testing.T) {
			p.t = t
			f(t)
			p.calm(address)
		})
		p.t = t
	}
	sub("answers", func(*testing.T) {
		p.shows(".grow-row", "Answer: approved")
		p.shows(".grow-row", "Answer: cancelled")
		p.shows(".card.wait", "Asked, answered")
		p.shows(".runhead .status[title$='(status interrupted)']", "asked, answered")
		p.wait(".grow-row[data-run=ask][title$='asked, answered (status interrupted)']")
		p.shows(".answers li", "✓ approved", `{"approved":true}`, "yes")
		p.shows(".answers li", "⊘ cancelled", "no")
		p.visit("?thread=trip-planner&run=yes")
		p.shows("h2.title", "Answer: approved")
		p.visit("?thread=trip-planner&run=export")
		p.shows(".runhead .status", "waits")
		p.visit("?thread=trip-planner&run=ask&compare=export")
		p.shows(".side .status", "waits")
		p.shows(".side .status", "asked, answered")
		p.visit("?q=status:interrupted,error")
		p.shows("#reads", "the status is asked or error")
		p.shows(".facets .btn[aria-pressed=true]", "asked")
	})
	sub("a run that goes on has lasted until now", func(*testing.T) {
		p.visit("?thread=trip-planner&run=now&compare=r01")
		p.until(`[...document.querySelectorAll(".box tr")].some((r) => r.cells[0].innerText === "Duration" && /^\d+\.\d s|min/.test(r.cells[2].innerText))`)
	})
	sub("bundles name what waits and runs, and keep badges", func(t *testing.T) {
		p.visit("?thread=trip-planner&run=ask&lanes=3")
		p.shows(".grow-row[data-kind=bundle]", "Remove the old export", "1 waits", "1 running")
		p.shows(".grow-row[data-kind=bundle]", "~ latest")
		p.visit("?thread=trip-planner&run=guess&lanes=3")
		p.shows(".facts .badge", "~ latest")
		p.wait(".grow-row[data-kind=bundle][aria-current=true]")
	})
	sub("folds stay as they are named", func(*testing.T) {
		p.visit("?thread=trip-planner&run=ask")
		p.click(".grow-row[data-kind=fold]", "… 10 runs")
		p.until(`location.search.includes("open=r02") && document.querySelector("[data-run=r05]")`)
	})
	sub("back and forward", func(*testing.T) {
		p.visit("?thread=trip-planner&run=ask")
		p.click("[role=tab]", "Story")
		p.wait(".list .r")
		p.click("[role=tab]", "Raw")
		p.wait(".list.raw")
		p.click(".list.raw button.r", "3") // within a run the entry is replaced
		p.until(`location.search.includes("at=3")`)
		p.run(chromedp.Evaluate("history.back()", nil))
		p.until(`document.querySelector(".list:not(.raw) .r") && !location.search.includes("at=")`)
		p.run(chromedp.Evaluate("history.back()", nil))
		p.wait(".chat")
		p.run(chromedp.Evaluate("history.forward()", nil))
		p.wait(".list:not(.raw) .r")
		p.visit("?")
		p.click(".facets .btn", "error")
		p.shows("#reads", "the status is error")
		p.until(`[...document.querySelectorAll("[data-row]")].length === 2`)
		p.run(chromedp.Evaluate("history.back()", nil))
		p.until(`[...document.querySelectorAll("[data-row]")].length === 6 && document.querySelector("#q").value === ""`)
	})
	sub("base64 and what is long", func(t *testing.T) {
		p.visit("?thread=expenses-may&run=receipts")
		p.shows(".att", "image/png", "1 KB inline, not drawn")
		p.shows("#state .leaf", "not drawn")
		p.shows("#state .n", "12345678901234567890")
		p.click(".chat .more-text", "… 37 KB in all, show all")
		p.shows(".chat .prose", "2026-05-01, SNCF, seat 90")
		p.run(chromedp.Evaluate(`document.querySelectorAll(".chat details").forEach((d) => (d.open = true))`, nil))
		p.click(".io .more-text", "… ")
		p.shows(".io", "seat 90", "not drawn")
		for _, zoom := range []string{"", "story", "raw"} {
			p.visit("?thread=expenses-may&run=receipts&zoom=" + zoom + "&at=8")
			p.shows("#state", "at event 8")
			if eval[bool](p, `document.body.innerText.includes(`+marshal(t, picture[:300])+`)`) {
				t.Errorf("zoom %q draws base64", zoom)
			}
		}
	})
	sub("a filter is that of searches", func(t *testing.T) {
		p.visit("?q=" + url.QueryEscape("status:error,running label:env=prod label:user depth::40 since:24h"))
		p.shows("#reads", "the status is error or running", "the labels are env=prod and user", "at most 40 runs from its root",
			"it started in the last 24h")
		p.until(`[...document.querySelectorAll("[data-row]")].length === 1`)
		if p.asked("/v1/runs?archived=no&status=error%2Crunning&depth=%3A40&since=24h&label=env%3Dprod&label=user&limit=200") != 1 {
			t.Errorf("the page asks %q", p.requests)
		}
		p.visit("?q=" + url.QueryEscape("depth:x since:yesterday status:error,broken"))
		p.shows("#reads", "depth takes", "since takes", "is no status")
	})
	sub("bundles open on any screen", func(*testing.T) {
		p.visit("?thread=trip-planner&run=ask&lanes=3")
		p.click(".grow-row[data-kind=bundle]", "")
		p.until(`location.search.includes("bundle=") && location.search.includes("lanes=3") && document.querySelector(".panehead").innerText.includes("All branches")`)
		p.click(".panehead button", "← All branches")
		p.until(`!location.search.includes("bundle=") && location.search.includes("lanes=3")`)
		p.visit("?thread=trip-planner&run=ask&bundle=edited") // with as many lanes as are drawn here it has a row of its own
		p.until(`!location.search.includes("bundle=") && document.querySelector(".panehead").innerText.includes("31 runs")`)
	})
	sub("raw events are as they came", func(t *testing.T) {
		p.visit("?thread=expenses-may&run=receipts&zoom=raw&at=3")
		row := eval[string](p, `new Promise((done) => { const look = () => { const r = document.querySelector(".list.raw .r[aria-current]"); r ? done(r.innerText) : requestAnimationFrame(look); }; look(); })`)
		events := get(t, address+"/v1/threads/expenses-may/runs/receipts/state?at=3", func(s struct {
			Step struct{ Event struct{ Timestamp int64 } }
		}) bool {
			return s.Step.Event.Timestamp > 0
		})
		came := fmt.Sprintf(bigEvent, events.Step.Event.Timestamp)
		_, value, _ := strings.Cut(came, `"value": `)
		if !strings.Contains(row, "receipt · value: "+strings.Replace(strings.TrimSuffix(value, "}"), `"timestamp"`, "timestamp", 1)) ||
			!strings.HasSuffix(strings.TrimSpace(row), fmt.Sprint(len(came))) {
			t.Errorf("the row says %q; the event came as %d bytes: %s", row, len(came), came)
		}
		p.shows(".inspect .json", `"id": 12345678901234567890`, `"total": 1.50`)
	})
	sub("a history that an input leaves out", func(*testing.T) {
		p.visit("?thread=expenses-may&run=sum")
		p.shows(".later.left", "of the parent's history")
		p.until(`document.querySelector(".card.before") === null`)
	})
	sub("story and timeline", func(t *testing.T) {
		p.visit("?thread=expenses-may&run=receipts&zoom=story")
		p.shows(".list .r", "reasoning", "The receipt is of SNCF")
		p.visit("?thread=expenses-may&run=sum&zoom=story")
		p.shows(".list .r", "messages", "2 messages in all")
		p.visit("?thread=trip-planner&run=ask&zoom=timeline")
		p.until(`document.querySelectorAll(".state-mark").length === 3`)
		p.shows(".bar-row", "weather", "1.04 s") // from its last argument to its result, as everywhere
		p.visit("?thread=trip-planner&run=ask")
		p.shows(".card summary", "weather", "1.04 s")
		p.visit("?thread=trip-planner&run=ask&zoom=story")
		p.shows(".list .r", "weather", "1.04 s")
		p.click(".list .r", "9+")
		p.shows(".list .at:has([aria-expanded=true]) .opened", `"city": "Paris"`, `"c": 20`)
		p.accessible()
		p.click(".list .r", "9+")
		p.until(`!document.querySelector(".opened")`)
		p.visit("?thread=research-heat-pumps&run=report&zoom=timeline")
		p.until(`[...document.querySelectorAll(".bar-row .lab")].some((l) => l.style.paddingLeft === "12px")`)
		if order := eval[[]string](p, `[...document.querySelectorAll(".bar-row .lab")].map((l) => l.style.paddingLeft)`); order[0] != "0px" {
			t.Errorf("indents %v", order)
		}
	})
	sub("on a phone", func(t *testing.T) {
		p = newBrowser(t).tab(address+"/?thread=trip-planner&run=now", 390, 844, false)
		p.click(".runhead button", "Find in the run")
		p.until(`document.activeElement.id === "find"`)
		p.click("button", "Actions")
		entries := eval[[]string](p, `[...document.querySelectorAll("[role=menuitem]")].map((e) => e.textContent)`)
		for _, want := range []string{"Stop this run …", "Compare with the parent", "Copy as Markdown", "Copy as skein command"} {
			if !slices.Contains(entries, want) {
				t.Errorf("the actions %q lack %q", entries, want)
			}
		}
		p.run(chromedp.KeyEvent(kb.Escape))
		p.until(`!document.querySelector("[role=menuitem]") && document.activeElement.getAttribute("aria-label") === "Actions"`)
	})
}

// The page asks once for a key that the API wants, says that one is refused, and sends it from then on; it keeps it nowhere.
func TestPage_AsksForTheAPIKey(t *testing.T) {
	to, err := url.Parse(toured.address(t))
	if err != nil {
		t.Fatal(err)
	}
	proxy := httputil.NewSingleHostReverseProxy(to)
	guarded := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if strings.HasPrefix(r.URL.Path, "/v1/") && r.Header.Get("Authorization") != "Bearer right" {
			w.WriteHeader(http.StatusUnauthorized)
			return
		}
		proxy.ServeHTTP(w, r)
	}))
	t.Cleanup(guarded.Close)
	p := newBrowser(t).tab(guarded.URL+"/?thread=trip-planner&run=ask", 1440, 900, false)
	give := func(key string) {
		t.Helper()
		p.until(`document.querySelector("dialog[open] #key")`)
		p.run(chromedp.Evaluate(`(() => { const i = document.querySelector("#key"); i.value = `+marshal(t, key)+`; i.dispatchEvent(new Event("input")); i.form.requestSubmit(); })()`, nil))
	}
	p.until(`document.querySelector("dialog[open] #key")`)
	p.run(chromedp.KeyEvent(kb.Escape), chromedp.KeyEvent(kb.Escape), chromedp.KeyEvent(kb.Escape)) // without a key there is nothing to see
	give("wrong")
	p.shows("dialog[open]", "The server refused that key.")
	give("right")
	p.wait(".msg")
	p.until(`document.querySelector("dialog[open]") === null && document.querySelector("main").dataset.live === "true"`)
	if kept := eval[string](p, `JSON.stringify([localStorage, sessionStorage, document.cookie, location.href])`); strings.Contains(kept, "right") {
		t.Errorf("the key is kept: %s", kept)
	}
	eval[bool](p, `(navigator.clipboard.writeText = (t) => (window.copied = t, Promise.resolve()), true)`)
	for entry, want := range map[string]string{
		"curl":          `curl -s -H "Authorization: Bearer $SKEIN_API_KEY" '` + guarded.URL + `/v1/threads/trip-planner/runs/ask/state'`,
		"skein command": `skein history trip-planner ask --url ` + guarded.URL,
	} {
		p.click("button[aria-haspopup=menu]", "Copy as")
		p.click("[role=menuitem]", entry)
		p.until(`document.activeElement.textContent.includes("Copy as")`)
		if got := eval[string](p, "window.copied"); got != want {
			t.Errorf("with a key the page copies %s, want %s", got, want)
		}
	}
}
