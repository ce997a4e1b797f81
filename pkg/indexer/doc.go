// Package indexer is the stage that brings skein.runs into the lineage store.
//
// It reads as a consumer group, read_committed, in three steps that go on at the same time: the poller fetches, the
// gatherer decodes records into a block, the writer writes the block before and then commits its offsets. Each waits for
// the next one, so that memory is bounded: data durable, then offset, and no offset after a revocation. Partitions take turns within a block
// (backlog), so that a backlog of one holds up no other.
//
// A row is a pure function of one record and its version is the record's offset, so whatever is read again after a crash,
// a rebalance or a retry writes the same rows: that, and not a deduplication token, makes the index right.
//
// A run whose rows the store refuses is found by halving its block (bisector), and put into the dead letters. Any other error
// of the store is waited for.
package indexer
