package conformance_test

import (
	"encoding/json"
	"slices"
	"strconv"
	"strings"
)

// livePatch stands for a patch that is drawn once the document is known that it will meet: see write.
type livePatch struct{ drawn []any }

// patchOn draws a patch that fits a document, and at times spoils it by one step. The document is changed.
func (g gen) patchOn(doc any) []any {
	ops := []any{}
	for range g.n(3) + 1 {
		var op obj
		op, doc = g.operationOn(doc)
		ops = append(ops, op)
	}
	if g.chance(52) {
		g.spoil(pick(g, ops).(obj))
	}
	return ops
}

// operationOn draws one operation and applies it.
func (g gen) operationOn(doc any) (obj, any) {
	name := pick(g, []string{"add", "add", "replace", "remove", "move", "move", "copy", "copy", "test"})
	switch name {
	case "add":
		at, v := g.room(doc), g.value()
		return obj{"op": name, "path": pointerOf(at...), "value": v}, added(doc, at, clone(v))
	case "copy":
		from := g.existing(doc)
		v, _ := follow(doc, from)
		v = clone(v)
		at := g.room(doc)
		return obj{"op": name, "from": pointerOf(from...), "path": pointerOf(at...)}, added(doc, at, v)
	}
	at := g.existing(doc)
	v, _ := follow(doc, at)
	op := obj{"op": name, "path": pointerOf(at...)}
	switch name {
	case "replace":
		op["value"] = g.value()
		doc = replaced(doc, at, clone(op["value"]))
	case "remove":
		doc = removed(doc, at)
	case "test":
		op["value"] = clone(v)
	case "move":
		doc = removed(doc, at)
		to := g.room(doc)
		op["from"], op["path"] = op["path"], pointerOf(to...)
		doc = added(doc, to, v)
	}
	return op, doc
}

// existing draws a place that is there. The root is one.
func (g gen) existing(doc any) (steps []string) {
	far := pick(g, []int{1, 1, 1, 1, 2, 2, 2, 3, 3, 4, 600, 0})
	if g.large == "deep" && g.chance(50) {
		far = 600
	}
	for range far {
		all := names(doc)
		if len(all) == 0 {
			break
		}
		name := pick(g, all)
		steps = append(steps, name)
		doc, _ = member(doc, name)
	}
	return steps
}

// room draws a place that something can be added to.
func (g gen) room(doc any) (steps []string) {
	steps = g.existing(doc)
	at, _ := follow(doc, steps)
	for {
		switch at := at.(type) {
		case obj:
			if g.chance(70) || len(steps) == 0 {
				steps = append(steps, pick(g, memberNames))
			}
			return steps
		case []any:
			if g.chance(70) || len(steps) == 0 {
				steps = append(steps, pick(g, append(names(at), strconv.Itoa(len(at)), "-")))
			}
			return steps
		}
		if len(steps) == 0 || g.chance(30) {
			return steps
		}
		steps = steps[:len(steps)-1]
		at, _ = follow(doc, steps)
	}
}

// memberNames are those of objects, names among them that JavaScript has a use for.
var memberNames = []string{"a", "b", "l", "o", "k", "a/b", "m~n", "", "0", "1", "é", highHalf, "__proto__", "constructor", "hasOwnProperty",
	"length"}

// value is something to put into a document.
func (g gen) value() any {
	if g.large != "" && g.chance(30) {
		return g.largeValue()
	}
	if !g.plain && g.chance(4) {
		return pick(g, oddNumbers)
	}
	return clone(pick(g, anyValues))
}

// oddNumbers are those that no double is equal to.
var oddNumbers = []any{json.Number("9007199254740993"), json.Number("12345678901234567890"), json.Number("0.1000000000000000055"),
	json.Number("1e-400"), json.Number("1e400")}

// oddSteps are written otherwise than RFC 6901 has an index, mean something in JavaScript, or are no steps at all.
var oddSteps = []string{"nope", "-", "01", "00", "", "-1", "1e0", "0x1", "9", "4294967296", "4294967297", "٣", " 1", "a", "x",
	"length", "constructor", "toString", "prototype", "__proto__", "hasOwnProperty", "map", "~2", "~"}

// spoil makes one thing of an operation wrong, or at least another.
func (g gen) spoil(op obj) {
	key := "path"
	if op["from"] != nil && g.chance(50) {
		key = "from"
	}
	pointer, _ := op[key].(string)
	steps := strings.Split(pointer, "/")[min(1, len(pointer)):]
	if pointer == "" {
		steps = nil
	}
	at := 0
	if len(steps) > 0 {
		at = g.n(len(steps) - 1)
	}
	switch how := g.n(15); {
	case how < 5 && len(steps) > 0: // another step
		steps[at] = pick(g, oddSteps)
		op[key] = "/" + strings.Join(steps, "/")
	case how < 7: // one more
		steps = slices.Insert(steps, g.n(len(steps)), pick(g, append(oddSteps, memberNames[:8]...)))
		op[key] = "/" + strings.Join(steps, "/")
	case how == 7 && len(steps) > 0: // one less
		op[key] = strings.Repeat("/", min(1, len(steps)-1)) + strings.Join(slices.Delete(steps, at, at+1), "/")
	case how == 8:
		op["op"] = pick(g, []any{"increment", "ADD", "", "_get", "test", "move", "remove", nil, 7})
	case how == 9:
		delete(op, pick(g, []string{"op", "path", "from", "value"}))
	case how == 10:
		op["value"] = g.value()
	case how == 11:
		op[key] = pick(g, []any{"", "a", "a/b", "~", nil, 7, []any{}, obj{}, "/", "//"})
	case how == 12 && op["from"] != nil: // to the root
		op["path"] = ""
	default: // to where it stands, into itself, or the other way round
		from, hasFrom := op["from"].(string)
		path, hasPath := op["path"].(string)
		if hasFrom && hasPath {
			op["path"], op["from"] = pick(g, []string{from + "/x", from + "/0", from, path}), pick(g, []string{from, from, path})
		}
	}
}

// largeValue is a large one of the kind that the stream has.
func (g gen) largeValue() any {
	switch g.large {
	case "list":
		return largeList(pick(g, []int{1000, 3000, 8000}))
	case "object":
		o := obj{}
		for i, v := range largeList(pick(g, []int{65, 1000, 3000})) {
			o["k"+strconv.Itoa(i)] = v
		}
		return o
	case "deep":
		return deepValue(pick(g, []int{100, 250, 480, 500, 505, 506, 507, 508, 509, 510, 511}))
	}
	return g.largeText()
}

func (g gen) largeText() string {
	const piece = "0123456789 some words é 😀 \"\\\n" + highHalf
	return strings.Repeat(piece, pick(g, []int{10_000, 30_000, 100_000})/len(piece))
}

func largeList(n int) []any {
	all := make([]any, n)
	for i := range all {
		switch i % 11 {
		case 3:
			all[i] = obj{"k": i}
		case 7:
			all[i] = "element " + strconv.Itoa(i)
		default:
			all[i] = i
		}
	}
	return all
}

// deepValue is a value so many containers deep.
func deepValue(n int) any {
	var v any = "the bottom"
	for i := range n {
		if i%3 == 0 {
			v = obj{"a": v}
		} else {
			v = []any{v}
		}
	}
	return v
}
