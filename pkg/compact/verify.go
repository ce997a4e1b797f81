package compact

import (
	"strconv"

	"github.com/skeinhq/skein/pkg/agui"
)

// The client's verification (verifyEvents of @ag-ui/client 1.0.0) ends a run at the first breach of a rule. Skein stores what
// agents did, so it counts the breach and continues. docs/fold.md lists the rules.

// entityKind is a kind of entity that can be open in a run.
type entityKind string

const (
	kindText      entityKind = "text"
	kindTool      entityKind = "tool"
	kindReasoning entityKind = "reasoning"
	kindSpan      entityKind = "reasoning-span"
)

// verifier tracks which entities are open and who owns them. It is part of the checkpoint.
type verifier struct {
	Begun   bool `json:"begun,omitempty"`   // an event was seen
	Started bool `json:"started,omitempty"` // RUN_STARTED was seen

	Open   map[entityKind]set `json:"open,omitempty"`
	Steps  set                `json:"steps,omitempty"`  // by stepKey
	Active set                `json:"active,omitempty"` // subagents
	Closed set                `json:"closed,omitempty"`
	// Owners maps an entity, by bucket and id, to who opened it: a subagent, or null for the parent agent.
	Owners map[string]agui.StringMap[*agui.String] `json:"owners,omitempty"`

	note func(rule string)
	// inside is the entity of the last content event, which is known to be open. It is a cache, since deltas of one entity follow each other.
	inside entity
}

// silence stops v from counting until restore is called.
func (v *verifier) silence() (restore func()) {
	note := v.note
	v.note = func(string) {}
	return func() { v.note = note }
}

// entity is a message, call or span.
type entity struct {
	kind entityKind
	id   string
}

// set is a set of ids; its JSON is sorted.
type set map[string]bool

// MarshalJSON implements json.Marshaler.
func (s set) MarshalJSON() ([]byte, error) { return agui.StringMap[bool](s).MarshalJSON() }

// UnmarshalJSON implements json.Unmarshaler.
func (s *set) UnmarshalJSON(b []byte) error { return (*agui.StringMap[bool])(s).UnmarshalJSON(b) }

// stepKey identifies a step by its name and owner, since only its owner can finish it.
func stepKey(name string, o owner) string {
	if !o.set {
		return name
	}
	return strconv.Quote(o.id) + name
}

// with returns the set with id added.
func (s set) with(id string) set {
	if s == nil {
		s = set{}
	}
	s[id] = true
	return s
}

// The buckets of Owners. Text and tool messages share one, since they share their message ids.
const (
	ownMessage   = "message"
	ownTool      = "toolCall"
	ownActivity  = "activity"
	ownReasoning = "reasoning"
)

func bucketOf(k entityKind) string {
	switch k {
	case kindTool:
		return ownTool
	case kindReasoning, kindSpan:
		return ownReasoning
	default:
		return ownMessage
	}
}

// plain verifies an event that has no rule of its own.
func (v *verifier) plain() {
	if !v.Begun {
		v.Begun = true
		v.note("first-event-not-run-started")
	}
}

func (v *verifier) runStarted() {
	if v.Started {
		v.note("run-started-twice")
	}
	v.Begun, v.Started = true, true
}

func (v *verifier) runError() { v.Begun = true }

func (v *verifier) runFinished() {
	v.plain()
	if len(v.Steps) > 0 {
		v.note("open-at-end-step")
	}
	for _, k := range []entityKind{kindText, kindReasoning, kindSpan, kindTool} {
		if len(v.Open[k]) > 0 {
			v.note(openAtEnd + string(k))
		}
	}
	if len(v.Active) > 0 {
		v.note("open-at-end-subagent")
	}
}

func (v *verifier) own(bucket, id string, o owner) {
	if v.Owners == nil {
		v.Owners = map[string]agui.StringMap[*agui.String]{}
	}
	if v.Owners[bucket] == nil {
		v.Owners[bucket] = agui.StringMap[*agui.String]{}
	}
	var who *agui.String
	if o.set {
		who = (*agui.String)(&o.id)
	}
	v.Owners[bucket][id] = who
}

// owner returns who opened the entity with this id.
func (v *verifier) owner(bucket, id string) (o owner, known bool) {
	who, known := v.Owners[bucket][id]
	if who != nil {
		o = owner{string(*who), true}
	}
	return o, known
}

// agree counts an attribution that differs from the opener's, and reports whether the opener is known. An event without an attribution
// always agrees.
func (v *verifier) agree(bucket, id string, o owner) (known bool) {
	opener, known := v.owner(bucket, id)
	if known && o.set && o != opener {
		v.note(ruleMismatch)
	}
	return known
}

func (v *verifier) open(k entityKind, id string, o owner) {
	v.plain()
	if v.Open[k][id] {
		v.note(string(k) + startWhileOpen)
		return
	}
	if v.Open == nil {
		v.Open = map[entityKind]set{}
	}
	if v.Open[k] == nil {
		v.Open[k] = set{}
	}
	if !v.agree(bucketOf(k), id, o) {
		v.own(bucketOf(k), id, o)
	}
	v.Open[k][id] = true
}

func (v *verifier) within(k entityKind, id string, o owner) {
	v.plain()
	if v.inside != (entity{k, id}) {
		if !v.Open[k][id] {
			v.note(string(k) + contentNotOpen)
			return
		}
		v.inside = entity{k, id}
	}
	if o.set {
		v.agree(bucketOf(k), id, o)
	}
}

func (v *verifier) close(k entityKind, id string, o owner) {
	v.plain()
	if !v.Open[k][id] {
		v.note(string(k) + endNotOpen)
		return
	}
	v.agree(bucketOf(k), id, o)
	v.inside = entity{}
	if delete(v.Open[k], id); len(v.Open[k]) == 0 {
		delete(v.Open, k)
	}
}

// toolStart opens a call. If the call has a parent message, the owner of that message owns the call.
func (v *verifier) toolStart(call, parent string, hasParent bool, o owner) {
	if within, known := v.owner(ownMessage, parent); hasParent && known {
		v.agree(ownMessage, parent, o)
		if !o.set {
			o = within
		}
		if have, known := v.owner(ownTool, call); known && have.set && !o.set && !v.Open[kindTool][call] {
			v.note(ruleMismatch) // a subagent's call starts again in a message of the parent agent
		}
	}
	v.open(kindTool, call, o)
}

func (v *verifier) toolResult(id string, o owner) {
	v.plain()
	v.own(ownMessage, id, o)
}

func (v *verifier) activity(id string, o owner, replace bool) {
	v.plain()
	if _, known := v.Owners[ownActivity][id]; !known || replace {
		v.own(ownActivity, id, o)
	}
}

func (v *verifier) activityDelta(id string, o owner) {
	v.plain()
	v.agree(ownActivity, id, o)
}

func (v *verifier) encrypted(subtype, id string, o owner) {
	v.plain()
	if subtype == "tool-call" {
		v.agree(ownTool, id, o)
	} else if !v.agree(ownMessage, id, o) {
		v.agree(ownReasoning, id, o)
	}
}

func (v *verifier) step(name string, o owner, start bool) {
	v.plain()
	key := stepKey(name, o)
	switch {
	case start && v.Steps[key]:
		v.note("step-start-while-open")
	case start:
		v.Steps = v.Steps.with(key)
	case v.Steps[key]:
		delete(v.Steps, key)
	default:
		v.note("step-end-not-open")
	}
}

func (v *verifier) subagentStarted(id, parent string, hasParent bool) {
	v.plain()
	switch {
	case v.Active[id]:
		v.note("subagent-start-while-open")
		return
	case v.Closed[id]:
		v.note("subagent-start-again")
		return
	}
	if hasParent && !v.Active[parent] && !v.Closed[parent] {
		v.note("subagent-parent-unknown")
	}
	v.Active = v.Active.with(id)
}

func (v *verifier) subagentEnded(id string) {
	v.plain()
	if !v.Active[id] {
		v.note("subagent-end-not-open")
		return
	}
	delete(v.Active, id)
	v.Closed = v.Closed.with(id)
}

// seed records the owners that a message of a list names: always for a snapshot (authoritative), and for an input only if no owner
// is known yet. It ignores messages of unknown roles, and tool calls outside assistant messages, since the client's enforcement
// removes these before its verification.
func (v *verifier) seed(m agui.Message, authoritative bool) {
	var who owner
	if sub := m.Get("subagentRunId"); sub != nil {
		who = owner{stringOf(sub), true}
	}
	set := func(bucket, id string) {
		if _, known := v.Owners[bucket][id]; authoritative || !known {
			v.own(bucket, id, who)
		}
	}
	switch m.Role {
	case agui.RoleReasoning:
		set(ownReasoning, m.ID)
	case agui.RoleActivity:
		set(ownActivity, m.ID)
	case agui.RoleUser, agui.RoleAssistant, agui.RoleTool, agui.RoleSystem, agui.RoleDeveloper:
		set(ownMessage, m.ID)
	}
	if m.Role != agui.RoleAssistant {
		return
	}
	for c := range agui.Elements(m.Get("toolCalls")) {
		if id := stringOf(agui.Lookup(c, "id")); id != "" {
			set(ownTool, id)
		}
	}
}
