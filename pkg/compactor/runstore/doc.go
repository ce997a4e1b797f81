// Package runstore is the compactor's local store: it holds, for each partition, the contents of committed records of
// skein.runs, and nothing else.
//
// A Store is written after a commit, never before, so a crash leaves it behind skein.runs and never ahead of it. It has no
// log of its own: a crash loses what is in memory, at most two memtables a partition. A catch-up completes it when its
// partition is opened. Deleting its folder only costs time.
//
// A Set holds the stores of one process. They are on one disk. If the disk is full or fails, the process ends without
// waiting for its stores, since Pebble may block a writer for ever while the Kafka client's heartbeats continue.
package runstore
