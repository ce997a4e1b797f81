package ingest

import (
	"bytes"
	"net/http"
	"strconv"
	"time"
)

// wire is the caller's stream. It is written by one goroutine.
type wire struct {
	w  http.ResponseWriter // a front.Writer
	rc *http.ResponseController
	// gone says that nothing more can be sent; left is called when that is found out.
	gone  bool
	left  func()
	dirty bool
}

// begin sends the headers of the stream before the agent has answered, so that proxies in between see a response.
func (c *wire) begin() {
	h := c.w.Header()
	h.Set("Content-Type", "text/event-stream")
	h.Set("Cache-Control", "no-store")
	h.Set("X-Accel-Buffering", "no") // nginx would buffer the stream
	c.w.WriteHeader(http.StatusOK)
	c.dirty = true
	c.flush()
}

func (c *wire) write(b []byte) {
	if c.gone || len(b) == 0 {
		return
	}
	c.dirty = true
	if _, err := c.w.Write(b); err != nil {
		c.end()
	}
}

// event writes an event with its number as id, with which a disconnected caller resumes at the run's live stream. The id comes last, so
// that it overrides an id of the agent. An event without a number (-1), or that the agent did not complete, gets no id.
func (c *wire) event(raw []byte, seq int64) {
	body, end := raw, []byte(nil)
	for _, eol := range []string{"\r\n", "\n", "\r"} {
		if before, ok := bytes.CutSuffix(raw, []byte(eol)); ok {
			body, end = before, []byte(eol)
			break
		}
	}
	if seq < 0 || !bytes.HasSuffix(body, []byte("\n")) && !bytes.HasSuffix(body, []byte("\r")) {
		c.write(raw)
		return
	}
	c.write(body)
	c.write(append(strconv.AppendInt([]byte("id: seq:"), seq, 10), end...))
	c.write(end)
}

// flush sends what was written.
func (c *wire) flush() {
	if c.gone || !c.dirty {
		return
	}
	c.dirty = false
	if err := c.rc.Flush(); err != nil {
		c.end()
	}
}

// endSoon gives the caller so much time for all that is still to come. Another goroutine may call it.
func (c *wire) endSoon(grace time.Duration) {
	_ = c.rc.SetWriteDeadline(time.Now().Add(grace)) // refused only by writers that are no connection (tests)
}

func (c *wire) end() {
	c.gone = true
	c.left()
}
