package kafka

import (
	"sync"

	"github.com/twmb/franz-go/pkg/kgo"
)

// fetchPool reuses the memory of an unpacked batch once all its records are recycled (kgo.Record.Recycle). This saves most of a
// reader's allocations, but not those of record headers.
type fetchPool struct {
	bytes   sync.Pool // of *[]byte
	records sync.Pool // of *[]kgo.Record
}

var (
	_ kgo.PoolDecompressBytes = (*fetchPool)(nil)
	_ kgo.PoolRecords         = (*fetchPool)(nil)
)

// poolBytes is the size of the largest slice that the pool keeps, in bytes. The memory of larger batches is freed.
const poolBytes = 8 << 20

// GetDecompressBytes implements kgo.PoolDecompressBytes. Unpacked events are 5 to 10 times larger than compressed ones.
func (p *fetchPool) GetDecompressBytes(compressed []byte, _ kgo.CompressionCodecType) []byte {
	if b, ok := p.bytes.Get().(*[]byte); ok {
		return *b
	}
	return make([]byte, 0, min(8*len(compressed), poolBytes))
}

// PutDecompressBytes implements kgo.PoolDecompressBytes.
func (p *fetchPool) PutDecompressBytes(b []byte) {
	if cap(b) <= poolBytes {
		p.bytes.Put(&b)
	}
}

// GetRecords implements kgo.PoolRecords.
func (p *fetchPool) GetRecords(n int) []kgo.Record {
	if r, ok := p.records.Get().(*[]kgo.Record); ok && cap(*r) >= n {
		return (*r)[:0]
	}
	return make([]kgo.Record, 0, n)
}

// PutRecords implements kgo.PoolRecords.
func (p *fetchPool) PutRecords(r []kgo.Record) {
	const each = 200 // approximate bytes of a kgo.Record
	if cap(r)*each <= poolBytes {
		p.records.Put(&r)
	}
}
