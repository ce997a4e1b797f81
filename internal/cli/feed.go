package cli

import (
	"cmp"
	"errors"
	"fmt"
	"io"
	"strconv"
	"sync"

	"github.com/skeinhq/skein/pkg/agui"
)

// feed reads events in a separate goroutine. A read of stdin cannot be interrupted, but the wait for the
// next event must be: by Ctrl-C, or because the server is gone.
//
// The goroutine ends with the events, or with the first event after stop. If it hangs in a read, it ends
// with the process.
type feed struct {
	items   chan feedItem
	stopped chan struct{}
}

// feedItem is an event, or why there is no further one (io.EOF is their end).
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
				if _, err = agui.Envelope(event); err != nil { // ingest would refuse it too, but name another line
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

// sequenced is a request body of client.TypeSequenced. It is written while it is read, so that a live
// stream goes on as it comes.
type sequenced struct {
	feed *feed
	// end makes the body end in front of the next event, as if there were none.
	end <-chan struct{}
	// closed ends reads.
	closed chan struct{}
	close  sync.Once

	mu sync.Mutex
	// pending is the first event, which was read to learn the run's ids.
	pending []byte
	skip    int64
	seq     int64
	// rest is what was not yet read of the current line.
	rest []byte
	last []byte
	err  error
	// several says that a RUN_STARTED may begin the next run. Read keeps the run's id and whether it has ended; begins is that event.
	several bool
	read    struct {
		run   string
		ended bool
	}
	begins []byte
}

// newSequenced returns the events as a body, the first skip of them left out. What ends the events
// early (a line that is no event, or end) ends the body as the end of the events would, so that what
// came before it is acknowledged.
// Several says that the next run may follow, whose first event ends the body too.
func newSequenced(first []byte, f *feed, skip int64, end <-chan struct{}, several bool) *sequenced {
	return &sequenced{feed: f, end: end, closed: make(chan struct{}), pending: first, skip: skip, several: several}
}

// beginsNext reports whether an event begins the next run, and takes in what it says of this one where it does not.
func (s *sequenced) beginsNext(event []byte) bool {
	if !s.several {
		return false
	}
	ev, err := agui.Decode(event)
	if err != nil {
		return false
	}
	if ev.Type == agui.RunStarted && s.seq > 0 && (s.read.ended || ev.RunID != s.read.run) {
		s.begins = event
		return true
	}
	s.read.run = cmp.Or(s.read.run, ev.RunID)
	s.read.ended = s.read.ended || ev.Type == agui.RunFinished || ev.Type == agui.RunError
	return false
}

// errBodyClosed is what a Read of a closed body returns: the request is over.
var errBodyClosed = errors.New("the request is over")

// Read implements io.Reader.
func (s *sequenced) Read(p []byte) (int, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	select {
	case <-s.closed:
		return 0, errBodyClosed
	default:
	}
	for len(s.rest) == 0 {
		if s.err != nil {
			return 0, io.EOF
		}
		item := s.next()
		switch {
		case errors.Is(item.err, errBodyClosed):
			return 0, item.err
		case item.err != nil:
			s.err = item.err
		case s.beginsNext(item.event):
			s.err = io.EOF
		default:
			if s.seq >= s.skip {
				s.rest, s.last = sequencedLine(s.seq, item.event), item.event
			}
			s.seq++
		}
	}
	n := copy(p, s.rest)
	s.rest = s.rest[n:]
	return n, nil
}

func (s *sequenced) next() feedItem {
	if first := s.pending; first != nil {
		s.pending = nil
		return feedItem{event: first}
	}
	select {
	case item := <-s.feed.items:
		return item
	case <-s.end:
		return feedItem{err: errInterrupted}
	case <-s.closed:
		return feedItem{err: errBodyClosed}
	}
}

// Close implements io.Closer. It ends a Read that is under way.
func (s *sequenced) Close() error {
	s.close.Do(func() { close(s.closed) })
	return nil
}

// ended says what ended the events: nil at their end. Last is the last one that was sent, next the one that begins the
// next run, nil where there is none. It is asked when the request is over.
func (s *sequenced) ended() (last, next []byte, err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if errors.Is(s.err, io.EOF) {
		return s.last, s.begins, nil
	}
	return s.last, nil, s.err
}

// sequencedLine returns one line of client.TypeSequenced.
func sequencedLine(seq int64, event []byte) []byte {
	line := make([]byte, 0, len(event)+40)
	line = append(line, `{"seq":`...)
	line = strconv.AppendInt(line, seq, 10)
	line = append(line, `,"event":`...)
	line = append(line, event...)
	return append(line, '}', '\n')
}
