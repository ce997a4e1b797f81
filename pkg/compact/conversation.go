package compact

import (
	"fmt"
	"slices"

	"github.com/skeinhq/skein/internal/few"
	"github.com/skeinhq/skein/pkg/agui"
)

// conversation is the list of messages, with maps that find a message by its id or by a tool call. Appending and finding a message
// cost the same for any length of the list. A result that is inserted, an activity that replaces a message, and a snapshot may walk
// the list, at some nanoseconds per message (docs/adr/021).
type conversation struct {
	// base precedes the list until an event names one of its messages, by id or by tool call. unshare then copies base into the list.
	// Most runs only add messages.
	base Base
	list []*message
	// first maps an id to the first message of the list with that id. It is shorter than the list if an id repeats, which
	// only snapshots, inputs and tool results can cause.
	first few.Map[string, *message]
	// holders maps a tool call's id to the messages that hold a call with that id, from the first tool event on (holding).
	holders few.Map[string, []holder]
	holding bool
	// numbered reports whether message.at is right for all messages.
	numbered bool
	// recent caches the last result of find, since deltas of one message follow each other.
	recent *message
	// repeated is how many bytes messages occupy at positions beyond their first, as counted by message.size.
	repeated int
	// incoming is the size of the event being folded.
	incoming int
	// pass is the number of the current walk, which marks messages as seen.
	pass int
}

// keeps reports whether a snapshot may keep the message without naming it.
func keeps(m *message) bool { return m.role == agui.RoleReasoning || m.role == agui.RoleActivity }

func newConversation(messages []agui.Message) *conversation {
	c := &conversation{}
	c.reset(fromMessages(messages, 0))
	return c
}

// unshare copies the base's messages into the list, so that they can be changed.
func (c *conversation) unshare() {
	if len(c.base.messages) == 0 {
		return
	}
	c.reset(append(fromMessages(c.base.messages, len(c.list)), c.list...))
}

// len returns the number of messages.
func (c *conversation) len() int { return len(c.base.messages) + len(c.list) }

// reset replaces the list.
func (c *conversation) reset(list []*message) {
	*c = conversation{list: list, incoming: c.incoming, pass: c.pass}
	for _, m := range list {
		m.places = 0
	}
	for _, m := range list {
		c.occupy(m)
	}
}

// occupy counts one more position of the list for m. m becomes the first message with its id if there is none yet.
func (c *conversation) occupy(m *message) {
	if m.places++; m.places > 1 {
		c.repeated += m.size
	}
	if c.first.At(m.id) == nil {
		c.first.Set(m.id, m)
	}
}

// vacate counts one position less for m.
func (c *conversation) vacate(m *message) {
	if m.places--; m.places > 0 {
		c.repeated -= m.size
	}
}

// idsRepeat reports whether an id occurs at several positions of the list.
func (c *conversation) idsRepeat() bool { return c.first.Len() < len(c.list) }

// seen reports whether the current walk has met m, and marks it.
func (c *conversation) seen(m *message) bool {
	met := m.pass == c.pass
	m.pass = c.pass
	return met
}

// same returns the positions that hold a message which an earlier position holds, too. Each entry has the message's first
// position, the repeated position, both from 0, and the message's size.
func (c *conversation) same() [][3]int {
	// Messages that follow a base are new: each is at one position.
	if !c.idsRepeat() || len(c.base.messages) > 0 {
		return nil
	}
	var places [][3]int
	c.pass++
	for i, m := range c.list {
		if c.seen(m) {
			places = append(places, [3]int{m.at, i, m.size})
		} else {
			m.at = i
		}
	}
	c.numbered = true
	return places
}

// restoreSame makes the positions that same returned share one message again.
func (c *conversation) restoreSame(places [][3]int) error {
	if len(places) == 0 {
		return nil
	}
	list := c.list
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
	if len(c.list) == 0 && len(c.base.messages) > 0 {
		return c.base.Messages()
	}
	return append(append(make([]agui.Message, 0, c.len()), c.base.messages...), c.added()...)
}

// added returns the messages that follow the base.
func (c *conversation) added() []agui.Message {
	out := make([]agui.Message, 0, len(c.list))
	for _, m := range c.list {
		out = append(out, m.export())
	}
	return out
}

// find returns the first message with the id, or nil, and counts the event as growth of that message.
func (c *conversation) find(id string) *message {
	if c.recent == nil || c.recent.id != id {
		if c.base.Has(id) {
			c.unshare()
		}
		m := c.first.At(id)
		if m == nil {
			return nil
		}
		c.recent = m
	}
	c.enlarge(c.recent)
	return c.recent
}

// enlarge counts the event as growth of a message that it may change. The growth counts at each of the message's positions.
func (c *conversation) enlarge(m *message) {
	m.size += c.incoming
	c.repeated += (m.places - 1) * c.incoming
}

// push appends a message.
func (c *conversation) push(m *message) {
	if c.base.Has(m.id) { // a message of base is the first with this id
		c.unshare()
	}
	m.at = len(c.list)
	c.list = append(c.list, m)
	c.occupy(m)
	c.hold(m)
}

// index returns the first position of a message of the list.
func (c *conversation) index(m *message) int {
	if m.places > 1 {
		return slices.Index(c.list, m)
	}
	i := len(c.list) - 1 // events mostly concern messages near the end
	for c.list[i] != m {
		i--
	}
	return i
}

// insertResult inserts the result of a tool call after the message that holds the call and the tool messages that follow
// that message. The result must hold no calls of its own.
func (c *conversation) insertResult(caller, m *message) {
	if c.base.Has(m.id) {
		c.unshare()
	}
	i := c.index(caller) + 1
	for i < len(c.list) && c.list[i].role == agui.RoleTool {
		i++
	}
	c.numbered = c.numbered && i == len(c.list)
	c.list = slices.Insert(c.list, i, m)
	m.at = i
	c.occupy(m)
	if first := c.first.At(m.id); first != m && c.index(first) > i {
		c.first.Set(m.id, m)
		c.recent = nil
	}
}

// replace puts m, an activity, at the first position of before, which must be the first message with m's id. m may be before itself.
func (c *conversation) replace(before, m *message) {
	if m == before {
		return
	}
	i := c.index(before)
	c.list[i] = m
	c.vacate(before)
	m.at, c.numbered = i, c.numbered && before.places == 0
	c.first.Delete(m.id)
	c.recent = nil
	c.occupy(m)
	if before.places == 0 && c.holding {
		c.release(callIDs(before))
	}
	c.hold(m)
}

// merge applies a snapshot. At all positions of an id that the snapshot names, it puts the snapshot's last message with that id. It
// removes other messages for which drops returns true, and appends messages with new ids. It first unshares the base.
func (c *conversation) merge(fresh []*message, drops func(*message) bool) {
	c.unshare()
	named := make(map[string]*message, len(fresh))
	for _, m := range fresh {
		named[m.id], m.size = m, len(m.raw)
	}
	repeat, lost := c.idsRepeat(), false // lost: a message that stays may now be the first with its id
	var calls []string
	next := c.list[:0]
	for _, m := range c.list {
		by := named[m.id]
		if by == nil && !drops(m) {
			if next = append(next, m); lost && c.first.At(m.id) == nil {
				c.first.Set(m.id, m)
			}
			continue
		}
		if c.vacate(m); m.places == 0 && c.holding {
			calls = append(calls, callIDs(m)...)
		}
		if c.first.At(m.id) == m {
			c.first.Delete(m.id)
			lost = repeat
		}
		if by != nil {
			c.occupy(by)
			next = append(next, by)
		}
	}
	clear(c.list[len(next):])
	c.list, c.recent, c.numbered = next, nil, false
	c.release(calls)
	added := fresh[:0:0]
	for _, m := range fresh {
		switch {
		case named[m.id].places == 0:
			added = append(added, m)
		case named[m.id] == m:
			c.hold(m)
		}
	}
	for _, m := range added {
		c.push(m)
	}
}

// maxRepeated limits the bytes that messages may occupy at positions beyond their first. Each position is written, so a large
// message at many positions, or one that grows there, would fill the memory. The client gets there only if results with one id
// come again and again.
const maxRepeated = 16 << 20

// repeats returns how many bytes messages would occupy at positions beyond their first after a snapshot. It includes messages that
// the snapshot may keep.
func (c *conversation) repeats(snapshot *agui.Event) int {
	c.unshare()
	if !c.idsRepeat() {
		return 0
	}
	messages, _ := snapshot.Messages()
	named := make(map[string]int, len(messages))
	for _, m := range messages {
		named[m.ID] = len(m.Raw)
	}
	total := 0
	met := make(map[string]bool)
	c.pass++
	for _, m := range c.list {
		size, ok := named[m.id]
		switch {
		case ok && met[m.id]:
			total += size
		case ok:
			met[m.id] = true
		case keeps(m) && c.seen(m):
			total += m.size
		}
	}
	return total
}

// separate replaces every repetition of a message at a further position by a copy.
func (c *conversation) separate() {
	c.pass++
	for i, m := range c.list {
		if c.seen(m) {
			c.list[i] = fromMessage(m.export())
		}
	}
	c.reset(c.list)
}

// contentBytes returns the size in bytes of the contents of all activities except one.
func (c *conversation) contentBytes(except *message) int {
	total := 0
	for _, m := range c.base.messages {
		total += fromMessage(m).contentBytes()
	}
	for _, m := range c.list {
		if m != except {
			total += m.contentBytes()
		}
	}
	return total
}
