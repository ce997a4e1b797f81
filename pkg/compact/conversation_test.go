package compact

import (
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"

	"github.com/skeinhq/skein/pkg/agui"
)

// plain is a conversation as a slice and nothing else: what the indexed one has to equal.
type plain []*message

func (l plain) first(id string) int {
	return slices.IndexFunc(l, func(m *message) bool { return m.id == id })
}

func (l plain) insertResult(caller, m *message) plain {
	i := slices.Index(l, caller) + 1
	for i < len(l) && l[i].role == agui.RoleTool {
		i++
	}
	return slices.Insert(l, i, m)
}

// merge is a snapshot on a plain list, as the client has it.
func (l plain) merge(fresh []*message, drops func(*message) bool) plain {
	named := map[string]*message{}
	for _, m := range fresh {
		named[m.id] = m
	}
	var next plain
	for _, m := range l {
		if n := named[m.id]; n != nil {
			next = append(next, n)
		} else if !drops(m) {
			next = append(next, m)
		}
	}
	there := slices.Clone(next)
	for _, m := range fresh {
		if there.first(m.id) < 0 {
			next = append(next, m)
		}
	}
	return next
}

// repeats is how many bytes messages would occupy in positions beyond their first after a snapshot that keeps activities and reasoning.
func (l plain) repeats(fresh []*message) int {
	named := map[string]int{}
	for _, m := range fresh {
		named[m.id] = len(snapshotted(m))
	}
	total := 0
	seen, seenIDs := map[*message]bool{}, map[string]bool{}
	for _, m := range l {
		size, ok := named[m.id]
		switch {
		case ok && seenIDs[m.id]:
			total += size
		case !ok && seen[m] && keeps(m):
			total += m.size
		}
		seen[m], seenIDs[m.id] = true, true
	}
	return total
}

func snapshotOf(t *testing.T, fresh []*message) *agui.Event {
	t.Helper()
	var list []string
	for _, m := range fresh {
		list = append(list, snapshotted(m))
	}
	ev, err := agui.Decode([]byte(`{"type":"MESSAGES_SNAPSHOT","messages":[` + strings.Join(list, ",") + `]}`))
	if err != nil {
		t.Fatal(err)
	}
	return ev
}

// snapshotted is a message of an unknown role, which can be anything, and of a length of its own.
func snapshotted(m *message) string {
	return fmt.Sprintf(`{"id":%q,"role":"unknown","is":%q}`, m.id, m.role+string(m.raw))
}

// check compares a conversation with its plain form.
func check(t *testing.T, what string, c *conversation, want plain) {
	t.Helper()
	if !slices.Equal(plain(c.list), want) {
		t.Fatalf("%s: %d messages %v, want %v", what, len(c.list), c.list, want)
	}
	places, ids, repeated := map[*message]int{}, map[string]bool{}, 0
	for i, m := range want {
		if places[m]++; places[m] > 1 {
			repeated += m.size
		} else if at := c.position(m); at != i || c.index(m) != i {
			t.Fatalf("%s: the message at %d is known to be at %d", what, i, at)
		}
		ids[m.id] = true
	}
	for _, m := range want {
		if m.places != places[m] {
			t.Fatalf("%s: %s is known at %d positions, want %d", what, m.id, m.places, places[m])
		}
	}
	if c.repeated != repeated {
		t.Fatalf("%s: %d bytes are repeated, want %d", what, c.repeated, repeated)
	}
	for id := range ids {
		if c.find(id) != want[want.first(id)] {
			t.Fatalf("%s: another message than the first is found for %s", what, id)
		}
	}
	if len(c.first) != len(ids) {
		t.Fatalf("%s: %d ids, want %d", what, len(c.first), len(ids))
	}
	calls := map[string]*message{}
	for _, m := range slices.Backward(want) {
		for _, id := range callsIn(m) {
			calls[id] = m
		}
	}
	for i := range 5 {
		if m, _ := c.owner(fmt.Sprint(i)); m != calls[fmt.Sprint(i)] {
			t.Fatalf("%s: another message than the first is found for the call %d", what, i)
		}
	}
	for id, held := range c.holders {
		if len(held) == 0 || slices.ContainsFunc(held, func(h holder) bool { return h.m.places == 0 }) {
			t.Fatalf("%s: a message that is gone holds the call %s", what, id)
		}
	}
}

func callsIn(m *message) (ids []string) {
	if !m.hasCalls() {
		return nil
	}
	for call := range agui.Elements(agui.Lookup(m.export().Raw, "toolCalls")) {
		ids = append(ids, stringOf(agui.Lookup(call, "id")))
	}
	return ids
}

// Whatever happens to it, the indexed list is what a plain one would be.
func TestConversation_EqualsAPlainList(t *testing.T) {
	roles := []string{agui.RoleAssistant, agui.RoleTool, agui.RoleTool, agui.RoleUser, agui.RoleActivity, agui.RoleReasoning}
	for seed := range uint64(200) {
		rng := rand.New(rand.NewPCG(seed, 0))
		ids := []int{40, 3, 1 << 30}[seed%3] // of so many none comes twice
		fresh := func(role string) *message {
			m := &message{id: fmt.Sprint(rng.IntN(ids)), role: role, raw: json.RawMessage(`{}`)}
			if role == agui.RoleAssistant || role != agui.RoleTool && rng.IntN(40) == 0 {
				var calls []string // the same may come twice
				for range 1 + rng.IntN(3) {
					calls = append(calls, fmt.Sprintf(`{"id":"%d","function":{"arguments":""}}`, rng.IntN(5)))
				}
				m.raw = json.RawMessage(`{"toolCalls":[` + strings.Join(calls, ",") + `]}`)
			}
			return m
		}
		var want plain
		c := newConversation(nil)
		for range 150 {
			what := fmt.Sprintf("seed %d, ", seed)
			c.incoming = rng.IntN(50)
			m := fresh(roles[rng.IntN(len(roles))])
			id := m.id
			c.find(id) // so that it is the recent one
			switch n := rng.IntN(22); {
			case n > 19:
				what += "merge"
				next := []*message{}
				for range rng.IntN(5) {
					m := fresh(roles[rng.IntN(len(roles))])
					if len(want) > 0 && rng.IntN(3) > 0 {
						m.id = want[rng.IntN(len(want))].id
					}
					next = append(next, m)
				}
				keep := []string{agui.RoleActivity, agui.RoleReasoning}[:rng.IntN(3)]
				drops := func(m *message) bool { return !slices.Contains(keep, m.role) }
				if got, would := c.repeats(snapshotOf(t, next)), want.repeats(next); got != would {
					t.Fatalf("%s: it would repeat %d bytes, want %d", what, got, would)
				}
				want = want.merge(next, drops)
				c.merge(next, drops)
			case n == 0: // a snapshot keeps some, and names what may stand there twice
				what += "reset"
				next := slices.DeleteFunc(slices.Clone(want), func(*message) bool { return rng.IntN(4) == 0 })
				for i := range next {
					if next[i].id == m.id {
						next[i] = m
					}
				}
				want = next
				c.reset(slices.Clone(next))
			case n < 8 && len(want) > 0 && want[want.first(want[rng.IntN(len(want))].id)].role != agui.RoleUser:
				what += "replace"
				i := want.first(want[rng.IntN(len(want))].id)
				activity := fresh(agui.RoleActivity)
				activity.id, m = want[i].id, activity
				want[i] = m
				c.replace(c.first[m.id], m)
			case n < 15:
				what += "result"
				callers := slices.DeleteFunc(slices.Clone(want), func(m *message) bool { return m.role != agui.RoleAssistant })
				if len(callers) == 0 {
					continue
				}
				m.role, m.raw = agui.RoleTool, nil
				caller := callers[rng.IntN(len(callers))]
				want = want.insertResult(caller, m)
				c.insertResult(caller, m)
			default:
				what += "push"
				want = append(want, m)
				c.push(m)
			}
			if at := want.first(id); at >= 0 && c.find(id) != want[at] {
				t.Fatalf("%s: another message than the first is found for %s", what, id)
			}
			check(t, what, c, want)
		}
	}
}
