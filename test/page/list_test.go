package page_test

import (
	"fmt"
	"testing"
	"time"

	"github.com/chromedp/chromedp"
	"github.com/chromedp/chromedp/kb"

	"github.com/skeinhq/skein/internal/app/dev/devtest"
)

// polls has the list read its latest runs so many times more, as when one comes back to the tab, and gives each time to what follows.
func (p *tab) polls(n int) {
	p.t.Helper()
	for range n {
		before := p.asked("/v1/runs?")
		p.until(`document.dispatchEvent(new Event("visibilitychange"))`)
		for deadline := time.Now().Add(patience); p.asked("/v1/runs?") == before; time.Sleep(20 * time.Millisecond) {
			if time.Now().After(deadline) {
				p.t.Fatal("the list does not read its latest runs")
			}
		}
		time.Sleep(300 * time.Millisecond)
	}
}

// The list follows what its filter selects: a run that has ended leaves those that are running, and however many come between two
// readings, none is missing.
func TestPage_ListFollowsWhatIsSelected(t *testing.T) {
	address := devtest.Start(t).URL()
	begin := func(thread string) {
		publish(t, address, thread, "r", nil, object{"type": "RUN_STARTED", "threadId": thread, "runId": "r"})
	}
	begin("ends")
	begin("goes-on")
	rows := `[...document.querySelectorAll("[data-row] code")].map((c) => c.textContent).sort().join()`
	p := newBrowser(t).tab(address+"/?q=status:running", 1440, 900, false)
	p.until(rows + ` === "ends,goes-on"`)
	publish(t, address, "ends", "r", nil, object{"type": "RUN_FINISHED", "threadId": "ends", "runId": "r"})
	get(t, address+"/v1/threads/ends", func(r struct{ Status string }) bool { return r.Status == "finished" })
	p.polls(1)
	p.until(rows + ` === "goes-on"`)

	p.visit("?")
	p.until(rows + ` === "ends,goes-on"`)
	const many = 150
	for n := range many {
		if n == many/2 {
			publish(t, address, "goes-on", "r2", nil, object{"type": "RUN_STARTED", "threadId": "goes-on", "runId": "r2"})
		}
		begin(fmt.Sprint("more-", n))
	}
	p.until(fmt.Sprintf(`document.querySelector(".threads .virtual").offsetHeight / 48 === %d`, many+2))

	// Most rows in view stay where they are, whichever of them goes down or up.
	p.visit("?q=status:running")
	p.until(fmt.Sprintf(`document.querySelector(".threads .virtual")?.offsetHeight / 48 === %d`, many+1))
	p.until(`((s) => (s.scrollTop = 48 * (75 - 9)) && s.scrollTop === 48 * (75 - 9))(document.querySelector(".threads > .scroll"))`)
	top := func(thread string) string {
		return fmt.Sprintf(`[...document.querySelectorAll("[data-row] code")].find((c) => c.textContent === %q)?.getBoundingClientRect().top`, thread)
	}
	const above, below = "more-82", "more-72" // of goes-on
	p.until(top("goes-on"))
	was := eval[float64](p, top(above))
	publish(t, address, "goes-on", "r2", nil, object{"type": "RUN_FINISHED", "threadId": "goes-on", "runId": "r2"})
	p.until(`!` + top("goes-on"))
	p.until(fmt.Sprintf(`%s === %v && !document.querySelector(".newer")`, top(above), was))
	was = eval[float64](p, top(below))
	publish(t, address, above, "r2", nil, object{"type": "RUN_STARTED", "threadId": above, "runId": "r2"})
	p.until(`!` + top(above))
	p.until(fmt.Sprintf(`%s === %v`, top(below), was))
	p.calm(address)
}

// Where a filter selects nothing, the page says what each part of it takes away, and does not count that again every few seconds. The
// keyboard stays where it is while the list is read again, and what is typed while a dialog lies over the list is no command.
func TestPage_ListIsLiveAndCalm(t *testing.T) {
	address := toured.address(t)
	p := newBrowser(t).tab(address+"/?q=agent:nobody+words:Paris", 1440, 900, false)
	p.shows(".empty li", "agent:nobody", "runs in 12 weeks")
	counts := p.asked("/v1/statistics")
	p.polls(2)
	if n := p.asked("/v1/statistics") - counts; n > 0 {
		t.Errorf("while a filter selects nothing, the page counts runs %d times in two readings of the list", n)
	}
	p.visit("?")
	p.wait("#waits a")
	p.run(chromedp.KeyEvent("w"))
	p.until(`document.activeElement.matches("#waits a")`)
	p.polls(2)
	if !eval[bool](p, `document.activeElement.matches("#waits a")`) {
		t.Error("what waits for a person loses the keyboard when it is read again")
	}
	p.run(chromedp.Evaluate(`document.activeElement.blur()`, nil))
	for _, at := range []string{"?q=status:error", "?numbers=agent", "?thread=trip-planner&run=no&compare=yes"} {
		p.visit(at)
		p.wait("main")
		before := eval[string](p, `location.href`)
		p.run(chromedp.KeyEvent("?"))
		p.wait("dialog[open]")
		for _, key := range []string{"x", "v", "s"} {
			p.run(chromedp.KeyEvent(key))
		}
		if now := eval[string](p, `location.href`); now != before {
			t.Errorf("keys under a dialog lead from %s to %s", before, now)
		}
		p.run(chromedp.KeyEvent(kb.Escape))
		p.until(`!document.querySelector("dialog[open]")`)
	}
	p.calm(address)
}
