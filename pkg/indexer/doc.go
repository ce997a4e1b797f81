// Package indexer is the stage that writes skein.runs to the lineage store.
//
// It reads as a consumer group, read_committed, in three concurrent steps: the poller fetches, the gatherer decodes records into a
// block, the writer writes the previous block and then commits its offsets. Each step waits for the next one, which bounds memory.
// Offsets are committed after the data is durable, and never after a revocation. Partitions take turns within a block (backlog), so
// that one partition's backlog does not delay the others.
//
// A row is a pure function of one record, and its version is the record's offset. So records that are read again after a crash, a
// rebalance or a retry write the same rows, and the index is right without deduplication.
//
// If the store refuses a block, the bisector finds the refused runs by halving it, and they become dead letters. After any other error
// of the store the indexer retries until it succeeds.
package indexer
