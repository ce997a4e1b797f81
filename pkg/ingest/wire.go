package ingest

import (
	"bytes"
	"net/http"
	"strconv"
	"time"
)

// wire writes the response stream to the caller. Only one goroutine writes.
type wire struct {
	w  http.ResponseWriter // a front.Writer
	rc *http.ResponseController
	// gone is set by a failed write, which calls left; nothing more is sent afterwards.
	gone  bool
	left  func()
	dirty bool
}

// begin sends the response headers before the agent answers, so that reverse proxies receive a response early.
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

// event writes an event with its number as the SSE id. After a disconnect, a caller resumes the run's live stream from
// this id. The id is the last field, so that it overrides an id of the agent. An event without a number (-1), or one
// that the agent did not complete, gets no id.
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

func (c *wire) flush() {
	if c.gone || !c.dirty {
		return
	}
	c.dirty = false
	if err := c.rc.Flush(); err != nil {
		c.end()
	}
}

// endSoon sets the deadline for all remaining writes to now + grace. Another goroutine may call it.
func (c *wire) endSoon(grace time.Duration) {
	_ = c.rc.SetWriteDeadline(time.Now().Add(grace)) // fails only for the response writers of tests
}

func (c *wire) end() {
	c.gone = true
	c.left()
}
