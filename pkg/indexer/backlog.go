package indexer

import (
	"slices"

	"github.com/twmb/franz-go/pkg/kgo"
)

const (
	// holdBytes is the size of a partition's queue above which its fetches are paused.
	holdBytes = 4 << 20
	// deepBytes is the size of a partition's queue from which it counts as deep.
	deepBytes = 256 << 10
	// backlogBytes is the size of all queues above which nothing is polled.
	backlogBytes = 24 << 20
)

// fetching is the part of a client that pauses partitions.
type fetching interface {
	PauseFetchPartitions(map[string][]int32) map[string][]int32
	ResumeFetchPartitions(map[string][]int32)
}

// backlog has, by partition, the polled records that are in no block yet. Partitions take turns, and a partition with a large queue
// is not fetched, so a record hardly waits for records of other partitions.
type backlog struct {
	client fetching
	topic  string
	// stopped reports whether a partition stays paused even with an empty queue.
	stopped func(partition int32) bool
	queues  []*queue
	bytes   int64
}

// queue has the records of one partition.
type queue struct {
	partition int32
	epoch     int64 // of the assignment under which it was fetched
	records   []*kgo.Record
	bytes     int64
	paused    bool
	head      entry // of the first record, if it is decoded
	decoded   bool
	gathered  int64 // size of the partition's records in the block, as sizeOf counts
}

// add adds polled records. It drops records from earlier assignments of a partition.
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
			q.epoch, q.paused = epoch, false // an assignment begins unpaused
		}
		q.records = append(q.records, f.Records...)
		for _, r := range f.Records {
			q.bytes += memoryOf(r)
			b.bytes += memoryOf(r)
		}
		b.pause(q)
	})
}

// next returns the queue whose record is decoded next: the one with the fewest bytes in the block. It returns nil once each
// partition with records has its equal share of the block's size, which keeps space for partitions whose records come later.
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

// waiting returns how many partitions have records.
func (b *backlog) waiting() (n int) {
	for _, q := range b.queues {
		if len(q.records) > 0 {
			n++
		}
	}
	return n
}

// deep returns how many partitions have a backlog: a large queue, or at least gathered bytes in the block.
func (b *backlog) deep(gathered int64) (n int) {
	for _, q := range b.queues {
		if q.bytes >= deepBytes || q.gathered >= gathered {
			n++
		}
	}
	return n
}

// drop drops the first n records of a queue and recycles them, since entries share no memory with their records.
func (b *backlog) drop(q *queue, n int) {
	for _, r := range q.records[:n] {
		q.bytes -= memoryOf(r)
		b.bytes -= memoryOf(r)
		r.Recycle()
	}
	clear(q.records[:n])
	q.records, q.head, q.decoded = q.records[n:], entry{}, false
	b.pause(q)
}

// pause pauses the fetches of a partition with a large queue, and resumes them once the queue is half that size.
func (b *backlog) pause(q *queue) {
	switch {
	case !q.paused && q.bytes > holdBytes:
		q.paused = true
		b.client.PauseFetchPartitions(map[string][]int32{b.topic: {q.partition}})
	case q.paused && q.bytes <= holdBytes/2 && !b.stopped(q.partition):
		q.paused = false
		b.client.ResumeFetchPartitions(map[string][]int32{b.topic: {q.partition}})
	}
}

// opened resets the sizes for a new block.
func (b *backlog) opened() {
	for _, q := range b.queues {
		q.gathered = 0
	}
}

// memoryOf estimates the memory of a record that is not decoded, in bytes.
func memoryOf(r *kgo.Record) int64 {
	const overhead = 512 // of the record and its headers
	return overhead + int64(len(r.Key)+len(r.Value))
}
