package query

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"net/http"
	"slices"
	"strings"
	"testing"

	"github.com/skeinhq/skein/pkg/agui"
	"github.com/skeinhq/skein/pkg/record"
	"github.com/skeinhq/skein/pkg/store"
)

// historyBody is an answer as a caller reads it.
type historyBody struct {
	ThreadID       string            `json:"threadId"`
	RunID          string            `json:"runId"`
	Status         string            `json:"status"`
	Basis          string            `json:"basis"`
	Messages       []json.RawMessage `json:"messages"`
	From           int               `json:"from"`
	Total          int               `json:"total"`
	State          json.RawMessage   `json:"state"`
	Through        string            `json:"through"`
	IndexedTo      string            `json:"indexedTo"`
	Truncated      bool              `json:"truncated"`
	RawLost        bool              `json:"rawLost"`
	Synthetic      bool              `json:"synthetic"`
	ParentInferred bool              `json:"parentInferred"`
}

func (h historyBody) ids(t *testing.T) string {
	t.Helper()
	var ids []string
	for _, raw := range h.Messages {
		var m agui.Message
		if err := json.Unmarshal(raw, &m); err != nil {
			t.Fatal(err)
		}
		ids = append(ids, m.ID)
	}
	return strings.Join(ids, " ")
}

// conversation puts a thread with a fork: root - left - leaf, and right beside left.
func conversation(f *fixture) {
	root := run("chat", "root", 1, msg("u1", "user", "hello"), msg("a1", "assistant", "hi"))
	root.State = json.RawMessage(`{"n":1}`)
	root.Input = json.RawMessage(`{}`)
	left := child(root, "left", 2, record.ParentExplicit, msg("u2", "user", "more"), msg("a1", "assistant", "changed"))
	leaf := child(left, "leaf", 3, record.ParentLatest, msg("a3", "assistant", "end"))
	leaf.State = json.RawMessage(`{"n":3}`)
	right := child(root, "right", 4, record.ParentContent, msg("u4", "user", "other"))
	right.BranchID = "right"
	right.Layout = agui.Layout{{From: 0, To: 1}, {Own: true, From: 0, To: 1}}
	right.MessageCount = 2
	f.put(root, left, leaf, right)
}

func TestHistory_WalksAncestorsOnly(t *testing.T) {
	f := newFixture(t)
	conversation(f)
	for _, c := range []struct {
		run, messages, state, basis string
		inferred                    bool
	}{
		{"root", "u1 a1", `{"n":1}`, "input", false},
		{"left", "u1 a1 u2", `{"n":1}`, "parent", false},
		{"leaf", "u1 a1 u2 a3", `{"n":3}`, "inferred", true},
		{"right", "u1 u4", `{"n":1}`, "inferred", true},
	} {
		t.Run(c.run, func(t *testing.T) {
			var h historyBody
			f.json("/v1/threads/chat/runs/"+c.run+"/history", &h)
			if got := h.ids(t); got != c.messages || h.Total != len(h.Messages) || h.From != 0 {
				t.Errorf("messages %q from %d of %d, want %q", got, h.From, h.Total, c.messages)
			}
			if string(h.State) != c.state || h.Basis != c.basis || h.ParentInferred != c.inferred {
				t.Errorf("state %s, basis %q, inferred %t; want %s, %q, %t", h.State, h.Basis, h.ParentInferred, c.state, c.basis, c.inferred)
			}
			if h.ThreadID != "chat" || h.RunID != c.run || h.Status != "finished" || h.IndexedTo != "3:49" {
				t.Errorf("answer %+v", h)
			}
		})
	}
	var h historyBody
	f.json("/v1/threads/chat/runs/left/history", &h)
	if !strings.Contains(string(h.Messages[1]), "changed") || h.Through != "3:29" {
		t.Errorf("message %s, through %s", h.Messages[1], h.Through)
	}
}

func TestHistory_OfTheThreadIsThatOfTheTipWithTheLatestStart(t *testing.T) {
	f := newFixture(t)
	conversation(f)
	var h historyBody
	f.json("/v1/threads/chat/history", &h)
	if h.RunID != "right" || h.ids(t) != "u1 u4" {
		t.Errorf("run %q with messages %q", h.RunID, h.ids(t))
	}
}

func TestHistory_KeepsJSONAsItCame(t *testing.T) {
	f := newFixture(t)
	const message = `{"z":1.0,"id":"m","role":"user","content":"\u003cb\u003e & <i> \/ \ud83d alone 😀","n":12345678901234567890,"e":1E+2}`
	const state = `{"b":12345678901234567890,"a":1.0,"h":"<&>"}`
	r := run("chat", "run", 1, agui.Message{ID: "m", Role: "user", Raw: json.RawMessage(message)})
	r.State = json.RawMessage(state)
	f.put(r)
	body := f.get("acme", "/v1/threads/chat/history").body
	for _, want := range []string{message, state} {
		if !strings.Contains(body, want) {
			t.Errorf("answer %s\nhas not %s", body, want)
		}
	}
	events := f.get("acme", "/v1/threads/chat/history", "Accept", "text/event-stream").body
	for _, want := range []string{message, state} {
		if !strings.Contains(events, want) {
			t.Errorf("events %s\nhave not %s", events, want)
		}
	}
}

func TestHistory_AlwaysSaysTheState(t *testing.T) {
	f := newFixture(t)
	f.put(run("none", "run", 1))
	null := run("null", "run", 2)
	null.State = json.RawMessage(`null`)
	f.put(null)
	for thread, want := range map[string]string{"none": `"state":{}`, "null": `"state":null`} {
		body := f.get("acme", "/v1/threads/"+thread+"/history").body
		if !strings.Contains(body, want) || !strings.Contains(body, `"messages":[]`) {
			t.Errorf("%s: %s", thread, body)
		}
	}
}

func TestHistory_Pages(t *testing.T) {
	f := newFixture(t)
	var messages []agui.Message
	for i := range 10 {
		messages = append(messages, msg(fmt.Sprint(i), "user", "x"))
	}
	f.put(run("chat", "run", 1, messages...))
	for _, c := range []struct {
		query, ids string
		from       int
	}{
		{"", "0 1 2 3 4 5 6 7 8 9", 0},
		{"?limit=4", "6 7 8 9", 6},
		{"?limit=4&before=6", "2 3 4 5", 2},
		{"?limit=4&before=2", "0 1", 0},
		{"?limit=4&before=0", "", 0},
		{"?before=3", "0 1 2", 0},
		{"?limit=100&before=100", "0 1 2 3 4 5 6 7 8 9", 0},
	} {
		t.Run(c.query, func(t *testing.T) {
			var h historyBody
			f.json("/v1/threads/chat/history"+c.query, &h)
			if h.ids(t) != c.ids || h.From != c.from || h.Total != 10 {
				t.Errorf("%q from %d of %d, want %q from %d", h.ids(t), h.From, h.Total, c.ids, c.from)
			}
		})
	}
	for _, query := range []string{"?limit=0", "?limit=-1", "?limit=x", "?before=-1", "?before=1.5"} {
		f.get("acme", "/v1/threads/chat/history"+query).problem(t, http.StatusBadRequest)
	}
}

func TestHistory_OfAnOpenRunComesFromItsRecord(t *testing.T) {
	f := newFixture(t)
	root := run("chat", "root", 1, msg("u1", "user", "hello"))
	f.put(root)
	open := opened(child(root, "open", 2, record.ParentExplicit, msg("a2", "assistant", "so far")))
	open.State = json.RawMessage(`{"half":true}`)
	f.put(open)
	var h historyBody
	r := f.json("/v1/threads/chat/runs/open/history", &h)
	if h.ids(t) != "u1 a2" || string(h.State) != `{"half":true}` || h.Status != "running" || h.Basis != "parent" {
		t.Errorf("answer %s", r.body)
	}
	if tag := r.header.Get("ETag"); tag != "" {
		t.Errorf("the history of an open run has the entity tag %s", tag)
	}
	// The parent's own is no less there.
	f.json("/v1/threads/chat/runs/root/history", &h)
	if h.ids(t) != "u1" {
		t.Errorf("messages %q", h.ids(t))
	}
}

// The record may have gone in favour of a newer one that the index has not got to yet.
func TestHistory_WaitsForTheIndexWhereARecordIsGone(t *testing.T) {
	for _, c := range []struct {
		name string
		next func(*record.Run) *record.Run
		want string
	}{
		{"a newer checkpoint", opened, "a1 a2"},
		{"the end of the run", func(r *record.Run) *record.Run { return r }, "a1 a2"},
	} {
		t.Run(c.name, func(t *testing.T) {
			f := newPatientFixture(t)
			f.put(opened(run("chat", "run", 1, msg("a1", "assistant", "x"))))
			f.records.mu.Lock()
			clear(f.records.values)
			f.records.mu.Unlock()
			done := make(chan reply)
			go func() { done <- f.get("acme", "/v1/threads/chat/history") }()
			<-f.records.asked
			f.put(c.next(run("chat", "run", 1, msg("a1", "assistant", "x"), msg("a2", "assistant", "y"))))
			r := <-done
			var h historyBody
			if err := json.Unmarshal([]byte(r.body), &h); err != nil || r.status != 200 || h.ids(t) != c.want {
				t.Errorf("answer %d %s", r.status, r.body)
			}
		})
	}
	t.Run("in vain", func(t *testing.T) {
		f := newFixture(t)
		f.put(opened(run("chat", "run", 1)))
		clear(f.records.values)
		r := f.get("acme", "/v1/threads/chat/history")
		r.problem(t, http.StatusServiceUnavailable)
		if r.header.Get("Retry-After") == "" {
			t.Error("no Retry-After")
		}
	})
}

// An offset is all that leads to a record. Where the topic was made anew, another tenant's may be there.
func TestHistory_GivesNoOtherRunsRecord(t *testing.T) {
	f := newFixture(t)
	f.put(opened(run("chat", "run", 1)))
	other := opened(run("chat", "run", 1, msg("m", "user", "a secret")))
	other.Tenant = "other"
	text, err := record.EncodeRun(other)
	if err != nil {
		t.Fatal(err)
	}
	f.records.values[record.Position{Partition: 3, Offset: f.version}] = text
	r := f.get("acme", "/v1/threads/chat/history")
	r.problem(t, http.StatusInternalServerError)
	if strings.Contains(r.body, "secret") {
		t.Errorf("answer %s", r.body)
	}
	if !strings.Contains(f.log.String(), "request failed") {
		t.Errorf("nothing in the log: %s", f.log)
	}
}

func TestHistory_ShowsWhatIsNotPlainTruth(t *testing.T) {
	f := newFixture(t)
	root := run("chat", "root", 1)
	root.Truncated = true
	f.put(root)
	next := child(root, "next", 2, record.ParentExplicit)
	next.RawLost, next.Synthetic, next.Status = true, true, record.StatusAbandoned
	f.put(next)
	var h historyBody
	f.json("/v1/threads/chat/runs/next/history", &h)
	if !h.Truncated || !h.RawLost || !h.Synthetic || h.ParentInferred {
		t.Errorf("answer %+v: what an ancestor has lost is missing here too", h)
	}
	f.json("/v1/threads/chat/runs/root/history", &h)
	if !h.Truncated {
		t.Errorf("answer %+v", h)
	}
}

func TestHistory_AsEvents(t *testing.T) {
	f := newFixture(t)
	root := run("chat", "root", 1, msg("u1", "user", "hello"))
	f.put(root)
	bare := child(root, "bare", 2, record.ParentExplicit)
	bare.Started = nil
	bare.Terminal = json.RawMessage("{\"type\":\"RUN_ERROR\",\n\"message\":\"x\"}")
	bare.Status, bare.State = record.StatusError, json.RawMessage(`[1]`)
	f.put(bare)
	foreign := child(root, "foreign", 4, record.ParentExplicit)
	foreign.RunID, foreign.ClientRunID = "foreign~2", "foreign"
	foreign.Started = json.RawMessage(`{"type":"RUN_STARTED","runId":"x","n":1.0}`)
	foreign.Terminal = json.RawMessage(`{"type":"RUN_FINISHED","threadId":"y","runId":"foreign~2"}`)
	f.put(foreign)
	f.put(opened(child(root, "open", 3, record.ParentExplicit, msg("a", "assistant", "b"))))
	for run, want := range map[string]string{
		"root": `data: {"type":"RUN_STARTED","threadId":"chat","runId":"root"}

data: {"type":"MESSAGES_SNAPSHOT","messages":[{"id":"u1","role":"user","content":"hello"}]}

data: {"type":"STATE_SNAPSHOT","snapshot":{}}

id: 3:19
data: {"type":"RUN_FINISHED","threadId":"chat","runId":"root"}

`,
		"foreign~2": `data: {"threadId":"chat","runId":"foreign","type":"RUN_STARTED","n":1.0}

data: {"type":"MESSAGES_SNAPSHOT","messages":[{"id":"u1","role":"user","content":"hello"}]}

data: {"type":"STATE_SNAPSHOT","snapshot":{}}

id: 3:49
data: {"threadId":"chat","runId":"foreign","type":"RUN_FINISHED"}

`,
		"bare": `data: {"type":"RUN_STARTED","threadId":"chat","runId":"bare","protocolVersion":"1.1"}

data: {"type":"MESSAGES_SNAPSHOT","messages":[{"id":"u1","role":"user","content":"hello"}]}

data: {"type":"STATE_SNAPSHOT","snapshot":[1]}

id: 3:29
data: {"type":"RUN_ERROR","message":"x"}

`,
		"open": `data: {"type":"RUN_STARTED","threadId":"chat","runId":"open"}

data: {"type":"MESSAGES_SNAPSHOT","messages":[{"id":"u1","role":"user","content":"hello"},{"id":"a","role":"assistant","content":"b"}]}

id: 3:39
data: {"type":"STATE_SNAPSHOT","snapshot":{}}

`,
	} {
		r := f.get("acme", "/v1/threads/chat/runs/"+run+"/history", "Accept", "text/event-stream")
		if r.status != 200 || r.body != want || r.header.Get("Content-Type") != "text/event-stream" {
			t.Errorf("%s: %d %s\n%s", run, r.status, r.header.Get("Content-Type"), r.body)
		}
		if r.header.Get("Skein-Indexed-To") != "3:49" {
			t.Errorf("%s: indexed to %q", run, r.header.Get("Skein-Indexed-To"))
		}
	}
	f.get("acme", "/v1/threads/chat/history?limit=1", "Accept", "text/event-stream").problem(t, http.StatusBadRequest)
}

func TestHistory_WaitsForARecordWithoutASlot(t *testing.T) {
	f := newFixture(t)
	f.put(opened(run("chat", "r", 0, msg("m", "user", "hello"))))
	f.oneSlot()
	f.records.mu.Lock() // no record comes
	history := f.leavesTheSlot("/v1/threads/chat/history", func() bool { return f.service.room.records.Held() == 1 })
	f.records.mu.Unlock()
	if r := <-history; r.status != http.StatusOK {
		t.Errorf("%d %s", r.status, r.body)
	}
}

// A live stream restores a run until the stream ends, even if its caller stays.
func TestRestore_EndsWithItsContext(t *testing.T) {
	f := newPatientFixture(t)
	ctx, end := context.WithCancelCause(t.Context())
	end(errLife)
	if _, err := f.acmes("chat").restore(ctx, []store.Run{behind}, behind.RunID); !errors.Is(err, errLife) {
		t.Error(err)
	}
}

// behind is a run that is indexed before its base.
var behind = store.Run{Run: record.Run{RunID: "r", Base: "base"}}

func TestHistory_OfASealedRunHasAnEntityTag(t *testing.T) {
	f := newFixture(t)
	f.put(run("chat", "run", 1, msg("u1", "user", "hello")))
	const path = "/v1/threads/chat/history"
	tags := map[string]bool{}
	for _, c := range [][2]string{{path, "*/*"}, {path, "text/event-stream"}, {path + "?limit=1", "*/*"}} {
		first := f.get("acme", c[0], "Accept", c[1])
		tag := first.header.Get("ETag")
		if tag == "" || tags[tag] {
			t.Errorf("%v has the tag %q", c, tag)
		}
		tags[tag] = true
		again := f.get("acme", c[0], "Accept", c[1], "If-None-Match", `"x", `+tag)
		if again.status != http.StatusNotModified || again.body != "" {
			t.Errorf("%v again: %d %s", c, again.status, again.body)
		}
	}
	if err := f.store.Write(t.Context(), []store.Entry{{Partition: 3, Version: 99, Tenant: "acme", ThreadID: "chat",
		RunID: "run"}}); err != nil {
		t.Fatal(err)
	}
	f.get("acme", path, "If-None-Match", slices.Collect(maps.Keys(tags))[0]).problem(t, http.StatusNotFound)
}
