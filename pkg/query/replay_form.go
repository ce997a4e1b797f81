package query

import (
	"bufio"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"strings"
	"time"

	"github.com/skeinhq/skein/pkg/agui"
	"github.com/skeinhq/skein/pkg/fold"
	"github.com/skeinhq/skein/pkg/record"
)

// replayAlive is the pause after which an idle stream of server-sent events sends a comment. Proxies close connections
// that are silent for a minute.
const replayAlive = 15 * time.Second

// These are the forms of a replay.
const (
	typeNDJSON = "application/x-ndjson"
	typeSSE    = "text/event-stream"
	// typeMarked adds the position and outcome of each event.
	typeMarked = "application/vnd.skein.events+ndjson"
)

// errCaller means that writing to the caller's connection failed.
var errCaller = errors.New("writing the answer")

// replayLine is an event in the marked form.
type replayLine struct {
	Position record.Position `json:"position"`
	RunID    string          `json:"runId,omitempty"`
	// At is the time of the Kafka record.
	At   time.Time   `json:"at"`
	Kind record.Kind `json:"kind"`
	Seq  *int64      `json:"seq,omitempty"`
	// Outcome is how the compactor decided about the event.
	Outcome fold.Outcome `json:"outcome"`
	// Event is the value if it is JSON; otherwise Bytes is.
	Event json.RawMessage `json:"event,omitempty"`
	Bytes []byte          `json:"bytes,omitempty"`
}

// replayWriter writes events in the form that the caller accepts.
type replayWriter struct {
	c    *call
	form string
	b    *bufio.Writer
	// started: the header was sent, so the request can no longer be refused.
	started bool
}

func newReplayWriter(c *call) *replayWriter {
	w := newLineWriter(c)
	switch {
	case wantsEvents(c.R):
		w.form = typeSSE
	case strings.Contains(strings.Join(c.R.Header.Values("Accept"), ","), typeMarked):
		w.form = typeMarked
	}
	return w
}

// newLineWriter returns a writer of JSON lines. It releases the request's slot before each write to the caller, who may
// be slow.
func newLineWriter(c *call) *replayWriter {
	return &replayWriter{c: c, form: typeNDJSON, b: bufio.NewWriterSize(slotReleaser{c}, 64<<10)}
}

// slotReleaser writes to the caller of a request and releases the request's slot first.
type slotReleaser struct{ c *call }

func (r slotReleaser) Write(b []byte) (int, error) {
	r.c.load.releaseSlot()
	return r.c.W.Write(b)
}

// newProofWriter returns a writer for answers about many runs, each of which is heavy work. From then on the request
// waits for a slot without a time limit, until its caller leaves.
func newProofWriter(c *call) *replayWriter {
	c.load.late = func() error { return nil }
	return newLineWriter(c)
}

// start sends the header, once.
func (w *replayWriter) start() {
	if w.started {
		return
	}
	w.started = true
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
	case typeNDJSON: // byte for byte, as the hash in a run's record covers these bytes
		if _, err = w.b.Write(e.Value); err == nil {
			err = w.b.WriteByte('\n')
		}
	case typeSSE:
		// An event that was not folded gets a name, so that AG-UI clients ignore it.
		name := ""
		if e.outcome != fold.Folded {
			name = "event: " + string(e.outcome) + "\n"
		}
		_, err = fmt.Fprintf(w.b, "id: %s\n%sdata: %s\n\n", e.Position(), name, oneLine(e.Value))
	default:
		err = w.marked(e)
	}
	return callers(err)
}

func (w *replayWriter) marked(e replayed) error {
	line := replayLine{Position: e.Position(), RunID: e.runID, At: e.Time.UTC(), Kind: e.Headers.Kind, Outcome: e.outcome}
	if e.Headers.Seq >= 0 {
		line.Seq = &e.Headers.Seq
	}
	if agui.CheckDepth(e.Value, agui.MaxEventDepth) == nil {
		line.Event = e.Value
	} else {
		line.Bytes = e.Value
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

// flush sends what was written so far.
func (w *replayWriter) flush() error {
	if err := w.b.Flush(); err != nil {
		return callers(err)
	}
	return callers(http.NewResponseController(w.c.W).Flush())
}

// alive sends an empty comment to keep the connection open.
func (w *replayWriter) alive() error { return w.comment("") }

// comment writes a line that readers of server-sent events ignore. It does nothing in the other forms, which have no
// comments.
func (w *replayWriter) comment(text string) error {
	if w.form != typeSSE {
		return nil
	}
	if text != "" {
		text = " " + text
	}
	_, _ = w.b.WriteString(":" + text + "\n\n") // flush returns its error
	return w.flush()
}

// callers wraps an error of the connection with errCaller.
func callers(err error) error {
	if err == nil {
		return nil
	}
	return fmt.Errorf("%w: %w", errCaller, err)
}
