package compact

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"slices"
	"strconv"
	"strings"
	"sync"
	"unicode/utf8"

	"github.com/skeinhq/skein/pkg/agui"
)

// This is JSON Patch (RFC 6902) as the official client applies it: fast-json-patch 3.1.1 with validation. The library
// evanphx/json-patch follows the RFC in places where the client does not, and parses the document for every patch. So the fold
// has its own implementation, which tests compare with that library (docs/adr/003).

// These are limits, since a few small patches could otherwise fill the memory or block a partition for minutes.
const (
	// maxWork limits the work of one patch. The unit is moving a pointer; the limit takes about half a second.
	maxWork = 1 << 28
	// visitWork is the work for each value of an object or list on a path of a patch: maxWork allows 2^20 of them.
	visitWork = 256
	// carryWork is the work for each byte of a value that is copied or moved: maxWork allows 64 MiB.
	carryWork = 4
	// maxDocuments is the maximum size, in bytes, of the state and all activity contents after a patch with a copy.
	maxDocuments = 64 << 20
	// maxNodes is how many nodes the trees of a run may have before the next patch drops them. A node takes 50 to 150 bytes. Parsing
	// again costs in proportion to the size of the documents.
	maxNodes = 1 << 20
	// freeNotes is how many bytes the edits of any patch may hold. More than the patch and its document have are not noted one by one.
	freeNotes = 1 << 20
	// maxKept is for how many changes a patcher keeps its memory for the next patch. A change takes 56 bytes.
	maxKept = 1 << 10
)

// These are the errors of a patch. After each of them the document is unchanged.
var (
	errNoSuchPath = errors.New("applying patch: the path does not exist")
	errIndex      = errors.New("applying patch: the index is not a number or is out of range")
	errTest       = errors.New("applying patch: the test failed")
	errPrototype  = errors.New("applying patch: the path names __proto__ or constructor/prototype, which the client refuses")
	errNoObject   = errors.New("applying patch: it leaves something else than an object")
	errWork       = errors.New("applying patch: it visits, moves or copies too much")
	errSizeLimit  = fmt.Errorf("applying patch: its copies leave more than %d bytes", maxDocuments)
	errDepth      = fmt.Errorf("applying patch: the document would be more than %d deep", agui.MaxDepth)
)

// patcher applies one patch, and can undo it.
type patcher struct {
	t      *tree
	undo   []undo
	ways   []*node // the ways of all places of an operation, one after the other
	work   int
	copies bool // one of its operations was a copy
	// holes counts the members that each object has lost; removed is the sum over all objects.
	holes   map[*container]int
	removed int
	// stripped is the number of operations that RFC 6902 does not define.
	stripped int
	noting   bool
	// noted is how many bytes the values of edits have, and mayNote how many they may have.
	noted, mayNote int
	// unnamed: an edit is at a name with a lone surrogate, which no portable JSON Pointer can contain.
	unnamed bool
}

// errUnnoted means that one edit, of the whole document, must describe the patch.
var errUnnoted = errors.New("applying patch: its edits are too large, or at a name that no JSON Pointer has")

// Edit is one change of the state.
type Edit struct {
	// Path is the JSON Pointer (RFC 6901) of the value, after all earlier edits.
	Path string
	// Before is nil if the value was added, and After if it was removed.
	Before, After json.RawMessage
}

// note adds an edit at index i of the place's parent. Either value may be nil.
func (p *patcher) note(at place, i int, before, after *node) {
	if !p.noting {
		return
	}
	p.noteAt(at.above+"/"+at.escaped(i), before, after)
}

func (p *patcher) noteAt(path string, before, after *node) {
	e := Edit{Path: path}
	if before != nil {
		e.Before = before.encoded()
	}
	if after != nil {
		e.After = after.encoded()
	}
	p.unnamed = p.unnamed || !utf8.ValidString(path)
	p.noted += len(e.Before) + len(e.After)
	p.t.edits = append(p.t.edits, e)
}

// apply applies a patch, a checked JSON array, as a whole or not at all. It returns how many operations it left out
// because RFC 6902 does not define them. others returns the size in bytes of the run's other documents.
func (t *tree) apply(patch json.RawMessage, others func() int) (stripped int, err error) {
	if t.reading.nodes > maxNodes {
		t.forget()
	}
	p := patchers.Get().(*patcher)
	p.reset(t, t.noting)
	defer p.release()
	var before json.RawMessage
	err = p.try(patch, others)
	if errors.Is(err, errUnnoted) {
		before = t.JSON()
		p.reset(t, false)
		err = p.try(patch, others)
	}
	if err != nil {
		return 0, err
	}
	for c := range p.holes {
		c.members.tidy()
	}
	if before != nil {
		t.edits = []Edit{{Before: before, After: t.JSON()}}
	}
	return p.stripped, nil
}

var patchers = sync.Pool{New: func() any { return new(patcher) }}

// release gives p back, without pointers into the tree.
func (p *patcher) release() {
	p.reset(nil, false)
	patchers.Put(p)
}

// reset prepares p for another patch. Its slices keep their memory, so that most patches allocate nothing but values.
func (p *patcher) reset(t *tree, noting bool) {
	if cap(p.undo) > maxKept {
		p.undo = nil
	}
	clear(p.undo)
	clear(p.ways)
	*p = patcher{t: t, noting: noting, mayNote: freeNotes, undo: p.undo[:0], ways: p.ways[:0]}
}

// try applies a patch, or undoes all of it after an error.
func (p *patcher) try(patch json.RawMessage, others func() int) error {
	p.t.reading.patches++
	err := p.operations(patch, others)
	if err != nil {
		p.t.edits = nil
		for _, u := range slices.Backward(p.undo) {
			u.revert(p.t)
		}
	}
	return err
}

// undo is one change of a tree, with what reverts it.
type undo struct {
	change change
	deep   int32
	index  int
	n      *node           // what was changed
	value  *node           // what was there before
	text   json.RawMessage // n's before
}

type change uint8

const (
	textDropped change = iota
	rootSet
	valuePut
	elementInserted
	elementDeleted
	memberPushed
	memberHidden
)

func (u undo) revert(t *tree) {
	switch n := u.n; u.change {
	case textDropped:
		n.text, n.deep = u.text, u.deep
	case rootSet:
		t.root = u.value
	case valuePut:
		n.put(u.index, u.value)
	case elementInserted:
		n.list = slices.Delete(n.list, u.index, u.index+1)
	case elementDeleted:
		n.list = slices.Insert(n.list, u.index, u.value)
	case memberPushed:
		n.members.pop()
	case memberHidden:
		n.members.show(u.index, u.value)
	}
}

func (p *patcher) operations(patch json.RawMessage, others func() int) error {
	for op := range agui.Operations(patch) {
		if err := p.operation(op); err != nil {
			return err
		}
		if p.noted > p.mayNote && p.mayNote == freeNotes {
			p.mayNote += len(patch) + len(p.t.root.encoded())
		}
		if p.unnamed || p.noted > p.mayNote {
			return errUnnoted
		}
	}
	if p.t.object && !p.t.root.isObject() {
		return errNoObject
	}
	if !p.copies || p.t.reading.room > 0 {
		return nil
	}
	size := len(p.t.root.encoded()) + others() // not cached: undo would not drop it
	if size > maxDocuments {
		return errSizeLimit
	}
	p.t.reading.room = maxDocuments - size
	return nil
}

// spend counts work. The work must not depend on what earlier patches have parsed, so that a resumed fold fails at the same patch.
func (p *patcher) spend(work int) error {
	if p.work += work; p.work > maxWork {
		return errWork
	}
	return nil
}

func (p *patcher) operation(op agui.Operation) error {
	name, path, from, value := bytesOf(op.Op), bytesOf(op.Path), bytesOf(op.From), op.Value
	clear(p.ways)
	p.ways = p.ways[:0]
	if !isOperation(string(name)) {
		p.stripped++ // the client's enforcement also removes it, whatever its members
		return nil
	}
	if len(path) > 0 && !p.t.root.isObject() && !p.t.root.isArray() {
		return p.onScalar(string(name), string(path), string(from))
	}
	switch string(name) {
	case "add", "replace":
		v := &node{text: bytes.Clone(value)}
		p.t.reading.nodes += 1 + len(value)/64 // a part that is copied or moved retains the whole text
		if len(path) == 0 {
			return p.setRoot(v)
		}
		return p.set(path, v, name[0] == 'r')
	case "test":
		have := p.t.root
		if len(path) > 0 {
			at, err := p.lastStep(path, true)
			if err != nil {
				return err
			}
			if have = at.value(); have == nil {
				return errTest
			}
		}
		return p.test(have, &node{text: value})
	case "remove":
		if len(path) == 0 {
			return p.setRoot(&node{text: json.RawMessage(`null`)})
		}
		at, err := p.existing(path)
		if err != nil {
			return err
		}
		return p.remove(at)
	default: // move, copy
		return p.transfer(name[0] == 'm', from, path)
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

// onScalar applies an operation to a document without members. JavaScript ignores an assignment to a member of a number, so some of
// these operations succeed for the client. None changes anything.
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

// test compares a value of the document with a value of the patch as the client does: it ignores the order of members.
func (p *patcher) test(n, o *node) error {
	switch {
	case n.isObject() != o.isObject() || n.isArray() != o.isArray():
		return errTest
	case !n.isObject() && !n.isArray():
		if !equalScalar(n.text, o.text) {
			return errTest
		}
		return nil
	}
	if err := p.open(n); err != nil {
		return err
	}
	if err := p.spend(p.holes[n.container]); err != nil {
		return err
	}
	if !o.read(n.count()) || o.count() != n.count() {
		return errTest
	}
	for i, v := range n.list {
		if err := p.test(v, o.list[i]); err != nil {
			return err
		}
	}
	for name, v := range n.members.all() {
		w := o.members.get(name)
		if w == nil {
			return errTest
		}
		if err := p.test(v, w); err != nil {
			return err
		}
	}
	return nil
}

// open reads a container's members or elements.
func (p *patcher) open(n *node) error {
	isNew := n.container == nil
	if !isNew && n.visited == p.t.reading.patches {
		return nil
	}
	if !n.read((maxWork - p.work) / visitWork) {
		return errWork
	}
	if isNew {
		p.t.reading.nodes += n.count()
	}
	n.visited = p.t.reading.patches
	return p.spend(visitWork * n.count())
}

// set applies add and replace. The parent of the path's last member must exist.
func (p *patcher) set(path []byte, v *node, replace bool) error {
	at, err := p.lastStep(path, false)
	if err != nil {
		return err
	}
	if replace && !at.exists() {
		return errNoSuchPath
	}
	if at.parent.array && at.index > len(at.parent.list) {
		return errIndex
	}
	return p.put(at, v, v.depth(v.text), replace)
}

// transfer applies move and copy. Like the client, it looks up the source before the target.
func (p *patcher) transfer(move bool, from, path []byte) error {
	source := p.t.root
	var at place
	if len(from) > 0 {
		var err error
		if at, err = p.existing(from); err != nil {
			return err
		}
		if source = at.value(); source == nil { // an inherited member is a function in JavaScript, which JSON cannot hold
			return errNoSuchPath
		}
	} else if move && len(path) > 0 {
		return errNoSuchPath // a document cannot be moved into itself
	}
	if len(path) == 0 {
		return p.setRoot(source)
	}
	if _, err := p.lastStep(path, true); err != nil {
		return err
	}
	work, spans := 0, source.spans
	if source.isObject() || source.isArray() {
		work = p.removed // at most so many holes in it
	}
	if source.text == nil { // the source has changed, so spans belong to an older text
		spans = nil
	}
	text := source.encoded()
	depth := source.depth(text)
	if err := p.spend(work + carryWork*len(text)); err != nil {
		return err
	}
	if move {
		if err := p.remove(at); err != nil {
			return err
		}
	} else {
		p.copies = true
		p.t.reading.nodes += 1 + len(text)/64
		p.t.reading.room -= len(text)
		source = &node{text: text, spans: spans, deep: int32(depth + 1)}
	}
	// Look up the target again, since removing the source may have moved or removed it.
	target, err := p.lastStep(path, true)
	if err != nil {
		return err
	}
	return p.put(target, source, depth, false)
}

// place is what a path refers to: a member or an element, which need not exist.
type place struct {
	way    []*node // from the root to parent
	above  string  // the JSON Pointer of parent, if patcher.noting
	parent *node
	name   []byte // of a member
	index  int    // of an element, possibly out of range; or of a member, -1 if it does not exist
	shown  bool   // the path names an element by its index as RFC 6901 writes it, not by "-" or "01"
}

// value returns the value at the place, or nil.
func (at place) value() *node {
	switch {
	case at.index < 0:
		return nil
	case at.parent.isArray() && at.index >= len(at.parent.list):
		return nil
	}
	return at.parent.value(at.index)
}

// exists reports whether replace and remove find a value at the place. Like the client, it also counts a member that every
// JavaScript object inherits.
func (at place) exists() bool {
	if at.parent.isArray() {
		return at.shown && at.value() != nil
	}
	return at.value() != nil || inherited[string(at.name)]
}

// inherited are the members of JavaScript's Object.prototype.
var inherited = map[string]bool{
	"constructor": true, "toString": true, "toLocaleString": true, "valueOf": true, "hasOwnProperty": true, "isPrototypeOf": true,
	"propertyIsEnumerable": true, "__defineGetter__": true, "__defineSetter__": true, "__lookupGetter__": true, "__lookupSetter__": true,
}

// lastStep follows a non-empty path up to its last step. All containers on the way must exist. If lenient is set, it accepts indexes
// on the way that RFC 6901 does not allow, such as "01", as the client does for the path of test, move and copy.
func (p *patcher) lastStep(path []byte, lenient bool) (place, error) {
	at := place{}
	n, root := p.t.root, len(p.ways)
	var step, before []byte
	for rest, more := path[1:], true; more; before = step {
		step, rest, more = bytes.Cut(rest, slash)
		key := step
		if bytes.IndexByte(key, '~') >= 0 {
			key = []byte(agui.UnescapePointer.Replace(string(key)))
		}
		if string(key) == "__proto__" || string(key) == "prototype" && string(before) == "constructor" {
			return at, errPrototype
		}
		if !n.isObject() && !n.isArray() {
			return at, errNoSuchPath
		}
		if err := p.open(n); err != nil {
			return at, err
		}
		p.ways = append(p.ways, n)
		at.way, at.parent, at.name, at.shown = p.ways[root:], n, key, false
		if n.isArray() {
			if err := at.element(); err != nil {
				return at, err
			}
		} else {
			at.index = n.members.find(string(key))
		}
		if !more {
			break
		}
		// "-" and "01" may name an element only in the last step.
		next := at.value()
		if next == nil || (n.isArray() && !at.shown && !lenient) {
			return at, errNoSuchPath
		}
		n = next
		if p.noting {
			at.above += "/" + at.escaped(at.index)
		}
	}
	return at, nil
}

var slash = []byte{'/'}

// escaped returns the reference token of the place, or of the element at index i.
func (at place) escaped(i int) string {
	if at.parent.isArray() {
		return strconv.Itoa(i)
	}
	return agui.EscapePointer.Replace(string(at.name))
}

// element parses an array index as the client does: any number of digits, read as a 32-bit integer. "-" is the end.
func (at *place) element() error {
	key := at.name
	if string(key) == "-" {
		at.index = at.parent.count()
		return nil
	}
	at.index = 0
	for _, c := range key {
		if c < '0' || c > '9' {
			return errIndex
		}
		at.index = 10*at.index + int(c-'0')
	}
	if len(key) > 9 {
		f, err := strconv.ParseFloat(string(key), 64)
		if err != nil { // out of range, which is 0 for the client
			f = 0
		}
		at.index = int(int32(uint32(math.Mod(f, 1<<32))))
	}
	var room [20]byte
	at.shown = bytes.Equal(key, strconv.AppendInt(room[:0], int64(at.index), 10))
	return nil
}

// existing follows a path to an existing value.
func (p *patcher) existing(path []byte) (place, error) {
	at, err := p.lastStep(path, false)
	if err != nil {
		return at, err
	}
	if at.value() == nil {
		if !at.parent.isArray() && inherited[string(at.name)] {
			return at, nil
		}
		return at, errNoSuchPath
	}
	if at.parent.isArray() && !at.shown {
		return at, errNoSuchPath
	}
	return at, nil
}

// changed drops the JSON of all nodes on the way to a place. undo restores it, so that a failed patch does not even change white space.
func (p *patcher) changed(at place) {
	for _, n := range at.way {
		if n.text != nil {
			p.undo = append(p.undo, undo{change: textDropped, n: n, text: n.text, deep: n.deep})
			n.text, n.deep = nil, 0
		}
	}
}

func (p *patcher) setRoot(v *node) error {
	before := p.t.root
	if p.noting && v != before { // or nothing changes
		p.noteAt("", before, v)
	}
	p.t.root = v
	p.undo = append(p.undo, undo{change: rootSet, value: before})
	return nil
}

// put adds or replaces the value at a place; depth is that of v. It appends a new element whose index is past the end.
func (p *patcher) put(at place, v *node, depth int, replace bool) error {
	if len(at.way)+depth > agui.MaxDepth {
		return errDepth
	}
	c, i := at.parent, at.index
	if c.array && !replace {
		if i < 0 {
			i += len(c.list)
		}
		i = max(0, min(i, len(c.list)))
		if err := p.spend(len(c.list) - i); err != nil {
			return err
		}
		p.note(at, i, nil, v)
		p.changed(at)
		c.list = slices.Insert(c.list, i, v)
		p.undo = append(p.undo, undo{change: elementInserted, n: c, index: i})
		return nil
	}
	before := at.value()
	p.note(at, i, before, v)
	p.changed(at)
	if before == nil {
		c.members.push(string(at.name), v)
		p.undo = append(p.undo, undo{change: memberPushed, n: c})
		return nil
	}
	c.put(i, v)
	p.undo = append(p.undo, undo{change: valuePut, n: c, index: i, value: before})
	return nil
}

func (p *patcher) remove(at place) error {
	v := at.value()
	if v == nil {
		return nil // an inherited member: the client reports success and removes nothing
	}
	c, i := at.parent, at.index
	p.note(at, i, v, nil)
	if !c.array {
		p.changed(at)
		c.members.hide(i)
		if p.holes == nil {
			p.holes = map[*container]int{}
		}
		p.holes[c.container]++
		p.removed++
		p.undo = append(p.undo, undo{change: memberHidden, n: c, index: i, value: v})
		return nil
	}
	if err := p.spend(len(c.list) - i); err != nil {
		return err
	}
	p.changed(at)
	c.list = slices.Delete(c.list, i, i+1)
	p.undo = append(p.undo, undo{change: elementDeleted, n: c, index: i, value: v})
	return nil
}
