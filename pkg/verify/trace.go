package verify

import (
	"bytes"

	"github.com/skeinhq/skein/pkg/agui"
	"github.com/skeinhq/skein/pkg/record"
)

// trace records which event created which part of a run, so that the event at which a difference begins can be found.
type trace struct {
	messages map[string]int64    // first event of each message, by message id
	types    map[agui.Type]int64 // first event of each type
	kept     []int64             // offsets of the kept events
	last     int64

	// These are the type and message id of the previous event. Events of one message follow each other, so most need no look-up.
	recentType agui.Type
	recentID   []byte
}

func newTrace() trace {
	return trace{messages: map[string]int64{}, types: map[agui.Type]int64{}}
}

// note adds a folded event. kept are the event families that the event's run keeps.
func (t *trace) note(offset int64, ev *agui.Event, kept agui.Families) {
	t.last = offset
	if ev.Type != t.recentType {
		t.recentType = ev.Type
		if _, ok := t.types[ev.Type]; !ok {
			t.types[ev.Type] = offset
		}
	}
	if id := ev.JSON(agui.FieldMessageID); !bytes.Equal(id, t.recentID) {
		t.recentID = append(t.recentID[:0], id...)
		t.message(offset, ev, agui.FieldMessageID)
	}
	t.message(offset, ev, agui.FieldParentMessageID)
	if kept.Keep(ev.Type) {
		t.kept = append(t.kept, offset)
	}
}

func (t *trace) message(offset int64, ev *agui.Event, f agui.Field) {
	if id, ok := ev.String(f); ok {
		if _, ok := t.messages[id]; !ok {
			t.messages[id] = offset
		}
	}
}

// first returns the offset of the first event that caused one of the differences, as far as the trace knows, else the
// offset of the run's first event.
func (t *trace) first(want, made *record.Run, differences []Difference) int64 {
	best := int64(-1)
	offer := func(offset int64, ok bool) {
		if ok && (best < 0 || offset < best) {
			best = offset
		}
	}
	for _, d := range differences {
		switch d.Member {
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
				if i < len(t.kept) && (i >= len(want.Events) || !bytes.Equal(record.Compacted(e), record.Compacted(want.Events[i]))) {
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
	// No difference led to an event, so compare the counts by event type.
	for typ, at := range t.types {
		offer(at, made.Stats.Events[string(typ)] != want.Stats.Events[string(typ)] ||
			made.Stats.EventBytes[string(typ)] != want.Stats.EventBytes[string(typ)])
	}
	if best >= 0 {
		return best
	}
	return want.Raw.First
}
