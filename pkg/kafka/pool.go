package kafka

import (
	"sync"

	"github.com/twmb/franz-go/pkg/kgo"
)

// fetchPool lets a reader use again what its fetches were unpacked into, once every record of a batch
// was given back (kgo.Record.Recycle). Most of what a reader allocates is that; a record's headers
// are not part of it.
type fetchPool struct {
	bytes   sync.Pool // of *[]byte
	records sync.Pool // of *[]kgo.Record
}

var (
	_ kgo.PoolDecompressBytes = (*fetchPool)(nil)
	_ kgo.PoolRecords         = (*fetchPool)(nil)
)

// poolBytes is the greatest slice in bytes that is kept: one large batch must not stay for good.
const poolBytes = 8 << 20

// GetDecompressBytes implements kgo.PoolDecompressBytes. Events take 5 to 10 times the room unpacked.
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
	const each = 200 // bytes of a record, about
	if cap(r)*each <= poolBytes {
		p.records.Put(&r)
	}
}
