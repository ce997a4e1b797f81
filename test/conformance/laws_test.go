package conformance_test

import (
	"bytes"
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"testing"

	"pgregory.net/rapid"

	"github.com/skeinhq/skein/pkg/agui"
	"github.com/skeinhq/skein/pkg/compact"
	"github.com/skeinhq/skein/pkg/lineage"
)

// The laws of the fold that need no client, over generated runs, whole and spoiled.

// drawRun draws where a run starts from, and its events.
func drawRun(t *rapid.T) (*compact.Run, func() *compact.Run, stream) {
	g := gen{t}
	messages, state := encode(g.messages(4)), encode(g.state())
	start := func() *compact.Run {
		var list []agui.Message
		if err := json.Unmarshal(messages, &list); err != nil {
			t.Fatal(err)
		}
		return compact.New(list, state)
	}
	return start(), start, drawStream(t, "r")
}

func apply(t *rapid.T, run *compact.Run, raw json.RawMessage) {
	t.Helper()
	ev, err := agui.Decode(raw)
	if err == nil && !run.Ended() {
		err = run.Apply(ev)
	}
	if err != nil && !agui.IsMalformed(err) {
		t.Fatal(err)
	}
}

// bytesOf is all that a fold says: messages, state and its checkpoint.
func bytesOf(t *rapid.T, run *compact.Run) []byte {
	t.Helper()
	checkpoint, err := run.Checkpoint()
	if err != nil {
		t.Fatal(err)
	}
	return fmt.Appendf(nil, "%s\n%s\n%s", toJSON(t, run.Messages()), run.State(), checkpoint)
}

// A fold that is put away at any event, or looked at, and taken up again gives the same bytes.
func TestGenerated_AnyCheckpointGivesTheSameBytes(t *testing.T) {
	rapid.Check(t, func(rt *rapid.T) {
		whole, start, s := drawRun(rt)
		pieces := start()
		for _, raw := range s.events {
			apply(rt, whole, raw)
			if rapid.Bool().Draw(rt, "checkpoint") {
				checkpoint, err := pieces.Checkpoint()
				if err != nil {
					rt.Fatal(err)
				}
				if pieces, err = compact.Resume(pieces.Messages(), slices.Clone(pieces.State()), checkpoint); err != nil {
					rt.Fatal(err)
				}
			}
			apply(rt, pieces, raw)
		}
		if a, b := bytesOf(rt, whole), bytesOf(rt, pieces); !bytes.Equal(a, b) {
			rt.Fatalf("without a stop\n%s\nwith stops\n%s\nof\n%s", a, b, strings.Join(s.lines(), "\n"))
		}
	})
}

// fold(fold(x)) = fold(x): the compacted events of a chain, read as its runs, fold to the same bytes, and compact
// to themselves.
func TestGenerated_CompactedEventsFoldToTheSameBytes(t *testing.T) {
	several := 0
	rapid.Check(t, func(rt *rapid.T) {
		run, _, s := drawRun(rt)
		var chain []*compact.Run
		for {
			for _, raw := range s.events {
				apply(rt, run, raw)
			}
			chain = append(chain, run)
			if len(chain) == 3 || rapid.Bool().Draw(rt, "last") {
				break
			}
			g := gen{rt}
			var input *agui.RunAgentInput
			if g.chance(70) { // else it goes on from all that was left
				input = &agui.RunAgentInput{State: encode(g.state())}
				if err := json.Unmarshal(encode(g.messages(4)), &input.Messages); err != nil {
					rt.Fatal(err)
				}
			}
			start := lineage.StartHistory(lineage.ParentExplicit, lineage.History{Messages: run.Messages(), State: run.State()}, input)
			run, s = compact.New(start.Messages, start.State), drawStream(rt, fmt.Sprint("r", len(chain)))
		}
		once := compact.Compacted(steps(chain)...)
		again := foldAsChain(rt, once)
		if len(again) > 1 {
			several++
		}
		last := again[len(again)-1]
		if a, b := toJSON(rt, run.Messages()), toJSON(rt, last.Messages()); !bytes.Equal(a, b) {
			rt.Fatalf("messages\n%s\nbecame\n%s", a, b)
		}
		if a, b := run.State(), last.State(); !bytes.Equal(a, b) {
			rt.Fatalf("state\n%s\nbecame\n%s", a, b)
		}
		if a, b := toJSON(rt, once), toJSON(rt, compact.Compacted(steps(again)...)); !bytes.Equal(a, b) {
			rt.Fatalf("events\n%s\nbecame\n%s", a, b)
		}
	})
	if several == 0 {
		t.Error("no chain of several runs was drawn")
	}
}

// steps are the runs of a chain.
func steps(chain []*compact.Run) []compact.Step {
	out := make([]compact.Step, len(chain))
	for i, r := range chain {
		out[i].Run = r
		if i > 0 {
			out[i].Parent = chain[i-1]
		}
	}
	return out
}

// foldAsChain folds a stream of several runs as "skein fold" reads a file: a RUN_STARTED opens the next run.
func foldAsChain(t *rapid.T, events []json.RawMessage) []*compact.Run {
	t.Helper()
	chain := []*compact.Run{compact.New(nil, nil)}
	for i, raw := range events {
		ev, err := agui.Decode(raw)
		if err != nil {
			t.Fatalf("%v: %s", err, raw)
		}
		run := chain[len(chain)-1]
		if i > 0 && ev.Type == agui.RunStarted {
			run = compact.New(run.Messages(), run.State())
			chain = append(chain, run)
		}
		if err := run.Apply(ev); err != nil {
			t.Fatalf("%v: %s", err, raw)
		}
	}
	return chain
}
