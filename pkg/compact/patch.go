package compact

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"iter"
	"math"
	"slices"
	"strconv"
	"strings"

	"github.com/skeinhq/skein/pkg/agui"
)

// JSON Patch (RFC 6902) as the official client applies it: fast-json-patch 3.1.1 with validation. The library
// evanphx/json-patch follows the RFC in places where the client does not, and parses the document for every patch. So the fold
// has its own implementation, which tests compare with the library (docs/adr/003).

// Limits on copy operations, in bytes: a few small patches that copy earlier copies would otherwise fill the memory.
const (
	maxCopied    = 16 << 20 // copied by one patch, which is as much work
	maxDocuments = 64 << 20 // the state and all activity contents after a copy
)

// maxRead is how many nodes the trees of a run may make by reading before they drop them all. Patches read small objects on
// their path whole, members of large ones one by one, and elements of long arrays by parts. A node takes 50 to 150 bytes.
// Reading again costs the size of the documents, but is needed once in thousands of operations: each makes a few nodes for
// each step of its path, 512 at most.
const maxRead = 2 << 20

// Errors of a patch; after each the document is unchanged.
var (
	errNoSuchPath = errors.New("applying patch: the path does not exist")
	errIndex      = errors.New("applying patch: the index is not a number or is out of range")
	errTest       = errors.New("applying patch: the test failed")
	errPrototype  = errors.New("applying patch: the path names __proto__ or constructor/prototype, which the client refuses")
	errNoObject   = errors.New("applying patch: it leaves something else than an object")
	errCopyLimit  = fmt.Errorf("applying patch: its copies exceed %d bytes", maxCopied)
	errSizeLimit  = fmt.Errorf("applying patch: its copies leave more than %d bytes", maxDocuments)
	errDepth      = fmt.Errorf("applying patch: the document would be more than %d deep", agui.MaxDepth)
)

// patcher applies one patch, and can undo it.
type patcher struct {
	t      *tree
	others func() int
	undo   []func()
	copied int
	copies bool // one of its operations was a copy
	// stripped is how many operations RFC 6902 does not define.
	stripped int
}

// apply applies a patch, a checked JSON array, as a whole or not at all. It returns how many operations it left out
// because RFC 6902 does not define them. others returns the size of the run's other documents in bytes.
func (t *tree) apply(patch json.RawMessage, others func() int) (stripped int, err error) {
	p := &patcher{t: t, others: others}
	if err := p.operations(patch); err != nil {
		p.back()
		return 0, err
	}
	if len(p.undo) > 0 {
		t.text = nil
	}
	return p.stripped, nil
}

func (p *patcher) operations(patch json.RawMessage) error {
	for op := range agui.Elements(patch) {
		if p.t.reading.nodes > maxRead {
			p.restart()
		}
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
	if !isOperation(name) {
		p.stripped++ // as by the client's enforcement, whatever its members
		return nil
	}
	if path != "" && !p.t.root.isObject() && !p.t.root.isArray() {
		return p.onScalar(name, path, from)
	}
	switch name {
	case "add", "replace":
		v := &node{text: bytes.Clone(value)}
		p.t.reading.nodes += len(value) / 64 // a copy or move of a part keeps all of its text
		if path == "" {
			return p.setRoot(v)
		}
		return p.set(path, v, name == "replace")
	case "test":
		have := p.t.root
		if path != "" {
			at, err := p.lastStep(path, true)
			if err != nil {
				return err
			}
			if have = at.value(); have == nil {
				return errTest
			}
		}
		if !p.equal(have, &node{text: value}) {
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
	default: // move, copy
		return p.transfer(name == "move", from, path)
	}
}

// isOperation reports whether RFC 6902 defines an operation of that name.
func isOperation(name string) bool {
	switch name {
	case "add", "replace", "test", "remove", "move", "copy":
		return true
	}
	return false
}

// onScalar applies an operation to a document without members. JavaScript ignores an assignment to a member of a number, so for the
// client some of these succeed. None changes anything.
func (p *patcher) onScalar(name, path, from string) error {
	text := string(p.t.root.text)
	step := path[1:]
	if text == "null" || strings.Contains(step, "/") || step == "__proto__" {
		return errNoSuchPath
	}
	unchecked := text == `""` || text == "false" || isNumber(p.t.root.text) && equalScalar(p.t.root.text, zero)
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

var zero = json.RawMessage(`0`)

// equal compares a value of the document with one of the patch as the client does, ignoring the order of members.
func (p *patcher) equal(n, o *node) bool {
	switch {
	case n.isObject():
		if !o.isObject() {
			return false
		}
		p.open(n)
		if o = o.contents(); n.count() != o.count() {
			return false
		}
		for name, v := range n.all() {
			i := o.find(name)
			if i < 0 || !p.equal(v, o.member(i)) {
				return false
			}
		}
		return true
	case n.isArray():
		if !o.isArray() {
			return false
		}
		p.open(n)
		if o = o.contents(); n.count() != o.count() {
			return false
		}
		next, stop := iter.Pull2(o.all())
		defer stop()
		for _, v := range n.all() {
			if _, w, _ := next(); !p.equal(v, w) {
				return false
			}
		}
		return true
	}
	return !o.isObject() && !o.isArray() && equalScalar(n.text, o.text)
}

// open reads a container's members or elements.
func (p *patcher) open(n *node) {
	if n.container == nil {
		n.open()
		if n.table == nil {
			p.t.reading.nodes += len(n.values)
		}
		for i := range n.parts {
			p.t.reading.nodes += len(n.parts[i].nodes)
		}
	}
}

// restart drops all nodes of the run's trees, which are read again from their texts.
func (p *patcher) restart() {
	now := p.t.root.appendJSON(nil)
	p.back()
	before := p.t.JSON()
	p.undo = []func(){func() { p.t.root, p.t.text = &node{text: before}, before }}
	p.t.root, p.t.shares = &node{text: now}, false
	p.t.reading.nodes = 0
	if p.t.reading.trees == nil {
		return
	}
	for t := range p.t.reading.trees {
		if t != p.t {
			t.forget()
		}
	}
}

// back undoes the operations.
func (p *patcher) back() {
	for i := len(p.undo) - 1; i >= 0; i-- {
		p.undo[i]()
	}
}

// set applies add and replace. The parent of the path's last member must exist.
func (p *patcher) set(path string, v *node, replace bool) error {
	at, err := p.lastStep(path, false)
	if err != nil {
		return err
	}
	if replace {
		if !at.exists() {
			return errNoSuchPath
		}
		return p.put(at, v)
	}
	if at.parent.isArray() && at.index > at.parent.count() {
		return errIndex
	}
	return p.add(at, v)
}

// transfer applies move and copy. Like the client, it resolves the source before the target.
func (p *patcher) transfer(move bool, from, path string) error {
	source := p.t.root
	var at place
	if from != "" {
		var err error
		if at, err = p.existing(from); err != nil {
			return err
		}
		if source = at.value(); source == nil { // inherited in JavaScript: a function, which no JSON can hold
			return errNoSuchPath
		}
	} else if move && path != "" {
		return errNoSuchPath // the document cannot be put into itself
	}
	if path == "" {
		return p.setRoot(source)
	}
	if _, err := p.lastStep(path, true); err != nil {
		return err
	}
	if move {
		p.remove(at)
	} else {
		if p.copied += source.bytes(); p.copied > maxCopied {
			return errCopyLimit
		}
		source.shared, p.t.shares, p.copies = true, true, true
	}
	// The target is looked up again: removing the source may have moved or removed it.
	target, err := p.lastStep(path, true)
	if err != nil {
		return err
	}
	if err := p.add(target, source); err != nil {
		return err
	}
	if !move && p.t.root.bytes()+p.others() > maxDocuments {
		return errSizeLimit
	}
	return nil
}

// place is what a path names: a member or an element, which need not exist.
type place struct {
	way    []*node // from the root to parent
	steps  []int   // the index in each of them
	parent *node
	name   string // of a member
	index  int    // of an element, may be out of range; of a member, -1 if it does not exist
	shown  bool   // an element is named by its index as RFC 6901 writes it, not by "-" or "01"
}

// value returns the value at the place, or nil.
func (at place) value() *node {
	switch {
	case at.index < 0:
		return nil
	case !at.parent.isArray():
		return at.parent.member(at.index)
	case at.index < at.parent.count():
		return at.parent.at(at.index)
	}
	return nil
}

// exists reports whether replace and remove find a value at the place. As for the client, a member that every JavaScript object
// inherits counts.
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

// lastStep follows a non-empty path up to its last step. All containers on the way must exist. lenient accepts indexes on the way that
// RFC 6901 does not allow, such as "01", as the client does for the path of test, move and copy.
func (p *patcher) lastStep(path string, lenient bool) (place, error) {
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
		p.open(n)
		at.way, at.parent, at.name, at.shown = append(at.way, n), n, key, false
		if n.isArray() {
			if err := at.element(key); err != nil {
				return at, err
			}
			p.t.reading.nodes += n.unreadAt(at.index)
		} else {
			at.index = n.find(key)
			p.t.reading.nodes++ // a new node, at most
		}
		at.steps = append(at.steps, at.index)
		if i == len(steps)-1 {
			return at, nil
		}
		// Only as the last step may "-" and "01" name an element.
		next := at.value()
		if next == nil || (n.isArray() && !at.shown && !lenient) {
			return at, errNoSuchPath
		}
		n = next
	}
	return at, nil
}

// element parses an array index as the client does: any number of digits, as a 32-bit integer; "-" is the end.
func (at *place) element(key string) error {
	if key == "-" {
		at.index = at.parent.count()
		return nil
	}
	for _, c := range []byte(key) {
		if c < '0' || c > '9' {
			return errIndex
		}
	}
	f, err := strconv.ParseFloat(key, 64)
	if err != nil { // empty, or out of range: 0 for the client
		f = 0
	}
	at.index = int(int32(uint32(math.Mod(f, 1<<32))))
	at.shown = key == fmt.Sprint(at.index)
	return nil
}

// existing follows a path to an existing value.
func (p *patcher) existing(path string) (place, error) {
	at, err := p.lastStep(path, false)
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

// own replaces shared nodes on the way to a place by clones, so that a change does not show elsewhere. A patch that fails leaves the
// clones, so that the next one need not clone again; but if it has copied, it undoes them, since it may have changed the nodes
// before it shared them.
func (p *patcher) own(at place) place {
	if !p.t.shares {
		return at
	}
	for i, n := range at.way {
		var in *node
		step := 0
		if i > 0 {
			in, step = at.way[i-1], at.steps[i-1]
			p.t.reading.nodes += in.ownAt(step)
			in.element(step)
		}
		if !n.shared {
			continue
		}
		c := n.clone()
		p.t.reading.nodes += c.kept()
		at.way[i] = c
		put := func(n *node) { p.t.root = n }
		if i > 0 {
			put = func(n *node) { *in.element(step) = n }
		}
		if put(c); p.copies {
			p.undo = append(p.undo, func() { put(n) })
		}
	}
	at.parent = at.way[len(at.way)-1]
	p.t.reading.nodes += at.parent.ownAt(at.index)
	return at
}

// changed drops the JSON of all nodes on the way, the last of which grows by so many bytes. undo restores the JSON, so that a failed
// patch does not even change white space. Their depth is then inexact.
func (p *patcher) changed(at place, grows int) {
	type form struct {
		text json.RawMessage
		size int
		high int32
	}
	before := make([]form, len(at.way))
	for i, n := range at.way {
		n.measure()
		before[i] = form{n.text, n.size, n.high}
	}
	for _, n := range slices.Backward(at.way) {
		was := n.bytes()
		n.text, n.inexact = nil, true
		n.size += grows
		grows = n.size - was
	}
	p.undo = append(p.undo, func() {
		for i, n := range at.way {
			n.text, n.size = before[i].text, before[i].size
			n.high, n.inexact = before[i].high, true
		}
	})
}

// fits reports whether a value at a place stays within the depth limit, and updates the depths of the nodes around it.
func (p *patcher) fits(at place, v *node) bool {
	if len(at.way)+v.depth(false) > agui.MaxDepth && len(at.way)+v.depth(true) > agui.MaxDepth {
		return false
	}
	high := v.high
	for _, n := range slices.Backward(at.way) {
		if high++; n.high != 0 {
			n.high = max(n.high, high)
		}
	}
	return true
}

func (p *patcher) setRoot(v *node) error {
	before, text := p.t.root, p.t.text
	p.t.root = v
	p.undo = append(p.undo, func() { p.t.root, p.t.text = before, text })
	return nil
}

// put replaces the value at a place, or adds the member.
func (p *patcher) put(at place, v *node) error {
	at = p.own(at)
	if !p.fits(at, v) {
		return errDepth
	}
	n := at.parent
	before := at.value()
	if before == nil {
		p.changed(at, n.memberBytes(at.name)+v.bytes()+min(1, n.count()))
		n.push(at.name, v)
		p.undo = append(p.undo, n.pop)
		return nil
	}
	p.changed(at, v.bytes()-before.bytes())
	*n.element(at.index) = v
	p.undo = append(p.undo, func() { *n.element(at.index) = before })
	return nil
}

// add adds a member or inserts an element. An index past the end appends.
func (p *patcher) add(at place, v *node) error {
	if !at.parent.array {
		return p.put(at, v)
	}
	at = p.own(at)
	if !p.fits(at, v) {
		return errDepth
	}
	n := at.parent
	p.changed(at, v.bytes()+min(1, n.count()))
	i := at.index
	if i < 0 {
		i += n.count()
	}
	i = max(0, min(i, n.count()))
	p.t.reading.nodes += n.ownAt(min(i, n.count()-1))
	n.insert(i, v)
	p.undo = append(p.undo, func() { n.take(i) })
	return nil
}

func (p *patcher) remove(at place) {
	v := at.value()
	if v == nil {
		return // an inherited member: the client reports success and removes nothing
	}
	at = p.own(at)
	n := at.parent
	p.changed(at, -(n.memberBytes(at.name) + v.bytes() + min(1, n.count()-1)))
	if n.array {
		n.take(at.index)
		p.undo = append(p.undo, func() { n.insert(at.index, v) })
		return
	}
	i, c := at.index, n.container
	c.hide(i)
	p.undo = append(p.undo, func() {
		c.show(i, v)
		n.container = c
	})
	if c.sparse() {
		n.container = c.dense()
		p.t.reading.nodes += n.count()
	}
}

var unescapePointer = strings.NewReplacer("~1", "/", "~0", "~")
