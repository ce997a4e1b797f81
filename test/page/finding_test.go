package page_test

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/chromedp/cdproto/input"
	"github.com/chromedp/chromedp"
	"github.com/chromedp/chromedp/kb"

	"github.com/skeinhq/skein/internal/app/dev/devtest"
)

// What a reader looks for is found by its words, a figure leads to its runs, and the way back leads to where one was.
func TestPage_FindsAndComesBack(t *testing.T) {
	address := devtest.Start(t).URL()
	started := func(thread, run string) object {
		return object{"type": "RUN_STARTED", "threadId": thread, "runId": run}
	}
	finished := func(thread, run string) object {
		return object{"type": "RUN_FINISHED", "threadId": thread, "runId": run}
	}
	const threads = 60
	for n := range threads {
		thread := fmt.Sprint("talk-", n)
		publishAs(t, []string{"Skein-Agent", fmt.Sprint("agent ", n%6)}, address, thread, "r", nil, started(thread, "r"), finished(thread, "r"))
	}
	call := func(id, city string) []any {
		return []any{object{"type": "TOOL_CALL_START", "toolCallId": id, "toolCallName": "book"},
			object{"type": "TOOL_CALL_ARGS", "toolCallId": id, "delta": city}, object{"type": "TOOL_CALL_END", "toolCallId": id}}
	}
	const order = "Order-7731"
	asks := func(run, text string) object {
		return object{"threadId": order, "runId": run, "messages": []object{{"id": run, "role": "user", "content": text}}, "state": object{"asked": text}, "tools": []any{},
			"context": []any{}, "forwardedProps": object{}}
	}
	publish(t, address, order, "one", asks("one", "A seat to Oslo"), append(append([]any{started(order, "one")}, call("c1", "Oslo")...),
		object{"type": "RUN_ERROR", "message": "Traceback:\n  in book\nValueError: keine Plätze frei", "code": "500"})...)
	publish(t, address, order, "two", asks("two", "A seat to Rome"), append(append([]any{started(order, "two")}, call("c2", "Rome")...),
		object{"type": "RUN_FINISHED", "threadId": order, "runId": "two", "outcome": object{"type": "interrupt",
			"interrupts": []object{{"id": "i", "reason": "confirm", "message": "Book a seat to Rome?"}}}})...)
	get(t, address+"/v1/runs?limit=1000", func(r struct{ Runs []struct{ Status string } }) bool {
		return len(r.Runs) == threads+2 && r.Runs[0].Status == "interrupted"
	})

	p := newBrowser(t).tab(address+"/", 1440, 900, false)
	rows := `[...document.querySelectorAll("[data-row] code")].map((c) => c.textContent).sort().join()`
	place := `new URLSearchParams(location.search).get("q")`
	sub := func(name string, f func(t *testing.T)) {
		t.Run(name, func(t *testing.T) {
			p.t = t
			f(t)
			p.accessible()
			p.calm(address)
		})
		p.t = t
	}
	sub("plain words find ids, words and errors", func(*testing.T) {
		for _, q := range []string{"order-7731", "PLÄTZE+valueerror", `"keine+Plätze"+status:error`, "seat+oslo"} {
			p.visit("?q=" + q)
			p.until(rows + ` === "` + order + `"`)
		}
		p.visit(`?q="keine+Plätze"+frei`)
		p.shows("#reads", "one message, error, title or id has “keine” and “Plätze” and “frei”")
		p.visit("?q=talk-4")
		p.until(rows + ` === "talk-4,talk-40,talk-41,talk-42,talk-43,talk-44,talk-45,talk-46,talk-47,talk-48,talk-49"`)
	})
	sub("back gives scroll and row", func(t *testing.T) {
		p.visit("?")
		p.until(`document.querySelector(".threads .virtual")?.offsetHeight > 2000 && (document.querySelector(".threads > .scroll").scrollTop = 1000)`)
		// A row between those at the edges.
		p.until(`(window.row = [...document.querySelectorAll("[data-row]")].find((r) => r.getBoundingClientRect().top > 700)) && (row.scrollTop, true)`)
		top := eval[int](p, `Math.round(document.querySelector(".threads > .scroll").scrollTop)`)
		opened := eval[string](p, `(row.click(), row.querySelector("code").textContent)`)
		p.wait(".runhead")
		p.run(chromedp.Evaluate(`history.back()`, nil))
		p.until(`document.activeElement.querySelector("code")?.textContent === ` + marshal(t, opened))
		p.until(fmt.Sprintf(`Math.round(document.querySelector(".threads > .scroll").scrollTop) === %d`, top))

		// A row that was opened in another tab takes the keyboard from nobody when it comes into view again.
		eval[bool](p, `(addEventListener("click", (e) => e.preventDefault(), { once: true }), (window.row = document.querySelector("[data-row]:not(:focus)")).dispatchEvent(new MouseEvent("click", { ctrlKey: true, bubbles: true, cancelable: true })))`)
		for _, top := range []int{2200, 0} {
			p.until(fmt.Sprintf(`(window.href ??= row.getAttribute("href"), document.querySelector(".threads > .scroll").scrollTop = %d, true)`, top))
			p.until(fmt.Sprintf(`%s[...document.querySelectorAll("[data-row]")].some((r) => r.getAttribute("href") === href)`, map[bool]string{true: "!"}[top > 0]))
		}
		if eval[bool](p, `document.activeElement.getAttribute("href") === href`) {
			t.Error("a row that was opened in another tab takes the keyboard")
		}

		p.click("#waits a", "Book a seat")
		p.wait(".runhead")
		p.run(chromedp.Evaluate(`history.back()`, nil))
		p.until(`document.activeElement.matches("#waits a")`)
	})
	sub("facets count when a run begins", func(t *testing.T) {
		p.visit("?")
		running := `[...document.querySelectorAll(".facets button")].find((b) => b.textContent.includes("running")).innerText.trim()`
		p.until(running + `.endsWith("0")`)
		p.until(`document.querySelector(".threads .virtual")?.offsetHeight > 2000 && (document.querySelector(".threads > .scroll").scrollTop = 1010)`)
		reading := `((r) => [r?.querySelector("code").textContent ?? "", r?.getBoundingClientRect().top])([...document.querySelectorAll("[data-row]")].sort((a, b) => a.getBoundingClientRect().top - b.getBoundingClientRect().top).find((r) => r.getBoundingClientRect().top > document.querySelector(".threads > .scroll").getBoundingClientRect().top))`
		p.until(reading + `[0].startsWith("talk-") && document.querySelector(".threads > .scroll").scrollTop === 1010`)
		before := eval[[]any](p, reading)
		publish(t, address, "now", "r", nil, started("now", "r"))
		get(t, address+"/v1/threads/now", func(r struct{ Status string }) bool { return r.Status == "running" })
		p.polls(1)
		p.until(running + `.endsWith("1")`) // not a minute later

		// What is read stays where it is.
		if now := eval[[]any](p, reading); now[0] != before[0] || now[1] != before[1] {
			t.Errorf("the row that was read is %v, and was %v", now, before)
		}
		p.click(".threads .newer", "↑ 1 new")
		p.until(`document.querySelector(".threads > .scroll").scrollTop === 0 && !document.querySelector(".newer") && ` + rows + `.includes("now")`)
	})
	sub("a range of time is chosen in the histogram", func(t *testing.T) {
		p.visit("?q=status:error")
		p.wait(".pick")
		p.run(chromedp.Focus(".pick"), chromedp.KeyEvent(kb.End), chromedp.KeyEvent(kb.ArrowLeft, chromedp.KeyModifiers(input.ModifierShift)), chromedp.KeyEvent(kb.Enter))
		today := time.Now().UTC().Truncate(24 * time.Hour)
		p.until(place + fmt.Sprintf(` === "status:error since:%s until:%s"`, today.AddDate(0, 0, -1).Format(time.RFC3339), today.AddDate(0, 0, 1).Format(time.RFC3339)))
		p.until(rows + ` === "` + order + `"`)
		p.shows(".hist", "1 run", "hour")
		p.visit("?q=since:2h")
		p.until(`document.querySelectorAll(".hist rect[fill='var(--c-2)']").length && document.querySelector("#since").selectedOptions[0].text === "since 2h"`)
		box := eval[[]float64](p, `((b) => [b.left, b.right, b.top])(document.querySelector(".pick").getBoundingClientRect())`)
		p.run(input.DispatchMouseEvent(input.MousePressed, box[1]-5, box[2]+9).WithButton(input.Left).WithClickCount(1),
			input.DispatchMouseEvent(input.MouseMoved, box[0]+5, box[2]+9).WithButton(input.Left),
			input.DispatchMouseEvent(input.MouseReleased, box[0]+5, box[2]+9).WithButton(input.Left).WithClickCount(1))
		p.until(place + `.startsWith("since:2") && ` + place + `.includes(" until:")`)
		p.shows(".hist", fmt.Sprint(threads+3, " runs"))
	})
	sub("numbers reach all rows, and lead to runs", func(t *testing.T) {
		p.visit("?numbers=agent&range=48h")
		p.shows(".numbers-bar", "1–4 of 7")
		off := eval[[]string](p, `[...document.querySelectorAll(".bars svg")].flatMap((svg) => {
			const marks = [...svg.querySelectorAll("path")].map((l) => /^M([\d.]+) \d+v3$/.exec(l.getAttribute("d"))?.[1]).filter(Boolean), labels = [...svg.querySelectorAll("text")].slice(3);
			return labels.filter((l, i) => { const b = l.getBoundingClientRect(), s = svg.getBoundingClientRect(); return Math.abs((b.left + b.right) / 2 - s.left - marks[i]) > 1 || b.right > s.right; }).map((l) => l.textContent);
		})`)
		if len(off) > 0 {
			t.Errorf("labels %q are not under their bars", off)
		}
		p.click(".numbers-bar button", "Columns with fewer")
		p.shows(".numbers-bar", "5–7 of 7")
		p.visit("?numbers=agent&range=48h&tables=again,tools")
		p.until(`(a => a.length && a.every((a) => new URL(a.href).searchParams.get("q").includes("rewrote:" + a.title.replace("Runs that were ", "").replace("regenerated", "regeneration").replace("edited", "edit"))))([...document.querySelectorAll(".tablebox a")])`)
		p.visit("?numbers=agent&range=48h&tables=runs")
		p.until(`document.querySelectorAll(".tablebox tbody tr").length === 7`)
		links := `[...document.querySelectorAll(%s)].filter((a) => a.href.includes("agent+5") || a.href.includes("agent%%205")).at(-1)`
		for view, link := range map[string]string{"&tables=runs": ".tablebox td a", "&cols=4": "section[aria-label=Runs] .bars a"} {
			p.visit("?numbers=agent&range=48h" + view)
			p.until(fmt.Sprintf(links+`?.click() === undefined && `, marshal(t, link)) + place + `?.startsWith('agent:"agent 5" since:')`)
			p.shows(".hist", "10 runs")
			p.until(`document.querySelectorAll("[data-row]").length === 10`)
		}
		p.visit("?numbers=agent&range=48h&tables=runs")
		p.until(`[...document.querySelectorAll(".tablebox tbody tr")].filter((r) => r.textContent.startsWith("no agent")).map((r) => [...r.querySelectorAll("a")].at(-1)?.click()).length && ` + place + `?.startsWith("agent:- since:")`)
		p.until(rows + ` === "` + order + `,now"`)
	})
	sub("a root is compared with another one", func(t *testing.T) {
		p.visit("?thread=" + order + "&run=two")
		p.wait(".runhead a.btn")
		p.run(chromedp.KeyEvent("d"))
		p.until(`new URLSearchParams(location.search).get("compare") === "one"`)
		p.shows(".pair.ne", "book Oslo", "book Rome")
		p.shows(".pair", "error", "500: Traceback:\n  in book\nValueError: keine Plätze frei")
		p.shows(".pair", "interrupt", "Book a seat to Rome?")
		p.shows(".common", "The first tool call that differs: book")
		p.shows(".box h2", "1 place differs")
		if look := eval[string](p, `((s) => s.backgroundImage + " " + s.boxShadow)(getComputedStyle(document.querySelector(".pair .none")))`); !strings.HasPrefix(look, "none ") ||
			!strings.HasSuffix(look, "inset") {
			t.Errorf("what one side lacks looks like %s", look)
		}
		p.visit("?thread=talk-1")
		p.wait(".runhead")
		if eval[bool](p, `document.querySelector(".runhead a.btn") !== null`) {
			t.Error("the only run of a thread is compared with itself")
		}
	})
}
