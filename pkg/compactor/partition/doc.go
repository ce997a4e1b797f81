// Package partition folds the records of one partition of skein.events and collects what the next transaction writes: run
// records, snapshots, dead letters and the progress record. It has no Kafka client, clock or logger: records and times come
// in as values, outputs go out as values, so a test decides what is committed and where a process dies.
//
//	records ─▶ Processor.Process ─▶ Collect ─▶ Effects ─▶ the caller's transaction ─▶ Committed ─▶ runstore
//
// Everything below the processed offset was decided by an earlier transaction. Between the committed and the processed
// offset records only rebuild open runs: nothing is decided, counted or written a second time. After a transaction of
// unknown outcome the processor is thrown away, and the next one is opened from what was committed.
//
// Offline folds the records of one thread in memory, without a stage around it.
package partition
