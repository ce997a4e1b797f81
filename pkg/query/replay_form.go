package query

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strings"
	"time"

	"github.com/skeinhq/skein/pkg/agui"
	"github.com/skeinhq/skein/pkg/fold"
	"github.com/skeinhq/skein/pkg/record"
)

// replayAlive is the pause after which a stream of server-sent events that has nothing to say says so,
// as what stands in between ends connections that are silent for a minute.
const replayAlive = 15 * time.Second

// The forms of a replay.
const (
	typeNDJSON = "application/x-ndjson"
	typeSSE    = "text/event-stream"
	// typeMarked says of each event where it lies and what became of it.
	typeMarked = "application/vnd.skein.events+ndjson"
)

// errCaller says that the caller's connection takes no more.
var errCaller = errors.New("writing the answer")

// replayLine is an event in the marked form.
type replayLine struct {
	Position record.Position `json:"position"`
	RunID    string          `json:"runId,omitempty"`
	// At is the time of the Kafka record.
	At   time.Time   `json:"at"`
	Kind record.Kind `json:"kind"`
	Seq  *int64      `json:"seq,omitempty"`
	// Outcome is what became of it.
	Outcome fold.Outcome `json:"outcome"`
	// Event is the value, or Bytes where that is not JSON.
	Event json.RawMessage `json:"event,omitempty"`
	Bytes []byte          `json:"bytes,omitempty"`
}

// replayWriter writes events in the form that the caller takes.
type replayWriter struct {
	c    *call
	form string
	b    *bufio.Writer
}

func newReplayWriter(c *call) *replayWriter {
	w := &replayWriter{c: c, form: typeNDJSON, b: bufio.NewWriterSize(c.W, 64<<10)}
	switch {
	case wantsEvents(c.R):
		w.form = typeSSE
	case strings.Contains(strings.Join(c.R.Header.Values("Accept"), ","), typeMarked):
		w.form = typeMarked
	}
	return w
}

// resting gives a request's slot back whenever its caller is written to.
type resting struct {
	w    io.Writer
	load *load
}

func (r resting) Write(b []byte) (int, error) {
	r.load.rest()
	return r.w.Write(b)
}

// newProofWriter writes answers about many runs, of which each is heavy work. While its caller is written to, the request holds no slot,
// and behind that it waits for one for as long as the caller stays.
func newProofWriter(c *call) *replayWriter {
	c.load.await = func(ready <-chan struct{}) error {
		select {
		case <-ready:
			return nil
		case <-c.R.Context().Done():
			return context.Cause(c.R.Context())
		}
	}
	return &replayWriter{c: c, form: typeNDJSON, b: bufio.NewWriterSize(lending{c}, 64<<10)}
}

// lending gives a request's slot back while its caller is written to.
type lending struct{ c *call }

func (l lending) Write(b []byte) (int, error) {
	n, err := resting{l.c.W, l.c.load}.Write(b)
	if err == nil {
		err = l.c.load.work(l.c.R.Context())
	}
	return n, err
}

// start sends the header.
func (w *replayWriter) start() {
	h := w.c.W.Header()
	h.Set("Content-Type", w.form)
	h.Set("X-Content-Type-Options", "nosniff")
	h.Set("Cache-Control", "private, no-cache")
	h.Add("Vary", "Accept")
	w.c.W.WriteHeader(http.StatusOK)
}

func (w *replayWriter) write(e replayed) error {
	var err error
	switch w.form {
	case typeNDJSON: // byte for byte: the hash of a run's record is over this
		if _, err = w.b.Write(e.value); err == nil {
			err = w.b.WriteByte('\n')
		}
	case typeSSE:
		// What was not folded has a name of its own, so that an AG-UI client does not take it.
		name := ""
		if e.outcome != fold.Folded {
			name = "event: " + string(e.outcome) + "\n"
		}
		_, err = fmt.Fprintf(w.b, "id: %s\n%sdata: %s\n\n", e.position, name, oneLine(e.value))
	default:
		err = w.marked(e)
	}
	return callers(err)
}

func (w *replayWriter) marked(e replayed) error {
	line := replayLine{Position: e.position, RunID: e.runID, At: e.at.UTC(), Kind: e.kind, Outcome: e.outcome}
	if e.seq >= 0 {
		line.Seq = &e.seq
	}
	if agui.CheckDepth(e.value, agui.MaxEventDepth) == nil {
		line.Event = e.value
	} else {
		line.Bytes = e.value
	}
	return w.line(line)
}

// line writes a document on a line of its own.
func (w *replayWriter) line(v any) error {
	text, err := marshal(v)
	if err != nil {
		return err
	}
	if _, err = w.b.Write(text); err == nil {
		err = w.b.WriteByte('\n')
	}
	return callers(err)
}

// flush sends what is written so far.
func (w *replayWriter) flush() error {
	if err := w.b.Flush(); err != nil {
		return callers(err)
	}
	return callers(http.NewResponseController(w.c.W).Flush())
}

// alive tells the caller that more is to come.
func (w *replayWriter) alive() error { return w.comment("") }

// comment writes a line that readers of server-sent events pass over; the other forms have no place for one.
func (w *replayWriter) comment(text string) error {
	if w.form != typeSSE {
		return nil
	}
	if text != "" {
		text = " " + text
	}
	if _, err := w.b.WriteString(":" + text + "\n\n"); err != nil {
		return callers(err)
	}
	return w.flush()
}

// callers marks an error of the connection.
func callers(err error) error {
	if err == nil {
		return nil
	}
	return fmt.Errorf("%w: %w", errCaller, err)
}
