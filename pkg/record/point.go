package record

import (
	"fmt"
	"strings"
	"time"
)

// Point is a place in skein.events as people write it: a position (3:1024), the first event at or after a time
// (@2026-09-17T12:00:00Z), the beginning of the log (start), or its current end (end). The zero Point is none of them.
type Point struct {
	// Position is nil unless the point is a position.
	Position *Position
	// At is zero unless the point is a time.
	At         time.Time
	Start, End bool
}

// IsZero reports whether the point is unset.
func (p Point) IsZero() bool { return p == Point{} }

// ParsePoint reads a point. A time may lack the @.
func ParsePoint(s string) (Point, error) {
	switch s {
	case "start":
		return Point{Start: true}, nil
	case "end":
		return Point{End: true}, nil
	}
	if t, err := time.Parse(time.RFC3339, strings.TrimPrefix(s, "@")); err == nil {
		return Point{At: t}, nil
	}
	if at, err := ParsePosition(s); err == nil {
		return Point{Position: &at}, nil
	}
	return Point{}, fmt.Errorf("reading point %q: want a position such as 3:1024, a time such as @2026-09-17T12:00:00Z, start or end", s)
}

// String returns the text that ParsePoint reads; "" for the zero Point.
func (p Point) String() string {
	switch {
	case p.Position != nil:
		return p.Position.String()
	case !p.At.IsZero():
		return "@" + p.At.Format(time.RFC3339Nano)
	case p.Start:
		return "start"
	case p.End:
		return "end"
	}
	return ""
}

// Range is the part of skein.events from From up to but not including To. A zero point is the start or the end.
type Range struct{ From, To Point }

// ParseRange reads FROM:TO, either of which may be missing (FROM alone needs no colon). Positions and times contain
// colons, but no text can be split in two ways.
func ParseRange(s string) (Range, error) {
	if from, err := ParsePoint(s); err == nil {
		return Range{From: from}, nil
	}
	for i := range len(s) {
		if s[i] != ':' {
			continue
		}
		from, ok := optional(s[:i])
		to, too := optional(s[i+1:])
		if r := (Range{From: from, To: to}); ok && too {
			return r, r.check()
		}
	}
	return Range{}, fmt.Errorf("reading range %q: want FROM:TO, each a position such as 3:1024, a time such as @2026-09-17T12:00:00Z, start or end", s)
}

func optional(s string) (Point, bool) {
	if s == "" {
		return Point{}, true
	}
	p, err := ParsePoint(s)
	return p, err == nil
}

// check returns an error for a range that is always empty.
func (r Range) check() error {
	from, to := r.From, r.To
	switch {
	case from.Position != nil && to.Position != nil && from.Position.Partition != to.Position.Partition:
		return fmt.Errorf("reading range %s: the two positions are of different partitions", r)
	case from.Position != nil && to.Position != nil && to.Position.Offset <= from.Position.Offset,
		!from.At.IsZero() && !to.At.IsZero() && !to.At.After(from.At), to.Start:
		return fmt.Errorf("reading range %s: its end is not behind its start", r)
	}
	return nil
}

// String returns the text that ParseRange reads.
func (r Range) String() string { return r.From.String() + ":" + r.To.String() }
