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
	"github.com/skeinhq/skein/pkg/verify"
)

const (
	// rawKept is how many idle clients are kept for later reads.
	rawKept = 8
	// rawPoll is how many records one poll takes from the client.
	rawPoll = 500
	// rawFetch bounds one answer of a broker, compressed; a larger batch is still sent whole. The client unpacks the whole
	// answer, up to rawBytes, before its first record is available. So the bound also limits how long a read of a few
	// events waits.
	rawFetch = 64 << 10
	// rawBytes is the approximate memory that a read needs for the brokers' answers.
	rawBytes = 8 << 20
	// rawSeek is the gap between two ranges, in records, above which a seek costs less than reading on.
	rawSeek = 2000
	// rawQuiet is how long a read waits for the next record. Everything it reads exists already, so only an unavailable
	// broker takes that long.
	rawQuiet = 10 * time.Second
)

// errRawGone means that skein.events does not have the offset, or no longer.
var errRawGone = errors.New("the raw events are gone")

// rawLog reads skein.events read_committed and without a consumer group. Reads share a few clients.
type rawLog struct {
	cfg     kafka.Config
	readers *kafka.Readers
	quiet   time.Duration
}

func newRawLog(cfg kafka.Config) *rawLog {
	return &rawLog{
		cfg: cfg, quiet: rawQuiet,
		// Some producers end with a transaction marker, so control records show that the end was read.
		readers: kafka.NewReaders(cfg, cfg.Topics().Events, rawKept, kgo.KeepControlRecords(), kgo.FetchMaxPartitionBytes(rawFetch)),
	}
}

// rawRead reads one partition, once or several times in succession.
type rawRead struct {
	log       *rawLog
	load      *load // holds no slot during a wait for the brokers
	cl        *kgo.Client
	topic     string
	partition int32
	// start is the first offset that the partition still has; end is the one after the last committed record.
	start, end int64
	// done releases the memory of the read.
	done func()
	// waits is called before each wait for the brokers; it may be nil.
	waits func()

	// reading: the client consumes the partition. batch is its last answer, which has all records of the offsets [from,
	// to).
	reading  bool
	batch    []*kgo.Record
	from, to int64
	// failed: the client has returned an error, and no other read may use it.
	failed bool
}

// takeRaw takes memory for the brokers' answers; call the result to release it.
func (c *call) takeRaw() (done func(), err error) {
	if err := c.load.hold(rawBytes); err != nil {
		return nil, err
	}
	return func() { _ = c.load.hold(-rawBytes) }, nil // a release never fails
}

// openRaw starts a read of a partition of skein.events and takes the tenant's memory for it. Close it.
func (c *call) openRaw(partition int32) (*rawRead, error) {
	done, err := c.takeRaw()
	if err != nil {
		return nil, err
	}
	r, err := c.raw.open(c.R.Context(), c.load, partition)
	if err != nil {
		done()
		return nil, err
	}
	r.done = done
	return r, nil
}

// open starts a read of a partition. Close it.
func (l *rawLog) open(ctx context.Context, of *load, partition int32) (*rawRead, error) {
	cl, err := l.readers.Lend()
	if err != nil {
		return nil, fmt.Errorf("reading raw events: %w", err)
	}
	r := &rawRead{log: l, load: of, cl: cl, topic: l.cfg.Topics().Events, partition: partition, done: func() {}}
	if r.start, err = r.ask(ctx, kafka.Earliest); err == nil {
		r.end, err = r.ask(ctx, kafka.Stable)
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

// ask requests one offset of the partition (kafka.Offset).
func (r *rawRead) ask(ctx context.Context, at int64) (int64, error) {
	var offset int64
	err := r.load.pause(ctx, func() (err error) {
		ctx, cancel := context.WithTimeout(ctx, recordWait)
		defer cancel()
		offset, err = kafka.Offset(ctx, r.cl, r.topic, r.partition, at)
		return err
	})
	return offset, err
}

// at returns the first offset whose record is not older than t.
func (r *rawRead) at(ctx context.Context, t time.Time) (int64, error) {
	return r.ask(ctx, t.UnixMilli())
}

// earliest returns the first offset of the ranges that still exists; -1 if there is none.
func (r *rawRead) earliest(ranges [][2]int64) int64 {
	return verify.Earliest(ranges, [2]int64{r.start, r.end})
}

// each calls f with every record in the ranges, which are half-open, rising, disjoint and within start and end. f may
// call each. At a record that a newer Skein wrote, each returns record.ErrUnknownVersion.
func (r *rawRead) each(ctx context.Context, ranges [][2]int64, f func(*kgo.Record) error) error {
	next := int64(0) // the next offset to read
	for _, part := range ranges {
		for next = max(next, part[0]); next < part[1]; {
			records, err := r.read(ctx, next)
			if err != nil {
				return fmt.Errorf("reading %s from %d:%d on: %w", r.topic, r.partition, next, err)
			}
			for _, m := range records {
				if err := ctx.Err(); err != nil {
					return err
				}
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
				if err := kafka.CheckVersion(m); err != nil && !r.log.cfg.IngestKeys.Refuses(m) {
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

// read returns the batch of records from the offset next on. It returns the last batch again if that holds the offset.
// It keeps the client to read forward, since the runs of a thread follow each other.
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
	for {
		records, err := r.poll(ctx)
		if err != nil {
			return nil, err
		}
		// Lower offsets may arrive: they were fetched before the client moved to another offset.
		if last := records[len(records)-1].Offset; last >= next {
			r.batch, r.from, r.to = records, r.to, last+1
			return records, nil
		} else if last >= r.to {
			r.to = last + 1
		}
	}
}

// poll returns the next records, at least one.
func (r *rawRead) poll(ctx context.Context) (records []*kgo.Record, _ error) {
	err := r.load.pause(ctx, func() error {
		if r.waits != nil {
			r.waits()
		}
		wait, cancel := context.WithTimeout(ctx, r.log.quiet)
		defer cancel()
		for len(records) == 0 {
			fetches := r.cl.PollRecords(wait, rawPoll)
			if err := ctx.Err(); err != nil {
				return err
			}
			for _, e := range fetches.Errors() {
				r.failed = r.failed || !errors.Is(e.Err, context.DeadlineExceeded)
				if errors.Is(e.Err, kerr.OffsetOutOfRange) {
					return fmt.Errorf("%w: %w", errRawGone, e.Err)
				}
				return e.Err
			}
			records = fetches.Records()
		}
		return nil
	})
	return records, err
}
