package agui

import (
	"encoding/json"
	"iter"
	"strconv"
	"strings"
)

// EscapePointer and UnescapePointer convert a name to a reference token of a JSON Pointer (RFC 6901), and back.
var (
	EscapePointer   = strings.NewReplacer("~", "~0", "/", "~1")
	UnescapePointer = strings.NewReplacer("~1", "/", "~0", "~")
)

// IsPointer reports whether s is a JSON Pointer by RFC 6901: ^(/([^/~]|~[01])*)*$.
func IsPointer[S string | []byte](s S) bool {
	if len(s) > 0 && s[0] != '/' {
		return false
	}
	for i := range len(s) {
		if s[i] == '~' && (i+1 == len(s) || s[i+1] != '0' && s[i+1] != '1') {
			return false
		}
	}
	return true
}

// PointerNames returns the names in a non-empty JSON Pointer. It returns false for any other text.
func PointerNames(pointer string) ([]string, bool) {
	if pointer == "" || !IsPointer(pointer) {
		return nil, false
	}
	names := strings.Split(pointer[1:], "/")
	for i, name := range names {
		names[i] = UnescapePointer.Replace(name)
	}
	return names, true
}

// At returns the value to which names and indexes lead from a checked JSON value; nil if there is none.
func At(value json.RawMessage, names []string) json.RawMessage {
	for _, name := range names {
		switch {
		case IsObject(value):
			value = Lookup(value, name)
		case IsArray(value):
			value = element(value, name)
		default:
			return nil
		}
	}
	return value
}

func element(list json.RawMessage, index string) json.RawMessage {
	n, err := strconv.Atoi(index)
	if err != nil || strconv.Itoa(n) != index {
		return nil
	}
	for e := range Elements(list) {
		if n == 0 {
			return e
		}
		n--
	}
	return nil
}

// Operation has the members of one operation of a JSON Patch (RFC 6902), as JSON; nil where a member is missing.
type Operation struct {
	Op, Path, From, Value json.RawMessage
	of                    kind // of the operation itself
}

// Operations iterates over the operations of a checked JSON array, in one scan. Of a repeated member the last value counts.
func Operations(patch json.RawMessage) iter.Seq[Operation] {
	return func(yield func(Operation) bool) {
		i := skipSpace(patch, skipSpace(patch, 0)+1)
		for i < len(patch) && patch[i] != ']' {
			op, end := operationAt(patch, i)
			if end < 0 || !yield(op) {
				return
			}
			if i = skipSpace(patch, end); i < len(patch) && patch[i] == ',' {
				i = skipSpace(patch, i+1)
			}
		}
	}
}

// operationAt reads the element at index i of a checked JSON array. It returns the index after it, or -1 if there is none.
func operationAt(patch []byte, i int) (Operation, int) {
	op := Operation{of: kindOf(patch[i:])}
	if op.of != kindObject {
		end, err := skipValue(patch, i, checked)
		if err != nil {
			return op, -1
		}
		return op, end
	}
	i = skipSpace(patch, i+1)
	for at := memberFrom(patch, i); at >= 0; {
		m, next := (*Spans)(nil).memberAt(patch, at)
		if next == noMember {
			return op, -1
		}
		value := patch[m.value:m.end]
		switch string(TextOf(m.name(patch)).Bytes()) {
		case "op":
			op.Op = value
		case "path":
			op.Path = value
		case "from":
			op.From = value
		case "value":
			op.Value = value
		}
		at, i = next, skipSpace(patch, int(m.end))
	}
	return op, i + 1
}

// isPatch accepts an RFC 6902 patch. An operation of an unknown name may have any members, since the client and the fold leave it out.
func isPatch(t Type, f Field, v []byte) error {
	if kindOf(v) != kindArray {
		return want(t, f, v, "a JSON Patch, a list of operations")
	}
	for op := range Operations(v) {
		if op.of != kindObject {
			return malformed(t, "%s: an operation must be an object, not %s", f, op.of)
		}
		if kindOf(op.Op) != kindString {
			continue
		}
		needsFrom, needsValue := false, false
		name := TextOf(op.Op).Bytes()
		switch string(name) {
		case "add", "replace", "test":
			needsValue = true
		case "move", "copy":
			needsFrom = true
		case "remove":
		default:
			continue
		}
		if err := isPointer(t, f, name, "path", op.Path); err != nil {
			return err
		}
		if needsFrom {
			if err := isPointer(t, f, name, "from", op.From); err != nil {
				return err
			}
		}
		if needsValue && op.Value == nil {
			return malformed(t, "%s: operation %q needs a value", f, name)
		}
	}
	return nil
}

func isPointer(t Type, f Field, op []byte, member string, v json.RawMessage) error {
	if kindOf(v) != kindString || !IsPointer(TextOf(v).Bytes()) {
		return malformed(t, "%s: %s of %q must be a JSON pointer such as /a/0, not %.60s", f, member, op, v)
	}
	return nil
}
