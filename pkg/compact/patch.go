package compact

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"strings"

	"github.com/skeinhq/skein/pkg/agui"
)

// JSON Patch (RFC 6902) as the official client applies it: fast-json-patch 3.1.1 with validation.
// The library evanphx/json-patch follows the RFC where the client does not (a test of a missing
// member against null passes there; "01" is no index; it must read the document for every patch),
// so the fold has its own and the library is what tests compare it with: docs/adr/003.

// maxCopied bounds what the copy operations of one patch may add, in bytes: a few small patches
// that copy what they copied before would otherwise fill the memory.
const maxCopied = 16 << 20

// Errors of a patch; each leaves the document as it was.
var (
	errNoSuchPath = errors.New("applying patch: the path does not exist")
	errIndex      = errors.New("applying patch: the index is not a number or is out of range")
	errOperation  = errors.New("applying patch: the operation is not one of RFC 6902")
	errTest       = errors.New("applying patch: the test failed")
	errPrototype  = errors.New("applying patch: the path names __proto__ or constructor/prototype, which the client refuses")
	errNoObject   = errors.New("applying patch: it leaves something else than an object")
	errCopyLimit  = fmt.Errorf("applying patch: its copies exceed %d bytes", maxCopied)
	errDepth      = fmt.Errorf("applying patch: the document would be more than %d deep", agui.MaxDepth)
)

// patcher applies one patch and knows the way back.
type patcher struct {
	t      *tree
	undo   []func()
	copied int
}

// apply applies a patch, a checked JSON array, as a whole or not at all.
func (t *tree) apply(patch json.RawMessage) error {
	p := &patcher{t: t}
	if err := p.operations(patch); err != nil {
		for i := len(p.undo) - 1; i >= 0; i-- {
			p.undo[i]()
		}
		return err
	}
	if len(p.undo) > 0 {
		t.text = nil
	}
	return nil
}

func (p *patcher) operations(patch json.RawMessage) error {
	for op := range agui.Elements(patch) {
		if err := p.operation(op); err != nil {
			return err
		}
	}
	if p.t.object && !p.t.root.isObject() {
		return errNoObject
	}
	return nil
}

func (p *patcher) operation(op json.RawMessage) error {
	var name, path, from string
	var value json.RawMessage
	for member, v := range agui.Members(op) {
		switch member {
		case "op":
			name = stringOf(v)
		case "path":
			path = stringOf(v)
		case "from":
			from = stringOf(v)
		case "value":
			value = v
		}
	}
	if path != "" && !p.t.root.isObject() && !p.t.root.isArray() {
		return p.onScalar(name, path, from)
	}
	switch name {
	case "add", "replace":
		v := &node{text: bytes.Clone(value)}
		if path == "" {
			return p.setRoot(v)
		}
		return p.set(path, v, name == "replace")
	case "test":
		have := p.t.root
		if path != "" {
			at, err := p.lastStep(path)
			if err != nil {
				return err
			}
			if have = at.value(); have == nil {
				return errTest
			}
		}
		if !have.equal(&node{text: value}) {
			return errTest
		}
		return nil
	case "remove":
		if path == "" {
			return p.setRoot(&node{text: json.RawMessage(`null`)})
		}
		at, err := p.existing(path)
		if err != nil {
			return err
		}
		p.remove(at)
		return nil
	case "move", "copy":
		return p.transfer(name == "move", from, path)
	}
	return errOperation
}

// onScalar is an operation on a document that holds no members. JavaScript lets a member of a number
// be set and forgets it, so the client takes some of these for done. None changes anything.
func (p *patcher) onScalar(name, path, from string) error {
	text := string(p.t.root.text)
	step := path[1:]
	if text == "null" || strings.Contains(step, "/") || step == "__proto__" {
		return errNoSuchPath
	}
	unchecked := text == `""` || text == "false" || isNumber(p.t.root.text) && p.t.root.equal(zero)
	ok := false
	switch name {
	case "add":
		ok = true
	case "replace", "remove":
		ok = unchecked || inherited[step]
	case "move", "copy":
		ok = from == "" || !strings.Contains(from[1:], "/") && from != "/__proto__" && (unchecked || inherited[from[1:]])
	}
	if !ok {
		return errNoSuchPath
	}
	return nil
}

var zero = &node{text: json.RawMessage(`0`)}

// set is add and replace. add makes the last member of the path, and nothing above it.
func (p *patcher) set(path string, v *node, replace bool) error {
	at, err := p.lastStep(path)
	if err != nil {
		return err
	}
	if replace {
		if !at.exists() {
			return errNoSuchPath
		}
		return p.put(at, v)
	}
	if at.parent.isArray() && at.index > len(at.parent.values) {
		return errIndex
	}
	return p.add(at, v)
}

// transfer is move and copy. The client resolves the source first and only then looks at the target.
func (p *patcher) transfer(move bool, from, path string) error {
	source := p.t.root
	var at place
	if from != "" {
		var err error
		if at, err = p.existing(from); err != nil {
			return err
		}
		source = at.value()
	} else if move && path != "" {
		return errNoSuchPath // the document cannot be put into itself
	}
	if path == "" {
		return p.setRoot(source)
	}
	if _, err := p.lastStep(path); err != nil {
		return err
	}
	if move {
		p.remove(at)
	} else {
		source = source.copyOf()
		if p.copied += len(source.text); p.copied > maxCopied {
			return errCopyLimit
		}
	}
	// The target is looked up again: removing the source may have moved or taken it.
	target, err := p.lastStep(path)
	if err != nil {
		return err
	}
	return p.add(target, source)
}

// place is where the last step of a path leads: a member or an element, there or not.
type place struct {
	way    []*node // from the root to parent
	parent *node
	name   string // of a member
	index  int    // of an element; may be out of range
	shown  bool   // the path names an element as it stands in the document, not as "-" or "01"
}

// value returns what is there, or nil.
func (at place) value() *node {
	if !at.parent.isArray() {
		if i := at.parent.find(at.name); i >= 0 {
			return at.parent.values[i]
		}
		return nil
	}
	if at.index >= 0 && at.index < len(at.parent.values) {
		return at.parent.values[at.index]
	}
	return nil
}

// exists reports whether replace and remove find something there. A member that every JavaScript
// object inherits counts, as it does for the client.
func (at place) exists() bool {
	if at.parent.isArray() {
		return at.shown && at.value() != nil
	}
	return at.value() != nil || inherited[at.name]
}

// inherited are the members of JavaScript's Object.prototype.
var inherited = map[string]bool{
	"constructor": true, "toString": true, "toLocaleString": true, "valueOf": true, "hasOwnProperty": true, "isPrototypeOf": true,
	"propertyIsEnumerable": true, "__defineGetter__": true, "__defineSetter__": true, "__lookupGetter__": true, "__lookupSetter__": true,
}

// lastStep follows a path that is not empty up to its last step. All containers on the way must exist.
func (p *patcher) lastStep(path string) (place, error) {
	at := place{}
	n := p.t.root
	steps := strings.Split(path, "/")[1:]
	for i, step := range steps {
		key := step
		if strings.Contains(key, "~") {
			key = unescapePointer.Replace(key)
		}
		if key == "__proto__" || (key == "prototype" && i > 0 && steps[i-1] == "constructor") {
			return at, errPrototype
		}
		if !n.isObject() && !n.isArray() {
			return at, errNoSuchPath
		}
		n.open()
		at.way, at.parent, at.name, at.shown = append(at.way, n), n, key, false
		if n.isArray() {
			if err := at.element(key); err != nil {
				return at, err
			}
		}
		if i == len(steps)-1 {
			return at, nil
		}
		// "-" and "01" make a new element at the end of a path and lead nowhere inside of one.
		next := at.value()
		if next == nil || (n.isArray() && !at.shown) {
			return at, errNoSuchPath
		}
		n = next
	}
	return at, nil
}

// element reads an array index as the client does: digits in any number, as a 32-bit integer; "-"
// is the end.
func (at *place) element(key string) error {
	if key == "-" {
		at.index = len(at.parent.values)
		return nil
	}
	f := 0.0
	for _, c := range []byte(key) {
		if c < '0' || c > '9' {
			return errIndex
		}
		f = f*10 + float64(c-'0')
	}
	at.index = int(int32(uint32(math.Mod(f, 1<<32))))
	at.shown = key == fmt.Sprint(at.index)
	return nil
}

// existing follows a path to something that is there.
func (p *patcher) existing(path string) (place, error) {
	at, err := p.lastStep(path)
	if err != nil {
		return at, err
	}
	if at.value() == nil {
		if !at.parent.isArray() && inherited[at.name] {
			return at, nil
		}
		return at, errNoSuchPath
	}
	if at.parent.isArray() && !at.shown {
		return at, errNoSuchPath
	}
	return at, nil
}

// changed forgets the written form of all nodes on the way. The way back restores it: a patch that
// failed must not even change white space.
func (p *patcher) changed(at place) {
	for _, n := range at.way {
		if text := n.text; text != nil {
			n.text = nil
			p.undo = append(p.undo, func() { n.text = text })
		}
	}
}

func (p *patcher) setRoot(v *node) error {
	before, text := p.t.root, p.t.text
	p.t.root = v
	p.undo = append(p.undo, func() { p.t.root, p.t.text = before, text })
	return nil
}

// put replaces what is there, or makes the member.
func (p *patcher) put(at place, v *node) error {
	if len(at.way)+v.depth() > agui.MaxDepth {
		return errDepth
	}
	p.changed(at)
	n, i := at.parent, at.index
	if !n.array {
		if i = n.find(at.name); i < 0 {
			n.put(at.name, v)
			p.undo = append(p.undo, func() { n.take(len(n.values) - 1) })
			return nil
		}
	}
	before := n.values[i]
	n.values[i] = v
	p.undo = append(p.undo, func() { n.values[i] = before })
	return nil
}

// add makes a member or puts an element in between. An index past the end appends.
func (p *patcher) add(at place, v *node) error {
	if !at.parent.array {
		return p.put(at, v)
	}
	if len(at.way)+v.depth() > agui.MaxDepth {
		return errDepth
	}
	p.changed(at)
	n := at.parent
	i := at.index
	if i < 0 {
		i += len(n.values)
	}
	i = max(0, min(i, len(n.values)))
	n.insert(i, "", v)
	p.undo = append(p.undo, func() { n.take(i) })
	return nil
}

func (p *patcher) remove(at place) {
	n, i := at.parent, at.index
	if !n.array {
		i = n.find(at.name)
	}
	if i < 0 {
		return // an inherited member: there is nothing to remove, and the client says it did
	}
	p.changed(at)
	name, v := n.take(i)
	p.undo = append(p.undo, func() { n.insert(i, name, v) })
}

var unescapePointer = strings.NewReplacer("~1", "/", "~0", "~")
