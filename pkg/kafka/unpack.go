package kafka

import (
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"
)

// ErrUnpackLater is a partition's error in a poll if the response reached its limit before the partition's first batch. Ignore the
// error, because the next fetch begins at this batch.
var ErrUnpackLater = errors.New("the answer unpacks to more than is held at once; the rest is fetched again")

// maxUnpackBytes limits the unpacked size of one batch. Skein's batches have up to MaxBatchBytes, and those of other producers may
// have more, but with kgo's default of 1 GiB, a producer could exhaust the process's memory.
const maxUnpackBytes = 256 << 20

// unpackLimit limits the unpacked size of a fetch response. FetchMaxBytes counts compressed bytes: 14 MB of one letter become 2 KB,
// so a response of 256 KB could unpack to gigabytes. Beyond the limit, Decompress returns an error. The client then returns the
// partition's earlier batches and fetches the rest again, because kgo ignores an unpacking error after complete batches (brokers
// may cut the last batch of a response). The first batch of a response is always unpacked. Simultaneous responses of several
// brokers share the limit.
type unpackLimit struct {
	kgo.Decompressor
	limit int64
	left  atomic.Int64
	pool  *fetchPool // nil if there is none
}

var _ kgo.HookBrokerRead = (*unpackLimit)(nil)

// limitUnpacking returns the options that limit the unpacked size of each fetch response. One batch may exceed the limit.
// pool may be nil.
func limitUnpacking(limit int64, pool *fetchPool) ([]kgo.Opt, error) {
	decompressor := unpooledDecompressor
	var pools []kgo.Pool
	if pool != nil {
		pools = append(pools, pool)
		decompressor = func() (kgo.Decompressor, error) { return boundedDecompressor(pools...) }
	}
	inner, err := decompressor()
	if err != nil {
		return nil, err
	}
	l := &unpackLimit{Decompressor: inner, limit: limit, pool: pool}
	l.left.Store(limit)
	return []kgo.Opt{kgo.WithPools(pools...), kgo.WithDecompressor(l), kgo.WithHooks(l)}, nil
}

var unpooledDecompressor = sync.OnceValues(func() (kgo.Decompressor, error) { return boundedDecompressor() })

// boundedDecompressor returns the decompressor of a temporary client, because kgo has no other constructor with a limit per batch.
func boundedDecompressor(pools ...kgo.Pool) (kgo.Decompressor, error) {
	lender, err := kgo.NewClient(kgo.MaxDecompressBatchBytes(maxUnpackBytes), kgo.WithPools(pools...))
	if err != nil {
		return nil, fmt.Errorf("making a decompressor: %w", err)
	}
	defer lender.Close()
	d, ok := lender.OptValue(kgo.WithDecompressor).(kgo.Decompressor)
	if !ok {
		return nil, errors.New("making a decompressor: the Kafka client has none")
	}
	return d, nil
}

// OnBrokerRead implements kgo.HookBrokerRead. It resets the limit for each fetch response.
func (l *unpackLimit) OnBrokerRead(_ kgo.BrokerMetadata, key int16, _ int, _, _ time.Duration, _ error) {
	const fetch = 1
	if key == fetch {
		l.left.Store(l.limit)
	}
}

// Decompress implements kgo.Decompressor.
func (l *unpackLimit) Decompress(src []byte, codec kgo.CompressionCodecType) ([]byte, error) {
	if codec != kgo.CodecNone && l.left.Load() <= 0 {
		return nil, ErrUnpackLater
	}
	out, err := l.Decompressor.Decompress(src, codec)
	l.left.Add(-int64(len(out)))
	if err == nil && l.pool != nil {
		l.pool.unpacked(len(src), len(out))
	}
	return out, err
}
