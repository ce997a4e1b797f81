package query

import (
	"bytes"

	"github.com/skeinhq/skein/pkg/agui"
	"github.com/skeinhq/skein/pkg/compact"
	"github.com/skeinhq/skein/pkg/record"
	"github.com/skeinhq/skein/pkg/refold"
)

// traces remember which events made what, to say where a difference begins.
type traces struct {
	messages map[string]int64    // first event of a message, by its id
	types    map[agui.Type]int64 // first event of a type
	kept     []int64             // the kept events
	last     int64
}

func newTraces() traces {
	return traces{messages: map[string]int64{}, types: map[agui.Type]int64{}}
}

// note takes in an event that was folded.
func (t *traces) note(offset int64, value []byte, fold *compact.Run) {
	t.last = offset
	ev, err := agui.Decode(value)
	if err != nil { // cannot be: it was folded
		return
	}
	if _, ok := t.types[ev.Type]; !ok {
		t.types[ev.Type] = offset
	}
	for _, f := range []agui.Field{agui.FieldMessageID, agui.FieldParentMessageID} {
		if id, ok := ev.String(f); ok {
			if _, ok := t.messages[id]; !ok {
				t.messages[id] = offset
			}
		}
	}
	if len(fold.Summary().Kept) > len(t.kept) {
		t.kept = append(t.kept, offset)
	}
}

// first returns the first of the events that the members were made of which differ, as far as that can
// be told; else the run's first.
func (t *traces) first(want *record.Run, got *refolded, differences []string) int64 {
	best := int64(-1)
	offer := func(offset int64, ok bool) {
		if ok && (best < 0 || offset < best) {
			best = offset
		}
	}
	made := got.record(want)
	for _, name := range differences {
		switch name {
		case "messages":
			for i, m := range made.Messages {
				if i >= len(want.Messages) || !bytes.Equal(m.Raw, want.Messages[i].Raw) {
					at, ok := t.messages[m.ID]
					offer(at, ok)
					break
				}
			}
		case "events":
			for i, e := range made.Events {
				if i < len(t.kept) && (i >= len(want.Events) || !bytes.Equal(refold.Compacted(e), refold.Compacted(want.Events[i]))) {
					offer(t.kept[i], true)
					break
				}
			}
		case "started":
			at, ok := t.types[agui.RunStarted]
			offer(at, ok)
		case "terminal":
			offer(t.last, made.Terminal != nil)
		case "state":
			for _, typ := range []agui.Type{agui.StateSnapshot, agui.StateDelta} {
				at, ok := t.types[typ]
				offer(at, ok)
			}
		}
	}
	if best >= 0 {
		return best
	}
	// Nothing that was made differs, or not in a way that leads to an event: by counts, then.
	for typ, at := range t.types {
		offer(at, made.Stats.Events[string(typ)] != want.Stats.Events[string(typ)] ||
			made.Stats.EventBytes[string(typ)] != want.Stats.EventBytes[string(typ)])
	}
	if best >= 0 {
		return best
	}
	return want.Raw.First
}
