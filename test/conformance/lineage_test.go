package conformance_test

import (
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/skeinhq/skein/internal/recordings"
	"github.com/skeinhq/skein/pkg/agui"
	"github.com/skeinhq/skein/pkg/compactor/partition"
	"github.com/skeinhq/skein/pkg/lineage"
	"github.com/skeinhq/skein/pkg/record"
)

// No framework puts parentRunId on the stream and the official client cannot send it, so in
// practice a run's parent is found by what its input repeats. The recorder knew the parents; here
// they are hidden, and the chains must be found all the same.
func TestPlace_FindsTheRecordedChainWithoutParentRunID(t *testing.T) {
	for _, recorded := range recordings.All() {
		t.Run(recorded.String(), func(t *testing.T) {
			thread, err := lineage.NewThread()
			if err != nil {
				t.Fatal(err)
			}
			for i, run := range recorded.Runs {
				input, err := agui.DecodeInput(run.Input, "")
				if err != nil {
					t.Fatal(err)
				}
				start := lineage.Start{RunID: run.RunID, Input: input, Offset: int64(10 * i)}
				place, err := thread.Place(start)
				if err != nil {
					t.Fatal(err)
				}
				placed := place.Run
				by := lineage.ParentContent
				if i == 0 {
					by = lineage.ParentNone
				}
				if placed.Parent != run.ParentRunID || placed.ParentBy != by {
					t.Errorf("%s: parent %q by %q, want %q by %q", run.RunID, placed.Parent, placed.ParentBy, run.ParentRunID, by)
				}
				if placed.Branch != recorded.Runs[0].RunID || placed.Depth != i {
					t.Errorf("%s: branch %q depth %d, want %q and %d", run.RunID, placed.Branch, placed.Depth, recorded.Runs[0].RunID, i)
				}

				history := foldRun(t, run).run.Messages()
				placed.End, placed.Sealed, placed.Status = start.Offset+9, true, lineage.StatusFinished
				placed.MessageCount, placed.HistoryKey = len(history), lineage.KeyOf(history)
				if err := thread.Add(placed); err != nil {
					t.Fatal(err)
				}
			}
		})
	}
}

// What agents do to a conversation between two runs is said in the second one's record. The runs are
// recorded ones; the input of the second is rewritten as agents and people rewrite it.
func TestRewrites_OfRecordedThreads(t *testing.T) {
	edit := func(m agui.Message) agui.Message {
		raw := fmt.Appendf(nil, `{"id":%s,"role":%q,"content":"in other words"}`, encode(m.ID), m.Role)
		return agui.Message{ID: m.ID, Role: m.Role, Raw: raw}
	}
	summary := agui.Message{ID: "summary", Role: "system", Raw: json.RawMessage(`{"id":"summary","role":"system","content":"they talked"}`)}
	rewrites := map[string]func(held int, in []agui.Message) []agui.Message{
		"":           func(_ int, in []agui.Message) []agui.Message { return in },
		"trimmed":    func(_ int, in []agui.Message) []agui.Message { return in[1:] },
		"summarised": func(_ int, in []agui.Message) []agui.Message { return slices.Concat([]agui.Message{summary}, in[1:]) },
		"inserted":   func(_ int, in []agui.Message) []agui.Message { return slices.Concat([]agui.Message{summary}, in) },
		"edited": func(_ int, in []agui.Message) []agui.Message {
			return slices.Concat([]agui.Message{edit(in[0])}, in[1:])
		},
		"rewound": func(held int, in []agui.Message) []agui.Message { return slices.Concat(in[:held-1], in[held:]) },
		"replaced": func(held int, in []agui.Message) []agui.Message {
			return slices.Concat([]agui.Message{summary}, in[held:])
		},
	}
	threads := 0
	for _, recorded := range recordings.All() {
		if len(recorded.Runs) < 2 {
			continue
		}
		held := len(lineage.InputMessages(foldRun(t, recorded.Runs[0]).run.Messages()))
		if held < 2 {
			continue
		}
		threads++
		for want, rewrite := range rewrites {
			t.Run(recorded.String()+" "+want, func(t *testing.T) {
				var sources []partition.Source
				add := func(kind record.Kind, run string, value []byte) {
					sources = append(sources, partition.Source{Headers: record.Headers{Kind: kind, RunID: run, Seq: -1}, Value: value, At: time.Unix(1_790_000_000, 0)})
				}
				for i, run := range recorded.Runs[:2] {
					input := []byte(run.Input)
					if i == 1 {
						in, err := agui.DecodeInput(run.Input, "")
						if err != nil {
							t.Fatal(err)
						}
						if input, err = json.Marshal(map[string]any{
							"threadId": run.ThreadID, "runId": run.RunID, "parentRunId": run.ParentRunID, "state": in.State,
							"messages": rewrite(held, in.Messages), "tools": []any{}, "context": []any{},
						}); err != nil {
							t.Fatal(err)
						}
					}
					add(record.KindInput, run.RunID, input)
					for _, line := range run.Lines() {
						add(record.KindEvent, run.RunID, line)
					}
				}
				records, _, err := partition.Offline(partition.DefaultConfig(), "acme", recorded.ThreadID, sources)
				if err != nil || len(records) != 2 {
					t.Fatal(len(records), err)
				}
				if got := strings.Join(records[1].Rewrote, " "); got != want || records[0].Rewrote != nil {
					t.Errorf("rewrote %q, want %q; the first run %q", got, want, records[0].Rewrote)
				}
			})
		}
	}
	if threads < 3 {
		t.Errorf("%d recorded threads have two runs", threads)
	}
}
