package compact_test

import (
	"bytes"
	"encoding/json"
	"fmt"
	"reflect"
	"testing"

	"pgregory.net/rapid"

	"github.com/skeinhq/skein/pkg/agui"
	"github.com/skeinhq/skein/pkg/compact"
)

// A fold that shares its history makes of any events what one makes that has it for itself, and leaves the history
// as it was. What it says it added is what the two differ in.
func TestNewOn_FoldsAsNew(t *testing.T) {
	cases := goldenCases(t)
	added, touched := 0, 0
	for i, c := range cases {
		for j := range 25 { // behind the case itself, too, whose ids are then there
			before := cases[(i+j*j*j)%len(cases)]
			first := compact.New(before.messages, before.state)
			apply(t, first, before.events)
			history := first.Messages()
			at := len(history) * j / 24
			base := compact.NewBase(history[:at]).Extend(history[at:])
			was, err := json.Marshal(base.Messages())
			if err != nil {
				t.Fatal(err)
			}
			plain, shared := compact.New(history, c.state), compact.NewOn(base, c.state)
			for _, ev := range c.events {
				apply(t, plain, []*agui.Event{ev})
				apply(t, shared, []*agui.Event{ev})
				if j%3 == 0 && !bytes.Equal(result(t, plain), result(t, shared)) {
					t.Fatalf("%s behind %s, after %s:\n%s\n%s", c.name, before.name, ev.Raw, result(t, plain), result(t, shared))
				}
			}
			own, only := shared.Added(base)
			a, errA := plain.Checkpoint()
			b, errB := shared.Checkpoint()
			if errA != nil || errB != nil || !bytes.Equal(a, b) {
				t.Fatalf("%s behind %s: checkpoints differ: %v %v\n%s\n%s", c.name, before.name, errA, errB, a, b)
			}
			if x, y := result(t, plain), result(t, shared); !bytes.Equal(x, y) || plain.MessageCount() != shared.MessageCount() {
				t.Fatalf("%s behind %s:\n%s\n%s", c.name, before.name, x, y)
			}
			if now, err := json.Marshal(base.Messages()); err != nil || !bytes.Equal(now, was) {
				t.Fatalf("%s has changed the history of %s: %v\n%s\n%s", c.name, before.name, err, now, was)
			}
			if !only {
				touched++
				continue
			}
			added++
			want, layout := agui.Diff(base.Messages(), plain.Messages())
			if layout != nil || len(want)+len(own) > 0 && !reflect.DeepEqual(own, want) {
				t.Fatalf("%s behind %s: added %v, want %v by %v", c.name, before.name, own, want, layout)
			}
		}
	}
	if added == 0 || touched == 0 {
		t.Errorf("%d folds only added, %d did not", added, touched)
	}
}

func apply(t *testing.T, r *compact.Run, events []*agui.Event) {
	t.Helper()
	for _, ev := range events {
		if err := r.Apply(ev); err != nil {
			t.Fatalf("%s: %v", ev.Raw, err)
		}
	}
}

// Bases that come of one another are told apart, whatever they share.
func TestBase_ExtendsAsListsDo(t *testing.T) {
	rapid.Check(t, func(rt *rapid.T) {
		type pair struct {
			base compact.Base
			list []agui.Message
		}
		all := []pair{{compact.NewBase(nil), nil}}
		made := 0
		for range rapid.IntRange(1, 20).Draw(rt, "steps") {
			from := all[rapid.IntRange(0, len(all)-1).Draw(rt, "from")]
			var own []agui.Message
			for range rapid.IntRange(0, 3).Draw(rt, "own") {
				if rapid.IntRange(0, 2).Draw(rt, "new") > 0 {
					made++
				}
				own = append(own, agui.Message{ID: fmt.Sprint("m", made), Role: agui.RoleActivity, Raw: json.RawMessage(fmt.Sprintf(`{"content":%d}`, made))})
			}
			all = append(all, pair{from.base.Extend(own), append(append([]agui.Message(nil), from.list...), own...)})
			for i, p := range all {
				if got := p.base.Messages(); len(got)+len(p.list) > 0 && !reflect.DeepEqual(got, p.list) {
					rt.Fatalf("%d is %v, want %v", i, got, p.list)
				}
				bytes, has := 0, false
				id := fmt.Sprint("m", rapid.IntRange(0, made).Draw(rt, "id"))
				for _, m := range p.list {
					bytes += len(m.Raw)
					has = has || m.ID == id
				}
				if p.base.Bytes() != bytes || p.base.Has(id) != has {
					rt.Fatalf("%d has %d bytes, want %d; has %s: %t, want %t", i, p.base.Bytes(), bytes, id, p.base.Has(id), has)
				}
			}
		}
	})
}
