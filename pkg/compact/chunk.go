package compact

import (
	"cmp"
	"container/list"
	"encoding/json"
	"slices"

	"github.com/skeinhq/skein/pkg/agui"
)

// Chunks are AG-UI's shorthand for start, content and end. They are expanded as transformChunks of @ag-ui/client 1.0.0
// does: each subagent, and the parent agent, has one lane, which has at most one open stream.

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

// lane is the stream that one owner is assembling from chunks.
type lane struct {
	Owner  string
	Tagged bool // false: the parent agent
	Kind   entityKind
	ID     string
	// From the first chunk; a later chunk that repeats them must agree.
	Role   string
	Name   *string // of a text message, or of a tool call
	Parent *string

	number uint64        // increases in the order of opening
	entry  *list.Element // in lanesOfKind.open
}

// laneJSON is a lane in the checkpoint.
type laneJSON struct {
	Owner  agui.String  `json:"owner,omitempty"`
	Tagged bool         `json:"tagged,omitempty"`
	Kind   entityKind   `json:"kind"`
	ID     agui.String  `json:"id"`
	Role   string       `json:"role,omitempty"`
	Name   *agui.String `json:"name,omitempty"`
	Parent *agui.String `json:"parent,omitempty"`
}

// MarshalJSON implements json.Marshaler.
func (l *lane) MarshalJSON() ([]byte, error) {
	return json.Marshal(laneJSON{
		agui.String(l.Owner), l.Tagged, l.Kind, agui.String(l.ID), l.Role, (*agui.String)(l.Name), (*agui.String)(l.Parent),
	})
}

// UnmarshalJSON implements json.Unmarshaler.
func (l *lane) UnmarshalJSON(b []byte) error {
	var w laneJSON
	err := json.Unmarshal(b, &w)
	*l = lane{
		Owner: string(w.Owner), Tagged: w.Tagged, Kind: w.Kind, ID: string(w.ID), Role: w.Role,
		Name: (*string)(w.Name), Parent: (*string)(w.Parent),
	}
	return err
}

func (l lane) owner() owner { return owner{l.Owner, l.Tagged} }

// lanes are the open streams: at most one for each owner, and one for each kind and id. The zero value has none. Its maps are
// not walked, since that costs as much as the most they ever held.
type lanes struct {
	byOwner map[owner]*lane
	byKind  map[entityKind]*lanesOfKind
	opened  uint64
}

type lanesOfKind struct {
	byID map[string]*lane
	open list.List
}

func (s *lanes) open(l lane) *lane {
	if s.byOwner == nil {
		s.byOwner, s.byKind = map[owner]*lane{}, map[entityKind]*lanesOfKind{}
	}
	k := s.byKind[l.Kind]
	if k == nil {
		k = &lanesOfKind{byID: map[string]*lane{}}
		s.byKind[l.Kind] = k
	}
	s.opened++
	l.number = s.opened
	l.entry = k.open.PushBack(&l)
	s.byOwner[l.owner()], k.byID[l.ID] = &l, &l
	return &l
}

func (s *lanes) close(l *lane) {
	delete(s.byOwner, l.owner())
	k := s.byKind[l.Kind]
	delete(k.byID, l.ID)
	k.open.Remove(l.entry)
}

// of returns the lane of a kind and id, or nil.
func (s *lanes) of(kind entityKind, id string) *lane {
	if k := s.byKind[kind]; k != nil {
		return k.byID[id]
	}
	return nil
}

// anyOf returns a lane of a kind, or nil, and whether it is the only one.
func (s *lanes) anyOf(kind entityKind) (l *lane, only bool) {
	k := s.byKind[kind]
	if k == nil || k.open.Len() == 0 {
		return nil, false
	}
	return k.open.Front().Value.(*lane), k.open.Len() == 1
}

// all returns the lanes in the order in which they were opened.
func (s *lanes) all() []*lane {
	all := make([]*lane, 0, len(s.byOwner))
	for _, k := range s.byKind {
		for e := k.open.Front(); e != nil; e = e.Next() {
			all = append(all, e.Value.(*lane))
		}
	}
	slices.SortFunc(all, func(a, b *lane) int { return cmp.Compare(a.number, b.number) })
	return all
}

func (r *Run) closeLane(l *lane) {
	if l == nil {
		return
	}
	r.p.lanes.close(l)
	event := r.conv.incoming
	r.conv.incoming = 0 // an end brings nothing, whatever event it comes from
	defer func() { r.conv.incoming = event }()
	o := l.owner()
	if l.Kind == kindTool {
		r.toolEnd(l.ID, o, nil)
	} else {
		r.messageEnd(l.Kind, l.ID, o, nil)
	}
}

// closeLanes closes the lanes that an event other than a chunk closes: run-level events close all lanes, most others that of
// their owner. RAW, ACTIVITY_*, REASONING_ENCRYPTED_VALUE, SUBAGENT_STARTED and unknown types close none.
func (r *Run) closeLanes(t agui.Type, o owner) {
	if len(r.p.lanes.byOwner) == 0 {
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
			r.closeLane(r.p.lanes.byOwner[o])
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
	at := r.p.lanes.byOwner[in]
	if at != nil && at.Kind == kind && (!hasID || id == at.ID) {
		if err := at.agrees(ev, kind); err != nil {
			return err
		}
	} else {
		if !hasID {
			return chunkError(ev.Type, "the first chunk must have a "+idField.String())
		}
		l := lane{Owner: in.id, Tagged: in.set, Kind: kind, ID: id, Name: stringField(ev, agui.FieldName)}
		switch kind {
		case kindText:
			l.Role = agui.RoleAssistant
			if role, ok := ev.String(agui.FieldRole); ok {
				l.Role = role
			}
		case kindTool:
			if l.Name = stringField(ev, agui.FieldToolCallName); l.Name == nil {
				return chunkError(ev.Type, "the first chunk must have a toolCallName")
			}
			l.Parent = stringField(ev, agui.FieldParentMessageID)
		}
		r.closeLane(at)
		at, opened = r.p.lanes.open(l), true
		r.startLane(l, ev.JSON(agui.FieldMetadata))
	}
	// A chunk without a delta counts as an empty delta if it has another member of its own. The client's enforcement removes
	// members that the protocol does not describe before the verification, which therefore ignores a chunk that has no others.
	described := ev.Has(agui.FieldDelta) || ev.Has(agui.FieldRawEvent) || (!opened && ev.Has(agui.FieldMetadata))
	if described {
		r.p.verify.within(at.Kind, at.ID, at.owner())
	}
	if described || (!opened && ev.HasUndescribed()) {
		r.continueLane(*at, ev.Text(agui.FieldDelta), ev.JSON(agui.FieldMetadata))
	}
	return nil
}

func (r *Run) startLane(l lane, metadata json.RawMessage) {
	o := l.owner()
	switch l.Kind {
	case kindText:
		r.messageStart(l.Kind, l.ID, l.Role, l.Name, o, metadata)
	case kindTool:
		parent := ""
		if l.Parent != nil {
			parent = *l.Parent
		}
		r.toolStart(l.ID, *l.Name, parent, l.Parent != nil, o, metadata)
	default:
		r.messageStart(l.Kind, l.ID, agui.RoleReasoning, nil, o, metadata)
	}
}

// continueLane applies content as the reducer does, without verification.
func (r *Run) continueLane(l lane, delta agui.Text, metadata json.RawMessage) {
	if l.Kind == kindTool {
		r.appendArgs(l.ID, delta, metadata)
		return
	}
	r.appendTo(l.ID, delta, metadata)
}

// resolveLane returns the owner of the lane that a chunk belongs to.
func (r *Run) resolveLane(t agui.Type, kind entityKind, id string, hasID bool, o owner) (owner, error) {
	if hasID {
		l := r.p.lanes.of(kind, id)
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
	if l := r.p.lanes.byOwner[owner{}]; l != nil && l.Kind == kind {
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

// agrees checks that a chunk which continues a stream repeats nothing of the first chunk differently.
func (l lane) agrees(ev *agui.Event, kind entityKind) error {
	differs := func(f agui.Field, have *string) bool {
		v, ok := ev.String(f)
		return ok && (have == nil || v != *have)
	}
	switch kind {
	case kindText:
		if differs(agui.FieldRole, &l.Role) || differs(agui.FieldName, l.Name) {
			return chunkError(ev.Type, "the chunk's role or name is not that of the stream it continues")
		}
	case kindTool:
		if differs(agui.FieldToolCallName, l.Name) || differs(agui.FieldParentMessageID, l.Parent) {
			return chunkError(ev.Type, "the chunk's toolCallName or parentMessageId is not that of the call it continues")
		}
	}
	return nil
}

func stringField(ev *agui.Event, f agui.Field) *string {
	if v, ok := ev.String(f); ok {
		return &v
	}
	return nil
}
