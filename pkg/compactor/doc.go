// Package compactor is the stage that folds skein.events into run records, branch snapshots and
// dead letters, exactly once. It is the only writer of the three derived topics.
//
// One transaction contains the outputs of one cycle of the main loop and the group's offsets. The committed offset of a partition is the
// first event that an open run still needs from the log; its metadata carry the processed offset, below which everything was decided.
// Between the two, events only rebuild open runs: nothing is decided, counted or written a second time. A progress record on skein.runs
// tells readers below which offset no event is missing there (record.Progress).
//
// The types, from the outside in:
//
//   - Service runs one session after another until its context ends or it must not continue (Service.Run).
//   - session is one life of the group's client. Its main loop (cycle) polls, processes and commits.
//   - membership holds the partitions that the group assigned to us. The client's callbacks only update it and have offsets fetched.
//   - opener opens an assigned partition in the background: it fetches the committed offset, provides the fence and
//     brings the local store up to date.
//   - backlog holds the records that were polled and are not processed yet. It processes partitions in parallel.
//   - partition.Processor is the engine of one partition: records and times come in as values, Effects go out as values.
//   - partition.Room limits what one transaction may hold; all processors share it.
//   - runstore.Store holds, for one partition, the contents of committed records of skein.runs, and nothing else.
//     Deleting its folder only costs time.
//
// Bad data (a malformed event, a record on a wrong partition) becomes a dead letter and affects nothing else. A failure
// of Kafka (a broker away) ends the session and discards what was not committed; the next session starts from what was
// committed. A disk that is full or fails ends the process. The process does not wait for its stores then
// (runstore.Set), as Pebble may block a writer forever while the client's heartbeats continue.
package compactor
