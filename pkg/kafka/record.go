package kafka

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"
)

// ErrNoRecord means that a topic has no committed record at an offset. Compaction or retention has removed it, its transaction was
// aborted, or the offset is that of a transaction marker or beyond the end.
var ErrNoRecord = errors.New("there is no record at this offset")

// RecordReader reads single records of a topic by offset. Concurrent reads share its client. It keeps no positions and no buffers.
type RecordReader struct {
	cl    *kgo.Client
	adm   *kadm.Client
	topic string
}

// recordPause is the time between two requests for a record while brokers are unavailable.
const recordPause = 100 * time.Millisecond

// NewRecordReader returns a reader of a topic, which connects at the first Read.
func NewRecordReader(cfg Config, topic string) (*RecordReader, error) {
	cl, err := cfg.newClient("records", false)
	if err != nil {
		return nil, err
	}
	return &RecordReader{cl: cl, adm: kadm.NewClient(cl), topic: topic}, nil
}

// Close closes the connections. Running reads fail.
func (r *RecordReader) Close() { r.cl.Close() }

// Read returns the committed record at an offset, or ErrNoRecord. While brokers are unavailable, it retries until ctx ends.
func (r *RecordReader) Read(ctx context.Context, partition int32, offset int64) (*kgo.Record, error) {
	for next := offset; ; {
		records, after, err := r.fetch(ctx, partition, next)
		switch {
		case errors.Is(err, kerr.OffsetOutOfRange):
			return nil, ErrNoRecord
		case isRetriable(err) || err == nil && len(records) == 0 && after <= next:
			select {
			case <-ctx.Done():
				return nil, ctx.Err()
			case <-time.After(recordPause):
			}
			continue
		case err != nil:
			return nil, err
		case len(records) == 0: // compaction left an empty batch
			next = after
			continue
		}
		if m := records[0]; m.Offset == offset && !m.Attrs.IsControl() {
			return m, nil
		}
		return nil, ErrNoRecord
	}
}

// isRetriable reports whether a retry may succeed. It treats errors that are not from a broker as network errors.
func isRetriable(err error) bool {
	if answer := new(kerr.Error); errors.As(err, &answer) {
		return answer.Retriable
	}
	return err != nil
}

// fetch returns the records of the batch at an offset, including transaction markers, and the offset after them.
func (r *RecordReader) fetch(ctx context.Context, partition int32, offset int64) ([]*kgo.Record, int64, error) {
	meta, err := r.adm.Metadata(ctx, r.topic)
	if err != nil {
		return nil, 0, fmt.Errorf("finding the leader of %s/%d: %w", r.topic, partition, err)
	}
	topic := meta.Topics[r.topic]
	at := topic.Partitions[partition]
	if err := errors.Join(topic.Err, at.Err); err != nil {
		return nil, 0, fmt.Errorf("finding the leader of %s/%d: %w", r.topic, partition, err)
	}
	req := kmsg.NewPtrFetchRequest()
	req.MaxWaitMillis, req.MinBytes, req.MaxBytes = int32(recordPause.Milliseconds()), 1, MaxBatchBytes
	req.IsolationLevel = 1 // read_committed
	req.SessionEpoch = -1  // no fetch session
	ofTopic, ofPartition := kmsg.NewFetchRequestTopic(), kmsg.NewFetchRequestTopicPartition()
	ofTopic.Topic, ofTopic.TopicID = r.topic, topic.ID
	// With a limit of 1 byte, the response has one batch, however large (KIP-74).
	ofPartition.Partition, ofPartition.FetchOffset, ofPartition.PartitionMaxBytes = partition, offset, 1
	ofTopic.Partitions = append(ofTopic.Partitions, ofPartition)
	req.Topics = append(req.Topics, ofTopic)
	resp, err := r.cl.Broker(int(at.Leader)).RetriableRequest(ctx, req)
	if err != nil {
		return nil, 0, fmt.Errorf("fetching %s/%d@%d: %w", r.topic, partition, offset, err)
	}
	answer := resp.(*kmsg.FetchResponse)
	if err := kerr.ErrorForCode(answer.ErrorCode); err != nil {
		return nil, 0, fmt.Errorf("fetching %s/%d@%d: %w", r.topic, partition, offset, err)
	}
	if len(answer.Topics) != 1 || len(answer.Topics[0].Partitions) != 1 {
		return nil, offset, nil
	}
	fetched, after := kgo.ProcessFetchPartition(kgo.ProcessFetchPartitionOpts{
		KeepControlRecords: true, Offset: offset, IsolationLevel: kgo.ReadCommitted(), Topic: r.topic, Partition: partition,
	}, &answer.Topics[0].Partitions[0], kgo.DefaultDecompressor(), nil)
	return fetched.Records, after, fetched.Err
}
