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

// fold(fold(x)) = fold(x): compacted events fold to the same bytes, and compact to themselves.
func TestGenerated_CompactedEventsFoldToTheSameBytes(t *testing.T) {
	rapid.Check(t, func(rt *rapid.T) {
		run, _, s := drawRun(rt)
		for _, raw := range s.events {
			apply(rt, run, raw)
		}
		once := compact.Compacted(run)
		again := compact.New(nil, nil)
		for _, raw := range once {
			ev, err := agui.Decode(raw)
			if err == nil {
				err = again.Apply(ev)
			}
			if err != nil {
				rt.Fatalf("%v: %s", err, raw)
			}
		}
		if a, b := toJSON(rt, run.Messages()), toJSON(rt, again.Messages()); !bytes.Equal(a, b) {
			rt.Fatalf("messages\n%s\nbecame\n%s", a, b)
		}
		if a, b := run.State(), again.State(); !bytes.Equal(a, b) {
			rt.Fatalf("state\n%s\nbecame\n%s", a, b)
		}
		if a, b := toJSON(rt, once), toJSON(rt, compact.Compacted(again)); !bytes.Equal(a, b) {
			rt.Fatalf("events\n%s\nbecame\n%s", a, b)
		}
	})
}
