package agui

import (
	"slices"
	"unicode/utf8"
)

// Decoder decodes one event after another into the same Event. It is faster than Decode for the deltas of an answer, which differ in
// nothing but a timestamp, an id and a text.
type Decoder struct {
	Event
	shapes [8]shape // those of the last deltas
	last   int      // the one that fitted last
	oldest int
}

// shape is the form of an accepted content event. An agent writes the same members in the same order, so its next one is compared with the
// shape, and only its values are read. An event that does not have the shape is decoded as any other.
type shape struct {
	spec     *spec // nil: there is no shape
	has      uint64
	typeSpan [2]uint32
	// before is the text before each of the values, and behind the last one; fields are the values.
	before []string
	fields []Field
}

// varying are the members that a shape leaves open. All others, and white space, are part of it.
var varying = []Field{FieldTimestamp, FieldMessageID, FieldToolCallID, FieldDelta}

// Decode is Event.Decode.
func (d *Decoder) Decode(b []byte) error {
	if d.decodeKnown(b) {
		return nil
	}
	err := d.Event.Decode(b)
	if err == nil {
		d.learn()
	}
	return err
}

// Admit is Event.Admit.
func (d *Decoder) Admit(b []byte) (unreadable, err error) {
	if d.decodeKnown(b) {
		return nil, CheckMembers(b)
	}
	unreadable, err = d.Event.Admit(b)
	if unreadable == nil && err == nil {
		d.learn()
	}
	return unreadable, err
}

// decodeKnown reads an event that has one of the shapes; it reports whether it has.
func (d *Decoder) decodeKnown(b []byte) bool {
	for k := range d.shapes {
		at := (d.last + k) % len(d.shapes)
		if s := &d.shapes[at]; s.spec != nil && d.decodeLike(b, s) {
			d.last = at
			return true
		}
	}
	return false
}

// learn remembers the shape of the event that was decoded.
func (d *Decoder) learn() {
	if s := d.shape(); s.spec != nil {
		d.shapes[d.oldest], d.last = s, d.oldest
		d.oldest = (d.oldest + 1) % len(d.shapes)
	}
}

// decodeLike reads an event that has the shape; it reports whether it has. Before that, it changes nothing but spans.
func (e *Event) decodeLike(b []byte, s *shape) bool {
	i := 0
	timestamp := int64(0)
	for k, f := range s.fields {
		text := s.before[k]
		start := i + len(text)
		if start >= len(b) || string(b[i:start]) != text {
			return false
		}
		var err error
		switch {
		case f == FieldTimestamp:
			if i = skipDigits(b, start); i == start || i-start > 15 || b[start] == '0' { // others are decoded as any event
				return false
			}
			timestamp, _ = safeInt(b[start:i])
		case b[start] != '"':
			return false
		default:
			if i, err = skipString(b, start); err != nil {
				return false
			}
		}
		e.spans[f] = [2]uint32{uint32(start), uint32(i)}
	}
	if string(b[i:]) != s.before[len(s.fields)] || !utf8.Valid(b) {
		return false
	}
	e.reset()
	e.Type, e.Raw, e.Body = s.spec.name, b, b
	e.spec, e.has, e.undescribed = s.spec, s.has, false
	e.spans[FieldType] = s.typeSpan
	if e.Has(FieldTimestamp) {
		e.setTimestamp(timestamp)
	}
	return true
}

// mostShape limits the bytes of an event that a shape keeps, as a sender may write any number of blanks.
const mostShape = 512

// shape returns the shape of a decoded event. It has no spec if the event is no delta, has a value where a shape has a constant, or has too
// much beside its values.
func (e *Event) shape() (s shape) {
	switch e.Type {
	case TextMessageContent, ToolCallArgs, ReasoningMessageContent:
	default:
		return s
	}
	left, beside := e.has&^(1<<FieldType), len(e.Body)
	for _, f := range varying {
		left &^= 1 << f
		if e.Has(f) {
			beside -= int(e.spans[f][1] - e.spans[f][0])
		}
	}
	if left != 0 || beside > mostShape || e.undescribed || e.beyond {
		return s
	}
	fields := slices.DeleteFunc(slices.Clone(varying), func(f Field) bool { return !e.Has(f) })
	slices.SortFunc(fields, func(f, o Field) int { return int(e.spans[f][0]) - int(e.spans[o][0]) })
	if e.spans[FieldType][0] > e.spans[fields[0]][0] {
		return s
	}
	at := uint32(0)
	for _, f := range fields {
		s.before = append(s.before, string(e.Body[at:e.spans[f][0]]))
		at = e.spans[f][1]
	}
	s.before = append(s.before, string(e.Body[at:]))
	s.spec, s.has, s.typeSpan, s.fields = e.spec, e.has, e.spans[FieldType], fields
	return s
}
