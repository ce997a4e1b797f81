package query

import (
	"fmt"
	"strconv"
	"strings"

	"github.com/skeinhq/skein/pkg/record"
)

// cursor is the id of the last event that a reader of a live stream received.
type cursor struct {
	// at is the position of that event; its offset is -1 for a reader that has received nothing.
	at record.Position
	// ended: the reader has also received the synthetic end after that event.
	ended bool
	// seq is the sequence number of the last event if it came from the proxy's stream, and then replaces at; else -1.
	seq int64
}

// These are the forms of an id other than a position.
const (
	// cursorJoin is the first id of a stream. A reader that has received nothing after it joins again.
	cursorJoin = "join"
	// cursorEnd follows the position of a run's last event if Skein ended the run.
	cursorEnd = ":end"
	// cursorSeq precedes the sequence number of an event in the proxy's stream, which has no positions.
	cursorSeq = "seq:"
)

func joining() cursor { return cursor{at: record.Position{Offset: -1}, seq: -1} }

// joins reports whether the reader has received nothing yet.
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

// parseCursor decodes an id.
func parseCursor(text string) (cursor, error) {
	c := joining()
	if text == "" || text == cursorJoin {
		return c, nil
	}
	if number, ok := strings.CutPrefix(text, cursorSeq); ok {
		n, err := strconv.ParseUint(number, 10, 63)
		if err != nil {
			return c, fmt.Errorf("%.80q is not the number of an event", text)
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

// cursor reads the id from the request. The header has precedence over the parameter: a browser that reconnects sends
// both, and repeats the parameter of its first request.
func (c *call) cursor() (cursor, error) {
	name, text := headerLastEventID, c.R.Header.Get(headerLastEventID)
	if text == "" {
		name, text = paramLastEventID, c.Query.Get(paramLastEventID)
	}
	from, err := parseCursor(text)
	if err != nil {
		return from, badRequest("%s: %v", name, err)
	}
	return from, nil
}

const (
	headerLastEventID = "Last-Event-ID"
	paramLastEventID  = "lastEventId"
)
