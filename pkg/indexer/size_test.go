package indexer

import (
	"testing"
	"time"

	"github.com/skeinhq/skein/pkg/kafka"
)

// Blocks become as large as the store takes in the time that is wanted.
func TestBlockSize_FollowsTheTimeThatBlocksTake(t *testing.T) {
	for name, c := range map[string]struct {
		took        func(bytes int64) time.Duration
		backlog     bool
		least, most int64
	}{
		"each byte takes time": {func(n int64) time.Duration { return time.Duration(n>>20) * 60 * time.Millisecond }, true, 4 << 20, 6 << 20},
		"each block takes time": {func(n int64) time.Duration { return 200*time.Millisecond + time.Duration(n>>20)*5*time.Millisecond }, true,
			16 << 20, 24 << 20},
		"each block takes long": {func(n int64) time.Duration { return 700*time.Millisecond + time.Duration(n>>20)*18*time.Millisecond }, true,
			4 << 20, 8 << 20},
		"each byte takes long": {func(n int64) time.Duration { return time.Duration(n>>20) * time.Second }, true, minBlock, 3 << 20},
		"a store in no time":   {func(int64) time.Duration { return 0 }, true, 40 << 20, 40 << 20},
		"no backlog":           {func(int64) time.Duration { return time.Millisecond }, false, firstBlock, firstBlock},
	} {
		s := newBlockSize(DefaultConfig(kafka.Config{}))
		for range 50 {
			n := int64(1 << 10)
			if c.backlog {
				n = s.bytes()
			}
			s.wrote(n, c.took(n))
		}
		if got := s.bytes(); got < c.least || got > c.most {
			t.Errorf("%s: a block has %d bytes at last and takes %v; want %d to %d", name, got, c.took(got), c.least, c.most)
		}
	}
}

// The limit of a block is kept, be it less than what blocks are else to have.
func TestBlockSize_KeepsToTheLimit(t *testing.T) {
	cfg := DefaultConfig(kafka.Config{})
	cfg.MaxBytes = 1000
	s := newBlockSize(cfg)
	if s.wrote(1000, 0); s.bytes() != 1000 {
		t.Errorf("a block has %d bytes", s.bytes())
	}
	if s.wrote(1000, time.Hour); s.bytes() != 1000 {
		t.Errorf("after a slow one, a block has %d bytes", s.bytes())
	}
}
