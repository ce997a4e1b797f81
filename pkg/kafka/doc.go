// Package kafka has every Kafka client option of Skein, each with its reason, and the topics with their settings. No other
// package sets client options.
//
// It has one constructor for each use of Kafka:
//
//   - NewProducer: ingest; idempotent, all replicas, no transactions.
//   - NewCompactorSession: the compactor; one transaction has its outputs and its offsets.
//   - NewGroupReader: the indexer; at least once, offsets committed by the caller.
//   - NewDirectReader: partitions from given offsets on, without a group.
//   - Readers: a pool of direct readers.
//   - Scan: all records of a topic at the time of the call, with a direct reader.
//   - NewTransactor: commands that write all of their records or none.
//   - NewAdmin, EnsureTopics, PartitionCount: topics.
//
// All readers are read_committed. None resets an offset: an offset out of range is an error of the poll, because missing raw
// events must be counted, not skipped.
package kafka
