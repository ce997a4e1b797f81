package storetest

import (
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/skeinhq/skein/pkg/agui"
	"github.com/skeinhq/skein/pkg/record"
	"github.com/skeinhq/skein/pkg/store"
)

var k1 = key{"acme", "thread", "run-1"}

func emptyStore(t *testing.T, s Store) {
	ctx := t.Context()
	if err := s.Ping(ctx); err != nil {
		t.Errorf("Ping: %v", err)
	}
	_, err := s.Thread(ctx, "acme", "thread")
	wantNotFound(t, err)
	_, err = s.Run(ctx, "acme", "thread", "run-1")
	wantNotFound(t, err)
	if c := mustContents(t, s, "acme", "thread", "run-1"); len(c) != 0 {
		t.Errorf("contents of a run that is not there: %v", c)
	}
	if c := mustContents(t, s, "acme", "thread"); len(c) != 0 {
		t.Errorf("contents of no runs: %v", c)
	}
	threads, next, err := s.Threads(ctx, "acme", store.ThreadQuery{Limit: 10})
	if err != nil || len(threads) != 0 || next != "" {
		t.Errorf("Threads = %v, %q, %v", threads, next, err)
	}
	to, err := s.IndexedTo(ctx, "acme")
	if err != nil || len(to) != 0 {
		t.Errorf("IndexedTo = %v, %v", to, err)
	}
	if err := s.Write(ctx, nil); err != nil {
		t.Errorf("writing nothing: %v", err)
	}
}

// Of another topic nothing can be written: its offsets, the versions, say nothing beside those of the rows.
func oneTopic(t *testing.T, s Store) {
	const first, other = "AAAAAAAAAAAAAAAAAAAAAQ", "AAAAAAAAAAAAAAAAAAAAAg"
	for _, c := range []struct {
		id      string
		refused bool
	}{{first, false}, {first, false}, {other, true}, {first, false}} {
		err := s.Follow(t.Context(), c.id)
		if errors.Is(err, store.ErrOtherTopic) != c.refused || (err != nil) != c.refused {
			t.Errorf("following %s: %v", c.id, err)
		}
		if c.refused && !(strings.Contains(err.Error(), first) && strings.Contains(err.Error(), other)) {
			t.Errorf("%v does not say which", err)
		}
		if err := s.Migrate(t.Context()); err != nil {
			t.Fatal(err)
		}
	}
}

func migrateAgain(t *testing.T, s Store) {
	write(t, s, k1.entry(1, k1.record(0, record.StatusFinished, "a")))
	before := mustDump(t, s, "acme")
	if err := s.Migrate(t.Context()); err != nil {
		t.Fatalf("Migrate: %v", err)
	}
	equal(t, "thread", mustDump(t, s, "acme"), before)
}

// fullRecord has a value in every field. Agents may send half a surrogate pair in place of an id or a name.
func fullRecord() *record.Run {
	const half, other = "\xed\xa0\x80", "\xed\xa0\x81"
	end := epoch.Add(1500 * time.Millisecond)
	ttft, duration := int64(120), int64(1500)
	return &record.Run{
		ClientRunID: "run", Lineage: record.Lineage{ParentRunID: "run-0", ParentBy: record.ParentContent, SpawnedBy: half, BranchID: "run-0", RootRunID: "run-0", Depth: 7},

		Status:        record.StatusInterrupted,
		Agent:         "shop 🧶",
		Labels:        map[string]string{"user": "7", "env": "", "<&>": "x"},
		Started:       json.RawMessage(`{"type":"RUN_STARTED","threadId":"thread","runId":"run"}`),
		Input:         json.RawMessage(`{"threadId":"thread","runId":"run","tools":[]}`),
		InputLayout:   agui.Layout{{From: 0, To: 2}, {Own: true, From: 0, To: 1}},
		InputMessages: []agui.Message{message("u1", "user", "hello")},
		Base:          "run-0",
		Messages:      []agui.Message{message("a1", "assistant", "hi"), {ID: half, Role: "tool", Raw: json.RawMessage(`{"id":"\ud800","role":"tool","content":"42"}`)}},
		Layout:        agui.Layout{{From: 0, To: 3}, {Own: true, From: 0, To: 2}},
		MessageCount:  5,
		State:         json.RawMessage(`{"n":1}`),
		Events:        []json.RawMessage{json.RawMessage(`{"type":"CUSTOM","name":"n","value":null}`)},
		Terminal:      json.RawMessage(`{"type":"RUN_FINISHED","threadId":"thread","runId":"run"}`),
		Synthetic:     true,
		Interrupts:    []json.RawMessage{json.RawMessage(`{"id":"i1","reason":"approval"}`)},

		PendingToolCalls: []string{"call-1", half, other},
		Resumes:          []json.RawMessage{json.RawMessage(`{"interruptId":"i0","status":"resolved"}`)},
		Stats: record.Stats{
			Events:     map[string]int64{"RUN_STARTED": 1, "TEXT_MESSAGE_CHUNK": 12, half: 1, other: 2},
			EventBytes: map[string]int64{"RUN_STARTED": 60, "TEXT_MESSAGE_CHUNK": 900},
			Messages:   2, ToolCalls: map[string]int64{"search": 1, half: 1, other: 2},
			Usage: []record.TokenUsage{{Model: "m", InputTokens: new(int64(3)), OutputTokens: new(int64(0))}, {Provider: "a", Model: half,
				CachedInputTokens: new(int64(0))}, {Provider: "b", Model: half, InputTokens: new(int64(2))}, {Provider: other, Model: "m"}},
			Anomalies:        map[string]int64{"open-at-end": 1},
			TimeToFirstToken: &ttft, Duration: &duration,
		},
		StartedAt: epoch, EndedAt: &end,
		Raw: record.Raw{
			Partition: 3, First: 100, Next: 140, Ranges: [][2]int64{{100, 110}, {120, 140}},
			Events: 13, SHA256: "ab", NextSeq: 13,
		},
		InputSHA256: "cd", FoldVersion: 1, Truncated: true, RawLost: true,
	}
}

func sealedRun(t *testing.T, s Store) {
	r := fullRecord()
	write(t, s, k1.entry(41, r))
	got := mustRun(t, s, k1)
	if got.Version != 41 {
		t.Errorf("version %d, want 41", got.Version)
	}
	want := k1.entry(41, r)
	equal(t, "row", rowText(t, &got.Run), rowText(t, want.Run))
	if got.Messages != nil || got.InputMessages != nil || got.State != nil || got.Open != nil {
		t.Errorf("the row holds contents: %d messages, %d input messages, state %q, open %v",
			len(got.Messages), len(got.InputMessages), got.State, got.Open)
	}
	c, ok := mustContents(t, s, "acme", "thread", "run-1")["run-1"]
	if !ok {
		t.Fatal("no contents")
	}
	equal(t, "contents", contentText(c), contentText(store.Content{
		Messages: r.Messages, InputMessages: r.InputMessages, State: r.State,
	}))
}

func writeTwice(t *testing.T, s Store) {
	es := []store.Entry{
		k1.entry(10, k1.record(0, record.StatusRunning)),
		k1.entry(20, k1.record(0, record.StatusFinished, "a", "b")),
	}
	write(t, s, es...)
	once := mustDump(t, s, "acme")
	write(t, s, es...)
	equal(t, "thread after the same batch again", mustDump(t, s, "acme"), once)
	write(t, s, es[1], es[1])
	equal(t, "thread after one record twice in a batch", mustDump(t, s, "acme"), once)
}

func olderRecord(t *testing.T, s Store) {
	write(t, s, k1.entry(20, k1.record(0, record.StatusFinished, "a", "b")))
	want := mustDump(t, s, "acme")
	write(t, s, k1.entry(10, k1.record(0, record.StatusRunning)))
	equal(t, "thread after an older running record", mustDump(t, s, "acme"), want)
	write(t, s, k1.entry(15, k1.record(0, record.StatusAbandoned, "x", "y", "z")))
	equal(t, "thread after an older abandoned record", mustDump(t, s, "acme"), want)
}

func runningRun(t *testing.T, s Store) {
	r := k1.record(0, record.StatusRunning, "a", "b")
	r.InputMessages = []agui.Message{message("u", "user", "hello")}
	r.State = json.RawMessage(`{"x":1}`)
	write(t, s, k1.entry(10, r))
	got := mustRun(t, s, k1)
	if got.Status != record.StatusRunning || got.Version != 10 || got.Stats.Messages != 2 {
		t.Errorf("status %q, version %d, %d messages counted", got.Status, got.Version, got.Stats.Messages)
	}
	if got.Open != nil || got.Messages != nil || got.InputMessages != nil || got.State != nil {
		t.Error("the row of a running run holds contents")
	}
	if c := mustContents(t, s, "acme", "thread", "run-1"); len(c) != 0 {
		t.Errorf("a running run has contents: %v", c)
	}
}

func runningToSealed(t *testing.T, s Store) {
	write(t, s, k1.entry(10, k1.record(0, record.StatusRunning, "a")))
	write(t, s, k1.entry(11, k1.record(0, record.StatusRunning, "a", "b")))
	write(t, s, k1.entry(12, k1.record(0, record.StatusError, "a", "b", "c")))
	if got := mustRun(t, s, k1); got.Status != record.StatusError || got.Version != 12 {
		t.Errorf("status %q, version %d", got.Status, got.Version)
	}
	c := mustContents(t, s, "acme", "thread", "run-1")["run-1"]
	if len(c.Messages) != 3 || string(c.State) != `{"end":0}` {
		t.Errorf("%d messages, state %s", len(c.Messages), c.State)
	}
}

func abandonedToSealed(t *testing.T, s Store) {
	write(t, s, k1.entry(10, k1.record(0, record.StatusAbandoned, "a", "b", "c", "d")))
	if c := mustContents(t, s, "acme", "thread", "run-1")["run-1"]; len(c.Messages) != 4 {
		t.Errorf("abandoned: %d messages, want 4", len(c.Messages))
	}
	write(t, s, k1.entry(20, k1.record(0, record.StatusRunning, "a", "b", "c", "d")))
	if c := mustContents(t, s, "acme", "thread", "run-1"); len(c) != 0 {
		t.Errorf("running again, but contents of the abandoned record count: %v", c)
	}
	sealed := k1.record(0, record.StatusFinished, "a", "z")
	sealed.State = nil
	write(t, s, k1.entry(30, sealed))
	c := mustContents(t, s, "acme", "thread", "run-1")["run-1"]
	equal(t, "contents", contentText(c), contentText(store.Content{Messages: sealed.Messages}))
}

func emptyContents(t *testing.T, s Store) {
	r := k1.record(0, record.StatusFinished)
	r.State = nil
	write(t, s, k1.entry(10, r))
	c, ok := mustContents(t, s, "acme", "thread", "run-1")["run-1"]
	if !ok {
		t.Fatal("a sealed run is not in the answer: it cannot be told from one that is not indexed")
	}
	if len(c.Messages) != 0 || len(c.InputMessages) != 0 || c.State != nil {
		t.Errorf("contents %+v, want none", c)
	}
	null := k1.record(0, record.StatusFinished)
	null.State = json.RawMessage(`null`)
	write(t, s, k1.entry(11, null))
	if c := mustContents(t, s, "acme", "thread", "run-1")["run-1"]; string(c.State) != "null" {
		t.Errorf("state %q, want null: it is a state like any other", c.State)
	}
}

func keyDecides(t *testing.T, s Store) {
	e := k1.entry(10, k1.record(0, record.StatusFinished, "a"))
	e.Run.Tenant, e.Run.ThreadID, e.Run.RunID = "other", "elsewhere", "run-9"
	write(t, s, e)
	got := mustRun(t, s, k1)
	if got.Tenant != "acme" || got.ThreadID != "thread" || got.RunID != "run-1" {
		t.Errorf("row says %q %q %q", got.Tenant, got.ThreadID, got.RunID)
	}
	_, err := s.Run(t.Context(), "other", "elsewhere", "run-9")
	wantNotFound(t, err)
}

func tombstone(t *testing.T, s Store) {
	k2 := key{"acme", "thread", "run-2"}
	write(t, s,
		k1.entry(10, k1.record(0, record.StatusFinished, "a")),
		k2.entry(11, k2.record(10, record.StatusFinished, "b")))
	write(t, s, k1.entry(20, nil))
	_, err := s.Run(t.Context(), "acme", "thread", "run-1")
	wantNotFound(t, err)
	if c := mustContents(t, s, "acme", "thread", "run-1", "run-2"); len(c) != 1 || len(c["run-2"].Messages) != 1 {
		t.Errorf("contents %v, want run-2's alone", c)
	}
	threads, _, err := s.Threads(t.Context(), "acme", store.ThreadQuery{Limit: 10})
	if err != nil || len(threads) != 1 || threads[0].Runs != 1 {
		t.Errorf("Threads = %+v, %v", threads, err)
	}
	// A record from before the tombstone, read again, does not bring the run back.
	write(t, s, k1.entry(10, k1.record(0, record.StatusFinished, "a")))
	_, err = s.Run(t.Context(), "acme", "thread", "run-1")
	wantNotFound(t, err)

	write(t, s, k2.entry(21, nil))
	equal(t, "thread with all runs deleted", mustDump(t, s, "acme"), "no such thread\n")
	threads, _, err = s.Threads(t.Context(), "acme", store.ThreadQuery{Limit: 10})
	if err != nil || len(threads) != 0 {
		t.Errorf("Threads = %+v, %v", threads, err)
	}
}

func tombstoneFirst(t *testing.T, s Store) {
	write(t, s, k1.entry(20, nil))
	write(t, s, k1.entry(10, k1.record(0, record.StatusFinished, "a")))
	equal(t, "thread", mustDump(t, s, "acme"), "no such thread\n")
}

func afterTombstone(t *testing.T, s Store) {
	write(t, s,
		k1.entry(10, k1.record(0, record.StatusFinished, "a", "b")),
		k1.entry(20, nil),
		k1.entry(30, k1.record(50, record.StatusFinished, "c")))
	if got := mustRun(t, s, k1); got.Raw.First != 50 {
		t.Errorf("first offset %d, want 50", got.Raw.First)
	}
	if c := mustContents(t, s, "acme", "thread", "run-1")["run-1"]; len(c.Messages) != 1 || c.Messages[0].ID != "c" {
		t.Errorf("messages %v, want c alone", c.Messages)
	}
}

func holding(t *testing.T, s Store) {
	in := func(run string) key { return key{"acme", "thread", run} }
	asked := in("asked").record(10, record.StatusFinished, "b")
	asked.InputMessages = []agui.Message{message("a", "user", "hello")}
	write(t, s,
		in("first").entry(10, in("first").record(0, record.StatusFinished, "a", "b")),
		in("again").entry(11, in("again").record(5, record.StatusError, "a")),
		in("asked").entry(12, asked),
		in("open").entry(13, in("open").record(15, record.StatusRunning, "a")),
		in("gone").entry(14, in("gone").record(20, record.StatusFinished, "a")), in("gone").entry(15, nil),
		in("newer").entry(16, in("newer").record(25, record.StatusAbandoned, "a")),
		in("newer").entry(17, in("newer").record(25, record.StatusFinished, "c")),
		key{"acme", "elsewhere", "first"}.entry(18, k1.record(30, record.StatusFinished, "a")),
		key{"globex", "thread", "first"}.entry(19, k1.record(35, record.StatusFinished, "a")))
	many := []string{"a"}
	for i := range 3000 { // more than one statement names
		many = append(many, fmt.Sprintf("nobody's %d", i))
	}
	for name, c := range map[string]struct {
		ids  []string
		want map[string]int64
	}{
		"own messages, not those of inputs": {[]string{"a"}, map[string]int64{"first": 10, "again": 11}},
		"several":                           {[]string{"b", "c"}, map[string]int64{"first": 10, "asked": 12, "newer": 17}},
		"among many":                        {many, map[string]int64{"first": 10, "again": 11}},
		"nobody's":                          {[]string{"z"}, map[string]int64{}},
		"none":                              {nil, map[string]int64{}},
	} {
		got, err := s.Holding(t.Context(), "acme", "thread", c.ids)
		if err != nil {
			t.Fatal(err)
		}
		equal(t, name, fmt.Sprint(got), fmt.Sprint(c.want))
	}
}
