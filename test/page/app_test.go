package page_test

import (
	"net/url"
	"os"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/chromedp/cdproto/page"
	"github.com/chromedp/chromedp"
	"github.com/chromedp/chromedp/kb"

	"github.com/skeinhq/skein/test/process"
)

// appPage is where a page of the example app shows what.
type appPage struct{ name, path, input, question, answer, button, picker, edit string }

var appPages = []appPage{
	{
		"assistant-ui", "/", ".thread > .composer textarea", ".user .text", ".assistant .text", ".thread > .composer button",
		".picker", ".user button",
	},
	{
		"CopilotKit", "/copilotkit", ckInput, ckQuestion, ckAnswer, ckButton,
		`[data-testid="copilot-branch-navigation"]`, `[data-testid="copilot-edit-button"]`,
	},
	{"CopilotKit over its runtime", "/runtime", ckInput, ckQuestion, ckAnswer, ckButton, "", ""},
}

const (
	ckInput    = `[data-testid="copilot-chat-textarea"]`
	ckQuestion = `[data-testid="copilot-user-message"]`
	ckAnswer   = `[data-testid="copilot-assistant-message"]`
	ckButton   = `[data-testid="copilot-send-button"]` // Send, and Stop while an answer comes
)

// The agent's answer, in its middle and at its end.
const (
	middle = "another tab"
	end    = "both versions stay."
)

// exampleApp is the example app, started as a user starts it.
type exampleApp struct {
	t            *testing.T
	skein, pages string
	runtime      func() int // the process of CopilotKit's runtime
	browser      *browser
}

// startApp starts the app. Its packages are 1 GB: they are there where "make app-test" has installed them, which says so.
func startApp(t *testing.T, pause string) *exampleApp {
	t.Helper()
	if os.Getenv("SKEIN_APP") == "" {
		t.Skip("make app-test runs it")
	}
	b := newBrowser(t)
	var ports []string
	for range 4 {
		_, port, _ := strings.Cut(process.FreeAddress(t), ":")
		ports = append(ports, port)
	}
	p, err := process.StartWith(t, []string{"AGENT_PORT=" + ports[0], "SKEIN_PORT=" + ports[1], "RUNTIME_PORT=" + ports[2],
		"PAGES_PORT=" + ports[3], "DATA=" + t.TempDir(), "AGENT_PAUSE=" + pause}, t.TempDir(), "../../examples/app/start")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { p.End(syscall.SIGTERM) })
	pages := process.EventuallyWithin(t, 15*time.Minute, "the app says its address", func() (string, bool) {
		_, address, ok := strings.Cut(p.Tail(), "\nOpen ")
		select {
		case <-p.Ended:
			t.Fatalf("the app has ended:\n%s", p.Tail())
		default:
		}
		return strings.TrimSpace(address), ok
	})
	pages, _, _ = strings.Cut(pages, "\n")
	runtime := func() int {
		all := regexp.MustCompile(`runtime is process (\d+)`).FindAllStringSubmatch(p.Tail(), -1)
		pid, err := strconv.Atoi(all[len(all)-1][1])
		if err != nil {
			t.Fatal(err)
		}
		return pid
	}
	return &exampleApp{t: t, skein: "http://127.0.0.1:" + ports[1], pages: pages, runtime: runtime, browser: b}
}

// chat is a tab on a thread.
type chat struct {
	*tab
	on     appPage
	app    *exampleApp
	thread string
}

func (a *exampleApp) open(t *testing.T, of appPage, thread string) *chat {
	t.Helper()
	address := a.pages + of.path
	if thread != "" {
		address += "?thread=" + url.QueryEscape(thread)
	}
	p := a.browser.tab(address, 960, 500, false)
	p.t = t
	c := &chat{p, of, a, thread}
	c.wait(of.input)
	t.Cleanup(func() {
		p.mu.Lock()
		defer p.mu.Unlock()
		for _, r := range p.requests {
			if !strings.HasPrefix(r, "http://127.0.0.1:") && !strings.HasPrefix(r, "data:") {
				t.Errorf("the page asked for %s", r)
			}
		}
	})
	return c
}

// ask asks in a new thread, and waits until the answer's middle is there.
func (a *exampleApp) ask(t *testing.T, of appPage, question string) *chat {
	t.Helper()
	c := a.open(t, of, "")
	c.ask(question)
	c.shows(question, middle)
	c.thread = eval[string](c.tab, `new URL(location).searchParams.get("thread")`)
	return c
}

func (c *chat) ask(question string) {
	c.t.Helper()
	c.run(page.BringToFront(), chromedp.SendKeys(c.on.input, question, chromedp.ByQuery))
	c.press(c.on.button)
}

// press clicks the last element of a selector, once it is there and takes clicks.
func (c *chat) press(selector string) {
	c.t.Helper()
	c.until(`((b) => b && !b.disabled && (b.click(), true))([...document.querySelectorAll(` + strconv.Quote(selector) + `)].at(-1))`)
}

// last is the text of the last element of a selector.
func last(selector string) string {
	return `([...document.querySelectorAll(` + strconv.Quote(selector) + `)].at(-1)?.textContent ?? "")`
}

// shows waits until the last question and the last answer have these texts.
func (c *chat) shows(question, answer string) {
	c.t.Helper()
	c.until(last(c.on.question) + ".includes(" + marshal(c.t, question) + ") && " +
		last(c.on.answer) + ".includes(" + marshal(c.t, answer) + ")")
}

type appRun struct{ RunID, Status, ParentRunID string }

// runs waits until the thread has runs of these statuses, and no others.
func (c *chat) runs(statuses ...string) []appRun {
	c.t.Helper()
	type lineage struct{ Runs []appRun }
	return get(c.t, c.app.skein+"/v1/threads/"+c.thread+"/lineage", func(l lineage) bool {
		if len(l.Runs) != len(statuses) {
			return false
		}
		for i, r := range l.Runs {
			if r.Status != statuses[i] {
				return false
			}
		}
		return true
	}).Runs
}

func TestApp(t *testing.T) {
	app := startApp(t, "0.1")
	for _, of := range appPages {
		t.Run(of.name, func(t *testing.T) {
			t.Run("a reload in the middle of an answer goes on", func(t *testing.T) {
				c := app.ask(t, of, "Where shall we go in May?")
				c.run(chromedp.Reload())
				c.shows("Where shall we go in May?", middle)
				if eval[bool](c.tab, last(of.answer)+".includes("+marshal(t, end)+")") {
					t.Error("the answer was at its end when the page had loaded: nothing was seen to go on")
				}
				c.shows("in May?", end)
				c.runs("finished")
				c.ask("And in June?")
				c.shows("And in June?", "question 2 here")
				c.shows("And in June?", end)
				if r := c.runs("finished", "finished"); r[1].ParentRunID != r[0].RunID {
					t.Errorf("the second run continues %q, want %q", r[1].ParentRunID, r[0].RunID)
				}
			})
			t.Run("Stop stops the run", func(t *testing.T) {
				c := app.ask(t, of, "Stop me")
				c.press(of.button)
				c.runs("cancelled")
				said := eval[string](c.tab, last(of.answer))
				c.run(chromedp.Reload())
				c.shows("Stop me", middle)
				if now := eval[string](c.tab, last(of.answer)); !strings.HasPrefix(now, said) || strings.Contains(now, end) {
					t.Errorf("the stopped answer is %q, and %q after a reload", said, now)
				}
			})
			if of.picker != "" {
				t.Run("an edit is a branch", func(t *testing.T) { edit(t, app, of) })
			}
			t.Run("ten tabs show the same", func(t *testing.T) {
				first := app.ask(t, of, "What do ten tabs show?")
				tabs := []*chat{first}
				for range 9 {
					tabs = append(tabs, app.open(t, of, first.thread))
				}
				for _, c := range tabs {
					c.shows("What do ten tabs show?", end)
				}
				want := eval[string](first.tab, last(of.answer))
				for _, c := range tabs {
					if got := eval[string](c.tab, last(of.answer)); got != want {
						t.Errorf("a tab shows %q, the first one %q", got, want)
					}
				}
				first.runs("finished")
			})
		})
	}
	t.Run("killing the runtime in the middle of an answer costs nothing", func(t *testing.T) {
		c := app.ask(t, appPages[2], "What if the runtime is killed?")
		killed := app.runtime()
		if err := syscall.Kill(killed, syscall.SIGKILL); err != nil {
			t.Fatal(err)
		}
		process.Eventually(t, "another runtime", func() (string, bool) { return "", app.runtime() != killed })
		c.run(chromedp.Reload())
		c.shows("What if the runtime is killed?", end)
		c.runs("finished")
	})
}

// edit asks another question in place of the first one, and looks at both versions, after a reload too.
func edit(t *testing.T, app *exampleApp, of appPage) {
	c := app.ask(t, of, "Where to in May?")
	c.shows("in May?", end)
	c.runs("finished")
	c.run(chromedp.Evaluate(`window.prompt = () => "Where to in June?"`, nil)) // as CopilotKit's page asks
	c.press(of.edit)
	if of.name == "assistant-ui" {
		c.run(chromedp.SendKeys(".messages .composer textarea", kb.End+strings.Repeat(kb.Backspace, len("May?"))+"June?", chromedp.ByQuery))
		c.press(".messages .composer button")
	}
	c.shows("Where to in June?", end)
	c.runs("finished", "finished")
	for range 2 {
		c.until(last(of.picker+" span") + ` === "2/2"`)
		c.run(chromedp.Reload())
		c.shows("in June?", end)
	}
	c.until(last(of.picker+" span") + ` === "2/2"`)
	c.press(of.picker + " button:first-child")
	c.shows("Where to in May?", end)
	c.until(last(of.picker+" span") + ` === "1/2"`)
	c.ask("By train?")
	c.shows("By train?", "question 2 here")
	c.shows("By train?", end)
	runs := c.runs("finished", "finished", "finished")
	if runs[2].ParentRunID != runs[0].RunID {
		t.Errorf("what was asked in the first version continues %q, want %q", runs[2].ParentRunID, runs[0].RunID)
	}
	if of.name != "assistant-ui" { // CopilotKit has no picker at answers
		return
	}
	c.click("button", "Again")
	c.runs("finished", "finished", "finished", "finished")
	for range 2 {
		c.until(last(".assistant .picker span") + ` === "2/2"`)
		c.run(chromedp.Reload())
		c.shows("in May?", end)
	}
	c.until(last(".assistant .picker span") + ` === "2/2"`)
}

// TestApp_PicturesMove makes the moving picture of the example app: an answer goes on after a reload, and an edit is a branch.
func TestApp_PicturesMove(t *testing.T) {
	app := startApp(t, "0.15")
	c := app.open(t, appPages[0], "")
	f := &film{p: c.tab}
	typed := func(selector string, words ...string) {
		for _, w := range words {
			c.run(chromedp.SendKeys(selector, w, chromedp.ByQuery))
			f.take(20)
		}
	}
	streams := func(until string) {
		for said := ""; !strings.Contains(said, until); {
			c.until(last(c.on.answer) + " !== " + marshal(t, said))
			said = eval[string](c.tab, last(c.on.answer))
			f.take(8)
		}
	}
	c.run(page.BringToFront())
	f.take(40)
	typed(c.on.input, "Where ", "shall ", "we go ", "in May?")
	c.press(c.on.button)
	streams(middle)
	c.caption(f, "Reload, in the middle of the answer")
	c.run(chromedp.Reload())
	c.shows("in May?", middle)
	streams(end)
	c.until(last(c.on.answer+" ~ div button") + ` !== ""`)
	f.take(60)
	c.caption(f, "Edit the question")
	f.click(c.on.edit)
	c.wait(".messages .composer textarea")
	f.take(20)
	typed(".messages .composer textarea", kb.End+strings.Repeat(kb.Backspace, len("May?")), "June?")
	c.press(".messages .composer button")
	c.shows("in June?", "question 1")
	streams("reload")
	c.shows("in June?", end)
	c.until(last(c.on.picker+" span") + ` === "2/2"`)
	f.take(40)
	c.caption(f, "Reload: both versions are there")
	c.run(chromedp.Reload())
	c.shows("in June?", end)
	c.until(last(c.on.picker+" span") + ` === "2/2"`)
	f.take(80)
	f.click(c.on.picker + " button:first-child")
	c.shows("in May?", end)
	f.take(150)
	f.save(filepath.Join(artefacts(t), "app.gif"))
}

// caption shows a line over the page for a second.
func (c *chat) caption(f *film, text string) {
	c.t.Helper()
	c.run(chromedp.Evaluate(`document.body.append(Object.assign(document.createElement("div"), {
		id: "caption", innerText: `+marshal(c.t, text)+`, style: "position:fixed;left:50%;top:42%;transform:translateX(-50%);" +
			"padding:10px 20px;border-radius:10px;background:#1f2430;color:#fff;font-size:18px" }))`, nil))
	f.take(90)
	c.run(chromedp.Evaluate(`document.querySelector("#caption").remove()`, nil))
}
