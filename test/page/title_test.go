package page_test

import (
	"net/http"
	"testing"

	"github.com/skeinhq/skein/internal/app/dev/devtest"
)

// A thread is called by its title, and leaves the list when it is archived.
func TestPage_ShowsTitlesAndLeavesArchivedThreadsOut(t *testing.T) {
	address := devtest.Start(t).URL()
	for _, thread := range []string{"named", "other"} {
		publish(t, address, thread, "r", nil, object{"type": "RUN_STARTED", "threadId": thread, "runId": "r"},
			object{"type": "TEXT_MESSAGE_CHUNK", "messageId": "m", "role": "assistant", "delta": "What was said."},
			object{"type": "RUN_FINISHED", "threadId": thread, "runId": "r"})
	}
	patch := func(patch string) {
		t.Helper()
		send(t, http.MethodPatch, address+"/v1/threads/named", "application/json", patch)
		get(t, address+"/v1/threads/named", func(struct{}) bool { return true }) // waits for the index
	}
	patch(`{"title": "Trip to Oslo"}`)
	rows := `[...document.querySelectorAll("[data-row] code")].map((c) => c.textContent).sort().join()`
	p := newBrowser(t).tab(address+"/", 1440, 900, false)
	p.until(rows + ` === "named,other"`)
	p.shows("[data-row] .name", "Trip to Oslo")
	p.shows("[data-row] .name", "What was said.")
	p.accessible()

	patch(`{"archived": true}`)
	p.polls(1)
	p.until(rows + ` === "other"`)
	p.visit("?q=archived:yes")
	p.until(rows + ` === "named"`)
	p.shows("#reads", "its thread is archived")
	p.shows("[data-row] .sub", "archived")
	p.visit("?q=archived:maybe")
	p.shows("#reads", "archived takes no, yes or all.")
	p.visit("?q=oslo+archived:all")
	p.until(rows + ` === "named"`)

	p.visit("?thread=named")
	p.shows(".crumbs", "Trip to Oslo", "named")
	p.until(`document.title === "Trip to Oslo · Skein"`)
	p.visit("?thread=other")
	p.shows(".chat", "What was said.")
	p.until(`document.title === "other · Skein" && !document.querySelector(".crumbs").innerText.includes("Oslo")`)
	p.calm(address)
}
