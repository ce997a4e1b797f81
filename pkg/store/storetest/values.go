package storetest

import (
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"

	"github.com/skeinhq/skein/pkg/agui"
	"github.com/skeinhq/skein/pkg/record"
	"github.com/skeinhq/skein/pkg/store"
)

func tenants(t *testing.T, s Store) {
	ctx := t.Context()
	ours, theirs := key{"acme", "thread", "run-1"}, key{"acme2", "thread", "run-1"}
	write(t, s,
		ours.entry(10, ours.record(0, record.StatusFinished, "ours")),
		theirs.entry(11, theirs.record(70, record.StatusError, "theirs-1", "theirs-2")))

	for _, c := range []struct {
		key      key
		first    int64
		messages int
		next     int64
	}{{ours, 0, 1, 5}, {theirs, 70, 2, 75}} {
		runs, err := s.Thread(ctx, c.key.tenant, "thread")
		if err != nil || len(runs) != 1 || runs[0].Raw.First != c.first || runs[0].Tenant != c.key.tenant {
			t.Errorf("Thread for %s = %+v, %v", c.key.tenant, runs, err)
		}
		if r := mustRun(t, s, c.key); r.Raw.First != c.first || r.Tenant != c.key.tenant {
			t.Errorf("Run for %s = %+v", c.key.tenant, r)
		}
		if got := mustContents(t, s, c.key.tenant, "thread", "run-1")["run-1"]; len(got.Messages) != c.messages {
			t.Errorf("Contents for %s: %d messages", c.key.tenant, len(got.Messages))
		}
		threads, _, err := s.Threads(ctx, c.key.tenant, store.ThreadQuery{Limit: 10})
		if err != nil || len(threads) != 1 || threads[0].Runs != 1 || threads[0].Messages != c.messages {
			t.Errorf("Threads for %s = %+v, %v", c.key.tenant, threads, err)
		}
		to, err := s.IndexedTo(ctx, c.key.tenant)
		if err != nil || len(to) != 1 || to[3] != c.next {
			t.Errorf("IndexedTo for %s = %v, %v", c.key.tenant, to, err)
		}
	}
	before := mustDump(t, s, "acme2")
	write(t, s, ours.entry(12, nil))
	equal(t, "another tenant's thread after a tombstone of ours", mustDump(t, s, "acme2"), before)
	// Parts must not run together: tenant "a" with thread "b/c" is not tenant "a/b" with thread "c".
	x, y := key{"a", "b/c", "r"}, key{"a/b", "c", "r"}
	write(t, s, x.entry(20, x.record(100, record.StatusFinished, "x")), y.entry(21, y.record(110, record.StatusFinished, "y")))
	if got := mustContents(t, s, "a", "b/c", "r")["r"]; len(got.Messages) != 1 || got.Messages[0].ID != "x" {
		t.Errorf("messages %v, want x alone", got.Messages)
	}
}

func opaqueIDs(t *testing.T, s Store) {
	ids := map[string]string{
		"slashes":         "a/b//c/",
		"quotes":          `it's "quoted" ` + "`back` \\ %2F",
		"control":         "nul\x00after\ttab\nline\x1f",
		"other NUL":       "nul\x00other",
		"emoji":           "👩‍👩‍👧‍👦 é e\u0301 \u2028",
		"upper":           "ABC",
		"lower":           "abc",
		"spaces":          " abc ",
		"number":          "0123",
		"short number":    "123",
		"like a pattern":  "a%b_c*?[x]",
		"like SQL":        "'; DROP TABLE runs; --",
		"512 bytes":       strings.Repeat("x", 512),
		"512 bytes emoji": strings.Repeat("🦊", 128),
		"511 and one":     strings.Repeat("x", 511) + "y",
	}
	var entries []store.Entry
	version := int64(0)
	for _, thread := range ids {
		for _, run := range ids {
			version++
			k := key{"acme", thread, run}
			r := k.record(version*10, record.StatusFinished, run)
			r.ParentRunID, r.BranchID = run, run
			entries = append(entries, k.entry(version, r))
		}
	}
	write(t, s, entries...)
	for name, thread := range ids {
		runs, err := s.Thread(t.Context(), "acme", thread)
		if err != nil || len(runs) != len(ids) {
			t.Fatalf("%s: %d runs, error %v; want %d", name, len(runs), err, len(ids))
		}
		contents := mustContents(t, s, "acme", thread, slices.Collect(maps.Values(ids))...)
		for _, r := range append(runs, mustRun(t, s, key{"acme", thread, thread})) {
			run := r.RunID
			if r.ThreadID != thread || r.ParentRunID != run || r.BranchID != run {
				t.Errorf("%s: row says thread %q run %q parent %q", name, r.ThreadID, run, r.ParentRunID)
			}
			if m := contents[run].Messages; len(m) != 1 || m[0].ID != run {
				t.Errorf("%s: contents of %q are %v", name, run, m)
			}
		}
		threads, _, err := s.Threads(t.Context(), "acme", store.ThreadQuery{Prefix: thread, Limit: 1000})
		if err != nil || len(threads) == 0 || threads[0].ThreadID != thread {
			t.Errorf("%s: threads with that prefix: %v, %v", name, threads, err)
		}
		for _, th := range threads {
			if !strings.HasPrefix(th.ThreadID, thread) {
				t.Errorf("%s: thread %q has not the prefix %q", name, th.ThreadID, thread)
			}
		}
	}
	threads, _, err := s.Threads(t.Context(), "acme", store.ThreadQuery{Limit: 1000})
	if err != nil || len(threads) != len(ids) {
		t.Errorf("%d threads, error %v; want %d", len(threads), err, len(ids))
	}
	tenant := key{"te'n\x00a/nt 🦊", "thread", "run"}
	write(t, s, tenant.entry(9999, tenant.record(5, record.StatusFinished, "m")))
	mustRun(t, s, tenant)
}

func exactText(t *testing.T, s Store) {
	raws := []string{
		`{"id":"m","role":"user","content":"plain"}`,
		`{"role":"user","z":1,"a":2,"id":"m","content":"keys in no order"}`,
		`{"id":"m","role":"user","n":[12345678901234567890,1.0,1e400,-0,0.10,1E+2,123456789.123456789123456789]}`,
		`{"id":"m","role":"user","content":"\u003cb\u003e & <i> \/ \ud83d\ude00 😀 \ud83d alone \u0000 \u2028"}`,
		"{\"id\":\"m\",\"role\":\"user\",\"content\":\"raw \u2028 \u2029 \x7f é e\u0301\"}",
		`{"id":"m","role":"assistant","content":null,"toolCalls":[{"id":"c","type":"function","function":{"name":"f","arguments":"{\"a\": 1.0 }"}}]}`,
		`{ "id" : "m", "role":"user",  "content":"spaces" }`,
		`{"id":"m","role":"user","id":"m","content":"twice","content":"the same key"}`,
	}
	states := []string{
		`{"b":1,"a":1.0,"big":12345678901234567890}`, `null`, `false`, `[]`, `""`, `{}`, `0.0`,
		`"\u003c & <"`, `{"":{"\ud83d":1}}`,
	}
	var entries []store.Entry
	for i, raw := range raws {
		k := key{"acme", "messages", fmt.Sprint("run-", i)}
		r := k.record(int64(i)*10, record.StatusFinished)
		r.Messages = []agui.Message{{ID: "m", Role: "user", Raw: json.RawMessage(raw)}}
		r.InputMessages = []agui.Message{{ID: "m", Role: "user", Raw: json.RawMessage(raw)}, {ID: "m", Role: "user", Raw: json.RawMessage(raw)}}
		entries = append(entries, k.entry(int64(len(entries)), r))
	}
	for i, state := range states {
		k := key{"acme", "states", fmt.Sprint("run-", i)}
		r := k.record(int64(i)*10, record.StatusFinished)
		r.State = json.RawMessage(state)
		entries = append(entries, k.entry(int64(len(entries)), r))
	}
	write(t, s, entries...)
	for _, e := range entries {
		c := mustContents(t, s, "acme", e.ThreadID, e.RunID)[e.RunID]
		want := store.Content{Messages: e.Run.Messages, InputMessages: e.Run.InputMessages, State: e.Run.State}
		equal(t, e.ThreadID+" of "+e.RunID, contentText(c), contentText(want))
	}
	// In the row, too, what an agent sent keeps its numbers, key order and escapes.
	k := key{"acme", "rows", "run"}
	r := k.record(0, record.StatusFinished)
	r.Started = json.RawMessage(`{"z":12345678901234567890,"type":"RUN_STARTED","a":1.0,"t":"\u003c < & \ud83d"}`)
	r.Terminal = r.Started
	r.Events = []json.RawMessage{r.Started}
	r.Interrupts = []json.RawMessage{r.Started}
	write(t, s, k.entry(1, r))
	got := mustRun(t, s, k)
	for _, raw := range []json.RawMessage{got.Started, got.Terminal, got.Events[0], got.Interrupts[0]} {
		equal(t, "row", string(raw), string(r.Started))
	}
}

func largeRecord(t *testing.T, s Store) {
	const mib = 1 << 20
	one := key{"acme", "large", "one message"}
	r := one.record(0, record.StatusFinished)
	r.Messages = []agui.Message{message("m", "assistant", strings.Repeat("0123456789abcdef", mib))}
	many := key{"acme", "large", "many messages"}
	r2 := many.record(10, record.StatusFinished)
	for i := range 20_007 { // no multiple of the rows that one statement writes
		r2.Messages = append(r2.Messages, message(fmt.Sprint("m", i), "user", strings.Repeat("x", 700)))
	}
	state := key{"acme", "large", "state"}
	r3 := state.record(20, record.StatusFinished)
	r3.State = json.RawMessage(`"` + strings.Repeat("é", 8*mib) + `"`)
	kept := key{"acme", "large", "kept events"}
	r4 := kept.record(30, record.StatusFinished)
	r4.Events = []json.RawMessage{json.RawMessage(`{"type":"CUSTOM","value":"` + strings.Repeat("x", 15*mib) + `"}`)}

	write(t, s, one.entry(1, r), many.entry(2, r2), state.entry(3, r3), kept.entry(4, r4))
	for k, want := range map[key]*record.Run{one: r, many: r2, state: r3, kept: r4} {
		c := mustContents(t, s, "acme", "large", k.run)[k.run]
		equal(t, k.run, contentText(c), contentText(store.Content{Messages: want.Messages, State: want.State}))
		row := mustRun(t, s, k)
		equal(t, k.run, rowText(t, &row.Run), rowText(t, want))
	}
}

func manyRuns(t *testing.T, s Store) {
	const n = 3000 // a chain longer than any one statement's list
	entries := make([]store.Entry, n)
	ids := make([]string, n)
	for i := range n {
		k := key{"acme", "long", fmt.Sprintf("run-%05d", i)}
		ids[i] = k.run
		entries[i] = k.entry(int64(i), k.record(int64(i*5), record.StatusFinished, fmt.Sprint("m", i)))
	}
	write(t, s, entries...)
	c := mustContents(t, s, "acme", "long", ids...)
	for i, id := range ids {
		if m := c[id].Messages; len(m) != 1 || m[0].ID != fmt.Sprint("m", i) {
			t.Fatalf("contents of %s: %v", id, m)
		}
	}
	if got := mustContents(t, s, "acme", "long", "run-00001", "nobody", "run-00001"); len(got) != 1 || len(got["run-00001"].Messages) != 1 {
		t.Errorf("contents of one run named twice: %v", got)
	}
}
