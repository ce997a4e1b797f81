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

// blockSize is how large blocks are that have a backlog of some partitions, and not of others. What is new on one of these waits for two blocks at most, so
// that it is time that bounds them: the size follows from how long blocks have taken. It is safe for concurrent use.
type blockSize struct {
	least, most int64
	now         atomic.Int64
}

func newBlockSize(cfg Config) *blockSize {
	s := &blockSize{least: min(leastBlock, cfg.MaxBytes), most: cfg.MaxBytes}
	s.now.Store(min(firstBlock, s.most))
	return s
}

// bytes is how large the next block is to be.
func (s *blockSize) bytes() int64 { return s.now.Load() }

// wrote takes in how long a block took. One that is much smaller than it might be does not tell how long a larger one would take.
func (s *blockSize) wrote(bytes int64, took time.Duration) {
	now := s.now.Load()
	fits := int64(float64(bytes) * float64(blockTime) / float64(max(took, time.Millisecond)))
	if took > blockTime || bytes >= now/2 && fits > now {
		s.now.Store(min(max((now+fits)/2, s.least), s.most))
	}
}
