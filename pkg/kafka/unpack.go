package kafka

import (
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"
)

// ErrUnpackLater is the error of a partition in a poll of which nothing was unpacked, as the answer had unpacked to enough before it. It is
// no failure: the next fetch begins there. Pass over it.
var ErrUnpackLater = errors.New("the answer unpacks to more than is held at once; the rest is fetched again")

// maxUnpackBytes is how large a batch may unpack to. Ours are up to MaxBatchBytes before compression; other producers' may be more,
// but 1 GiB, the client's default, is a way to kill the process.
const maxUnpackBytes = 256 << 20

// unpackLimit bounds what one answer to a fetch unpacks to. FetchMaxBytes counts what is sent, and 14 MB of one letter are 2 KB
// there, so that an answer of 512 KB unpacked to several gigabytes. Beyond the limit a batch is refused: the client gives what
// came before it in its partition, and fetches it again (kgo passes over an error of unpacking behind records, as brokers cut
// the last batch off). The first batch of an answer is unpacked in any case. With several brokers, answers that come at the same
// time share what is left.
type unpackLimit struct {
	kgo.Decompressor
	most int64
	left atomic.Int64
}

var _ kgo.HookBrokerRead = (*unpackLimit)(nil)

// limitUnpacking returns the options that have each answer unpack to about so many bytes at most, and a batch more at the worst.
func limitUnpacking(most int64, pools ...kgo.Pool) ([]kgo.Opt, error) {
	decompressor := unpooledDecompressor
	if len(pools) > 0 {
		decompressor = func() (kgo.Decompressor, error) { return boundedDecompressor(pools...) }
	}
	inner, err := decompressor()
	if err != nil {
		return nil, err
	}
	l := &unpackLimit{Decompressor: inner, most: most}
	l.left.Store(most)
	return []kgo.Opt{kgo.WithPools(pools...), kgo.WithDecompressor(l), kgo.WithHooks(l)}, nil
}

var unpooledDecompressor = sync.OnceValues(func() (kgo.Decompressor, error) { return boundedDecompressor() })

// boundedDecompressor borrows that of a client: kgo bounds the one that it makes itself, and offers no other that is.
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

// OnBrokerRead implements kgo.HookBrokerRead: an answer to a fetch has room of its own.
func (l *unpackLimit) OnBrokerRead(_ kgo.BrokerMetadata, key int16, _ int, _, _ time.Duration, _ error) {
	const fetch = 1
	if key == fetch {
		l.left.Store(l.most)
	}
}

// Decompress implements kgo.Decompressor.
func (l *unpackLimit) Decompress(src []byte, codec kgo.CompressionCodecType) ([]byte, error) {
	if codec != kgo.CodecNone && l.left.Load() <= 0 {
		return nil, ErrUnpackLater
	}
	out, err := l.Decompressor.Decompress(src, codec)
	l.left.Add(-int64(len(out)))
	return out, err
}
