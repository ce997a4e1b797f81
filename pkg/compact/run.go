package compact

import (
	"bytes"
	"cmp"
	"encoding/json"
	"errors"
	"fmt"

	"github.com/skeinhq/skein/pkg/agui"
)

// Version is the version of the fold's rules, which every run record names. Version 1 treated every input on RUN_STARTED as
// a whole conversation, dropped a patch for one unknown operation, and kept numbers that no double can hold. Version 2 dropped
// encryptedValueType, kept interrupts of one id, let cancelled runs wait for tool calls, and compared messages by their ids alone.
const Version = 3

// ErrEnded is returned for an event after the terminal one; it is not folded.
var ErrEnded = errors.New("folding event: the run has ended")

// Run folds the events of one run. It is not safe for concurrent use.
type Run struct {
	conv    *conversation
	state   *tree
	reading reading
	p       progress
	keep    agui.Families
	// recentID is the last message id without escapes.
	recentID string
}

// New starts a fold from a history: the messages and the state that the client holds when the run starts. A nil state
// is {}. New does not change its arguments, and the caller must not change them later.
func New(messages []agui.Message, state json.RawMessage) *Run {
	if state == nil {
		state = json.RawMessage(`{}`)
	}
	r := &Run{conv: newConversation(messages), p: newProgress()}
	r.reading.trees = r.trees
	r.state = newTree(&r.reading, state)
	return r
}

// trees yields the documents that patches may have parsed.
func (r *Run) trees(yield func(*tree) bool) {
	if !yield(r.state) {
		return
	}
	for _, m := range r.conv.list {
		if m.role != agui.RoleActivity || m.obj == nil {
			continue
		}
		if t, ok := m.obj.get("content").(*tree); ok && !yield(t) {
			return
		}
	}
}

// NewOn is New for a history that other folds share.
func NewOn(base Base, state json.RawMessage) *Run {
	r := New(nil, state)
	r.conv.base = base
	return r
}

// Resume continues a fold from a checkpoint. Its arguments are the messages and state from when Checkpoint was called, and
// the result of Checkpoint. It returns an error if the checkpoint does not decode or does not belong to these messages.
func Resume(messages []agui.Message, state, checkpoint json.RawMessage) (*Run, error) {
	r := New(messages, state)
	if err := json.Unmarshal(checkpoint, &r.p); err != nil {
		return nil, fmt.Errorf("resuming a fold: %w", err)
	}
	if err := r.conv.restoreSame(r.p.Same); err != nil {
		return nil, fmt.Errorf("resuming a fold: %w", err)
	}
	return r, nil
}

// Keep sets the event families that Summary.Kept holds; the default is the zero value of agui.Families. Call it before the
// first Apply, also after Resume, since a checkpoint does not contain it. agui.NoFamilies drops the events in the checkpoint.
func (r *Run) Keep(families agui.Families) {
	if r.keep = families; families == agui.NoFamilies {
		r.p.Kept = nil
	}
}

// Name sets the run id that is part of the ids made by the fold. The default is the id on RUN_STARTED, which another run
// of the thread may share. Call Name before the first Apply; a checkpoint contains the id.
func (r *Run) Name(id string) { r.p.RunID = agui.String(id) }

// Rename means that the run starts from its whole input, whose messages without an id have other ids than RUN_STARTED gives them. The fold
// then adds no such message of RUN_STARTED. Call Rename before the first Apply; a checkpoint contains it.
func (r *Run) Rename() { r.p.Renamed = true }

// Checkpoint returns, as JSON, what Resume needs besides Messages and State. The same events give the same bytes,
// however they were batched.
func (r *Run) Checkpoint() (json.RawMessage, error) {
	r.p.Same = r.conv.same()
	b, err := json.Marshal(&r.p)
	if err != nil {
		return nil, fmt.Errorf("writing a fold's checkpoint: %w", err)
	}
	return b, nil
}

// Ended reports whether the fold has a terminal event; Apply returns ErrEnded from then on.
func (r *Run) Ended() bool { return r.p.Terminal != nil }

// Messages returns the current conversation. Later events do not change the slice or its messages.
func (r *Run) Messages() []agui.Message { return r.conv.export() }

// Added returns the messages that the run appended to base. only is false if the run was not started on base (NewOn), changed the
// conversation in another way, or appended a message with an id that base has. The cost does not depend on the size of base.
func (r *Run) Added(base Base) (added []agui.Message, only bool) {
	if len(base.messages) == 0 || !base.Is(r.conv.base) {
		return nil, false
	}
	return r.conv.added(), true
}

// MessageCount returns len(Messages()) without encoding them.
func (r *Run) MessageCount() int { return r.conv.len() }

// State returns the current state as JSON.
func (r *Run) State() json.RawMessage { return r.state.JSON() }

// StateAt follows a path of names and indexes into the state as far as patches have parsed it. It returns the value there as JSON, nil if
// the state has none, and the rest of the path. The cost is that of the value there, not of the state.
func (r *Run) StateAt(path []string) (value json.RawMessage, rest []string) {
	return r.state.root.toward(path)
}

// Note counts an anomaly that was found outside the fold, such as an event that does not decode, in Summary.Anomalies.
func (r *Run) Note(rule string) { r.p.verify.count(rule) }

// Apply folds one event and keeps nothing that aliases it. After an error for which agui.IsMalformed is true, the fold is as
// if the event had not been sent. An event that only the client's verification rejects is folded as the client's reducer
// does, and counted by rule.
func (r *Run) Apply(ev *agui.Event) error {
	if err := r.apply(ev); err != nil {
		return err
	}
	r.count(ev)
	return nil
}

// ApplyNoting is Apply, and returns how the event changed the state. The values are those that the edits made, and not those of
// later edits.
func (r *Run) ApplyNoting(ev *agui.Event) ([]Edit, error) {
	r.state.noting, r.state.edits = true, nil
	err := r.Apply(ev)
	edits := r.state.edits
	r.state.noting, r.state.edits = false, nil
	return edits, err
}

// End folds a terminal event that is not the agent's. It does not count the event, and what the event leaves open is no anomaly.
func (r *Run) End(ev *agui.Event) error {
	if r.Ended() {
		return ErrEnded
	}
	defer r.p.verify.silence()()
	return r.apply(ev)
}

func (r *Run) apply(ev *agui.Event) error {
	if r.Ended() {
		return ErrEnded
	}
	if r.p.Cut {
		r.applyCut(ev)
		return nil
	}
	sub, hasSub := ev.String(agui.FieldSubagentRunID)
	o := owner{sub, hasSub}
	r.conv.incoming = len(ev.Raw)
	r.reading.room -= len(ev.Raw)
	if err := r.dispatch(ev, o); err != nil {
		return err
	}
	if r.conv.repeated > maxRepeated {
		r.conv.separate()
		r.reading.room = 0
	}
	return nil
}

func (r *Run) dispatch(ev *agui.Event, o owner) error {
	switch ev.Type {
	case agui.TextMessageChunk, agui.ToolCallChunk, agui.ReasoningMessageChunk:
		return r.applyChunk(ev, o) // verified as the events to which it expands
	}
	if t := thinkingAs(ev.Type); t != "" {
		r.applyThinking(ev, t, o)
		return nil
	}
	if ev.Type == agui.MessagesSnapshot && r.conv.repeats(ev) > maxRepeated {
		return &agui.MalformedError{Rule: agui.RuleRepeated, Type: ev.Type,
			Detail: fmt.Sprintf("it would put messages into all places where their ids stand, "+
				"more than %d bytes beyond the first of each", maxRepeated)}
	}
	r.closeLanes(ev.Type, o)
	id := r.messageID(ev)
	switch ev.Type {
	case agui.TextMessageStart:
		role, ok := ev.String(agui.FieldRole)
		if !ok {
			role = agui.RoleAssistant
		}
		r.messageStart(kindText, id, role, optional(ev, agui.FieldName), o, ev.JSON(agui.FieldMetadata))
	case agui.TextMessageContent:
		r.messageContent(kindText, id, ev.Text(agui.FieldDelta), o, ev.JSON(agui.FieldMetadata))
	case agui.TextMessageEnd:
		r.messageEnd(kindText, id, o, ev.JSON(agui.FieldMetadata))
	case agui.ReasoningMessageStart:
		if stringOf(agui.Lookup(ev.Body, agui.FieldRole.String())) != agui.RoleReasoning {
			r.Note(ruleRole) // the upgrade table has replaced it in ev
		}
		r.messageStart(kindReasoning, id, agui.RoleReasoning, nil, o, ev.JSON(agui.FieldMetadata))
	case agui.ReasoningMessageContent:
		r.messageContent(kindReasoning, id, ev.Text(agui.FieldDelta), o, ev.JSON(agui.FieldMetadata))
	case agui.ReasoningMessageEnd:
		r.messageEnd(kindReasoning, id, o, ev.JSON(agui.FieldMetadata))
	case agui.ReasoningStart:
		r.p.verify.open(kindSpan, id, o)
	case agui.ReasoningEnd:
		r.p.verify.close(kindSpan, id, o)
	case agui.ToolCallStart:
		call, _ := ev.String(agui.FieldToolCallID)
		name, _ := ev.String(agui.FieldToolCallName)
		parent, hasParent := ev.String(agui.FieldParentMessageID)
		r.toolStart(call, name, parent, hasParent, o, ev.JSON(agui.FieldMetadata))
	case agui.ToolCallArgs:
		call, _ := ev.String(agui.FieldToolCallID)
		r.toolArgs(call, ev.Text(agui.FieldDelta), o, ev.JSON(agui.FieldMetadata))
	case agui.ToolCallEnd:
		call, _ := ev.String(agui.FieldToolCallID)
		r.toolEnd(call, o, ev.JSON(agui.FieldMetadata))
	case agui.ToolCallResult:
		r.toolResult(ev, id, o)
	case agui.ReasoningEncryptedValue:
		r.encryptedValue(ev, o)
	case agui.StateSnapshot:
		r.p.verify.plain()
		before := r.state
		r.state = newTree(&r.reading, bytes.Clone(ev.JSON(agui.FieldSnapshot)))
		if before.noting {
			r.state.edits = []Edit{{Before: before.JSON(), After: r.state.JSON()}}
		}
	case agui.StateDelta:
		r.p.verify.plain()
		r.stateDelta(ev.JSON(agui.FieldDelta))
	case agui.MessagesSnapshot:
		r.messagesSnapshot(ev)
	case agui.ActivitySnapshot:
		r.activitySnapshot(ev, id, o)
	case agui.ActivityDelta:
		r.activityDelta(ev, id, o)
	case agui.RunStarted:
		r.runStarted(ev)
	case agui.RunFinished:
		r.runFinished(ev)
	case agui.RunError:
		r.end(ev, StatusError)
	case agui.StepStarted, agui.StepFinished:
		name, _ := ev.String(agui.FieldStepName)
		r.p.verify.step(name, o, ev.Type == agui.StepStarted)
	case agui.SubagentStarted:
		parent, hasParent := ev.String(agui.FieldParentSubagentRunID)
		r.p.verify.subagentStarted(o.id, parent, hasParent)
	case agui.SubagentFinished, agui.SubagentError:
		r.p.verify.subagentEnded(o.id)
	case agui.Raw, agui.Custom:
		r.p.verify.plain()
	default: // META and unknown types: the client drops them before it verifies anything
	}
	return nil
}

// messageID returns the event's message id, or "". Consecutive events of one message share one copy.
func (r *Run) messageID(ev *agui.Event) string {
	text := ev.Text(agui.FieldMessageID)
	if r.recentID == "" || string(text) != r.recentID {
		id := text.String()
		if bytes.IndexByte(text, '\\') >= 0 {
			return id
		}
		r.recentID = id
	}
	return r.recentID
}

func (r *Run) runStarted(ev *agui.Event) {
	r.p.verify.runStarted()
	if version, ok := ev.String(agui.FieldProtocolVersion); ok && !agui.Understands(version) {
		r.Note(ruleVersion)
	}
	r.p.Started = bytes.Clone(agui.Without(ev.Body, agui.FieldInput.String()))
	r.p.RunID = cmp.Or(r.p.RunID, agui.String(ev.RunID))
	r.p.ToolCallIDs, r.p.called, r.p.Answered = nil, set{}, set{}
	in := ev.Input(string(r.p.RunID))
	if in == nil {
		return
	}
	r.noteStripped(ruleStripped, in.Stripped)
	for _, m := range in.Messages {
		if r.p.Renamed && agui.UnnamedIn(string(r.p.RunID), m.ID) {
			continue
		}
		r.p.verify.seed(m, false)
		if r.conv.find(m.ID) == nil {
			m.Raw = bytes.Clone(m.Raw) // so that the rest of the input can be freed
			r.conv.push(fromMessage(m))
		}
	}
}

func (r *Run) runFinished(ev *agui.Event) {
	r.p.verify.runFinished()
	outcome := ev.JSON(agui.FieldOutcome)
	switch ev.OutcomeType() {
	case "interrupt":
		ids := set{}
		for i := range agui.Elements(agui.Lookup(outcome, "interrupts")) {
			id := stringOf(agui.Lookup(i, "id"))
			if ids.At(id) {
				r.p.verify.note(ruleInterrupt)
				continue
			}
			ids.Set(id, true)
			r.p.Interrupts = append(r.p.Interrupts, bytes.Clone(i))
		}
		r.end(ev, StatusInterrupted)
	case "cancelled":
		r.end(ev, StatusCancelled)
	default:
		for id := range agui.Elements(agui.Lookup(outcome, "pendingToolCallIds")) {
			r.p.PendingToolCalls = append(r.p.PendingToolCalls, stringOf(id))
		}
		r.end(ev, StatusFinished)
	}
}

// end records the terminal event. Unless RUN_FINISHED names the pending tool calls, they are the calls that the run
// started but did not answer; a cancelled run waits for none.
func (r *Run) end(ev *agui.Event, status string) {
	if ev.Type == agui.RunError {
		r.p.verify.runError()
	}
	r.p.Terminal = bytes.Clone(ev.Body)
	r.p.Status = status
	r.p.lanes = lanes{}
	if len(r.p.PendingToolCalls) == 0 && status != StatusCancelled {
		for _, id := range r.p.ToolCallIDs {
			if !r.p.Answered.At(id) {
				r.p.PendingToolCalls = append(r.p.PendingToolCalls, id)
			}
		}
	}
}
