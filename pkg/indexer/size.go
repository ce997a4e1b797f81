package indexer

import (
	"sync/atomic"
	"time"
)

const (
	// minBlock is the minimum target size of blocks, and firstBlock that of the first one, in bytes as sizeOf counts.
	minBlock, firstBlock = 2 << 20, 8 << 20
	// blockTime is the target duration of writing a block.
	blockTime = 300 * time.Millisecond
)

// blockSize is the target size of blocks while some partitions have a backlog and others do not. New records of the others wait for the
// block that is being written and then for their own, so the size depends on how long blocks took. If even the smallest blocks take
// longer than blockTime, larger ones may take up to 1/8 longer than those. It is safe for concurrent use.
type blockSize struct {
	min, max int64
	now      atomic.Int64
	small    time.Duration // average duration of blocks up to min; only wrote uses it
}

func newBlockSize(cfg Config) *blockSize {
	s := &blockSize{min: min(minBlock, cfg.MaxBytes), max: cfg.MaxBytes}
	s.now.Store(min(firstBlock, s.max))
	return s
}

// bytes returns the target size of the next block.
func (s *blockSize) bytes() int64 { return s.now.Load() }

// wrote adapts the size to how long a block took. Only one goroutine may call it.
func (s *blockSize) wrote(bytes int64, took time.Duration) {
	if bytes <= s.min {
		if s.small == 0 {
			s.small = took
		}
		s.small += (took - s.small) / 4
	}
	now := s.now.Load()
	if bytes < now/2 { // too small to predict a larger one
		return
	}
	want := max(blockTime, s.small+s.small/8)
	fits := int64(float64(bytes) * float64(want) / float64(max(took, time.Millisecond)))
	s.now.Store(min(max((now+fits)/2, s.min), s.max))
}
