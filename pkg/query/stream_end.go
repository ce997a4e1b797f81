package query

import (
	"context"
	"errors"
	"net/http"

	"github.com/skeinhq/skein/internal/front"
	"github.com/skeinhq/skein/pkg/live"
	"github.com/skeinhq/skein/pkg/tail"
)

// These are the reasons for the end of a stream, for metrics.
const (
	endRun     = "run"     // the run has ended and was sent whole
	endLife    = "life"    // --stream-life has passed
	endSlow    = "slow"    // the reader did not keep up
	endErased  = "erased"  // the thread was erased
	endDrain   = "drain"   // the process stops
	endRoom    = "room"    // the tenant's streams and reads use all of its memory
	endRevoked = "revoked" // the reader's credentials expired or were revoked
	endLeft    = "left"    // the reader disconnected
	endRefused = "refused" // the request was refused
	endFailed  = "failed"  // something else went wrong
)

// endError ends a stream that has begun.
type endError struct {
	why    string // for metrics
	detail string // for the reader, as a comment
	// event is a RUN_ERROR to send first; nil if the reader can resume.
	event []byte
}

func (e *endError) Error() string { return e.detail }

var (
	errLife     = &endError{why: endLife, detail: "the stream has reached its longest life; resume from the last id"}
	errSlow     = &endError{why: endSlow, detail: "the stream was not read fast enough; resume from the last id"}
	errDraining = &endError{why: endDrain, detail: "this process is stopping; resume from the last id"}
	errRoom     = &endError{why: endRoom, detail: "the memory that the tenant may use for streams and reads is used up; resume from the last id"}
)

// lost maps an error of the tail reader to the end of the stream.
func (s *stream) lost(err error) error {
	switch {
	case s.ctx.Err() != nil:
		return context.Cause(s.ctx)
	case errors.Is(err, tail.ErrSlow):
		return errSlow
	case errors.Is(err, tail.ErrClosed):
		return errDraining
	case errors.Is(err, tail.ErrGone) && s.resumes():
		return s.gone()
	}
	return err
}

// codeErased is the code of the RUN_ERROR that ends the stream of an erased thread.
const codeErased = "skein-erased"

const erasedDetail = "the thread was erased"

var errErased = &endError{
	why: endErased, detail: erasedDetail, event: []byte(`{"type":"RUN_ERROR","message":"` + erasedDetail + `","code":"` + codeErased + `"}`),
}

// erased handles an erasure of the thread. It refuses a resumed stream that has not begun, ends a stream that has sent
// events, and restarts one that has sent none.
func (s *stream) erased() error {
	switch {
	case s.resumes() || !s.out.begun && !s.from.joins():
		return &front.Problem{Status: http.StatusGone, Detail: erasedDetail}
	case s.playing == nil && s.begun < 0: // nothing was sent; later events belong to a new thread
		thread, err := live.New(s.threadID, nil, s.through, &recordsOfThread{stream: s})
		s.thread, s.rows = thread, nil
		return err
	}
	return errErased
}
