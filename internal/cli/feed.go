package cli

import (
	"cmp"
	"errors"
	"fmt"
	"io"

	"github.com/skeinhq/skein/pkg/agui"
)

// feed reads events in a separate goroutine, since a read of stdin cannot be interrupted. Ctrl-C or the loss of the
// server must interrupt the wait for the next event.
//
// The goroutine ends when the events end, or with the first event after stop. If it hangs in a read, it ends with the
// process.
type feed struct {
	items   chan feedItem
	stopped chan struct{}
}

// feedItem is an event, or the reason why there is no further one (io.EOF at the end of the events).
type feedItem struct {
	event []byte
	err   error
}

func startFeed(r io.Reader) *feed {
	f := &feed{items: make(chan feedItem), stopped: make(chan struct{})}
	go func() {
		events := newEventReader(r)
		for {
			event, err := events.next()
			if err == nil {
				if _, err = agui.Envelope(event); err != nil { // ingest would refuse it too, but would name another line
					err = fmt.Errorf("%s: %w", events.where(), err)
				}
			}
			select {
			case f.items <- feedItem{event, err}:
			case <-f.stopped:
				return
			}
			if err != nil {
				return
			}
		}
	}()
	return f
}

func (f *feed) stop() { close(f.stopped) }

// runBody selects the events of one run for the body of a request.
type runBody struct {
	// first is the first event, which was read to learn the run's ids.
	first []byte
	// skip is the number of events to leave out.
	skip int64
	// several means that a RUN_STARTED may begin the next run.
	several bool
}

// sentEvents describes how the events of a run ended.
type sentEvents struct {
	// last is the last event sent; next is the event that begins the next run, or nil if there is none.
	last, next []byte
	// err is the error that ended the events early, such as a line that is not an event; nil at the end of the events.
	err error
}

// send writes the events of a run to the body of a request, numbered as client.TypeSequenced requires, and closes the body. It closes
// the body at the end of the run or of the events, but also after an error, so that ingest acknowledges what came before. When
// interrupted or over is closed, send returns without sending a further event.
func (f *feed) send(w *io.PipeWriter, run runBody, interrupted, over <-chan struct{}) (sent sentEvents) {
	defer func() { _ = w.Close() }() // it always returns nil
	id, ended := "", false
	item := feedItem{event: run.first}
	for seq := int64(0); item.err == nil; seq++ {
		if ev, err := agui.Decode(item.event); run.several && err == nil {
			if ev.Type == agui.RunStarted && seq > 0 && (ended || ev.RunID != id) {
				sent.next = item.event
				return sent
			}
			id = cmp.Or(id, ev.RunID)
			ended = ended || ev.Type.Terminal()
		}
		if seq >= run.skip {
			if _, err := fmt.Fprintf(w, `{"seq":%d,"event":%s}`+"\n", seq, item.event); err != nil {
				return sent // the request is over
			}
			sent.last = item.event
		}
		select {
		case item = <-f.items:
		case <-interrupted:
			item = feedItem{err: errInterrupted}
		case <-over:
			return sent
		}
	}
	if !errors.Is(item.err, io.EOF) {
		sent.err = item.err
	}
	return sent
}
