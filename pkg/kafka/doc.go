// Package kafka holds every Kafka client option of Skein, each with its reason, and the topics with
// their settings. Nothing else in the module sets a client option, so how Skein treats a cluster can
// be read here.
//
// There is one constructor for each way in which a stage talks to Kafka:
//
//   - NewProducer: ingest; idempotent, all replicas, no transactions.
//   - NewCompactorSession: the compactor; one transaction holds its outputs and its offsets.
//   - NewGroupReader: the indexer; at least once, offsets committed by the caller.
//   - NewDirectReader: named partitions from named offsets, no group.
//   - Readers: such readers, lent to one read after another.
//   - Scan: what lies in a topic by now, on top of a direct reader.
//   - NewTransactor: commands that write all of something or nothing of it.
//   - NewAdmin, EnsureTopics, PartitionCount: topics.
//
// All readers are read_committed, and no offset is ever reset silently: one that is out of range is an
// error of the poll, since raw events that are gone must be counted and not skipped.
package kafka
