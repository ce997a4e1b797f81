package lint

import (
	"encoding/json"
	"fmt"
	"strconv"

	"github.com/skeinhq/skein/pkg/agui"
)

// enforcement applies the client's enforcement to one event, and collects what the client removes and refuses.
type enforcement struct {
	stripped []stripped
	refused  []refusal
}

// stripped is a value that the client removes because the schema does not describe it.
type stripped struct {
	rule string
	path string // as the client writes it: names and indexes, each after a slash
	what string
}

// refusal is a value that breaks the schema, or a missing member.
type refusal struct{ path, what string }

// walk checks a value, and returns the value without what the client removes; refused values stay. known is false if the schema does
// not describe this kind of value. The client then removes the value, and also an object that requires it.
func (e *enforcement) walk(v json.RawMessage, of *shape, path string) (left json.RawMessage, known bool) {
	switch {
	case of.is != nil:
		if want := of.is(v); want != "" {
			e.refuse(path, "must be "+want+", not "+describe(v))
		}
	case of.orText && agui.IsString(v):
	case of.list != nil:
		return e.walkList(v, of, path), true
	case of.options != nil:
		if !agui.IsObject(v) {
			e.refuse(path, "must be an object, not "+describe(v))
			return v, true
		}
		kind := ""
		tag := agui.Lookup(v, of.by)
		if agui.IsString(tag) {
			kind = agui.TextOf(tag).String()
		}
		option := of.options[kind]
		if option == nil {
			return v, false
		}
		return e.walkObject(v, option, path)
	case of.object != nil:
		if !agui.IsObject(v) {
			e.refuse(path, "must be an object, not "+describe(v))
			return v, true
		}
		return e.walkObject(v, of, path)
	}
	return v, true
}

func (e *enforcement) walkList(v json.RawMessage, of *shape, path string) json.RawMessage {
	if !agui.IsArray(v) {
		want := "a list"
		if of.orText {
			want = "a string or a list of content parts"
		}
		e.refuse(path, "must be "+want+", not "+describe(v))
		return v
	}
	out, changed, n := []byte{'['}, false, 0
	for element := range agui.Elements(v) {
		at := path + "/" + strconv.Itoa(n)
		n++
		before := e.mark()
		left, known := e.walk(element, of.list, at)
		if !known {
			e.reset(before)
			e.strip(of.list, at, element)
			changed = true
			continue
		}
		changed = changed || !same(left, element)
		out = appendElement(out, left)
	}
	if n < of.min {
		e.refuse(path, fmt.Sprintf("must hold at least %d", of.min))
	}
	if !changed {
		return v
	}
	return append(out, ']')
}

func (e *enforcement) walkObject(v json.RawMessage, of *shape, path string) (json.RawMessage, bool) {
	out, changed := []byte{'{'}, false
	there := make(map[string]bool, len(of.object))
	for name, value := range agui.Members(v) {
		at := path + "/" + name
		left := value
		f := of.field(name)
		switch {
		case f == nil && !of.open:
			e.stripped = append(e.stripped, stripped{RuleMemberStripped, at, "the protocol does not define it"})
			changed = true
			continue
		case f != nil:
			there[name] = true
			before := e.mark()
			var known bool
			left, known = e.walk(value, f.of, at)
			if !known {
				e.reset(before)
				if f.required {
					return v, false
				}
				e.strip(f.of, at, value)
				changed = true
				continue
			}
			changed = changed || !same(left, value)
		}
		out = appendElement(out, nil)
		out = append(append(agui.AppendString(out, name), ':'), left...)
	}
	for _, f := range of.object {
		if f.required && !there[f.name] {
			e.refuse(path+"/"+f.name, "is missing")
		}
	}
	if there[encryptedType.name] && !there[encrypted.name] {
		e.stripped = append(e.stripped, stripped{RuleTypeAlone, path + "/" + encryptedType.name, "there is no encryptedValue beside it"})
	}
	if !changed {
		return v, true
	}
	return append(out, '}'), true
}

func (s *shape) field(name string) *field {
	for i := range s.object {
		if s.object[i].name == name {
			return &s.object[i]
		}
	}
	return nil
}

// strip records the removal of a value of an unknown kind.
func (e *enforcement) strip(of *shape, path string, v json.RawMessage) {
	rule := map[*shape]string{messages.list: RuleMessageStripped, parts.list: RulePartStripped, patch.list: RuleOperationStripped}[of]
	if rule == "" {
		rule = RuleOutcomeStripped
	}
	what := "its " + of.by + " is missing or is not a string"
	if tag := agui.Lookup(v, of.by); agui.IsString(tag) {
		what = fmt.Sprintf("the protocol does not define the %s %s", of.by, shorten(tag))
		if of.options[agui.TextOf(tag).String()] != nil {
			what = "the protocol does not define the type of its source"
		}
	}
	e.stripped = append(e.stripped, stripped{rule, path, what})
}

func (e *enforcement) refuse(path, what string) { e.refused = append(e.refused, refusal{path, what}) }

type mark struct{ stripped, refused int }

func (e *enforcement) mark() mark { return mark{len(e.stripped), len(e.refused)} }
func (e *enforcement) reset(m mark) {
	e.stripped, e.refused = e.stripped[:m.stripped], e.refused[:m.refused]
}

// same reports whether both are the same slice, which means that nothing was removed.
func same(a, b json.RawMessage) bool { return len(a) == len(b) && (len(a) == 0 || &a[0] == &b[0]) }

func appendElement(out []byte, v json.RawMessage) []byte {
	if len(out) > 1 {
		out = append(out, ',')
	}
	return append(out, v...)
}

// describe returns a value for a message: an object or a list by its kind, a scalar as it is but shortened.
func describe(v json.RawMessage) string {
	switch {
	case agui.IsObject(v):
		return "an object"
	case agui.IsArray(v):
		return "a list"
	}
	return shorten(v)
}

func shorten(v json.RawMessage) string {
	const limit = 60
	if len(v) <= limit {
		return string(v)
	}
	return string([]rune(string(v[:limit]))) + "…"
}
