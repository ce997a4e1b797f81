package page_test

import (
	"encoding/base64"
	"maps"
	"net/http"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/chromedp/cdproto/fetch"
	"github.com/chromedp/cdproto/network"
	"github.com/chromedp/chromedp"
)

// refuse answers a request with a status and what the API would say.
func refuse(r *fetch.EventRequestPaused, status int64, detail string) chromedp.Action {
	return fetch.FulfillRequest(r.RequestID, status).WithBody(base64.StdEncoding.EncodeToString([]byte(`{"detail":"` + detail + `"}`)))
}

// A run whose events have expired, or are too many, is shown as its record has it, and the page says so. Nothing of the run that was
// chosen before stands under its title.
func TestPage_ShowsTheEndOfARunWhoseEventsAreGone(t *testing.T) {
	address := toured.address(t)
	b := newBrowser(t)
	p := b.tab(address+"/?thread=trip-planner&run=edited", 1440, 900, false)
	p.shows(".chat", "bread for the train")
	var status atomic.Int64
	status.Store(http.StatusGone)
	p.answer("*/state?*", func(r *fetch.EventRequestPaused) chromedp.Action {
		return refuse(r, status.Load(), "the raw events are older than the topic keeps them")
	})
	p.visit("?thread=trip-planner&run=ask")
	p.shows(".gone", "older than the topic keeps them", "This is how it ended")
	p.shows(".chat", "24 messages before this run", "Weather in Paris and Zürich", "Shall I clear the old list?")
	p.shows(".card.wait", "Approve delete_file")
	p.shows("#state", "eggs / ~tilde")
	if text := eval[string](p, `document.querySelector(".run").innerText`); strings.Contains(text, "bread for the train") {
		t.Errorf("under the title of a run is what another says: %s", text)
	}
	p.visit("?thread=trip-planner&run=ask&zoom=story") // of events, of which there are none
	p.until(`document.querySelector(".gone") && !document.querySelector(".list, .scrub")`)
	for _, s := range []int64{http.StatusConflict, http.StatusUnprocessableEntity} {
		status.Store(s)
		p.visit("?thread=trip-planner&run=edited")
		p.shows(".chat", "bread for the train")
		p.visit("?thread=trip-planner&run=archive")
		p.shows(".gone", "This is how it ended")
		p.shows(".card.bad", "the archive did not answer within 5 s", "timeout")
	}
	p.calm(address)
}

// What cannot be read for now is read again by itself, and the page says why it waits.
func TestPage_ReadsAgainWhatFailed(t *testing.T) {
	address := toured.address(t)
	p := newBrowser(t).tab(address+"/", 1440, 900, false)
	p.wait("[data-row]")
	var failures atomic.Int64
	p.answer("*/v1/threads*", func(r *fetch.EventRequestPaused) chromedp.Action {
		if strings.Contains(r.Request.URL, "/checkout") || strings.Contains(r.Request.URL, "/changes") || strings.Contains(r.Request.URL, "?prefix") {
			return fetch.FailRequest(r.RequestID, network.ErrorReasonConnectionRefused)
		}
		if r.Request.Method == http.MethodGet && !strings.Contains(r.Request.URL, "/stream") && failures.Add(1) <= 4 {
			return refuse(r, http.StatusServiceUnavailable, "too much is read at a time")
		}
		return fetch.ContinueRequest(r.RequestID)
	})
	p.visit("?thread=trip-planner&run=edited")
	p.shows("[role=alert]", "too much is read at a time")
	p.shows(".chat", "bread for the train")
	p.shows(".facts-list", "SHA-256") // of the run's facts
	p.until(`document.querySelector("[role=alert]") === null`)
	// What is not read again says why in the page's words, not the browser's.
	const away = "The server does not answer."
	p.visit("?thread=trip-planner&run=export")
	p.click("#state .leaf button", "title")
	p.shows("#state .blame", away)
	p.click(".card.wait button", "Copy the approving input")
	p.shows("#toast", away)
	p.visit("?q=status:error")
	p.shows(".note", "could not be read: "+away)
	p.calm(address)
}

// Whoever does not want to wait until what failed is read again presses a button.
func TestPage_TriesNow(t *testing.T) {
	address := toured.address(t)
	p := newBrowser(t).tab(address+"/", 1440, 900, false)
	p.wait("[data-row]")
	var away atomic.Bool
	p.answer("*/v1/*", func(r *fetch.EventRequestPaused) chromedp.Action {
		if !away.Load() {
			return fetch.ContinueRequest(r.RequestID)
		}
		return fetch.FulfillRequest(r.RequestID, http.StatusServiceUnavailable).WithResponseHeaders([]*fetch.HeaderEntry{{Name: "Retry-After", Value: "600"}})
	})
	for query, ready := range map[string]string{"?numbers=status": ".multiples", "?thread=expenses-may&run=sum": ".chat .msg", "?q=status:error": "[data-row]",
		"?thread=trip-planner&run=edited&compare=ask": ".pair"} {
		away.Store(true)
		p.visit(query)
		p.until(`document.querySelector("[role=alert] .btn")`)
		away.Store(false)
		// A request may still be on its way that was answered before: the button is there again.
		p.until(`(document.querySelector("[role=alert] .btn")?.click(), document.querySelector("[role=alert]") === null) && document.querySelector("` + ready + `")`)
		p.visit("?")
	}
	p.calm(address)
}

// An answer that comes late is of what was looked at then.
func TestPage_LeavesAnswersThatComeLate(t *testing.T) {
	address := toured.address(t)
	p := newBrowser(t).tab(address+"/?thread=trip-planner&run=edited", 1440, 900, false)
	p.wait(".grow-row")
	held, release := make(chan struct{}, 1), make(chan struct{})
	p.answer("*lanes=3", func(r *fetch.EventRequestPaused) chromedp.Action {
		select {
		case held <- struct{}{}:
		default:
		}
		<-release
		return fetch.ContinueRequest(r.RequestID)
	})
	p.visit("?thread=trip-planner&run=edited&lanes=3")
	<-held
	p.visit("?thread=trip-planner&run=edited&lanes=11")
	p.until(`performance.getEntriesByType("resource").some((r) => r.name.includes("lanes=11"))`) // it is answered
	close(release)
	if eval[bool](p, `new Promise((done) => {
		const look = (left) => (document.querySelector(".grow-row[data-kind=bundle]") ? done(true) : left ? requestAnimationFrame(() => look(left - 1)) : done(false));
		look(180);
	})`) {
		t.Error("the page draws the picture that it asked for before")
	}
	p.calm(address)
}

// The stream is opened again: from its beginning where the server cannot go on from the last id, and ever later where the server is away.
func TestPage_OpensTheStreamAgain(t *testing.T) {
	address := toured.address(t)
	p := newBrowser(t).tab(address+"/", 1440, 900, false)
	p.wait("[data-row]")
	var opened, resumed, refused atomic.Int64
	var away atomic.Bool
	p.answer("*/stream", func(r *fetch.EventRequestPaused) chromedp.Action {
		if away.Load() {
			refused.Add(1)
			return refuse(r, http.StatusServiceUnavailable, "away")
		}
		if slices.ContainsFunc(slices.Collect(maps.Keys(r.Request.Headers)),
			func(name string) bool { return strings.EqualFold(name, "Last-Event-ID") }) {
			resumed.Add(1)
			return fetch.ContinueRequest(r.RequestID) // the server refuses it
		}
		if opened.Add(1) > 1 {
			return fetch.ContinueRequest(r.RequestID)
		}
		return fetch.FulfillRequest(r.RequestID,
			http.StatusOK).WithResponseHeaders([]*fetch.HeaderEntry{{Name: "Content-Type", Value: "text/event-stream"}}).
			WithBody(base64.StdEncoding.EncodeToString([]byte("retry: 200\n\nid: 0:999999999\ndata: {\"type\":\"CUSTOM\"}\n\n")))
	})
	p.visit("?thread=trip-planner&run=edited")
	p.until(`document.querySelector("main")?.dataset.live === "true" && document.querySelector(".chat")`)
	for deadline := time.Now().Add(patience); opened.Load() < 2; time.Sleep(10 * time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatalf("the stream was opened %d times from its beginning, %d times from an id that the server does not know", opened.Load(), resumed.Load())
		}
	}
	p.until(`document.querySelector("main").dataset.live === "true"`)
	if n := resumed.Load(); n != 1 {
		t.Errorf("the page went on %d times from an id that the server refuses", n)
	}
	away.Store(true)
	p.visit("?thread=expenses-may&run=sum") // another thread: another stream
	eval[bool](p, `new Promise((done) => setTimeout(() => done(true), 7000))`)
	if n := refused.Load(); n < 2 || n > 5 {
		t.Errorf("in 7 s the page knocked %d times at a server that is away, want 3 or 4: after 1, 2 and 4 s", n)
	}
	p.calm(address)
}
