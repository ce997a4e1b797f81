package conformance_test

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/skeinhq/skein/pkg/agui"
	"github.com/skeinhq/skein/pkg/compact"
	"github.com/skeinhq/skein/pkg/compactor/partition"
	"github.com/skeinhq/skein/pkg/fold"
	"github.com/skeinhq/skein/pkg/lineage"
	"github.com/skeinhq/skein/pkg/record"
	"github.com/skeinhq/skein/test/conformance"
)

// event is a source of partition.Offline.
func event(run string, value []byte) partition.Source {
	return partition.Source{Headers: record.Headers{Kind: record.KindEvent, RunID: run, Seq: -1}, Value: value,
		At: time.Unix(1_790_000_000, 0)}
}

func offline(t rapid.TB, thread string, sources []partition.Source) map[string]*record.Run {
	t.Helper()
	records, refused, err := partition.Offline(partition.DefaultConfig(), "acme", thread, sources)
	if err != nil {
		t.Fatal(err)
	}
	for _, r := range refused {
		if r.Reason != "malformed" && r.Reason != "after-terminal" {
			t.Fatalf("source %d is refused: %s %s", r.Source, r.Reason, r.Detail)
		}
	}
	byID := map[string]*record.Run{}
	for _, r := range records {
		byID[r.RunID] = r
	}
	return byID
}

// What "skein fold --events" prints of all runs of a thread gives, published into a Skein that holds nothing, the same
// history for each run, and the same parents where AG-UI has a word for them: it has none for a run without a parent that
// comes behind others, and none that tells runs of one id apart.
func TestCompactedThread_PublishedGivesTheSameHistories(t *testing.T) {
	ways := map[lineage.ParentBy]int{}
	afresh := 0
	rapid.Check(t, func(rt *rapid.T) {
		g := gen{t: rt}
		s, err := fold.NewTurns(0)
		if err != nil {
			rt.Fatal(err)
		}
		for n := range rapid.IntRange(2, 6).Draw(rt, "runs") {
			run := fmt.Sprint("r", n)
			if n > 0 && g.chance(10) {
				run = "r0" // used again
			}
			started := obj{"type": "RUN_STARTED", "threadId": "t", "runId": run}
			if n > 0 && g.chance(40) {
				started["parentRunId"] = pick(g, append([]string{"elsewhere"}, idsOf(s)...))
			}
			var beside []byte
			if g.chance(70) {
				input := obj{"threadId": "t", "runId": run, "messages": g.sound().messages(4), "tools": []any{}, "context": []any{}}
				if n > 0 && g.chance(60) { // of what a run had: all, less, in another order, and something new
					had := pick(g, s.Runs()).Fold.Messages()
					from := g.n(len(had))
					kept := slices.Clone(had[from:])
					if g.chance(30) {
						slices.Reverse(kept)
					}
					said := encode(obj{"id": fmt.Sprint("said", n), "role": "user", "content": "x"})
					kept = append(kept, agui.Message{ID: fmt.Sprint("said", n), Role: "user", Raw: said})
					input["messages"] = kept
				}
				if g.chance(50) {
					beside = encode(input)
				} else {
					started["input"] = input
				}
			}
			events := [][]byte{encode(started)}
			for _, e := range g.rest(run, lineage.History{}, false) {
				events = append(events, e)
			}
			if err := s.Add(run, beside, events, func(int, error) {}); err != nil {
				rt.Fatal(err)
			}
		}
		var sources []partition.Source
		for _, e := range compact.Compacted(s.Steps()...) {
			ev, err := agui.Decode(e)
			if err != nil {
				rt.Fatal(err)
			}
			if strings.Contains(string(e), `"skein-afresh"`) && ev.Type == agui.ActivitySnapshot {
				afresh++
			}
			sources = append(sources, event("", e))
		}
		records := offline(rt, "t", sources)
		for i, r := range s.Runs() {
			got, err := restore(records, r.Place.ID)
			if err != nil {
				rt.Fatal(err)
			}
			want := conformance.Conversation{Messages: encode(list(r.Fold.Messages())), State: r.Fold.State()}
			if d := conformance.Diff(want, conformance.Conversation{Messages: encode(list(got.Messages)), State: got.State}); d != "" {
				rt.Fatalf("run %d, %s: %s\n%s", i, r.Place.ID, d, linesOf(sources))
			}
			ways[r.Place.ParentBy]++
			again := slices.ContainsFunc(s.Runs()[:i+1], func(o *fold.Turn) bool {
				return o.Place.ID != r.Place.Parent && o.Place.ClientRunID() == r.Place.Parent
			})
			if rec := records[r.Place.ID]; r.Place.ParentBy != lineage.ParentNone && !again && rec.ParentRunID != r.Place.Parent {
				rt.Fatalf("run %d, %s: its parent is %q, want %q\n%s", i, r.Place.ID, rec.ParentRunID, r.Place.Parent, linesOf(sources))
			}
		}
	})
	if len(ways) < 4 || afresh == 0 {
		t.Errorf("parents were found by %v, %d runs began afresh", ways, afresh)
	}
}

func idsOf(s *fold.Turns) (ids []string) {
	for _, r := range s.Runs() {
		ids = append(ids, r.Place.ID)
	}
	return ids
}

func linesOf(sources []partition.Source) string {
	var b strings.Builder
	for _, s := range sources {
		b.Write(s.Value)
		b.WriteByte('\n')
	}
	return b.String()
}
