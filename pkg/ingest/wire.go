package ingest

import (
	"bytes"
	"net/http"
	"slices"
	"strconv"
	"sync"
	"time"
)

// wire writes the response stream to the caller. After a pause without a byte, it sends a comment, as reverse proxies
// close connections that are silent. One goroutine writes, and the timer of the comments.
type wire struct {
	w     http.ResponseWriter // a front.Writer
	rc    *http.ResponseController
	left  func()
	pause time.Duration
	beat  *time.Timer

	mu sync.Mutex
	// gone is set by a failed write, which calls left, and by stop; nothing more is sent afterwards.
	gone  bool
	dirty bool
	begun bool // the agent has sent something
	open  bool // the caller has received a part of an event
}

// begin sends the response headers before the agent answers, so that reverse proxies receive a response early.
// Further calls do nothing.
func (c *wire) begin() {
	if c.beat != nil {
		return
	}
	h := c.w.Header()
	h.Set("Content-Type", "text/event-stream")
	h.Set("Cache-Control", "no-store")
	h.Set("X-Accel-Buffering", "no") // nginx would buffer the stream
	c.w.WriteHeader(http.StatusOK)
	c.dirty = true
	c.beat = time.AfterFunc(c.pause, c.heartbeat)
	c.flush()
}

// heartbeat sends a comment, but never inside an event of the agent.
func (c *wire) heartbeat() {
	c.mu.Lock()
	defer c.mu.Unlock()
	if !c.open {
		c.write([]byte(":\n\n"))
		c.send()
	}
	if !c.gone {
		c.beat.Reset(c.pause)
	}
}

// stop prevents further writes, since the response ends.
func (c *wire) stop() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.gone = true
	if c.beat != nil {
		c.beat.Stop()
	}
}

// closeEvent ends an event of which the caller has received a part.
func (c *wire) closeEvent() {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.open {
		c.open = false
		c.write([]byte("\n\n"))
	}
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
// that the agent did not complete, gets no id. partial means that raw ends inside an event.
func (c *wire) event(raw []byte, seq int64, partial bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if !c.begun { // a byte order mark may only come first, and a comment may have come before
		c.begun, raw = true, bytes.TrimPrefix(raw, []byte("\xef\xbb\xbf"))
	}
	c.open = partial
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

// say is event for an event of the proxy's own.
func (c *wire) say(event []byte, seq int64) {
	c.event(slices.Concat([]byte("data: "), event, []byte("\n\n")), seq, false)
}

func (c *wire) flush() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.send()
}

func (c *wire) send() {
	if c.gone || !c.dirty {
		return
	}
	c.dirty = false
	c.beat.Reset(c.pause)
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
