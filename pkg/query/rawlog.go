package query

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/skeinhq/skein/pkg/kafka"
)

const (
	// rawKept is how many clients are kept for the next reads.
	rawKept = 8
	// rawPoll is how many records are taken from the client at once.
	rawPoll = 500
	// rawFetch bounds one answer of a broker, compressed; a batch comes whole. It is unpacked before its first record is there, which
	// may take rawBytes: a read of a few events waits for no more than this.
	rawFetch = 64 << 10
	// rawBytes is about how much memory a read takes for what brokers answer.
	rawBytes = 8 << 20
	// rawSeek is the gap between two ranges, in records, from which on seeking costs less than reading.
	rawSeek = 2000
	// rawQuiet is how long a read waits for the next record. All that is read is there already, so this
	// is for brokers that are away.
	rawQuiet = 10 * time.Second
)

// errNoPartition says that skein.events has no such partition.
var errNoPartition = errors.New("there is no such partition")

// errRawGone says that skein.events does not have an offset (any more).
var errRawGone = errors.New("the raw events are gone")

// RawLog reads skein.events, and the dead letters among them, read_committed and outside of any group. Reads share a few clients.
type RawLog struct {
	cfg     kafka.Config
	readers *kafka.Readers
	quiet   time.Duration
}

// NewRawLog returns a reader for a topic set. It connects to nothing before the first read. Close it.
func NewRawLog(cfg kafka.Config) *RawLog {
	return &RawLog{
		cfg: cfg, quiet: rawQuiet,
		// Control records, as markers are the last of what some producers write.
		readers: kafka.NewReaders(cfg, cfg.Topics().Events, rawKept, kgo.KeepControlRecords(), kgo.FetchMaxPartitionBytes(rawFetch)),
	}
}

// Close closes the connections that no read uses, and the others at the end of their reads.
func (l *RawLog) Close() { l.readers.Close() }

// rawRead is one read of one partition, or several that follow each other.
type rawRead struct {
	log       *RawLog
	cl        *kgo.Client
	topic     string
	partition int32
	// start is the first offset that the partition still has, end the one after the last that is committed.
	start, end int64
	// done gives its memory back.
	done func()
	// waits is called before each wait for the brokers; it may be nil.
	waits func()

	// reading: the client reads the partition. batch is what it gave last, which is all there is from one offset up to another.
	reading  bool
	batch    []*kgo.Record
	from, to int64
	// failed: the client has given an error, and no other read is to get it.
	failed bool
}

// takeRaw takes memory for what brokers answer; call the result to give it back.
func (c *call) takeRaw() (done func(), err error) {
	if err := c.load.hold(rawBytes); err != nil {
		return nil, err
	}
	return func() { _ = c.load.hold(-rawBytes) }, nil // giving back never fails
}

// openRaw begins a read of a partition of skein.events for the tenant. Close it.
func (c *call) openRaw(partition int32) (*rawRead, error) {
	done, err := c.takeRaw()
	if err != nil {
		return nil, err
	}
	r, err := c.raw.open(c.R.Context(), partition)
	if err != nil {
		done()
		return nil, err
	}
	r.done = done
	return r, nil
}

// open begins a read of a partition. Close it.
func (l *RawLog) open(ctx context.Context, partition int32) (*rawRead, error) {
	cl, err := l.readers.Lend()
	if err != nil {
		return nil, fmt.Errorf("reading raw events: %w", err)
	}
	r := &rawRead{log: l, cl: cl, topic: l.cfg.Topics().Events, partition: partition, done: func() {}}
	if r.start, err = r.ask(ctx, r.admin().ListStartOffsets); err == nil {
		r.end, err = r.ask(ctx, r.admin().ListCommittedOffsets)
	}
	if err != nil {
		r.close()
		return nil, err
	}
	return r, nil
}

func (r *rawRead) admin() *kadm.Client { return kadm.NewClient(r.cl) }

func (r *rawRead) close() {
	if r.failed {
		r.cl.Close()
	} else {
		r.log.readers.Return(r.cl, r.partition)
	}
	r.done()
}

// ask asks for one offset of the partition.
func (r *rawRead) ask(ctx context.Context, list func(context.Context, ...string) (kadm.ListedOffsets, error)) (int64, error) {
	ctx, cancel := context.WithTimeout(ctx, recordWait)
	defer cancel()
	listed, err := list(ctx, r.topic)
	if err != nil {
		return 0, fmt.Errorf("asking for an offset of %s: %w", r.topic, err)
	}
	o, ok := listed.Lookup(r.topic, r.partition)
	if !ok {
		return 0, fmt.Errorf("asking for an offset of partition %d of %s: %w", r.partition, r.topic, errNoPartition)
	}
	if o.Err != nil {
		return 0, fmt.Errorf("asking for an offset of partition %d of %s: %w", r.partition, r.topic, o.Err)
	}
	return o.Offset, nil
}

// at returns the first offset whose record is not older than the time.
func (r *rawRead) at(ctx context.Context, t time.Time) (int64, error) {
	return r.ask(ctx, func(ctx context.Context, topics ...string) (kadm.ListedOffsets, error) {
		return r.admin().ListOffsetsAfterMilli(ctx, t.UnixMilli(), topics...)
	})
}

// earliest returns the first offset of the ranges that is still there; -1 where there is none.
func (r *rawRead) earliest(ranges [][2]int64) int64 {
	for _, part := range ranges {
		if at := max(part[0], r.start); at < min(part[1], r.end) {
			return at
		}
	}
	return -1
}

// each calls f with every record in the ranges, which are half-open, rising, disjoint and within the
// bounds. f may call each. A record of a newer Skein (record.ErrUnknownVersion) ends it.
func (r *rawRead) each(ctx context.Context, ranges [][2]int64, f func(*kgo.Record) error) error {
	next := int64(0) // to be read
	for _, part := range ranges {
		for next = max(next, part[0]); next < part[1]; {
			records, err := r.read(ctx, next)
			if err != nil {
				return fmt.Errorf("reading %s from %d:%d on: %w", r.topic, r.partition, next, err)
			}
			for _, m := range records {
				if m.Offset < next {
					continue
				}
				if m.Offset >= part[1] {
					next = part[1]
					break
				}
				if next = m.Offset + 1; m.Attrs.IsControl() {
					continue
				}
				if err := kafka.CheckVersion(m); err != nil {
					return err
				}
				if err := f(m); err != nil {
					return err
				}
			}
		}
	}
	return nil
}

// read returns records that hold the next one from an offset on. They are those of the last time where that was
// among them, and come from the same client where it lies behind: the runs of a thread follow each other.
func (r *rawRead) read(ctx context.Context, next int64) ([]*kgo.Record, error) {
	switch {
	case r.reading && r.from <= next && next < r.to:
		return r.batch, nil
	case r.reading && r.from <= next && next <= r.to+rawSeek: // read on
	case r.reading && r.from <= next:
		r.cl.SetOffsets(map[string]map[int32]kgo.EpochOffset{r.topic: {r.partition: {Epoch: -1, Offset: next}}})
		r.to = next
	default:
		r.cl.RemoveConsumePartitions(map[string][]int32{r.topic: {r.partition}})
		r.cl.AddConsumePartitions(map[string]map[int32]kgo.Offset{r.topic: {r.partition: kgo.NoResetOffset().At(next)}})
		r.reading, r.to = true, next
	}
	if r.waits != nil {
		r.waits()
	}
	for {
		records, err := r.poll(ctx)
		if err != nil {
			return nil, err
		}
		// Lower offsets were fetched before the client was moved to another offset.
		if last := records[len(records)-1].Offset; last >= next {
			r.batch, r.from, r.to = records, r.to, last+1
			return records, nil
		} else if last >= r.to {
			r.to = last + 1
		}
	}
}

// poll returns the next records, at least one.
func (r *rawRead) poll(ctx context.Context) ([]*kgo.Record, error) {
	wait, cancel := context.WithTimeout(ctx, r.log.quiet)
	defer cancel()
	for {
		fetches := r.cl.PollRecords(wait, rawPoll)
		if err := ctx.Err(); err != nil {
			return nil, err
		}
		for _, e := range fetches.Errors() {
			r.failed = r.failed || !errors.Is(e.Err, context.DeadlineExceeded)
			if errors.Is(e.Err, kerr.OffsetOutOfRange) {
				return nil, fmt.Errorf("%w: %w", errRawGone, e.Err)
			}
			return nil, e.Err
		}
		if records := fetches.Records(); len(records) > 0 {
			return records, nil
		}
	}
}
