package compact

import (
	"container/heap"
	"fmt"
	"iter"
	"slices"

	"github.com/skeinhq/skein/pkg/agui"
)

// conversation is the list of messages with what finds one in it without a walk. What an event does to it
// costs the same however long it is; a MESSAGES_SNAPSHOT costs what it brings and drops, in all places where that stands.
type conversation struct {
	// base stands before the list while no event has touched it, by id or by tool call: most runs only add.
	// unshare puts its messages into the list.
	base        Base
	start, last *link
	count       int
	first       map[string]*link // by id: the first in the list
	// twins are the places of each id that stands in the list several times, which only a snapshot or input that names it
	// so often and results of one id lead to.
	twins  map[string]*twins
	kinds  map[kind]*kin
	allKin []*kin // of kinds, which costs what it held at most when it is walked
	// odd are the places of reasoning and activity messages that carry tool calls, which the schema does not know,
	// with those calls, and oddOwners finds them by call id. Snapshots keep such messages, so these last
	// where owners is made anew. What nobody has asked about yet is unread.
	odd       map[*link][]*oddCall
	oddOwners map[string]*oddCalls
	unread    map[*link]bool
	// owners finds the tool calls and the other messages that hold them, by call id, in the order of the list.
	// It is made when the first tool event asks, since a run without tools needs none.
	owners map[string]*owners
	// recent is what find gave last: deltas of one message follow each other.
	recent *message
	// contents is how many bytes the contents of activities have; -1 until somebody asks.
	contents int
	// repeated is how many bytes messages have in places beyond their first, by their size, and kept how many of them those
	// that a snapshot may keep. incoming is how many the event has that is being folded.
	repeated, kept, incoming int
	numbered                 int // of link
}

// link is one place of the list.
type link struct {
	m          *message
	prev, next *link
	in         *stretch
	number     int // grows along a stretch
	kin        *kin
	place      int // in kin
	twin       int // in twins, where the id stands in the list several times
	// calls counts how often the place lost the tool calls that it held: who remembers another number knows
	// of calls that are gone.
	calls int
	// again is the next place that holds the same message. A snapshot that names an id which the list
	// held twice leaves one message in both, and what is appended to it shows in both.
	again *link
}

// kind tells messages apart that a snapshot keeps or drops: reasoning, activities by their type, and the zero
// value for all others.
type kind struct{ role, activityType string }

// keeps reports whether a snapshot may keep a message that it does not name: one that is not of the zero kind.
func keeps(m *message) bool { return m.role == agui.RoleReasoning || m.role == agui.RoleActivity }

func kindOf(m *message) kind {
	switch m.role {
	case agui.RoleReasoning:
		return kind{role: m.role}
	case agui.RoleActivity:
		return kind{m.role, m.activityType()}
	}
	return kind{}
}

// kin are the places of all messages of a kind, in no order.
type kin struct {
	of    kind
	place int // in allKin
	links []*link
}

func newConversation(messages []agui.Message) *conversation {
	list := make([]*message, len(messages))
	for i, m := range messages {
		list[i] = fromMessage(m)
	}
	c := &conversation{}
	c.reset(list)
	return c
}

// unshare puts the base's messages into the list, so that they can be changed.
func (c *conversation) unshare() {
	if len(c.base.messages) == 0 {
		return
	}
	list := make([]*message, 0, c.len())
	for _, m := range c.base.messages {
		list = append(list, fromMessage(m))
	}
	for m := range c.listed() {
		list = append(list, m)
	}
	c.reset(list)
}

// len returns the number of messages.
func (c *conversation) len() int { return len(c.base.messages) + c.count }

// at returns the first place of the message of an id; nil if there is none.
func (c *conversation) at(id string) *link {
	if p := c.first[id]; p != nil || !c.base.Has(id) {
		return p
	}
	c.unshare()
	return c.first[id]
}

// reset puts another list in place.
func (c *conversation) reset(list []*message) {
	*c = conversation{first: make(map[string]*link, len(list)+8), twins: make(map[string]*twins), kinds: make(map[kind]*kin), odd: make(map[*link][]*oddCall), oddOwners: make(map[string]*oddCalls),
		unread: make(map[*link]bool), contents: -1, incoming: c.incoming}
	places := make([]link, len(list))
	for _, m := range list {
		m.at, m.more = nil, 0
	}
	for i, m := range slices.Backward(list) {
		places[i] = link{m: m, again: m.at}
		if m.at != nil {
			m.more++
			c.repeat(m, m.size)
		}
		m.at = &places[i]
	}
	for i := range places {
		c.append(&places[i])
	}
}

// messages goes through all messages.
func (c *conversation) messages() iter.Seq[*message] {
	c.unshare()
	return c.listed()
}

// listed goes through the list.
func (c *conversation) listed() iter.Seq[*message] {
	return func(yield func(*message) bool) {
		for p := c.start; p != nil && yield(p.m); p = p.next {
		}
	}
}

// same returns the places that hold one message beyond its first, each as that first place, counted from 0, the
// place and the message's size.
func (c *conversation) same() [][3]int {
	// No id stands in the list twice; or nothing but new messages does, each in one place.
	if len(c.twins) == 0 || len(c.base.messages) > 0 {
		return nil
	}
	var places [][3]int
	at := make(map[*message]int, c.count)
	i := 0
	for m := range c.messages() {
		if first, ok := at[m]; ok {
			places = append(places, [3]int{first, i, m.size})
		} else {
			at[m] = i
		}
		i++
	}
	return places
}

// unite puts one message in the places that same has told of.
func (c *conversation) unite(places [][3]int) error {
	if len(places) == 0 {
		return nil
	}
	list := slices.Collect(c.messages())
	for _, p := range places {
		if p[0] < 0 || p[1] < 0 || p[0] >= len(list) || p[1] >= len(list) {
			return fmt.Errorf("there are %d messages, none at %d or %d", len(list), p[0], p[1])
		}
		list[p[1]] = list[p[0]]
		list[p[0]].size = p[2]
	}
	c.reset(list)
	return nil
}

func (c *conversation) export() []agui.Message {
	if c.count == 0 && len(c.base.messages) > 0 {
		return c.base.Messages()
	}
	return append(append(make([]agui.Message, 0, c.len()), c.base.messages...), c.added()...)
}

// added returns what stands behind the base.
func (c *conversation) added() []agui.Message {
	out := make([]agui.Message, 0, c.count)
	for m := range c.listed() {
		out = append(out, m.export())
	}
	return out
}

func (c *conversation) find(id string) *message {
	if c.recent == nil || c.recent.id != id {
		p := c.at(id)
		if p == nil {
			return nil
		}
		c.recent = p.m
	}
	c.found(c.recent)
	return c.recent
}

// found counts the event as growth of a message that it may change: it would show in all of its places.
func (c *conversation) found(m *message) {
	m.size += c.incoming
	c.repeat(m, m.more*c.incoming)
}

func (c *conversation) push(m *message) {
	c.at(m.id) // of an id that the base has, the first message is the base's
	m.at = &link{m: m}
	c.append(m.at)
	c.grow(m.contentBytes())
	if c.owners != nil && m.obj == nil { // it may come with calls of its own
		c.own(m.at)
	}
}

// join puts a place among its kin, and leave takes it away.
func (c *conversation) join(p *link) {
	of := kindOf(p.m)
	k := c.kinds[of]
	if k == nil {
		k = &kin{of: of, place: len(c.allKin)}
		c.kinds[of], c.allKin = k, append(c.allKin, k)
	}
	p.kin, p.place = k, len(k.links)
	k.links = append(k.links, p)
	if _, known := c.odd[p]; of != (kind{}) && !known && p.m.hasCalls() {
		c.unread[p] = true
	}
}

func (c *conversation) leave(p *link) {
	k := p.kin
	last := len(k.links) - 1
	k.links[p.place] = k.links[last]
	k.links[p.place].place = p.place
	k.links[last] = nil
	if k.links = k.links[:last]; last > 0 {
		return
	}
	delete(c.kinds, k.of)
	last = len(c.allKin) - 1
	c.allKin[k.place] = c.allKin[last]
	c.allKin[k.place].place = k.place
	c.allKin[last] = nil
	c.allKin = c.allKin[:last]
}

// forget is leave where the place loses its message as well.
func (c *conversation) forget(p *link) {
	c.leave(p)
	for _, o := range c.odd[p] {
		h := c.oddOwners[o.id]
		if heap.Remove(h, o.place); h.Len() == 0 {
			delete(c.oddOwners, o.id)
		}
	}
	delete(c.odd, p)
	delete(c.unread, p)
}

// merge is a snapshot: what it names is replaced in all its places by the last message that has its id, all else of the given
// kinds is dropped, and what was not there comes to the end. Tool messages are of one of the kinds. Nothing is shared any
// more.
func (c *conversation) merge(fresh []*message, dropped []kind) {
	named := make(map[string]*message, len(fresh))
	for _, m := range fresh {
		named[m.id] = m
	}
	for _, of := range dropped {
		k := c.kinds[of]
		if k == nil {
			continue
		}
		for i := len(k.links) - 1; i >= 0; i-- { // who leaves is replaced by the last one
			if p := k.links[i]; named[p.m.id] == nil {
				c.drop(p)
			}
		}
	}
	var changed []*link
	added := fresh[:0:0]
	for _, m := range fresh {
		switch {
		case c.first[m.id] == nil:
			added = append(added, m)
		case named[m.id] == m:
			before := len(changed)
			changed = c.appendPlaces(changed, m.id)
			c.put(m, changed[before:])
		}
	}
	c.settle(changed)
	c.owners, c.recent = nil, nil
	for _, m := range added {
		c.push(m)
	}
}

// put puts a message in all places of its id, which have to be settled then.
func (c *conversation) put(m *message, places []*link) {
	slices.SortFunc(places, (*link).compare)
	for i, p := range places {
		c.forget(p)
		c.grow(m.contentBytes() - p.m.contentBytes())
		c.release(p)
		if p.m, p.in = m, nil; i == 0 {
			m.at = p
		} else {
			places[i-1].again = p
		}
		c.join(p)
	}
	m.more, m.size = len(places)-1, len(m.raw)
	c.repeat(m, m.more*m.size)
}

// release takes a place away from its message, which may have others.
func (c *conversation) release(p *link) {
	if p.m.more > 0 {
		p.m.more--
		c.repeat(p.m, -p.m.size)
	}
}

// maxRepeated is how many bytes messages may have in places beyond their first: all places are written, so a large
// message in many, or one that grows there, would fill the memory. The client gets there only by results that come
// again and again with one id.
const maxRepeated = 16 << 20

// repeats returns how many bytes messages would have in places beyond their first once a snapshot was merged, those
// counted that it may keep.
func (c *conversation) repeats(snapshot *agui.Event) int {
	c.unshare()
	if len(c.twins) == 0 {
		return 0
	}
	messages, _ := snapshot.Messages()
	named := make(map[string]int, len(messages))
	for _, m := range messages {
		named[m.ID] = len(m.Raw)
	}
	total := c.kept
	var places []*link
	for id, size := range named {
		places = c.appendPlaces(places[:0], id)
		total += max(0, len(places)-1) * size
		for _, p := range places {
			if p.m.at != p && keeps(p.m) {
				total -= p.m.size
			}
		}
	}
	return total
}

// separate makes messages of their own of those that stand in several places.
func (c *conversation) separate() {
	list := make([]*message, 0, c.count)
	for p := c.start; p != nil; p = p.next {
		if p.m.at != p {
			list = append(list, fromMessage(p.m.export()))
		} else {
			list = append(list, p.m)
		}
	}
	c.reset(list)
}

// drop takes a place out of the list; its message is dropped from all. If it is the head of a stretch, what is left of
// that has to be settled.
func (c *conversation) drop(p *link) {
	if p.in.last == p && p.prev != nil && p.prev.in == p.in {
		p.in.last = p.prev
	}
	if p.prev != nil {
		p.prev.next = p.next
	} else {
		c.start = p.next
	}
	if p.next != nil {
		p.next.prev = p.prev
	} else {
		c.last = p.prev
	}
	c.forget(p)
	c.exit(p)
	c.release(p)
	c.count--
	c.grow(-p.m.contentBytes())
}

// append puts a link at the end.
func (c *conversation) append(p *link) {
	switch {
	case c.last == nil:
		c.start = p
		p.in = &stretch{first: p, order: apart}
	case p.m.role == agui.RoleTool:
		p.in = c.last.in
	default:
		p.in = &stretch{first: p, order: c.last.in.order + apart}
	}
	if p.prev = c.last; p.prev != nil {
		p.prev.next = p
	}
	p.in.last, c.last = p, p
	c.number(p)
	c.join(p)
	c.count++
	c.enter(p)
}

// number numbers a place that stands behind all others of its stretch.
func (c *conversation) number(p *link) {
	c.numbered++
	p.number = c.numbered
}

// insertResult puts the result of a tool call behind the message that holds the call and behind the tool
// messages that follow it. The result holds no calls of its own.
func (c *conversation) insertResult(caller, m *message) {
	c.at(m.id)
	in := caller.at.in
	p := &link{m: m, in: in, prev: in.last, next: in.last.next}
	if p.prev.next = p; p.next != nil {
		p.next.prev = p
	} else {
		c.last = p
	}
	m.at, in.last = p, p
	c.number(p)
	c.join(p)
	c.count++
	if c.enter(p) {
		c.recent = nil
	}
}

// replace puts an activity in the first place of the message of its id, whose content as an activity had so
// many bytes.
func (c *conversation) replace(p *link, m *message, had int) {
	before := p.m
	c.grow(m.contentBytes() - had)
	if m == before {
		c.leave(p)
	} else {
		c.forget(p)
		p.calls++
	}
	if p.again != nil {
		c.release(p)
	}
	before.at, p.again = p.again, nil
	p.m, m.at = m, p
	c.join(p)
	c.recent = nil
	if before.role == agui.RoleTool {
		c.split(p)
	}
}

// contentBytes returns how many bytes the contents of all activities have.
func (c *conversation) contentBytes() int {
	if c.contents < 0 {
		c.contents = c.base.sum().contents
		for m := range c.listed() {
			c.contents += m.contentBytes()
		}
	}
	return c.contents
}

// grow notes that contents of activities became so many bytes more.
func (c *conversation) grow(by int) {
	if c.contents >= 0 {
		c.contents += by
	}
}
