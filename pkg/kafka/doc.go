// Package kafka contains the Kafka client options of Skein, with the reason for each, and the topics with their settings. Other
// packages only add single options to those of a constructor.
//
// It has one constructor for each use of Kafka:
//
//   - NewProducer: ingest; idempotent, all replicas, no transactions.
//   - NewCompactorSession: the compactor; outputs and offsets in one transaction.
//   - NewGroupReader: the indexer; at least once, offsets committed by the caller.
//   - NewDirectReader: partitions from given offsets, without a group.
//   - Readers: a pool of direct readers.
//   - Scan: given spans of offsets of a topic, with a direct reader.
//   - NewTransactor: commands that write either all their records or none.
//   - NewAdmin, EnsureTopics, PartitionCount: topics.
//
// All readers are read_committed. No reader resets an offset: an offset out of range is an error of the poll, because missing raw
// events must be counted, not skipped.
package kafka
