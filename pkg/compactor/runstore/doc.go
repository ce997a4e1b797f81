// Package runstore is the compactor's local store: of each partition, what committed records of skein.runs say, and nothing else.
//
// A Store is written after a commit, never before, so a crash leaves it behind skein.runs and never ahead of it. A catch-up completes it
// when its partition is opened. Deleting its folder costs time and nothing more.
//
// A Set holds the stores of one process. They lie on one disk: a disk that is full or fails ends the process, without waiting for its
// stores, since Pebble may block a writer for ever while the Kafka client's heartbeats go on.
package runstore
