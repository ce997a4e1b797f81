package compactor

import (
	"encoding/json"
	"fmt"

	"github.com/skeinhq/skein/pkg/agui"
	"github.com/skeinhq/skein/pkg/record"
	"github.com/skeinhq/skein/pkg/refold"
)

// fit encodes a record. Where it is over the limit its largest contents are replaced, one by one
// and largest first, by a reference (bytes, hash, positions) until it fits, and the run is marked.
func fit(rec *record.Run, limit int) (value []byte, err error) {
	for {
		if value, err = record.EncodeRun(rec); err != nil {
			return nil, fmt.Errorf("encoding run record: %w", err)
		}
		if len(value) <= limit {
			return value, nil
		}
		// What is too much, and the references on top of it, in one pass.
		if !truncate(rec, len(value)-limit) && !collapse(rec) {
			return nil, fmt.Errorf("encoding run record: %d bytes are over the limit of %d and nothing is left to cut", len(value), limit)
		}
		rec.Truncated = true
	}
}

// content is one thing in a record that a reference can stand for.
type content struct {
	size    int
	replace func(reference json.RawMessage)
	raw     json.RawMessage
}

// minCut is the size under which a content is not worth a reference.
const minCut = 512

// truncate replaces the largest contents until at least that many bytes are gone.
func truncate(rec *record.Run, bytes int) bool {
	done := false
	for bytes > 0 {
		c := largest(rec)
		if c.size < minCut {
			return done
		}
		ref := reference(rec, c.raw)
		c.replace(ref)
		bytes -= c.size - len(ref)
		done = true
	}
	return done
}

// collapse takes out a whole list of contents that are each too small for a reference.
func collapse(rec *record.Run) bool {
	switch {
	case len(rec.Events) > 0:
		rec.Events = nil
	case len(rec.InputMessages) > 0:
		rec.InputMessages, rec.InputLayout = nil, nil
	case len(rec.Resumes)+len(rec.Interrupts)+len(rec.PendingToolCalls) > 0:
		rec.Resumes, rec.Interrupts, rec.PendingToolCalls = nil, nil, nil
	case len(rec.Messages)+len(rec.Layout) > 0:
		rec.Messages, rec.Layout = nil, nil
	case len(rec.Stats.Events)+len(rec.Stats.ToolCalls)+len(rec.Stats.Usage) > 0:
		rec.Stats = record.Stats{Messages: rec.Stats.Messages, Anomalies: rec.Stats.Anomalies, TimeToFirstToken: rec.Stats.TimeToFirstToken, Duration: rec.Stats.Duration}
	default:
		return false
	}
	return true
}

func largest(rec *record.Run) content {
	var best content
	offer := func(raw json.RawMessage, replace func(json.RawMessage)) {
		if len(raw) > best.size {
			best = content{size: len(raw), raw: raw, replace: replace}
		}
	}
	for _, list := range [][]agui.Message{rec.Messages, rec.InputMessages} {
		for i := range list {
			m := &list[i]
			offer(m.Raw, func(ref json.RawMessage) { m.Raw = messageStub(*m, ref) })
		}
	}
	for _, list := range [][]json.RawMessage{rec.Events, rec.Interrupts, rec.Resumes} {
		for i := range list {
			offer(list[i], func(ref json.RawMessage) { list[i] = objectStub(list[i], ref, "type", "id", "interruptId", "status") })
		}
	}
	offer(rec.State, func(ref json.RawMessage) { rec.State = objectStub(nil, ref) })
	offer(rec.Input, func(ref json.RawMessage) {
		rec.Input = objectStub(rec.Input, ref, "threadId", "runId", "parentRunId")
	})
	offer(rec.Started, func(ref json.RawMessage) { rec.Started = objectStub(rec.Started, ref, "type", "threadId", "runId") })
	offer(rec.Terminal, func(ref json.RawMessage) {
		rec.Terminal = objectStub(rec.Terminal, ref, "type", "threadId", "runId", "message")
	})
	return best
}

// reference stands for what was cut; the raw log between the positions has it.
func reference(rec *record.Run, raw json.RawMessage) json.RawMessage {
	return json.RawMessage(fmt.Sprintf(`{"bytes":%d,"sha256":%q,"from":%q,"to":%q}`, len(raw), refold.SHA256(raw),
		record.Position{Partition: rec.Raw.Partition, Offset: rec.Raw.First}, record.Position{Partition: rec.Raw.Partition, Offset: rec.Raw.Next}))
}

// messageStub is a valid message of the same id and role, with nothing in it but the reference.
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

// objectStub is an object of the reference and of the named members that are small.
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
