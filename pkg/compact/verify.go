package compact

import (
	"maps"
	"slices"
	"strconv"

	"github.com/skeinhq/skein/internal/few"
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
	silent  bool // note does nothing

	Open   openSets `json:"open,omitzero"`
	Steps  set      `json:"steps,omitzero"`  // by stepKey
	Active set      `json:"active,omitzero"` // subagents
	Closed set      `json:"closed,omitzero"`
	Owners owners   `json:"owners,omitzero"`

	noted few.Map[string, int64] // Summary.Anomalies
	// inside is the entity of the last content event, which is known to be open. It is a cache, since deltas of one entity follow each other.
	inside entity
}

// openSets has the ids of the open entities of each kind.
type openSets struct {
	Reasoning set `json:"reasoning,omitzero"`
	Span      set `json:"reasoning-span,omitzero"`
	Text      set `json:"text,omitzero"`
	Tool      set `json:"tool,omitzero"`
}

func (s *openSets) of(k entityKind) *set {
	switch k {
	case kindReasoning:
		return &s.Reasoning
	case kindSpan:
		return &s.Span
	case kindTool:
		return &s.Tool
	default:
		return &s.Text
	}
}

// owners maps an entity, by bucket and id, to who opened it: a subagent, or null for the parent agent. Text and tool messages share a
// bucket, since they share their message ids.
type owners struct {
	Activity  bucket `json:"activity,omitzero"`
	Message   bucket `json:"message,omitzero"`
	Reasoning bucket `json:"reasoning,omitzero"`
	Tool      bucket `json:"toolCall,omitzero"`
}

type bucket = byID[*agui.String]

// of returns the bucket of the entities of a kind.
func (o *owners) of(k entityKind) *bucket {
	switch k {
	case kindTool:
		return &o.Tool
	case kindReasoning, kindSpan:
		return &o.Reasoning
	default:
		return &o.Message
	}
}

// silence stops v from counting until restore is called.
func (v *verifier) silence() (restore func()) {
	was := v.silent
	v.silent = true
	return func() { v.silent = was }
}

func (v *verifier) note(rule string) {
	if !v.silent {
		v.count(rule)
	}
}

// count is note, even in silence.
func (v *verifier) count(rule string) {
	v.noted.Set(rule, v.noted.At(rule)+1)
}

// entity is a message, call or span.
type entity struct {
	kind entityKind
	id   string
}

// byID holds a value for each of some ids. Its JSON is that of an agui.StringMap, and absent without ids.
type byID[V any] struct{ few.Map[string, V] }

// IsZero is for omitzero.
func (m byID[V]) IsZero() bool { return m.Len() == 0 }

// MarshalJSON implements json.Marshaler.
func (m byID[V]) MarshalJSON() ([]byte, error) { return agui.StringMap[V](m.Copy()).MarshalJSON() }

// UnmarshalJSON implements json.Unmarshaler.
func (m *byID[V]) UnmarshalJSON(b []byte) error {
	var all agui.StringMap[V]
	err := all.UnmarshalJSON(b)
	for id, v := range all {
		m.Set(id, v)
	}
	return err
}

// sorted returns the ids.
func (m *byID[V]) sorted() []string { return slices.Sorted(maps.Keys(m.Copy())) }

// set is a set of ids.
type set = byID[bool]

// stepKey identifies a step by its name and owner, since only its owner can finish it.
func stepKey(name string, o owner) string {
	if !o.set {
		return name
	}
	return strconv.Quote(o.id) + name
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
	if v.Steps.Len() > 0 {
		v.note("open-at-end-step")
	}
	for _, k := range []entityKind{kindText, kindReasoning, kindSpan, kindTool} {
		if v.Open.of(k).Len() > 0 {
			v.note(openAtEnd + string(k))
		}
	}
	if v.Active.Len() > 0 {
		v.note("open-at-end-subagent")
	}
}

func own(in *bucket, id string, o owner) {
	var who *agui.String
	if o.set {
		by := agui.String(o.id)
		who = &by
	}
	in.Set(id, who)
}

// opener returns who opened the entity with this id.
func opener(in *bucket, id string) (o owner, known bool) {
	who, known := in.Get(id)
	if who != nil {
		o = owner{string(*who), true}
	}
	return o, known
}

// agree counts an attribution that differs from the opener's, and reports whether the opener is known. An event without an attribution
// always agrees.
func (v *verifier) agree(in *bucket, id string, o owner) (known bool) {
	by, known := opener(in, id)
	if known && o.set && o != by {
		v.note(ruleMismatch)
	}
	return known
}

func (v *verifier) open(k entityKind, id string, o owner) {
	v.plain()
	is, owned := v.Open.of(k), v.Owners.of(k)
	if is.At(id) {
		v.note(string(k) + startWhileOpen)
		return
	}
	if !v.agree(owned, id, o) {
		own(owned, id, o)
	}
	is.Set(id, true)
}

func (v *verifier) within(k entityKind, id string, o owner) {
	v.plain()
	if v.inside != (entity{k, id}) {
		if !v.Open.of(k).At(id) {
			v.note(string(k) + contentNotOpen)
			return
		}
		v.inside = entity{k, id}
	}
	if o.set {
		v.agree(v.Owners.of(k), id, o)
	}
}

func (v *verifier) close(k entityKind, id string, o owner) {
	v.plain()
	is := v.Open.of(k)
	if !is.At(id) {
		v.note(string(k) + endNotOpen)
		return
	}
	v.agree(v.Owners.of(k), id, o)
	v.inside = entity{}
	is.Delete(id)
}

// toolStart opens a call. If the call has a parent message, the owner of that message owns the call.
func (v *verifier) toolStart(call, parent string, hasParent bool, o owner) {
	if within, known := opener(&v.Owners.Message, parent); hasParent && known {
		v.agree(&v.Owners.Message, parent, o)
		if !o.set {
			o = within
		}
		if have, known := opener(&v.Owners.Tool, call); known && have.set && !o.set && !v.Open.Tool.At(call) {
			v.note(ruleMismatch) // a subagent's call starts again in a message of the parent agent
		}
	}
	v.open(kindTool, call, o)
}

func (v *verifier) toolResult(id string, o owner) {
	v.plain()
	own(&v.Owners.Message, id, o)
}

func (v *verifier) activity(id string, o owner, replace bool) {
	v.plain()
	if _, known := v.Owners.Activity.Get(id); !known || replace {
		own(&v.Owners.Activity, id, o)
	}
}

func (v *verifier) activityDelta(id string, o owner) {
	v.plain()
	v.agree(&v.Owners.Activity, id, o)
}

func (v *verifier) encrypted(subtype, id string, o owner) {
	v.plain()
	if subtype == "tool-call" {
		v.agree(&v.Owners.Tool, id, o)
	} else if !v.agree(&v.Owners.Message, id, o) {
		v.agree(&v.Owners.Reasoning, id, o)
	}
}

func (v *verifier) step(name string, o owner, start bool) {
	v.plain()
	key := stepKey(name, o)
	switch {
	case start && v.Steps.At(key):
		v.note("step-start-while-open")
	case start:
		v.Steps.Set(key, true)
	case v.Steps.At(key):
		v.Steps.Delete(key)
	default:
		v.note("step-end-not-open")
	}
}

func (v *verifier) subagentStarted(id, parent string, hasParent bool) {
	v.plain()
	switch {
	case v.Active.At(id):
		v.note("subagent-start-while-open")
		return
	case v.Closed.At(id):
		v.note("subagent-start-again")
		return
	}
	if hasParent && !v.Active.At(parent) && !v.Closed.At(parent) {
		v.note("subagent-parent-unknown")
	}
	v.Active.Set(id, true)
}

func (v *verifier) subagentEnded(id string) {
	v.plain()
	if !v.Active.At(id) {
		v.note("subagent-end-not-open")
		return
	}
	v.Active.Delete(id)
	v.Closed.Set(id, true)
}

// seed records the owners that a message of a list names: always for a snapshot (authoritative), and for an input only if no owner
// is known yet. It ignores messages of unknown roles, and tool calls outside assistant messages, since the client's enforcement
// removes these before its verification.
func (v *verifier) seed(m agui.Message, authoritative bool) {
	var who owner
	if sub := m.Get("subagentRunId"); sub != nil {
		who = owner{stringOf(sub), true}
	}
	set := func(in *bucket, id string) {
		if _, known := in.Get(id); authoritative || !known {
			own(in, id, who)
		}
	}
	switch m.Role {
	case agui.RoleReasoning:
		set(&v.Owners.Reasoning, m.ID)
	case agui.RoleActivity:
		set(&v.Owners.Activity, m.ID)
	case agui.RoleUser, agui.RoleAssistant, agui.RoleTool, agui.RoleSystem, agui.RoleDeveloper:
		set(&v.Owners.Message, m.ID)
	}
	if m.Role != agui.RoleAssistant {
		return
	}
	for c := range agui.Elements(m.Get("toolCalls")) {
		if id := stringOf(agui.Lookup(c, "id")); id != "" {
			set(&v.Owners.Tool, id)
		}
	}
}
