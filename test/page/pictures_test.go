package page_test

import (
	"fmt"
	"net/url"
	"path/filepath"
	"testing"

	"github.com/chromedp/cdproto/page"
	"github.com/chromedp/chromedp"
)

// TestPage_Pictures opens every view, light and dark, wide and as on a phone, and takes its picture (SKEIN_TEST_PICTURES says where).
// No view may raise an error, ask another host, be wider than its screen, have a fault that axe finds, or text that is hard to tell from
// what is behind it.
func TestPage_Pictures(t *testing.T) {
	address := toured.address(t)
	b := newBrowser(t)
	folder := artefacts(t)
	tabs := map[string]*tab{} // one for each screen: its views come one after another
	trip := func(more string) string { return "/?thread=trip-planner" + more }
	for _, view := range []struct {
		name, path, ready string
		width, height     int64
		dark              bool
		click             string
	}{
		{"thread-keys", trip("&run=ask"), ".msg", 1440, 900, false, `[aria-label="Keyboard shortcuts"]`},
		{"thread-badge-dark", trip("&run=guess"), ".facts .badge", 1440, 900, true, ".facts .badge"},
		{"threads-light", "/", "[data-row]", 1440, 900, false, ""},
		{"threads-dark", "/", "[data-row]", 1440, 900, true, ""},
		{"threads-filter-wrong", "/?q=" + url.QueryEscape("stats:error"), ".reads .bad", 1440, 900, false, ""},
		{"threads-none", "/?q=" + url.QueryEscape("agent:travel-desk nothing-like-it"), ".empty .btn .faint", 1440, 900, false, ""},
		{"threads-found", "/?q=" + url.QueryEscape("rewrote:regeneration"), "[data-row]", 1440, 900, false, ""},
		{"threads-none-dark", "/?q=" + url.QueryEscape(`words:"no such words"`), ".empty h2", 1440, 900, true, ""},
		{"threads-phone", "/", "[data-row]", 390, 844, false, ""},
		{"thread-light", "/?thread=trip-to-lisbon", ".card.wait", 1440, 900, false, ""}, // of what "make run" shows
		{"thread-answered", trip("&run=ask"), ".msg", 1440, 900, false, ""},
		{"thread-scrub", trip("&run=ask&at=16"), ".msg.now, .note", 1440, 900, false, ""},
		{"thread-story-dark", trip("&run=ask&zoom=story"), ".list .r[aria-current]", 1440, 900, true, ""},
		{"thread-timeline", trip("&run=ask&zoom=timeline"), ".bar-row", 1440, 900, false, ""},
		{"thread-raw-dark", trip("&run=ask&zoom=raw&at=9"), ".list .r[aria-current]", 1440, 900, true, ""},
		{"thread-error-dark", trip("&run=archive"), ".card.bad", 1440, 900, true, ""},
		{"thread-running", trip("&run=now"), ".msg", 1440, 900, false, ""},
		{"thread-lanes", trip("&run=ask&lanes=3"), ".msg", 1440, 900, false, ""},
		{"thread-fan", trip("&run=again-1&bundle=again-1"), ".msg", 1440, 900, false, ""},
		{"thread-1024", trip("&run=ask"), ".msg", 1024, 768, false, ""},
		{"thread-trimmed", "/?thread=expenses-may&run=sum", ".later.left", 1440, 900, false, ""},
		{"thread-subagents-dark", "/?thread=research-heat-pumps&run=report&zoom=timeline", ".bar-row", 1440, 900, true, ""},
		{"thread-phone-actions", trip("&run=now"), ".msg", 390, 844, false, `[aria-label="Actions"]`},
		{"thread-phone-run", trip("&run=ask"), ".msg", 390, 844, false, ""},
		{"thread-phone-branches", trip("&run=ask&pane=graph"), ".grow-row", 390, 844, false, ""},
		{"thread-phone-state", trip("&run=ask&pane=state"), ".tree", 390, 844, true, ""},
		{"thread-phone-timeline-dark", trip("&run=ask&zoom=timeline"), ".bar-row", 390, 844, true, ""},
		{"numbers-light", "/?numbers=agent", ".multiples .cell", 1440, 900, false, ""},
		{"numbers-tables-dark", "/?numbers=status&range=48h&tables=runs,tokens,duration", ".tablebox td", 1440, 900, true, ""},
		{"numbers-phone", "/?numbers=agent&range=30d", ".multiples .cell", 390, 844, false, ""},
		{"compare-light", trip("&run=no&compare=yes"), ".pair", 1440, 900, false, ""},
		{"compare-dark", trip("&run=edited&compare=ask"), ".pair", 1440, 900, true, ""},
		{"compare-phone", trip("&run=no&compare=yes"), ".pair", 390, 844, false, ""},
	} {
		t.Run(view.name, func(t *testing.T) {
			screen := fmt.Sprint(view.width, view.dark)
			p := tabs[screen]
			if p == nil {
				p = b.tab(address+view.path, view.width, view.height, view.dark)
				tabs[screen] = p
			} else {
				p.run(page.BringToFront(), chromedp.Navigate(address+view.path)) // one that is hidden draws nothing
			}
			p.t = t
			p.wait(view.ready)
			p.until("!document.body.innerText.includes('Reading') && ![...document.querySelectorAll('[data-row] .rn')].some((n) => n.textContent === '–')")
			if view.click != "" {
				p.until("(document.querySelector(" + marshal(t, view.click) + ")?.click(), true)") // in one step: what is there may be drawn anew
			}
			p.shoot(filepath.Join(folder, view.name+".png"))
			if wide := eval[int64](p, "document.documentElement.scrollWidth"); wide > view.width {
				t.Errorf("the view is %d wide on a screen of %d", wide, view.width)
			}
			p.accessible()
			p.legible()
			p.calm(address)
		})
	}
}
