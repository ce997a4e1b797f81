package record

import (
	"cmp"
	"encoding/json"
	"fmt"
	"iter"
	"slices"
	"strings"

	"github.com/skeinhq/skein/pkg/agui"
)

// Fit encodes a run record. If the text is over the limit, Fit replaces contents, the largest first, by a reference
// (bytes, hash, positions) until it fits, and sets Truncated. Lists whose elements are too small for a reference (kept
// events, input messages, statistics) are removed as a whole.
func Fit(rec *Run, limit int) (value []byte, err error) {
	for size := 0; ; {
		if size = max(size, LeastBytes(rec)); size > limit { // known without encoding all of it
			// One pass for the excess and the references that replace it.
			if !truncate(rec, size-limit) && !collapse(rec) {
				return nil, fmt.Errorf("encoding run record: %d bytes are over the limit of %d and nothing is left to cut", size, limit)
			}
			rec.Truncated, size = true, 0
			continue
		}
		if value, err = EncodeRun(rec); err != nil {
			return nil, fmt.Errorf("encoding run record: %w", err)
		}
		if size = len(value); size <= limit {
			return value, nil
		}
	}
}

// FitLate encodes a record that fitted the limit before FailLate. If it is over the limit, a stub replaces the late error's event. The
// other contents stay, as later runs build on them, so the record may exceed the limit by the size of the stub, 2 KiB at most.
func FitLate(rec *Run, limit int) ([]byte, error) {
	value, err := EncodeRun(rec)
	if late := *rec.LateError; err == nil && len(value) > limit && len(late.Event) > 4*minCut {
		late.Event = Compacted(late.Event)
		message := agui.TextOf(agui.Lookup(late.Event, agui.FieldMessage.String())).String()
		stub := objectStub(late.Event, fmt.Appendf(nil, `{"bytes":%d,"sha256":%q}`, len(late.Event), SHA256(late.Event)), "type", "code")
		stub = append(stub[:len(stub)-1], `,"message":`...)
		late.Event = append(agui.AppendString(stub, strings.ToValidUTF8(message[:min(len(message), minCut)], "")), '}')
		rec.LateError = &late
		value, err = EncodeRun(rec)
	}
	return value, err
}

// content is a part of a record that a reference can replace.
type content struct {
	raw  *json.RawMessage
	stub func(reference json.RawMessage) json.RawMessage
}

// minCut is the size below which a content is not worth a reference.
const minCut = 512

// truncate replaces the largest contents until it has saved at least the argument bytes. It reports whether it replaced any.
func truncate(rec *Run, bytes int) bool {
	all := slices.Collect(contents(rec))
	for _, c := range all {
		*c.raw = Compacted(*c.raw) // as the codec writes it
	}
	slices.SortStableFunc(all, func(a, b content) int { return cmp.Compare(len(*b.raw), len(*a.raw)) })
	done := false
	for _, c := range all {
		size := len(*c.raw)
		if bytes <= 0 || size < minCut {
			break
		}
		if stub := c.stub(reference(rec, *c.raw)); len(stub) < size {
			*c.raw, done = stub, true
			bytes -= size - len(stub)
		}
	}
	return done
}

// collapse removes a list of contents that are each too small for a reference.
func collapse(rec *Run) bool {
	switch {
	case rec.Stats.ToolCallTimes != nil:
		rec.Stats.ToolCallTimes = nil
	case len(rec.Events) > 0:
		rec.Events = nil
	case len(rec.InputMessages) > 0:
		rec.InputMessages, rec.InputLayout = nil, nil
	case len(rec.Resumes)+len(rec.Interrupts)+len(rec.PendingToolCalls) > 0:
		rec.Resumes, rec.Interrupts, rec.PendingToolCalls = nil, nil, nil
	case len(rec.Messages)+len(rec.Layout) > 0:
		rec.Messages, rec.Layout = nil, nil
	case len(rec.Stats.Events)+len(rec.Stats.ToolCalls)+len(rec.Stats.Usage) > 0:
		rec.Stats = Stats{Messages: rec.Stats.Messages, Anomalies: rec.Stats.Anomalies, TimeToFirstToken: rec.Stats.TimeToFirstToken,
			Duration: rec.Stats.Duration}
	default:
		return false
	}
	return true
}

// contents yields the contents that references can replace.
func contents(rec *Run) iter.Seq[content] {
	return func(yield func(content) bool) {
		for _, list := range [][]agui.Message{rec.Messages, rec.InputMessages} {
			for i := range list {
				m := &list[i]
				if !yield(content{&m.Raw, func(ref json.RawMessage) json.RawMessage { return messageStub(*m, ref) }}) {
					return
				}
			}
		}
		object := func(raw *json.RawMessage, keep ...string) bool {
			return yield(content{raw, func(ref json.RawMessage) json.RawMessage { return objectStub(*raw, ref, keep...) }})
		}
		for _, list := range [][]json.RawMessage{rec.Events, rec.Interrupts, rec.Resumes} {
			for i := range list {
				if !object(&list[i], "type", "id", "interruptId", "status") {
					return
				}
			}
		}
		_ = object(&rec.State) && object(&rec.Input, "threadId", "runId", "parentRunId") &&
			object(&rec.Started, "type", "threadId", "runId") && object(&rec.Terminal, "type", "threadId", "runId", "message")
	}
}

// LeastBytes returns the size of those parts of a record whose number is not bounded: a lower limit of the encoded
// size.
func LeastBytes(rec *Run) (n int) {
	for c := range contents(rec) {
		n += len(Compacted(*c.raw))
	}
	for name := range rec.Stats.Events {
		n += 2 * len(name) // in EventBytes too
	}
	for name := range rec.Stats.ToolCalls {
		n += len(name)
	}
	return n
}

// reference returns the JSON that replaces a cut content. The raw events between its positions have the content.
func reference(rec *Run, raw json.RawMessage) json.RawMessage {
	return json.RawMessage(fmt.Sprintf(`{"bytes":%d,"sha256":%q,"from":%q,"to":%q}`, len(raw), SHA256(raw),
		Position{Partition: rec.Raw.Partition, Offset: rec.Raw.First}, Position{Partition: rec.Raw.Partition, Offset: rec.Raw.Next}))
}

// messageStub returns a valid message of the same id and role that holds only the reference.
func messageStub(m agui.Message, ref json.RawMessage) json.RawMessage {
	b := append([]byte(`{"id":`), m.Get("id")...)
	b = append(append(b, `,"role":`...), m.Get("role")...)
	switch m.Role {
	case agui.RoleTool:
		b = append(append(b, `,"toolCallId":`...), m.Get("toolCallId")...)
		b = append(b, `,"content":""`...)
	case agui.RoleActivity:
		b = append(append(b, `,"activityType":`...), m.Get("activityType")...)
		b = append(b, `,"content":{}`...)
	default:
		b = append(b, `,"content":""`...)
	}
	b = append(append(b, `,"metadata":{"skeinTruncated":`...), ref...)
	return append(b, "}}"...)
}

// objectStub returns an object with the reference and with those members named in keep that are small.
func objectStub(raw, ref json.RawMessage, keep ...string) json.RawMessage {
	b := append([]byte(`{"skeinTruncated":`), ref...)
	for _, name := range keep {
		if v := agui.Lookup(raw, name); v != nil && len(v) < minCut {
			b = append(agui.AppendString(append(b, ','), name), ':')
			b = append(b, v...)
		}
	}
	return append(b, '}')
}
