package page_test

import (
	"bytes"
	"context"
	"regexp"
	"testing"

	"github.com/chromedp/cdproto/emulation"
	"github.com/chromedp/cdproto/input"
	"github.com/chromedp/cdproto/page"
	"github.com/chromedp/chromedp"
	"github.com/chromedp/chromedp/kb"
)

// size is that of a window in CSS pixels; on a scale of 2 it is of one of twice the size that is zoomed to 200 %.
type size struct {
	width, height int64
	scale         float64
}

var sizes = []size{{390, 844, 1}, {512, 384, 2}, {640, 900, 1}, {720, 450, 2}, {768, 1024, 1}, {860, 900, 1}, {1024, 768, 1}, {1440, 900, 1}, {2560, 1440, 1}}

// resize waits until the page is drawn in the new size.
func (p *tab) resize(s size) {
	p.t.Helper()
	p.run(emulation.SetDeviceMetricsOverride(s.width, s.height, s.scale, false))
	eval[bool](p, `new Promise((done) => requestAnimationFrame(() => setTimeout(() => requestAnimationFrame(() => done(true)), 20)))`)
}

// misplaced is what does not fit: a page that is wider than its window, text that other text or another part covers, text in a column that
// is too narrow to read, or cut to a few letters, and words that are broken in their middle.
const misplaced = `(() => {
	const found = new Set(), boxes = [], name = (e) => e.tagName.toLowerCase() + "." + (e.getAttribute("class") ?? "");
	const wide = document.documentElement.scrollWidth - innerWidth;
	if (wide > 0) found.add("the page is " + wide + " px wider than its window");
	const body = document.querySelector(".chat .msg > .body");
	if (body?.clientWidth && body.clientWidth < Math.min(300, innerWidth - 40)) found.add("messages are " + body.clientWidth + " px wide");
	for (const row of document.querySelectorAll(".threads .h, .threads a")) {
		const columns = getComputedStyle(row).gridTemplateColumns.split(" ").length, cells = [...row.children].filter((c) => c.checkVisibility()).length;
		if (columns !== cells && row.checkVisibility()) found.add(name(row) + " has " + columns + " columns for " + cells + " cells");
	}
	const walk = document.createTreeWalker(document.querySelector("#app"), NodeFilter.SHOW_TEXT), range = document.createRange();
	for (let node; (node = walk.nextNode()); ) {
		const of = node.parentElement, style = getComputedStyle(of), text = node.textContent.trim();
		if (!text || of.closest(".sr, dialog, option, .track") || !of.checkVisibility({ opacityProperty: true, visibilityProperty: true }) || !of.getClientRects().length) continue;
		if (style.textOverflow === "ellipsis" && of.scrollWidth > of.clientWidth + 1 && of.clientWidth < 40) found.add(name(of) + " is cut to " + of.clientWidth + " px: " + text);
		const block = of.closest("div, p, li, td, th, dd, section, summary, button, a");
		if (text.length > 24 && style.whiteSpace !== "nowrap" && block.clientWidth && block.clientWidth < 110) found.add(name(block) + " is " + block.clientWidth + " px wide: " + text.slice(0, 40));
		if (!of.closest("svg, .json, .patch, .mono, code, pre")) for (const word of node.textContent.matchAll(/[\p{L}\p{N}]{2,24}/gu)) {
			range.setStart(node, word.index); range.setEnd(node, word.index + word[0].length);
			if (new Set([...range.getClientRects()].map((r) => Math.round(r.top))).size > 1) found.add(name(of) + " breaks the word " + word[0]);
		}
		range.selectNodeContents(node);
		for (const r of range.getClientRects()) {
			const box = { of, text, left: Math.max(0, r.left), top: Math.max(0, r.top), right: Math.min(innerWidth, r.right), bottom: Math.min(innerHeight, r.bottom) };
			for (let e = of; e !== document.body; e = e.parentElement) {
				if (e instanceof SVGElement || getComputedStyle(e).overflow === "visible") continue;
				const c = e.getBoundingClientRect();
				box.left = Math.max(box.left, c.left); box.right = Math.min(box.right, c.right); box.top = Math.max(box.top, c.top); box.bottom = Math.min(box.bottom, c.bottom);
			}
			if (box.right - box.left < 3 || box.bottom - box.top < 5) continue;
			const over = document.elementFromPoint((box.left + box.right) / 2, (box.top + box.bottom) / 2);
			if (over && !over.contains(of) && !of.contains(over)) {
				let e = over;
				while (e && getComputedStyle(e).position !== "sticky" && getComputedStyle(e).opacity !== "0" && !e.matches(".graph, .inspect, svg")) e = e.parentElement;
				if (!e) found.add(name(over) + " lies over: " + text.slice(0, 40));
				continue; // a drawer, a head that stays, or what shows under the mouse
			}
			boxes.push(box);
		}
	}
	boxes.sort((a, b) => a.top - b.top);
	boxes.forEach((a, i) => {
		for (let k = i + 1; k < boxes.length && boxes[k].top < a.bottom - 4; k++) {
			const b = boxes[k];
			if (a.of !== b.of && a.of.closest(".graph, .inspect") === b.of.closest(".graph, .inspect") && Math.min(a.right, b.right) - Math.max(a.left, b.left) > 2 && Math.min(a.bottom, b.bottom) - b.top > 4) found.add(name(a.of) + " and " + name(b.of) + " overlap: " + a.text.slice(0, 30) + " | " + b.text.slice(0, 30));
		}
	});
	return [...found].slice(0, 8);
})()`

// Every view can be read in a window of any width, also zoomed: nothing lies over anything else, and columns have room for words.
func TestPage_FitsAnyWidth(t *testing.T) {
	address := toured.address(t)
	p := newBrowser(t).tab(address+"/", 1440, 900, false)
	trip := func(more string) string { return "?thread=trip-planner&run=ask" + more }
	for n, view := range []struct{ name, path, ready string }{
		{"threads", "?", "[data-row]"}, {"numbers", "?numbers=agent", ".multiples .cell"},
		{"tables", "?numbers=status&tables=runs,tokens,duration", ".tablebox td"}, {"conversation", trip(""), ".msg"},
		{"table", "?thread=trip-planner&run=archive-again", ".wide-table"},
		{"branches", trip("&pane=graph"), ".msg"}, {"state", trip("&pane=state&at=20"), ".msg"}, {"story", trip("&zoom=story"), ".list .r"},
		{"timeline", trip("&zoom=timeline"), ".bar-row"}, {"raw", trip("&zoom=raw&at=9"), ".list.raw .r[aria-current]"},
		{"compare", "?thread=trip-planner&run=edited&compare=ask", ".pair"}, {"compare all", trip("&compare=yes&zoom=all"), ".pair"},
	} {
		t.Run(view.name, func(t *testing.T) {
			p.t = t
			p.visit(view.path)
			p.wait(view.ready)
			p.until("!document.body.innerText.includes('Reading') && ![...document.querySelectorAll('[data-row] .rn')].some((n) => n.textContent === '–')")
			for k, s := range sizes {
				p.resize(s)
				for _, what := range eval[[]string](p, misplaced) {
					t.Errorf("%d by %d: %s", s.width, s.height, what)
				}
				if k%3 == n%3 { // each view at three widths, each width with four views
					p.accessible()
				}
			}
		})
	}
	p.t = t
	p.resize(sizes[len(sizes)-1])
	p.visit(trip(""))
	p.wait(".chat .body")
	if graph, text := eval[int](p, `document.querySelector(".graph").offsetWidth`), eval[int](p, `document.querySelector(".chat .body").clientWidth`); graph < 600 || text < 880 {
		t.Errorf("on 2,560 pixels the branches have %d and the text %d", graph, text)
	}
	p.calm(address)
}

// Where there is no room for three columns, state and branches are drawers: a button opens one, Escape closes it, and the focus follows.
// Where there is, the columns' edges are moved by the mouse and by keys, and stay where they were moved to.
func TestPage_HasDrawersAndEdges(t *testing.T) {
	address := toured.address(t)
	p := newBrowser(t).tab(address+"/?thread=trip-planner&run=ask", 1440, 900, false)
	p.wait(".inspect #state")
	shown := func(selector string) string { return `document.querySelector("` + selector + `").offsetWidth > 300` }
	for _, d := range []struct {
		size
		column, button, pane string
	}{{size{1024, 768, 1}, ".inspect", "State", "state"}, {size{768, 1024, 1}, ".inspect", "State", "state"}, {size{768, 1024, 1}, ".graph", "Branches", "graph"}} {
		p.resize(d.size)
		p.until("!(" + shown(d.column) + ")")
		p.click(".runhead .btn", d.button)
		p.until(shown(d.column) + ` && location.search.includes("pane=` + d.pane + `") && document.activeElement.closest("` + d.column + `")`)
		p.run(chromedp.KeyEvent(kb.Escape))
		p.until("!(" + shown(d.column) + `) && !location.search.includes("pane=") && document.activeElement.textContent === "` + d.button + `"`)
	}
	p.click(".runhead .btn", "Branches")
	p.click(".grow-row", "Only make") // what is chosen is shown
	p.until("!(" + shown(".graph") + `) && location.search.includes("run=edited")`)

	p.resize(size{1440, 900, 1})
	width := func(column string) int { return eval[int](p, `document.querySelector("`+column+`").offsetWidth`) }
	graph, state := width(".graph"), width(".inspect")
	p.run(chromedp.Focus(".edge.left"), chromedp.KeyEvent(kb.ArrowRight), chromedp.KeyEvent(kb.ArrowRight))
	x := float64(1440 - state)
	for _, e := range []*input.DispatchMouseEventParams{
		input.DispatchMouseEvent(input.MousePressed, x, 500), input.DispatchMouseEvent(input.MouseMoved, x-50, 500), input.DispatchMouseEvent(input.MouseReleased, x-50, 500),
	} {
		p.run(e.WithButton(input.Left).WithClickCount(1))
	}
	p.run(chromedp.Reload())
	p.wait(".inspect #state")
	if g, s := width(".graph"), width(".inspect"); g != graph+32 || s < state+48 || s > state+52 {
		t.Errorf("the branches have %d pixels of %d and 32 more, the state %d of %d and 50 more", g, graph, s, state)
	}
	p.resize(size{1101, 900, 1})
	if w := width(".chat"); w < 420 {
		t.Errorf("moved edges leave the conversation %d pixels", w)
	}
	p.resize(size{1440, 900, 1})
	p.run(chromedp.Focus(".edge.left"), chromedp.KeyEvent(kb.Enter), chromedp.Focus(".edge.right"), chromedp.KeyEvent(kb.Enter))
	if g, s := width(".graph"), width(".inspect"); g != graph || s != state {
		t.Errorf("Enter gives back %d and %d pixels, not %d and %d", g, s, graph, state)
	}
	p.calm(address)
}

// A printed thread is its conversation: all of it, and nothing else.
func TestPage_PrintsTheWholeConversation(t *testing.T) {
	address := toured.address(t)
	p := newBrowser(t).tab(address+"/?thread=expenses-may&run=receipts&zoom=raw&at=3", 1440, 900, true)
	p.wait(".list .r[aria-current]")
	p.run(emulation.SetEmulatedMedia().WithMedia("print"))
	p.run(chromedp.Evaluate(`dispatchEvent(new Event("beforeprint"))`, nil))
	for _, what := range eval[[]string](p, `(() => {
		const found = [], chat = document.querySelector(".chat");
		for (const e of document.querySelectorAll(".top, .graph, .inspect, .scrub, .panes, .tabs, .btn, .menu, .copy, .finder, .list, .chat [data-more], .chat details:not([open])")) if (e.offsetWidth) found.push("there is " + e.outerHTML.slice(0, 80));
		for (let e = chat; e; e = e.parentElement) if (e.scrollHeight > e.clientHeight + 1 && e !== document.documentElement) found.push(e.className + " shows " + e.clientHeight + " of " + e.scrollHeight + " px");
		if (!chat.innerText.includes("seat 90")) found.push("text is cut");
		if (!document.querySelector(".paper h1").innerText.includes("expenses-may, run receipts")) found.push("nothing says what it is of");
		if (getComputedStyle(document.documentElement).colorScheme !== "light") found.push("paper is dark");
		return found;
	})()`) {
		t.Error(what)
	}
	p.run(chromedp.Evaluate(`dispatchEvent(new Event("afterprint"))`, nil))
	p.until(`document.querySelector(".paper") === null`)
	p.run(chromedp.ActionFunc(func(ctx context.Context) error {
		pdf, _, err := page.PrintToPDF().Do(ctx)
		if pages := len(regexp.MustCompile(`/Type\s*/Page\b`).FindAll(bytes.ReplaceAll(pdf, []byte("\n"), []byte(" ")), -1)); err == nil && pages < 3 {
			t.Errorf("37 KB of text are %d pages", pages)
		}
		return err
	}))
}
