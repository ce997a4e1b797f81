package tail

import "errors"

var (
	// ErrSlow: the reader has not asked for so long that records which it has not had left the ring.
	ErrSlow = errors.New("the reader does not keep up")
	// ErrGone: the log does not have the offset any more, or does not have it yet.
	ErrGone = errors.New("the log does not have this offset")
	// ErrNoPartition: skein.events has no such partition.
	ErrNoPartition = errors.New("there is no such partition")
	// ErrClosed: the tail was closed.
	ErrClosed = errors.New("the tail is closed")
)
