package cli

import (
	"cmp"
	"errors"
	"fmt"
	"io"
	"iter"
	"strings"

	"github.com/skeinhq/skein/pkg/agui"
	"github.com/skeinhq/skein/pkg/fold"
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
	where string
	err   error
	// bad means that err is of this event alone: ingest would refuse it, and --skip-bad leaves it out.
	bad bool
}

func startFeed(r io.Reader, skipBad bool) *feed {
	f := &feed{items: make(chan feedItem), stopped: make(chan struct{})}
	go func() {
		events := newEventReader(r)
		for {
			event, err := events.next()
			item := feedItem{event: event, where: events.where(), err: err}
			if err == nil {
				if _, err = new(agui.Event).Admit(event); err != nil { // ingest would refuse it too, but would name another line
					item.err, item.bad = fmt.Errorf("%s: %w", item.where, err), skipBad
				}
			}
			select {
			case f.items <- item:
			case <-f.stopped:
				return
			}
			if item.err != nil && !item.bad {
				return
			}
		}
	}()
	return f
}

func (f *feed) stop() { close(f.stopped) }

// maxReasons is how many faults of events are printed with their reasons.
const maxReasons = 3

// faults counts events that have a fault. It keeps their numbers in the run, and the first reasons.
type faults struct {
	seqs    []int64
	reasons []string
}

func (f *faults) add(seq int64, reason string) {
	if f.seqs = append(f.seqs, seq); len(f.reasons) < maxReasons {
		f.reasons = append(f.reasons, oneLine(reason, 400))
	}
}

func (f *faults) join(more faults) {
	f.seqs, f.reasons = append(f.seqs, more.seqs...), append(f.reasons, more.reasons...)
	f.reasons = f.reasons[:min(len(f.reasons), maxReasons)]
}

func (f *faults) text() string { return reasonsOf(f.reasons, len(f.seqs)) }

// reasonsOf returns the reasons of n faults, and how many more there are.
func reasonsOf(reasons []string, n int) string {
	text := strings.Join(reasons, "; ")
	if more := n - len(reasons); more > 0 {
		text += fmt.Sprintf("; and %d more", more)
	}
	return text
}

// runBody selects the events of one run.
type runBody struct {
	// first is the first event, which was read to learn the run's ids; skipped are the bad ones before it.
	first   feedItem
	skipped faults
	// skip is the number of events to leave out.
	skip int64
	// several means that a RUN_STARTED may begin the next run.
	several bool
}

// sentEvents describes how the events of a run ended.
type sentEvents struct {
	// last is the last event sent; next is the one that begins the next run, without an event if there is none.
	last []byte
	next feedItem
	// skipped are the bad events that --skip-bad left out.
	skipped faults
	// fault is what is wrong with the run after all events were sent: it has others, or no client can read any.
	fault error
	// err is the error that ended the events early, such as a line that is not an event; nil at the end of the events.
	err error
	// from is the number with which to continue after such an error.
	from int64
}

// run iterates over the events of a run for Client.Publish, to the end of the run or of the events, or to an error. It ends with
// errInterrupted when interrupted is closed. What it found is in sent.
//
// A skipped event has a number, too: the run counts the gap, and a later try with the event corrected gives the others the same numbers.
func (f *feed) run(run runBody, interrupted <-chan struct{}, sent *sentEvents) iter.Seq2[[]byte, error] {
	sent.skipped = run.skipped
	return func(yield func([]byte, error) bool) {
		for range run.skipped.seqs {
			if !yield(nil, nil) {
				return
			}
		}
		id, ended := "", false
		item := run.first
		for seq := int64(len(run.skipped.seqs)); item.err == nil || item.bad; seq++ {
			ev, _ := fold.Decode(item.event)
			if run.several && ev != nil {
				if ev.Type == agui.RunStarted && id != "" && (ended || ev.RunID != id) {
					sent.next = item
					return
				}
				id = cmp.Or(id, ev.RunID)
				ended = ended || ev.Type.Terminal()
			}
			event := item.event
			switch {
			case item.bad:
				sent.skipped.add(seq, item.err.Error())
				event = nil
			case seq < run.skip:
				event = nil
			default:
				sent.last = event
			}
			if !yield(event, nil) {
				return
			}
			select {
			case item = <-f.items:
			case <-interrupted:
				item = feedItem{err: errInterrupted}
			}
		}
		if !errors.Is(item.err, io.EOF) {
			sent.err = item.err
			yield(nil, sent.err)
		}
	}
}
