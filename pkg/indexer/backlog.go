package indexer

import (
	"slices"

	"github.com/twmb/franz-go/pkg/kgo"
)

const (
	// holdBytes is how much may wait of a partition until no more of it is fetched.
	holdBytes = 4 << 20
	// deepBytes is how much waits at least of a partition that has a backlog.
	deepBytes = 256 << 10
	// backlogBytes is how much may wait of all partitions until nothing more is polled.
	backlogBytes = 24 << 20
)

// fetching is what the gatherer needs of a client: to leave partitions out of what is fetched.
type fetching interface {
	PauseFetchPartitions(map[string][]int32) map[string][]int32
	ResumeFetchPartitions(map[string][]int32)
}

// backlog holds what was polled and is in no block yet, by partition. Partitions take turns, and one of which much waits is not fetched: so a
// record waits for those before it on its own partition, and hardly for those of others.
type backlog struct {
	client fetching
	topic  string
	// stopped reports whether a partition stays paused, whatever is left of it.
	stopped func(partition int32) bool
	queues  []*queue
	bytes   int64
}

// queue is what waits of one partition.
type queue struct {
	partition int32
	epoch     int64 // of the assignment under which it was fetched
	records   []*kgo.Record
	bytes     int64
	held      bool  // nothing more is fetched
	head      entry // the first record's, where it is decoded
	decoded   bool
	gathered  int64 // what the block has of it, as sizeOf counts
}

// add takes in what was polled. What waits from an assignment before is not ours.
func (b *backlog) add(p polled) {
	p.records.EachPartition(func(f kgo.FetchTopicPartition) {
		if len(f.Records) == 0 {
			return
		}
		at := slices.IndexFunc(b.queues, func(q *queue) bool { return q.partition == f.Partition })
		if at < 0 {
			at = len(b.queues)
			b.queues = append(b.queues, &queue{partition: f.Partition})
		}
		q := b.queues[at]
		if epoch := p.epochs[f.Partition]; q.epoch != epoch {
			b.drop(q, len(q.records))
			q.epoch, q.held = epoch, false // an assignment begins unpaused
		}
		q.records = append(q.records, f.Records...)
		for _, r := range f.Records {
			q.bytes += memoryOf(r)
			b.bytes += memoryOf(r)
		}
		b.hold(q)
	})
}

// next returns the partition whose record is to be decoded next: the one of which the block has least. It is nil where each partition that waits
// has had an even part of the size that blocks are to have: one that comes later has room for its own.
func (b *backlog) next(size int64) (first *queue) {
	parts := int64(0)
	for _, q := range b.queues {
		if len(q.records) > 0 || q.gathered > 0 {
			parts++
		}
		if len(q.records) > 0 && (first == nil || q.gathered < first.gathered) {
			first = q
		}
	}
	if first != nil && first.gathered >= max(1, size/parts) {
		return nil
	}
	return first
}

// waiting is how many partitions have anything.
func (b *backlog) waiting() (n int) {
	for _, q := range b.queues {
		if len(q.records) > 0 {
			n++
		}
	}
	return n
}

// deep is how many partitions have a backlog: much of them waits, or has come into the block.
func (b *backlog) deep(gathered int64) (n int) {
	for _, q := range b.queues {
		if q.bytes >= deepBytes || q.gathered >= gathered {
			n++
		}
	}
	return n
}

// drop drops the first records of a queue. An entry shares nothing with its record, so that the client uses its memory again.
func (b *backlog) drop(q *queue, n int) {
	for _, r := range q.records[:n] {
		q.bytes -= memoryOf(r)
		b.bytes -= memoryOf(r)
		r.Recycle()
	}
	clear(q.records[:n])
	q.records, q.head, q.decoded = q.records[n:], entry{}, false
	b.hold(q)
}

// hold has the client fetch no more of a partition of which much waits, and go on with it once half of that is left.
func (b *backlog) hold(q *queue) {
	switch {
	case !q.held && q.bytes > holdBytes:
		q.held = true
		b.client.PauseFetchPartitions(map[string][]int32{b.topic: {q.partition}})
	case q.held && q.bytes <= holdBytes/2 && !b.stopped(q.partition):
		q.held = false
		b.client.ResumeFetchPartitions(map[string][]int32{b.topic: {q.partition}})
	}
}

// opened begins to count anew what a block has of each partition.
func (b *backlog) opened() {
	for _, q := range b.queues {
		q.gathered = 0
	}
}

// memoryOf is about what a record takes before it is decoded.
func memoryOf(r *kgo.Record) int64 {
	const overhead = 512 // of the record and its headers
	return overhead + int64(len(r.Key)+len(r.Value))
}
