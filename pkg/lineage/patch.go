package lineage

import (
	"bytes"
	"encoding/json"
	"fmt"
	"strconv"
	"strings"

	"github.com/skeinhq/skein/pkg/agui"
	"github.com/skeinhq/skein/pkg/compact"
)

// manyOps is the number of operations in one object or list above which PatchOf replaces it, if that is shorter.
const manyOps = 100

// Patch returns the JSON Patch (RFC 6902) that turns one JSON value into another, [] if they are equal. Members are
// compared by name, in any order; of a repeated name the last counts. Numbers are compared as written. Lists are
// compared by their common beginning and end and, in between, element by element. The cost is linear in the size of the
// values times the depth at which they differ.
func Patch(from, to json.RawMessage) (json.RawMessage, error) {
	a, err := compacted(from)
	if err != nil {
		return nil, fmt.Errorf("comparing JSON: the first value: %w", err)
	}
	b, err := compacted(to)
	if err != nil {
		return nil, fmt.Errorf("comparing JSON: the second value: %w", err)
	}
	var p patch
	p.diff("", a, b)
	return append(append([]byte{'['}, p.ops...), ']'), nil
}

// PatchOf returns a JSON Patch that makes the edits of one event, whose values must be compacted. The cost depends on the size of the
// edits and not of the state. Edits of one value after another are one; others that cancel each other are all in the patch. For one
// edit, instead of many operations in one object or list, it has one that replaces the whole if that is shorter.
func PatchOf(edits []compact.Edit) json.RawMessage {
	p := patch{most: manyOps}
	for i := 0; i < len(edits); i++ {
		e := edits[i]
		for i+1 < len(edits) && edits[i+1].Path == e.Path && (edits[i+1].Before == nil) == (e.After == nil) {
			i++
			e.After = edits[i].After
		}
		switch {
		case e.Before != nil && e.After != nil:
			p.diff(e.Path, e.Before, e.After)
		case e.After != nil:
			p.add("add", e.Path, e.After)
		case e.Before != nil:
			p.add("remove", e.Path, nil)
		}
	}
	return append(append([]byte{'['}, p.ops...), ']')
}

func compacted(v json.RawMessage) (json.RawMessage, error) {
	if err := agui.Check(v); err != nil {
		return nil, err
	}
	var b bytes.Buffer
	if err := json.Compact(&b, v); err != nil {
		return nil, err
	}
	return b.Bytes(), nil
}

// patch collects operations; values in it are compacted JSON.
type patch struct {
	ops         []byte
	count, most int
}

func (p *patch) add(op, path string, value json.RawMessage) {
	p.count++
	if len(p.ops) > 0 {
		p.ops = append(p.ops, ',')
	}
	p.ops = append(append(append(p.ops, `{"op":"`...), op...), `","path":`...)
	p.ops = agui.AppendString(p.ops, path)
	if value != nil {
		p.ops = append(append(p.ops, `,"value":`...), value...)
	}
	p.ops = append(p.ops, '}')
}

// diff recurses as deep as agui.Check allows.
func (p *patch) diff(path string, a, b json.RawMessage) {
	before := *p
	switch {
	case bytes.Equal(a, b):
	case agui.IsObject(a) && agui.IsObject(b):
		p.objects(path, a, b)
	case agui.IsArray(a) && agui.IsArray(b):
		p.arrays(path, a, b)
	case agui.IsString(a) && agui.IsString(b) && agui.TextOf(a).String() == agui.TextOf(b).String():
	default:
		p.add("replace", path, b)
	}
	if p.most > 0 && p.count-before.count > p.most && len(p.ops)-len(before.ops) > len(b)+len(`,{"op":"replace","path":"","value":}`)+len(path) {
		*p = before
		p.add("replace", path, b)
	}
}

func (p *patch) objects(path string, a, b json.RawMessage) {
	was, wasNames, ok := membersOf(a)
	is, isNames, ok2 := membersOf(b)
	if !ok || !ok2 {
		p.add("replace", path, b)
		return
	}
	for _, name := range wasNames {
		if _, ok := is[name]; !ok {
			p.add("remove", path+"/"+agui.EscapePointer.Replace(name), nil)
		}
	}
	for _, name := range isNames {
		at := path + "/" + agui.EscapePointer.Replace(name)
		if old, ok := was[name]; ok {
			p.diff(at, old, is[name])
		} else {
			p.add("add", at, is[name])
		}
	}
}

// membersOf returns an object's members, and their names in order. ok is false if a name has a lone surrogate, which no
// portable JSON Pointer can contain.
func membersOf(obj json.RawMessage) (map[string]json.RawMessage, []string, bool) {
	members := make(map[string]json.RawMessage)
	var names []string
	for name, v := range agui.Members(obj) {
		if strings.ToValidUTF8(name, "") != name {
			return nil, nil, false
		}
		names = append(names, name)
		members[name] = v
	}
	return members, names, true
}

func (p *patch) arrays(path string, a, b json.RawMessage) {
	was, is := elementsOf(a), elementsOf(b)
	front := 0
	for front < len(was) && front < len(is) && bytes.Equal(was[front], is[front]) {
		front++
	}
	was, is = was[front:], is[front:]
	for len(was) > 0 && len(is) > 0 && bytes.Equal(was[len(was)-1], is[len(is)-1]) {
		was, is = was[:len(was)-1], is[:len(is)-1]
	}
	at := func(i int) string { return path + "/" + strconv.Itoa(front+i) }
	both := min(len(was), len(is))
	for i := range both {
		p.diff(at(i), was[i], is[i])
	}
	for i := len(was) - 1; i >= both; i-- { // from the end, so that the indexes stay valid
		p.add("remove", at(i), nil)
	}
	for i := both; i < len(is); i++ {
		p.add("add", at(i), is[i])
	}
}

func elementsOf(arr json.RawMessage) []json.RawMessage {
	var list []json.RawMessage
	for v := range agui.Elements(arr) {
		list = append(list, v)
	}
	return list
}
