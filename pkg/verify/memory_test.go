package verify

import (
	"fmt"
	"runtime"
	"runtime/debug"
	"runtime/metrics"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/skeinhq/skein/pkg/agui"
	"github.com/skeinhq/skein/pkg/compact"
	"github.com/skeinhq/skein/pkg/fold"
	"github.com/skeinhq/skein/pkg/lineage"
	"github.com/skeinhq/skein/pkg/record"
	"github.com/skeinhq/skein/test/parts/partstest"
)

// oneRun folds all records into one run, which has no parent.
type oneRun struct{ *fold.Run }

func (o oneRun) Find(*fold.Decoded) (*fold.Run, fold.Outcome, error) { return o.Run, "", nil }

func (o oneRun) Begin(r *fold.Run, _ *fold.Decoded, in *agui.RunAgentInput) (*compact.Run, error) {
	started, _ := fold.Start(r.ID, lineage.ParentNone, lineage.History{}, in, 0)
	return started, nil
}

// recordOf returns the record that the events make.
func recordOf(t *testing.T, events []record.Event) *record.Run {
	t.Helper()
	r := fold.NewRun("t", "r", "r")
	loop := fold.NewLoop(oneRun{r})
	for _, e := range events {
		if _, outcome, err := loop.Next(&e); err != nil || outcome != fold.Folded {
			t.Fatalf("%s: %s, %v", e.Value, outcome, err)
		}
	}
	given := &record.Run{Tenant: "acme", ThreadID: "t", RunID: "r", FoldVersion: compact.Version}
	given.ParentBy, given.BranchID, given.RootRunID = record.ParentNone, "r", "r"
	given.Raw.Ranges = [][2]int64{{0, int64(len(events))}}
	made, _ := r.Record(given, fold.Origin{}, 0, int64(len(events)))
	text, err := record.EncodeRun(made)
	if err != nil {
		t.Fatal(err)
	}
	if made, err = record.DecodeRun(text); err != nil {
		t.Fatal(err)
	}
	return made
}

// peak returns how much the objects in use grow at most while f runs. The collector counts them each time the heap has grown by a
// twentieth; what it has yet to collect is not among them: how much that is depends on when it runs.
func peak(f func()) int64 {
	defer debug.SetGCPercent(debug.SetGCPercent(5))
	heap := func() int64 {
		live := []metrics.Sample{{Name: "/gc/heap/live:bytes"}}
		metrics.Read(live)
		return int64(live[0].Value.Uint64())
	}
	runtime.GC()
	before, most := heap(), int64(0)
	done := make(chan struct{})
	var looking sync.WaitGroup
	looking.Go(func() {
		tick := time.NewTicker(time.Millisecond)
		defer tick.Stop()
		for {
			select {
			case <-tick.C:
				most = max(most, heap()-before)
			case <-done:
				return
			}
		}
	})
	f()
	close(done)
	looking.Wait()
	return most
}

// What is counted for a run before it is folded again is about what that takes at most, whatever its events are.
func TestBytes_IsAboutWhatAThreadTakesAtMost(t *testing.T) {
	partstest.SkipShort(t, "time for tests of scale")
	const n = 20_000
	for name, event := range map[string]func(i int) []string{
		"messages of a character": func(i int) []string {
			return []string{fmt.Sprintf(`{"type":"TEXT_MESSAGE_CHUNK","messageId":"%d","role":"assistant","delta":"a"}`, i)}
		},
		"messages in three events": func(i int) []string {
			return []string{
				fmt.Sprintf(`{"type":"TEXT_MESSAGE_START","messageId":"%d","role":"assistant"}`, i),
				fmt.Sprintf(`{"type":"TEXT_MESSAGE_CONTENT","messageId":"%d","delta":"a"}`, i),
				fmt.Sprintf(`{"type":"TEXT_MESSAGE_END","messageId":"%d"}`, i),
			}
		},
		"tool calls": func(i int) []string {
			return []string{
				fmt.Sprintf(`{"type":"TOOL_CALL_START","toolCallId":"%d","toolCallName":"t"}`, i),
				fmt.Sprintf(`{"type":"TOOL_CALL_END","toolCallId":"%d"}`, i),
				fmt.Sprintf(`{"type":"TOOL_CALL_RESULT","toolCallId":"%d","messageId":"r%d","content":"a"}`, i, i),
			}
		},
		"one long message": func(i int) []string {
			if i == 0 {
				return []string{`{"type":"TEXT_MESSAGE_START","messageId":"m","role":"assistant"}`}
			}
			return []string{`{"type":"TEXT_MESSAGE_CONTENT","messageId":"m","delta":"` + strings.Repeat("word ", 100) + `"}`}
		},
		"events that are kept": func(i int) []string { return []string{fmt.Sprintf(`{"type":"CUSTOM","name":"n","value":%d}`, i)} },
	} {
		t.Run(name, func(t *testing.T) {
			var events []record.Event
			add := func(value string) {
				events = append(events, record.Event{
					Offset: int64(len(events)), Time: time.UnixMilli(1_700_000_000_000), Value: []byte(value),
					Headers: record.Headers{Kind: record.KindEvent, RunID: "r", Seq: int64(len(events))},
				})
			}
			add(`{"type":"RUN_STARTED","threadId":"t","runId":"r"}`)
			for i := range n {
				for _, value := range event(i) {
					add(value)
				}
			}
			add(`{"type":"RUN_FINISHED","threadId":"t","runId":"r"}`)
			rec := recordOf(t, events)
			var reports []Report
			took := peak(func() {
				records := []*record.Run{rec}
				thread, err := NewThread(records, []string{"r"}, [2]int64{0, int64(len(events))}, NewRecords(records))
				for _, e := range events {
					if err == nil {
						err = thread.Take(e)
					}
				}
				if err == nil {
					reports, err = thread.Reports()
				}
				if err != nil {
					t.Error(err)
				}
			})
			if len(reports) != 1 || reports[0].Verdict != Proved {
				t.Fatalf("the reports are %+v", reports)
			}
			counted := Bytes(rec)
			t.Logf("%d KiB taken, %d KiB counted", took>>10, counted>>10)
			// A slice that grows is there twice for a moment, and what was allocated while the collector marks counts until its next turn.
			if most := counted + counted/4 + 2<<20; took > most {
				t.Errorf("it took %d bytes, and %d are counted", took, counted)
			}
		})
	}
}
