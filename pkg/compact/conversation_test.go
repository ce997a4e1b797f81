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

// plain is a conversation as a slice that is walked: what the linked one has to equal.
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
func (l plain) merge(fresh []*message, dropped []kind) plain {
	named := map[string]*message{}
	for _, m := range fresh {
		named[m.id] = m
	}
	var next plain
	for _, m := range l {
		if n := named[m.id]; n != nil {
			next = append(next, n)
		} else if !slices.Contains(dropped, kindOf(m)) {
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

// repeats is how many bytes messages would have in places beyond their first behind a snapshot that drops the zero kind alone.
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
		case !ok && seen[m] && kindOf(m) != (kind{}):
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

// check holds a conversation against its plain form.
func check(t *testing.T, what string, c *conversation, want plain) {
	t.Helper()
	if got := plain(slices.Collect(c.messages())); !slices.Equal(got, want) || c.count != len(want) {
		t.Fatalf("%s: %d messages %v, want %v", what, c.count, got, want)
	}
	seen, last := map[*message]int{}, map[*message]*link{}
	of := map[string][]*link{}
	order, i, odd, kin := uint64(0), 0, 0, 0
	for p := c.start; p != nil; p = p.next {
		if seen[p.m]++; seen[p.m] == 1 {
			if p.m.at != p {
				t.Fatalf("%s: the message at %d is not known to be there", what, i)
			}
		} else if last[p.m].again != p {
			t.Fatalf("%s: the message at %d is not known to be there again", what, i)
		}
		last[p.m] = p
		if of[p.m.id] = append(of[p.m.id], p); p.prev != nil && p.in == p.prev.in && p.number <= p.prev.number {
			t.Fatalf("%s: the numbers of a stretch do not grow at %d", what, i)
		}
		if c.find(p.m.id) != want[want.first(p.m.id)] {
			t.Fatalf("%s: another message than the first is found for %s", what, p.m.id)
		}
		head := p.prev == nil || p.m.role != agui.RoleTool
		if head != (p.prev == nil || p.in != p.prev.in) || head && p.in.order <= order {
			t.Fatalf("%s: the stretches are wrong at %d", what, i)
		}
		order = p.in.order
		if p.kin != c.kinds[kindOf(p.m)] || p.kin.links[p.place] != p {
			t.Fatalf("%s: the place at %d is not among its kin", what, i)
		}
		if p.m.hasCalls() && kindOf(p.m) != (kind{}) {
			odd++
		}
		if head && p.in.first != p || (p.next == nil || p.next.in != p.in) && p.in.last != p {
			t.Fatalf("%s: a stretch does not know that it begins or ends at %d", what, i)
		}
		i++
	}
	repeated, kept, doubled := 0, 0, 0
	for m, n := range seen {
		if m.more != n-1 || last[m].again != nil {
			t.Fatalf("%s: %s is known to stand in %d places more, want %d", what, m.id, m.more, n-1)
		}
		repeated += m.more * m.size
		if kindOf(m) != (kind{}) {
			kept += m.more * m.size
		}
	}
	if c.repeated != repeated || c.kept != kept {
		t.Fatalf("%s: %d bytes are repeated, %d of them kept, want %d and %d", what, c.repeated, c.kept, repeated, kept)
	}
	for id, places := range of {
		if len(places) > 1 {
			doubled++
		}
		known := c.appendPlaces(nil, id)
		slices.SortFunc(known, func(p, q *link) int { return slices.Index(places, p) - slices.Index(places, q) })
		if !slices.Equal(known, places) || c.first[id] != places[0] {
			t.Fatalf("%s: %s is known in %d places, want %d", what, id, len(known), len(places))
		}
	}
	if len(c.first) != len(of) || len(c.twins) != doubled {
		t.Fatalf("%s: %d ids and %d in several places, want %d and %d", what, len(c.first), len(c.twins), len(of), doubled)
	}
	for of, k := range c.kinds {
		if kin += len(k.links); len(k.links) == 0 || k.of != of || c.allKin[k.place] != k {
			t.Fatalf("%s: %d places are kept for %v", what, len(k.links), of)
		}
	}
	if len(c.allKin) != len(c.kinds) || kin != i || odd != len(c.odd)+len(c.unread) {
		t.Fatalf("%s: %d places have kin, %d of %d odd ones, want %d", what, kin, len(c.odd)+len(c.unread), odd, i)
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

// Whatever happens to it, the linked list is what a plain one would be.
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
				dropped := []kind{{}, {role: agui.RoleReasoning}, {role: agui.RoleActivity}}[:1+rng.IntN(3)]
				if got, would := c.repeats(snapshotOf(t, next)), want.repeats(next); got != would {
					t.Fatalf("%s: it would repeat %d bytes, want %d", what, got, would)
				}
				want = want.merge(next, dropped)
				c.merge(next, dropped)
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
				c.replace(c.first[m.id], m, 0)
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

// Stretches that are split always at the same place use up the room between their orders.
func TestConversation_SplitsWithoutEnd(t *testing.T) {
	var want plain
	c := newConversation(nil)
	push := func(id, role string) *message {
		m := &message{id: id, role: role}
		want = append(want, m)
		c.push(m)
		return m
	}
	caller := push("caller", agui.RoleAssistant)
	for i := range 100 {
		push(fmt.Sprint(i), agui.RoleTool)
	}
	push("end", agui.RoleUser)
	for i := 99; i > 0; i-- {
		m := &message{id: fmt.Sprint(i), role: agui.RoleActivity}
		want[want.first(m.id)] = m
		c.replace(c.first[m.id], m, 0)
		check(t, "split before "+m.id, c, want)
	}
	m := &message{id: "99", role: agui.RoleTool} // stands before the activity of that id now
	want = want.insertResult(caller, m)
	c.insertResult(caller, m)
	check(t, "result", c, want)
}
