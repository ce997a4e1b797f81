package kafka

import (
	"math/bits"
	"sync"
	"sync/atomic"

	"github.com/twmb/franz-go/pkg/kgo"
)

// fetchPool reuses the memory of an unpacked batch once all its records are recycled (kgo.Record.Recycle). This saves most of a
// reader's allocations, but not those of record headers. Unlike a sync.Pool it keeps its memory beyond a collection: a reader would else
// unpack most batches into memory that has to grow meanwhile.
type fetchPool struct {
	bytes   spare[byte]
	records spare[kgo.Record]
	growth  atomic.Int64 // by how much batches grow when unpacked, in eighths: see unpacked
}

var (
	_ kgo.PoolDecompressBytes = (*fetchPool)(nil)
	_ kgo.PoolRecords         = (*fetchPool)(nil)
)

// What a pool keeps while it is not used. The memory of more is freed.
const (
	spareBytes   = 32 << 20
	spareRecords = 64 << 10 // some 200 bytes each
)

func newFetchPool() *fetchPool {
	p := &fetchPool{bytes: spare[byte]{most: spareBytes}, records: spare[kgo.Record]{most: spareRecords}}
	p.growth.Store(8 * 8) // events become 5 to 10 times larger, many similar ones 40 times
	return p
}

// GetDecompressBytes implements kgo.PoolDecompressBytes. What is unpacked into too little memory is copied again and again.
func (p *fetchPool) GetDecompressBytes(compressed []byte, _ kgo.CompressionCodecType) []byte {
	return p.bytes.get(int(min(int64(len(compressed))*p.growth.Load()/8, spareBytes)))
}

// PutDecompressBytes implements kgo.PoolDecompressBytes.
func (p *fetchPool) PutDecompressBytes(b []byte) { p.bytes.put(b) }

// GetRecords implements kgo.PoolRecords.
func (p *fetchPool) GetRecords(n int) []kgo.Record { return p.records.get(n) }

// PutRecords implements kgo.PoolRecords.
func (p *fetchPool) PutRecords(r []kgo.Record) { p.records.put(r) }

// unpacked tells the pool to what size a batch was unpacked. It remembers the largest growth for some dozen batches.
func (p *fetchPool) unpacked(from, to int) {
	if from == 0 {
		return
	}
	was, is := p.growth.Load(), int64(8*to/from+1)
	p.growth.Store(max(is, was-(was-is)/16))
}

// spare keeps slices by size classes, of which there are four between one power of two and the next.
type spare[T any] struct {
	most int // elements in all

	mu   sync.Mutex
	held int
	free [4 * 64][][]T
}

// classOf returns the largest class whose size is at most n.
func classOf(n int) int {
	if n < 4 {
		return n
	}
	shift := bits.Len(uint(n)) - 3
	return 4*shift + n>>shift
}

// sizeOf returns the size of a class: each of its slices has room for that many elements at least.
func sizeOf(class int) int {
	if class < 4 {
		return class
	}
	return (4 + class%4) << (class/4 - 1)
}

// get returns an empty slice for n elements: one that is kept and has room for about as many, or a new one.
func (s *spare[T]) get(n int) []T {
	class := classOf(n)
	if sizeOf(class) < n {
		class++
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	for k := class; k < class+3; k++ {
		if len(s.free[k]) > 0 {
			return s.pop(k)[:0]
		}
	}
	return make([]T, 0, sizeOf(class))
}

func (s *spare[T]) pop(class int) []T {
	last := len(s.free[class]) - 1
	one := s.free[class][last]
	s.free[class][last], s.free[class] = nil, s.free[class][:last]
	s.held -= cap(one)
	return one
}

// put keeps a slice for get. Beyond the limit it drops others, the smallest first: a spare that is full of small ones would keep no other.
func (s *spare[T]) put(one []T) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if cap(one) == 0 || cap(one) > s.most {
		return
	}
	for k := 0; s.held+cap(one) > s.most; {
		if len(s.free[k]) == 0 {
			k++
			continue
		}
		s.pop(k)
	}
	k := classOf(cap(one))
	s.held += cap(one)
	s.free[k] = append(s.free[k], one)
}
