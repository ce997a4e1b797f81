package conformance_test

import (
	"bytes"
	"encoding/json"
	"math"
	"slices"
	"strconv"
	"strings"

	"github.com/skeinhq/skein/pkg/agui"
	"github.com/skeinhq/skein/pkg/lineage"
	"github.com/skeinhq/skein/test/conformance"
)

// knownToBeMended are differences that are no rows of docs/fold.md and are being mended elsewhere. An entry goes when its
// mend is there; the list goes with the last one.
var knownToBeMended = []row{
	{name: "02: an operation of an unknown name drops the whole patch", event: func(p *parting) (json.RawMessage, bool) {
		found := false
		instead := p.with(func(event obj) {
			for _, key := range []string{"delta", "patch"} {
				ops, ok := event[key].([]any)
				if !ok {
					continue
				}
				fit := slices.DeleteFunc(slices.Clone(ops), func(op any) bool {
					o, ok := op.(obj)
					name, _ := o["op"].(string)
					return ok && !slices.Contains([]string{"add", "replace", "remove", "move", "copy", "test"}, name)
				})
				found = found || len(fit) < len(ops)
				event[key] = fit
			}
		})
		return instead, found
	}},
	{name: "03: a move into a number, a string, or a list by a name loses the value for the client", event: onFailing(func(p *parting) bool {
		at, left := p.source()
		if p.op["op"] != "move" || p.op["path"] == "" || len(left) > 0 || at == nil && p.op["from"] == "" {
			return false
		}
		doc := removed(clone(p.doc), stepsOf(p.op["from"].(string)))
		steps := stepsOf(p.op["path"].(string))
		at, left = follow(doc, steps[:len(steps)-1])
		switch at.(type) {
		case string, json.Number, bool:
			return true
		case []any: // a name that JavaScript gives the list, and JSON does not have
			_, digits := looseIndex(steps[len(steps)-1])
			return !digits
		}
		return len(left) > 0 // JavaScript goes on through what is no place
	})},
	{name: "04: an index that is not written as RFC 6901 has it leads on in the path of copy and move", event: onFailing(func(p *parting) bool {
		if p.op["op"] != "move" && p.op["op"] != "copy" && p.op["op"] != "test" {
			return false
		}
		path, _ := p.op["path"].(string)
		at, left := follow(p.doc, stepsOf(path))
		_, array := at.([]any)
		if !array || len(left) < 2 {
			return false
		}
		_, digits := looseIndex(left[0])
		return digits
	})},
	{name: "05: a binary part in a tool result becomes another once it is folded again", event: func(p *parting) (json.RawMessage, bool) {
		if p.value["type"] != string(agui.ToolCallResult) || !says(p.event, "binary") {
			return nil, false
		}
		for _, m := range p.got.run.Messages() { // where it is upgraded as it comes in
			if m.Role == agui.RoleTool && m.ID == p.value["messageId"] {
				instead := p.with(func(event obj) { event["content"] = m.Get("content") })
				if !bytes.Contains(instead, []byte("binary")) {
					return instead, true
				}
			}
		}
		return nil, false
	}, start: func(s *startParting) bool {
		found := s.err == nil && says(s.want.Messages, "binary")
		if found {
			s.want.Messages = encode(list(s.got.Messages))
		}
		return found
	}, again: func(events []json.RawMessage, _ conformance.Conversation) bool {
		return slices.ContainsFunc(events, func(e json.RawMessage) bool {
			return says(e, string(agui.ToolCallResult)) && says(e, "binary")
		})
	}},
	{name: "06: what is as deep as it may be is not accepted again", start: func(s *startParting) bool {
		return s.err != nil && deepest(s.called.Messages, s.called.State) > agui.MaxDepth-6 && s.takeClients()
	},
		again: func(_ []json.RawMessage, c conformance.Conversation) bool {
			return deepest(c.Messages, c.State) > agui.MaxDepth-6
		}},
	{name: "07: not only the last one of repeated members counts", event: func(p *parting) (json.RawMessage, bool) {
		return encode(p.value), repeats(bytes.TrimSpace(p.event))
	}},
	{name: sharedOverRuns},
	{name: "09: half a surrogate pair as an id", again: func(events []json.RawMessage, _ conformance.Conversation) bool {
		return slices.ContainsFunc(events, func(e json.RawMessage) bool {
			return slices.ContainsFunc(halfIDs, func(id string) bool { return says(e, id) })
		})
	}},
	{name: "10c: a number beyond all doubles", event: func(p *parting) (json.RawMessage, bool) {
		instead := encode(finite(clone(p.value)))
		return instead, !bytes.Equal(instead, encode(p.value))
	}, again: func(_ []json.RawMessage, c conformance.Conversation) bool {
		return bytes.Contains(c.Messages, []byte("1e400")) || bytes.Contains(c.State, []byte("1e400"))
	}},
	{name: "10a: activities behind a message from THINKING_*, whose id the input does not know", start: keeping(func(s *startParting, _ []agui.Message) bool {
		return slices.ContainsFunc(s.parent.Messages, func(m agui.Message) bool { return strings.HasPrefix(m.ID, "thinking-") })
	})},
	// A client that holds nothing but activities keeps them.
	{name: "10b: activities come back where the input has no message of before", start: keeping(func(s *startParting, called []agui.Message) bool {
		return !slices.ContainsFunc(called, func(m agui.Message) bool {
			return slices.ContainsFunc(s.parent.Messages, func(of agui.Message) bool { return of.ID == m.ID && of.Role != agui.RoleActivity })
		})
	})},
	{name: "an activity behind the second place of a doubled id moves", start: keeping(func(s *startParting, called []agui.Message) bool {
		return !unique(lineage.InputMessages(s.parent.Messages)) || !unique(called)
	})},
}

// keeping is a difference in what of a parent's activities is kept, and where.
func keeping(meets func(s *startParting, called []agui.Message) bool) func(s *startParting) bool {
	return func(s *startParting) bool {
		var called []agui.Message
		if s.err != nil || json.Unmarshal(s.called.Messages, &called) != nil || len(lineage.InputMessages(s.parent.Messages)) == len(s.parent.Messages) {
			return false
		}
		return meets(s, called) && s.takeClients()
	}
}

// takeClients has Skein start from what the client holds.
func (s *startParting) takeClients() bool {
	if json.Unmarshal(s.want.Messages, &s.got.Messages) != nil {
		return false
	}
	s.got, s.err = lineage.History{Messages: s.got.Messages, State: s.want.State}, nil
	return true
}

// sharedOverRuns is recognised by the chains: see there.
const sharedOverRuns = "08: one message in two places is two from a run's end on"

// repeats reports whether an object in a value has a member twice.
func repeats(v json.RawMessage) bool {
	again := false
	if agui.IsObject(v) {
		seen := map[string]bool{}
		for name, m := range agui.Members(v) {
			again = again || seen[name] || repeats(m)
			seen[name] = true
		}
	}
	if agui.IsArray(v) {
		for m := range agui.Elements(v) {
			again = again || repeats(m)
		}
	}
	return again
}

// finite is a value with null in the place of numbers that are infinite to JavaScript.
func finite(v any) any {
	switch v := v.(type) {
	case obj:
		for k, m := range v {
			v[k] = finite(m)
		}
	case []any:
		for i, m := range v {
			v[i] = finite(m)
		}
	case json.Number:
		if f, _ := strconv.ParseFloat(string(v), 64); math.IsInf(f, 0) {
			return nil
		}
	}
	return v
}

func deepest(values ...json.RawMessage) (n int) {
	for _, v := range values {
		if decoded, err := conformance.Decode(v); err == nil {
			n = max(n, depth(decoded))
		}
	}
	return n
}
