package query

import (
	"fmt"
	"strconv"
	"strings"

	"github.com/skeinhq/skein/pkg/record"
)

// cursor is how far a reader of a live stream has come: an id of its events.
type cursor struct {
	// at is the last event that the reader has had; its offset is -1 for a reader that joins.
	at record.Position
	// ended: the reader has had the end, too, that Skein has made behind that event.
	ended bool
	// seq is the number of the last event that the proxy has given, in the place of at; -1 is none.
	seq int64
}

// The forms of an id beside a position.
const (
	// cursorJoin is the first id of a stream: who has had nothing behind it joins again.
	cursorJoin = "join"
	// cursorEnd stands behind the position of a run's last event where Skein has ended the run, and not an event.
	cursorEnd = ":end"
	// cursorSeq stands before the number of an event in a stream of the proxy, which knows no positions.
	cursorSeq = "seq:"
)

func joining() cursor { return cursor{at: record.Position{Offset: -1}, seq: -1} }

// joins reports whether the reader has had nothing yet.
func (c cursor) joins() bool { return c.at.Offset < 0 && c.seq < 0 }

func (c cursor) String() string {
	switch {
	case c.seq >= 0:
		return cursorSeq + strconv.FormatInt(c.seq, 10)
	case c.at.Offset < 0:
		return cursorJoin
	case c.ended:
		return c.at.String() + cursorEnd
	}
	return c.at.String()
}

// parseCursor reads an id.
func parseCursor(text string) (cursor, error) {
	c := joining()
	if text == "" || text == cursorJoin {
		return c, nil
	}
	if number, ok := strings.CutPrefix(text, cursorSeq); ok {
		n, err := strconv.ParseUint(number, 10, 63)
		if err != nil {
			return c, fmt.Errorf("%.80q is no number of an event", text)
		}
		c.seq = int64(n)
		return c, nil
	}
	place, ended := strings.CutSuffix(text, cursorEnd)
	at, err := record.ParsePosition(place)
	if err != nil {
		return c, fmt.Errorf("%.80q is neither a position such as 3:1024, nor seq:7 of a stream of the proxy, nor join", text)
	}
	c.at, c.ended = at, ended
	return c, nil
}

// cursor reads how far the reader has come. The header counts first: a browser that connects again sends it, and the
// parameter that it has begun with.
func (c *call) cursor() (cursor, error) {
	name, text := headerLastEventID, c.r.Header.Get(headerLastEventID)
	if text == "" {
		name, text = paramLastEventID, c.query.Get(paramLastEventID)
	}
	from, err := parseCursor(text)
	if err != nil {
		return from, badRequest(name + ": " + err.Error())
	}
	return from, nil
}

const (
	headerLastEventID = "Last-Event-ID"
	paramLastEventID  = "lastEventId"
)
