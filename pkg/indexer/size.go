package indexer

import (
	"sync/atomic"
	"time"
)

const (
	// leastBlock is what blocks have at least of what waits, and firstBlock how much the first one has, in bytes as sizeOf counts.
	leastBlock, firstBlock = 2 << 20, 8 << 20
	// blockTime is how long a block is to take.
	blockTime = 300 * time.Millisecond
)

// blockSize is how large blocks are that have a backlog of some partitions, and not of others. What is new on one of these waits for the block that is
// written, often for one that is full, and for its own, so that it is time that bounds them: the size follows from how long blocks have taken. Where even
// the smallest take longer than blockTime, larger ones that take hardly longer are no worse. It is safe for concurrent use.
type blockSize struct {
	least, most int64
	now         atomic.Int64
	small       time.Duration // what blocks of least bytes at most take; only wrote uses it
}

func newBlockSize(cfg Config) *blockSize {
	s := &blockSize{least: min(leastBlock, cfg.MaxBytes), most: cfg.MaxBytes}
	s.now.Store(min(firstBlock, s.most))
	return s
}

// bytes is how large the next block is to be.
func (s *blockSize) bytes() int64 { return s.now.Load() }

// wrote takes in how long a block took. One goroutine calls it.
func (s *blockSize) wrote(bytes int64, took time.Duration) {
	if bytes <= s.least {
		if s.small == 0 {
			s.small = took
		}
		s.small += (took - s.small) / 4
	}
	now := s.now.Load()
	if bytes < now/2 { // it does not tell how long a larger one would take
		return
	}
	want := max(blockTime, s.small+s.small/8)
	fits := int64(float64(bytes) * float64(want) / float64(max(took, time.Millisecond)))
	s.now.Store(min(max((now+fits)/2, s.least), s.most))
}
