package tail

import "errors"

var (
	// ErrSlow: the reader did not call Next for so long that records it had not read left the ring.
	ErrSlow = errors.New("the reader does not keep up")
	// ErrGone: the log has deleted the offset, or has not reached it.
	ErrGone = errors.New("the log does not have this offset")
	// ErrClosed: the tail was closed.
	ErrClosed = errors.New("the tail is closed")
)
