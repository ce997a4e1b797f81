package page_test

import (
	"bytes"
	"cmp"
	"fmt"
	"image"
	"image/color"
	"image/gif"
	"image/png"
	"maps"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/chromedp/cdproto/page"
	"github.com/chromedp/chromedp"

	"github.com/skeinhq/skein/internal/app/dev/devtest"
	"github.com/skeinhq/skein/internal/demo"
)

// TestPage_PicturesMove makes README's picture that moves, of what "make run" shows: an answer that streams in, a thread's branches, and a
// run event by event.
func TestPage_PicturesMove(t *testing.T) {
	if !*long {
		t.Skip("make pictures runs it")
	}
	agent, err := demo.ServeRollout(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	address := devtest.Start(t, devtest.Agents(t, demo.RolloutAgent+"="+agent)).URL()
	play(t, address)
	r, err := http.NewRequestWithContext(t.Context(), http.MethodPost, address+"/v1/agents/"+demo.RolloutAgent,
		bytes.NewReader(demo.RolloutInput("live")))
	if err != nil {
		t.Fatal(err)
	}
	r.Header.Set("Content-Type", "application/json")
	answer, err := http.DefaultClient.Do(r)
	if err != nil {
		t.Fatal(err)
	}
	if err := answer.Body.Close(); err != nil || answer.StatusCode != http.StatusOK { // the run goes on
		t.Fatal(answer.Status, err)
	}

	p := newBrowser(t).tab(address, 1120, 700, false)
	p.run(page.BringToFront())
	f := &film{p: p}
	p.until(`document.querySelectorAll("[data-row]").length === 5 &&
		![...document.querySelectorAll("[data-row] .rn")].some((n) => n.textContent === "–")`)
	f.take(80)
	f.click(`[data-row][href*="checkout-rollout"]`)
	p.until(`document.querySelector("main")?.dataset.live === "true" && document.querySelector("#view .chat")`)
	for range 26 {
		f.take(13)
		said := eval[string](p, `document.querySelector("#view").innerText`)
		p.until(`document.querySelector("#view").innerText !== ` + marshal(t, said))
	}
	if state := eval[string](p, `document.querySelector("#state").innerText`); !strings.Contains(state, "percent") {
		t.Errorf("the state of the run that goes on is %q", state)
	}
	f.take(60)
	f.click(".crumbs a")
	p.wait("#waits")
	p.wait("[data-row]")
	f.take(50)
	f.click(`[data-row][href*="trip-to-lisbon"]`)
	p.wait(".card.wait")
	f.take(120)
	f.click(`[data-run="hotel-again"]`)
	p.until(`location.search.includes("run=hotel-again") && document.querySelector("#view .msg")`)
	f.take(70)
	f.click(`[aria-label="First event"]`)
	p.until(`location.search.includes("at=0")`)
	f.take(50)
	before := eval[string](p, `document.querySelector("#state").innerText`)
	for event := 1; event <= 18; event++ {
		f.click(`[aria-label="Next event"]`)
		p.until(fmt.Sprintf(`document.querySelector(".where b").textContent === "event %d"`, event))
		f.take(18)
	}
	if after := eval[string](p, `document.querySelector("#state").innerText`); after == before {
		t.Errorf("stepping does not change the state: %s", after)
	}
	f.take(160)
	p.calm(address)
	f.save(filepath.Join(artefacts(t), "tour.gif"))
}

// film is what a tab shows, frame by frame.
type film struct {
	p      *tab
	frames [][]byte // as PNG
	delays []int    // hundredths of a second
}

// take adds what the tab shows, to be shown for hundredths of a second.
func (f *film) take(hundredths int) {
	f.p.t.Helper()
	var frame []byte
	f.p.run(chromedp.CaptureScreenshot(&frame))
	if last := len(f.frames) - 1; last >= 0 && bytes.Equal(f.frames[last], frame) {
		f.delays[last] += hundredths
		return
	}
	f.frames, f.delays = append(f.frames, frame), append(f.delays, hundredths)
}

// click moves a pointer, which screenshots lack, to what a selector finds, and clicks there.
func (f *film) click(selector string) {
	f.p.t.Helper()
	f.p.wait(selector)
	moved := eval[bool](f.p, `(() => {
		const { left, top, width, height } = document.querySelector(`+marshal(f.p.t, selector)+`).getBoundingClientRect();
		const x = left + Math.min(width / 2, 120) + "px", y = top + height / 2 + "px";
		const { style } = document.querySelector("#pointer") ??
			document.body.appendChild(Object.assign(document.createElement("div"), { id: "pointer" }));
		if (style.left === x && style.top === y) return false;
		style.cssText = "position:fixed;z-index:99;pointer-events:none;width:20px;height:26px;background:#000;" +
			"clip-path:polygon(0 0,0 82%,24% 62%,42% 100%,58% 92%,42% 56%,72% 56%)";
		[style.left, style.top] = [x, y];
		return true;
	})()`)
	if moved {
		f.take(35)
	}
	f.p.until(`((b) => b && (b.click(), true))(document.querySelector(` + marshal(f.p.t, selector) + `))`)
}

// save writes the film as a GIF: its first frame, then of each what differs from the one before.
func (f *film) save(file string) {
	t := f.p.t
	t.Helper()
	colours := append(color.Palette{color.Transparent}, f.colours()...)
	nearest := map[color.Color]uint8{}
	out := &gif.GIF{Delay: f.delays}
	var shown *image.Paletted
	for n := range f.frames {
		frame := f.frame(n)
		next := image.NewPaletted(frame.Bounds(), colours)
		part, changed := image.NewPaletted(frame.Bounds(), colours), image.Rectangle{}
		for y := range frame.Bounds().Dy() {
			for x := range frame.Bounds().Dx() {
				c := frame.At(x, y)
				index, ok := nearest[c]
				if !ok {
					index = uint8(colours.Index(c))
					nearest[c] = index
				}
				next.SetColorIndex(x, y, index)
				if shown == nil || shown.ColorIndexAt(x, y) != index {
					part.SetColorIndex(x, y, index)
					changed = changed.Union(image.Rect(x, y, x+1, y+1))
				}
			}
		}
		if changed.Empty() { // only in colours that the palette does not tell apart
			changed = image.Rect(0, 0, 1, 1)
		}
		out.Image = append(out.Image, part.SubImage(changed).(*image.Paletted))
		out.Disposal = append(out.Disposal, gif.DisposalNone)
		shown = next
	}
	out.Config = image.Config{ColorModel: colours, Width: shown.Rect.Dx(), Height: shown.Rect.Dy()}
	var b bytes.Buffer
	if err := gif.EncodeAll(&b, out); err != nil {
		t.Fatal(err)
	}
	long := 0
	for _, delay := range f.delays {
		long += delay
	}
	t.Logf("%d frames, %d.%02d s, %d bytes", len(f.frames), long/100, long%100, b.Len())
	if b.Len() > 1_000_000 || long < 800 || long > 1500 {
		t.Error("a visitor waits for up to a megabyte, and watches for 8 to 15 s")
	}
	if err := os.WriteFile(file, b.Bytes(), 0o644); err != nil {
		t.Fatal(err)
	}
}

func (f *film) frame(n int) image.Image {
	f.p.t.Helper()
	frame, err := png.Decode(bytes.NewReader(f.frames[n]))
	if err != nil {
		f.p.t.Fatal(err)
	}
	return frame
}

// colours are those of most pixels that are unlike one another; the edges of letters take the nearest.
func (f *film) colours() (all color.Palette) {
	pixels := map[color.RGBA]int{}
	for n := range f.frames {
		frame := f.frame(n)
		for y := range frame.Bounds().Dy() {
			for x := range frame.Bounds().Dx() {
				pixels[color.RGBAModel.Convert(frame.At(x, y)).(color.RGBA)]++
			}
		}
	}
	off := func(a, b uint8) int { return max(int(a)-int(b), int(b)-int(a)) }
	for _, c := range slices.SortedFunc(maps.Keys(pixels), func(a, b color.RGBA) int {
		return cmp.Or(pixels[b]-pixels[a], cmp.Compare(fmt.Sprint(a), fmt.Sprint(b)))
	}) {
		if len(all) < 63 && !slices.ContainsFunc(all, func(have color.Color) bool {
			h := have.(color.RGBA)
			return off(c.R, h.R)+off(c.G, h.G)+off(c.B, h.B) < 24
		}) {
			all = append(all, c)
		}
	}
	return all
}
