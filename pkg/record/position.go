package record

import (
	"fmt"
	"strconv"
	"strings"
)

// Position is the address of an event: its partition and offset in skein.events, written "partition:offset". It is the
// SSE id, the replay position and the provenance of a dead letter. Positions belong to one topic set, and are ordered
// only within one partition.
type Position struct {
	Partition int32
	Offset    int64
}

// String returns the text form, "partition:offset".
func (p Position) String() string {
	return strconv.FormatInt(int64(p.Partition), 10) + ":" + strconv.FormatInt(p.Offset, 10)
}

// ParsePosition reads the text form. Both numbers must be decimal and not negative.
func ParsePosition(s string) (Position, error) {
	part, off, ok := strings.Cut(s, ":")
	if !ok {
		return Position{}, fmt.Errorf("reading position %q: want PARTITION:OFFSET, such as 3:1024", s)
	}
	p, err := strconv.ParseUint(part, 10, 31)
	if err != nil {
		return Position{}, fmt.Errorf("reading position %q: the partition is not a number from 0", s)
	}
	o, err := strconv.ParseUint(off, 10, 63)
	if err != nil {
		return Position{}, fmt.Errorf("reading position %q: the offset is not a number from 0", s)
	}
	return Position{Partition: int32(p), Offset: int64(o)}, nil
}

// MarshalText implements encoding.TextMarshaler.
func (p Position) MarshalText() ([]byte, error) { return []byte(p.String()), nil }

// UnmarshalText implements encoding.TextUnmarshaler.
func (p *Position) UnmarshalText(b []byte) error {
	v, err := ParsePosition(string(b))
	if err != nil {
		return err
	}
	*p = v
	return nil
}
