package agui

import (
	"fmt"
	"strconv"
)

// MaxMembers is how many members one object of an event or input may have. Looking a name up among them takes an index of some 100 bytes
// a member, ten times what the member takes itself.
const MaxMembers = 100_000

// Admit checks what ingest demands of an event: Envelope, and those limits that its sender can still be told of: MaxMessages,
// MaxToolCalls, MaxMembers and a timestamp before 1970. It returns the type as it stands. The error is one for which IsMalformed is true.
func Admit(b []byte) (Type, error) {
	var e Event
	if err := e.scan(b); err != nil {
		return "", err
	}
	if err := e.checkCount(); err != nil {
		return "", err
	}
	if v := e.JSON(FieldTimestamp); len(v) > 1 && v[0] == '-' && e.spec != &unknownSpec {
		if n, err := strconv.ParseFloat(string(v), 64); err == nil && n < 0 {
			return "", &MalformedError{Rule: RuleTime, Type: e.Type, Detail: fmt.Sprintf("timestamp %.40s is before 1970: give milliseconds since then", v)}
		}
	}
	return e.Type, CheckMembers(b)
}

// CheckMembers refuses checked JSON in which one object has more than MaxMembers members.
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
