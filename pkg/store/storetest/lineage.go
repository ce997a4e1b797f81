package storetest

import (
	"encoding/json"
	"reflect"
	"testing"

	"github.com/skeinhq/skein/pkg/agui"
	"github.com/skeinhq/skein/pkg/record"
	"github.com/skeinhq/skein/pkg/store"
)

// factual returns a record in which all that Lineage and the facts tell is set.
func factual(k key, first int64, status record.Status) *record.Run {
	r := k.record(first, status, "a1", "a2")
	r.ClientRunID, r.Agent, r.Base = "as given", "shop", "r0"
	r.Lineage = record.Lineage{ParentRunID: "r0", ParentBy: record.ParentContent, SpawnedBy: "outside", BranchID: "b", RootRunID: "r0",
		Depth: 4}
	r.Rewrote = []string{"rewound", "edited"}
	r.Synthetic, r.Truncated, r.RawLost = true, true, true
	r.Raw.Ranges = [][2]int64{{first, first + 2}, {first + 3, first + 5}}
	duration := int64(2000)
	r.Stats.Duration = &duration
	r.Input, r.InputForm = json.RawMessage(`{"tools":[]}`), record.InputNormalised
	r.InputMessages = []agui.Message{message("u"+k.run, "user", "Which one?")}
	r.Terminal = json.RawMessage(`{"type":"RUN_ERROR","code":"quota","message":"no tokens are left"}`)
	r.Resumes = []json.RawMessage{json.RawMessage(`{"interruptId":"i1","status":"resolved","payload":{"approved":true}}`)}
	return r
}

// narrow returns the members of a run that Lineage sets.
func narrow(r store.Run) store.Run {
	out := store.Run{Version: r.Version, Facts: r.Facts, Run: record.Run{
		Tenant: r.Tenant, ThreadID: r.ThreadID, RunID: r.RunID, ClientRunID: r.ClientRunID, Lineage: r.Lineage, Base: r.Base,
		Status: r.Status, Agent: r.Agent, Rewrote: r.Rewrote, MessageCount: r.MessageCount, InputForm: r.InputForm,
		StartedAt: r.StartedAt, EndedAt: r.EndedAt, Synthetic: r.Synthetic, Truncated: r.Truncated, RawLost: r.RawLost, Raw: r.Raw,
	}}
	out.Stats.Duration = r.Stats.Duration
	if r.Input != nil {
		out.Input = json.RawMessage("{}")
	}
	return out
}

// Lineage tells of each run what its record does, in the newest version, and its facts.
func narrowLineage(t *testing.T, s Store) {
	of := func(run string) key { return key{"acme", "thread", run} }
	wholes := []*record.Run{factual(of("r2"), 30, record.StatusError), factual(of("r1"), 10, record.StatusCancelled),
		of("r0").record(1, record.StatusFinished)}
	var entries []store.Entry
	for i, r := range wholes {
		entries = append(entries, of(r.RunID).entry(int64(10+i), r))
	}
	stale := of("r2").record(30, record.StatusRunning)
	write(t, s, of("r2").entry(9, stale))
	write(t, s, entries...)
	write(t, s, of("r9").entry(20, of("r9").record(5, record.StatusFinished)))
	write(t, s, of("r9").entry(21, nil), key{"umbrella", "thread", "r5"}.entry(22, of("r5").record(7, record.StatusFinished)))

	want := []store.Run{}
	for i := len(wholes) - 1; i >= 0; i-- { // by start
		want = append(want, narrow(store.Run{Run: *wholes[i], Version: int64(10 + i), Facts: store.FactsOf(wholes[i])}))
	}
	got, err := s.Lineage(t.Context(), "acme", "thread")
	if err != nil || len(got) != len(want) {
		t.Fatalf("%d runs, %v; want %d", len(got), err, len(want))
	}
	for i := range want {
		if got := narrow(got[i]); !reflect.DeepEqual(got, want[i]) {
			t.Errorf("run %s:\n got %+v\nwant %+v", want[i].RunID, got, want[i])
		}
	}
	contents, err := s.Contents(t.Context(), "acme", "thread", got)
	if err != nil || len(contents) != len(want) {
		t.Errorf("%d contents, %v; want %d", len(contents), err, len(want))
	}
	for id, c := range mustContents(t, s, "acme", "thread", "r0", "r1", "r2") {
		equal(t, "contents of "+id+" by its row of lineage", contentText(contents[id]), contentText(c))
	}
	if f := got[2].Facts; f.ErrorCode != "quota" || f.Question != "Which one?" || f.Reply != "text of a2" || f.Asked == "" ||
		f.Asked != got[1].Facts.Asked || got[1].Facts.CancelledBy != store.CancelledByCaller {
		t.Errorf("facts %+v and %+v", f, got[1].Facts)
	}
	_, err = s.Lineage(t.Context(), "umbrella", "no such thread")
	wantNotFound(t, err)
}
