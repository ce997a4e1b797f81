// Package indexer is the stage that brings skein.runs into the lineage store.
//
// It reads as a consumer group, read_committed, and writes large blocks: data durable, then offset,
// and no offset after a revocation. A row is a pure function of one record and its version is the
// record's offset, so whatever is read again after a crash, a rebalance or a retry writes the same
// rows: that, and not a deduplication token, makes the index right.
package indexer
