package page_test

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/chromedp/chromedp"
	"github.com/chromedp/chromedp/kb"

	"github.com/skeinhq/skein/internal/app/dev/devtest"
)

// column returns the texts of a column of the list, once it has so many rows.
func (p *tab) column(k, rows int) []string {
	p.t.Helper()
	p.until(fmt.Sprintf(`document.querySelectorAll(".list .at .r").length === %d`, rows))
	return eval[[]string](p, fmt.Sprintf(`[...document.querySelectorAll(".list .at .r")].map((r) => r.children[%d].innerText)`, k))
}

// Story and Raw say what events carry, are limited to kinds of events, and find a text; the address has it all.
func TestPage_FindsAndFilters(t *testing.T) {
	address := toured.address(t)
	p := newBrowser(t).tab(address+"/?thread=trip-to-lisbon&run=hotel-again&zoom=raw&at=3", 1440, 900, false)
	const type_, payload = 3, 4
	said := p.column(payload, 19)
	if types := p.column(type_, 19); types[3] != "TEXT_MESSAGE_CONTENT" || !strings.HasPrefix(said[3], "Let me look for") ||
		slices.ContainsFunc(said, func(s string) bool { return strings.Contains(s, "TEXT_MESSAGE") }) || !strings.HasPrefix(said[6], "search_hotels") {
		t.Errorf("the payloads are %q", said)
	}
	p.click(".finder .seg button", "state")
	if got := p.column(payload, 1); !strings.HasPrefix(got[0], `[{"op":"replace","path":"/hotel"`) {
		t.Errorf("events of the state: %q", got)
	}
	p.click("[role=tab]", "Story")
	if got := p.column(payload, 1); got[0] != `patch /hotel = "Casa do Bairro"` {
		t.Errorf("the change of the state is %q", got)
	}
	p.click(".finder .seg button", "tools")
	if got := p.column(type_, 2); !slices.Equal(got, []string{"tool call", "state"}) || !eval[bool](p, `location.search.includes("show=tools%2Cstate")`) {
		t.Errorf("tools and state: %q", got)
	}
	p.visit("?thread=trip-planner&run=archive&zoom=raw&show=errors")
	if got := p.column(payload, 1); !strings.HasPrefix(got[0], "the archive did not answer within 5 s") {
		t.Errorf("errors: %q", got)
	}
	p.visit("?thread=trip-to-lisbon&run=hotel-again&at=0")
	p.wait(".msg")
	// chromedp types the key even if the page prevents that, which browsers do not.
	p.run(chromedp.Evaluate(`document.body.dispatchEvent(new KeyboardEvent("keydown", { key: "/", bubbles: true }))`, nil))
	p.run(chromedp.KeyEvent("FOR SOMETHING")) // of two deltas
	p.shows(".finder .says", "1 found")
	p.run(chromedp.KeyEvent(kb.Enter))
	p.shows(".finder .says", "1 of 1")
	p.until(`location.search.includes("at=4") && location.search.includes("find=FOR")`)
	p.run(chromedp.KeyEvent(kb.Escape), chromedp.KeyEvent(kb.Home)) // the field is closed, its words stay
	p.until(`location.search.includes("at=0&") && !document.querySelector(".finder")`)
	p.run(chromedp.KeyEvent("n"))
	p.until(`location.search.includes("at=4") && location.search.includes("find=FOR")`)
	p.click(".runhead button", "Find in the run")
	p.until(`document.activeElement.value === "FOR SOMETHING"`)
	p.run(chromedp.KeyEvent("casa"), chromedp.KeyEvent(kb.Enter)) // in a result, which is found after Enter
	p.until(`location.search.includes("find=casa")`)
	p.shows(".msg.now details[open] .io", "Casa do Bairro")
	p.resize(size{1440, 300, 1})
	p.visit("?thread=trip-to-lisbon&run=hotel-again&find=%2Fhotel&at=0") // in the state
	p.shows(".finder .says", "1 found")
	p.run(chromedp.KeyEvent(kb.Enter))
	p.until(`((c, s) => c && c.top >= s.top && c.bottom <= s.bottom)(document.querySelector("#state .ch")?.getBoundingClientRect(), document.querySelector(".inspect .scroll").getBoundingClientRect())`)
	p.resize(size{1440, 900, 1})
	p.visit("?thread=trip-to-lisbon&run=hotel-again&find=Lisbon&at=0") // in the input
	p.shows("details.before[open]", "Lisbon")
	p.visit("?thread=trip-to-lisbon&run=hotel-again&find=%2Fhotel&at=0")
	p.run(chromedp.KeyEvent(kb.Escape), chromedp.KeyEvent("4"))
	p.until(`location.search.includes("find=%2Fhotel") && document.querySelector(".list.raw")`)
	p.visit("?thread=trip-to-lisbon&run=hotel-again&zoom=raw&find=hotel&at=18")
	p.until(`document.querySelectorAll(".list .r.hit").length > 4 && (document.querySelector(".t-hits path").getAttribute("d").match(/M/g).length === document.querySelectorAll(".list .r.hit").length)`)
	p.click(".finder .seg button", "hits")
	p.until(`document.querySelectorAll(".list .at .r").length === document.querySelectorAll(".list .r.hit").length`)
	p.run(chromedp.KeyEvent("n")) // after the last comes the first
	p.until(`location.search.includes("at=0")`)
	p.run(chromedp.KeyEvent("N"))
	p.until(`Number(new URLSearchParams(location.search).get("at")) > 12 || !location.search.includes("at=")`)
	p.accessible()
	p.legible()
	p.calm(address)
}

// Of a long run the page holds parts: hits are in all of it, and those that stand alone are read where one looks.
func TestPage_FindsInALongRun(t *testing.T) {
	address := devtest.Start(t).URL()
	const events = 12_000
	all := []any{object{"type": "RUN_STARTED", "threadId": "long", "runId": "r"}, object{"type": "TEXT_MESSAGE_START", "messageId": "m", "role": "assistant"}}
	want := []int{5_400, 5_401, 9_000}
	for n := len(all) + 1; n < events-1; n++ {
		text := "hay "
		if slices.Contains(want, n) {
			text = "needle "
		}
		all = append(all, object{"type": "TEXT_MESSAGE_CONTENT", "messageId": "m", "delta": text})
	}
	all = append(all, object{"type": "TEXT_MESSAGE_END", "messageId": "m"}, object{"type": "RUN_FINISHED", "threadId": "long", "runId": "r"})
	for from := 0; from < events; from += 4000 {
		publish(t, address, "long", "r", nil, all[from:min(from+4000, events)]...)
	}
	get(t, address+"/v1/threads/long", func(s struct{ Status string }) bool { return s.Status == "finished" })
	p := newBrowser(t).tab(address+"/?thread=long&zoom=raw&find=needle&show=hits", 1440, 900, false)
	p.shows(".finder .says", "3 found")
	if got := p.column(0, 3); !slices.Equal(got, []string{"5400", "5401", "9000"}) {
		t.Errorf("hits in %q, want %v", got, want)
	}
	p.until(`[...document.querySelectorAll(".list .at .r")].every((r) => r.children[4].innerText.startsWith("needle"))`)
	p.run(chromedp.KeyEvent("<")) // between are events that were not read: it reads some, and goes no farther
	p.shows("#toast", "No message up to event 11\u202f000; what is before that was not read yet")
	p.until(`location.search.includes("at=11000")`)
	p.run(chromedp.KeyEvent("c"))
	p.shows("#toast", "No change of the state after this event")
	p.calm(address)
}
