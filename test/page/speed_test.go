package page_test

import (
	"context"
	"fmt"
	"testing"
	"time"

	"github.com/chromedp/cdproto/performance"
	"github.com/chromedp/chromedp"
)

// The page is quick on threads and runs that are long. Bounds are those of a machine that does nothing else, times slack.
const slack = 5

func TestPage_IsQuick(t *testing.T) {
	address := serve(t)
	for n := range 200 {
		parent := ""
		if n > 0 {
			parent = fmt.Sprint("r", n-1-n%3)
		}
		started := object{"type": "RUN_STARTED", "threadId": "long", "runId": fmt.Sprint("r", n)}
		if parent != "" {
			started["parentRunId"] = parent
		}
		publish(t, address, "long", fmt.Sprint("r", n), nil, started,
			object{"type": "TEXT_MESSAGE_START", "messageId": fmt.Sprint("m", n), "role": "assistant"}, object{"type": "TEXT_MESSAGE_CONTENT", "messageId": fmt.Sprint("m", n), "delta": "Words."},
			object{"type": "TEXT_MESSAGE_END", "messageId": fmt.Sprint("m", n)}, object{"type": "RUN_FINISHED", "threadId": "long", "runId": fmt.Sprint("r", n)})
	}
	many := func(thread string, n int) {
		events := []any{object{"type": "RUN_STARTED", "threadId": thread, "runId": "r"}, object{"type": "STATE_SNAPSHOT", "snapshot": object{"n": 0}}}
		for k := 0; len(events) < n-1; k++ {
			id := fmt.Sprint("m", k)
			events = append(events, object{"type": "TEXT_MESSAGE_START", "messageId": id, "role": "assistant"})
			for range 95 {
				events = append(events, object{"type": "TEXT_MESSAGE_CONTENT", "messageId": id, "delta": "some words "})
			}
			events = append(events, object{"type": "TEXT_MESSAGE_END", "messageId": id}, object{"type": "STATE_DELTA", "delta": []any{object{"op": "replace", "path": "/n", "value": k}}})
		}
		events = append(events[:n-1], object{"type": "RUN_FINISHED", "threadId": thread, "runId": "r"})
		for from := 0; from < len(events); from += 4000 {
			publish(t, address, thread, "r", nil, events[from:min(from+4000, len(events))]...)
		}
		get(t, address+"/v1/threads/"+thread, func(s struct{ Status string }) bool { return s.Status == "finished" })
	}
	many("events-36000", 36_000)
	many("events-5000", 5000)
	get(t, address+"/v1/threads/long/lineage", func(l struct{ Runs []any }) bool { return len(l.Runs) == 200 })
	b := newBrowser(t)
	warm := b.tab(address+"/", 1440, 900, false)
	warm.wait("[data-row]")

	timed := func(what, path, ready string, bound time.Duration) *tab {
		began := time.Now()
		p := b.tab(address+path, 1440, 900, false)
		p.until(ready)
		took := time.Since(began)
		t.Logf("%s: %v", what, took.Round(time.Millisecond))
		if took > slack*bound {
			t.Errorf("%s took %v, want %v at most", what, took, bound)
		}
		return p
	}
	timed("first view of a thread of 200 runs", "/?thread=long", `document.querySelector(".grow-row") && document.querySelector(".msg")`, time.Second)
	p := timed("opening a run of 36,000 events", "/?thread=events-36000", `document.querySelector(".msg")`, 2*time.Second)
	began := time.Now()
	p.until(`document.querySelector(".track")?.getAttribute("aria-valuemax") >= 35999`)
	t.Logf("all of its events are there after another %v", time.Since(began).Round(time.Millisecond))

	p = timed("opening a run of 5,000 events", "/?thread=events-5000", `document.querySelector(".track")?.getAttribute("aria-valuemax") >= 4999`, 2*time.Second)
	frames := eval[float64](p, `new Promise((done) => {
		const track = document.querySelector(".track"), box = track.getBoundingClientRect();
		track.setPointerCapture = () => {};
		const at = (type, x) => track.dispatchEvent(new PointerEvent(type, { clientX: box.left + x * box.width, clientY: box.top + 30, pointerId: 1, bubbles: true }));
		at("pointerdown", 0);
		const began = performance.now();
		let frames = 0;
		const next = (now) => {
			const t = (now - began) / 3000;
			if (t >= 1) { at("pointerup", 1); return done(frames / 3); }
			frames++;
			at("pointermove", (Math.sin(t * 20) + 1) / 2);
			requestAnimationFrame(next);
		};
		requestAnimationFrame(next);
	})`)
	t.Logf("scrubbing a run of 5,000 events: %.0f frames a second", frames)
	if frames < 30.0/slack {
		t.Errorf("scrubbing makes %.0f frames a second, want 30", frames)
	}
	p.calm(address)

	// At rest: the time that the tab works in five seconds of nothing.
	p = timed("a thread to rest on", "/?thread=long&run=r199", `document.querySelector(".msg")`, time.Second)
	p.run(performance.Enable())
	before := p.worked()
	eval[bool](p, `new Promise((done) => setTimeout(() => done(true), 5000))`)
	share := (p.worked() - before) / 5
	t.Logf("at rest: %.2f %% of a core", 100*share)
	if share > 0.02*slack {
		t.Errorf("at rest the page takes %.1f %% of a core, want 2 %%", 100*share)
	}
}

// worked is how many seconds the tab's main thread has worked.
func (p *tab) worked() float64 {
	p.t.Helper()
	var metrics []*performance.Metric
	p.run(chromedp.ActionFunc(func(ctx context.Context) (err error) {
		metrics, err = performance.GetMetrics().Do(ctx)
		return err
	}))
	for _, m := range metrics {
		if m.Name == "TaskDuration" {
			return m.Value
		}
	}
	p.t.Fatal("Chromium does not say how long the tab has worked")
	return 0
}
