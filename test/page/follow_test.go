package page_test

import (
	"fmt"
	"net/http"
	"strings"
	"testing"

	"github.com/chromedp/chromedp"
	"github.com/chromedp/chromedp/kb"
)

// A live answer is followed while the reader is at its end. Who reads above it is left where they are, and sees how much is new.
func TestPage_FollowsALiveAnswer(t *testing.T) {
	address := written.address(t)
	const thread = "slow-answer"
	said := 0
	say := func(messages int) {
		t.Helper()
		var events []any
		for range messages {
			events = append(events, object{"type": "TEXT_MESSAGE_CHUNK", "messageId": fmt.Sprint("m", said), "role": "assistant",
				"delta": strings.Repeat(fmt.Sprintf("Line of message %d.\n\n", said), 4)})
			said++
		}
		publish(t, address, thread, "r", nil, events...)
	}
	publish(t, address, thread, "r", nil, object{"type": "RUN_STARTED", "threadId": thread, "runId": "r"})
	say(40)
	get(t, address+"/v1/threads/"+thread+"/lineage", func(l struct{ Runs []any }) bool { return len(l.Runs) == 1 })
	p := newBrowser(t).tab(address+"/?thread="+thread, 1440, 900, false)
	// A place is read whenever what scrolls has grown, as it is about to be drawn.
	const watch = `(() => {
		const s = document.querySelector("#view .scroll");
		window.tops = new Set(), window.gaps = [];
		new ResizeObserver(() => { window.tops.add(Math.round(s.scrollTop)); window.gaps.push(Math.round(s.scrollHeight - s.scrollTop - s.clientHeight)); }).observe(s.firstElementChild);
		return true;
	})()`
	newest := func() string {
		return fmt.Sprintf(`document.querySelector("#view").innerText.includes("message %d.")`, said-1)
	}
	const gap = `((s) => s.scrollHeight - s.scrollTop - s.clientHeight)(document.querySelector("#view .scroll"))`
	for zoom, grown := range map[string]func() string{
		"": newest, "story": newest,
		"timeline": func() string { return `document.querySelectorAll(".bar-row").length > 0` },
		"raw":      newest,
	} {
		t.Run("zoom "+zoom, func(t *testing.T) {
			p.t = t
			p.visit("?thread=" + thread + "&zoom=" + zoom)
			p.until(`document.querySelector("main")?.dataset.live === "true" && document.querySelector("#view .scroll") && ` + gap + ` < 4`)
			p.until(newest())
			eval[bool](p, watch)
			for range 2 {
				before := eval[int](p, `document.querySelector("#view .scroll").scrollHeight`)
				say(3)
				p.until(fmt.Sprintf(`document.querySelector("#view .scroll").scrollHeight > %d && `, before) + grown() + " && " + gap + " < 4")
			}
			if away := eval[[]int](p, `window.gaps.filter((g) => g > 3)`); len(away) > 0 {
				t.Errorf("the end was out of view %d times, by %v pixels", len(away), away)
			}
			if n := eval[int](p, `window.tops.size`); n < 3 {
				t.Errorf("the view moved %d times", n)
			}
			// The reader scrolls up, as a wheel does.
			p.run(chromedp.Evaluate(`document.querySelector("#view .scroll").scrollTop -= 60`, nil))
			p.until(gap + " > 40")
			eval[bool](p, watch)
			for k := range 2 {
				say(2)
				p.until(fmt.Sprintf(`document.querySelector(".newer")?.textContent === "↓ %d new events"`, 2*(k+1)))
			}
			if tops := eval[[]int](p, `[...window.tops]`); len(tops) != 1 {
				t.Errorf("the view moved under its reader: %v", tops)
			}
			if zoom == "" {
				p.accessible()
			}
			p.click(".newer", "↓ 4 new")
			p.until(gap + ` < 4 && !document.querySelector(".newer") && document.activeElement.matches("#view .scroll")`)
			say(1)
			p.until(gap + " < 4 && " + grown())
			p.run(chromedp.KeyEvent(kb.Home))
			p.until(`document.querySelector("#view .scroll").scrollTop === 0 && location.search.includes("at=0")`)
			p.run(chromedp.KeyEvent(kb.End))
			p.until(gap + ` < 4 && !location.search.includes("at=")`)
			p.click(".scrub button", "First event")
			p.until(`location.search.includes("run=r&at=0")`) // the event is one of this run
			p.click(".scrub button", "Last event")
			p.until(gap + ` < 4 && !location.search.includes("at=")`)
		})
		p.t = t
	}

	// What a reader opens or looks at stays as it is while more comes.
	args := func(id, delta string) object {
		return object{"type": "TOOL_CALL_ARGS", "toolCallId": id, "delta": delta}
	}
	p.visit("?thread=" + thread)
	publish(t, address, thread, "r", nil, object{"type": "STATE_SNAPSHOT", "snapshot": object{"sky": "sunny"}},
		object{"type": "TOOL_CALL_START", "toolCallId": "a", "toolCallName": "book"},
		object{"type": "TOOL_CALL_START", "toolCallId": "b", "toolCallName": "ride"},
		args("a", `{"city": "Oslo"`), args("b", `{"from": "Rome"`))
	p.shows(".chat summary", "Rome")
	if eval[bool](p, `document.querySelector(".inspect .warns") !== null`) {
		t.Error("the calls of a run that goes on are said to lack results")
	}
	p.click(".chat summary", "ride")
	publish(t, address, thread, "r", nil, args("b", `, "to": "Pisa"`))
	p.shows(".chat details[open] summary", "Pisa")
	p.visit("?thread=" + thread + "&find=Oslo")
	p.shows(".finder .says", "1 found")
	p.click(".finder button", "Next hit")
	p.shows(".msg.now details[open] summary", "Oslo") // the call that the event is about, not the last that is open
	p.shows(".inspect .warns", "book, ride")
	p.resize(size{1440, 300, 1})
	p.visit("?thread=" + thread + "&find=sunny")
	p.shows(".finder .says", "1 found")
	p.click(".finder button", "Next hit")
	p.wait("#state .ch")
	const pane = `document.querySelector(".inspect .scroll")`
	p.until(`(` + pane + `.scrollTop = 1e6, ` + pane + `.scrollTop > 200)`)
	read, events := eval[int](p, pane+`.scrollTop`), eval[string](p, `document.querySelector("#state h2").textContent`)
	publish(t, address, thread, "r", nil, args("b", `, "at": 9`))
	p.until(`document.querySelector("#state h2").textContent !== ` + marshal(t, events))
	if now := eval[int](p, pane+`.scrollTop`); now != read {
		t.Errorf("the state moved under its reader from %d to %d", read, now)
	}
	p.resize(size{1440, 900, 1})
	p.visit("?thread=" + thread)
	p.run(chromedp.KeyEvent(kb.End))
	p.until(gap + " < 4")
	publish(t, address, thread, "r", nil, object{"type": "RUN_FINISHED", "threadId": thread, "runId": "r"})
	p.until(`document.querySelector(".runhead .status.finished") && ` + gap + ` < 4`)

	// Nor does a new run take the view away from who reads this one.
	p.visit("?thread=" + thread)
	p.until(`document.querySelector("main")?.dataset.live === "true" && document.querySelector("#view .scroll > .chat")`)
	p.until(`((s) => (s.scrollTop = 0, true))(document.querySelector("#view .scroll")) && ` + gap + ` > 40`)
	publish(t, address, thread, "r2", nil, object{"type": "RUN_STARTED", "threadId": thread, "runId": "r2"},
		object{"type": "TEXT_MESSAGE_CHUNK", "messageId": "n", "role": "assistant", "delta": "I am new."})
	p.shows(".tabs", "A new run has begun")
	if at := eval[string](p, "location.search"); !strings.Contains(at, "run=r") || strings.Contains(at, "run=r2") {
		t.Errorf("the page is at %s", at)
	}
	p.click(".tabs button", "A new run has begun")
	p.shows(".chat", "I am new.")
	p.until(`!location.search.includes("run=")`)
	p.calm(address)
}

// A thread that is not there yet is waited for, and one that is erased leaves the screen.
func TestPage_WaitsForAThreadAndLeavesAnErasedOne(t *testing.T) {
	address := written.address(t)
	const thread = "comes-and-goes"
	p := newBrowser(t).tab(address+"/?thread="+thread+"&run=r", 1440, 900, false)
	p.shows("[role=status]", "No thread "+thread+" yet")
	if eval[bool](p, `document.querySelector("[role=alert]") !== null`) {
		t.Error("a thread that is not there yet is an alert")
	}
	p.accessible()
	publish(t, address, thread, "r", nil, object{"type": "RUN_STARTED", "threadId": thread, "runId": "r"},
		object{"type": "TEXT_MESSAGE_CHUNK", "messageId": "m", "role": "assistant", "delta": "Here I am."},
		object{"type": "RUN_FINISHED", "threadId": thread, "runId": "r"})
	p.shows(".chat", "Here I am.")
	p.visit("?thread=" + thread + "&run=nobody")
	p.shows("h1", "This thread has no run nobody")
	p.click("a", "Its latest run")
	p.shows(".chat", "Here I am.")
	// Its stream has sent nothing when the thread is erased in another tab.
	p = newBrowser(t).tab(address+"/?thread="+thread, 1440, 900, false)
	p.shows(".chat", "Here I am.")
	p.until(`document.querySelector("main").dataset.live === "true"`)
	send(t, http.MethodDelete, address+"/v1/threads/"+thread, "", "")
	p.shows("h1", "This thread was erased at 20")
	if text := eval[string](p, `document.body.innerText`); strings.Contains(text, "Here I am.") || strings.Contains(text, "cannot be shown") {
		t.Errorf("of an erased thread the page shows %s", text)
	}
	publish(t, address, thread, "r2", nil, object{"type": "RUN_STARTED", "threadId": thread, "runId": "r2"},
		object{"type": "TEXT_MESSAGE_CHUNK", "messageId": "m", "role": "assistant", "delta": "Here I am again."})
	p.shows(".chat", "Here I am again.")
	p.calm(address)
}
