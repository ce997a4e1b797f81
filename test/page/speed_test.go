package page_test

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/chromedp/cdproto/emulation"
	"github.com/chromedp/cdproto/page"
	"github.com/chromedp/cdproto/performance"
	"github.com/chromedp/chromedp"
	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/skeinhq/skein/internal/app/dev"
	"github.com/skeinhq/skein/internal/app/dev/devtest"
	"github.com/skeinhq/skein/internal/cli"
	"github.com/skeinhq/skein/internal/seedtest"
	"github.com/skeinhq/skein/pkg/kafka"
	"github.com/skeinhq/skein/pkg/record"
)

// slack is what the bounds, which are those of a machine that does nothing else, are multiplied by.
var slack = 15.0

// The page is quick on threads and runs that are long, and says the same of them.
func TestPage_IsQuick(t *testing.T) {
	if !*long {
		t.Skip("make bench-page runs it")
	}
	address := devtest.Start(t).URL()
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
			object{"type": "TEXT_MESSAGE_START", "messageId": fmt.Sprint("m", n), "role": "assistant"},
			object{"type": "TEXT_MESSAGE_CONTENT", "messageId": fmt.Sprint("m", n), "delta": "Words."},
			object{"type": "TEXT_MESSAGE_END", "messageId": fmt.Sprint("m", n)},
			object{"type": "RUN_FINISHED", "threadId": "long", "runId": fmt.Sprint("r", n)})
	}
	// More threads than the list reads at once, the latest last by id, and before all of them one that waits for a person.
	const threads = 300
	ago := time.Now().Add(-24 * time.Hour).UnixMilli()
	publish(t, address, "waits", "r", nil, object{"type": "RUN_STARTED", "threadId": "waits", "runId": "r", "timestamp": ago},
		object{"type": "RUN_FINISHED", "threadId": "waits", "runId": "r", "timestamp": ago + 1000,
			"outcome": object{"type": "interrupt", "interrupts": []any{object{"id": "i", "reason": "confirm", "message": "Shall I?"}}}})
	for n := range threads {
		id, at := fmt.Sprintf("short-%03d", n), time.Now().Add(time.Duration(n-threads)*time.Minute).UnixMilli()
		publish(t, address, id, "r", nil, object{"type": "RUN_STARTED", "threadId": id, "runId": "r", "timestamp": at},
			object{"type": "RUN_FINISHED", "threadId": id, "runId": "r", "timestamp": at + 1000})
	}
	many := func(thread string, n int) (changes int) {
		events := []any{object{"type": "RUN_STARTED", "threadId": thread, "runId": "r"},
			object{"type": "STATE_SNAPSHOT", "snapshot": object{"n": 0}}}
		for k := 0; len(events) < n-1; k++ {
			id := fmt.Sprint("m", k)
			events = append(events, object{"type": "TEXT_MESSAGE_START", "messageId": id, "role": "assistant"})
			for range 95 {
				events = append(events, object{"type": "TEXT_MESSAGE_CONTENT", "messageId": id, "delta": "some words "})
			}
			events = append(events, object{"type": "TEXT_MESSAGE_END", "messageId": id},
				object{"type": "STATE_DELTA", "delta": []any{object{"op": "replace", "path": "/n", "value": k}}})
		}
		events = append(events[:n-1], object{"type": "RUN_FINISHED", "threadId": thread, "runId": "r"})
		for _, e := range events {
			if strings.HasPrefix(e.(object)["type"].(string), "STATE_") {
				changes++
			}
		}
		for from := 0; from < len(events); from += 4000 {
			publish(t, address, thread, "r", nil, events[from:min(from+4000, len(events))]...)
		}
		get(t, address+"/v1/threads/"+thread, func(s struct{ Status string }) bool { return s.Status == "finished" })
		return changes
	}
	many("events-36000", 36_000)
	changes := many("events-5000", 5000)
	get(t, address+"/v1/threads/long/lineage", func(l struct{ Runs []any }) bool { return len(l.Runs) == 200 })
	b := newBrowser(t)
	list := b.tab(address+"/", 1440, 900, false)
	list.wait("[data-row]")

	timed := func(what, path, ready string, bound time.Duration) *tab {
		return b.timed(what, address+path, ready, bound)
	}
	timed("first view of a thread of 200 runs", "/?thread=long", `document.querySelector(".grow-row") && document.querySelector(".msg")`, time.Second)
	p := timed("opening a run of 36,000 events", "/?thread=events-36000", `document.querySelector(".msg")`, 2*time.Second)
	p.until(`document.querySelector(".track")?.getAttribute("aria-valuemax") === "36000"`)
	began := time.Now()
	p.visit("?thread=events-36000&at=18000&zoom=raw")
	p.until(`document.querySelector("#state")?.dataset.n === "18000" && document.querySelector(".list.raw .r[aria-current]")?.innerText.startsWith("18000")`)
	t.Logf("an event in its middle is there after %v", time.Since(began).Round(time.Millisecond))
	want := get(t, address+"/v1/threads/events-36000/runs/r/state?at=18000",
		func(s struct{ State struct{ N int } }) bool { return s.State.N > 0 })
	p.shows("#state", fmt.Sprint("n ", want.State.N))
	if n := p.asked("/state?"); n > 8 {
		t.Errorf("looking at two places of a run of 36,000 events takes %d requests", n)
	}
	p.calm(address)

	p = timed("opening a run of 5,000 events", "/?thread=events-5000", `document.querySelector(".where")?.innerText.includes("time to scale")`, 2*time.Second)
	// Pages of it come in any order, and each of its events counts.
	if n := eval[int](p, `document.querySelectorAll(".track .t-state").length`); n != changes {
		t.Errorf("the scrubber marks %d changes of the state, want %d", n, changes)
	}
	frames := eval[float64](p, `new Promise((done) => {
		const track = document.querySelector(".track"), box = track.getBoundingClientRect();
		track.setPointerCapture = () => {};
		const at = (type, x) => track.dispatchEvent(new PointerEvent(type, { clientX: box.left + x * box.width, clientY: box.top + 30, pointerId: 1, bubbles: true }));
		at("pointerdown", 0);
		const began = performance.now();
		let frames = 0;
		const next = (now) => {
			const t = (now - began) / 2000;
			if (t >= 1) { at("pointerup", 1); return done(frames / 2); }
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

	// What a tab holds of a run is bounded by its size, too: pages that are far from where one looks go, and are read again.
	heavy := []any{object{"type": "RUN_STARTED", "threadId": "heavy", "runId": "r"}}
	for k := range 6000 { // 60 MB, of which a tab holds 48
		heavy = append(heavy, object{"type": "CUSTOM", "name": fmt.Sprint("page ", k), "value": strings.Repeat("heavy ", 1700)})
	}
	for from := 0; from < len(heavy); from += 300 {
		publish(t, address, "heavy", "r", nil, heavy[from:min(from+300, len(heavy))]...)
	}
	publish(t, address, "heavy", "r", nil, object{"type": "RUN_FINISHED", "threadId": "heavy", "runId": "r"})
	get(t, address+"/v1/threads/heavy", func(s struct{ Status string }) bool { return s.Status == "finished" })
	p = b.tab(address+"/?thread=heavy&zoom=raw&at=5", 1440, 900, false)
	for _, at := range []int{5, 5990, 7} {
		p.visit(fmt.Sprintf("?thread=heavy&zoom=raw&at=%d", at))
		p.shows(".list.raw .r[aria-current]", fmt.Sprintf("page %d ·", at-2))
		for before := -1; before != p.asked("/state?"); time.Sleep(2 * time.Second) { // what is read by itself has come
			before = p.asked("/state?")
		}
		p.until(`((n) => n >= 1000 && n < 5900)(Number(/([^\n]*) read/.exec(document.querySelector(".where")?.innerText)?.[1].replace(/\D/g, "")))`)
	}
	p.calm(address)

	// The list has the latest threads first, and reads on where one scrolls.
	list.run(page.BringToFront())
	if n := eval[int](list, `document.querySelector(".threads .virtual").offsetHeight / 48`); n > threads {
		t.Errorf("the list has %d threads before anybody scrolls", n)
	}
	if ids := eval[[]string](list, `[...document.querySelectorAll("[data-row] code")].map((c) => c.textContent)`); !slices.Contains(ids, fmt.Sprintf("short-%03d", threads-1)) {
		t.Errorf("the first threads of the list are %q, without the latest", ids)
	}
	list.until(`((s) => (s.scrollTop = s.scrollHeight, [...document.querySelectorAll("[data-row]")].some((r) => r.innerText.includes("short-000"))))(document.querySelector(".threads .scroll"))`)
	list.mu.Lock()
	for _, r := range list.requests {
		if strings.Contains(r, "/v1/threads?") && !strings.Contains(r, "prefix=") {
			t.Errorf("the list reads all threads: %s", r)
		}
	}
	list.mu.Unlock()
	list.calm(address)
	// What waits is there under a filter that selects it, also where the list has not read so far back.
	list.run(chromedp.Evaluate(`document.querySelector(".threads .scroll").scrollTop = 0`, nil))
	list.visit("?q=since:2w")
	list.shows("#waits", "1 run waits for a person", "Shall I?")
	list.calm(address)

	// At rest: the time that the tab works in some seconds of nothing, while a run goes on.
	const seconds = 30
	publish(t, address, "open", "r", nil, object{"type": "RUN_STARTED", "threadId": "open", "runId": "r"})
	for _, view := range []struct{ what, path, ready string }{
		{"the list", "/", `document.querySelector("[data-row] .status.running")`}, {"a thread", "/?thread=open", `document.querySelector(".graph .pulse")`},
	} {
		p = timed(view.what+" to rest on", view.path, view.ready, time.Second)
		p.run(performance.Enable().WithTimeDomain(performance.EnableTimeDomainThreadTicks), emulation.SetEmulatedMedia()) // with motion
		before := p.worked()
		eval[bool](p, fmt.Sprintf(`new Promise((done) => setTimeout(() => done(true), %v))`, 1000*seconds))
		share := (p.worked() - before) / seconds
		t.Logf("%s at rest: %.2f %% of a core", view.what, 100*share)
		if share > 0.01*slack {
			t.Errorf("at rest %s takes %.1f %% of a core, want 1 %%", view.what, 100*share)
		}
	}
}

// Nothing moves in the list, and in a thread only what runs: by steps, and without layout or painting.
func TestPage_MovesWhatRuns(t *testing.T) {
	address := toured.address(t)
	p := newBrowser(t).tab(address+"/", 1440, 900, false)
	p.run(emulation.SetEmulatedMedia())
	const moving = `document.getAnimations().filter((a) => a.playState === "running").map((a) => a.animationName + " " + a.effect.getTiming().easing + a.effect.getKeyframes().map((k) => " " + k.easing + " " + Object.keys(k).filter((p) => !["offset", "computedOffset", "easing", "composite"].includes(p)).sort()))`
	for view, want := range map[string][]string{
		"?": nil, "?numbers=agent": nil, "?thread=trip-planner&run=yes": {"pulse linear steps(6) opacity,transform, steps(6) opacity,transform"},
	} {
		p.visit(view)
		p.until(`document.querySelector("[data-row] .status.running, .multiples .cell, .chat .msg")`)
		if got := eval[[]string](p, moving); !slices.Equal(got, want) {
			t.Errorf("on %s there move %q, want %q", view, got, want)
		}
	}
	p.calm(address)
}

// timed opens a view and measures until it is ready.
func (b *browser) timed(what, address, ready string, bound time.Duration) *tab {
	b.t.Helper()
	began := time.Now()
	p := b.tab(address, 1440, 900, false)
	p.until(ready)
	took := time.Since(began)
	b.t.Logf("%s: %v", what, took.Round(time.Millisecond))
	if took > time.Duration(slack*float64(bound)) {
		b.t.Errorf("%s took %v, want %v at most", what, took, bound)
	}
	return p
}

// A thread of 10,000 runs (1,000 in the short form) opens and scrolls without stutter, folded and unfolded, and has the rows, lanes and
// branches that skein lineage gives.
func TestPage_ManyRuns(t *testing.T) {
	n := 1000
	if *long {
		n = 10_000
	}
	s := devtest.Start(t)
	seed := seedtest.New(t)
	t.Logf("%d runs, seed %d", n, seed)
	const thread = "many"
	produce(t, s, talk(thread, n, seed))
	base := s.URL() + "/v1/threads/" + thread
	get(t, base+"/lineage", func(l struct{ Runs []struct{ Status string } }) bool {
		return len(l.Runs) == n && l.Runs[n-1].Status == "finished"
	})
	type drawn struct {
		Run          string
		Lane, Branch int
	}
	var out, errs bytes.Buffer
	if err := cli.Run(t.Context(), []string{"lineage", thread, "--json", "--url=" + s.URL()}, nil, &out, &errs); err != nil {
		t.Fatalf("%v: %s", err, &errs)
	}
	var l struct {
		Picture struct {
			Rows []struct {
				RunID        string
				Lane, Branch int
			}
			Lanes int
		}
	}
	if err := json.Unmarshal(out.Bytes(), &l); err != nil {
		t.Fatal(err)
	}
	var want []drawn
	for _, r := range l.Picture.Rows {
		want = append(want, drawn{r.RunID, r.Lane, r.Branch})
	}

	b := newBrowser(t)
	b.tab(s.URL()+"/", 1440, 900, false).wait("[data-row]")
	p := b.timed(fmt.Sprintf("first view of a thread of %d runs", n), s.URL()+"/?thread="+thread, `document.querySelector(".grow-row") && document.querySelector(".msg")`, 3*time.Second)
	const scroller = `document.querySelector(".graph .scroll")`
	// The run at the tip has a row of its own also where its fold is closed, so that what is drawn is what the picture has.
	got := eval[[]drawn](p, `(async () => {
		const list = `+scroller+`, rows = new Map(), frame = () => new Promise(requestAnimationFrame);
		for (let top = 0; ; top += list.clientHeight) {
			list.scrollTop = top;
			const bottom = Math.min(top + list.clientHeight - 8, list.querySelector(".virtual").offsetHeight) - 1;
			do await frame(); while (![...list.querySelectorAll(".at")].some((r) => r.offsetTop <= bottom && r.offsetTop + r.offsetHeight > bottom));
			for (const b of list.querySelectorAll(".grow-row")) rows.set(b.dataset.run, { Run: b.dataset.run, Lane: Number(b.dataset.lane), Branch: Number(b.dataset.branch), at: b.parentElement.offsetTop });
			if (top + list.clientHeight >= list.scrollHeight) return [...rows.values()].sort((a, b) => a.at - b.at);
		}
	})()`)
	if !slices.Equal(got, want) {
		t.Errorf("the page draws %d rows, which are not the %d of skein lineage", len(got), len(want))
	}
	t.Logf("%d rows in %d lanes are those of skein lineage", len(got), l.Picture.Lanes)
	scroll := func(what string) {
		t.Helper()
		before := p.worked()
		shown := eval[[2]float64](p, `new Promise((done) => {
			const list = `+scroller+`, began = performance.now();
			let frames = 0, longest = 0, before = began;
			const next = (now) => {
				const t = (now - began) / 2000;
				if (t >= 1) return done([frames / 2, longest]);
				frames++; longest = Math.max(longest, now - before); before = now;
				list.scrollTop = (list.scrollHeight - list.clientHeight) * (1 - Math.cos(t * 6 * Math.PI)) / 2;
				requestAnimationFrame(next);
			};
			requestAnimationFrame(next);
		})`)
		t.Logf("scrolling through %s: %.0f frames a second of %.1f ms of work, the longest %.0f ms apart", what, shown[0], 1000*(p.worked()-before)/max(1, 2*shown[0]), shown[1])
		if shown[0] < 30/slack {
			t.Errorf("scrolling through %s makes %.0f frames a second, want 30", what, shown[0])
		}
	}
	// Processor time, whatever else the machine does.
	p.run(performance.Enable().WithTimeDomain(performance.EnableTimeDomainThreadTicks))
	scroll("the folded rows")
	p.run(chromedp.KeyEvent("f"))
	p.until(fmt.Sprintf(`%s.scrollHeight > %d`, scroller, 28*n*9/10))
	scroll("a row for each run")
	p.calm(s.URL())

	// A comparison is as quick: of texts that differ only those in view are compared, and a list of runs has those around the chosen one.
	var one, other []object
	for k := range 150 {
		one = append(one, object{"id": fmt.Sprint("m", k), "role": "user", "content": fmt.Sprint("Words of one, message ", k)})
		other = append(other, object{"id": fmt.Sprint("m", k), "role": "user", "content": fmt.Sprint("Words of the other, message ", k)})
	}
	for run, messages := range map[string][]object{"one": one, "other": other} {
		publish(t, s.URL(), "apart", run, nil, object{"type": "RUN_STARTED", "threadId": "apart", "runId": run},
			object{"type": "MESSAGES_SNAPSHOT", "messages": messages}, object{"type": "RUN_FINISHED", "threadId": "apart", "runId": run})
	}
	get(t, s.URL()+"/v1/threads/apart/lineage", func(l struct{ Runs []any }) bool { return len(l.Runs) == 2 })
	p = b.timed("comparing two runs", s.URL()+"/?thread=apart&run=other&compare=one", `document.querySelector(".pair .w")`, time.Second)
	compared := `[...document.querySelectorAll(".pair")].map((p) => p.querySelector(".w") !== null)`
	if got := eval[[]bool](p, compared); len(got) != 150 || slices.Contains(got[100:], true) {
		t.Errorf("of %d pairs those that are out of view are compared, too: %v", len(got), got)
	}
	p.run(chromedp.Evaluate(`document.querySelectorAll(".pair")[149].scrollIntoView()`, nil))
	p.until(compared + `[149]`)
	p.visit("?thread=" + thread + "&run=r500&compare=r499")
	p.until(`document.querySelector("#side-B")?.value === "r500" && document.querySelector("#side-A").value === "r499"`)
	if n := eval[int](p, `document.querySelectorAll("#side-B option").length`); n > 202 {
		t.Errorf("%d runs to choose from", n)
	}
	p.calm(s.URL())

	// What the proxy has left out is said of the run.
	p = b.tab(s.URL()+"/?thread=lossy", 1440, 900, false)
	p.until(`[...document.querySelectorAll(".facts .badge")].some((b) => b.textContent === "incomplete")`)
}

// talk are the records of a talk of n runs, of which some ask again or go back, and those of a run that its proxy left events out of.
func talk(thread string, n int, seed uint64) map[string][]sent {
	rng := rand.New(rand.NewPCG(seed, 0))
	parents := make([]int, n)
	log := map[string][]sent{"lossy": {
		{record.Headers{RunID: "r", Seq: -1}, `{"type":"RUN_STARTED","threadId":"lossy","runId":"r"}`},
		{record.Headers{RunID: "r", Seq: -1, Incomplete: 3}, `{"type":"RUN_FINISHED","threadId":"lossy","runId":"r"}`},
	}}
	for i := range n {
		from := i - 1
		switch x := rng.Float64(); {
		case i > 1 && x < 0.1:
			from = parents[i-1]
		case i > 1 && x < 0.15:
			for range 1 + rng.IntN(8) {
				from = max(0, parents[max(0, from)])
			}
		}
		parents[i] = max(0, from)
		id, started := fmt.Sprint("r", i), object{"type": "RUN_STARTED", "threadId": thread, "runId": fmt.Sprint("r", i)}
		if from >= 0 {
			started["parentRunId"] = fmt.Sprint("r", from)
		}
		for _, e := range []object{started, {"type": "TEXT_MESSAGE_CHUNK", "messageId": "m" + id, "role": "assistant", "delta": "Words of " + id},
			{"type": "RUN_FINISHED", "threadId": thread, "runId": id}} {
			text, _ := json.Marshal(e) // maps of strings always encode
			log[thread] = append(log[thread], sent{record.Headers{RunID: id, Seq: -1}, string(text)})
		}
	}
	return log
}

// sent is a record of skein.events: its headers and its value.
type sent struct {
	headers record.Headers
	value   string
}

// produce writes records to Kafka, which is quicker than a request for each run.
func produce(t *testing.T, s *dev.Server, log map[string][]sent) {
	t.Helper()
	client, err := kgo.NewClient(kgo.SeedBrokers(s.Broker())) //nolint:forbidigo // a producer from outside, as a user has it
	if err != nil {
		t.Fatal(err)
	}
	defer client.Close()
	topic := kafka.Config{}.Topics().Events
	for thread, list := range log {
		key, err := record.ThreadKey(dev.Tenant, thread)
		if err != nil {
			t.Fatal(err)
		}
		var records []*kgo.Record
		for _, one := range list {
			one.headers.Kind = record.KindEvent
			records = append(records, &kgo.Record{Topic: topic, Key: []byte(key), Value: []byte(one.value), Headers: kafka.Headers(one.headers)})
		}
		if err := client.ProduceSync(t.Context(), records...).FirstErr(); err != nil {
			t.Fatal(err)
		}
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
