package page_test

import (
	"encoding/json"
	"testing"

	"github.com/chromedp/chromedp"
)

// A waiting run is answered with what checkout gives: approved or declined, and nothing else changed.
func TestPage_CopiesTheInputsThatAnswer(t *testing.T) {
	address := toured.address(t)
	p := newBrowser(t).tab(address+"/?thread=trip-planner&run=export", 1440, 900, false)
	p.shows(".card.wait", "Approve delete_file")
	p.run(chromedp.Evaluate(`(window.copied = [], navigator.clipboard.writeText = (t) => (window.copied.push(t), Promise.resolve()))`, nil))
	p.click(".card.wait button", "Copy the approving input")
	p.until(`window.copied.length === 1`)
	p.click(".card.wait button", "Copy the declining input")
	p.until(`window.copied.length === 2`)
	agent := address + "/v1/agents/travel-desk"
	p.shows(".card.wait .note", "POST it to your agent through the proxy, as the input of the next run: POST /v1/agents/travel-desk at ingest's address")
	p.click(".card.wait button", "copy the command")
	p.until(`window.copied.length === 3`)
	if got, want := eval[string](p, `window.copied.pop()`), "curl -sSN -H 'Content-Type: application/json' -d @input.json '"+agent+"'"; got != want {
		t.Errorf("the command is %s, want %s", got, want)
	}
	given := get[map[string]json.RawMessage](t, address+"/v1/threads/trip-planner/runs/export/checkout", nil)
	copied := eval[[]string](p, `window.copied.map((c) => JSON.stringify(JSON.parse(c)))`)
	for i, want := range []string{`{"approved":true}`, `{"approved":false}`} {
		var got struct {
			ParentRunID string
			Messages    []any
			Resume      []struct {
				InterruptID, Status string
				Payload             json.RawMessage
				Metadata            struct{ Interrupt struct{ ID string } }
			}
		}
		if err := json.Unmarshal([]byte(copied[i]), &got); err != nil {
			t.Fatal(err)
		}
		var messages []any
		if err := json.Unmarshal(given["messages"], &messages); err != nil {
			t.Fatal(err)
		}
		if len(got.Resume) != 1 || got.ParentRunID != "export" || len(got.Messages) != len(messages) {
			t.Fatalf("copied: %+v", got)
		}
		if r := got.Resume[0]; r.InterruptID != "i2" || r.Status != "resolved" || string(r.Payload) != want || r.Metadata.Interrupt.ID != "i2" {
			t.Errorf("the answer is %+v, want %s", r, want)
		}
	}
	p.resize(size{1440, 420, 1})
	const visible = `((c) => { if (!c) return false; const box = c.getBoundingClientRect(), view = document.querySelector("#view .scroll").getBoundingClientRect(); return box.top >= view.top && box.bottom <= view.bottom; })(document.querySelector(".card.wait .acts"))`
	p.visit("?thread=trip-planner&run=ask")
	p.shows(".card.wait", "Asked, answered")
	p.visit("?thread=trip-planner&run=export")
	p.until(visible)
	p.run(chromedp.KeyEvent("4"))
	p.wait(".list.raw")
	p.run(chromedp.KeyEvent("1"))
	p.until(visible)
	p.resize(size{1440, 900, 1})
	p.visit("?thread=trip-planner&run=ask") // it was answered
	p.shows(".card.wait", "Asked, answered")
	p.shows(".inspect .fig dt", "delete_file") // of its facts
	if eval[bool](p, `document.querySelector(".inspect .warns") !== null`) {
		t.Error("the call that the question is about is said to lack a result")
	}
	if p.calm(address); eval[bool](p, `document.querySelector(".card.wait .acts") !== null`) {
		t.Error("a run that was answered offers answers")
	}
}

// What a subagent says has its name and a rail, in the conversation as in the timeline.
func TestPage_NamesSubagents(t *testing.T) {
	address := written.address(t)
	const thread = "delegates"
	say := func(id, by string) object {
		e := object{"type": "TEXT_MESSAGE_CHUNK", "messageId": id, "role": "assistant", "delta": "I am " + id}
		if by != "" {
			e["subagentRunId"] = by
		}
		return e
	}
	publish(t, address, thread, "r", nil, object{"type": "RUN_STARTED", "threadId": thread, "runId": "r"}, say("m0", ""),
		object{"type": "SUBAGENT_STARTED", "subagentRunId": "s1", "name": "scout"}, say("m1", "s1"), say("m2", "s1"),
		object{"type": "SUBAGENT_STARTED", "subagentRunId": "s2", "name": "digger", "parentSubagentRunId": "s1"}, say("m3", "s2"),
		object{"type": "SUBAGENT_FINISHED", "subagentRunId": "s2"}, object{"type": "SUBAGENT_FINISHED", "subagentRunId": "s1"}, say("m4", ""),
		object{"type": "RUN_FINISHED", "threadId": thread, "runId": "r"})
	get(t, address+"/v1/threads/"+thread+"/lineage", func(l struct{ Runs []any }) bool { return len(l.Runs) == 1 })
	p := newBrowser(t).tab(address+"/?thread="+thread, 1440, 900, true)
	p.until(`document.querySelectorAll(".chat .msg").length === 5`)
	rail := `[...document.querySelectorAll(".chat .msg")].map((m) => (m.querySelector(".by")?.textContent ?? "") + "|" + getComputedStyle(m.querySelector(".body")).paddingLeft)`
	got := eval[[]string](p, rail)
	for i, want := range []string{"|0px", "scout, a subagent|12px", "|12px", "digger, a subagent|24px", "|0px"} {
		if got[i] != want {
			t.Errorf("message %d has name and rail %q, want %q", i, got[i], want)
		}
	}
	p.accessible()
	p.legible()
	p.visit("?thread=" + thread + "&zoom=timeline")
	p.until(`[...document.querySelectorAll(".bar-row .lab.sub")].map((l) => l.title.trim()).join() === "scout I am m1,scout I am m2,scout digger,digger I am m3"`)
	p.until(`[...document.querySelectorAll(".bar-row .lab.sub")].some((l) => l.title.startsWith("digger ") && getComputedStyle(l).backgroundImage.includes("gradient"))`)
	p.calm(address)
}
