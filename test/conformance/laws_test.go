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
	"github.com/skeinhq/skein/test/conformance"
)

// The laws of the fold that need no client, over generated runs, whole and spoiled.

// drawRun draws where a run starts from, and its events.
func drawRun(t *rapid.T) (*compact.Run, func() *compact.Run, stream) {
	g := gen{t: t}
	h := history(t, conformance.Conversation{Messages: encode(g.sound().messages(4)), State: encode(g.state())})
	return h.Fold(), h.Fold, g.drawStream("r", h)
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
				resumed, err := compact.Resume(pieces.Messages(), slices.Clone(pieces.State()), checkpoint)
				if err != nil {
					rt.Fatal(err)
				}
				pieces = resumed
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
		sent := s.events
		for {
			for _, raw := range s.events {
				apply(rt, run, raw)
			}
			chain = append(chain, run)
			if len(chain) == 3 || rapid.Bool().Draw(rt, "last") {
				break
			}
			g := gen{t: rt}
			var input *agui.RunAgentInput
			if g.chance(70) { // else it goes on from all that was left
				input = &agui.RunAgentInput{State: encode(g.state())}
				if err := json.Unmarshal(encode(g.sound().messages(4)), &input.Messages); err != nil {
					rt.Fatal(err)
				}
			}
			start := lineage.StartHistory(lineage.ParentExplicit, lineage.History{Messages: run.Messages(), State: run.State()}, input)
			run, s = start.Fold(), g.drawStream(fmt.Sprint("r", len(chain)), start)
			sent = append(sent, s.events...)
		}
		runs, d := foldsToTheSame(rt, chain)
		if d != "" {
			rt.Fatal(d)
		}
		if runs > 1 {
			several++
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

// foldsToTheSame says how many runs the compacted events of a chain are, and how what they fold to differs, or "".
func foldsToTheSame(t *rapid.T, chain []*compact.Run) (runs int, d string) {
	t.Helper()
	once, run := compact.Compacted(steps(chain)...), chain[len(chain)-1]
	again, err := foldAsChain(once)
	if err != nil {
		return 0, err.Error()
	}
	last := again[len(again)-1]
	for name, pair := range map[string][2][]byte{
		"messages": {toJSON(t, run.Messages()), toJSON(t, last.Messages())}, "state": {run.State(), last.State()},
		"events": {toJSON(t, once), toJSON(t, compact.Compacted(steps(again)...))},
	} {
		if !bytes.Equal(pair[0], pair[1]) {
			return len(again), fmt.Sprintf("%s\n%s\nbecame\n%s", name, pair[0], pair[1])
		}
	}
	return len(again), ""
}

// foldAsChain folds a stream of several runs as "skein fold" reads a file: a RUN_STARTED opens the next run.
func foldAsChain(events []json.RawMessage) ([]*compact.Run, error) {
	chain := []*compact.Run{compact.New(nil, nil)}
	for i, raw := range events {
		ev, err := agui.Decode(raw)
		if err != nil {
			return nil, fmt.Errorf("%w: %s", err, raw)
		}
		run := chain[len(chain)-1]
		if i > 0 && ev.Type == agui.RunStarted {
			run = compact.New(run.Messages(), run.State())
			chain = append(chain, run)
		}
		if err := run.Apply(ev); err != nil {
			return nil, fmt.Errorf("%w: %s", err, raw)
		}
	}
	return chain, nil
}
