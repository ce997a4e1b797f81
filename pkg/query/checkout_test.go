package query

import (
	"encoding/json"
	"fmt"
	"net/http"
	"strings"
	"testing"

	"github.com/skeinhq/skein/pkg/agui"
	"github.com/skeinhq/skein/pkg/record"
)

// checkedOut checks an input out and decodes it as an agent would.
func (f *fixture) checkedOut(path string) (*agui.RunAgentInput, reply) {
	f.t.Helper()
	r := f.get("acme", path)
	if r.status != http.StatusOK {
		f.t.Fatalf("GET %s: %d %s", path, r.status, r.body)
	}
	in, err := agui.DecodeInput([]byte(r.body), "")
	if err != nil {
		f.t.Fatalf("GET %s: %v in %s", path, err, r.body)
	}
	return in, r
}

func TestCheckout_GoesOnFromARun(t *testing.T) {
	f := newFixture(t)
	conversation(f)
	tools := json.RawMessage(`{"tools":[{"name":"look","description":"d"}],"context":[{"description":"d","value":"v"}],"forwardedProps":{"n":1.0},"protocolVersion":"1.0","vendor":1}`)
	given := run("chat", "given", 5, msg("u", "user", "<&>"), msg("p", "activity", "a plan"))
	given.Input = tools
	given.State = json.RawMessage(`{"n":12345678901234567890}`)
	f.put(given)
	f.put(child(given, "next", 6, record.ParentLatest, msg("a", "assistant", "x")))

	for path, want := range map[string]struct{ parent, messages, state, remarks string }{
		"/v1/threads/chat/runs/root/checkout": {"root", "u1 a1", `{"n":1}`, ""},
		"/v1/threads/chat/runs/leaf/checkout": {"leaf", "u1 a1 u2 a3", `{"n":3}`, "inferred"},
		"/v1/threads/chat/checkout":           {"next", "u a", `{"n":12345678901234567890}`, "inferred"},
	} {
		in, r := f.checkedOut(path + "?runId=mine")
		if in.ThreadID != "chat" || in.RunID != "mine" || in.ParentRunID != want.parent || ids(in.Messages) != want.messages ||
			string(in.State) != want.state {
			t.Errorf("%s: %s", path, r.body)
		}
		if got := r.header.Get(headerRemarks); got != want.remarks || r.header.Get(headerIndexedTo) != "3:69" {
			t.Errorf("%s: remarks %q", path, got)
		}
	}
	// The tools and the like are of the nearest run that had an input, as they came.
	_, r := f.checkedOut("/v1/threads/chat/checkout")
	for _, member := range []string{`"tools":[{"name":"look","description":"d"}]`, `"forwardedProps":{"n":1.0}`, `"protocolVersion":"1.0"`, `"vendor":1`, `"content":"\u003c\u0026\u003e"`} {
		if !strings.Contains(r.body, member) {
			t.Errorf("%s\nhas not %s", r.body, member)
		}
	}
	if _, r := f.checkedOut("/v1/threads/chat/runs/root/checkout"); !strings.Contains(r.body, `"tools":[],"context":[],"forwardedProps":{}`) {
		t.Errorf("an input has to have them: %s", r.body)
	}
	one, _ := f.checkedOut("/v1/threads/chat/checkout")
	other, _ := f.checkedOut("/v1/threads/chat/checkout")
	if one.RunID == other.RunID || len(one.RunID) < 20 {
		t.Errorf("made-up ids %q and %q", one.RunID, other.RunID)
	}
}

// What an input that is sent off as it is must not do is approve.
func TestCheckout_CancelsOpenInterrupts(t *testing.T) {
	f := newFixture(t)
	r := run("chat", "asks", 1, msg("u", "user", "book it"))
	r.Status = record.StatusInterrupted
	r.Interrupts = []json.RawMessage{json.RawMessage(`{"id":"i/1","reason":"confirm","message":"Sure?"}`), json.RawMessage(`{"reason":"x","id":"i2"}`)}
	f.put(r)
	in, reply := f.checkedOut("/v1/threads/chat/checkout")
	if len(in.Resume) != 2 || string(in.Resume[0]) != `{"interruptId":"i/1","status":"cancelled","metadata":{"interrupt":{"id":"i/1","reason":"confirm","message":"Sure?"}}}` {
		t.Errorf("resume of %s", reply.body)
	}
}

func TestCheckout_AtStartGivesBackTheRunsOwnInput(t *testing.T) {
	f := newFixture(t)
	root := run("chat", "root", 1, msg("u1", "user", "hello"), msg("p", "activity", "a plan"), msg("a1", "assistant", "hi"))
	root.SpawnedBy = "outside"
	f.put(root)
	// It edited the first message and left the second out.
	edit := child(root, "edit", 2, record.ParentContent, msg("u1", "user", "hey"), msg("a2", "assistant", "ho"))
	edit.Layout = agui.Layout{{Own: true, From: 0, To: 2}}
	edit.Input = json.RawMessage(`{"threadId":"chat","runId":"edit","state":null,"tools":[1],"context":[],"resume":[{"interruptId":"i","status":"resolved"}]}`)
	edit.InputMessages, edit.InputLayout = []agui.Message{msg("u1", "user", "hey")}, agui.Layout{{Own: true, From: 0, To: 1}}
	edit.Resumes = []json.RawMessage{json.RawMessage(`{"interruptId":"i","status":"resolved"}`)}
	f.put(edit)
	same := child(root, "same", 3, record.ParentExplicit, msg("a3", "assistant", "x"))
	same.Input, same.InputMessages = json.RawMessage(`{"state":{"s":1}}`), []agui.Message{msg("u3", "user", "more")}
	f.put(same)
	blind := child(root, "blind", 4, record.ParentLatest, msg("a4", "assistant", "x"))
	f.put(blind)
	unkept := child(root, "unkept", 5, record.ParentLatest, msg("a5", "assistant", "x"))
	unkept.Base = ""
	f.put(unkept)

	for id, want := range map[string]struct{ parent, messages, state string }{
		"root":  {"outside", "", `{}`},
		"edit":  {"root", "u1", ""},
		"same":  {"root", "u1 a1 u3", `{"s":1}`},
		"blind": {"root", "u1 a1", `{}`},
	} {
		in, r := f.checkedOut("/v1/threads/chat/runs/" + id + "/checkout?at=start")
		if in.ParentRunID != want.parent || ids(in.Messages) != want.messages || string(in.State) != want.state || in.RunID == id {
			t.Errorf("%s: %s", id, r.body)
		}
		if id == "edit" && (!strings.Contains(r.body, `"state":null`) || !strings.Contains(r.body, `"hey"`) || len(in.Resume) != 1) {
			t.Errorf("edit: %s", r.body)
		}
	}
	f.get("acme", "/v1/threads/chat/runs/unkept/checkout?at=start").problem(t, http.StatusConflict)
}

func TestCheckout_RefusesWhatCannotBe(t *testing.T) {
	f := newFixture(t)
	again := run("chat", "root~2", 2)
	again.ClientRunID = "root"
	conversation(f)
	f.put(again)
	for query, status := range map[string]int{
		"runId=": http.StatusBadRequest, "runId=..": http.StatusBadRequest, "runId=a%07": http.StatusBadRequest,
		"runId=left": http.StatusConflict, "runId=root": http.StatusConflict, "runId=root~2": http.StatusConflict,
	} {
		f.get("acme", "/v1/threads/chat/checkout?"+query).problem(t, status)
	}
	f.get("acme", "/v1/threads/chat/runs/nobody/checkout").problem(t, http.StatusNotFound)
}

func TestCheckout_MarksWhatIsNotPlainTruth(t *testing.T) {
	f := newFixture(t)
	r := run("chat", "lost", 1)
	r.Truncated, r.RawLost, r.Synthetic, r.Status = true, true, true, record.StatusAbandoned
	f.put(r)
	f.put(opened(child(r, "open", 2, record.ParentExplicit, msg("a", "assistant", "so far"))))
	for path, want := range map[string]string{
		"/v1/threads/chat/runs/lost/checkout": "synthetic-end, truncated, raw-lost",
		"/v1/threads/chat/runs/open/checkout": "running, truncated, raw-lost",
	} {
		if _, r := f.checkedOut(path); r.header.Get(headerRemarks) != want {
			t.Errorf("%s: %q, want %q", path, r.header.Get(headerRemarks), want)
		}
	}
}

func TestCheckout_AtAnEventHasWhatWasThereThen(t *testing.T) {
	onBothLogs(t, func(f *rawFixture) {
		rec, at := f.talk()
		rec.Interrupts = []json.RawMessage{json.RawMessage(`{"id":"i","reason":"confirm"}`)}
		f.put(rec)
		base := "/v1/threads/chat/runs/r/checkout?at="
		for query, want := range map[string]string{
			"1": `u {"cart":{"total":0}} 0`, "2": `u a {"cart":{"total":0}} 0`, fmt.Sprint("3:", at[3]): `u a {"cart":{"total":3}} 0`,
			"6": `u a {"cart":{"total":3}} 1`, "end": `u a {"cart":{"total":3}} 1`, // with what waits then
		} {
			in, r := f.checkedOut(base + query)
			if got := fmt.Sprintf("%s %s %d", ids(in.Messages), in.State, len(in.Resume)); got != want || in.ParentRunID != "r" || in.RunID == "r" {
				t.Errorf("at %s: %s, want %s: %s", query, got, want, r.body)
			}
		}
		if in, r := f.checkedOut(base + "2"); !strings.Contains(string(in.Messages[1].Raw), `"content":"Hello"`) {
			t.Errorf("a message that is half written: %s", r.body)
		}
		for _, query := range []string{"0", "start", fmt.Sprint("3:", at[0])} {
			if in, r := f.checkedOut(base + query); in.ParentRunID != "" || len(in.Resume) > 0 {
				t.Errorf("at %s: %s", query, r.body)
			}
		}
		if detail := f.get("acme", base+"7").problem(t, http.StatusNotFound); !strings.Contains(detail, "to 6") {
			t.Error(detail)
		}
	})
}
