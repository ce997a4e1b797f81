package agui

import (
	"fmt"
	"strconv"
)

// MaxMembers is how many members one object of an event or input may have. An index of the names takes some 100 bytes
// per member, ten times the size of a short member itself.
const MaxMembers = 100_000

// Admit checks what ingest requires of an event: Envelope, MaxMessages, MaxToolCalls and MaxMembers, and no timestamp before 1970.
// IsMalformed is true for err. It then decodes the event into e. The error unreadable is that of Decode, or that the type is unknown. If
// Envelope refuses an event that says that it ends the run, that is unreadable, too: the run ends there (fold.Decode).
func (e *Event) Admit(b []byte) (unreadable, err error) {
	e.reset()
	if err := e.scan(b); err != nil {
		if t := TypeOf(b); t.Terminal() {
			e.Type = t
			return err, nil
		}
		return nil, err
	}
	if err := e.checkCount(); err != nil {
		return nil, err
	}
	if e.spec == &unknownSpec {
		return &MalformedError{Rule: RuleUnknownType, Detail: fmt.Sprintf("no event of AG-UI has the type %.100q", e.Type)}, CheckMembers(b)
	}
	if v := e.JSON(FieldTimestamp); len(v) > 1 && v[0] == '-' {
		if n, err := strconv.ParseFloat(string(v), 64); err == nil && n < 0 {
			detail := fmt.Sprintf("timestamp %.40s is before 1970: give milliseconds since then", v)
			return nil, &MalformedError{Rule: RuleTime, Type: e.Type, Detail: detail}
		}
	}
	if err := CheckMembers(b); err != nil {
		return nil, err
	}
	if e.beyond {
		return e.Decode(b), nil
	}
	e.upgrade()
	return e.check(), nil
}

// CheckMembers returns an error, for which IsMalformed is true, if an object of checked JSON has more than MaxMembers members.
func CheckMembers(b []byte) error {
	if len(b) < len(`"":0,`)*MaxMembers {
		return nil
	}
	type level struct {
		object  bool
		members int
	}
	var open []level
	for i := 0; i < len(b); i++ {
		switch b[i] {
		case '"':
			end, err := skipString(b, i)
			if err != nil {
				return err
			}
			i = end - 1
		case '{', '[':
			open = append(open, level{object: b[i] == '{', members: 1})
		case '}', ']':
			open = open[:len(open)-1]
		case ',':
			last := &open[len(open)-1]
			if last.members++; last.object && last.members > MaxMembers {
				return &MalformedError{Rule: RuleTooMany, Detail: fmt.Sprintf("an object has more than %d members", MaxMembers)}
			}
		}
	}
	return nil
}
