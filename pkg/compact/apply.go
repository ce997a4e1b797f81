package compact

import (
	"bytes"
	"encoding/json"

	"github.com/skeinhq/skein/pkg/agui"
)

// The reducers below do what @ag-ui/client 1.0.0's defaultApplyEvents does, event by event. Where
// the client warns and goes on, nothing is changed and the rule is counted.

func (r *Run) textStart(id, role, name string, hasName bool, o owner, metadata json.RawMessage) {
	r.p.verify.open(kindText, id, o)
	m := r.conv.find(id)
	if m == nil {
		m = newMessage(id, role, member{"id", stringValue(id)}, member{"role", stringValue(role)}, member{"content", &textValue{}})
		if hasName {
			m.obj.set("name", stringValue(name))
		}
		o.tag(m.obj)
		r.conv.push(m)
	} else if m.role == agui.RoleActivity {
		r.Note("text-on-activity")
		return
	}
	r.mergeMetadata(m, metadata)
}

func (r *Run) textContent(id string, delta agui.Text, o owner, metadata json.RawMessage) {
	r.p.verify.within(kindText, id, o)
	r.appendTo(id, delta, metadata)
}

func (r *Run) textEnd(id string, o owner, metadata json.RawMessage) {
	r.p.verify.close(kindText, id, o)
	r.endOf(id, metadata)
}

func (r *Run) reasoningStart(id string, o owner, metadata json.RawMessage) {
	r.p.verify.open(kindReasoning, id, o)
	m := r.conv.find(id)
	if m == nil {
		m = newMessage(id, agui.RoleReasoning, member{"id", stringValue(id)},
			member{"role", stringValue(agui.RoleReasoning)}, member{"content", &textValue{}})
		o.tag(m.obj)
		r.conv.push(m)
	} else if m.role == agui.RoleActivity {
		r.Note("text-on-activity")
		return
	}
	r.mergeMetadata(m, metadata)
}

func (r *Run) reasoningContent(id string, delta agui.Text, o owner, metadata json.RawMessage) {
	r.p.verify.within(kindReasoning, id, o)
	r.appendTo(id, delta, metadata)
}

func (r *Run) reasoningEnd(id string, o owner, metadata json.RawMessage) {
	r.p.verify.close(kindReasoning, id, o)
	r.endOf(id, metadata)
}

// appendTo appends a delta to whatever message has the id: an existing one of any role but activity.
func (r *Run) appendTo(id string, delta agui.Text, metadata json.RawMessage) {
	m := r.conv.find(id)
	switch {
	case m == nil:
		r.Note("message-unknown")
	case m.role == agui.RoleActivity:
		r.Note("text-on-activity")
	default:
		m.appendText(delta)
		r.mergeMetadata(m, metadata)
	}
}

func (r *Run) endOf(id string, metadata json.RawMessage) {
	m := r.conv.find(id)
	switch {
	case m == nil:
		r.Note("message-unknown")
	case m.role == agui.RoleActivity:
		r.Note("text-on-activity")
	default:
		r.mergeMetadata(m, metadata)
	}
}

func (r *Run) mergeMetadata(m *message, metadata json.RawMessage) {
	if metadata != nil {
		m.open().mergeMetadata(metadata)
	}
}

func (r *Run) toolStart(call, name, parent string, hasParent bool, o owner, metadata json.RawMessage) {
	r.p.ToolCalls[name]++
	r.p.verify.toolStart(call, parent, hasParent, o)
	if !r.p.called[call] {
		r.p.called[call] = true
		r.p.ToolCallIDs = append(r.p.ToolCallIDs, call)
	}
	// A start of a call that is known changes its name and keeps its arguments.
	if m, c := r.conv.owner(call); c != nil {
		if c.name() != name {
			m.open()
			c.fn.set("name", stringValue(name))
			r.Note("tool-call-renamed")
		}
		if metadata != nil {
			m.open()
			c.obj.mergeMetadata(metadata)
		}
		return
	}
	m := r.toolParent(call, parent, hasParent, o)
	c := newToolCall(call, name)
	if metadata != nil {
		c.obj.mergeMetadata(metadata)
	}
	r.conv.addCall(m, c)
}

// toolParent finds or makes the assistant message that a new call goes to. A parent id that names a
// message of another role is not used: the new message then has the call's id. An empty parent id
// counts as none.
func (r *Run) toolParent(call, parent string, hasParent bool, o owner) *message {
	id := call
	if hasParent && parent != "" {
		m := r.conv.find(parent)
		if m != nil && m.role == agui.RoleAssistant {
			return m
		}
		if m == nil {
			id = parent
		} else {
			r.Note("tool-parent-not-assistant")
		}
	}
	isNew := r.conv.find(id) == nil
	m := newMessage(id, agui.RoleAssistant, member{"id", stringValue(id)}, member{"role", stringValue(agui.RoleAssistant)})
	m.calls = &callList{}
	m.obj.set("toolCalls", m.calls)
	if isNew {
		o.tag(m.obj)
	}
	r.conv.push(m)
	return m
}

func (r *Run) toolArgs(call string, delta agui.Text, o owner, metadata json.RawMessage) {
	r.p.verify.within(kindTool, call, o)
	m, c := r.conv.owner(call)
	if c == nil {
		r.Note("tool-call-unknown")
		return
	}
	m.open()
	c.args.body = append(c.args.body, delta...)
	if metadata != nil {
		c.obj.mergeMetadata(metadata)
	}
}

func (r *Run) toolEnd(call string, o owner, metadata json.RawMessage) {
	r.p.verify.close(kindTool, call, o)
	m, c := r.conv.owner(call)
	if c == nil {
		r.Note("tool-call-unknown")
		return
	}
	if metadata != nil {
		m.open()
		c.obj.mergeMetadata(metadata)
	}
}

// toolResult puts the result behind the assistant message that owns the call and behind the tool
// messages that follow it; at the end where no message owns the call.
func (r *Run) toolResult(ev *agui.Event, id string, o owner) {
	call, _ := ev.String(agui.FieldToolCallID)
	r.p.verify.toolResult(id, o)
	r.p.Answered[call] = true
	m := newMessage(id, agui.RoleTool, member{"id", stringValue(id)}, member{"toolCallId", stringValue(call)},
		member{"role", stringValue(agui.RoleTool)}, member{"content", rawValue(bytes.Clone(ev.JSON(agui.FieldContent)))})
	o.tag(m.obj)
	if md := ev.JSON(agui.FieldMetadata); md != nil {
		m.obj.mergeMetadata(md)
	}
	caller, _ := r.conv.caller(call)
	if caller == nil {
		r.conv.push(m)
		return
	}
	r.conv.insertResult(caller, m)
}

func (r *Run) encryptedValue(ev *agui.Event, o owner) {
	subtype, _ := ev.String(agui.FieldSubtype)
	entity, _ := ev.String(agui.FieldEntityID)
	v := rawValue(bytes.Clone(ev.JSON(agui.FieldEncryptedValue)))
	r.p.verify.encrypted(subtype, entity, o)
	if subtype == "tool-call" {
		m, call := r.conv.caller(entity)
		if m == nil {
			r.Note("encrypted-value-unknown")
			return
		}
		m.open()
		call.obj.set("encryptedValue", v)
		return
	}
	m := r.conv.find(entity)
	if m == nil || m.role == agui.RoleActivity {
		r.Note("encrypted-value-unknown")
		return
	}
	m.open().set("encryptedValue", v)
}

// messagesSnapshot merges by id: known messages are replaced in their place, unknown ones appended
// in snapshot order, others removed but for activity and reasoning messages that the snapshot does
// not claim to own.
func (r *Run) messagesSnapshot(ev *agui.Event) {
	incoming := ev.Messages()
	fresh := make([]*message, len(incoming))
	hasActivity, hasReasoning := false, false
	for i, m := range incoming {
		m.Raw = bytes.Clone(m.Raw)
		fresh[i] = fromMessage(m)
		hasActivity = hasActivity || m.Role == agui.RoleActivity
		hasReasoning = hasReasoning || m.Role == agui.RoleReasoning
		r.p.verify.seed(m, true)
	}
	r.p.verify.plain()
	dropped := []kind{{}}
	if hasReasoning {
		dropped = append(dropped, kind{role: agui.RoleReasoning})
	}
	owned, all, declared := authority(ev.JSON(agui.FieldMetadata))
	for _, t := range owned {
		dropped = append(dropped, kind{agui.RoleActivity, t})
	}
	r.conv.unshare()
	if all || hasActivity && !declared {
		for of := range r.conv.kinds {
			if of.role == agui.RoleActivity {
				dropped = append(dropped, of)
			}
		}
	}
	r.conv.merge(fresh, dropped)
}

// authority reads metadata["@ag-ui/client"].authoritativeActivityTypes: a list owns those activity
// types, null owns all, absent is the older rule (not declared), anything else owns none.
func authority(metadata json.RawMessage) (owned []string, all, declared bool) {
	v := agui.Lookup(metadata, "@ag-ui/client")
	if v == nil {
		return nil, false, false
	}
	if !agui.IsObject(v) {
		return nil, false, true
	}
	types := agui.Lookup(v, "authoritativeActivityTypes")
	switch {
	case types == nil:
		return nil, false, false
	case string(types) == "null":
		return nil, true, true
	case !agui.IsArray(types):
		return nil, false, true
	}
	for t := range agui.Elements(types) {
		if !agui.IsString(t) {
			return nil, false, true
		}
		owned = append(owned, stringOf(t))
	}
	return owned, false, true
}

// activitySnapshot makes or replaces an activity message. A message is replaced as a whole value,
// never changed in place: a snapshot may have left it in the list twice.
func (r *Run) activitySnapshot(ev *agui.Event, id string, o owner) {
	replace := string(ev.JSON(agui.FieldReplace)) != "false"
	r.p.verify.activity(id, o, replace)
	metadata := ev.JSON(agui.FieldMetadata)
	activityType, _ := ev.String(agui.FieldActivityType)
	content := rawValue(bytes.Clone(ev.JSON(agui.FieldContent)))
	at := r.conv.at(id)
	if at != nil && at.m.role == agui.RoleActivity {
		m := at.m
		if replace { // metadata stays, the owner is the snapshot's
			if at.again != nil { // a message that stands in two places stays as it is in the other
				m.read().settle("metadata")
			}
			obj := m.read().copyOf()
			obj.set("activityType", stringValue(activityType))
			obj.set("content", content)
			obj.remove("subagentRunId")
			o.tag(obj)
			m = &message{id: id, role: agui.RoleActivity, obj: obj, calls: at.m.calls}
			r.conv.replace(at, m, at.m.contentBytes())
		}
		r.mergeMetadata(m, metadata)
		return
	}
	if at != nil && !replace { // a message of another kind stays, metadata and all
		return
	}
	m := newMessage(id, agui.RoleActivity, member{"id", stringValue(id)}, member{"role", stringValue(agui.RoleActivity)},
		member{"activityType", stringValue(activityType)}, member{"content", content})
	o.tag(m.obj)
	if metadata != nil {
		m.obj.mergeMetadata(metadata)
	}
	if at == nil {
		r.conv.push(m)
	} else {
		r.conv.replace(at, m, at.m.contentBytes())
	}
}

// activityDelta patches an activity's content, which stays an object. The metadata is merged even where
// the patch fails.
func (r *Run) activityDelta(ev *agui.Event, id string, o owner) {
	r.p.verify.activityDelta(id, o)
	at := r.conv.at(id)
	if at == nil {
		r.Note("activity-unknown")
		return
	}
	m := at.m
	if m.role != agui.RoleActivity {
		r.Note("activity-delta-on-message")
		return
	}
	r.mergeMetadata(m, ev.JSON(agui.FieldMetadata))
	obj := m.read()
	doc, ok := obj.get("content").(*tree)
	if !ok {
		doc = newTree(contentOf(obj))
		doc.object = true // else no snapshot could hold the message, and a client that restores it would give up
		if obj.get("content") != nil {
			obj.set("content", doc) // the next patch finds it read, also where this one fails
		}
	}
	var before json.RawMessage
	if at.again != nil {
		before = doc.JSON()
	}
	had := m.contentBytes()
	others := r.state.bytes() + r.conv.contentBytes() - had
	if err := doc.apply(ev.JSON(agui.FieldPatch), func() int { return others }); err != nil {
		r.Note("activity-patch-failed")
		return
	}
	activityType, _ := ev.String(agui.FieldActivityType)
	if at.again != nil { // a message that stands in two places stays as it was in the other
		if obj.get("content") != nil {
			obj.set("content", rawValue(before))
		}
		obj.settle("metadata")
	}
	next := obj.copyOf()
	next.set("content", doc)
	next.set("activityType", stringValue(activityType))
	r.conv.replace(at, &message{id: id, role: agui.RoleActivity, obj: next, calls: m.calls}, had)
}

// contentOf returns an activity's content as JSON, {} where it has none.
func contentOf(obj *object) json.RawMessage {
	var c json.RawMessage
	switch v := obj.get("content").(type) {
	case rawValue:
		c = json.RawMessage(v)
	case *tree:
		c = v.JSON()
	}
	if c == nil {
		return json.RawMessage(`{}`)
	}
	return c
}

// stateDelta applies a patch as a whole or not at all.
func (r *Run) stateDelta(patch json.RawMessage) {
	if err := r.state.apply(patch, r.conv.contentBytes); err != nil {
		r.Note("state-patch-failed")
	}
}
