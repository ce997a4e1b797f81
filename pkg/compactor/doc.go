// Package compactor is the stage that folds skein.events into run records, branch snapshots and
// dead letters, exactly once. It is the only writer of the three derived topics.
//
// One transaction holds what one cycle of the main loop has made, and the group's offsets. The committed offset of a
// partition is the first event that an open run still needs from the log; its metadata carry the processed offset, below
// which everything was decided. Between the two, events only rebuild open runs: nothing is decided, counted or written a
// second time. A progress record on skein.runs tells readers how far that is (partition.Progress).
//
// The types, from the outside in:
//
//   - Service runs one session after another until its context ends or the process is fenced.
//   - session is one life of the group's client. Its main loop (cycle) polls, processes and commits.
//   - membership is what the group says is ours; the client's callbacks write it and do nothing else.
//   - opener brings a partition from its assignment to its first event, beside the main loop: committed offset, fence,
//     catch-up of the local store.
//   - backlog is what was polled and is not processed yet. Partitions are processed side by side.
//   - partition.Processor is the engine of one partition: records and times come in as values, Effects go out as values.
//   - partition.Room is what one transaction may hold; all processors share it.
//   - runstore.Store holds, for one partition, what committed records of skein.runs say, and nothing
//     else. Deleting its folder costs time and nothing more.
//
// Bad data (a malformed event, a record on a wrong partition) becomes a dead letter and costs only
// itself. Bad weather (a broker away) ends the session, and with it everything that was not committed;
// the next session starts from what was. A disk that is full or fails ends the process, without waiting
// for its stores (runstore.Set): Pebble may block a writer forever, while the client's heartbeats continue.
package compactor
