package compact

import (
	"container/list"
	"encoding/json"

	"github.com/skeinhq/skein/internal/few"
	"github.com/skeinhq/skein/pkg/agui"
)

// Chunks are AG-UI's shorthand for start, content and end. The fold expands them as transformChunks of @ag-ui/client
// 1.0.0 does: the parent agent and each subagent have one lane, which has at most one open stream.

// owner is the subagent that an event is attributed to, or the parent agent.
type owner struct {
	id  string
	set bool
}

// tag writes the attribution into a new message.
func (o owner) tag(obj *object) {
	if o.set {
		obj.set("subagentRunId", stringValue(o.id))
	}
}

// lane is the stream that one owner assembles from chunks.
type lane struct {
	Owner  agui.String `json:"owner,omitempty"`
	Tagged bool        `json:"tagged,omitempty"` // false: the parent agent
	Kind   entityKind  `json:"kind"`
	ID     agui.String `json:"id"`
	// These come from the first chunk; a later chunk that repeats one must agree.
	Role   string       `json:"role,omitempty"`
	Name   *agui.String `json:"name,omitempty"` // of a text message, or of a tool call
	Parent *agui.String `json:"parent,omitempty"`

	entry, kindEntry *list.Element // in lanes.opened and lanes.byKind
}

func (l *lane) owner() owner { return owner{string(l.Owner), l.Tagged} }

func (l *lane) entity() entity { return entity{l.Kind, string(l.ID)} }

// lanes are the open streams: at most one for each owner, and one for each kind and id. The zero value has none.
type lanes struct {
	byOwner few.Map[owner, *lane]
	byID    few.Map[entity, *lane]
	byKind  few.Map[entityKind, *list.List]
	opened  list.List // in the order in which they were opened
}

func (s *lanes) open(l *lane) {
	if s.byKind.At(l.Kind) == nil {
		s.byKind.Set(l.Kind, list.New())
	}
	l.entry, l.kindEntry = s.opened.PushBack(l), s.byKind.At(l.Kind).PushBack(l)
	s.byOwner.Set(l.owner(), l)
	s.byID.Set(l.entity(), l)
}

func (s *lanes) close(l *lane) {
	s.byOwner.Delete(l.owner())
	s.byID.Delete(l.entity())
	s.opened.Remove(l.entry)
	s.byKind.At(l.Kind).Remove(l.kindEntry)
}

// anyOf returns a lane of a kind, or nil, and whether the lane is the only one of its kind.
func (s *lanes) anyOf(kind entityKind) (found *lane, only bool) {
	of := s.byKind.At(kind)
	if of == nil || of.Len() == 0 {
		return nil, false
	}
	return of.Front().Value.(*lane), of.Len() == 1
}

// all returns the lanes in the order in which they were opened.
func (s *lanes) all() []*lane {
	all := make([]*lane, 0, s.opened.Len())
	for e := s.opened.Front(); e != nil; e = e.Next() {
		all = append(all, e.Value.(*lane))
	}
	return all
}

func (r *Run) closeLane(l *lane) {
	if l == nil {
		return
	}
	r.p.lanes.close(l)
	event := r.conv.incoming
	r.conv.incoming = 0 // an end adds nothing, whatever event causes it
	defer func() { r.conv.incoming = event }()
	o := l.owner()
	if l.Kind == kindTool {
		r.toolEnd(string(l.ID), o, nil)
	} else {
		r.messageEnd(l.Kind, string(l.ID), o, nil)
	}
}

// closeLanes closes the lanes that an event other than a chunk closes: run-level events close all lanes, most others the
// lane of their owner. RAW, ACTIVITY_*, REASONING_ENCRYPTED_VALUE, SUBAGENT_STARTED and unknown types close none.
func (r *Run) closeLanes(t agui.Type, o owner) {
	if r.p.lanes.opened.Len() == 0 {
		return
	}
	switch t {
	case agui.RunStarted, agui.RunFinished, agui.RunError, agui.MessagesSnapshot:
		for _, l := range r.p.lanes.all() {
			r.closeLane(l)
		}
	case agui.Raw, agui.ActivitySnapshot, agui.ActivityDelta, agui.ReasoningEncryptedValue, agui.SubagentStarted:
	default:
		if t.Known() {
			r.closeLane(r.p.lanes.byOwner.At(o))
		}
	}
}

var chunkKinds = map[agui.Type]entityKind{
	agui.TextMessageChunk: kindText, agui.ToolCallChunk: kindTool, agui.ReasoningMessageChunk: kindReasoning,
}

func chunkError(t agui.Type, detail string) error {
	return &agui.MalformedError{Rule: agui.RuleChunk, Type: t, Detail: detail}
}

// applyChunk expands one chunk. It checks everything before it changes anything.
func (r *Run) applyChunk(ev *agui.Event, o owner) error {
	kind := chunkKinds[ev.Type]
	idField := agui.FieldMessageID
	if kind == kindTool {
		idField = agui.FieldToolCallID
	}
	id, hasID := ev.String(idField)
	in, err := r.resolveLane(ev.Type, kind, id, hasID, o)
	if err != nil {
		return err
	}
	opened := false
	at := r.p.lanes.byOwner.At(in)
	if at != nil && at.Kind == kind && (!hasID || id == string(at.ID)) {
		if err := at.agrees(ev, kind); err != nil {
			return err
		}
	} else {
		if !hasID {
			return chunkError(ev.Type, "the first chunk must have a "+idField.String())
		}
		l := &lane{Owner: agui.String(in.id), Tagged: in.set, Kind: kind, ID: agui.String(id), Name: optional(ev, agui.FieldName)}
		switch kind {
		case kindText:
			l.Role = agui.RoleAssistant
			if role, ok := ev.String(agui.FieldRole); ok {
				l.Role = role
			}
		case kindTool:
			if l.Name = optional(ev, agui.FieldToolCallName); l.Name == nil {
				return chunkError(ev.Type, "the first chunk must have a toolCallName")
			}
			l.Parent = optional(ev, agui.FieldParentMessageID)
		}
		r.closeLane(at)
		r.p.lanes.open(l)
		at, opened = l, true
		r.startLane(l, ev.JSON(agui.FieldMetadata))
	}
	// Even without a delta, a chunk is content (an empty delta) if it has rawEvent or, unless it opened the lane, metadata or members that the
	// protocol does not describe. The client strips these last before its verification, which so never sees a chunk with nothing else.
	described := ev.Has(agui.FieldDelta) || ev.Has(agui.FieldRawEvent) || (!opened && ev.Has(agui.FieldMetadata))
	if described {
		r.p.verify.within(at.Kind, string(at.ID), at.owner())
	}
	if described || (!opened && ev.HasUndescribed()) {
		r.continueLane(at, ev.Text(agui.FieldDelta), ev.JSON(agui.FieldMetadata))
	}
	return nil
}

func (r *Run) startLane(l *lane, metadata json.RawMessage) {
	id, o := string(l.ID), l.owner()
	switch l.Kind {
	case kindText:
		r.messageStart(l.Kind, id, l.Role, l.Name, o, metadata)
	case kindTool:
		parent := ""
		if l.Parent != nil {
			parent = string(*l.Parent)
		}
		r.toolStart(id, string(*l.Name), parent, l.Parent != nil, o, metadata)
	default:
		r.messageStart(l.Kind, id, agui.RoleReasoning, nil, o, metadata)
	}
}

// continueLane applies content as the reducer does, but without verification.
func (r *Run) continueLane(l *lane, delta agui.Text, metadata json.RawMessage) {
	if l.Kind == kindTool {
		r.appendArgs(string(l.ID), delta, metadata)
		return
	}
	r.appendTo(string(l.ID), delta, metadata)
}

// resolveLane returns the owner of the lane that a chunk belongs to.
func (r *Run) resolveLane(t agui.Type, kind entityKind, id string, hasID bool, o owner) (owner, error) {
	if hasID {
		l := r.p.lanes.byID.At(entity{kind, id})
		if l == nil {
			return o, nil
		}
		if o.set && o != l.owner() {
			return owner{}, chunkError(t, "the chunk's subagentRunId is not that of the stream it continues")
		}
		return l.owner(), nil
	}
	if o.set {
		return o, nil
	}
	if l := r.p.lanes.byOwner.At(owner{}); l != nil && l.Kind == kind {
		return owner{}, nil
	}
	l, only := r.p.lanes.anyOf(kind)
	switch {
	case l == nil:
		return owner{}, nil
	case !only:
		return owner{}, chunkError(t, "the chunk has neither an id nor a subagentRunId, and more than one stream is open")
	}
	return l.owner(), nil
}

// agrees checks that a chunk which continues a stream does not contradict the first chunk.
func (l *lane) agrees(ev *agui.Event, kind entityKind) error {
	differs := func(f agui.Field, have *agui.String) bool {
		v := optional(ev, f)
		return v != nil && (have == nil || *v != *have)
	}
	switch kind {
	case kindText:
		role := agui.String(l.Role)
		if differs(agui.FieldRole, &role) || differs(agui.FieldName, l.Name) {
			return chunkError(ev.Type, "the chunk's role or name is not that of the stream it continues")
		}
	case kindTool:
		if differs(agui.FieldToolCallName, l.Name) || differs(agui.FieldParentMessageID, l.Parent) {
			return chunkError(ev.Type, "the chunk's toolCallName or parentMessageId is not that of the call it continues")
		}
	}
	return nil
}

// optional returns the value of a string member, or nil if the member is absent.
func optional(ev *agui.Event, f agui.Field) *agui.String {
	v, ok := ev.String(f)
	if !ok {
		return nil
	}
	return (*agui.String)(&v)
}
