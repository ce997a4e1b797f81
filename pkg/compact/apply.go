package compact

import (
	"bytes"
	"encoding/json"

	"github.com/skeinhq/skein/pkg/agui"
)

// The reducers below do what defaultApplyEvents of @ag-ui/client 1.0.0 does, event by event. Where the client only warns,
// they change nothing and count the rule.

// messageStart opens a text or reasoning message. It appends the message if its id is new.
func (r *Run) messageStart(kind entityKind, id, role string, name *agui.String, o owner, metadata json.RawMessage) {
	r.p.verify.open(kind, id, o)
	m := r.conv.find(id)
	if m == nil {
		m = newMessage(id, role, member{"id", stringValue(id)}, member{"role", stringValue(role)}, member{"content", &textValue{}})
		if name != nil {
			m.obj.set("name", stringValue(*name))
		}
		o.tag(m.obj)
		r.conv.push(m)
	} else if m.role == agui.RoleActivity {
		r.Note("text-on-activity")
		return
	}
	r.mergeMetadata(m, metadata)
}

func (r *Run) messageContent(kind entityKind, id string, delta agui.Text, o owner, metadata json.RawMessage) {
	r.p.verify.within(kind, id, o)
	r.appendTo(id, delta, metadata)
}

func (r *Run) messageEnd(kind entityKind, id string, o owner, metadata json.RawMessage) {
	r.p.verify.close(kind, id, o)
	if m := r.withText(id); m != nil {
		r.mergeMetadata(m, metadata)
	}
}

// appendTo appends a delta to the message with the id.
func (r *Run) appendTo(id string, delta agui.Text, metadata json.RawMessage) {
	if m := r.withText(id); m != nil {
		m.appendText(delta)
		r.mergeMetadata(m, metadata)
	}
}

// withText returns the message with the id, unless it is an activity. Otherwise it counts an anomaly and returns nil.
func (r *Run) withText(id string) *message {
	m := r.conv.find(id)
	switch {
	case m == nil:
		r.Note("message-unknown")
	case m.role == agui.RoleActivity:
		r.Note("text-on-activity")
	default:
		return m
	}
	return nil
}

func (r *Run) mergeMetadata(m *message, metadata json.RawMessage) {
	if metadata != nil {
		mergeMetadata(m.open(), metadata)
	}
}

func (r *Run) toolStart(call, name, parent string, hasParent bool, o owner, metadata json.RawMessage) {
	r.p.toolCalls.Set(name, r.p.toolCalls.At(name)+1)
	r.p.verify.toolStart(call, parent, hasParent, o)
	if !r.p.called.At(call) {
		r.p.called.Set(call, true)
		r.p.ToolCallIDs = append(r.p.ToolCallIDs, call)
	}
	// A second start of a call changes the call's name and keeps its arguments.
	if m, c := r.conv.owner(call); c != nil {
		if have, ok := c.name(); !ok || have != name {
			m.open()
			c.fn.set("name", stringValue(name))
			r.Note("tool-call-renamed")
		}
		if metadata != nil {
			m.open()
			mergeMetadata(c.obj, metadata)
		}
		return
	}
	m := r.toolParent(call, parent, hasParent, o)
	c := newToolCall(call, name)
	if metadata != nil {
		mergeMetadata(c.obj, metadata)
	}
	r.conv.addCall(m, c)
}

// toolParent returns the assistant message to which a new call is added, and appends one if there is none. If the parent
// id names a message of another role, the appended message has the call's id. An empty parent id counts as none.
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
	r.appendArgs(call, delta, metadata)
}

// appendArgs appends a delta to the arguments of a call.
func (r *Run) appendArgs(call string, delta agui.Text, metadata json.RawMessage) {
	m, c := r.conv.owner(call)
	if c == nil {
		r.Note("tool-call-unknown")
		return
	}
	m.open()
	c.args.append(delta)
	if metadata != nil {
		mergeMetadata(c.obj, metadata)
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
		mergeMetadata(c.obj, metadata)
	}
}

// toolResult inserts the result after the assistant message that holds the call and the tool messages that follow that
// message. If no message holds the call, it appends the result.
func (r *Run) toolResult(ev *agui.Event, id string, o owner) {
	call, _ := ev.String(agui.FieldToolCallID)
	r.p.verify.toolResult(id, o)
	r.p.Answered.Set(call, true)
	m := newMessage(id, agui.RoleTool, member{"id", stringValue(id)}, member{"toolCallId", stringValue(call)},
		member{"role", stringValue(agui.RoleTool)}, member{"content", rawValue(bytes.Clone(ev.JSON(agui.FieldContent)))})
	o.tag(m.obj)
	if md := ev.JSON(agui.FieldMetadata); md != nil {
		mergeMetadata(m.obj, md)
	}
	caller, _ := r.conv.caller(call)
	if caller == nil {
		r.conv.push(m)
		return
	}
	r.conv.insertResult(caller, m)
}

// encryptedValue stores an encrypted value and its type with a message or a tool call. A value without a type removes the type of the
// value that it replaces.
func (r *Run) encryptedValue(ev *agui.Event, o owner) {
	subtype, _ := ev.String(agui.FieldSubtype)
	entity, _ := ev.String(agui.FieldEntityID)
	r.p.verify.encrypted(subtype, entity, o)
	if subtype == "tool-call" {
		m, call := r.conv.caller(entity)
		if m == nil {
			r.Note("encrypted-value-unknown")
			return
		}
		m.open()
		setEncrypted(call.obj, ev)
		return
	}
	m := r.conv.find(entity)
	if m == nil || m.role == agui.RoleActivity {
		r.Note("encrypted-value-unknown")
		return
	}
	setEncrypted(m.open(), ev)
}

func setEncrypted(o *object, ev *agui.Event) {
	o.set("encryptedValue", rawValue(bytes.Clone(ev.JSON(agui.FieldEncryptedValue))))
	if t := ev.JSON(agui.FieldEncryptedValueType); t != nil {
		o.set("encryptedValueType", rawValue(bytes.Clone(t)))
	} else {
		o.remove("encryptedValueType")
	}
}

// messagesSnapshot merges by id: it replaces known messages in place, appends unknown ones in snapshot order, and removes all
// others except activity and reasoning messages that the snapshot does not own (see authority).
func (r *Run) messagesSnapshot(ev *agui.Event) {
	incoming, stripped := ev.Messages()
	r.noteStripped(ruleStripped, stripped)
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
	owned, all, declared := authority(ev.JSON(agui.FieldMetadata))
	all = all || hasActivity && !declared
	r.conv.merge(fresh, func(m *message) bool {
		switch m.role {
		case agui.RoleReasoning:
			return hasReasoning
		case agui.RoleActivity:
			return all || owned.Len() > 0 && owned.At(m.activityType())
		}
		return true
	})
}

// noteStripped counts n messages or patch operations that the fold has left out, by the argument rule.
func (r *Run) noteStripped(rule string, n int) {
	for range n {
		r.Note(rule)
	}
}

// authority reads metadata["@ag-ui/client"].authoritativeActivityTypes, which declares the activity types that a snapshot
// owns: the types in a list, all types for null, none for anything else. If the member is absent, declared is false; such
// a snapshot owns all activities if it contains one.
func authority(metadata json.RawMessage) (owned set, all, declared bool) {
	v := agui.Lookup(metadata, "@ag-ui/client")
	if v == nil {
		return owned, false, false
	}
	if !agui.IsObject(v) {
		return owned, false, true
	}
	types := agui.Lookup(v, "authoritativeActivityTypes")
	switch {
	case types == nil:
		return owned, false, false
	case string(types) == "null":
		return owned, true, true
	case !agui.IsArray(types):
		return owned, false, true
	}
	for t := range agui.Elements(types) {
		if !agui.IsString(t) {
			return set{}, false, true
		}
		owned.Set(stringOf(t), true)
	}
	return owned, false, true
}

// activitySnapshot makes or replaces an activity message. As in the client, it replaces only the first position: if the old
// message is at several positions, it stays at the others.
func (r *Run) activitySnapshot(ev *agui.Event, id string, o owner) {
	replace := string(ev.JSON(agui.FieldReplace)) != "false"
	r.p.verify.activity(id, o, replace)
	metadata := ev.JSON(agui.FieldMetadata)
	activityType, _ := ev.String(agui.FieldActivityType)
	content := rawValue(bytes.Clone(ev.JSON(agui.FieldContent)))
	m := r.conv.find(id)
	if m != nil && m.role == agui.RoleActivity {
		if replace { // the metadata stays, and the attribution becomes the snapshot's
			before := m
			m = owned(m)
			obj := m.open()
			obj.set("activityType", stringValue(activityType))
			obj.set("content", content)
			if !o.set {
				obj.remove("subagentRunId")
			}
			o.tag(obj)
			r.conv.replace(before, m)
		}
		r.mergeMetadata(m, metadata)
		return
	}
	if m != nil && !replace { // without replace, a message of another role stays unchanged
		return
	}
	made := newMessage(id, agui.RoleActivity, member{"id", stringValue(id)}, member{"role", stringValue(agui.RoleActivity)},
		member{"activityType", stringValue(activityType)}, member{"content", content})
	o.tag(made.obj)
	if metadata != nil {
		mergeMetadata(made.obj, metadata)
	}
	if m == nil {
		r.conv.push(made)
	} else {
		r.conv.replace(m, made)
	}
}

// owned returns a message that can be changed at its first position only: m, or a copy if m is at several positions.
func owned(m *message) *message {
	if m.places == 1 {
		return m
	}
	return fromMessage(m.export())
}

// activityDelta patches an activity's content, which stays an object. The metadata is merged even if the patch fails.
func (r *Run) activityDelta(ev *agui.Event, id string, o owner) {
	r.p.verify.activityDelta(id, o)
	m := r.conv.find(id)
	if m == nil {
		r.Note("activity-unknown")
		return
	}
	if m.role != agui.RoleActivity {
		r.Note("activity-delta-on-message")
		return
	}
	r.mergeMetadata(m, ev.JSON(agui.FieldMetadata))
	obj := m.read()
	var content json.RawMessage
	doc, ok := obj.get("content").(*tree)
	if !ok {
		doc = newTree(&r.reading, json.RawMessage(`{}`))
		if c, ok := obj.get("content").(rawValue); ok && string(c) != "null" {
			doc = newTree(&r.reading, json.RawMessage(c))
			obj.set("content", doc) // keeps the parsed content for the next patch, even if this one fails
		}
		doc.object = true // the schema of activities requires an object; otherwise a client could not restore the message
	}
	if m.places > 1 {
		content = doc.JSON()
	}
	others := func() int { return len(r.state.JSON()) + r.conv.contentBytes(m) }
	stripped, err := doc.apply(ev.JSON(agui.FieldPatch), others)
	if err != nil {
		r.Note("activity-patch-failed")
		return
	}
	r.noteStripped(ruleOperation, stripped)
	if m.places > 1 && obj.get("content") == value(doc) {
		obj.set("content", rawValue(content))
		r.reading.room -= len(content)
	}
	activityType, _ := ev.String(agui.FieldActivityType)
	before := m
	m = owned(m)
	obj = m.open()
	obj.set("content", doc)
	obj.set("activityType", stringValue(activityType))
	r.conv.replace(before, m)
}

// stateDelta applies a patch to the state, either as a whole or not at all.
func (r *Run) stateDelta(patch json.RawMessage) {
	stripped, err := r.state.apply(patch, func() int { return r.conv.contentBytes(nil) })
	if err != nil {
		r.Note("state-patch-failed")
		return
	}
	r.noteStripped(ruleOperation, stripped)
}
