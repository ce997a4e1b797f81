// Package page_test drives the page in a real Chromium, as skein dev serves it.
package page_test

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/chromedp/cdproto/emulation"
	"github.com/chromedp/cdproto/fetch"
	"github.com/chromedp/cdproto/network"
	"github.com/chromedp/cdproto/runtime"
	"github.com/chromedp/chromedp"

	"github.com/skeinhq/skein/internal/app/dev/devtest"
	"github.com/skeinhq/skein/internal/demo"
	"github.com/skeinhq/skein/test/parts/partstest"
)

// patience is how long a view may take on a machine that does much else; what is measured has its own bounds.
var patience = 30 * time.Second

// play publishes the demo's conversations.
func play(t *testing.T, address string) {
	t.Helper()
	conversations, err := demo.Conversations(time.Now())
	if err != nil {
		t.Fatal(err)
	}
	c := devtest.Client(t, address)
	if _, err := (&demo.Player{Client: c}).Play(t.Context(), conversations); err != nil {
		t.Fatal(err)
	}
}

// publish publishes a run: its input, and its events one a line.
func publish(t *testing.T, address, thread, run string, input any, events ...any) {
	t.Helper()
	publishAs(t, nil, address, thread, run, input, events...)
}

// publishAs publishes a run with headers that say who produces it.
func publishAs(t *testing.T, header []string, address, thread, run string, input any, events ...any) {
	t.Helper()
	base := address + "/v1/threads/" + url.PathEscape(thread) + "/runs/" + url.PathEscape(run)
	if input != nil {
		send(t, http.MethodPut, base+"/input", "application/json", marshal(t, input), header...)
	}
	var b strings.Builder
	for _, e := range events {
		if text, ok := e.(json.RawMessage); ok { // as it is
			b.Write(append(text, '\n'))
			continue
		}
		b.WriteString(marshal(t, e) + "\n")
	}
	send(t, http.MethodPost, base+"/events", "application/x-ndjson", b.String(), header...)
}

func send(t *testing.T, method, address, contentType, body string, header ...string) {
	t.Helper()
	r, err := http.NewRequestWithContext(t.Context(), method, address, strings.NewReader(body))
	if err != nil {
		t.Fatal(err)
	}
	r.Header.Set("Content-Type", contentType)
	for i := 0; i+1 < len(header); i += 2 {
		r.Header.Set(header[i], header[i+1])
	}
	answer, err := http.DefaultClient.Do(r)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = answer.Body.Close() }()
	if text, _ := io.ReadAll(answer.Body); answer.StatusCode/100 != 2 {
		t.Fatalf("%s %s: %d %s", method, address, answer.StatusCode, text)
	}
}

func marshal(t *testing.T, v any) string {
	t.Helper()
	b, err := json.Marshal(v)
	if err != nil {
		t.Fatal(err)
	}
	return string(b)
}

// get reads an answer of the API; the index may be behind, so it is asked again until ready.
func get[T any](t *testing.T, address string, ready func(T) bool) T {
	t.Helper()
	deadline := time.Now().Add(patience)
	for {
		var v T
		r, err := http.NewRequestWithContext(t.Context(), http.MethodGet, address, nil)
		if err != nil {
			t.Fatal(err)
		}
		answer, err := http.DefaultClient.Do(r)
		if err != nil {
			t.Fatal(err)
		}
		body, err := io.ReadAll(answer.Body)
		_ = answer.Body.Close()
		if err == nil && answer.StatusCode == http.StatusOK {
			if err := json.Unmarshal(body, &v); err != nil {
				t.Fatalf("%s: %v", address, err)
			}
			if ready == nil || ready(v) {
				return v
			}
		}
		if time.Now().After(deadline) {
			t.Fatalf("%s: %d %.300s", address, answer.StatusCode, body)
		}
		select {
		case <-t.Context().Done():
			t.Fatal(t.Context().Err())
		case <-time.After(20 * time.Millisecond):
		}
	}
}

// browser is one Chromium.
type browser struct {
	t   *testing.T
	ctx context.Context
}

// chromium is started by the first test that needs it; each opens tabs of its own.
var chromium struct {
	ctx  context.Context
	stop func()
}

func newBrowser(t *testing.T) *browser {
	t.Helper()
	if chromium.ctx != nil {
		return &browser{t, chromium.ctx}
	}
	path := ""
	for _, name := range []string{"chromium", "chromium-browser", "google-chrome"} {
		if found, err := exec.LookPath(name); err == nil {
			path = found
			break
		}
	}
	if path == "" {
		partstest.Skip(t, "no Chromium here, which drives the page: install chromium")
	}
	options := append(chromedp.DefaultExecAllocatorOptions[:], chromedp.ExecPath(path), chromedp.NoSandbox,
		chromedp.WSURLReadTimeout(patience), chromedp.Flag("force-color-profile", "srgb"))
	all, stop := chromedp.NewExecAllocator(context.Background(), options...)
	ctx, cancel := chromedp.NewContext(all, chromedp.WithErrorf(func(format string, args ...any) {
		if !strings.HasPrefix(format, "unhandled node event") { // Chromium has newer ones than chromedp
			fmt.Fprintf(os.Stderr, format+"\n", args...)
		}
	}))
	chromium.stop = func() { cancel(); stop() }
	if err := chromedp.Run(ctx); err != nil {
		t.Fatal(err)
	}
	chromium.ctx = ctx
	return &browser{t, ctx}
}

// tab is one tab, with what went wrong in it.
type tab struct {
	t   *testing.T
	ctx context.Context

	mu       sync.Mutex
	faults   []string
	requests []string
}

func (b *browser) tab(address string, width, height int64, dark bool) *tab {
	b.t.Helper()
	ctx, cancel := chromedp.NewContext(b.ctx)
	b.t.Cleanup(cancel)
	p := &tab{t: b.t, ctx: ctx}
	chromedp.ListenTarget(ctx, func(event any) {
		p.mu.Lock()
		defer p.mu.Unlock()
		switch e := event.(type) {
		case *runtime.EventExceptionThrown:
			p.faults = append(p.faults, "exception: "+e.ExceptionDetails.Error())
		case *runtime.EventConsoleAPICalled:
			if e.Type == runtime.APITypeError || e.Type == runtime.APITypeWarning {
				p.faults = append(p.faults, fmt.Sprintf("console: %s", marshal(b.t, e.Args)))
			}
		case *network.EventRequestWillBeSent:
			p.requests = append(p.requests, e.Request.URL)
		}
	})
	// The first context that a tab runs with is that of its life: it must not have a deadline.
	if err := chromedp.Run(ctx); err != nil {
		b.t.Fatal(err)
	}
	scheme := "light"
	if dark {
		scheme = "dark"
	}
	p.run(network.Enable(), emulation.SetDeviceMetricsOverride(width, height, 1, width < 700),
		emulation.SetEmulatedMedia().WithFeatures([]*emulation.MediaFeature{{Name: "prefers-color-scheme", Value: scheme},
			{Name: "prefers-reduced-motion", Value: "reduce"}}),
		chromedp.Navigate(address))
	return p
}

func (p *tab) run(actions ...chromedp.Action) {
	p.t.Helper()
	ctx, cancel := context.WithTimeout(p.ctx, patience)
	defer cancel()
	if err := chromedp.Run(ctx, actions...); err != nil {
		shot := filepath.Join(artefacts(p.t), "failed.png")
		p.shoot(shot)
		p.t.Fatalf("%v; faults %q; see %s", err, p.faults, shot)
	}
}

// wait waits for something to be on the page.
func (p *tab) wait(selector string) {
	p.t.Helper()
	p.until("document.querySelector(" + marshal(p.t, selector) + ") !== null")
}

// until waits for an expression to be true.
func (p *tab) until(expression string) {
	p.t.Helper()
	// chromedp.Poll makes its function of a string in the page, which the Content-Security-Policy refuses.
	for deadline := time.Now().Add(patience); !eval[bool](p, "Boolean("+expression+")"); {
		if time.Now().After(deadline) {
			shot := filepath.Join(artefacts(p.t), "failed.png")
			p.shoot(shot)
			p.t.Fatalf("%s is not so; faults %q; see %s", expression, p.faults, shot)
		}
		select {
		case <-p.ctx.Done():
			p.t.Fatal(p.ctx.Err())
		case <-time.After(10 * time.Millisecond):
		}
	}
}

func eval[T any](p *tab, expression string) T {
	p.t.Helper()
	var v T
	p.run(chromedp.Evaluate(expression, &v, func(e *runtime.EvaluateParams) *runtime.EvaluateParams { return e.WithAwaitPromise(true) }))
	return v
}

func (p *tab) shoot(file string) {
	p.t.Helper()
	var png []byte
	ctx, cancel := context.WithTimeout(p.ctx, patience)
	defer cancel()
	if err := chromedp.Run(ctx, chromedp.CaptureScreenshot(&png)); err != nil {
		p.t.Logf("taking %s: %v", file, err)
		return
	}
	if err := os.WriteFile(file, png, 0o644); err != nil {
		p.t.Fatal(err)
	}
}

// calm fails the test where anything went wrong in the tab, or a request went to another host.
func (p *tab) calm(address string) {
	p.t.Helper()
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, fault := range p.faults {
		p.t.Errorf("in the page: %s", fault)
	}
	for _, r := range p.requests {
		if !strings.HasPrefix(r, address+"/") && !strings.HasPrefix(r, "blob:"+address) {
			p.t.Errorf("the page asked for %s", r)
		}
	}
	p.faults, p.requests = nil, nil
}

// visit goes to another place of the page, as a link does.
func (p *tab) visit(query string) {
	p.t.Helper()
	p.run(chromedp.Evaluate("history.pushState(null, '', "+marshal(p.t, query)+"); dispatchEvent(new PopStateEvent('popstate'))", nil))
}

// answer has f say how requests of these addresses are answered; several may be asked at a time.
func (p *tab) answer(addresses string, f func(*fetch.EventRequestPaused) chromedp.Action) {
	p.t.Helper()
	chromedp.ListenTarget(p.ctx, func(event any) {
		if r, ok := event.(*fetch.EventRequestPaused); ok {
			go func() {
				// A request that the page has given up meanwhile is none any more.
				if err := chromedp.Run(p.ctx, f(r)); err != nil && p.ctx.Err() == nil && !strings.Contains(err.Error(), "Invalid InterceptionId") {
					p.t.Errorf("answering a request: %v", err)
				}
			}()
		}
	})
	p.run(fetch.Enable().WithPatterns([]*fetch.RequestPattern{{URLPattern: addresses}}))
}

// asked is how many requests were sent of which the address has this text.
func (p *tab) asked(text string) (n int) {
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, r := range p.requests {
		if strings.Contains(r, text) {
			n++
		}
	}
	return n
}

// click clicks what has this text, once it is there, in one step: what is there may be drawn anew.
func (p *tab) click(selector, text string) {
	p.t.Helper()
	p.until(`((b) => b && (b.click(), true))([...document.querySelectorAll(` + marshal(p.t, selector) + `)].find((b) => (b.ariaLabel ?? b.textContent).trim().startsWith(` + marshal(p.t, text) + `)))`)
}

// axe is the checker of accessibility, which make web installs.
const axe = "../../web/node_modules/axe-core/axe.min.js"

// accessible fails the test where axe finds a violation in the tab.
func (p *tab) accessible() {
	p.t.Helper()
	script, err := os.ReadFile(axe)
	if err != nil && os.Getenv("CI") != "true" {
		partstest.Note(p.t, "accessibility of the page is not checked: make web installs axe")
		return
	} else if err != nil {
		p.t.Fatal(err)
	}
	p.run(chromedp.Evaluate(string(script), nil))
	for _, v := range eval[[]string](p, `axe.run({resultTypes: ["violations"]}).then((r) => r.violations.map((v) => v.id + ": " + v.help + "\n" + v.nodes.slice(0, 3).map((n) => "  " + n.html.slice(0, 200) + " " + (n.any[0]?.message ?? n.all[0]?.message ?? n.none[0]?.message ?? "")).join("\n")))`) {
		p.t.Errorf("axe: %s", v)
	}
}

// legible fails the test where text stands out from what is behind it by less than 4.5 to 1, or 3 to 1 where it is large. Unlike axe it
// judges text in drawings, and text that is hidden from screen readers.
func (p *tab) legible() {
	p.t.Helper()
	for _, bad := range eval[[]string](p, `(() => {
		const canvas = document.createElement("canvas").getContext("2d", { willReadFrequently: true });
		canvas.canvas.width = canvas.canvas.height = 1;
		const over = (colours) => {
			canvas.globalAlpha = 1;
			canvas.fillStyle = "white";
			canvas.fillRect(0, 0, 1, 1);
			for (const [colour, alpha] of colours) { canvas.globalAlpha = alpha; canvas.fillStyle = colour; canvas.fillRect(0, 0, 1, 1); }
			const [r, g, b] = [...canvas.getImageData(0, 0, 1, 1).data].map((v) => (v /= 255) <= 0.04045 ? v / 12.92 : ((v + 0.055) / 1.055) ** 2.4);
			return 0.2126 * r + 0.7152 * g + 0.0722 * b;
		};
		const found = new Map(), walk = document.createTreeWalker(document.body, NodeFilter.SHOW_TEXT);
		for (let node; (node = walk.nextNode()); ) {
			const of = node.parentElement, style = getComputedStyle(of);
			if (!node.textContent.trim() || of.closest(".sr, dialog:not([open]), option") || style.visibility !== "visible" || !of.getClientRects().length) continue;
			let alpha = 1;
			const behind = [];
			for (let e = of; e; e = e.parentElement) {
				const s = getComputedStyle(e);
				alpha *= Number(s.opacity);
				behind.unshift([s.backgroundColor, 1]);
			}
			if (alpha === 0) continue;
			const ink = of instanceof SVGElement ? style.fill : style.color;
			const a = over(behind), b = over([...behind, [ink, alpha]]);
			const ratio = (Math.max(a, b) + 0.05) / (Math.min(a, b) + 0.05), size = parseFloat(style.fontSize);
			if (ratio < (size >= 24 || (size >= 18.66 && style.fontWeight >= 700) ? 3 : 4.5)) found.set(of.tagName + "." + of.getAttribute("class"), ratio.toFixed(2) + " " + node.textContent.trim().slice(0, 40));
		}
		return [...found].map(([where, what]) => where + ": " + what);
	})()`) {
		p.t.Errorf("contrast: %s", bad)
	}
}

// artefacts is the folder for screenshots: SKEIN_TEST_PICTURES, or one of the test's own.
func artefacts(t *testing.T) string {
	t.Helper()
	folder := os.Getenv("SKEIN_TEST_PICTURES")
	if folder == "" {
		return t.TempDir()
	}
	if err := os.MkdirAll(folder, 0o755); err != nil {
		t.Fatal(err)
	}
	return folder
}
